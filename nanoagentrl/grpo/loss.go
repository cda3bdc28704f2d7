package grpo

import (
	"errors"
	"fmt"
	"math"
)

// maxLogDiff bounds the argument of exp: up to this difference of two log-probabilities, in nats, ratios are exact,
// and above it exp continues as its tangent, so that no outlier overflows float32 and every gradient keeps its sign.
// exp(20) = 4.9e8 is far beyond anything that a healthy run shows.
const maxLogDiff = 20.0

// LossOptions are the constants of the loss.
type LossOptions struct {
	// ClipLow and ClipHigh bound the ratio from below by 1-ClipLow and from above by 1+ClipHigh. ClipLow is in [0, 1],
	// ClipHigh is not negative; PPO and GRPO use one value for both.
	ClipLow, ClipHigh float64
	// KLCoef is the weight β of the KL term in the loss; 0 leaves the term, and the need for a reference, out.
	KLCoef float64
	// KLEstimator is the estimate of the KL divergence in that term; empty means K3.
	KLEstimator KLEstimator
}

// DefaultLossOptions returns clip 0.2 on both sides and KL coefficient 0.001, as Search-R1 (arXiv:2503.09516) uses.
func DefaultLossOptions() LossOptions {
	return LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.001}
}

// Validate returns an error that names the first option out of its range.
func (o LossOptions) Validate() error {
	if !(o.ClipLow >= 0 && o.ClipLow <= 1) {
		return fmt.Errorf("grpo: clip_low is %v, must be in [0, 1]", o.ClipLow)
	}
	if !(o.ClipHigh >= 0) || math.IsInf(o.ClipHigh, 0) {
		return fmt.Errorf("grpo: clip_high is %v, must be finite and not negative", o.ClipHigh)
	}
	if !(o.KLCoef >= 0) || math.IsInf(o.KLCoef, 0) {
		return fmt.Errorf("grpo: kl_coef is %v, must be finite and not negative", o.KLCoef)
	}
	return o.KLEstimator.Validate()
}

// LossResult is the loss of a micro-batch.
type LossResult struct {
	// Loss is the sum over policy tokens of weight times PerToken.
	Loss float64
	// DLogP is the derivative of Loss with respect to each logp; 0 where the mask is false.
	DLogP []float64
	// PerToken is the loss of each token before its weight; 0 where the mask is false.
	PerToken []float64
	Metrics  Metrics
}

// TokenLossFloat64 returns the GRPO loss over tokens and its derivative, in float64. With r = exp(logp-old),
// A = adv, d = ref-logp and c = clip(r, 1-ClipLow, 1+ClipHigh), for each token where mask is true
//
//	loss     = -min(r·A, c·A) + KLCoef·(exp(d) - d - 1)
//	d/dlogp  = -r·A, or 0 if A > 0 and r > 1+ClipHigh or A < 0 and r < 1-ClipLow; plus KLCoef·(1 - exp(d))
//
// with another estimate in place of exp(d) - d - 1 if KLEstimator asks for it (KLEstimator.Value), and the total is the sum of weight·loss, without any division: the weights come from TokenWeights. Log-probabilities
// are in nats; logp is the current policy's, old the one the token was sampled with, ref the reference's; adv and
// weight are those of the token's sequence. ref may be nil if KLCoef is 0. Beyond a log-probability difference of 20
// nats exp continues as its tangent.
//
// What stands where mask is false, NaN and infinities included, has no effect. A NaN where mask is true makes the loss
// NaN: it is not hidden. Slices of different lengths and bad options are errors.
func TokenLossFloat64(
	logp, old, ref, adv []float64, mask []bool, weight []float64, opts LossOptions,
) (*LossResult, error) {
	if err := checkSlices(logp, old, ref, adv, mask, weight, opts); err != nil {
		return nil, err
	}
	out := &LossResult{DLogP: make([]float64, len(logp)), PerToken: make([]float64, len(logp))}
	for t := range logp {
		if !mask[t] {
			continue
		}
		out.Metrics.Tokens++

		r, slope := boundedExp(logp[t] - old[t])
		clipped := min(max(r, 1-opts.ClipLow), 1+opts.ClipHigh)
		loss := -min(r*adv[t], clipped*adv[t])
		dlogp := -slope * adv[t]
		switch {
		case adv[t] > 0 && r > 1+opts.ClipHigh:
			dlogp = 0
			out.Metrics.ClippedHigh++
		case adv[t] < 0 && r < 1-opts.ClipLow:
			dlogp = 0
			out.Metrics.ClippedLow++
		}
		out.Metrics.RatioExcess += r - 1
		out.Metrics.PolicyLoss += weight[t] * loss

		if ref != nil {
			always, _ := k3(ref[t] - logp[t])
			out.Metrics.K1 += logp[t] - ref[t]
			out.Metrics.K3 += always
			if opts.KLCoef > 0 {
				value, dvalue := opts.KLEstimator.Value(ref[t] - logp[t])
				loss += opts.KLCoef * value
				dlogp -= opts.KLCoef * dvalue // d falls as logp rises
				out.Metrics.KLLoss += weight[t] * opts.KLCoef * value
			}
		}
		out.PerToken[t] = loss
		out.DLogP[t] = weight[t] * dlogp
		out.Loss += weight[t] * loss
	}
	return out, nil
}

// boundedExp returns exp(x) and its derivative, with the tangent at maxLogDiff in place of exp above it.
func boundedExp(x float64) (value, slope float64) {
	m := min(x, maxLogDiff)
	slope = math.Exp(m)
	return slope * (1 + x - m), slope
}

func checkSlices(logp, old, ref, adv []float64, mask []bool, weight []float64, opts LossOptions) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	if ref == nil && opts.KLCoef > 0 {
		return errNoReference
	}
	n := len(logp)
	if len(old) != n || (ref != nil && len(ref) != n) || len(adv) != n || len(mask) != n || len(weight) != n {
		return fmt.Errorf("grpo: token inputs differ in length: logp %d, old %d, ref %d, adv %d, mask %d, weight %d",
			n, len(old), len(ref), len(adv), len(mask), len(weight))
	}
	return nil
}

var errNoReference = errors.New("grpo: kl_coef is not 0, so the loss needs the reference's log-probabilities; " +
	"give them or set kl_coef to 0")
