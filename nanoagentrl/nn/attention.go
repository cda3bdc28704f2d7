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

// stretch is a range of queries, [lo, hi). They see no keys from hi on.
type stretch struct{ lo, hi int }

// shortestStretch and mostStretches say how finely attention is cut. Tests cut more finely.
var (
	shortestStretch = 128
	mostStretches   = 4
)

// stretches cuts t queries. Every stretch but the last leaves out keys that causality hides from it, up to three eighths
// of all scores, which is worth more than the larger graph costs.
func stretches(t int) []stretch {
	n := min(max(t/shortestStretch, 1), mostStretches)
	cut := make([]stretch, n)
	for i := range cut {
		cut[i] = stretch{i * t / n, (i + 1) * t / n}
	}
	return cut
}

// queries takes the queries of the stretch out of x [B*K, G*T, E] and returns [B*K, G*(hi-lo), E].
func (s stretch) queries(x *Node, t int) *Node {
	bk, rows, e := x.Shape().Dim(0), x.Shape().Dim(1), x.Shape().Dim(2)
	x = Reshape(x, bk, rows/t, t, e)             // [B*K, G, T, E]
	x = SliceAxis(x, 2, AxisRange(s.lo, s.hi))   // [B*K, G, hi-lo, E]
	return Reshape(x, bk, rows/t*(s.hi-s.lo), e) // [B*K, G*(hi-lo), E]
}

// keys takes the keys or values that the stretch may see out of x: an axis of size T shrinks to hi.
func (s stretch) keys(x *Node, axis int) *Node { return SliceAxis(x, axis, AxisRange(0, s.hi)) }

