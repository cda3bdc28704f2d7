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

// tinyMetadata returns the tiny tokenizer as GGUF metadata, with one unused token at the end.
func tinyMetadata(t testing.TB, pre string) map[string]any {
	t.Helper()
	b := tinyWith(t, nil)
	tokens := append([]string(nil), b.written...)
	types := make([]int32, len(tokens), len(tokens)+1)
	for id := range types {
		types[id] = ggufNormal
	}
	for _, token := range b.added.tokens {
		types[token.ID] = ggufUserDefined
		if token.Special {
			types[token.ID] = ggufControl
		}
	}
	return map[string]any{
		"general.architecture":                      "qwen2",
		"qwen2.context_length":                      uint32(512),
		"tokenizer.ggml.model":                      "gpt2",
		"tokenizer.ggml.pre":                        pre,
		"tokenizer.ggml.tokens":                     append(tokens, "[PAD349]"),
		"tokenizer.ggml.token_type":                 append(types, ggufUnused),
		"tokenizer.ggml.merges":                     b.writtenMerges(),
		"tokenizer.ggml.eos_token_id":               uint32(347),
		"tokenizer.ggml.bos_token_id":               uint64(346),
		"tokenizer.ggml.padding_token_id":           int32(345),
		"tokenizer.chat_template":                   "chat {{ eos_token }}",
		"tokenizer.chat_template.tool_use":          "tools",
		"tokenizer.ggml.something_from_the_future":  []float32{1},
		"tokenizer.ggml.precompiled_charsmap.value": uint8(1),
	}
}

func TestGGUFGivesTheIDsOfTokenizerJSON(t *testing.T) {
	for pre, variant := range map[string]string{
		"gpt-2": "gpt2", "smollm": "smollm2", "qwen2": "qwen2", "llama-bpe": "llama3", "llama3": "llama3",
	} {
		b, err := FromGGUF(tinyMetadata(t, pre))
		require.NoError(t, err)
		dir := t.TempDir()
		require.NoError(t, b.Save(dir))
		saved, err := Load(dir)
		require.NoError(t, err)
		for _, v := range tinyVariants(t) {
			if v.Name != variant {
				continue
			}
			for _, v := range v.Vectors {
				want := v.IDs
				if pre == "qwen2" && nfc(v.Text) != v.Text {
					want = b.Encode(v.Text) // GGUF files name no normaliser
					assert.Equal(t, v.Text, b.Decode(want))
				}
				if b.family.ignoreMerges {
					assert.Equal(t, v.Text, b.Decode(b.Encode(v.Text))) // the variant has no ignore_merges
				} else {
					assert.Equal(t, want, b.Encode(v.Text), "%s %q", pre, v.Text)
				}
				assert.Equal(t, b.Encode(v.Text), saved.Encode(v.Text), "%s %q, saved", pre, v.Text)
				assert.Equal(t, b.EncodePlain(v.Text), saved.EncodePlain(v.Text), "%s %q, saved", pre, v.Text)
			}
		}
		assert.Equal(t, b.VocabSize(), saved.VocabSize())
		assert.Equal(t, b.Settings(), saved.Settings())
	}
}

func TestGGUFSettings(t *testing.T) {
	b, err := FromGGUF(tinyMetadata(t, "qwen2"))
	require.NoError(t, err)
	assert.Equal(t, Settings{
		BOS: "<|im_start|>", EOS: "<|im_end|>", Pad: "<|endoftext|>",
		ChatTemplates: map[string]string{"default": "chat {{ eos_token }}", "tool_use": "tools"},
	}, b.Settings())
	template, err := b.Settings().ChatTemplate()
	require.NoError(t, err)
	text, err := template.Render(nil, false)
	require.NoError(t, err)
	assert.Equal(t, "chat <|im_end|>", text)
	assert.True(t, b.IsSpecial(347))
	assert.False(t, b.IsSpecial(348), "<tool_call> is user-defined, not control")
	assert.Equal(t, []int{348}, b.EncodePlain("<tool_call>"))
}

func TestUnusedTokensOfGGUFAreNone(t *testing.T) {
	b, err := FromGGUF(tinyMetadata(t, "qwen2"))
	require.NoError(t, err)
	assert.Equal(t, 349, b.VocabSize())
	assert.Nil(t, b.Bytes(349))
	_, ok := b.TokenID("[PAD349]")
	assert.False(t, ok)
	assert.NotContains(t, b.Encode("[PAD349]"), 349)
}

func TestSavedGGUFSaysWhetherABeginningTokenIsAdded(t *testing.T) {
	for about, c := range map[string]struct {
		pre  string
		add  any
		want string
	}{
		"Llama 3 by default": {"llama-bpe", nil, "TemplateProcessing"},
		"Llama 3 told not":   {"llama-bpe", false, "ByteLevel"},
		"Qwen by default":    {"qwen2", nil, "ByteLevel"},
		"Qwen told so":       {"qwen2", true, "TemplateProcessing"},
	} {
		meta := tinyMetadata(t, c.pre)
		if c.add != nil {
			meta["tokenizer.ggml.add_bos_token"] = c.add
		}
		b, err := FromGGUF(meta)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), tokenizerJSON)
		require.NoError(t, b.SaveJSON(path))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var file struct {
			PostProcessor struct {
				Type          string `json:"type"`
				SpecialTokens map[string]struct {
					IDs []int `json:"ids"`
				} `json:"special_tokens"`
			} `json:"post_processor"`
		}
		require.NoError(t, json.Unmarshal(data, &file))
		assert.Equal(t, c.want, file.PostProcessor.Type, about)
		if c.want == "TemplateProcessing" {
			assert.Equal(t, []int{346}, file.PostProcessor.SpecialTokens["<|im_start|>"].IDs, about)
		}
	}
}

