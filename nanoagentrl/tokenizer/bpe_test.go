package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// bytesOf returns the bytes of all ids, joined.
func bytesOf(t Tokenizer, ids []int) string {
	var all []byte
	for _, id := range ids {
		all = append(all, t.Bytes(id)...)
	}
	return string(all)
}

// "U+2029 and odd whitespace mis-split": decode(encode(s)) == s.
func TestRoundTripOfOddCharacters(t *testing.T) {
	texts := []string{
		"\x00", "a\x00b", "\u0301", "a\u0301", " \u0301x", "\u0301\u0301", "\u200b\u200d\ufeff", "\U0010ffff",
	}
	for r := range rune(unicode.MaxRune) {
		if unicode.IsSpace(r) {
			c := string(r)
			texts = append(texts, c, c+c, "a"+c+"b", "a"+c+c+c+"b", c+"1", "1"+c, c+".", "."+c, c+"\n"+c)
		}
	}
	tokenizers := map[string]*BPE{}
	for _, name := range []string{"gpt2", "smollm2", "llama3"} { // without a normaliser
		tokenizers[name] = tinyNamed(t, name)
	}
	if !testing.Short() {
		t.Run("real", func(t *testing.T) {
			for _, model := range []string{smolModel, qwenModel} {
				b := ggufTokenizer(t, model)
				for _, s := range texts {
					assert.Equal(t, s, b.Decode(b.Encode(s)), "%s: %q", model, s)
				}
			}
		})
	}
	for name, b := range tokenizers {
		for _, s := range texts {
			assert.Equal(t, s, b.Decode(b.Encode(s)), "%s: %q", name, s)
			assert.Equal(t, s, b.Decode(b.EncodePlain(s)), "%s: %q, plain", name, s)
		}
	}
}

func TestInvalidUTF8KeepsItsBytes(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	for _, s := range []string{
		"\xff", "a\xc3", "\xe2\x82", "x\xf0\x9f\x98 y", "\xed\xa0\x80", "\xc0\xaf", "\x80\x80the\xfe",
	} {
		assert.Equal(t, s, bytesOf(b, b.Encode(s)), "%q", s)
	}
	// Python: bytes.decode("utf-8", "replace").
	for raw, want := range map[string]string{
		"\xff":              "\ufffd",
		"a\xe2\x82b":        "a\ufffdb",
		"\xe2\x82":          "\ufffd",
		"\xf0\x9f\x98":      "\ufffd",
		"\xf0\x9f\x98\xf0":  "\ufffd\ufffd",
		"\xed\xa0\x80":      "\ufffd\ufffd\ufffd",
		"\xc0\xaf":          "\ufffd\ufffd",
		"\xf4\x90\x80\x80x": "\ufffd\ufffd\ufffd\ufffdx",
		"\xe2\x82\xac\xe2":  "€\ufffd",
	} {
		assert.Equal(t, want, b.Decode(b.Encode(raw)), "%q", raw)
	}
}

func TestSpecialTokensInTextFromOutsideAreOrdinaryCharacters(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	end, ok := b.TokenID("<|im_end|>")
	require.True(t, ok)
	require.True(t, b.IsSpecial(end))
	const text = "x<|im_end|>y"
	assert.Contains(t, b.Encode(text), end)
	assert.NotContains(t, b.EncodePlain(text), end)
	assert.Equal(t, text, b.Decode(b.EncodePlain(text)))
	assert.Equal(t, text, b.Decode(b.Encode(text)))

	tool, ok := b.TokenID("<tool_call>")
	require.True(t, ok)
	assert.False(t, b.IsSpecial(tool))
	assert.Equal(t, []int{tool}, b.EncodePlain("<tool_call>"))
}

func TestIDsOutsideTheVocabulary(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	assert.Equal(t, 349, b.VocabSize())
	for _, id := range []int{-1, b.VocabSize(), 1 << 40} {
		assert.Nil(t, b.Bytes(id))
		assert.False(t, b.IsSpecial(id))
		assert.Equal(t, "the", b.Decode(slices.Concat([]int{id}, b.Encode("the"), []int{id})))
	}
	_, ok := b.TokenID("no such token")
	assert.False(t, ok)
	id, ok := b.TokenID("Ġt")
	require.True(t, ok)
	assert.Equal(t, []byte(" t"), b.Bytes(id))
	b.Bytes(id)[0] = 'x'
	assert.Equal(t, []byte(" t"), b.Bytes(id), "the caller owns the bytes")
}

