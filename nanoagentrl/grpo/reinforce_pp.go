package grpo

// Returns are the discounted sums of the rewards from each policy token on (arXiv:2501.03262):
//
//	G_t = r_t + gamma·G_next(t)
//
// where next(t) is the next token at which mask is true. Tokens between two turns, which the policy did not choose, are
// no steps: they are neither discounted over nor do they end the sum, their rewards are not read, and their return is 0.
// rewards and mask must have the same length.
func Returns(rewards []float64, mask []bool, gamma float64) []float64 {
	returns := make([]float64, len(rewards))
	next := 0.0
	for t := len(rewards) - 1; t >= 0; t-- {
		if mask[t] {
			next = rewards[t] + gamma*next
			returns[t] = next
		}
	}
	return returns
}

// reinforcePP normalises the returns of all policy tokens of the batch: REINFORCE++ has no critic and no groups, and
// the mean of the batch is its baseline.
func reinforcePP(batch []Trajectory, opts AdvantageOptions) *Estimates {
	tokens := make([][]float64, len(batch))
	for i := range batch {
		tokens[i] = Returns(batch[i].tokenRewards(), batch[i].Mask, opts.Gamma)
	}
	usable, stats := usableRows(batch, tokens)
	if !normalise(tokens, batch, usable, opts) {
		clear(usable)
	}
	silence(tokens, usable, stats)
	return &Estimates{Advantages: tokens, Stats: stats}
}

// reinforcePPBaseline takes the mean of the group off the reward of each episode, then normalises over all policy tokens
// of the batch. Groups whose rewards are all equal count in the batch's mean and standard deviation, as zeros, but keep
// advantage 0: the batch's mean, which is not 0 when right and wrong answers differ in length, says nothing about them.
func reinforcePPBaseline(batch []Trajectory, totals []float64, groups []int, excluded []bool, opts AdvantageOptions) (
	*Estimates, error) {
	episodes, stats, err := Advantages(totals, groups, excluded, AdvantageOptions{})
	if err != nil {
		return nil, err
	}
	tokens, usable := spread(batch, episodes), make([]bool, len(batch))
	for i, total := range totals {
		usable[i] = !excluded[i] && isFinite(total)
	}
	signal := normalise(tokens, batch, usable, opts)
	for i := range usable {
		usable[i] = signal && !stats.NoSignal[i]
	}
	silence(tokens, usable, stats)
	return &Estimates{Advantages: tokens, Stats: stats}, nil
}

// usableRows marks the rows that are not excluded and have only finite values at their policy tokens, and starts the
// statistics of the batch with the number of those that have not.
func usableRows(batch []Trajectory, tokens [][]float64) (usable []bool, stats *AdvantageStats) {
	usable, stats = make([]bool, len(batch)), &AdvantageStats{NoSignal: make([]bool, len(batch))}
	for i, t := range batch {
		usable[i] = !t.Excluded
		finite := isFinite(t.Reward)
		for at, isPolicy := range t.Mask {
			finite = finite && (!isPolicy || isFinite(tokens[i][at]))
		}
		if usable[i] && !finite {
			usable[i] = false
			stats.NonFinite++
		}
	}
	return usable, stats
}

// normalise takes the mean of all policy tokens of the usable rows off each of them and, with DivideByStd, divides by
// their sample standard deviation plus Eps. It reports whether they differ at all, and leaves them as they are if not.
func normalise(tokens [][]float64, batch []Trajectory, usable []bool, opts AdvantageOptions) bool {
	var all []float64
	each := func(do func(value *float64)) {
		for i, t := range batch {
			for at, isPolicy := range t.Mask {
				if isPolicy && usable[i] {
					do(&tokens[i][at])
				}
			}
		}
	}
	each(func(value *float64) { all = append(all, *value) })
	b := newBaseline(all)
	if !b.signal {
		return false
	}
	each(func(value *float64) {
		*value -= b.mean
		if opts.DivideByStd {
			*value /= b.std + opts.Eps
		}
	})
	return true
}

// silence sets the advantages of all rows that are not usable to 0 and marks them as without signal.
func silence(tokens [][]float64, usable []bool, stats *AdvantageStats) {
	for i, row := range tokens {
		if !usable[i] {
			clear(row)
			stats.NoSignal[i] = true
		}
	}
}
