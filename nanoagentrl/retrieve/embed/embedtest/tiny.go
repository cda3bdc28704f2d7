// Package embedtest makes a tiny encoder with random weights, for tests.
package embedtest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn/bert"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// Config is the shape of the tiny encoder.
func Config() bert.Config {
	return bert.Config{VocabSize: 700, HiddenSize: 16, IntermediateSize: 32, NumLayers: 2, NumHeads: 2, MaxPositions: 40,
		TypeVocabSize: 2, NormEps: 1e-12}
}

// Write writes the tiny encoder as a folder of sentence-transformers, with weights drawn from a seed. edit, if not nil,
// changes config.json and the tensors before.
func Write(t testing.TB, seed uint64, edit func(config map[string]any, tensors map[string]*weights.Tensor)) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "tiny")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	c := Config()
	config := map[string]any{"model_type": "bert", "vocab_size": c.VocabSize, "hidden_size": c.HiddenSize,
		"intermediate_size": c.IntermediateSize, "num_hidden_layers": c.NumLayers, "num_attention_heads": c.NumHeads,
		"max_position_embeddings": c.MaxPositions, "type_vocab_size": c.TypeVocabSize, "layer_norm_eps": c.NormEps}
	random := rand.New(rand.NewPCG(seed, 11))
	tensors := map[string]*weights.Tensor{}
	var order []string
	for _, p := range c.Params() {
		size := 1
		for _, d := range p.Shape {
			size *= d
		}
		values := make([]float32, size)
		for i := range values {
			values[i] = float32(random.NormFloat64() * 0.5)
		}
		tensors[p.Name] = &weights.Tensor{Name: p.Name, Shape: p.Shape, Data: values}
		order = append(order, p.Name)
	}
	if edit != nil {
		edit(config, tensors)
	}
	var list []weights.Tensor
	for _, name := range order {
		if x := tensors[name]; x != nil {
			list = append(list, *x)
		}
	}
	require.NoError(t, weights.WriteSafetensors(filepath.Join(dir, "model.safetensors"), list, weights.F32, nil))
	JSON(t, dir, "config.json", config)
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "nanoagentrl", "tokenizer", "testdata", "wordpiece", "tokenizer.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o644))
	return dir
}

// JSON writes a file of a folder.
func JSON(t testing.TB, dir, name string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
}

// Open writes and opens the tiny encoder.
func Open(t testing.TB, dev *device.Device, seed uint64, o embed.Options) *embed.Encoder {
	t.Helper()
	e, err := embed.Open(t.Context(), dev, Write(t, seed, nil), weights.HubOptions{}, o)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}
