package nn

import (
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// TokenLoss is a loss made of terms that belong to one token each. Given the log-probability logp [n] of each wanted
// token, inside [n], which is 0 at padding and 1 elsewhere, and the caller's own values per token, extras [n] each, it
// returns the derivative dlogp [n] of the loss, 0 at padding, and a vector of sums over tokens that the caller wants
// back, or nil.
type TokenLoss func(logp, inside *Node, extras []*Node) (dlogp, sums *Node)

// logits returns the scores of the vocabulary in f32, [n, V], for rows [n, D] of the residual stream, divided by the
// temperature (invTemp is a scalar), and as they came out of the product.
func logits(cfg *Config, norm, w, rows, invTemp *Node) (scores, raw *Node) {
	normed := ConvertDType(rmsNorm(rows, norm, cfg.NormEps), w.DType()) // [n, D]
	raw = product(normed, w)                                            // [n, V]
	return Mul(widen(raw), invTemp), raw
}

// isLabel returns [n, V] with true at each row's label.
func isLabel(labels *Node, vocab int) *Node {
	n := labels.Shape().Dim(0)
	ids := Iota(labels.Graph(), shapes.Make(dtypes.Int32, n, vocab), 1)
	return Equal(ids, BroadcastToDims(ExpandAxes(labels, -1), n, vocab))
}

// pick returns x[i, labels[i]] in f32, [n].
func pick(x, labels *Node) *Node {
	rows := Iota(x.Graph(), shapes.Make(labels.DType(), x.Shape().Dim(0), 1), 0)
	return widen(Gather(x, Concatenate([]*Node{rows, ExpandAxes(labels, -1)}, 1)))
}

// measures are what is wanted of a distribution over the vocabulary: the log-probability of the label,
// logit[y] - logsumexp, the entropy, both [n] in nats, and the logsumexp [n, 1].
type measures struct{ logp, entropy, lse *Node }

// measure takes the measures of n distributions, given their scores [n, V] and the scores [n] of their labels.
func measure(scores, picked *Node) measures {
	top := ReduceAndKeep(scores, ReduceMax, -1)                        // [n, 1]
	weights := Exp(Sub(scores, top))                                   // [n, V]
	sum := ReduceAndKeep(weights, ReduceSum, -1)                       // [n, 1]
	mean := Div(ReduceSum(Mul(weights, scores), -1), Squeeze(sum, -1)) // [n]
	lse := Add(Log(sum), top)                                          // [n, 1]
	return measures{Sub(picked, Squeeze(lse, -1)), Sub(Squeeze(lse, -1), mean), lse}
}

// headForward returns log-probabilities and entropies [n] for rows [n, D] of the residual stream.
func headForward(cfg *Config, norm, w, rows, labels, invTemp *Node) (logp, entropy *Node) {
	scores, raw := logits(cfg, norm, w, rows, invTemp)
	m := measure(scores, Mul(pick(raw, labels), invTemp))
	return m.logp, m.entropy
}

// headGradients are what headBackward returns: the gradients for rows [n, D], norm [D] and, transposed, the output
// matrix [D, V], the log-probabilities and entropies [n], and the sums of the loss.
type headGradients struct{ rows, norm, outputT, logp, entropy, sums *Node }

// headInput returns the rows [n, D] normed and transposed, [D, n], as headBackward wants them. It belongs into a graph
// of its own, for the reason told at weightGradient.
func headInput(cfg *Config, norm, w, rows *Node) *Node {
	return Transpose(ConvertDType(rmsNorm(rows, norm, cfg.NormEps), w.DType()), 0, 1) // [D, n]
}

// headBackward computes the log-probabilities again, asks loss for their derivatives, and carries those back.
//
// d logp / d logits = (onehot - softmax)/temperature.
func headBackward(cfg *Config, norm, w, rows, normedT, labels, invTemp, inside *Node, extras []*Node,
	loss TokenLoss) headGradients {
	scores, raw := logits(cfg, norm, w, rows, invTemp)
	m := measure(scores, Mul(pick(raw, labels), invTemp))
	dlogp, sums := loss(m.logp, inside, extras)
	p := Exp(Sub(scores, m.lse)) // [n, V]

	dscores := Sub(Where(isLabel(labels, scores.Shape().Dim(1)), OnesLike(p), ZerosLike(p)), p)
	dscores = Mul(dscores, Mul(ExpandAxes(dlogp, -1), invTemp))
	dscores = ConvertDType(dscores, w.DType()) // [n, V]

	dnormed := DotGeneral(dscores, []int{1}, nil, w, []int{0}, nil)   // [n, D]
	dwT := DotGeneral(normedT, []int{1}, nil, dscores, []int{0}, nil) // [D, V]
	drows, dnorm := rmsNormBackward(rows, norm, cfg.NormEps, widen(dnormed))
	return headGradients{drows, dnorm, widen(dwT), m.logp, m.entropy, sums}
}
