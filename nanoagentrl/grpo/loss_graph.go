package grpo

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
)

// TokenLoss builds the loss of TokenLossFloat64 as graph code. All inputs have the same shape, of any rank; logp, old,
// ref, adv and weight are all Float32 or all Float64, and mask is Bool, or a number that is not 0 at policy tokens.
// ref may be nil if opts.KLCoef is 0.
//
// It returns the loss, a scalar; dlogp, the derivative of the loss with respect to logp, of the shape of logp; and
// metrics, a vector to be read by MetricsFromVector. dlogp is written out by hand, so no gradient pass is needed to
// get it; loss can also be differentiated by graph.Gradient, with the same result. All three are sums over tokens:
// add them up over micro-batches.
//
// What stands where mask is false, NaN included, has no effect on any of the three. Like all graph functions it panics
// on bad shapes and options, which graph.Exec turns into an error.
func TokenLoss(logp, old, ref, adv, mask, weight *Node, opts LossOptions) (loss, dlogp, metrics *Node) {
	checkNodes(logp, old, ref, adv, mask, weight, opts)
	if mask.DType() != dtypes.Bool {
		mask = NotEqual(mask, ScalarZero(mask.Graph(), mask.DType()))
	}
	zero := ScalarZero(logp.Graph(), logp.DType())
	atPolicy := func(x *Node) *Node { return Where(mask, x, zero) }

	// Everything below has the shape of logp and is finite also where the mask is false: Where comes before Exp.
	adv, weight = atPolicy(adv), atPolicy(weight)
	ratio, slope := boundedExpGraph(atPolicy(Sub(logp, old)))
	clipped := ClipScalar(ratio, 1-opts.ClipLow, 1+opts.ClipHigh)
	policyLoss := Mul(weight, Neg(Min(Mul(ratio, adv), Mul(clipped, adv))))

	clippedHigh := LogicalAnd(GreaterThan(adv, zero), GreaterThan(ratio, constant(ratio, 1+opts.ClipHigh)))
	clippedLow := LogicalAnd(LessThan(adv, zero), LessThan(ratio, constant(ratio, 1-opts.ClipLow)))
	dlogp = Where(LogicalOr(clippedHigh, clippedLow), zero, Neg(Mul(slope, adv)))

	k1Sum, k3Sum, klLoss := zero, zero, zero
	policyLossSum := ReduceAllSum(policyLoss)
	loss = policyLossSum
	if ref != nil {
		d := atPolicy(Sub(ref, logp))
		value, dvalue := k3Graph(d)
		k1Sum, k3Sum = ReduceAllSum(Neg(d)), ReduceAllSum(value)
		if opts.KLCoef > 0 {
			value, dvalue = opts.KLEstimator.graph(d, value, dvalue)
			klLoss = ReduceAllSum(Mul(weight, MulScalar(value, opts.KLCoef)))
			loss = Add(loss, klLoss)
			dlogp = Sub(dlogp, MulScalar(dvalue, opts.KLCoef)) // d falls as logp rises
		}
	}
	dlogp = Mul(weight, dlogp)

	count := func(condition *Node) *Node { return ReduceAllSum(ConvertDType(condition, logp.DType())) }
	ratioExcess := ReduceAllSum(MinusOne(ratio)) // the ratio is 1 where the mask is false
	metrics = Stack([]*Node{count(mask), ratioExcess, count(clippedLow), count(clippedHigh), k1Sum,
		k3Sum, policyLossSum, klLoss}, 0) // [NumMetrics], in the order of Metrics.fields
	return loss, dlogp, metrics
}

// boundedExpGraph is boundedExp as graph code.
func boundedExpGraph(x *Node) (value, slope *Node) {
	m := MinScalar(x, maxLogDiff)
	slope = Exp(m)
	return Mul(slope, OnePlus(Sub(x, m))), slope
}

// constant returns a scalar constant of x's data type.
func constant(x *Node, value float64) *Node { return Scalar(x.Graph(), x.DType(), value) }

func checkNodes(logp, old, ref, adv, mask, weight *Node, opts LossOptions) {
	if err := opts.Validate(); err != nil {
		panic(err)
	}
	if ref == nil && opts.KLCoef > 0 {
		panic(errNoReference)
	}
	if dtype := logp.DType(); dtype != dtypes.Float32 && dtype != dtypes.Float64 {
		panic(fmt.Errorf("grpo: the loss is computed in Float32 or Float64, but logp is %s; convert it first", dtype))
	}
	for _, input := range []struct {
		name string
		node *Node
	}{{"old", old}, {"ref", ref}, {"adv", adv}, {"weight", weight}} {
		if input.node != nil && !input.node.Shape().Equal(logp.Shape()) {
			panic(fmt.Errorf("grpo: %s has shape %s, must be that of logp, %s",
				input.name, input.node.Shape(), logp.Shape()))
		}
	}
	if !mask.Shape().EqualDimensions(logp.Shape()) {
		panic(fmt.Errorf("grpo: mask has shape %s, must have the dimensions of logp, %s", mask.Shape(), logp.Shape()))
	}
}
