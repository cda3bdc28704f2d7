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
	normed  *Node // [N, D]
	q, k, v *Node // [B*K, G*T, E], [B*K, T, E], [B*K, T, E], in the compute type
}

// project computes the queries, keys and values of a block, positions applied. cos and sin are [B, T, E/2].
func project(cfg *Config, l layer, x, cos, sin *Node) heads {
	b, t := cos.Shape().Dim(0), cos.Shape().Dim(1)
	k, g, e := cfg.NumKVHeads, cfg.NumHeads/cfg.NumKVHeads, cfg.HeadDim
	h := heads{normed: rmsNorm(x, l.norm1, cfg.NormEps)}
	dtype := l.q.DType()
	turn := func(y *Node, heads int) *Node { // [N, heads*E]
		y = Reshape(y, b, t, heads, e)                        // [B, T, heads, E]
		y = rotate(y, ExpandAxes(cos, 2), ExpandAxes(sin, 2)) // [B, T, heads, E]
		return ConvertDType(y, dtype)
	}
	h.q = splitHeads(turn(linear(h.normed, l.q, l.qBias), k*g), b, t, k, g, e)
	h.k = splitHeads(turn(linear(h.normed, l.k, l.kBias), k), b, t, k, 1, e)
	h.v = splitHeads(ConvertDType(linear(h.normed, l.v, l.vBias), dtype), b, t, k, 1, e)
	return h
}

// finish adds the attention output o [B*K, G*T, E] to the residual stream x [N, D] and runs the feed-forward half.
func finish(cfg *Config, l layer, x, o *Node, b, t int) *Node {
	merged := mergeHeads(o, b, t, cfg.NumKVHeads, cfg.NumHeads/cfg.NumKVHeads, cfg.HeadDim) // [N, H*E]
	mid := Add(x, ConvertDType(product(merged, l.o), x.DType()))                            // [N, D]
	normed := rmsNorm(mid, l.norm2, cfg.NormEps)
	act := swiglu(linear(normed, l.gate, nil), linear(normed, l.up, nil)) // [N, F]
	return Add(mid, linear(act, l.down, nil))                             // [N, D]
}

// blockForward is one transformer block on whole rows: x [N, D] f32, cos and sin [B, T, E/2], valid [B, T].
func blockForward(cfg *Config, l layer, x, cos, sin, valid *Node) *Node {
	h := project(cfg, l, x, cos, sin)
	o := attention(h.q, h.k, h.v, visibility(valid, cfg.NumKVHeads))
	return finish(cfg, l, x, o, cos.Shape().Dim(0), cos.Shape().Dim(1))
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

// blockBackward recomputes a block from its input x and carries the gradient dy [N, D] of its output back.
func blockBackward(cfg *Config, l layer, x, cos, sin, valid, dy *Node) blockGradients {
	b, t := cos.Shape().Dim(0), cos.Shape().Dim(1)
	k, g, e := cfg.NumKVHeads, cfg.NumHeads/cfg.NumKVHeads, cfg.HeadDim
	visible := visibility(valid, k)

	// Forward again.
	h := project(cfg, l, x, cos, sin)
	o := attention(h.q, h.k, h.v, visible)
	merged := mergeHeads(o, b, t, k, g, e)                       // [N, H*E]
	mid := Add(x, ConvertDType(product(merged, l.o), x.DType())) // [N, D]
	normed2 := rmsNorm(mid, l.norm2, cfg.NormEps)
	gate, up := linear(normed2, l.gate, nil), linear(normed2, l.up, nil) // [N, F]
	act := swiglu(gate, up)

	// Feed-forward half.
	dact, keptDown := linearBackward(l.down, dy)
	dgate, dup := swigluBackward(gate, up, dact)
	dn1, keptGate := linearBackward(l.gate, dgate)
	dn2, keptUp := linearBackward(l.up, dup)
	dmid, dnorm2 := rmsNormBackward(mid, l.norm2, cfg.NormEps, Add(dn1, dn2))
	dmid = Add(dmid, dy) // [N, D]

	// Attention half.
	dmerged, keptO := linearBackward(l.o, dmid)
	dheads := splitHeads(ConvertDType(dmerged, o.DType()), b, t, k, g, e) // [B*K, G*T, E]
	dq, dk, dv := attentionBackward(h.q, h.k, h.v, visible, o, dheads)
	back := func(d *Node, group int) *Node { // to [N, heads*E], positions undone
		d = Reshape(mergeHeads(widen(d), b, t, k, group, e), b, t, k*group, e)
		d = rotateBackward(d, ExpandAxes(cos, 2), ExpandAxes(sin, 2)) // [B, T, heads, E]
		return Reshape(d, b*t, k*group*e)
	}
	outs := []*Node{back(dq, g), back(dk, 1), mergeHeads(widen(dv), b, t, k, 1, e)}
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
	for _, in := range []*Node{h.normed, merged, normed2, act} {
		grads.inputs = append(grads.inputs, ConvertDType(in, l.q.DType()))
	}
	return grads
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
