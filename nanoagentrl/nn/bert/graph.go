package bert

import (
	"math"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// blocked is the score of a token of another text: small enough to vanish in the softmax, and finite.
const blocked = -1e30

// linear is x·w + b, with w stored [in, out]: of the layouts, the one that XLA's CPU plugin multiplies fastest. The product
// is taken in the type of w, the result has the type of x.
func linear(x, w, b *Node) *Node {
	y := DotGeneral(ConvertDType(x, w.DType()), []int{1}, nil, w, []int{0}, nil) // [N, out]
	return Add(ConvertDType(y, x.DType()), ExpandLeftToRank(b, 2))               // [N, out]
}

// layerNorm is (x - mean) / sqrt(variance + eps) · w + b over the last axis (arXiv:1607.06450).
func layerNorm(x, w, b *Node, eps float64) *Node {
	size := float64(x.Shape().Dim(-1))
	mean := DivScalar(ReduceAndKeep(x, ReduceSum, -1), size) // [N, 1]
	centred := Sub(x, mean)
	variance := DivScalar(ReduceAndKeep(Mul(centred, centred), ReduceSum, -1), size) // [N, 1]
	scaled := Mul(centred, Reciprocal(Sqrt(AddScalar(variance, eps))))
	return Add(Mul(scaled, ExpandLeftToRank(w, 2)), ExpandLeftToRank(b, 2))
}

// gelu is x·Φ(x), with the normal distribution function Φ (arXiv:1606.08415).
func gelu(x *Node) *Node {
	return Mul(MulScalar(x, 0.5), AddScalar(Erf(MulScalar(x, math.Sqrt2/2)), 1))
}

// numEmbeddingParams and numLayerParams are the numbers of tensors that embed takes, and block for one layer.
const (
	numEmbeddingParams = 4
	numLayerParams     = 12
)

// embed returns [N, D] for ids and places [N]. positions is the sum of the position embeddings and that of the first
// token type, [MaxPositions, D].
func embed(cfg *Config, p []*Node, ids, places *Node) *Node {
	words, positions, w, bias := p[0], p[1], p[2], p[3]
	x := Add(Gather(words, ExpandAxes(ids, -1)), Gather(positions, ExpandAxes(places, -1))) // [N, D]
	return layerNorm(x, w, bias, cfg.NormEps)
}

// visibility returns what is added to the scores, 0 where query and key belong to the same text and blocked elsewhere,
// [B, 1, T, T], from the texts [B, T] of the tokens.
func visibility(texts *Node) *Node {
	b, t := texts.Shape().Dim(0), texts.Shape().Dim(1)
	queries := BroadcastToDims(ExpandAxes(texts, 2), b, t, t)
	keys := BroadcastToDims(ExpandAxes(texts, 1), b, t, t)
	zeros := Zeros(texts.Graph(), shapes.Make(dtypes.Float32, b, t, t))
	return ExpandAxes(Where(Equal(queries, keys), zeros, AddScalar(zeros, blocked)), 1) // [B, 1, T, T]
}

// attention returns the attention output [N, D] for x [N, D]. qkv is [D, 3D], with the scale of the scores in its
// queries.
func attention(cfg *Config, x, qkv, bias, visible *Node, b, t int) *Node {
	h, e := cfg.NumHeads, cfg.HiddenSize/cfg.NumHeads
	y := Reshape(linear(x, qkv, bias), b, t, 3, h, e) // [B, T, 3, H, E]
	y = TransposeAllDims(y, 2, 0, 3, 1, 4)            // [3, B, H, T, E]
	part := func(i int) *Node {                       // [B, H, T, E]
		return Squeeze(SliceAxis(y, 0, AxisElem(i)), 0)
	}
	q, k, v := part(0), part(1), part(2)
	s := DotGeneral(q, []int{3}, []int{0, 1}, k, []int{3}, []int{0, 1}) // [B, H, T, T]
	s = Add(s, visible)
	weights := Exp(Sub(s, ReduceAndKeep(s, ReduceMax, -1)))
	sum := ReduceAndKeep(weights, ReduceSum, -1)                              // [B, H, T, 1]
	o := DotGeneral(weights, []int{3}, []int{0, 1}, v, []int{2}, []int{0, 1}) // [B, H, T, E]
	o = Div(o, sum)
	return Reshape(TransposeAllDims(o, 0, 2, 1, 3), b*t, h*e) // [N, D]
}

// block is one transformer block on x [N, D], for tokens of the given texts [B, T].
func block(cfg *Config, p []*Node, x, texts *Node) *Node {
	b, t := texts.Shape().Dim(0), texts.Shape().Dim(1)
	x = Add(x, linear(attention(cfg, x, p[0], p[1], visibility(texts), b, t), p[2], p[3]))
	x = layerNorm(x, p[4], p[5], cfg.NormEps)
	f := gelu(linear(x, p[6], p[7])) // [N, F]
	x = Add(x, linear(f, p[8], p[9]))
	return layerNorm(x, p[10], p[11], cfg.NormEps)
}

// pool returns the mean of the token vectors of each text of slots [S], scaled to length 1, as [S, D], for x [N, D] and
// the texts [N] of the tokens.
func pool(x, texts, slots *Node) *Node {
	n, s := texts.Shape().Dim(0), slots.Shape().Dim(0)
	belongs := Equal(BroadcastToDims(ExpandAxes(slots, 1), s, n), BroadcastToDims(ExpandAxes(texts, 0), s, n))
	sum := DotGeneral(ConvertDType(belongs, x.DType()), []int{1}, nil, x, []int{0}, nil) // [S, D]
	// The mean has the direction of the sum.
	length := Sqrt(ReduceAndKeep(Mul(sum, sum), ReduceSum, -1)) // [S, 1]
	return Div(sum, MaxScalar(length, 1e-12))
}
