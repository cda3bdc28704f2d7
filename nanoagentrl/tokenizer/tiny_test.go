package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tiny tokenizer in testdata has 345 byte-level tokens, 89 merges and 4 added tokens. tiny_vectors.json holds
// variants of it, as patches to its members, and the ids that Python's tokenizers 0.23.3 gives: "ids" for Encode,
// and "plain" for EncodePlain where they differ.
const tinyDir = "testdata/tiny"

type tinyVariant struct {
	Name    string         `json:"name"`
	Patch   map[string]any `json:"patch"`
	Vectors []struct {
		Text  string `json:"s"`
		IDs   []int  `json:"ids"`
		Plain []int  `json:"plain"`
	} `json:"vectors"`
}

func tinyVariants(t testing.TB) []tinyVariant {
	t.Helper()
	data, err := os.ReadFile("testdata/tiny_vectors.json")
	require.NoError(t, err)
	var variants []tinyVariant
	require.NoError(t, json.Unmarshal(data, &variants))
	return variants
}

// tinyObject returns the tiny tokenizer.json as an object to be changed.
func tinyObject(t testing.TB) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tinyDir, "tokenizer.json"))
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(data, &object))
	return object
}

// tinyWith returns the tiny tokenizer with some members of its file replaced.
func tinyWith(t testing.TB, patch map[string]any) *BPE {
	t.Helper()
	object := tinyObject(t)
	maps.Copy(object, patch)
	data, err := json.Marshal(object)
	require.NoError(t, err)
	b, err := FromJSON(data)
	require.NoError(t, err)
	return b
}

// tinyNamed returns the variant of the tiny tokenizer with the given name.
func tinyNamed(t testing.TB, name string) *BPE {
	t.Helper()
	for _, v := range tinyVariants(t) {
		if v.Name == name {
			return tinyWith(t, v.Patch)
		}
	}
	require.Fail(t, "no such variant", name)
	return nil
}

func TestTinyVectors(t *testing.T) {
	for _, variant := range tinyVariants(t) {
		t.Run(variant.Name, func(t *testing.T) {
			b := tinyWith(t, variant.Patch)
			require.NotEmpty(t, variant.Vectors)
			for _, v := range variant.Vectors {
				assert.Equal(t, v.IDs, b.Encode(v.Text), "%q", v.Text)
				plain := v.Plain
				if plain == nil {
					plain = v.IDs
				}
				assert.Equal(t, plain, b.EncodePlain(v.Text), "%q, plain", v.Text)
			}
		})
	}
}

func TestBothFormsOfMergesAndTheVersionLine(t *testing.T) {
	pairs := tinyWith(t, nil)
	object := tinyObject(t)
	model := object["model"].(map[string]any)
	lines := []any{"#version: 0.2"}
	for _, m := range model["merges"].([]any) {
		parts := m.([]any)
		lines = append(lines, parts[0].(string)+" "+parts[1].(string))
	}
	model["merges"] = lines
	written := tinyWith(t, object)
	const text = "the miller's daughter sells bread"
	assert.Equal(t, pairs.Encode(text), written.Encode(text))
	assert.Less(t, len(written.Encode(text)), len(text)*2/3)
}

func TestIgnoreMergesTakesAWholePieceFirst(t *testing.T) {
	object := tinyObject(t)
	model := object["model"].(map[string]any)
	vocab := model["vocab"].(map[string]any)
	vocab["Ġxyz"] = 349 // a token that no merges lead to
	assert.NotContains(t, tinyWith(t, object).Encode("a xyz"), 349)
	model["ignore_merges"] = true
	assert.Contains(t, tinyWith(t, object).Encode("a xyz"), 349)
	assert.NotContains(t, tinyWith(t, object).Encode("a xyzz"), 349)
}

func TestIgnoreMergesCannotWriteASpecialTokenInPlainText(t *testing.T) {
	object := tinyObject(t)
	model := object["model"].(map[string]any)
	model["vocab"].(map[string]any)["stop"] = 349
	model["ignore_merges"] = true
	object["added_tokens"] = append(object["added_tokens"].([]any),
		map[string]any{"id": 349, "content": "stop", "special": true})
	b := tinyWith(t, object)
	assert.Contains(t, b.Encode("stop"), 349)
	assert.NotContains(t, b.EncodePlain("stop"), 349)
	assert.Equal(t, "stop", b.Decode(b.EncodePlain("stop")))
}

func TestBytesWithoutATokenAreUnknownOrLeftOut(t *testing.T) {
	object := tinyObject(t)
	model := object["model"].(map[string]any)
	delete(model["vocab"].(map[string]any), string(byteRunes[4]))
	b := tinyWith(t, object)
	assert.Equal(t, b.Encode("ab"), b.Encode("a\x04\x04b"))

	model["unk_token"] = "!"
	b = tinyWith(t, object)
	assert.Equal(t, b.Encode("a!!b"), b.Encode("a\x04\x04b"))
	model["fuse_unk"] = true
	b = tinyWith(t, object)
	assert.Equal(t, b.Encode("a!b"), b.Encode("a\x04\x04b"))
}

// "over-long prompt silently shortened": the truncation that tokenizer.json may carry is not applied.
func TestTruncationInTheFileDoesNotShortenText(t *testing.T) {
	object := tinyObject(t)
	object["truncation"] = map[string]any{"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
	object["padding"] = map[string]any{"strategy": map[string]any{"Fixed": 64}, "pad_id": 0}
	b := tinyWith(t, object)
	const text = "a long text that has many more tokens than three"
	ids := b.Encode(text)
	assert.Equal(t, text, b.Decode(ids))
	assert.Greater(t, len(ids), 3)
}
