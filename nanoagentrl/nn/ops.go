// Package nn is the transformer: its operations with gradients written out by hand, the parameters, the forward and
// backward passes that go block by block, log-probabilities, and decoding with cached keys and values.
//
// Gradients are hand-written because gomlx's own gradient of a matrix product is a broadcast, a multiplication and a
// sum, which for a vocabulary of 49,152 asks for hundreds of gigabytes. Here the gradient of a product is two products.
// Each function name_ and name_Backward below stand next to each other, and the tests compare every gradient with
// finite differences.
//
// Axis letters in shape comments: B rows, T tokens of a row, N = B*T tokens, D hidden size, H query heads, K key/value
// heads, G = H/K queries per key/value head, E head dimension, F feed-forward size, V vocabulary, L cached tokens.
package nn

import (
	"math"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
)

// product contracts the last axis of x with the last axis of w: x·wᵀ, the layout that is fast everywhere.
func product(x, w *Node) *Node { return DotGeneral(x, []int{-1}, nil, w, []int{-1}, nil) }

// widen converts bf16 to f32, in which sums and softmaxes are taken.
func widen(x *Node) *Node {
	if x.DType() == dtypes.BFloat16 {
		return ConvertDType(x, dtypes.Float32)
	}
	return x
}

// linear is x·wᵀ + b, with w stored [out, in] as in checkpoint files; b may be nil. The product is taken in the type
// of w, the result has the type of x.
func linear(x, w, b *Node) *Node {
	y := ConvertDType(product(ConvertDType(x, w.DType()), w), x.DType()) // [N, out]
	if b != nil {
		y = Add(y, ExpandLeftToRank(b, 2)) // [N, out]
	}
	return y
}

// linearBackward returns the gradient dx [N, in] of linear for x, given w [out, in] and dy [N, out], and dy as
// weightGradient wants it.
func linearBackward(w, dy *Node) (dx, kept *Node) {
	narrow := ConvertDType(dy, w.DType())
	dx = ConvertDType(DotGeneral(narrow, []int{1}, nil, w, []int{0}, nil), dy.DType()) // [N, in]
	if w.DType() == dtypes.BFloat16 {
		return dx, Transpose(narrow, 0, 1) // [out, N]
	}
	return dx, narrow // [N, out]
}

// weightGradient returns the gradient [out, in] of linear for w from what linearBackward kept and the input x [N, in].
//
// It belongs into a graph of its own. XLA's CPU plugin multiplies bf16 matrices five times more slowly when the left
// one is contracted over its rows, and it undoes any transposition that stands before a product in the same graph.
func weightGradient(kept, x *Node) *Node {
	axis := 0
	if kept.DType() == dtypes.BFloat16 {
		axis = 1
	}
	return widen(DotGeneral(kept, []int{axis}, nil, x, []int{0}, nil)) // [out, in]
}

// biasGradient returns the gradient [out] of linear for b.
func biasGradient(dy *Node) *Node { return ReduceSum(dy, 0) }

// rmsNorm is x / sqrt(mean(x²) + eps) * w over the last axis (arXiv:1910.07467).
func rmsNorm(x, w *Node, eps float64) *Node {
	return Mul(Div(x, rms(x, eps)), ExpandLeftToRank(w, x.Rank()))
}

// rms is the root mean square of the last axis, which is kept with size 1.
func rms(x *Node, eps float64) *Node {
	meanSquare := DivScalar(ReduceAndKeep(Mul(x, x), ReduceSum, -1), float64(x.Shape().Dim(-1)))
	return Sqrt(AddScalar(meanSquare, eps))
}

// rmsNormBackward returns the gradients of rmsNorm for x [N, D] and w [D].
//
// With n = x/rms and g = dy*w: dx = (g - n·mean(g·n)) / rms, dw = Σ dy·n.
func rmsNormBackward(x, w *Node, eps float64, dy *Node) (dx, dw *Node) {
	r := rms(x, eps) // [N, 1]
	n := Div(x, r)   // [N, D]
	g := Mul(dy, ExpandLeftToRank(w, x.Rank()))
	mean := DivScalar(ReduceAndKeep(Mul(g, n), ReduceSum, -1), float64(x.Shape().Dim(-1))) // [N, 1]
	dx = Div(Sub(g, Mul(n, mean)), r)
	dw = ReduceSum(Mul(dy, n), 0) // [D]
	return dx, dw
}

// swiglu is silu(gate) * up (arXiv:2002.05202).
func swiglu(gate, up *Node) *Node { return Mul(Mul(gate, Logistic(gate)), up) }

// swigluBackward returns the gradients of swiglu for gate and up.
//
// silu'(g) = s + g·s·(1-s) with s = logistic(g).
func swigluBackward(gate, up, dy *Node) (dgate, dup *Node) {
	s := Logistic(gate)
	silu := Mul(gate, s)
	dgate = Mul(Mul(dy, up), Add(s, Mul(silu, OneMinus(s))))
	return dgate, Mul(dy, silu)
}

// rotate turns each pair (x[e], x[e+E/2]) of an axis of size E by the angle whose cosine and sine are given (arXiv:
// 2104.09864, in the half-split form of Llama and Qwen2). cos and sin broadcast to half of x.
func rotate(x, cos, sin *Node, axis int) *Node {
	half := x.Shape().Dim(axis) / 2
	a := SliceAxis(x, axis, AxisRange(0, half))   // E/2
	b := SliceAxis(x, axis, AxisRangeToEnd(half)) // E/2
	cos, sin = BroadcastToShape(cos, a.Shape()), BroadcastToShape(sin, a.Shape())
	return Concatenate([]*Node{Sub(Mul(a, cos), Mul(b, sin)), Add(Mul(b, cos), Mul(a, sin))}, axis) // E
}

// rotateBackward is the gradient of rotate for x: the turn back.
func rotateBackward(dy, cos, sin *Node, axis int) *Node { return rotate(dy, cos, Neg(sin), axis) }

// Rotary returns the cosines and sines, [len(positions), E/2] each, of the rotary angles at the given positions.
func Rotary(cfg *Config, positions []int32) (cos, sin []float32) {
	half := cfg.HeadDim / 2
	freqs := rotaryFrequencies(cfg)
	cos, sin = make([]float32, len(positions)*half), make([]float32, len(positions)*half)
	for i, p := range positions {
		for j, f := range freqs {
			s, c := math.Sincos(float64(p) * f)
			cos[i*half+j], sin[i*half+j] = float32(c), float32(s)
		}
	}
	return cos, sin
}

// rotaryFrequencies returns theta^(-2j/E) for each pair j, with Llama 3's scaling if the config has it: long waves
// are stretched by Factor, short ones kept, those between blended.
func rotaryFrequencies(cfg *Config) []float64 {
	freqs := make([]float64, cfg.HeadDim/2)
	for j := range freqs {
		f := math.Pow(cfg.RopeTheta, -2*float64(j)/float64(cfg.HeadDim))
		if s := cfg.RopeScaling; s != nil {
			turns := float64(s.OriginalMaxPositions) * f / (2 * math.Pi)
			blend := (turns - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
			blend = min(max(blend, 0), 1)
			f = (1-blend)*f/s.Factor + blend*f
		}
		freqs[j] = f
	}
	return freqs
}
