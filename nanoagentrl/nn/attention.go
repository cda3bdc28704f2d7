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

// visibility returns [B*K, T, T] additive scores, 0 where the query (axis 1) may see the key (axis 2) and blocked
// elsewhere: a query sees the valid keys up to its own place. valid is [B, T], 1 for tokens and 0 for padding.
func visibility(valid *Node, k int) *Node {
	g, b, t := valid.Graph(), valid.Shape().Dim(0), valid.Shape().Dim(1)
	query := Iota(g, shapes.Make(dtypes.Int32, t, t), 0) // [T, T]
	key := Iota(g, shapes.Make(dtypes.Int32, t, t), 1)   // [T, T]
	causal := LessOrEqual(key, query)                    // [T, T]
	seen := LogicalAnd(
		BroadcastToDims(ExpandAxes(causal, 0, 1), b, k, t, t),
		BroadcastToDims(GreaterThan(ExpandAxes(valid, 1, 2), ScalarZero(g, valid.DType())), b, k, t, t))
	zeros := Zeros(g, shapes.Make(dtypes.Float32, b, k, t, t))
	return Reshape(Where(seen, zeros, AddScalar(zeros, blocked)), b*k, t, t) // [B*K, T, T]
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

// attention returns softmax(q·kᵀ/sqrt(E) + visible)·v as [B*K, G*T, E], in the type of q.
func attention(q, k, v, visible *Node) *Node {
	s := scores(q, k, visible)
	weights := Exp(Sub(s, ReduceAndKeep(s, ReduceMax, -1)))                                      // [B*K, G*T, T]
	sum := ReduceAndKeep(weights, ReduceSum, -1)                                                 // [B*K, G*T, 1]
	o := DotGeneral(ConvertDType(weights, q.DType()), []int{2}, []int{0}, v, []int{1}, []int{0}) // [B*K, G*T, E]
	return ConvertDType(Div(widen(o), sum), q.DType())
}

// attentionBackward returns the gradients of attention for q, k and v, given the output o and its gradient do
// [B*K, G*T, E].
//
// With p the softmax and δ = Σ_e do·o: dv = pᵀ·do, ds = p·(do·vᵀ - δ)/sqrt(E), dq = ds·k, dk = dsᵀ·q (the backward
// pass of arXiv:2205.14135, unblocked). Sums over the G queries of a key happen inside the products.
func attentionBackward(q, k, v, visible, o, do *Node) (dq, dk, dv *Node) {
	s := scores(q, k, visible)
	p := Exp(Sub(s, ReduceAndKeep(s, ReduceMax, -1))) // [B*K, G*T, T]
	p = Div(p, ReduceAndKeep(p, ReduceSum, -1))       // [B*K, G*T, T]

	dtype := q.DType()
	dv = DotGeneral(ConvertDType(p, dtype), []int{1}, []int{0}, do, []int{1}, []int{0}) // [B*K, T, E]
	dp := widen(DotGeneral(do, []int{2}, []int{0}, v, []int{2}, []int{0}))              // [B*K, G*T, T]
	delta := ReduceAndKeep(Mul(widen(do), widen(o)), ReduceSum, -1)                     // [B*K, G*T, 1]
	ds := MulScalar(Mul(p, Sub(dp, delta)), 1/math.Sqrt(float64(q.Shape().Dim(2))))
	ds = ConvertDType(ds, dtype)                                   // [B*K, G*T, T]
	dq = DotGeneral(ds, []int{2}, []int{0}, k, []int{1}, []int{0}) // [B*K, G*T, E]
	dk = DotGeneral(ds, []int{1}, []int{0}, q, []int{1}, []int{0}) // [B*K, T, E]
	return dq, dk, dv
}
