package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func streamed(t Tokenizer, ids []int) []string {
	s := NewStream(t)
	parts := []string{}
	for _, id := range ids {
		parts = append(parts, s.Next(id))
	}
	return append(parts, s.Flush())
}

func TestStreamNeverSplitsACharacter(t *testing.T) {
	b := tinyNamed(t, "gpt2")
	random := rand.New(rand.NewPCG(9, 10))
	for range 500 {
		text := randomText(random) + "日😀"
		ids := b.Encode(text)
		parts := streamed(b, ids)
		for _, part := range parts {
			assert.True(t, utf8.ValidString(part), "%q", part)
			assert.NotContains(t, part, "\ufffd")
		}
		assert.Equal(t, text, strings.Join(parts, ""))
		assert.Empty(t, parts[len(parts)-1], "whole text leaves nothing to flush")
	}
}

func TestStreamHoldsBackOnlyWhatMayBeCompleted(t *testing.T) {
	b := tinyNamed(t, "gpt2")
	ids := make([]int, 0)
	for _, c := range []byte("a\xf0\x9f\x98\x80\xe2\x82z\xffb\xe2") {
		ids = append(ids, int(b.byteIDs[c]))
	}
	assert.Equal(t, []string{"a", "", "", "", "😀", "", "", "\ufffdz", "\ufffd", "b", "", "\ufffd"}, streamed(b, ids))
	assert.Equal(t, b.Decode(ids), strings.Join(streamed(b, ids), ""))
}

func TestStreamOfAnyIDsIsTheirDecodedText(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	random := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		ids := make([]int, random.IntN(20))
		for i := range ids {
			ids[i] = random.IntN(b.VocabSize()+10) - 5
		}
		assert.Equal(t, b.Decode(ids), strings.Join(streamed(b, ids), ""), "%v", ids)
	}
}

func TestFlushedStreamStartsAnew(t *testing.T) {
	b := tinyNamed(t, "gpt2")
	s := NewStream(b)
	assert.Empty(t, s.Next(int(b.byteIDs[0xe2])))
	assert.Equal(t, "\ufffd", s.Flush())
	assert.Empty(t, s.Flush())
	assert.Equal(t, "a", s.Next(int(b.byteIDs['a'])))
}
