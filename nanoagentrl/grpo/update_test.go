package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file look at what a whole update makes of the loss.

// batch is eight sequences of unequal lengths whose log-probabilities depend on one parameter θ: logp = base + θ·x.
type batch struct {
	sequences []tokens // without weights
	features  [][]float64
	lengths   []int
}

func randomBatch(rng *rand.Rand) batch {
	var b batch
	for _, n := range []int{2, 12, 30, 12, 2, 1, 30, 12} {
		sequence := randomTokens(rng, n)
		sequence.mask[0] = true
		length := 0
		features := make([]float64, n)
		for t := range n {
			features[t] = rng.NormFloat64()
			if sequence.mask[t] {
				length++
			}
		}
		b.sequences = append(b.sequences, sequence)
		b.features = append(b.features, features)
		b.lengths = append(b.lengths, length)
	}
	return b
}

// update returns the loss, dloss/dθ and metrics of the batch, cut into micro-batches of cut[0], cut[1] … sequences.
func (b batch) update(
	t *testing.T, impl implementation, opts LossOptions, weights []float64, cut []int,
) (loss, gradient float64, metrics Metrics) {
	next := 0
	for _, count := range cut {
		var micro tokens
		var features []float64
		for ; count > 0; count-- {
			s := b.sequences[next]
			micro.logp, micro.old = append(micro.logp, s.logp...), append(micro.old, s.old...)
			micro.ref, micro.adv = append(micro.ref, s.ref...), append(micro.adv, s.adv...)
			micro.mask = append(micro.mask, s.mask...)
			for range s.logp {
				micro.weight = append(micro.weight, weights[next])
			}
			features = append(features, b.features[next]...)
			next++
		}
		out := impl.loss(t, micro, opts)
		loss += out.Loss
		metrics.Add(out.Metrics)
		for i, g := range out.DLogP {
			gradient += g * features[i]
		}
	}
	return loss, gradient, metrics
}

func TestMicroBatchesGiveTheSameGradient(t *testing.T) {
	b := randomBatch(rand.New(rand.NewPCG(23, 24)))
	opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.1}
	for _, agg := range []Aggregation{TokenMean, SeqMean, DrGRPO} {
		t.Run(string(agg), func(t *testing.T) {
			weights, err := TokenWeights(b.lengths, agg, 40)
			require.NoError(t, err)
			wantLoss, wantGradient, wantMetrics := b.update(t, reference(), opts, weights, []int{8})
			require.Greater(t, math.Abs(wantGradient), 1e-3)
			forEachImplementation(t, func(t *testing.T, impl implementation) {
				for _, cut := range [][]int{{8}, {1, 1, 1, 1, 1, 1, 1, 1}, {2, 5, 1}} {
					loss, gradient, metrics := b.update(t, impl, opts, weights, cut)
					assert.InDelta(t, wantLoss, loss, 1e-6)
					assert.InDelta(t, wantGradient, gradient, 1e-6)
					assert.Equal(t, wantMetrics.Tokens, metrics.Tokens)
					assert.InDelta(t, wantMetrics.MeanRatio(), metrics.MeanRatio(), 1e-6)
					assert.InDelta(t, wantMetrics.MeanK3(), metrics.MeanK3(), 1e-6)
					assert.Equal(t, wantMetrics.ClipFrac(), metrics.ClipFrac())
				}
			})
		})
	}
}

// The loss of a batch equals its definition, computed without weights.
func TestAggregationsEqualTheirDefinitions(t *testing.T) {
	b := randomBatch(rand.New(rand.NewPCG(25, 26)))
	var sum, sumOfMeans, count float64
	for i, s := range b.sequences {
		s.weight = make([]float64, len(s.logp))
		var sequence float64
		for _, loss := range reference().loss(t, s, DefaultLossOptions()).PerToken {
			sequence += loss
		}
		sum += sequence
		sumOfMeans += sequence / float64(b.lengths[i])
		count += float64(b.lengths[i])
	}
	wants := map[Aggregation]float64{TokenMean: sum / count, SeqMean: sumOfMeans / 8, DrGRPO: sum / (8 * 40)}
	for agg, want := range wants {
		weights, err := TokenWeights(b.lengths, agg, 40)
		require.NoError(t, err)
		loss, _, _ := b.update(t, reference(), DefaultLossOptions(), weights, []int{8})
		assert.InDelta(t, want, loss, 1e-12, agg)
	}
}

// The worked example of docs/grpo_math.md: a group of two with advantages ±0.5, 2 and 6 policy tokens, all ratios 1.
func TestLossAtTheStartIsZeroOnlyWhereSequencesCountAlike(t *testing.T) {
	for agg, want := range map[Aggregation]struct{ loss, first, second float64 }{
		TokenMean: {0.25, -0.0625, 0.0625},
		SeqMean:   {0, -0.125, 0.5 / 12},
		DrGRPO:    {0.1, -0.025, 0.025},
	} {
		weights, err := TokenWeights([]int{2, 6}, agg, 10)
		require.NoError(t, err)
		in := tokens{}
		for t := range 8 {
			sequence, adv := 0, 0.5
			if t >= 2 {
				sequence, adv = 1, -0.5
			}
			in.logp, in.old = append(in.logp, -1), append(in.old, -1)
			in.adv, in.mask = append(in.adv, adv), append(in.mask, true)
			in.weight = append(in.weight, weights[sequence])
		}
		forEachImplementation(t, func(t *testing.T, impl implementation) {
			out := impl.loss(t, in, clipOnly)
			assert.InDelta(t, want.loss, out.Loss, 1e-6, agg)
			assert.InDelta(t, want.first, out.DLogP[0], 1e-7, agg)
			assert.InDelta(t, want.second, out.DLogP[7], 1e-7, agg)
		})
	}
}

