package embed_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed/embedtest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

func openAt(t *testing.T, dir string) (*embed.Encoder, error) {
	t.Helper()
	return embed.Open(t.Context(), testdevice.Open(t, device.Go), dir, weights.HubOptions{Offline: true}, embed.Options{})
}

// The kind of model that is refused, and what the error says.
func TestBadModelIsOneClearError(t *testing.T) {
	for want, edit := range map[string]func(config map[string]any, tensors map[string]*weights.Tensor){
		`model_type is "roberta"; encoders that can`: func(c map[string]any, _ map[string]*weights.Tensor) { c["model_type"] = "roberta" },
		`hidden_act is "relu"; only gelu`:            func(c map[string]any, _ map[string]*weights.Tensor) { c["hidden_act"] = "relu" },
		`type is "relative_key"; only absolute`:      func(c map[string]any, _ map[string]*weights.Tensor) { c["position_embedding_type"] = "relative_key" },
		"num_hidden_layers is 0, must be":            func(c map[string]any, _ map[string]*weights.Tensor) { c["num_hidden_layers"] = 0 },
		"not a multiple of num_attention_heads (3)":  func(c map[string]any, _ map[string]*weights.Tensor) { c["num_attention_heads"] = 3 },
		"has ids up to": func(c map[string]any, _ map[string]*weights.Tensor) { c["vocab_size"] = 100 },
		"tensor encoder.layer.1.output.dense.bias, of shape [16], is missing": func(_ map[string]any, x map[string]*weights.Tensor) {
			delete(x, "encoder.layer.1.output.dense.bias")
		},
		"has shape [16 8], but config.json asks for [16 16]": func(_ map[string]any, x map[string]*weights.Tensor) {
			w := x["encoder.layer.0.attention.self.query.weight"]
			w.Shape, w.Data = []int{16, 8}, w.Data[:128]
		},
	} {
		_, err := openAt(t, embedtest.Write(t, 1, edit))
		assert.ErrorContains(t, err, want)
	}
}

func TestDamagedOrMissingFilesAreOneClearError(t *testing.T) {
	for want, spoil := range map[string]func(dir string) error{
		"truncated safetensors file":     func(dir string) error { return os.Truncate(filepath.Join(dir, "model.safetensors"), 5000) },
		"has no model.safetensors":       func(dir string) error { return os.Remove(filepath.Join(dir, "model.safetensors")) },
		"has no tokenizer.json":          func(dir string) error { return os.Remove(filepath.Join(dir, "tokenizer.json")) },
		"there is no config.json":        func(dir string) error { return os.Remove(filepath.Join(dir, "config.json")) },
		"tokenizer.json: the JSON ends":  func(dir string) error { return os.Truncate(filepath.Join(dir, "tokenizer.json"), 3000) },
		"config.json: unexpected end of": func(dir string) error { return os.Truncate(filepath.Join(dir, "config.json"), 30) },
		`"Unigram"; supported are`: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(`{"model": {"type": "Unigram"}}`), 0o644)
		},
		"modules.json has a Dense; supported are": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "modules.json"), []byte(`[{"type": "sentence_transformers.models.Dense"}]`), 0o644)
		},
	} {
		dir := embedtest.Write(t, 1, nil)
		require.NoError(t, spoil(dir))
		_, err := openAt(t, dir)
		assert.ErrorContains(t, err, want)
	}
	_, err := openAt(t, filepath.Join(t.TempDir(), "none"))
	assert.ErrorContains(t, err, "there is no such file or folder")
	_, err = embed.Open(t.Context(), testdevice.Open(t, device.Go), embedtest.Write(t, 1, nil), weights.HubOptions{},
		embed.Options{MaxTokens: 41})
	assert.ErrorContains(t, err, "41 tokens a text were asked for; the model takes from 3 to 40")
}

func TestFilesOfSentenceTransformersAreFollowed(t *testing.T) {
	dir := embedtest.Write(t, 1, nil)
	e, err := openAt(t, dir)
	require.NoError(t, err)
	assert.Equal(t, 40, e.Model().MaxTokens, "as many as there are positions")
	e.Close()
	embedtest.JSON(t, dir, "tokenizer_config.json", map[string]any{"model_max_length": 30})
	e, err = openAt(t, dir)
	require.NoError(t, err)
	assert.Equal(t, 30, e.Model().MaxTokens)
	e.Close()
	embedtest.JSON(t, dir, "sentence_bert_config.json", map[string]any{"max_seq_length": 20})
	embedtest.JSON(t, dir, "modules.json", []map[string]any{{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}})
	embedtest.JSON(t, dir, "config_sentence_transformers.json", map[string]any{"prompts": map[string]string{"query": "ask: ", "document": "doc: "}})
	e, err = openAt(t, dir)
	require.NoError(t, err)
	assert.Equal(t, 20, e.Model().MaxTokens)
	assert.Equal(t, []string{"ask: ", "doc: "}, []string{e.Model().QueryPrefix, e.Model().PassagePrefix})
	e.Close()
	for want, pooling := range map[string]map[string]any{
		"pooling_mode_cls_token is true; only the mean":    {"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false},
		"pooling_mode_mean_tokens is false; only the mean": {"pooling_mode_mean_tokens": false},
		"pooling_mode is cls; only the mean":               {"pooling_mode": "cls"},
	} {
		embedtest.JSON(t, dir, "1_Pooling/config.json", pooling)
		_, err := openAt(t, dir)
		if assert.Error(t, err) && len(pooling) == 1 {
			assert.ErrorContains(t, err, want)
		}
	}
	embedtest.JSON(t, dir, "1_Pooling/config.json", map[string]any{"pooling_mode": "mean", "pooling_mode_max_tokens": false})
	e, err = openAt(t, dir)
	require.NoError(t, err)
	e.Close()
}

func TestE5GetsItsPrefixesByItself(t *testing.T) {
	for name, want := range map[string]bool{"e5-small-v2": true, "E5-base": true, "multilingual-e5-small": true, "e5": true,
		"models--intfloat--e5-small-v2/snapshots/0123": true, "all-MiniLM-L6-v2": false, "code5-e50": false, "e5-small/other": false} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Rename(embedtest.Write(t, 1, nil), dir))
		e, err := openAt(t, dir)
		require.NoError(t, err)
		assert.Equal(t, want, e.Model().QueryPrefix == "query: " && e.Model().PassagePrefix == "passage: ", name)
		e.Close()
	}
}

// A prefix is part of the text that is seen.
func TestPrefixesStandBeforeTheTexts(t *testing.T) {
	prefix, none := "query: ", ""
	dev := testdevice.Open(t, device.Go)
	a := embedtest.Open(t, dev, 1, embed.Options{QueryPrefix: &prefix})
	b := embedtest.Open(t, dev, 1, embed.Options{QueryPrefix: &none})
	want, err := b.Queries(t.Context(), []string{"query: a town"})
	require.NoError(t, err)
	got, err := a.Queries(t.Context(), []string{" a town\n"})
	require.NoError(t, err)
	assert.Equal(t, want, got)
	plain, err := a.Passages(t.Context(), []string{"a town"}, nil)
	require.NoError(t, err)
	assert.NotEqual(t, got, plain)
}

func TestEncodingEndsWithItsContext(t *testing.T) {
	e := embedtest.Open(t, testdevice.Open(t, device.Go), 1, embed.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	texts := make([]string, 500)
	for i := range texts {
		texts[i] = "a town"
	}
	_, err := e.Passages(ctx, texts, func(int) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	vectors, err := e.Passages(t.Context(), nil, nil)
	require.NoError(t, err)
	assert.Empty(t, vectors)
}