func TestGGUFConfigFile(t *testing.T) {
	b, err := FromGGUF(tinyMetadata(t, "qwen2"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, b.Save(dir))
	data, err := os.ReadFile(filepath.Join(dir, configJSON))
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, json.Unmarshal(data, &config))
	assert.Equal(t, "<|im_end|>", config["eos_token"])
	assert.Equal(t, "<|endoftext|>", config["pad_token"])
	assert.Equal(t, "<|im_start|>", config["bos_token"])
	assert.Equal(t, 512.0, config["model_max_length"])
	assert.NotContains(t, config, "unk_token")
	assert.Len(t, config["chat_template"], 2)
}

func TestGGUFArraysOfAnyType(t *testing.T) {
	meta := tinyMetadata(t, "qwen2")
	want, err := FromGGUF(meta)
	require.NoError(t, err)
	const text = "the miller's <|im_end|> 12"
	types := meta["tokenizer.ggml.token_type"].([]int32)
	anyTypes, wide, unsigned := []any{}, []int64{}, []uint32{}
	for _, kind := range types {
		anyTypes, wide, unsigned = append(anyTypes, kind), append(wide, int64(kind)), append(unsigned, uint32(kind))
	}
	tokens := []any{}
	for _, token := range meta["tokenizer.ggml.tokens"].([]string) {
		tokens = append(tokens, token)
	}
	meta["tokenizer.ggml.tokens"] = tokens
	for _, list := range []any{anyTypes, wide, unsigned} {
		meta["tokenizer.ggml.token_type"] = list
		b, err := FromGGUF(meta)
		require.NoError(t, err)
		assert.Equal(t, want.Encode(text), b.Encode(text))
	}
}

func TestBrokenGGUFMetadataIsNamed(t *testing.T) {
	for about, c := range map[string]struct {
		key   string
		value any
		want  string
	}{
		"unknown pre-tokenizer": {"tokenizer.ggml.pre", "deepseek-llm", `"deepseek-llm"; supported are`},
		"sentencepiece":         {"tokenizer.ggml.model", "llama", `tokenizer.ggml.model is "llama"`},
		"number for a text":     {"tokenizer.ggml.model", 7, "tokenizer.ggml.model is a int"},
		"floats for tokens":     {"tokenizer.ggml.tokens", []float32{1}, "tokenizer.ggml.tokens is a []float32"},
		"number among tokens":   {"tokenizer.ggml.tokens", []any{"a", 7}, "tokenizer.ggml.tokens[1]"},
		"floats for types":      {"tokenizer.ggml.token_type", []float32{1}, "tokenizer.ggml.token_type is a []float32"},
		"text among types":      {"tokenizer.ggml.token_type", []any{1, "x"}, "entry 1"},
		"too few types":         {"tokenizer.ggml.token_type", []int32{1}, "1 entries for 350 tokens"},
		"byte tokens":           {"tokenizer.ggml.tokens", nil, "tokenizer.ggml.tokens is missing"},
		"merge":                 {"tokenizer.ggml.merges", []string{"a b c"}, `"a b c"`},
		"end token":             {"tokenizer.ggml.eos_token_id", uint32(4000), "tokenizer.ggml.eos_token_id is 4000"},
		"unused end token":      {"tokenizer.ggml.eos_token_id", uint32(349), "tokenizer.ggml.eos_token_id is 349"},
	} {
		meta := tinyMetadata(t, "qwen2")
		meta[c.key] = c.value
		if c.value == nil {
			delete(meta, c.key)
		}
		_, err := FromGGUF(meta)
		assert.ErrorContains(t, err, c.want, about)
		assert.ErrorContains(t, err, "GGUF", about)
	}
	for _, key := range []string{"model", "pre", "tokens", "token_type", "merges"} {
		meta := maps.Clone(tinyMetadata(t, "qwen2"))
		delete(meta, "tokenizer.ggml."+key)
		_, err := FromGGUF(meta)
		assert.ErrorContains(t, err, "tokenizer.ggml."+key+" is missing")
	}
	meta := tinyMetadata(t, "qwen2")
	types := meta["tokenizer.ggml.token_type"].([]int32)
	types[3] = 6
	_, err := FromGGUF(meta)
	assert.ErrorContains(t, err, "token 3")
	types[3] = ggufNormal
	tokens := meta["tokenizer.ggml.tokens"].([]string)
	tokens[4] = tokens[3]
	_, err = FromGGUF(meta)
	assert.ErrorContains(t, err, "stands at 3 and 4")
}

// A tokenizer from a real GGUF file, saved and loaded, gives the ids of the vectors.
func TestRealGGUFSavedAndLoaded(t *testing.T) {
	vectors := readVectors(t, "smollm2_tokenizer.json")
	b := ggufTokenizer(t, smolModel)
	dir := t.TempDir()
	require.NoError(t, b.Save(dir))
	saved, err := Load(dir)
	require.NoError(t, err)
	for _, v := range vectors {
		assert.Equal(t, v.IDs, saved.Encode(v.Text), "%q", v.Text)
	}
	assert.Equal(t, b.Settings(), saved.Settings())
	assert.Equal(t, 49152, saved.VocabSize())
}