// visibility returns [B*K, hi-lo, hi] additive scores, 0 where a query of the stretch may see the key and blocked
// elsewhere: a query sees the valid keys up to its own place. Queries lie on axis 1 and keys on axis 2, or the other way
// round if keysFirst. valid is [B, T], 1 for tokens and 0 for padding.
func (s stretch) visibility(valid *Node, k int, keysFirst bool) *Node {
	g, b := valid.Graph(), valid.Shape().Dim(0)
	places, queryAxis, keyAxis, expand := shapes.Make(dtypes.Int32, s.hi-s.lo, s.hi), 0, 1, []int{1, 2}
	if keysFirst {
		places, queryAxis, keyAxis, expand = shapes.Make(dtypes.Int32, s.hi, s.hi-s.lo), 1, 0, []int{1, 3}
	}
	causal := LessOrEqual(Iota(g, places, keyAxis), AddScalar(Iota(g, places, queryAxis), float64(s.lo)))
	dims := []int{b, k, places.Dim(0), places.Dim(1)}
	isToken := GreaterThan(s.keys(valid, 1), ScalarZero(g, valid.DType())) // [B, hi]
	seen := LogicalAnd(
		BroadcastToDims(ExpandAxes(causal, 0, 1), dims...),
		BroadcastToDims(ExpandAxes(isToken, expand...), dims...))
	return Reshape(additive(seen), b*k, dims[2], dims[3])
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

// attention returns softmax(q·kᵀ/sqrt(E) + visibility)·v as [B*K, G*T, E], in the type of q, and the logarithm of each
// softmax's denominator, [B*K, G*T] f32. valid is [B, T], 1 for tokens and 0 for padding.
func attention(q, k, v, valid *Node) (o, lse *Node) {
	bk, rows, t, e := q.Shape().Dim(0), q.Shape().Dim(1), k.Shape().Dim(1), q.Shape().Dim(2)
	var outs, sums []*Node
	for _, s := range stretches(t) {
		visible := s.visibility(valid, bk/valid.Shape().Dim(0), false)
		o, lse := attend(s.queries(q, t), s.keys(k, 1), s.keys(v, 1), visible)
		outs = append(outs, Reshape(o, bk, rows/t, s.hi-s.lo, e))   // [B*K, G, hi-lo, E]
		sums = append(sums, Reshape(lse, bk, rows/t, s.hi-s.lo, 1)) // [B*K, G, hi-lo, 1]
	}
	return Reshape(Concatenate(outs, 2), bk, rows, e), Reshape(Concatenate(sums, 2), bk, rows)
}

// attend is attention of the given queries over the given keys, with an additive mask.
func attend(q, k, v, visible *Node) (o, lse *Node) {
	s := scores(q, k, visible)
	top := ReduceAndKeep(s, ReduceMax, -1)                                                      // [B*K, G*T, 1]
	weights := Exp(Sub(s, top))                                                                 // [B*K, G*T, T]
	sum := ReduceAndKeep(weights, ReduceSum, -1)                                                // [B*K, G*T, 1]
	o = DotGeneral(ConvertDType(weights, q.DType()), []int{2}, []int{0}, v, []int{1}, []int{0}) // [B*K, G*T, E]
	return ConvertDType(Div(widen(o), sum), q.DType()), Add(top, Log(sum))
}

// attentionBackward returns the gradients of attention for q, k and v from its outputs o and lse and the gradient do
// [B*K, G*T, E] of o. keysT is k as [B*K, E, T]. The gradient of q comes as dqT [B*K, E, G*T], and must not be transposed
// before other operations have changed it: XLA would turn the product around.
func attentionBackward(q, k, keysT, v, valid, o, lse, do *Node) (dqT, dk, dv *Node) {
	bk, rows, t, e := q.Shape().Dim(0), q.Shape().Dim(1), k.Shape().Dim(1), q.Shape().Dim(2)
	var queries []*Node
	for _, s := range stretches(t) {
		visible := s.visibility(valid, bk/valid.Shape().Dim(0), true)
		qs, dks, dvs := attendBackward(s.queries(q, t), s.keys(k, 1), s.keys(keysT, 2), s.keys(v, 1), visible,
			s.queries(o, t), s.queries(ExpandAxes(lse, 2), t), s.queries(do, t))
		queries = append(queries, Reshape(qs, bk, e, rows/t, s.hi-s.lo)) // [B*K, E, G, hi-lo]
		dk, dv = addTop(dk, dks, t), addTop(dv, dvs, t)
	}
	return Reshape(Concatenate(queries, 3), bk, e, rows), dk, dv
}

// addTop adds x [B*K, hi, E] to the first hi of the t rows of sum, which is nil at first.
func addTop(sum, x *Node, t int) *Node {
	if missing := t - x.Shape().Dim(1); missing > 0 {
		zeros := Zeros(x.Graph(), shapes.Make(x.DType(), x.Shape().Dim(0), missing, x.Shape().Dim(2)))
		x = Concatenate([]*Node{x, zeros}, 1) // [B*K, T, E]
	}
	if sum == nil {
		return x
	}
	return Add(sum, x)
}

// attendBackward is the backward pass of attend, with an additive mask that has its keys first, and lse [B*K, G*T, 1].
// dk and dv are f32.
//
// With p the softmax and δ = Σ_e do·o: dv = pᵀ·do, ds = p·(do·vᵀ - δ)/sqrt(E), dq = ds·k, dk = dsᵀ·q (the backward
// pass of arXiv:2205.14135, unblocked). Sums over the G queries of a key happen inside the products. p and ds are made
// with the keys first, pᵀ and dsᵀ above: like this no product contracts the rows of a large matrix on its left, for
// which XLA's CPU plugin takes up to six times as long.
func attendBackward(q, k, keysT, v, visible, o, lse, do *Node) (dqT, dk, dv *Node) {
	bk, rows, keys, e := q.Shape().Dim(0), q.Shape().Dim(1), k.Shape().Dim(1), q.Shape().Dim(2)
	scale, dtype, t := 1/math.Sqrt(float64(e)), q.DType(), visible.Shape().Dim(2)
	s := DotGeneral(k, []int{2}, []int{0}, q, []int{2}, []int{0}) // [B*K, T, G*T]
	s = Sub(MulScalar(widen(s), scale), Reshape(lse, bk, 1, rows))
	s = Add(Reshape(s, bk, keys, rows/t, t), ConvertDType(ExpandAxes(visible, 2), s.DType()))  // [B*K, T, G, T]
	p := Exp(Reshape(s, bk, keys, rows))                                                       // [B*K, T, G*T]
	dv = widen(DotGeneral(ConvertDType(p, dtype), []int{2}, []int{0}, do, []int{1}, []int{0})) // [B*K, T, E]

	dp := widen(DotGeneral(v, []int{2}, []int{0}, do, []int{2}, []int{0}))     // [B*K, T, G*T]
	delta := ExpandAxes(ReduceSum(Mul(widen(do), widen(o)), -1), 1)            // [B*K, 1, G*T]
	ds := ConvertDType(MulScalar(Mul(p, Sub(dp, delta)), scale), dtype)        // [B*K, T, G*T]
	dk = widen(DotGeneral(ds, []int{2}, []int{0}, q, []int{1}, []int{0}))      // [B*K, T, E]
	dqT = widen(DotGeneral(keysT, []int{2}, []int{0}, ds, []int{1}, []int{0})) // [B*K, E, G*T]
	return dqT, dk, dv
}
