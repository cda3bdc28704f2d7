package grpo

import "fmt"

// Aggregation says how the losses of single tokens become the loss of a batch.
type Aggregation string

// The aggregations. N is the number of sequences with at least one policy token, n_i the number of policy tokens of
// sequence i, L a constant length.
const (
	// TokenMean: the sum over all policy tokens of the batch, divided by their number; each token counts the same
	// (DAPO, arXiv:2503.14476).
	TokenMean Aggregation = "token_mean"
	// SeqMean: the mean over sequences of the mean over each one's policy tokens; each sequence counts the same, so a
	// token of a long sequence counts less (GRPO, arXiv:2402.03300).
	SeqMean Aggregation = "seq_mean"
	// DrGRPO: the sum over all policy tokens, divided by N·L; no length of the batch enters
	// (Dr. GRPO, arXiv:2503.20783).
	DrGRPO Aggregation = "dr_grpo"
)

// Validate returns an error that lists the aggregations if a is none of them.
func (a Aggregation) Validate() error {
	switch a {
	case TokenMean, SeqMean, DrGRPO:
		return nil
	}
	return fmt.Errorf("grpo: unknown loss aggregation %q; choose %s, %s or %s", a, TokenMean, SeqMean, DrGRPO)
}

// TokenWeights returns, for each sequence of the whole batch, the weight w_i of each of its policy tokens, so that the
// loss of the batch is the sum over policy tokens of w_i times the token's loss:
//
//	TokenMean  w_i = 1 / sum(lengths)
//	SeqMean    w_i = 1 / (N·lengths[i])
//	DrGRPO     w_i = 1 / (N·constant)
//
// lengths[i] is the number of policy tokens of sequence i that are in the loss. A sequence of length 0 gets weight 0
// and is not counted in N: set the length of an episode that is left out of the loss to 0. If all lengths are 0, all
// weights are 0.
//
// Compute the weights once, over all sequences of an optimiser step, before the step is cut into micro-batches; then
// the gradient does not depend on the cut. A negative length, an unknown aggregation and, for DrGRPO, a constant that
// is not positive are errors; the other aggregations ignore the constant.
func TokenWeights(lengths []int, agg Aggregation, constant int) ([]float64, error) {
	if err := agg.Validate(); err != nil {
		return nil, err
	}
	if agg == DrGRPO && constant <= 0 {
		return nil, fmt.Errorf("grpo: loss aggregation %s needs a positive constant length, got %d", agg, constant)
	}
	var sequences, tokens int
	for i, length := range lengths {
		if length < 0 {
			return nil, fmt.Errorf("grpo: sequence %d has a negative number of policy tokens (%d)", i, length)
		}
		if length > 0 {
			sequences++
			tokens += length
		}
	}
	weights := make([]float64, len(lengths))
	for i, length := range lengths {
		if length == 0 {
			continue
		}
		switch agg {
		case TokenMean:
			weights[i] = 1 / float64(tokens)
		case SeqMean:
			weights[i] = 1 / (float64(sequences) * float64(length))
		case DrGRPO:
			weights[i] = 1 / (float64(sequences) * float64(constant))
		}
	}
	return weights, nil
}
