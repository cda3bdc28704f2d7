package nn

import (
	. "github.com/gomlx/gomlx/pkg/core/graph"
)

// layer holds the parameter nodes of one block, in the order of Config.LayerParams.
type layer struct {
	norm1, q, k, v, o, norm2, gate, up, down *Node
	qBias, kBias, vBias                      *Node
}

// layerOf names the nodes of one block's parameters.
func layerOf(p []*Node) layer {
	l := layer{norm1: p[0], q: p[1], k: p[2], v: p[3], o: p[4], norm2: p[5], gate: p[6], up: p[7], down: p[8]}
	if len(p) > 9 {
		l.qBias, l.kBias, l.vBias = p[9], p[10], p[11]
	}
	return l
}

// numLayerParams is the number of parameter tensors of one block.
func (c *Config) numLayerParams() int {
	if c.AttentionBias {
		return 12
	}
	return 9
}

// heads holds what one block computes before attention.
type heads struct {
	q, k, v *Node // [B*K, G*T, E], [B*K, T, E], [B*K, T, E], in the compute type
}

// project computes the queries, keys and values of a block, positions applied. cos and sin are [B, T, E/2].
func project(cfg *Config, l layer, x, cos, sin *Node) heads {
	b, t := cos.Shape().Dim(0), cos.Shape().Dim(1)
	k, g, e := cfg.NumKVHeads, cfg.NumHeads/cfg.NumKVHeads, cfg.HeadDim
	normed := rmsNorm(x, l.norm1, cfg.NormEps)
	dtype := l.q.DType()
	turn := func(y *Node, heads int) *Node { // [N, heads*E]
		y = Reshape(y, b, t, heads, e)                            // [B, T, heads, E]
		y = rotate(y, ExpandAxes(cos, 2), ExpandAxes(sin, 2), -1) // [B, T, heads, E]
		return ConvertDType(y, dtype)
	}
	var h heads
	h.q = splitHeads(turn(linear(normed, l.q, l.qBias), k*g), b, t, k, g, e)
	h.k = splitHeads(turn(linear(normed, l.k, l.kBias), k), b, t, k, 1, e)
	h.v = splitHeads(ConvertDType(linear(normed, l.v, l.vBias), dtype), b, t, k, 1, e)
	return h
}

// feedForward is the second half of a block.
type feedForward struct {
	mid      *Node // [N, D], the residual stream between the halves
	gate, up *Node // [N, F], in the compute type
	y        *Node // [N, D]
}

// finish adds the attention output merged [N, H*E] to the residual stream x [N, D] and runs the feed-forward half.
func finish(cfg *Config, l layer, x, merged *Node) feedForward {
	f := feedForward{mid: Add(x, ConvertDType(product(merged, l.o), x.DType()))} // [N, D]
	normed := ConvertDType(rmsNorm(f.mid, l.norm2, cfg.NormEps), l.gate.DType())
	f.gate, f.up = product(normed, l.gate), product(normed, l.up) // [N, F]
	act := swiglu(ConvertDType(f.gate, x.DType()), ConvertDType(f.up, x.DType()))
	f.y = Add(f.mid, linear(act, l.down, nil)) // [N, D]
	return f
}

// kept is what the forward pass of a block leaves for its backward pass: all results of products, except the scores,
// so that memory grows with layers x tokens, not with layers x tokens². Everything else is cheap to make again.
type kept struct {
	q, k, keysT, v *Node // [B*K, G*T, E], [B*K, T, E], [B*K, E, T], [B*K, T, E]
	merged         *Node // [N, H*E], the attention output
	lse            *Node // [B*K, G*T]
	mid, gate, up  *Node // [N, D], [N, F], [N, F]
}

// numKept is the number of tensors in kept.
const numKept = 9

func (k kept) list() []*Node {
	return []*Node{k.q, k.k, k.keysT, k.v, k.merged, k.lse, k.mid, k.gate, k.up}
}

func keptOf(in []*Node) kept {
	return kept{q: in[0], k: in[1], keysT: in[2], v: in[3], merged: in[4], lse: in[5], mid: in[6], gate: in[7], up: in[8]}
}

// keptBytes is the size of what a block keeps of n tokens, its input included, for a compute type of width bytes.
func (c *Config) keptBytes(n, width int) int {
	heads := 2*c.NumHeads*c.HeadDim + 3*c.NumKVHeads*c.HeadDim
	return n * (width*(heads+2*c.IntermediateSize) + 4*(2*c.HiddenSize+c.NumHeads))
}

// blockForward is one transformer block on whole rows: x [N, D] f32, cos and sin [B, T, E/2], valid [B, T].
func blockForward(cfg *Config, l layer, x, cos, sin, valid *Node) (y *Node, keep kept) {
	b, t := cos.Shape().Dim(0), cos.Shape().Dim(1)
	h := project(cfg, l, x, cos, sin)
	o, lse := attention(h.q, h.k, h.v, valid)
	merged := mergeHeads(o, b, t, cfg.NumKVHeads, cfg.NumHeads/cfg.NumKVHeads, cfg.HeadDim) // [N, H*E]
	f := finish(cfg, l, x, merged)
	return f.y, kept{h.q, h.k, Transpose(h.k, 1, 2), h.v, merged, lse, f.mid, f.gate, f.up}
}

