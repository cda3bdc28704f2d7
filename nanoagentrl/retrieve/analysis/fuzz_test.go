package analysis

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Whatever the text, terms are made without a panic, never empty, in one order, and the words are pieces of the text
// that stand in it one after the other.
func FuzzTerms(f *testing.F) {
	for _, seed := range []string{
		"The capital of France's runners", "U.S.A. 3.14 1,000 a:b x_y C++", "órgãos Beyonce\u0301", "東京 タワー ภาษาไทย",
		"👍🏽🇩🇪🇫🇷 #\ufe0f\u20e3", "\xff\xfe\xc3", "\x00", strings.Repeat("x", 300), "a\u200bb \u0e31\u0e31", "\u2029\u0301",
	} {
		f.Add(seed, false, false)
	}
	f.Fuzz(func(t *testing.T, text string, plain, compose bool) {
		a := Analyzer{KeepPossessive: plain, KeepStopWords: plain, NoStemming: plain, ComposeAccents: compose}
		terms := a.Terms(text)
		require.Equal(t, terms, a.Terms(text))
		for _, term := range terms {
			require.NotEmpty(t, term)
		}
		if compose || !utf8.ValidString(text) {
			return
		}
		rest := text
		a.Tokens(text, func(token string) {
			_, after, found := strings.Cut(rest, token)
			require.True(t, found, "%q is not in %q", token, rest)
			rest = after
		})
	})
}