// A zero-signal group has no policy gradient, but its tokens still count in the denominators and, with β > 0, are
// pulled to the reference; dropping it (length 0, mask false) undoes both.
func TestZeroSignalGroupsCountInTheLossUnlessDropped(t *testing.T) {
	rewards, groups := []float64{1, 0, 1, 1}, []int{0, 0, 1, 1}
	adv, stats, err := Advantages(rewards, groups, nil, DefaultAdvantageOptions())
	require.NoError(t, err)
	build := func(drop bool) tokens {
		lengths := []int{1, 1, 1, 1}
		in := tokens{}
		for i := range rewards {
			if drop && stats.NoSignal[i] {
				lengths[i] = 0
			}
			in.logp, in.old, in.ref = append(in.logp, -1), append(in.old, -1), append(in.ref, -2)
			in.adv, in.mask = append(in.adv, adv[i]), append(in.mask, lengths[i] > 0)
		}
		in.weight, err = TokenWeights(lengths, TokenMean, 0)
		require.NoError(t, err)
		return in
	}
	withKL := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 1}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		kept, dropped := impl.loss(t, build(false), clipOnly), impl.loss(t, build(true), clipOnly)
		assert.Equal(t, []float64{0, 0}, kept.DLogP[2:], "no gradient from rewards that are all equal")
		assert.InDelta(t, -adv[0]/4, kept.DLogP[0], 1e-6)
		assert.InDelta(t, -adv[0]/2, dropped.DLogP[0], 1e-6, "the denominator follows")

		kept, dropped = impl.loss(t, build(false), withKL), impl.loss(t, build(true), withKL)
		assert.InDelta(t, (1-math.Exp(-1))/4, kept.DLogP[2], 1e-6, "the KL term still trains them")
		assert.Equal(t, []float64{0, 0}, dropped.DLogP[2:])
	})
}

// One gradient step moves the ratio of the second inner epoch, with the same compiled graph: neither the old
// log-probabilities nor the ratio are constants of the graph.
func TestSecondInnerEpochSeesTheMovedPolicy(t *testing.T) {
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		in := tokens{
			logp: []float64{-1, -1}, old: []float64{-1, -1}, adv: []float64{1, -1}, mask: []bool{true, true},
			weight: []float64{0.5, 0.5},
		}
		first := impl.loss(t, in, clipOnly)
		assert.Equal(t, 1.0, first.Metrics.MeanRatio())
		for i := range in.logp {
			in.logp[i] -= 0.2 * first.DLogP[i] // logp is the parameter; learning rate 0.2
		}
		second := impl.loss(t, in, clipOnly)
		assert.InDelta(t, (math.Exp(0.1)+math.Exp(-0.1))/2, second.Metrics.MeanRatio(), 1e-6)
		assert.InDelta(t, -0.5*math.Exp(0.1), second.DLogP[0], 1e-6)
		assert.Less(t, second.Loss, first.Loss-0.05)
		for i := range in.logp {
			in.logp[i] -= 0.4 * second.DLogP[i]
		}
		third := impl.loss(t, in, clipOnly)
		assert.Equal(t, []float64{0, 0}, third.DLogP, "both ratios have left the clip on their good side")
		assert.Equal(t, 1.0, third.Metrics.ClipFrac())
	})
}

// With all advantages 0 and β > 0, one step of gradient descent brings a categorical policy closer to the reference.
// All actions are enumerated with weight π(a), which stands for sampling many tokens.
func TestKLTermPullsThePolicyToTheReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(27, 28))
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		for range 5 {
			logits, refLogits := make([]float64, 6), make([]float64, 6)
			for i := range logits {
				logits[i], refLogits[i] = rng.NormFloat64(), rng.NormFloat64()
			}
			before := klDivergence(logits, refLogits)
			logp := logSoftmax(logits)
			in := tokens{logp: logp, old: logp, ref: logSoftmax(refLogits), adv: make([]float64, 6),
				mask: []bool{true, true, true, true, true, true}}
			for _, l := range logp {
				in.weight = append(in.weight, math.Exp(l))
			}
			out := impl.loss(t, in, LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 1})
			assert.InDelta(t, before, out.Metrics.KLLoss, 1e-5, "the mean of k3 is the divergence")

			var total, norm float64
			for _, g := range out.DLogP {
				total += g
			}
			for a, l := range logp {
				gradient := out.DLogP[a] - math.Exp(l)*total // through the softmax
				norm += gradient * gradient
				logits[a] -= 0.05 * gradient
			}
			assert.Greater(t, norm, 1e-4)
			assert.Less(t, klDivergence(logits, refLogits), before)
		}
	})
}

func logSoftmax(logits []float64) []float64 {
	var sum float64
	for _, l := range logits {
		sum += math.Exp(l)
	}
	out := make([]float64, len(logits))
	for i, l := range logits {
		out[i] = l - math.Log(sum)
	}
	return out
}

func klDivergence(logits, refLogits []float64) float64 {
	p, q := logSoftmax(logits), logSoftmax(refLogits)
	var kl float64
	for i := range p {
		kl += math.Exp(p[i]) * (p[i] - q[i])
	}
	return kl
}
