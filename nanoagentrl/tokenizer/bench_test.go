package tokenizer

import (
	"strings"
	"testing"
)

const benchText = "The river flows past the town where the miller was born. In 1998, they've sold 1,234 loaves.\n" +
	"<search> who wrote the letter to the teacher </search>\nDoc 1(Title: The letter) naïve café 日本語.\n"

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat(benchText, 50)
	for _, model := range []string{smolModel, qwenModel} {
		b.Run(model, func(b *testing.B) {
			t := ggufTokenizer(b, model)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				t.Encode(text)
			}
		})
	}
}

// BenchmarkMerge encodes one long piece, which the cache does not hold.
func BenchmarkMerge(b *testing.B) {
	t := tinyNamed(b, "qwen2")
	text := strings.Repeat("theteacher", 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		t.Encode(text)
	}
}
