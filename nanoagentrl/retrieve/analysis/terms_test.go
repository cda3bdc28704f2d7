package analysis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func terms(text string) []string { return Analyzer{}.Terms(text) }

// The terms are what Anserini 2.3.0's DefaultEnglishAnalyzer returns.
func TestTermsEqualLucene(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"The capital of France's runners", "capit franc runner"},
		{"don't John’s O'Neill's DOGS'S l’été", "don't john o'neil dog l’été"},
		{"U.S.A. 3.14 1,000 10:30 a:b x_y C++ AC/DC", "u.s.a 3.14 1,000 10 30 a:b x_y c ac dc"},
		{"ies sses eed eeds relational possibly analogy", "i ss eed eed relat possibl analog"},
		{"_ ! ½ ² — €", ""},
		{"İstanbul ΣΊΣΥΦΟΣ Straße ﬁne", "istanbul σίσυφοσ straße ﬁne"},
		{"カタカナひら漢字 한국어", "カタカナ ひ ら 漢 字 한국어"},
		{"ภาษาไทย ไทย123", "ภาษาไทย ไทย 123"},
		{"👍🏽🇩🇪🇫🇷 © #\ufe0f\u20e3", "👍🏽 🇩🇪 🇫🇷 © #\ufe0f\u20e3"},
		{"foo\u00adbar a\u200bb e\u0301te\u0301", "foo\u00adbar b e\u0301te\u0301"},
		{"i'm no's it's", "i'm"},
	} {
		assert.Equal(t, strings.Fields(c.want), append([]string{}, terms(c.text)...), "%q", c.text)
	}
}

func TestOverLongTokensAreCutAsInLucene(t *testing.T) {
	x := strings.Repeat("x", 300)
	assert.Equal(t, []string{x[:255], x[:45]}, terms(x))
	e := strings.Repeat("é", 256)
	assert.Equal(t, []string{strings.Repeat("é", 255), "é"}, terms(e))
	assert.Equal(t, []string{strings.Repeat("é", 200)}, terms(strings.Repeat("é", 200)))
}

func TestEachPartOfTheAnalysisCanBeLeftOut(t *testing.T) {
	const text = "The runners of Anna's Beyonce\u0301"
	for want, a := range map[string]Analyzer{
		"runner anna beyonce\u0301":          {},
		"runner anna' beyonce\u0301":         {KeepPossessive: true},
		"the runner of anna beyonce\u0301":   {KeepStopWords: true},
		"runners anna beyonce\u0301":         {NoStemming: true},
		"runner anna beyonc\u00e9":           {ComposeAccents: true},
		"the runners of anna's beyonc\u00e9": {true, true, true, true},
	} {
		assert.Equal(t, strings.Fields(want), a.Terms(text), "%+v", a)
	}
}