// numMatrices and numInputs count what weightGradients takes for one block: what linearBackward kept for the matrices
// q, k, v, o, gate, up and down, and the inputs that they multiply.
const (
	numMatrices = 7
	numInputs   = 4
)

// inputOf says which of the inputs each matrix multiplies.
var inputOf = [numMatrices]int{0, 0, 0, 1, 2, 2, 3}

// blockGradients is what blockBackward returns.
type blockGradients struct {
	// dx is the gradient [N, D] for the block's input.
	dx *Node
	// vectors are the gradients of both norms, then of the biases of q, k and v, if there are any.
	vectors []*Node
	// kept and inputs are what weightGradients needs.
	kept, inputs []*Node
}

// blockBackward carries the gradient dy [N, D] of a block's output back to its input x.
func blockBackward(cfg *Config, l layer, x *Node, keep kept, cos, sin, valid, dy *Node) blockGradients {
	b, t := cos.Shape().Dim(0), cos.Shape().Dim(1)
	k, g, e := cfg.NumKVHeads, cfg.NumHeads/cfg.NumKVHeads, cfg.HeadDim
	gate, up := ConvertDType(keep.gate, x.DType()), ConvertDType(keep.up, x.DType()) // [N, F]

	// Feed-forward half.
	dact, keptDown := linearBackward(l.down, dy)
	dgate, dup := swigluBackward(gate, up, dact)
	dn1, keptGate := linearBackward(l.gate, dgate)
	dn2, keptUp := linearBackward(l.up, dup)
	dmid, dnorm2 := rmsNormBackward(keep.mid, l.norm2, cfg.NormEps, Add(dn1, dn2))
	dmid = Add(dmid, dy) // [N, D]

	// Attention half.
	dmerged, keptO := linearBackward(l.o, dmid)
	split := func(x *Node) *Node { // [B*K, G*T, E]
		return splitHeads(ConvertDType(x, keep.q.DType()), b, t, k, g, e)
	}
	dqT, dk, dv := attentionBackward(keep.q, keep.k, keep.keysT, keep.v, valid, split(keep.merged),
		keep.lse, split(dmerged))
	outs := []*Node{ // positions undone
		queriesBackward(dqT, b, t, k, g, e, cos, sin),
		keysBackward(dk, b, t, k, e, cos, sin),
		mergeHeads(dv, b, t, k, 1, e),
	}
	dxq, keptQ := linearBackward(l.q, outs[0])
	dxk, keptK := linearBackward(l.k, outs[1])
	dxv, keptV := linearBackward(l.v, outs[2])
	dx, dnorm1 := rmsNormBackward(x, l.norm1, cfg.NormEps, Add(Add(dxq, dxk), dxv))

	grads := blockGradients{
		dx: Add(dx, dmid), vectors: []*Node{dnorm1, dnorm2},
		kept: []*Node{keptQ, keptK, keptV, keptO, keptGate, keptUp, keptDown},
	}
	if l.qBias != nil {
		for _, out := range outs {
			grads.vectors = append(grads.vectors, biasGradient(out))
		}
	}
	inputs := []*Node{ // [N, D], [N, H*E], [N, D], [N, F]
		rmsNorm(x, l.norm1, cfg.NormEps), keep.merged, rmsNorm(keep.mid, l.norm2, cfg.NormEps), swiglu(gate, up),
	}
	for _, in := range inputs {
		grads.inputs = append(grads.inputs, ConvertDType(in, l.q.DType()))
	}
	return grads
}

// queriesBackward turns the gradient dqT [B*K, E, G*T] of the queries back by their positions and returns [N, H*E].
func queriesBackward(dqT *Node, b, t, k, g, e int, cos, sin *Node) *Node {
	angle := func(x *Node) *Node { return ExpandAxes(Transpose(x, 1, 2), 1, 3) } // [B, 1, E/2, 1, T]
	d := Reshape(dqT, b, k, e, g, t)                                             // [B, K, E, G, T]
	d = rotateBackward(d, angle(cos), angle(sin), 2)
	return Reshape(TransposeAllDims(d, 0, 4, 1, 3, 2), b*t, k*g*e) // [N, H*E]
}

// keysBackward does the same with the gradient dk [B*K, T, E] of the keys and returns [N, K*E].
func keysBackward(dk *Node, b, t, k, e int, cos, sin *Node) *Node {
	d := Reshape(mergeHeads(dk, b, t, k, 1, e), b, t, k, e) // [B, T, K, E]
	d = rotateBackward(d, ExpandAxes(cos, 2), ExpandAxes(sin, 2), -1)
	return Reshape(d, b*t, k*e) // [N, K*E]
}

// weightGradients returns the gradients of the matrices of a block.
func weightGradients(kept, inputs []*Node) []*Node {
	grads := make([]*Node, numMatrices)
	for i, d := range kept {
		grads[i] = weightGradient(d, inputs[inputOf[i]])
	}
	return grads
}

// inOrder puts the gradients of a block into the order of Config.LayerParams: norm1, q, k, v, o, norm2, gate, up, down,
// biases.
func inOrder[T any](vectors, matrices []T) []T {
	ordered := append([]T{vectors[0]}, matrices[:4]...)
	ordered = append(append(ordered, vectors[1]), matrices[4:]...)
	return append(ordered, vectors[2:]...)
}
