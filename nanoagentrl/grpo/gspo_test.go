package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sequenceLoss is GSPO's loss of sequences, from its definition, in float64: the weight of a token, times the number of
// tokens, times -min(s·A, clip(s)·A).
func sequenceLoss(sequences [][2][]float64, adv, weight []float64, opts LossOptions) (loss float64) {
	for i, pair := range sequences {
		mean := 0.0
		for t := range pair[0] {
			mean += (pair[0][t] - pair[1][t]) / float64(len(pair[0]))
		}
		s := math.Exp(mean)
		clipped := math.Min(math.Max(s, 1-opts.ClipLow), 1+opts.ClipHigh)
		loss -= weight[i] * float64(len(pair[0])) * math.Min(s*adv[i], clipped*adv[i])
	}
	return loss
}

// tokensOf lays sequences out for the token loss, with GSPO's stand-in for old.
func tokensOf(t *testing.T, sequences [][2][]float64, adv, weight []float64) (in tokens) {
	for i, pair := range sequences {
		logp, old := make([]float32, len(pair[0])), make([]float32, len(pair[0]))
		for at := range logp {
			logp[at], old[at] = float32(pair[0][at]), float32(pair[1][at])
		}
		behaviour, err := SequenceOld(logp, old)
		require.NoError(t, err)
		for at := range logp {
			in.logp, in.old = append(in.logp, float64(logp[at])), append(in.old, float64(behaviour[at]))
			in.adv, in.weight = append(in.adv, adv[i]), append(in.weight, weight[i])
			in.mask = append(in.mask, true)
		}
	}
	return in
}

// The worked example of docs/grpo_math.md: ratios 1.3 and 0.9 make 1.0817 of a sequence.
func TestSequenceRatioOfTwoTokens(t *testing.T) {
	pair := [2][]float64{{-1, -2}, {-1 - math.Log(1.3), -2 - math.Log(0.9)}}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		out := impl.loss(t, tokensOf(t, [][2][]float64{pair}, []float64{1}, []float64{0.5}), clipOnly)
		s := math.Sqrt(1.3 * 0.9)
		assert.InDelta(t, -s, out.Loss, 1e-5)
		assert.InDelta(t, 1.0817, s, 5e-5)
		assert.InDeltaSlice(t, []float64{-s / 2, -s / 2}, out.DLogP, 1e-5)
		assert.InDelta(t, s, out.Metrics.MeanRatio(), 1e-5)
		out = impl.loss(t, tokensOf(t, [][2][]float64{pair}, []float64{1}, []float64{0.5}),
			LossOptions{ClipLow: 3e-4, ClipHigh: 4e-4})
		assert.Equal(t, []float64{0, 0}, out.DLogP, "clipped as a whole")
		assert.InDelta(t, -1.0004, out.Loss, 1e-5)
		each := tokens{logp: pair[0], old: pair[1], adv: []float64{1, 1}, mask: []bool{true, true}, weight: []float64{.5, .5}}
		out = impl.loss(t, each, clipOnly)
		assert.InDelta(t, -1.05, out.Loss, 1e-5, "token by token")
		assert.InDeltaSlice(t, []float64{0, -0.45}, out.DLogP, 1e-5)
	})
}

// The token loss with SequenceOld is GSPO's loss, and its derivative is the derivative of that loss.
func TestSequenceRatioEqualsItsDefinitionAndFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 62))
	opts := LossOptions{ClipLow: 0.1, ClipHigh: 0.15}
	for range 10 {
		var sequences [][2][]float64
		var adv, weight []float64
		for _, n := range []int{1, 3, 8} {
			pair := [2][]float64{make([]float64, n), make([]float64, n)}
			for at := range n {
				pair[0][at] = float64(float32(-rng.ExpFloat64()))
				pair[1][at] = float64(float32(pair[0][at] + 0.3*rng.NormFloat64()))
			}
			sequences, adv = append(sequences, pair), append(adv, float64(float32(rng.NormFloat64())))
			weight = append(weight, 1/(3*float64(n)))
		}
		want := sequenceLoss(sequences, adv, weight, opts)
		forEachImplementation(t, func(t *testing.T, impl implementation) {
			out := impl.loss(t, tokensOf(t, sequences, adv, weight), opts)
			assert.InDelta(t, want, out.Loss, 2e-6)
			at := 0
			for _, pair := range sequences {
				for i := range pair[0] {
					was := pair[0][i]
					pair[0][i] = was + 1e-5
					up := sequenceLoss(sequences, adv, weight, opts)
					pair[0][i] = was - 1e-5
					down := sequenceLoss(sequences, adv, weight, opts)
					pair[0][i] = was
					assert.InDelta(t, (up-down)/2e-5, out.DLogP[at], 2e-6)
					at++
				}
			}
		})
	}
}

func TestSequenceRatioIsOneAtTheFirstInnerStep(t *testing.T) {
	behaviour, err := SequenceOld([]float32{-1, -2.5}, []float32{-1, -2.5})
	require.NoError(t, err)
	assert.Equal(t, []float32{-1, -2.5}, behaviour)
	behaviour, err = SequenceOld(nil, nil)
	require.NoError(t, err)
	assert.Empty(t, behaviour)
	_, err = SequenceOld([]float32{1}, nil)
	assert.ErrorContains(t, err, "1 log-probabilities was sampled with 0")
	assert.ErrorContains(t, Ratio("episode").Validate(), "choose token or sequence")
}
