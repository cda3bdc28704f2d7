package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	clipOnly = LossOptions{ClipLow: 0.2, ClipHigh: 0.2}
	inf      = math.Inf(1)
	nan      = math.NaN()
)

// oneToken is a single policy token of weight 1 with the given ratio and advantage; d is ref-logp.
func oneToken(ratio, adv, d float64) tokens {
	const logp = -1.5
	return tokens{
		logp: []float64{logp}, old: []float64{logp - math.Log(ratio)}, ref: []float64{logp + d},
		adv: []float64{adv}, mask: []bool{true}, weight: []float64{1},
	}
}

// randomTokens makes n tokens, most of them policy tokens, with ratios on all sides of a clip of 0.2 but not within
// 1e-3 of its ends, where the derivative jumps.
func randomTokens(rng *rand.Rand, n int) tokens {
	in := tokens{mask: make([]bool, n)}
	for t := range n {
		logRatio := rng.NormFloat64() * 0.3
		for math.Abs(math.Exp(logRatio)-1.2) < 1e-3 || math.Abs(math.Exp(logRatio)-0.8) < 1e-3 {
			logRatio = rng.NormFloat64() * 0.3
		}
		// Rounded to float32 here, so that all implementations see the same inputs.
		logp := float64(float32(-rng.ExpFloat64() * 2))
		in.logp = append(in.logp, logp)
		in.old = append(in.old, float64(float32(logp-logRatio)))
		in.ref = append(in.ref, float64(float32(logp+rng.NormFloat64()*math.Pow(10, -3*rng.Float64()))))
		in.adv = append(in.adv, float64(float32(rng.NormFloat64())))
		in.weight = append(in.weight, float64(float32(rng.Float64()/float64(n))))
		in.mask[t] = rng.Float64() < 0.7
	}
	return in
}

// clone returns a deep copy.
func (in tokens) clone() tokens {
	return tokens{
		logp: append([]float64(nil), in.logp...), old: append([]float64(nil), in.old...),
		ref: append([]float64(nil), in.ref...), adv: append([]float64(nil), in.adv...),
		mask: append([]bool(nil), in.mask...), weight: append([]float64(nil), in.weight...),
	}
}

// assertSameResult compares everything but PerToken. Derivatives are held to tol relative to their size, or to that of
// a typical one where they cancel; sums to tol times the number of their terms.
func assertSameResult(t *testing.T, want, got *LossResult, tol float64) {
	t.Helper()
	assert.InDelta(t, want.Loss, got.Loss, tol*max(1, math.Abs(want.Loss)), "loss")
	require.Len(t, got.DLogP, len(want.DLogP))
	for i := range want.DLogP {
		if !assert.InDelta(t, want.DLogP[i], got.DLogP[i], tol*max(1e-2, math.Abs(want.DLogP[i])), "dlogp[%d]", i) {
			return
		}
	}
	gotFields := got.Metrics.fields()
	for i, field := range want.Metrics.fields() {
		assert.InDelta(t, *field, *gotFields[i], tol*max(1, want.Metrics.Tokens), "metric %d", i)
	}
}

func TestSurrogateOnBothSidesOfTheClip(t *testing.T) {
	for _, c := range []struct {
		name                    string
		ratio, adv, loss, dlogp float64
		low, high               float64
	}{
		{"inside", 1.1, 2, -2.2, -2.2, 0, 0},
		{"inside, bad action", 0.9, -2, 1.8, 1.8, 0, 0},
		{"good action already likelier: no gradient", 1.3, 1, -1.2, 0, 0, 1},
		{"bad action likelier: pulled back", 1.3, -1, 1.3, 1.3, 0, 0},
		{"good action less likely: pulled back", 0.7, 1, -0.7, -0.7, 0, 0},
		{"bad action already less likely: no gradient", 0.7, -1, 0.8, 0, 1, 0},
		{"no advantage", 1.3, 0, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEachImplementation(t, func(t *testing.T, impl implementation) {
				out := impl.loss(t, oneToken(c.ratio, c.adv, 0), clipOnly)
				assert.InDelta(t, c.loss, out.Loss, 10*impl.tol)
				assert.InDelta(t, c.dlogp, out.DLogP[0], 10*impl.tol)
				assert.InDelta(t, c.ratio, out.Metrics.MeanRatio(), 10*impl.tol)
				assert.Equal(t, c.low, out.Metrics.ClippedLow)
				assert.Equal(t, c.high, out.Metrics.ClippedHigh)
				assert.Equal(t, c.low+c.high, out.Metrics.ClipFrac())
			})
		})
	}
}

