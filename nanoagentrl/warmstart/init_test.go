package warmstart

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// host returns the values of a tensor of the untrained model of a recipe.
func host(t *testing.T, r *Recipe) func(name string) []float32 {
	t.Helper()
	p, err := NewPolicy(testdevice.Open(t, device.Go), r)
	require.NoError(t, err)
	t.Cleanup(p.Free)
	return func(name string) []float32 {
		values, err := p.Params.Host(name)
		require.NoError(t, err)
		return values
	}
}

// Head n of the first layer looks n+1 tokens back, whatever the tokens: its biases alone, with the model's own rotary
// table, put nearly all attention there.
func TestFirstHeadsLookBackOneTwoThreeTokens(t *testing.T) {
	r := Default()
	get := host(t, r)
	q, k := get("model.layers.0.self_attn.q_proj.bias"), get("model.layers.0.self_attn.k_proj.bias")
	const e, length = 32, 200
	cfg := &nn.Config{HeadDim: e, RopeTheta: r.Model.RopeTheta}
	positions := make([]int32, length)
	for i := range positions {
		positions[i] = int32(i)
	}
	cos, sin := nn.Rotary(cfg, positions) // [length, E/2]
	turn := func(v []float32, at int) []float64 {
		out := make([]float64, e)
		for i := range e / 2 {
			c, s := float64(cos[at*e/2+i]), float64(sin[at*e/2+i])
			a, b := float64(v[i]), float64(v[i+e/2])
			out[i], out[i+e/2] = a*c-b*s, b*c+a*s
		}
		return out
	}
	for head := range 3 {
		query := turn(q[head*e:(head+1)*e], length-1)
		weights, total := make([]float64, length), 0.0
		for at := range length {
			dot := 0.0
			for i, x := range turn(k[head*e:(head+1)*e], at) {
				dot += x * query[i]
			}
			weights[at] = math.Exp(dot / math.Sqrt(e))
			total += weights[at]
		}
		assert.Greater(t, weights[length-2-head]/total, 0.95, "head %d", head)
	}
	for _, v := range append(q[3*e:], k[3*e:]...) {
		require.Zero(t, v, "the other head is free")
	}
}

// Before any training, heads that match continue a text in which the last tokens occurred before; without them the
// model is at chance.
func TestHeadsThatMatchContinueWhatWasSeenBefore(t *testing.T) {
	continued := func(matchHeads int) float64 {
		r := Default()
		r.Model.PreviousHeads, r.Model.MatchHeads, r.Model.RopeTheta = 3, matchHeads, 1e6
		p, err := NewPolicy(testdevice.Open(t, device.Go), r)
		require.NoError(t, err)
		t.Cleanup(p.Free)
		rng, right := rand.New(rand.NewPCG(1, 2)), 0
		const tries, length = 30, 60
		for range tries {
			ids := rng.Perm(p.Tokenizer.VocabSize())[:length]
			at := 3 + rng.IntN(length-6)
			logits, err := p.Program.NextLogits(p.Params, append(ids, ids[at-3:at]...))
			require.NoError(t, err)
			if slices.Index(logits, slices.Max(logits)) == ids[at] {
				right++
			}
		}
		return float64(right) / tries
	}
	assert.Greater(t, continued(2), 0.5)
	assert.Less(t, continued(0), 0.1)
}

func TestHeadsThatLookBackShareACodeAndWriteItApart(t *testing.T) {
	const e, d = 32, 128
	get := host(t, Default())
	v, o := get("model.layers.0.self_attn.v_proj.weight"), get("model.layers.0.self_attn.o_proj.weight")
	assert.Equal(t, v[:e*d], v[e*d:2*e*d])
	assert.Equal(t, v[:e*d], v[2*e*d:3*e*d])
	assert.NotEqual(t, v[:e*d], v[3*e*d:])
	column := func(i int) []float64 {
		out := make([]float64, d)
		for row := range out {
			out[row] = float64(o[row*d+i])
		}
		return out
	}
	for i := range 3 * e {
		require.InDelta(t, slotScale, floats.Norm(column(i), 2), 1e-5)
		for j := range i {
			require.InDelta(t, 0, floats.Dot(column(i), column(j)), 1e-6)
		}
	}
	assert.Zero(t, deviation(o[3*e:4*e]), "the other head writes nothing yet")
	assert.Zero(t, deviation(get("model.layers.1.self_attn.o_proj.weight")))
	assert.Zero(t, deviation(get("model.layers.1.mlp.down_proj.weight")))
	assert.InDelta(t, 0.06, deviation(get("model.layers.1.mlp.up_proj.weight")), 0.003)
	assert.Equal(t, float32(1), get("model.norm.weight")[5])
}

func deviation(values []float32) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(values)))
}

func TestWithoutPreviousHeadsAllBiasesAreZeroAndSharedKeysServeAllHeads(t *testing.T) {
	r := Default()
	r.Model.PreviousHeads = 0
	get := host(t, r)
	for _, name := range []string{"q", "k", "v"} {
		for _, v := range get("model.layers.0.self_attn." + name + "_proj.bias") {
			require.Zero(t, v)
		}
	}
	r.Model.PreviousHeads, r.Model.KVHeads = 3, 1
	get = host(t, r)
	k := get("model.layers.0.self_attn.k_proj.bias")
	assert.Len(t, k, 32)
	assert.NotZero(t, k[0])
}
