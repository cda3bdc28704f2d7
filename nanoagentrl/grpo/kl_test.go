package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of docs/grpo_math.md, as loss and as its derivative with respect to the policy's log-probability.
func TestEachKLEstimatorInTheLossAtLn2(t *testing.T) {
	const beta = 0.5
	for _, c := range []struct {
		estimator       KLEstimator
		d, value, slope float64
	}{
		{K1, math.Ln2, -math.Ln2, 1}, {K1, -math.Ln2, math.Ln2, 1},
		{K2, math.Ln2, 0.2402, -math.Ln2}, {K2, -math.Ln2, 0.2402, math.Ln2},
		{K3, math.Ln2, 0.3069, -1}, {K3, -math.Ln2, 0.1931, 0.5},
		{"", math.Ln2, 0.3069, -1},
	} {
		opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: beta, KLEstimator: c.estimator}
		forEachImplementation(t, func(t *testing.T, impl implementation) {
			out := impl.loss(t, oneToken(1, 0, c.d), opts)
			assert.InDelta(t, beta*c.value, out.Loss, 5e-5, "%q at %g", c.estimator, c.d)
			assert.InDelta(t, beta*c.slope, out.DLogP[0], 1e-5, "%q at %g", c.estimator, c.d)
			assert.InDelta(t, beta*c.value, out.Metrics.KLLoss, 5e-5)
			assert.InDelta(t, -c.d, out.Metrics.K1, 1e-5, "the metrics are the same whatever the loss uses")
			k3Value, _ := K3.Value(c.d)
			assert.InDelta(t, k3Value, out.Metrics.K3, 1e-5)
		})
	}
}

func TestEachKLEstimatorAgainstFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	for _, e := range []KLEstimator{K1, K2, K3} {
		for range 50 {
			d := rng.NormFloat64()
			up, _ := e.Value(d + 1e-5)
			down, _ := e.Value(d - 1e-5)
			_, slope := e.Value(d)
			assert.InDelta(t, (up-down)/2e-5, slope, 1e-8, e)
		}
	}
}

// With each estimator the graph equals the float64 code, whatever stands at masked places, and micro-batches add up.
func TestEachKLEstimatorInGraphAndMicroBatches(t *testing.T) {
	b := randomBatch(rand.New(rand.NewPCG(53, 54)))
	weights, err := TokenWeights(b.lengths, TokenMean, 0)
	require.NoError(t, err)
	for _, e := range []KLEstimator{K1, K2, K3} {
		opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.7, KLEstimator: e}
		wantLoss, wantGradient, _ := b.update(t, reference(), opts, weights, []int{8})
		other := opts
		other.KLEstimator = map[KLEstimator]KLEstimator{K1: K2, K2: K3, K3: K1}[e]
		otherLoss, _, _ := b.update(t, reference(), other, weights, []int{8})
		require.Greater(t, math.Abs(wantLoss-otherLoss), 1e-4, "the estimators differ here")
		dirty := b
		dirty.sequences = nil
		for _, s := range b.sequences {
			s = s.clone()
			for i, isPolicy := range s.mask {
				if !isPolicy {
					s.logp[i], s.ref[i], s.old[i] = nan, inf, nan
				}
			}
			dirty.sequences = append(dirty.sequences, s)
		}
		forEachImplementation(t, func(t *testing.T, impl implementation) {
			for _, cut := range [][]int{{8}, {2, 6}} {
				loss, gradient, _ := dirty.update(t, impl, opts, weights, cut)
				assert.InDelta(t, wantLoss, loss, 2e-6, e)
				assert.InDelta(t, wantGradient, gradient, 2e-6, e)
			}
		})
	}
}

// In expectation over the policy's own samples, the gradient of k1 in the loss is 0, that of k2 is the gradient of
// KL(policy||reference), and that of k3 is the gradient of KL(reference||policy). All actions are enumerated.
func TestWhatEachKLEstimatorInTheLossReallyDescends(t *testing.T) {
	logits, refLogits := []float64{0.3, -1, 0.8, 0}, []float64{-0.5, 0.4, 0.1, 0.9}
	gradient := func(e KLEstimator) []float64 {
		logp, ref := logSoftmax(logits), logSoftmax(refLogits)
		out := make([]float64, len(logits))
		for a, l := range logp {
			_, slope := e.Value(ref[a] - l)
			for i := range logits { // d logp_a / d logit_i = [a = i] - p_i
				onehot := 0.0
				if a == i {
					onehot = 1
				}
				out[i] += math.Exp(l) * -slope * (onehot - math.Exp(logp[i]))
			}
		}
		return out
	}
	differences := func(divergence func(a, b []float64) float64) []float64 {
		out := make([]float64, len(logits))
		for i := range logits {
			moved := append([]float64{}, logits...)
			moved[i] += 1e-5
			up := divergence(moved, refLogits)
			moved[i] -= 2e-5
			out[i] = (up - divergence(moved, refLogits)) / 2e-5
		}
		return out
	}
	assert.InDeltaSlice(t, []float64{0, 0, 0, 0}, gradient(K1), 1e-12)
	assert.InDeltaSlice(t, differences(klDivergence), gradient(K2), 1e-8)
	assert.InDeltaSlice(t, differences(func(a, b []float64) float64 { return klDivergence(b, a) }), gradient(K3), 1e-8)
}
