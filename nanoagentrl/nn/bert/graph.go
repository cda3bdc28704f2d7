package bert

import (
	"math"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// blocked is the score of padding: small enough to vanish in the softmax, and finite.
const blocked = -1e30

// linear is x·w + b, with w stored [in, out]: of the layouts, the one that XLA's CPU plugin multiplies fastest.
func linear(x, w, b *Node) *Node {
	y := DotGeneral(x, []int{1}, nil, w, []int{0}, nil) // [N, out]
	return Add(y, ExpandLeftToRank(b, 2))               // [N, out]
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

// embed returns [N, D] for ids [B, T]. places is the sum of the position embeddings and that of the first token type,
// [MaxPositions, D].
func embed(cfg *Config, p []*Node, ids *Node) *Node {
	words, places, w, bias := p[0], p[1], p[2], p[3]
	b, t, d := ids.Shape().Dim(0), ids.Shape().Dim(1), cfg.HiddenSize
	x := Gather(words, ExpandAxes(ids, -1))                          // [B, T, D]
	x = Add(x, ExpandAxes(SliceAxis(places, 0, AxisRange(0, t)), 0)) // [B, T, D]
	return layerNorm(Reshape(x, b*t, d), w, bias, cfg.NormEps)       // [N, D]
}

// visibility returns what is added to the scores of keys, 0 for tokens and blocked for padding, [B, 1, 1, T], from the
// lengths [B] of the rows.
func visibility(lengths *Node, t int) *Node {
	g, b := lengths.Graph(), lengths.Shape().Dim(0)
	places := Iota(g, shapes.Make(dtypes.Int32, b, t), 1)
	isToken := LessThan(places, BroadcastToDims(ExpandAxes(lengths, -1), b, t)) // [B, T]
	zeros := Zeros(g, shapes.Make(dtypes.Float32, b, t))
	return Reshape(Where(isToken, zeros, AddScalar(zeros, blocked)), b, 1, 1, t) // [B, 1, 1, T]
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

// block is one transformer block on x [N, D], for rows of the given lengths [B].
func block(cfg *Config, p []*Node, x, lengths *Node) *Node {
	b := lengths.Shape().Dim(0)
	t := x.Shape().Dim(0) / b
	visible := visibility(lengths, t)
	x = Add(x, linear(attention(cfg, x, p[0], p[1], visible, b, t), p[2], p[3]))
	x = layerNorm(x, p[4], p[5], cfg.NormEps)
	f := gelu(linear(x, p[6], p[7])) // [N, F]
	x = Add(x, linear(f, p[8], p[9]))
	return layerNorm(x, p[10], p[11], cfg.NormEps)
}

// pool returns the mean of the token vectors of each row of x [N, D], scaled to length 1, as [B, D].
func pool(x, lengths *Node) *Node {
	g, b, d := x.Graph(), lengths.Shape().Dim(0), x.Shape().Dim(1)
	t := x.Shape().Dim(0) / b
	places := Iota(g, shapes.Make(dtypes.Int32, b, 1, t), 2)
	isToken := LessThan(places, BroadcastToDims(Reshape(lengths, b, 1, 1), b, 1, t)) // [B, 1, T]
	mask := ConvertDType(isToken, dtypes.Float32)
	sum := DotGeneral(mask, []int{2}, []int{0}, Reshape(x, b, t, d), []int{1}, []int{0}) // [B, 1, D]
	sum = Reshape(sum, b, d)                                                             // [B, D]
	// The mean has the direction of the sum.
	length := Sqrt(ReduceAndKeep(Mul(sum, sum), ReduceSum, -1)) // [B, 1]
	return Div(sum, MaxScalar(length, 1e-12))
}