func TestClipMayBeWiderAbove(t *testing.T) {
	opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.28}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		out := impl.loss(t, oneToken(1.25, 1, 0), opts)
		assert.InDelta(t, -1.25, out.DLogP[0], 10*impl.tol)
		out = impl.loss(t, oneToken(1.3, 1, 0), opts)
		assert.InDelta(t, -1.28, out.Loss, 10*impl.tol)
		assert.Zero(t, out.DLogP[0])
		out = impl.loss(t, oneToken(0.75, -1, 0), opts)
		assert.InDelta(t, 0.8, out.Loss, 10*impl.tol)
		assert.Zero(t, out.DLogP[0])
	})
}

func TestKLEstimatorsAndTheirGradientsAtLn2(t *testing.T) {
	const beta = 0.5
	opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: beta}
	for _, c := range []struct{ d, k1, k3, slope float64 }{
		{math.Ln2, -math.Ln2, 1 - math.Ln2, -1},   // k1 -0.693, k3 0.307: the policy is too unsure, logp must rise
		{-math.Ln2, math.Ln2, math.Ln2 - 0.5, .5}, // k1 +0.693, k3 0.193
		{0, 0, 0, 0},
	} {
		forEachImplementation(t, func(t *testing.T, impl implementation) {
			out := impl.loss(t, oneToken(1, 0, c.d), opts)
			assert.InDelta(t, c.k1, out.Metrics.MeanK1(), impl.tol)
			assert.InDelta(t, c.k3, out.Metrics.MeanK3(), impl.tol)
			assert.InDelta(t, beta*c.k3, out.Loss, impl.tol)
			assert.InDelta(t, beta*c.slope, out.DLogP[0], impl.tol)
		})
	}
}

// exp(d) - d - 1 as written has no digits left in float32 once d is small, and comes out negative.
func TestK3KeepsItsDigitsNearZero(t *testing.T) {
	opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 1}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		for _, d := range []float64{1e-7, -1e-7, 1e-4, -1e-4, 1.0 / 512, -1.0 / 512, 0.1, 0.249, 0.251, -0.249, -0.251} {
			in := tokens{logp: []float64{0}, old: []float64{0}, ref: []float64{float64(float32(d))},
				adv: []float64{0}, mask: []bool{true}, weight: []float64{1}}
			x := in.ref[0]
			want := x * x * (1.0/2 + x/6 + x*x/24 + x*x*x/120 + x*x*x*x/720 + x*x*x*x*x/5040 + x*x*x*x*x*x/40320)
			assert.InEpsilon(t, want, impl.loss(t, in, opts).Metrics.K3, max(10*impl.tol, 1e-7), "d=%g", d)
		}
	})
}

func TestFirstInnerStepHasRatioOneLossZeroAndAGradient(t *testing.T) {
	// Two episodes of equal length with advantages +1 and -1; the policy is still the one that sampled.
	in := tokens{
		logp: []float64{-1, -2, -3, -4}, old: []float64{-1, -2, -3, -4}, ref: []float64{-1, -2, -3, -4},
		adv: []float64{1, 1, -1, -1}, mask: []bool{true, true, true, true},
	}
	for _, agg := range []Aggregation{TokenMean, SeqMean, DrGRPO} {
		perSequence, err := TokenWeights([]int{2, 2}, agg, 8)
		require.NoError(t, err)
		in.weight = []float64{perSequence[0], perSequence[0], perSequence[1], perSequence[1]}
		forEachImplementation(t, func(t *testing.T, impl implementation) {
			out := impl.loss(t, in, DefaultLossOptions())
			assert.InDelta(t, 0, out.Loss, 1e-7)
			assert.Equal(t, 1.0, out.Metrics.MeanRatio())
			assert.Zero(t, out.Metrics.ClipFrac())
			w := perSequence[0]
			assert.InDeltaSlice(t, []float64{-w, -w, w, w}, out.DLogP, 1e-7)
		})
	}
}

func TestMaskedPlacesMayHoldNaNOrAnything(t *testing.T) {
	clean := randomTokens(rand.New(rand.NewPCG(5, 6)), 40)
	for _, opts := range []LossOptions{clipOnly, {ClipLow: 0.2, ClipHigh: 0.3, KLCoef: 0.1}} {
		forEachImplementation(t, func(t *testing.T, impl implementation) {
			want := impl.loss(t, clean, opts)
			require.NotZero(t, want.Loss)
			for _, filler := range []float64{nan, inf, -inf, 1e9, -1e9, 1} {
				dirty := clean.clone()
				for i, isPolicy := range clean.mask {
					if !isPolicy {
						for _, values := range [][]float64{dirty.logp, dirty.old, dirty.ref, dirty.adv, dirty.weight} {
							values[i] = filler
						}
					}
				}
				assert.Equal(t, want, impl.loss(t, dirty, opts), "filler %v", filler)
			}
		})
	}
}

