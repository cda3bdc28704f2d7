package grpo

import "fmt"

// Ratio says what is compared with the policy that sampled.
type Ratio string

// The ratios.
const (
	// TokenRatio compares the probabilities of each token (PPO, GRPO).
	TokenRatio Ratio = "token"
	// SequenceRatio compares those of whole sequences, the geometric mean over their tokens (GSPO).
	SequenceRatio Ratio = "sequence"
)

// Validate returns an error that lists the ratios if r is none of them.
func (r Ratio) Validate() error {
	switch r {
	case TokenRatio, SequenceRatio:
		return nil
	}
	return fmt.Errorf("grpo: unknown ratio %q; choose %s or %s", r, TokenRatio, SequenceRatio)
}

// SequenceOld returns what has to stand for old in TokenLoss so that its ratio at each token of one sequence is GSPO's
// (arXiv:2507.18071), the mean ratio of the whole sequence
//
//	s = exp( Σ_t (logp_t - old_t) / n )
//
// logp are the log-probabilities under the policy as it is now, old those it sampled with, both of the n policy tokens
// alone. The result is logp_t - log s: the loss of each token is then -min(s·A, clip(s)·A), and its derivative
// -s·A, or 0 where s is clipped. That is the gradient of s, since d s/d logp_t = s/n and the n tokens of the sequence
// have the same loss; where advantages differ within a sequence it is the paper's GSPO-token.
//
// Slices of different lengths are an error.
func SequenceOld(logp, old []float32) ([]float32, error) {
	if len(logp) != len(old) {
		return nil, fmt.Errorf("grpo: a sequence of %d log-probabilities was sampled with %d", len(logp), len(old))
	}
	sum := 0.0
	for t := range logp {
		sum += float64(logp[t]) - float64(old[t])
	}
	behaviour := make([]float32, len(logp))
	for t := range logp {
		behaviour[t] = float32(float64(logp[t]) - sum/float64(len(logp)))
	}
	return behaviour, nil
}
