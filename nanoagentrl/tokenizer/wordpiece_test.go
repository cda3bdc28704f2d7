package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// wordPieceVectors are what testdata/wordpiece/make.py wrote.
type wordPieceVectors struct {
	Texts []struct {
		Text   string  `json:"s"`
		Small  []int32 `json:"small"`
		MiniLM []int32 `json:"minilm"`
	} `json:"texts"`
	Ruled []struct {
		Rules map[string]any `json:"rules"`
		IDs   [][]int32      `json:"ids"`
	} `json:"ruled"`
}

func readWordPieceVectors(t testing.TB) (vectors wordPieceVectors) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "wordpiece", "vectors.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Greater(t, len(vectors.Texts), 200)
	return vectors
}

// smallWordPiece reads the small tokenizer of the vectors after edit has changed its JSON.
func smallWordPiece(t testing.TB, edit func(file map[string]any)) (*WordPiece, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "wordpiece", tokenizerJSON))
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(text, &file))
	if edit != nil {
		edit(file)
	}
	text, err = json.Marshal(file)
	require.NoError(t, err)
	return ParseWordPiece(text)
}

func TestWordPieceEqualsHuggingFace(t *testing.T) {
	vectors := readWordPieceVectors(t)
	w, err := LoadWordPiece(filepath.Join("testdata", "wordpiece"))
	require.NoError(t, err)
	for _, v := range vectors.Texts {
		assert.Equal(t, v.Small, w.Encode(v.Text, 0), "%q", v.Text)
	}
	for _, r := range vectors.Ruled {
		w, err := smallWordPiece(t, func(file map[string]any) {
			for name, value := range r.Rules {
				file["normalizer"].(map[string]any)[name] = value
			}
		})
		require.NoError(t, err)
		for i, ids := range r.IDs {
			assert.Equal(t, ids, w.Encode(vectors.Texts[i].Text, 0), "%v %q", r.Rules, vectors.Texts[i].Text)
		}
	}
}

func TestWordPieceOfMiniLMEqualsHuggingFace(t *testing.T) {
	w, err := LoadWordPiece(testenv.Model(t, "all-MiniLM-L6-v2"))
	require.NoError(t, err)
	assert.Equal(t, 30522, w.VocabSize())
	for _, v := range readWordPieceVectors(t).Texts {
		assert.Equal(t, v.MiniLM, w.Encode(v.Text, 0), "%q", v.Text)
	}
}

func TestWordPieceCutsTheEndOffAndKeepsTheSpecialTokens(t *testing.T) {
	w, err := smallWordPiece(t, nil)
	require.NoError(t, err)
	require.Equal(t, 2, w.Around())
	for _, v := range readWordPieceVectors(t).Texts {
		whole := w.Encode(v.Text, 0)
		for limit := 2; limit < len(whole); limit++ {
			want := append(slices.Clone(whole[:limit-1]), whole[len(whole)-1])
			require.Equal(t, want, w.Encode(v.Text, limit), "%q to %d", v.Text, limit)
		}
		require.Equal(t, whole, w.Encode(v.Text, len(whole)))
	}
	assert.Len(t, w.Encode("a b c", 1), 1)
}

