package grpo

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
)

// ValueMetrics are sums over the policy tokens of a micro-batch. They add up over micro-batches.
type ValueMetrics struct {
	// Tokens is the number of policy tokens.
	Tokens float64
	// Loss is the loss, weights included.
	Loss float64
	// Clipped counts the tokens whose gradient the clip has removed.
	Clipped float64
}

// NumValueMetrics is the length of the metrics vector of ValueLoss.
const NumValueMetrics = 3

// ValueMetricsFromVector reads the metrics vector of ValueLoss, brought to the host. It returns an error if values does
// not have NumValueMetrics elements.
func ValueMetricsFromVector[T float32 | float64](values []T) (ValueMetrics, error) {
	if len(values) != NumValueMetrics {
		return ValueMetrics{}, fmt.Errorf("grpo: a vector of value metrics has %d values, got %d",
			NumValueMetrics, len(values))
	}
	return ValueMetrics{float64(values[0]), float64(values[1]), float64(values[2])}, nil
}

// Add adds the sums of another micro-batch.
func (m *ValueMetrics) Add(other ValueMetrics) {
	m.Tokens += other.Tokens
	m.Loss += other.Loss
	m.Clipped += other.Clipped
}

// ValueLossFloat64 returns the loss of PPO's critic over tokens and its derivative with respect to each value. With
// c = clip(V, old-clip, old+clip), for each token where mask is true
//
//	loss   = max((V - R)², (c - R)²) / 2
//	d/dV   = V - R, or 0 where the second is larger and V was clipped
//
// and the total is the sum of weight·loss. old is what the critic predicted before the step, R its return
// (GeneralisedAdvantages); clip 0 clips nothing. What stands where mask is false has no effect. Slices of different
// lengths and a negative clip are errors.
func ValueLossFloat64(values, old, returns []float64, mask []bool, weight []float64, clip float64) (
	loss float64, dvalues []float64, metrics ValueMetrics, err error) {
	n := len(values)
	if len(old) != n || len(returns) != n || len(mask) != n || len(weight) != n {
		return 0, nil, metrics, fmt.Errorf("grpo: value inputs differ in length: values %d, old %d, returns %d, mask %d, "+
			"weight %d", n, len(old), len(returns), len(mask), len(weight))
	}
	if err := checkValueClip(clip); err != nil {
		return 0, nil, metrics, err
	}
	dvalues = make([]float64, n)
	for t := range values {
		if !mask[t] {
			continue
		}
		metrics.Tokens++
		free := values[t] - returns[t]
		square, slope := free*free, free
		if clip > 0 {
			bound := min(max(values[t], old[t]-clip), old[t]+clip) - returns[t]
			if bound*bound > square {
				square, slope = bound*bound, 0
				metrics.Clipped++
			}
		}
		metrics.Loss += weight[t] * square / 2
		dvalues[t] = weight[t] * slope
	}
	return metrics.Loss, dvalues, metrics, nil
}

// ValueLoss builds the loss of ValueLossFloat64 as graph code. All inputs have the same shape; mask is Bool, or a number
// that is not 0 at policy tokens, the others are Float32 or Float64. It returns the derivative dvalues with respect to
// values, of their shape, and metrics, a vector to be read by ValueMetricsFromVector.
func ValueLoss(values, old, returns, mask, weight *Node, clip float64) (dvalues, metrics *Node) {
	if err := checkValueClip(clip); err != nil {
		panic(err)
	}
	if mask.DType() != dtypes.Bool {
		mask = NotEqual(mask, ScalarZero(mask.Graph(), mask.DType()))
	}
	zero := ScalarZero(values.Graph(), values.DType())
	atPolicy := func(x *Node) *Node { return Where(mask, x, zero) }

	// Everything below has the shape of values and is 0 where the mask is false.
	weight = atPolicy(weight)
	free := atPolicy(Sub(values, returns))
	square, slope, clipped := Mul(free, free), free, zero
	if clip > 0 {
		move := atPolicy(Sub(values, old))
		bound := Add(ClipScalar(move, -clip, clip), atPolicy(Sub(old, returns)))
		cut := LogicalAnd(GreaterThan(Abs(move), constant(move, clip)), GreaterThan(Mul(bound, bound), square))
		square, slope = Where(cut, Mul(bound, bound), square), Where(cut, zero, slope)
		clipped = ReduceAllSum(ConvertDType(cut, values.DType()))
	}
	loss := ReduceAllSum(Mul(weight, MulScalar(square, 0.5)))
	tokens := ReduceAllSum(ConvertDType(mask, values.DType()))
	return Mul(weight, slope), Stack([]*Node{tokens, loss, clipped}, 0) // [NumValueMetrics]
}

func checkValueClip(clip float64) error {
	if !(clip >= 0) || !isFinite(clip) {
		return fmt.Errorf("grpo: value_clip is %v, must be finite and not negative", clip)
	}
	return nil
}