func TestChangingOneInputAtAMaskedPlaceChangesNothing(t *testing.T) {
	clean := tokens{
		logp: []float64{-1, -2, -3}, old: []float64{-1.1, -2, -2.9}, ref: []float64{-1, -2.5, -2}, adv: []float64{1, 1, -1},
		mask: []bool{true, false, true}, weight: []float64{.5, .5, .5},
	}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.1}
		want := impl.loss(t, clean, opts)
		assert.Zero(t, want.DLogP[1])
		assert.Equal(t, 2.0, want.Metrics.Tokens)
		for field := range 5 {
			for _, value := range []float64{nan, 1e9} {
				dirty := clean.clone()
				[][]float64{dirty.logp, dirty.old, dirty.ref, dirty.adv, dirty.weight}[field][1] = value
				assert.Equal(t, want, impl.loss(t, dirty, opts), "field %d", field)
			}
		}
	})
}

func TestMaskedGradientEqualsTheLossSummedByHandOverPolicyTokens(t *testing.T) {
	in := randomTokens(rand.New(rand.NewPCG(7, 8)), 60)
	opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.2}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		out := impl.loss(t, in, opts)
		var loss float64
		for i, isPolicy := range in.mask {
			if !isPolicy {
				assert.Zero(t, out.DLogP[i])
				continue
			}
			r, d := math.Exp(in.logp[i]-in.old[i]), in.ref[i]-in.logp[i]
			surrogate := math.Min(r*in.adv[i], math.Min(math.Max(r, 0.8), 1.2)*in.adv[i])
			gradient := 0.2 * (1 - math.Exp(d))
			if surrogate == r*in.adv[i] {
				gradient -= r * in.adv[i]
			}
			loss += in.weight[i] * (-surrogate + 0.2*(math.Exp(d)-d-1))
			assert.InDelta(t, in.weight[i]*gradient, out.DLogP[i], impl.tol)
		}
		assert.InDelta(t, loss, out.Loss, 10*impl.tol)
	})
}

func TestAllMaskedGivesZeroLossAndZeroGradient(t *testing.T) {
	in := tokens{
		logp: []float64{nan, -1}, old: []float64{nan, -1}, ref: []float64{nan, -1}, adv: []float64{nan, 1},
		mask: []bool{false, false}, weight: []float64{nan, 0},
	}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		out := impl.loss(t, in, DefaultLossOptions())
		assert.Zero(t, out.Loss)
		assert.Equal(t, []float64{0, 0}, out.DLogP)
		assert.Equal(t, Metrics{}, out.Metrics, "Tokens is 0, which the caller can count")
		assert.Equal(t, []float64{1, 0, 0, 0}, []float64{out.Metrics.MeanRatio(), out.Metrics.ClipFrac(),
			out.Metrics.MeanK1(), out.Metrics.MeanK3()}, "and no mean is 0/0")
	})
}

func TestNaNAtAPolicyTokenIsNotHidden(t *testing.T) {
	in := oneToken(1, 1, 0)
	in.logp[0] = nan
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		out := impl.loss(t, in, DefaultLossOptions())
		assert.True(t, math.IsNaN(out.Loss))
		assert.True(t, math.IsNaN(out.DLogP[0]))
	})
}

func TestOutliersStayFiniteAndKeepTheSignOfTheirGradient(t *testing.T) {
	opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.1}
	at := func(logRatio, adv, d float64) tokens {
		return tokens{logp: []float64{-1}, old: []float64{-1 - logRatio}, ref: []float64{-1 + d}, adv: []float64{adv},
			mask: []bool{true}, weight: []float64{1}}
	}
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		finite := func(out *LossResult) *LossResult {
			assert.True(t, isFinite(out.Loss) && isFinite(out.DLogP[0]), "loss %v, dlogp %v", out.Loss, out.DLogP[0])
			return out
		}
		out := finite(impl.loss(t, at(500, -1, 0), opts))
		assert.InEpsilon(t, math.Exp(20)*481, out.Loss, 10*impl.tol, "exp goes on as its tangent at 20")
		assert.InEpsilon(t, math.Exp(20), out.DLogP[0], 10*impl.tol, "a bad action must still become less likely")
		out = finite(impl.loss(t, at(0, 0, 500), opts))
		assert.InEpsilon(t, 0.1*(math.Exp(20)*481-501), out.Loss, 10*impl.tol)
		assert.InEpsilon(t, 0.1*(1-math.Exp(20)), out.DLogP[0], 10*impl.tol,
			"a policy far below the reference must still come back")
		finite(impl.loss(t, at(-500, 1, -500), opts))
		out = impl.loss(t, at(20, -1, 0), opts)
		assert.InEpsilon(t, math.Exp(20), out.Loss, 10*impl.tol)
		assert.InEpsilon(t, math.Exp(20), out.DLogP[0], 10*impl.tol)
	})
}

