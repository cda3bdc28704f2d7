package nn

import (
	"math"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// blocked is the score of a key that a query must not see: small enough to vanish in the softmax, and finite, so that a
// padding query which sees nothing gets a harmless average instead of NaN.
const blocked = -1e30

// Attention works on rows of heads: queries [B*K, G*T, E], where the G queries that share a key/value head lie one
// after the other, keys and values [B*K, T, E]. So grouped heads need no copies of keys, and each product is one
// batched matrix product.

// splitHeads turns [B*T, heads*E] into [B*K, G*T, E], where heads = K*G.
func splitHeads(x *Node, b, t, k, g, e int) *Node {
	x = Reshape(x, b, t, k, g, e)          // [B, T, K, G, E]
	x = TransposeAllDims(x, 0, 2, 3, 1, 4) // [B, K, G, T, E]
	return Reshape(x, b*k, g*t, e)         // [B*K, G*T, E]
}

// mergeHeads undoes splitHeads.
func mergeHeads(x *Node, b, t, k, g, e int) *Node {
	x = Reshape(x, b, k, g, t, e)          // [B, K, G, T, E]
	x = TransposeAllDims(x, 0, 3, 1, 2, 4) // [B, T, K, G, E]
	return Reshape(x, b*t, k*g*e)          // [B*T, heads*E]
}

// visibility returns [B*K, T, T] additive scores, 0 where the query may see the key and blocked elsewhere: a query sees
// the valid keys up to its own place. Queries lie on axis 1 and keys on axis 2, or the other way round if keysFirst.
// valid is [B, T], 1 for tokens and 0 for padding.
func visibility(valid *Node, k int, keysFirst bool) *Node {
	g, b, t := valid.Graph(), valid.Shape().Dim(0), valid.Shape().Dim(1)
	queryAxis, keyAxis, expand := 0, 1, []int{1, 2}
	if keysFirst {
		queryAxis, keyAxis, expand = 1, 0, []int{1, 3}
	}
	places := shapes.Make(dtypes.Int32, t, t)
	causal := LessOrEqual(Iota(g, places, keyAxis), Iota(g, places, queryAxis)) // [T, T]
	seen := LogicalAnd(
		BroadcastToDims(ExpandAxes(causal, 0, 1), b, k, t, t),
		BroadcastToDims(GreaterThan(ExpandAxes(valid, expand...), ScalarZero(g, valid.DType())), b, k, t, t))
	return Reshape(additive(seen), b*k, t, t) // [B*K, T, T]
}

// additive turns a visibility mask into 0 and blocked.
func additive(seen *Node) *Node {
	zeros := Zeros(seen.Graph(), shapes.Make(dtypes.Float32, seen.Shape().Dimensions...))
	return Where(seen, zeros, AddScalar(zeros, blocked))
}

// scores returns the scaled and masked attention scores in f32, [B*K, G*T, T].
func scores(q, k, visible *Node) *Node {
	rows, keys, e := q.Shape().Dim(1), k.Shape().Dim(1), q.Shape().Dim(2)
	s := DotGeneral(q, []int{2}, []int{0}, k, []int{2}, []int{0}) // [B*K, G*T, T]
	s = MulScalar(widen(s), 1/math.Sqrt(float64(e)))
	bk, t := s.Shape().Dim(0), visible.Shape().Dim(1)
	s = Add(Reshape(s, bk, rows/t, t, keys), ConvertDType(ExpandAxes(visible, 1), s.DType())) // [B*K, G, T, T]
	return Reshape(s, bk, rows, keys)                                                         // [B*K, G*T, T]
}

// attention returns softmax(q·kᵀ/sqrt(E) + visible)·v as [B*K, G*T, E], in the type of q, and the logarithm of each
// softmax's denominator, [B*K, G*T] f32.
func attention(q, k, v, visible *Node) (o, lse *Node) {
	s := scores(q, k, visible)
	top := ReduceAndKeep(s, ReduceMax, -1)                                                      // [B*K, G*T, 1]
	weights := Exp(Sub(s, top))                                                                 // [B*K, G*T, T]
	sum := ReduceAndKeep(weights, ReduceSum, -1)                                                // [B*K, G*T, 1]
	o = DotGeneral(ConvertDType(weights, q.DType()), []int{2}, []int{0}, v, []int{1}, []int{0}) // [B*K, G*T, E]
	o = ConvertDType(Div(widen(o), sum), q.DType())
	return o, Squeeze(Add(top, Log(sum)), -1) // [B*K, G*T]
}

// attentionBackward returns the gradients of attention for q, k and v from its outputs o and lse and the gradient do
// [B*K, G*T, E] of o. visible has its keys first, and keysT is k as [B*K, E, T].
//
// With p the softmax and δ = Σ_e do·o: dv = pᵀ·do, ds = p·(do·vᵀ - δ)/sqrt(E), dq = ds·k, dk = dsᵀ·q (the backward
// pass of arXiv:2205.14135, unblocked). Sums over the G queries of a key happen inside the products. p and ds are made
// with the keys first, pᵀ and dsᵀ above: like this no product contracts the rows of a large matrix on its left, for
// which XLA's CPU plugin takes up to six times as long.
//
// The gradient of q comes as dqT [B*K, E, G*T], and must not be transposed before other operations have changed it:
// XLA would turn the product around.
func attentionBackward(q, k, keysT, v, visible, o, lse, do *Node) (dqT, dk, dv *Node) {
	bk, rows, t, e := q.Shape().Dim(0), q.Shape().Dim(1), k.Shape().Dim(1), q.Shape().Dim(2)
	scale, dtype := 1/math.Sqrt(float64(e)), q.DType()
	s := DotGeneral(k, []int{2}, []int{0}, q, []int{2}, []int{0}) // [B*K, T, G*T]
	s = Sub(MulScalar(widen(s), scale), ExpandAxes(lse, 1))
	s = Add(Reshape(s, bk, t, rows/t, t), ConvertDType(ExpandAxes(visible, 2), s.DType())) // [B*K, T, G, T]
	p := Exp(Reshape(s, bk, t, rows))                                                      // [B*K, T, G*T]
	dv = DotGeneral(ConvertDType(p, dtype), []int{2}, []int{0}, do, []int{1}, []int{0})    // [B*K, T, E]

	dp := widen(DotGeneral(v, []int{2}, []int{0}, do, []int{2}, []int{0})) // [B*K, T, G*T]
	delta := ExpandAxes(ReduceSum(Mul(widen(do), widen(o)), -1), 1)        // [B*K, 1, G*T]
	ds := ConvertDType(MulScalar(Mul(p, Sub(dp, delta)), scale), dtype)    // [B*K, T, G*T]
	dk = DotGeneral(ds, []int{2}, []int{0}, q, []int{1}, []int{0})         // [B*K, T, E]
	dqT = DotGeneral(keysT, []int{2}, []int{0}, ds, []int{1}, []int{0})    // [B*K, E, G*T]
	return dqT, dk, dv
}
