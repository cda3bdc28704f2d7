package warmstart

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// tiny is a recipe that trains in a moment on pure Go.
func tiny(changes func(r *Recipe)) *Recipe {
	r := Default()
	r.Backend, r.World.People, r.World.EvalPeople, r.World.Fresh = "go", 40, 20, 4
	r.Model = Model{Layers: 1, Hidden: 16, Heads: 2, KVHeads: 2, Intermediate: 16, MaxPositions: 256,
		RopeTheta: 10000, InitStd: 0.06, PreviousHeads: 1}
	r.Optimizer.WarmupSteps = 2
	r.Stages = []Stage{
		{Name: "copy", Batch: 2, Tokens: 800, LRFrom: 0.01, LRTo: 0.01, Copy: 1, Passages: 1, Facts: 1, Questions: 3},
		{Name: "habits", Batch: 4, Tokens: 800, LRFrom: 0.01, LRTo: 0.001, Copy: 0.5, Passages: 1, Facts: 1,
			Questions: 2, TwoHop: 0.3, Habits: Mixed},
	}
	r.Eval = Eval{Questions: 2, Samples: 1}
	if changes != nil {
		changes(r)
	}
	return r
}

func hash(t *testing.T, dir string) string {
	t.Helper()
	p, err := policy.Load(t.Context(), testdevice.Open(t, device.Go), dir, policy.Options{DType: dtypes.Float32})
	require.NoError(t, err)
	defer p.Free()
	return p.ID
}

func TestTrainingOnlyOnPolicyTokensLowersTheirLoss(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		r := tiny(func(r *Recipe) { r.Stages = r.Stages[:1] })
		trainer, err := newTrainer(dev, r)
		require.NoError(t, err)
		defer trainer.free()
		var losses []float64
		for range 25 {
			s, norm, err := trainer.step(t.Context(), &r.Stages[0])
			require.NoError(t, err)
			require.Positive(t, norm)
			losses = append(losses, s.loss/float64(s.tokens))
		}
		assert.InDelta(t, math.Log(320), losses[0], 0.3, "at first each word is as likely as the others")
		assert.Less(t, losses[24], losses[0]-0.8)
	})
}

func TestSameSeedSameModelAndAnotherSeedAnother(t *testing.T) {
	dirs := [3]string{t.TempDir(), t.TempDir(), t.TempDir()}
	for i, dir := range dirs {
		_, err := Train(t.Context(), tiny(func(r *Recipe) {
			r.Eval.Questions = 0
			if i == 2 {
				r.Seed = 2
			}
		}), Options{Dir: dir})
		require.NoError(t, err)
	}
	assert.Equal(t, hash(t, dirs[0]), hash(t, dirs[1]))
	assert.NotEqual(t, hash(t, dirs[0]), hash(t, dirs[2]))
}

// canceller ends a context when a text is written to it.
type canceller struct {
	bytes.Buffer
	at     string
	cancel context.CancelFunc
}

func (c *canceller) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.at) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

func TestInterruptedTrainingGoesOnToTheSameModel(t *testing.T) {
	whole, parts := t.TempDir(), t.TempDir()
	_, err := Train(t.Context(), tiny(nil), Options{Dir: whole})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	out := &canceller{at: "stage 1/2 copy done", cancel: cancel}
	_, err = Train(ctx, tiny(nil), Options{Dir: parts, Out: out})
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, filepath.Join(parts, "model.safetensors"), "half a model must not look like a whole one")
	_, err = Train(t.Context(), tiny(func(r *Recipe) { r.World.Noise = 0.5 }), Options{Dir: parts})
	require.ErrorContains(t, err, `was left by a training with another recipe ("noise: 0", now "noise: 0.5")`)

	out.Reset()
	result, err := Train(t.Context(), tiny(nil), Options{Dir: parts, Out: out})
	require.NoError(t, err)
	require.Contains(t, out.String(), "resume   from update ")
	require.NotContains(t, out.String(), "stage 1/2")
	require.Len(t, result.Stages, 2)
	require.Equal(t, hash(t, whole), hash(t, parts))
	require.NoDirExists(t, filepath.Join(parts, ResumeName))
}