func TestNoReferenceIsNeededWithoutKL(t *testing.T) {
	with := randomTokens(rand.New(rand.NewPCG(9, 10)), 20)
	without := with.clone()
	without.ref = nil
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		watched, blind := impl.loss(t, with, clipOnly), impl.loss(t, without, clipOnly)
		assert.Equal(t, watched.Loss, blind.Loss)
		assert.Equal(t, watched.DLogP, blind.DLogP)
		assert.Positive(t, watched.Metrics.K3, "a reference that is given is watched also with kl_coef 0")
		assert.Zero(t, blind.Metrics.K3)
		assert.Zero(t, blind.Metrics.K1)
	})
}

func TestUnusedKLTermCannotSpoilTheLoss(t *testing.T) {
	in := oneToken(1.1, 1, 0)
	in.ref[0] = nan
	forEachImplementation(t, func(t *testing.T, impl implementation) {
		out := impl.loss(t, in, clipOnly)
		assert.InDelta(t, -1.1, out.Loss, 10*impl.tol)
		assert.InDelta(t, -1.1, out.DLogP[0], 10*impl.tol)
	})
}

func TestPerTokenLossesAddUpToTheLoss(t *testing.T) {
	in := randomTokens(rand.New(rand.NewPCG(11, 12)), 100)
	out, err := TokenLossFloat64(in.logp, in.old, in.ref, in.adv, in.mask, in.weight, DefaultLossOptions())
	require.NoError(t, err)
	var sum float64
	for i, loss := range out.PerToken {
		assert.Equal(t, in.mask[i], loss != 0)
		sum += in.weight[i] * loss
	}
	assert.InDelta(t, out.Loss, sum, 1e-12)
	assert.InDelta(t, out.Loss, out.Metrics.PolicyLoss+out.Metrics.KLLoss, 1e-12)
	assert.Positive(t, out.Metrics.KLLoss)
}

// The derivative against central differences of step 1e-5: the difference errs by the step squared (1e-10 times the
// third derivative) and by rounding (1e-16 / 1e-5), so a tolerance of 1e-8 holds.
func TestDLogPAgainstFiniteDifferences(t *testing.T) {
	const step, tol = 1e-5, 1e-8
	rng := rand.New(rand.NewPCG(13, 14))
	for range 20 {
		in := randomTokens(rng, 30)
		opts := LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: rng.Float64()}
		lossAt := func(i int, logp float64) float64 {
			moved := in.clone()
			moved.logp[i] = logp
			return reference().loss(t, moved, opts).Loss
		}
		out := reference().loss(t, in, opts)
		for i, logp := range in.logp {
			difference := (lossAt(i, logp+step) - lossAt(i, logp-step)) / (2 * step)
			assert.InDelta(t, difference, out.DLogP[i], tol)
		}
	}
}

func TestLossRefusesBadArguments(t *testing.T) {
	in := oneToken(1, 1, 0)
	for want, opts := range map[string]LossOptions{
		"clip_low": {ClipLow: 1.5}, "clip_high": {ClipHigh: -0.1}, "kl_coef": {KLCoef: nan},
	} {
		_, err := TokenLossFloat64(in.logp, in.old, in.ref, in.adv, in.mask, in.weight, opts)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, opts.Validate(), want)
	}
	_, err := TokenLossFloat64(in.logp, in.old, nil, in.adv, in.mask, in.weight, DefaultLossOptions())
	assert.ErrorContains(t, err, "set kl_coef to 0")
	_, err = TokenLossFloat64(in.logp, in.old, in.ref, in.adv, []bool{true, true}, in.weight, clipOnly)
	assert.ErrorContains(t, err, "mask 2")
	_, err = MetricsFromVector([]float32{1, 2})
	assert.ErrorContains(t, err, "got 2")
}
