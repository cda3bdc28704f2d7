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

// logits returns the scores of the vocabulary in f32, [n, V], for rows [n, D] of the residual stream. They are divided
// by the temperature: invTemp is a scalar.
func logits(cfg *Config, norm, w, rows, invTemp *Node) *Node {
	normed := ConvertDType(rmsNorm(rows, norm, cfg.NormEps), w.DType()) // [n, D]
	return Mul(widen(product(normed, w)), invTemp)                      // [n, V]
}

// logSumExp returns log Σ_v exp(scores) as [n, 1].
func logSumExp(scores *Node) *Node {
	top := ReduceAndKeep(scores, ReduceMax, -1)
	return Add(Log(ReduceAndKeep(Exp(Sub(scores, top)), ReduceSum, -1)), top)
}

// isLabel returns [n, V] with true at each row's label.
func isLabel(labels *Node, vocab int) *Node {
	n := labels.Shape().Dim(0)
	ids := Iota(labels.Graph(), shapes.Make(dtypes.Int32, n, vocab), 1)
	return Equal(ids, BroadcastToDims(ExpandAxes(labels, -1), n, vocab))
}

// pick returns scores[i, labels[i]] as [n].
func pick(scores, labels *Node) *Node {
	return ReduceSum(Where(isLabel(labels, scores.Shape().Dim(1)), scores, ZerosLike(scores)), -1)
}

// logProbsOf returns the log-probability of each label, logit[y] - logsumexp, and the entropy of each distribution, both
// [n] in nats, and the softmax p [n, V].
func logProbsOf(scores, labels *Node) (logp, entropy, p *Node) {
	lse := logSumExp(scores)              // [n, 1]
	p = Exp(Sub(scores, lse))             // [n, V]
	mean := ReduceSum(Mul(p, scores), -1) // [n]
	logp = Sub(pick(scores, labels), Squeeze(lse, -1))
	return logp, Sub(Squeeze(lse, -1), mean), p
}

// headForward returns log-probabilities and entropies [n] for rows [n, D] of the residual stream.
func headForward(cfg *Config, norm, w, rows, labels, invTemp *Node) (logp, entropy *Node) {
	scores := logits(cfg, norm, w, rows, invTemp)
	logp, entropy, _ = logProbsOf(scores, labels)
	return logp, entropy
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
	scores := logits(cfg, norm, w, rows, invTemp)
	logp, entropy, p := logProbsOf(scores, labels)
	dlogp, sums := loss(logp, inside, extras)

	dscores := Sub(Where(isLabel(labels, scores.Shape().Dim(1)), OnesLike(p), ZerosLike(p)), p)
	dscores = Mul(dscores, Mul(ExpandAxes(dlogp, -1), invTemp))
	dscores = ConvertDType(dscores, w.DType()) // [n, V]

	dnormed := DotGeneral(dscores, []int{1}, nil, w, []int{0}, nil)   // [n, D]
	dwT := DotGeneral(normedT, []int{1}, nil, dscores, []int{0}, nil) // [D, V]
	drows, dnorm := rmsNormBackward(rows, norm, cfg.NormEps, widen(dnormed))
	return headGradients{drows, dnorm, widen(dwT), logp, entropy, sums}
}
