package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

func call(t *testing.T, ctx context.Context, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = command(ctx, args, &o, &e)
	return code, o.String(), e.String()
}

const recipe = `
task: facts
backend: go
model: {layers: 1, hidden: 16, heads: 2, kv_heads: 1, intermediate: 16, previous_heads: 1}
world: {people: 40, eval_people: 20}
stages:
  - {name: a, passages: 1, facts: 1, questions: 2, batch: 2, tokens: 100, lr_from: 0.001, copy: 1}
eval: {questions: 2}
`

func TestHelpShowsExamples(t *testing.T) {
	code, out, errOut := call(t, t.Context(), "--help")
	assert.Equal(t, cli.OK, code)
	assert.Contains(t, out, "--config configs/warmstart_facts.yaml --out configs/warmstart_facts")
	assert.Empty(t, errOut)
}

func TestFaultsAreNamedAndNothingIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	require.NoError(t, os.WriteFile(path, []byte(recipe), 0o644))
	dir := filepath.Join(t.TempDir(), "out")
	for want, args := range map[string][]string{
		"no recipe: give --config":                 {"--out", dir},
		"give the folder for the model with --out": {"--config", path},
		`unexpected argument "x"`:                  {"--config", path, "--out", dir, "x"},
		`unknown key "sed"; did you mean seed?`:    {"--config", path, "--out", dir, "--set", "sed=1"},
		"model.layers: got 0, want at least 1":     {"--config", path, "--out", dir, "--set", "model.layers=0"},
		"holds other files; name a new folder":     {"--config", path, "--out", filepath.Dir(path)},
		"none.yaml":                                {"--config", "none.yaml", "--out", dir},
	} {
		code, _, errOut := call(t, t.Context(), args...)
		assert.Equal(t, cli.Fault, code)
		assert.Contains(t, errOut, want)
		assert.NoDirExists(t, dir)
	}
}

func TestMakesAModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	require.NoError(t, os.WriteFile(path, []byte(recipe), 0o644))
	dir := filepath.Join(t.TempDir(), "out")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, errOut := call(t, stopped, "--config", path, "--out", dir)
	assert.Equal(t, cli.Interrupted, code)
	assert.Contains(t, errOut, "interrupted; the same command goes on")
	code, out, errOut := call(t, t.Context(), "--config", path, "--out", dir, "--set", "seed=1")
	require.Equal(t, cli.OK, code, errOut)
	assert.Contains(t, out, "done     0.00M tokens")
	for _, name := range []string{"model.safetensors", "config.json", "tokenizer.json", "recipe.yaml",
		"warmstart.json"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
}
