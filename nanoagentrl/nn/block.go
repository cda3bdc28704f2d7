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

// blockBackward recomputes a block from its input x and returns the gradient for x and those for the parameters, in
// the order of Config.LayerParams, given the gradient dy [N, D] of its output.
func blockBackward(cfg *Config, l layer, x, cos, sin, valid, dy *Node) (dx *Node, grads []*Node) {
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
	dact, ddown, _ := linearBackward(act, l.down, dy, false)
	dgateOut, dupOut := swigluBackward(gate, up, dact)
	dn1, dgate, _ := linearBackward(normed2, l.gate, dgateOut, false)
	dn2, dup, _ := linearBackward(normed2, l.up, dupOut, false)
	dmid, dnorm2 := rmsNormBackward(mid, l.norm2, cfg.NormEps, Add(dn1, dn2))
	dmid = Add(dmid, dy) // [N, D]

	// Attention half.
	dmerged, do, _ := linearBackward(ConvertDType(merged, dmid.DType()), l.o, dmid, false)
	dheads := splitHeads(ConvertDType(dmerged, o.DType()), b, t, k, g, e) // [B*K, G*T, E]
	dq, dk, dv := attentionBackward(h.q, h.k, h.v, visible, o, dheads)
	back := func(d *Node, group int) *Node { // to [N, heads*E] f32, positions undone
		d = Reshape(mergeHeads(widen(d), b, t, k, group, e), b, t, k*group, e)
		d = rotateBackward(d, ExpandAxes(cos, 2), ExpandAxes(sin, 2)) // [B, T, heads, E]
		return Reshape(d, b*t, k*group*e)
	}
	bias := l.qBias != nil
	dxq, dwq, dbq := linearBackward(h.normed, l.q, back(dq, g), bias)
	dxk, dwk, dbk := linearBackward(h.normed, l.k, back(dk, 1), bias)
	dvOut := mergeHeads(widen(dv), b, t, k, 1, e) // [N, K*E]
	dxv, dwv, dbv := linearBackward(h.normed, l.v, dvOut, bias)
	dx, dnorm1 := rmsNormBackward(x, l.norm1, cfg.NormEps, Add(Add(dxq, dxk), dxv))

	grads = []*Node{dnorm1, dwq, dwk, dwv, do, dnorm2, dgate, dup, ddown}
	if bias {
		grads = append(grads, dbq, dbk, dbv)
	}
	return Add(dx, dmid), grads
}
