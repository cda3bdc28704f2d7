package tokenizer

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fuzzSeeds run as a normal test.
var fuzzSeeds = []string{
	"", " ", "the miller's daughter", "1234", "(x):\n", "x<|im_end|>y<tool_call>", "\xff\xc3 \xe2\x82",
	"e\u0301\u0301", "日本語😀", "'ſ'S're", "\u2028\u2029\u0085", "a\r\n\r\n  b\t", "<left> a <both> zword",
	"\x00\x04\x1d", "<|im_end",
	"\u1100\u1161\u11a8\U0001d15e\u0344",
}

func FuzzTokenizer(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s)
	}
	tokenizers := map[string]*BPE{}
	for _, v := range tinyVariants(f) {
		tokenizers[v.Name] = tinyWith(f, v.Patch)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, b := range tokenizers {
			want := b.normalize(s)
			for _, plain := range []bool{false, true} {
				ids := b.encode(s, plain)
				assert.Equal(t, ids, b.encode(s, plain), "%s: the cache changes nothing", name)
				assert.Equal(t, b.Decode(ids), strings.Join(streamed(b, ids), ""), name)
				for _, id := range ids {
					require.NotNil(t, b.Bytes(id), name)
					if plain {
						require.False(t, b.IsSpecial(id), "%s: %d", name, id)
					}
				}
				if b.normalize("e\u0301") == "e\u0301" {
					assert.Equal(t, want, bytesOf(b, ids), name)
				}
			}
		}
	})
}

func FuzzScanners(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s)
	}
	patterns := make([]*regexp2.Regexp, len(scannerCases))
	for i, c := range scannerCases {
		patterns[i] = regexp2.MustCompile(c.pattern, regexp2.None)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tooNew := func(r rune) bool { return unicode.In(r, lettersSince15, numbersSince15) }
		if !utf8.ValidString(s) || strings.ContainsFunc(s, tooNew) {
			return // regexp2 works on characters, and on those that Go's Unicode tables know
		}
		for i, c := range scannerCases {
			assert.Equal(t, regexpPieces(t, patterns[i], s), pieces(s, c.scanner), c.name)
		}
	})
}

func FuzzChatTemplate(f *testing.F) {
	for _, template := range readChats(f).Templates {
		f.Add(template.Source)
	}
	f.Add("{% raw %}{{{% endraw -%}  {{- '}}' }}")
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 4096 || strings.Contains(source, "range") || strings.Contains(source, "*") {
			return // templates may ask for endless output
		}
		template, err := NewChatTemplate(source, Settings{})
		if err != nil {
			return
		}
		_, _ = template.Render([]Message{{"user", "x"}}, true) // must not panic
	})
}
