package tokenizer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var tinyWords = []string{
	WordPad, WordUnk, WordEOS, "<search>", "</search>", "<answer>", "</answer>", "where", "was", "Ada", "Lovelace", "born",
	"?", "London", "<",
}

func newTestWords(t testing.TB) *Words {
	t.Helper()
	w, err := NewWords(tinyWords)
	require.NoError(t, err)
	return w
}

func TestWordsRoundTripNormalisedText(t *testing.T) {
	w := newTestWords(t)
	for _, s := range []string{"", "where", "where was Ada Lovelace born ?", "<search> Ada Lovelace </search>", "< Ada",
		"London <eos> <pad>"} {
		ids := w.Encode(s)
		assert.Equal(t, s, w.Decode(ids))
		if s != "" {
			assert.Equal(t, s+" ", bytesOf(w, ids), "bytes are each word and a space")
		}
	}
	assert.Equal(t, []int{7, 8, 9, 10, 11, 12}, w.Encode("where was Ada Lovelace born ?"))
}

func TestWordsTreatAllWhiteSpaceAlike(t *testing.T) {
	w := newTestWords(t)
	want := w.Encode("where was Ada")
	for _, s := range []string{" where was Ada ", "where\nwas\n\nAda\n", "where\t was\r\nAda", "where\u00a0was\u2003Ada"} {
		assert.Equal(t, want, w.Encode(s), "%q", s)
		assert.Equal(t, "where was Ada", w.Decode(w.Encode(s)))
	}
}

func TestTagsNeedNoSpaceAround(t *testing.T) {
	w := newTestWords(t)
	want := w.Encode("where <search> Ada </search> <answer> London </answer>")
	assert.Equal(t, want, w.Encode("where<search>Ada</search>\n<answer>London</answer>"))
	assert.NotContains(t, want, w.unk)
}

func TestUnknownWords(t *testing.T) {
	w := newTestWords(t)
	unk, ok := w.TokenID(WordUnk)
	require.True(t, ok)
	assert.Equal(t, []int{7, unk, unk, unk, 9}, w.Encode("where Where where? \xff Ada"))
	assert.Equal(t, "where <unk> Ada", w.Decode(w.Encode("where is Ada")))
	assert.Equal(t, []int{unk}, w.Encode("<unk>"))
}

func TestSpecialWordsInTextFromOutsideAreUnknown(t *testing.T) {
	w := newTestWords(t)
	eos, _ := w.TokenID(WordEOS)
	assert.Equal(t, []int{9, eos}, w.Encode("Ada <eos>"))
	assert.Equal(t, []int{9, eos, 9}, w.Encode("Ada<eos>Ada"))
	assert.Equal(t, []int{9, w.unk}, w.EncodePlain("Ada <eos>"))
	assert.Equal(t, []int{w.unk}, w.EncodePlain("Ada<eos>Ada"))
	assert.Equal(t, []int{3, 9}, w.EncodePlain("<search>Ada"), "tags are no special tokens")
	for _, word := range []string{WordPad, WordUnk, WordEOS} {
		id, _ := w.TokenID(word)
		assert.True(t, w.IsSpecial(id), word)
	}
	assert.False(t, w.IsSpecial(3))
	assert.Equal(t, Settings{EOS: WordEOS, Pad: WordPad, Unk: WordUnk}, w.Settings())
	assert.Equal(t, []int{eos}, EndIDs(w))
}

func TestStopStringsOfWords(t *testing.T) {
	w := newTestWords(t)
	m := NewStopMatcher([]string{"</search>"})
	ids := w.Encode("<search> Ada </search> where")
	for i, id := range ids {
		if m.Feed(w.Bytes(id)) {
			assert.Equal(t, 2, i)
			break
		}
	}
	assert.Equal(t, "<search> Ada </search>", m.Text())
}

func TestWordsIDsOutsideTheVocabulary(t *testing.T) {
	w := newTestWords(t)
	assert.Equal(t, len(tinyWords), w.VocabSize())
	for _, id := range []int{-1, len(tinyWords), 1 << 40} {
		assert.Nil(t, w.Bytes(id))
		assert.False(t, w.IsSpecial(id))
	}
	assert.Equal(t, "where Ada", w.Decode([]int{7, -1, 9, 99}))
}

func TestWordsSaveAndLoad(t *testing.T) {
	w := newTestWords(t)
	dir := filepath.Join(t.TempDir(), "new", "folder")
	require.NoError(t, w.Save(dir))
	loaded, err := Load(dir)
	require.NoError(t, err)
	require.IsType(t, w, loaded)
	const text = "where<search>Ada \n Xyz</search> <eos> <pad>"
	assert.Equal(t, w.Encode(text), loaded.Encode(text))
	assert.Equal(t, w.EncodePlain(text), loaded.EncodePlain(text))
	assert.Equal(t, w.Settings().EOS, loaded.Settings().EOS)
	assert.Equal(t, w.VocabSize(), loaded.VocabSize())

	alone, err := LoadWords(filepath.Join(dir, tokenizerJSON))
	require.NoError(t, err)
	assert.Equal(t, w.Encode(text), alone.Encode(text))

	again := t.TempDir()
	require.NoError(t, loaded.Save(again))
	for _, name := range []string{tokenizerJSON, configJSON} {
		first, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		second, err := os.ReadFile(filepath.Join(again, name))
		require.NoError(t, err)
		assert.Equal(t, string(first), string(second), name)
	}
}

func TestBadWords(t *testing.T) {
	for about, c := range map[string]struct {
		words []string
		want  string
	}{
		"twice":       {[]string{WordUnk, "a", "a"}, `word "a" stands at 1 and 2`},
		"no unknown":  {[]string{"a"}, `"<unk>", is not in the vocabulary`},
		"empty":       {[]string{WordUnk, ""}, `word 1 is ""`},
		"white space": {[]string{WordUnk, "a b"}, `word 1 is "a b"`},
		"not UTF-8":   {[]string{WordUnk, "\xff"}, `word 1 is "\xff"`},
	} {
		_, err := NewWords(c.words)
		assert.ErrorContains(t, err, c.want, about)
	}
}