func TestWordPieceRefusesFilesOfAnotherKind(t *testing.T) {
	sub := func(file map[string]any, key string) map[string]any { return file[key].(map[string]any) }
	for want, edit := range map[string]func(file map[string]any){
		`model.type is "Unigram"; supported are`:          func(f map[string]any) { sub(f, "model")["type"] = "Unigram" },
		`model.type is "WordLevel", not WordPiece`:        func(f map[string]any) { sub(f, "model")["type"] = "WordLevel" },
		"model.vocab is empty":                            func(f map[string]any) { sub(f, "model")["vocab"] = map[string]int{} },
		`pre_tokenizer "Whitespace" is not supported`:     func(f map[string]any) { sub(f, "pre_tokenizer")["type"] = "Whitespace" },
		`normalizer "NFKC" is not supported`:              func(f map[string]any) { sub(f, "normalizer")["type"] = "NFKC" },
		"normalizer none is not supported":                func(f map[string]any) { f["normalizer"] = nil },
		`"<unk>", is not in the vocabulary`:               func(f map[string]any) { sub(f, "model")["unk_token"] = "<unk>" },
		`have the same id 7`:                              func(f map[string]any) { sub(f, "model")["vocab"] = map[string]int{"a": 7, "b": 7} },
		"impossible id -1":                                func(f map[string]any) { sub(f, "model")["vocab"] = map[string]int{"a": -1} },
		"truncation.direction is Left":                    func(f map[string]any) { f["truncation"] = map[string]any{"direction": "Left"} },
		`post_processor "ByteLevel" is not supported`:     func(f map[string]any) { sub(f, "post_processor")["type"] = "ByteLevel" },
		"post_processor BertProcessing: want cls and sep": func(f map[string]any) { sub(f, "post_processor")["type"] = "BertProcessing" },
		"post_processor: single has no sequence":          func(f map[string]any) { sub(f, "post_processor")["single"] = []any{} },
		"continuing_subword_prefix is empty":              func(f map[string]any) { sub(f, "model")["continuing_subword_prefix"] = "" },
		"is looked for after normalisation": func(f map[string]any) {
			f["added_tokens"].([]any)[0].(map[string]any)["normalized"] = true
		},
	} {
		_, err := smallWordPiece(t, edit)
		assert.ErrorContains(t, err, want)
	}
	_, err := ParseWordPiece([]byte(`{"model": {"type": "WordPiece", "vocab": {"a": 1`))
	assert.ErrorContains(t, err, "the file is cut off")
	_, err = LoadWordPiece(t.TempDir())
	assert.ErrorContains(t, err, "must be saved once with a fast tokenizer")
	_, err = LoadWordPiece(filepath.Join("testdata", "tiny"))
	assert.ErrorContains(t, err, "tokenizer.json: model.type is \"BPE\", not WordPiece")
	_, err = Load(filepath.Join("testdata", "wordpiece"))
	assert.ErrorContains(t, err, `model.type is "WordPiece", not BPE`)
}

func TestWordPieceTakesBertProcessing(t *testing.T) {
	w, err := smallWordPiece(t, func(f map[string]any) {
		f["post_processor"] = map[string]any{"type": "BertProcessing", "sep": []any{"[SEP]", 3}, "cls": []any{"[CLS]", 2}}
	})
	require.NoError(t, err)
	v := readWordPieceVectors(t).Texts[8]
	assert.Equal(t, v.Small, w.Encode(v.Text, 0))
}

func FuzzWordPiece(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s, 0)
	}
	f.Add("Beyoncé [SEP] "+strings.Repeat("x", 200)+" \u0301漢字", 5)
	w, err := smallWordPiece(f, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		whole := w.Encode(s, 0)
		require.GreaterOrEqual(t, len(whole), 2)
		require.Equal(t, []int32{2, 3}, []int32{whole[0], whole[len(whole)-1]})
		for _, id := range whole {
			require.True(t, 0 <= id && int(id) < w.VocabSize(), "%d", id)
		}
		require.Equal(t, whole, w.Encode(" "+s+"\n", 0), "white space around changes nothing")
		if limit = limit % 64; limit >= 2 && limit < len(whole) {
			require.Equal(t, append(slices.Clone(whole[:limit-1]), 3), w.Encode(s, limit))
		}
	})
}

func BenchmarkWordPiece(b *testing.B) {
	w, err := LoadWordPiece(testenv.Model(b, "all-MiniLM-L6-v2"))
	require.NoError(b, err)
	text, err := os.ReadFile(testenv.Shared(b, "data", "squad", "corpus.jsonl"))
	require.NoError(b, err)
	lines := strings.Split(string(text[:1<<20]), "\n")
	b.SetBytes(1 << 20)
	for b.Loop() {
		for _, line := range lines {
			w.Encode(line, 0)
		}
	}
}
