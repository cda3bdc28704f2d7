package grpo

import (
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/pkg/core/graph"
)

// KLEstimator names an estimate of KL(policy||reference) from one token that the policy sampled, as a function of
// d = ref - logp in nats (Schulman, "Approximating KL Divergence", 2020). The zero value means K3.
type KLEstimator string

// The estimators. K1 and K3 are unbiased as values, K3 is never negative and varies less, and K2 is the one whose
// gradient in a loss is the gradient of KL(policy||reference); docs/grpo_math.md derives it.
const (
	K1 KLEstimator = "k1" // -d
	K2 KLEstimator = "k2" // d²/2
	K3 KLEstimator = "k3" // exp(d) - d - 1
)

// Validate returns an error that lists the estimators if e is none of them.
func (e KLEstimator) Validate() error {
	switch e {
	case "", K1, K2, K3:
		return nil
	}
	return fmt.Errorf("grpo: unknown kl_estimator %q; choose %s, %s or %s", e, K1, K2, K3)
}

// Value returns the estimate at d = ref - logp and its derivative with respect to d.
func (e KLEstimator) Value(d float64) (value, slope float64) {
	switch e {
	case K1:
		return -d, -1
	case K2:
		return d * d / 2, d
	}
	return k3(d)
}

// graph is Value as graph code; k3 and its slope are given, since the metrics have them anyway.
func (e KLEstimator) graph(d, k3, k3Slope *Node) (value, slope *Node) {
	switch e {
	case K1:
		return Neg(d), Neg(OnesLike(d))
	case K2:
		return MulScalar(Mul(d, d), 0.5), d
	}
	return k3, k3Slope
}

// Penalties returns coef times the estimate at each token where mask is true, and 0 elsewhere: what a KL penalty in
// the reward takes off the reward of a token. The log-probabilities, in nats, are those of the policy that sampled and
// of the reference. All slices must have the same length.
func (e KLEstimator) Penalties(old, ref []float64, mask []bool, coef float64) ([]float64, error) {
	if len(old) != len(mask) || len(ref) != len(mask) {
		return nil, fmt.Errorf("grpo: %d old and %d reference log-probabilities for a mask of %d tokens",
			len(old), len(ref), len(mask))
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	penalties := make([]float64, len(mask))
	for t, isPolicy := range mask {
		if isPolicy {
			value, _ := e.Value(ref[t] - old[t])
			penalties[t] = coef * value
		}
	}
	return penalties, nil
}

// k3 returns exp(d) - d - 1 for d = ref-logp, Schulman's estimate of KL(policy||reference) from one token sampled by
// the policy, and its derivative with respect to d. Expm1 keeps the digits of small differences.
func k3(d float64) (value, slope float64) {
	m := min(d, maxLogDiff)
	return math.Expm1(m) - m + math.Expm1(m)*(d-m), math.Expm1(m)
}

// seriesRange is the |d| below which k3 is summed as a power series: exp(d) - d - 1 loses all its digits in float32 as
// d goes to 0.
const seriesRange = 0.25

// k3Graph is k3 as graph code: a power series near 0, exp(d) - d - 1 elsewhere. The series is kept to 1e-8 of its
// value by its terms up to d^7, and its argument is bounded so that it stays finite where it is not used.
func k3Graph(d *Node) (value, slope *Node) {
	exp, slope := boundedExpGraph(d)
	s := ClipScalar(d, -seriesRange, seriesRange)
	series := constant(d, 1.0/5040)
	for _, coefficient := range []float64{1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2} {
		series = AddScalar(Mul(series, s), coefficient)
	}
	isSmall := LessThan(Abs(d), constant(d, seriesRange))
	value = Where(isSmall, Mul(Mul(s, s), series), Sub(MinusOne(exp), d))
	return value, MinusOne(slope)
}
