package grpo

// GeneralisedAdvantages returns the advantages of arXiv:1506.02438 and the returns that the critic should have
// predicted. For each policy token t, with next(t) the next one and V = 0 after the last,
//
//	δ_t = r_t + gamma·V_next(t) - V_t
//	A_t = δ_t + gamma·lambda·A_next(t)
//	R_t = A_t + V_t
//
// V_t is what the critic predicts before token t is chosen. Time passes only at policy tokens: what the environment
// wrote in between is part of the next state, is neither discounted nor summed over, and gets 0 and 0. With gamma and
// lambda 1, A_t is the sum of the rewards from t on less V_t. The slices must have the same length.
func GeneralisedAdvantages(rewards, values []float64, mask []bool, gamma, lambda float64) (advantages, returns []float64) {
	advantages, returns = make([]float64, len(mask)), make([]float64, len(mask))
	nextValue, nextAdvantage := 0.0, 0.0
	for t := len(mask) - 1; t >= 0; t-- {
		if !mask[t] {
			continue
		}
		delta := rewards[t] + gamma*nextValue - values[t]
		advantages[t] = delta + gamma*lambda*nextAdvantage
		returns[t] = advantages[t] + values[t]
		nextValue, nextAdvantage = values[t], advantages[t]
	}
	return advantages, returns
}

// generalised is GAE over a batch. With DivideByStd the advantages of all policy tokens of the batch are normalised to
// mean 0 and standard deviation 1, as PPO implementations do; without, they stay as they are. The returns of rows that
// cannot be used are 0, and NoSignal marks them: the critic must not learn from them either.
func generalised(batch []Trajectory, opts AdvantageOptions) *Estimates {
	tokens, returns := make([][]float64, len(batch)), make([][]float64, len(batch))
	for i := range batch {
		t := &batch[i]
		tokens[i], returns[i] = GeneralisedAdvantages(t.tokenRewards(), t.Values, t.Mask, opts.Gamma, opts.Lambda)
	}
	usable, stats := usableRows(batch, tokens)
	signal := true
	if opts.DivideByStd {
		signal = normalise(tokens, batch, usable, opts)
	}
	silence(tokens, usable, stats)
	for i := range batch {
		if !usable[i] {
			clear(returns[i])
		} else if !signal {
			clear(tokens[i])
		}
	}
	return &Estimates{Advantages: tokens, Returns: returns, Stats: stats}
}