func TestResultSaysWhatItTookAndHowGoodItIs(t *testing.T) {
	dir := t.TempDir()
	out := &bytes.Buffer{}
	r := tiny(func(r *Recipe) { r.Stages[0].Until = 1e-9 })
	result, err := Train(t.Context(), r, Options{Dir: dir, Out: out})
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	assert.Equal(t, info.Size(), result.WeightBytes)
	assert.Less(t, info.Size(), int64(30_000), "16-bit weights")
	assert.Equal(t, result.Tokens, result.Stages[0].Tokens+result.Stages[1].Tokens)
	assert.Equal(t, result.Updates, result.Stages[0].Batches+result.Stages[1].Batches)
	assert.False(t, result.Stages[1].Reached)
	kinds := map[string]int{}
	for _, m := range result.Eval {
		kinds[m.Questions]++
		assert.Equal(t, 2, m.Episodes)
		assert.Contains(t, out.String(), m.String())
	}
	assert.Equal(t, map[string]int{"one_hop": 4, "two_hop": 4}, kinds)
	var stored Result
	text, err := os.ReadFile(filepath.Join(dir, ResultName))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &stored))
	assert.Equal(t, *result, stored)
	again, _, err := Open(filepath.Join(dir, RecipeName), nil)
	require.NoError(t, err)
	assert.Equal(t, r, again)
}

func TestStageEndsWhenEnoughValuesAreRight(t *testing.T) {
	r := tiny(func(r *Recipe) { r.Stages, r.Eval.Questions = r.Stages[:1], 0 })
	r.Stages[0].Tokens = 100000
	trainer, err := newTrainer(testdevice.Open(t, device.Go), r)
	require.NoError(t, err)
	defer trainer.free()
	r.Stages[0].Until = 0.5
	trainer.Recent = []float64{1, 1, 1, 1, 1, 1, 1, 1, 1} // Nine batches were right; the tenth will be wrong.
	require.NoError(t, trainer.run(t.Context()))
	require.Equal(t, []StageResult{{Name: "copy", Batches: 1, Tokens: trainer.TotalTokens, Right: 0.9, Reached: true}},
		trainer.Stages)
}

func TestWeightsOverTheLimitAreAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := Train(t.Context(), tiny(func(r *Recipe) {
		r.Stages = r.Stages[:1]
		r.Stages[0].Tokens, r.MaxBytes = 1, 1000
	}), Options{Dir: dir})
	require.ErrorContains(t, err, "more than max_bytes (1000); make the model smaller")
}

func TestRateRisesThenGoesInAStraightLine(t *testing.T) {
	tr := &trainer{recipe: &Recipe{Optimizer: Optimizer{WarmupSteps: 4}}}
	s := &Stage{Tokens: 1000, LRFrom: 0.4, LRTo: 0.2}
	assert.InDelta(t, 0.1, tr.rate(s), 1e-9)
	tr.Updates = 3
	assert.InDelta(t, 0.4, tr.rate(s), 1e-9)
	tr.Updates, tr.Tokens = 10, 500
	assert.InDelta(t, 0.3, tr.rate(s), 1e-9)
	tr.Tokens = 1000
	assert.InDelta(t, 0.2, tr.rate(s), 1e-9)
}

func TestSumsTrainToo(t *testing.T) {
	dir := t.TempDir()
	result, err := Train(t.Context(), tiny(func(r *Recipe) {
		r.Task = Sums
		r.Stages = []Stage{{Name: "a", Batch: 4, Tokens: 300, LRFrom: 0.01, Steps: 2, Habits: Good}}
	}), Options{Dir: dir})
	require.NoError(t, err)
	require.Len(t, result.Eval, 2)
	assert.Equal(t, Sums, result.Eval[0].Questions)
}
