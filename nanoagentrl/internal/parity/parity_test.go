// Package parity compares whole pretrained models with reference vectors made by PyTorch. It has a folder of its own
// because it runs XLA with the optimisations that users get, while tests of small models turn them off to compile
// faster.
package parity

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/realmodel"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// parityCase is one case of the reference vectors, made with PyTorch.
type parityCase struct {
	IDs        []int     `json:"ids"`
	Top5       []int     `json:"top5_ids"`
	Top5Logits []float64 `json:"top5_logits"`
	LogProbs   []float64 `json:"logprobs"`
	Greedy32   []int     `json:"greedy32"`
	Greedy40   []int     `json:"greedy40"`
}

func readParity(t *testing.T, file string) map[string]parityCase {
	data, err := os.ReadFile(testenv.Shared(t, "vectors", file))
	require.NoError(t, err)
	var vectors struct {
		Cases map[string]parityCase `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(data, &vectors))
	require.NotEmpty(t, vectors.Cases)
	return vectors.Cases
}

// open opens a device with the optimisations that users get, unlike package testdevice.
func open(t *testing.T, kind device.Kind) *device.Device {
	dev, err := device.Open(string(kind))
	if err != nil {
		t.Skipf("skipped on %s: %v", kind, err)
	}
	return dev
}

func TestSmolLM2EqualsReference(t *testing.T) {
	cases := readParity(t, "smollm2_parity.json")
	m := realmodel.Load(t, open(t, device.XLA), realmodel.SmolLM2, dtypes.Float32)
	checkParity(t, m, cases)
}

func TestSmolLM2EqualsReferenceInPureGo(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: reading the model in pure Go takes several seconds")
	}
	cases := readParity(t, "smollm2_parity.json")
	m := realmodel.Load(t, open(t, device.Go), realmodel.SmolLM2, dtypes.Float32)
	checkLogProbs(t, m, cases["short"])
}

func TestQwenCoderEqualsReference(t *testing.T) {
	cases := readParity(t, "qwen25_coder_parity.json")
	m := realmodel.Load(t, open(t, device.XLA), realmodel.QwenCoder, dtypes.Float32)
	checkParity(t, m, cases)
}

func checkParity(t *testing.T, m *realmodel.Model, cases map[string]parityCase) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			checkLogProbs(t, m, c)
			checkGreedy(t, m, c)
		})
	}
}

// checkLogProbs compares the log-probability of each token, and the five best next tokens with their logits' distances.
func checkLogProbs(t *testing.T, m *realmodel.Model, c parityCase) {
	mask := make([]uint8, len(c.IDs))
	for i := range c.LogProbs {
		mask[i+1] = 1
	}
	batch, err := nn.NewBatch([]nn.Row{{IDs: c.IDs, Mask: mask}}, 0, false)
	require.NoError(t, err)
	got, _, err := m.Program.LogProbs(m.Params, batch, 1)
	require.NoError(t, err)
	require.Len(t, got, len(c.LogProbs))
	for i, want := range c.LogProbs {
		require.InDelta(t, want, got[i], 2e-3, "log-probability of token %d", i+1)
	}

	logits, err := m.Program.NextLogits(m.Params, c.IDs)
	require.NoError(t, err)
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	require.Equal(t, c.Top5, order[:5], "the five most likely next tokens")
	for i, id := range c.Top5 {
		require.InDelta(t, c.Top5Logits[i], logits[id], 5e-3, "logit of token %d", id)
	}
}

// checkGreedy follows the most likely tokens. End tokens do not stop the reference, so sampling goes on after them.
func checkGreedy(t *testing.T, m *realmodel.Model, c parityCase) {
	want := append(append([]int{}, c.Greedy32...), c.Greedy40...)
	g := generate.New(m.Program, m.Params, m.Tokenizer, generate.Limits{})
	seq := generate.NewSequence(c.IDs, 1)
	for len(seq.IDs) < len(c.IDs)+len(want) {
		opts := generate.Options{MaxNew: len(c.IDs) + len(want) - len(seq.IDs)}
		require.NoError(t, g.Generate(context.Background(), []*generate.Sequence{seq}, opts))
	}
	require.Equal(t, c.Top5[0], seq.IDs[len(c.IDs)], "most likely next token")
	require.Equal(t, want, seq.IDs[len(c.IDs):])
}
