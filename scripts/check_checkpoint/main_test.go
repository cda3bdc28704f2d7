package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelpShowsExamplesAndEveryFlag(t *testing.T) {
	code, stdout, stderr := command("--help")
	assert.Equal(t, 0, code)
	assert.Empty(t, stderr)
	for _, text := range []string{"--out ckpt", "check.py ckpt tensors", "--model", "--tokenizer", "--set"} {
		assert.Contains(t, stdout, text)
	}
}

func TestBadInputIsOneLineAndStatusTwo(t *testing.T) {
	full, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	for _, path := range []string{filepath.Join(full, "x"), file} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--bad"}, "unknown flag: --bad; see --help"},
		{[]string{"out"}, `unexpected argument "out"`},
		{nil, "give the folder for the checkpoints with --out"},
		{[]string{"--out", full}, "is not empty; give a new folder"},
		{[]string{"--out", file}, "--out: "},
		{[]string{"--out", fresh, "--model", "a/m.gguf", "--model", "b/m.gguf"}, "two of the models would be called m"},
		{[]string{"--out", fresh, "--model", "tiny_llama.gguf"}, "two of the models would be called tiny_llama"},
		{[]string{"--out", fresh, "--set", "stps=1"}, "tiny_qwen2: --set stps=1"},
		{[]string{"--out", fresh, "--set", "lr=0"}, "changed the log-probabilities by at most 0, want 0.1"},
	} {
		code, _, stderr := command(c.args...)
		assert.Equal(t, 2, code, c.args)
		assert.Contains(t, stderr, c.want)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

// What is written down comes from the policy in memory, so that it equals the checkpoint only if saving is right.
func TestExpectationIsThatOfTheSavedModel(t *testing.T) {
	out := t.TempDir()
	code, _, stderr := command("--out", out)
	require.Equal(t, 0, code, stderr)
	dev, err := device.Open("go")
	require.NoError(t, err)
	defer dev.Close()
	list, err := subjects(nil, nil)
	require.NoError(t, err)
	for _, s := range list {
		t.Run(s.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(out, s.name, "expected.json"))
			require.NoError(t, err)
			var want expected
			require.NoError(t, json.Unmarshal(text, &want))
			dtype, err := policy.ParseDType("f32")
			require.NoError(t, err)
			dir := filepath.Join(out, s.name, filepath.FromSlash(want.Checkpoint))
			p, err := policy.Load(t.Context(), dev, dir, policy.Options{DType: dtype})
			require.NoError(t, err)
			defer p.Free()
			got, err := expect(p, probes(p))
			require.NoError(t, err)
			got.Checkpoint, got.Shift = want.Checkpoint, want.Shift
			assert.Equal(t, &want, got)
		})
	}
}

func TestLikeliestTokensAreScoredAsInTraining(t *testing.T) {
	out := t.TempDir()
	settings, err := subjectNamed(t, "tiny_qwen2_tied").settings(out)
	require.NoError(t, err)
	require.NotEmpty(t, settings)
	dev, err := device.Open("go")
	require.NoError(t, err)
	defer dev.Close()
	dtype, err := policy.ParseDType("f32")
	require.NoError(t, err)
	p, err := policy.Load(t.Context(), dev, filepath.Join(out, "base"), policy.Options{DType: dtype})
	require.NoError(t, err)
	defer p.Free()
	sequences := [][]int{{5, 9, 2, 40}, {7}}
	next, err := nextLogProbs(p, sequences)
	require.NoError(t, err)
	for i, ids := range sequences {
		best := likeliest(next[i])
		require.Len(t, best, top)
		for rank, id := range best {
			logp, err := logProbs(p, [][]int{append(append([]int{}, ids...), id)})
			require.NoError(t, err)
			assert.InDelta(t, logp[0][len(ids)-1], next[i][id], 1e-5)
			if rank > 0 {
				assert.LessOrEqual(t, next[i][id], next[i][best[rank-1]])
			}
		}
	}
}

func subjectNamed(t *testing.T, name string) subject {
	t.Helper()
	list, err := subjects(nil, nil)
	require.NoError(t, err)
	for _, s := range list {
		if s.name == name {
			return s
		}
	}
	require.FailNow(t, "no subject "+name)
	return subject{}
}
