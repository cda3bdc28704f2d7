package grpo

// LeaveOneOut returns the advantage of each row under RLOO (arXiv:2402.14740): its reward less the mean of the others
// in its group,
//
//	A_i = r_i - Σ_{j≠i} r_j / (n-1) = (r_i - mean)·n / (n-1)
//
// with n the number of usable rows of the group. A row is then compared with nothing that depends on itself, so that
// the policy gradient is unbiased; Advantages without DivideByStd is the same but for the factor n/(n-1).
//
// Groups, excluded rows, rewards that are not finite and groups without signal are treated as in Advantages. A group
// with a single usable row gets 0, never its raw reward.
func LeaveOneOut(rewards []float64, groups []int, excluded []bool) ([]float64, *AdvantageStats, error) {
	baselines, stats, err := compareGroups(rewards, groups, excluded)
	if err != nil {
		return nil, nil, err
	}
	advantages := make([]float64, len(rewards))
	for i, reward := range rewards {
		if !stats.NoSignal[i] {
			b := baselines[groups[i]]
			advantages[i] = (reward - b.mean) * b.count / (b.count - 1)
		}
	}
	return advantages, stats, nil
}
