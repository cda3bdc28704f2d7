package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scannerCases pairs each scanner with the regular expression it stands for, in the dialect of regexp2. That library
// folds the case of letters one by one and so does not know the long s, which is spelt out.
var scannerCases = []struct {
	name    string
	scanner scanner
	pattern string
}{
	{"gpt2", gpt2Piece, `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`},
	{"qwen2", qwen2Piece, strings.Replace(qwen2Pattern, "'s", "'[sſ]", 1)},
	{"llama3", llama3Piece, strings.Replace(llama3Pattern, "'s", "'[sſ]", 1)},
	{"digits", digitPiece, `\p{N}|[^\p{N}]+`},
	{"runs of digits", numberPiece, `\p{N}+|[^\p{N}]+`},
}

func pieces(s string, scanners ...scanner) []string {
	list := []string{}
	splitPieces(s, scanners, func(piece string) { list = append(list, piece) })
	return list
}

func regexpPieces(t testing.TB, re *regexp2.Regexp, s string) []string {
	t.Helper()
	list := []string{}
	m, err := re.FindStringMatch(s)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		list = append(list, m.String())
	}
	require.NoError(t, err)
	return list
}

func TestScannersAgreeWithTheirRegularExpressions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "'ſ'S's", "x'ſx", "\n\n \n", "  \u2028 x", "1234 12345", "->(x):\n\n"}
	for range 2000 {
		texts = append(texts, randomText(random))
	}
	for _, c := range scannerCases {
		re := regexp2.MustCompile(c.pattern, regexp2.None)
		for _, s := range texts {
			got := pieces(s, c.scanner)
			require.Equal(t, regexpPieces(t, re, s), got, "%s: %q", c.name, s)
			require.Equal(t, s, strings.Join(got, ""))
		}
	}
}

var fragments = []string{
	"'s", "'S", "'re", "'LL", "'Ve", "'d", "'", "a", "the", "The", "é", "e\u0301", "\u0301", "ſ", "ß",
	"1", "23", "456789", "½", "²", "٣", "Ⅷ",
	" ", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u2003", "\u2028", "\u2029", "\u3000",
	"\u0085", "\u1680", "\u205f", "\v", "\f", "\x00", "\x1c", "\u200b", "\ufeff", "\u200d",
	"日本", "한국", "हि", "ไทย", "😀", "👩\u200d👧", "->", "(x):", "!!!", "...", "#", "_",
	"<|im_end|>", "<search>", "</search>", "<tool_call>",
}

// randomText returns up to 14 fragments, or up to 40 characters of any kind that both Unicode versions at hand know.
func randomText(random *rand.Rand) string {
	var b strings.Builder
	if random.IntN(4) > 0 {
		for range random.IntN(15) {
			b.WriteString(fragments[random.IntN(len(fragments))])
		}
		return b.String()
	}
	limits := []int32{0x80, 0x250, 0x3100, 0x20000}
	limit := limits[random.IntN(len(limits))]
	for range random.IntN(40) {
		r := random.Int32N(limit)
		if utf8.ValidRune(r) && !unicode.In(r, lettersSince15, numbersSince15) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// "Qwen2 pre-tokeniser differs from GPT-2/Llama-3": single digits, symbol runs with their newlines, any case.
func TestEachFamilyCutsInItsOwnWay(t *testing.T) {
	for _, c := range []struct {
		text                string
		gpt2, qwen2, llama3 []string
	}{
		{"1234", []string{"1234"}, []string{"1", "2", "3", "4"}, []string{"123", "4"}},
		{"(x):\n", []string{"(", "x", "):", "\n"}, []string{"(x", "):\n"}, []string{"(x", "):\n"}},
		{"I'M", []string{"I", "'", "M"}, []string{"I", "'M"}, []string{"I", "'M"}},
		{"a\n\n b", []string{"a", "\n\n", " b"}, []string{"a", "\n\n", " b"}, []string{"a", "\n\n", " b"}},
		{"a \n b", []string{"a", " \n", " b"}, []string{"a", " \n", " b"}, []string{"a", " \n", " b"}},
		{"a   b", []string{"a", "  ", " b"}, []string{"a", "  ", " b"}, []string{"a", "  ", " b"}},
		{"\tb", []string{"\t", "b"}, []string{"\tb"}, []string{"\tb"}},
		{"x ", []string{"x", " "}, []string{"x", " "}, []string{"x", " "}},
	} {
		assert.Equal(t, c.gpt2, pieces(c.text, gpt2Piece), "gpt2 %q", c.text)
		assert.Equal(t, c.qwen2, pieces(c.text, qwen2Piece), "qwen2 %q", c.text)
		assert.Equal(t, c.llama3, pieces(c.text, llama3Piece), "llama3 %q", c.text)
	}
	assert.Equal(t, []string{"in", " ", "2", "0", "x"}, pieces("in 20x", digitPiece, gpt2Piece))
}

func TestLettersAndNumbersOfUnicode16(t *testing.T) {
	assert.Equal(t, class(letter), classOf(0x2ebf0), "CJK extension I")
	assert.Equal(t, class(letter), classOf(0xa7cb))
	assert.Equal(t, class(number), classOf(0x10d40), "Garay zero")
	assert.Equal(t, class(other), classOf(0x10d66))
	assert.Equal(t, class(other), classOf(0x301), "a combining mark")
}

// "wrong one gave +20% tokens": the ids of the real model.
func TestQwen2SingleDigitsAndSymbolRuns(t *testing.T) {
	b := ggufTokenizer(t, qwenModel)
	assert.Len(t, b.Encode("1234"), 4)
	assert.Equal(t, []int{405}, b.Encode("->"))
	assert.Equal(t, []int{2075, 982}, b.Encode("(x):\n"))
}