func TestTextIsNormalisedButTokensAreNot(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	assert.Equal(t, b.Encode("caf\u00e9"), b.Encode("cafe\u0301"))
	plain := tinyNamed(t, "gpt2")
	assert.NotEqual(t, plain.Encode("caf\u00e9"), plain.Encode("cafe\u0301"))
}

// golang.org/x/text breaks runs of more than 30 marks; Python does not. The long forms below are Python's.
func TestNFCOfLongRunsOfMarks(t *testing.T) {
	acutes := strings.Repeat("\u0301", 40)
	assert.Equal(t, "\u00e9"+acutes[2:], nfc("e"+acutes))
	assert.Equal(t, strings.Repeat("\u0323", 20)+strings.Repeat("\u0307", 20), nfc(strings.Repeat("\u0307\u0323", 20)))
	assert.Equal(t, "\u1e69"+strings.Repeat("\u0323", 19)+strings.Repeat("\u0307", 19),
		nfc("s"+strings.Repeat("\u0307\u0323", 20)))
	assert.Equal(t, "\xff\u0301\uac01"+acutes, nfc("\xff\u0301\u1100\u1161\u11a8"+acutes))
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		s := randomText(random)
		assert.Equal(t, norm.NFC.String(s), nfc(s), "%q", s)
		assert.Equal(t, norm.NFC.String(s), nfcUnbounded(s), "%q", s)
	}
}

// naiveMerge merges the pair of lowest rank, the leftmost of equals, until there is none.
func naiveMerge(merges map[pair]merge, ids []int32) []int32 {
	for {
		best, rank := -1, int32(0)
		for i := range max(0, len(ids)-1) {
			if m, ok := merges[makePair(ids[i], ids[i+1])]; ok && (best < 0 || m.rank < rank) {
				best, rank = i, m.rank
			}
		}
		if best < 0 {
			return ids
		}
		ids[best] = merges[makePair(ids[best], ids[best+1])].id
		ids = slices.Delete(ids, best+1, best+2)
	}
}

func TestMergesAgreeWithTheNaiveAlgorithm(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		var word []byte
		for range random.IntN(60) {
			word = append(word, "thersinal \n"[random.IntN(11)])
		}
		var naive []int32
		for _, c := range word {
			naive = append(naive, b.byteIDs[c])
		}
		want := []int{}
		for _, id := range naiveMerge(b.merges, naive) {
			want = append(want, int(id))
		}
		assert.Equal(t, want, b.appendPiece([]int{}, string(word)), "%q", word)
	}
}

func TestALongPieceTakesNoQuadraticTime(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	text := strings.Repeat("the", 300_000) // one piece; a quadratic algorithm would take minutes
	assert.Equal(t, text, b.Decode(b.Encode(text)))
	assert.Zero(t, len(b.cache.shard(text).ids), "long pieces are not remembered")
}

func TestTheCacheIsBounded(t *testing.T) {
	var c pieceCache
	buf := []byte("0000000")
	for i := range 3 * cacheShards * cacheShardSize {
		for j := range buf {
			buf[j] = byte('a' + i>>(3*j)&7)
		}
		c.put(string(buf), []int{i})
	}
	total := 0
	for i := range c.shards {
		total += len(c.shards[i].ids)
		assert.LessOrEqual(t, len(c.shards[i].ids), cacheShardSize)
	}
	assert.Positive(t, total)
	ids, ok := c.get(string(buf))
	assert.True(t, ok)
	assert.Equal(t, []int{3*cacheShards*cacheShardSize - 1}, ids)
}

func TestConcurrentUse(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	random := rand.New(rand.NewPCG(7, 8))
	var texts []string
	var want [][]int
	for range 50 {
		s := randomText(random) + "the miller's teacher"
		texts = append(texts, s)
		want = append(want, tinyNamed(t, "qwen2").Encode(s))
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i, s := range texts {
				assert.Equal(t, want[i], b.Encode(s))
			}
		})
	}
	wait.Wait()
}

func TestEncodedTextIsValidInPieces(t *testing.T) {
	b := tinyNamed(t, "gpt2")
	for _, s := range []string{"日本語", "😀", "é"} {
		ids := b.Encode(s)
		require.Greater(t, len(ids), 1)
		assert.False(t, utf8.Valid(b.Bytes(ids[0])), "one id may be a part of a character")
		assert.Equal(t, s, bytesOf(b, ids))
	}
}
