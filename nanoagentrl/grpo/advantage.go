package grpo

import (
	"fmt"
	"math"
)

// equalRewards is the relative spread below which the rewards of a group count as all equal: sums of the same reward
// parts in another order differ by rounding, which is no signal to learn from.
const equalRewards = 1e-9

// AdvantageOptions say how rewards become advantages.
type AdvantageOptions struct {
	// DivideByStd divides the centred reward by the group's standard deviation, as GRPO does. Without it the
	// advantage is the centred reward alone, as in Dr. GRPO (arXiv:2503.20783).
	DivideByStd bool
	// Eps is added to the standard deviation; it must be finite and not negative. It is unused without DivideByStd.
	Eps float64
	// Gamma discounts later rewards in ReinforcePP and GAE, Lambda later errors in GAE; both are in [0, 1]. Advantages
	// and LeaveOneOut do not use them.
	Gamma, Lambda float64
}

// DefaultAdvantageOptions returns GRPO's choice: divide by the standard deviation plus 1e-6. Gamma and Lambda are 1.
func DefaultAdvantageOptions() AdvantageOptions {
	return AdvantageOptions{DivideByStd: true, Eps: 1e-6, Gamma: 1, Lambda: 1}
}

// Validate returns an error that names the first option out of its range.
func (o AdvantageOptions) Validate() error {
	switch {
	case !(o.Eps >= 0) || math.IsInf(o.Eps, 0):
		return fmt.Errorf("grpo: adv_eps is %v, must be finite and not negative", o.Eps)
	case !(o.Gamma >= 0 && o.Gamma <= 1):
		return fmt.Errorf("grpo: gamma is %v, must be in [0, 1]", o.Gamma)
	case !(o.Lambda >= 0 && o.Lambda <= 1):
		return fmt.Errorf("grpo: gae_lambda is %v, must be in [0, 1]", o.Lambda)
	}
	return nil
}

// AdvantageStats counts the rewards that carry no signal.
type AdvantageStats struct {
	// Groups is the number of groups with at least one row that is not excluded.
	Groups int
	// ZeroSignalGroups is the number of those groups whose advantages are all 0: all rewards equal, or fewer than two
	// finite rewards.
	ZeroSignalGroups int
	// SingleGroups is the number of zero-signal groups with fewer than two finite rewards.
	SingleGroups int
	// NonFinite is the number of rows, not excluded, whose reward is NaN or infinite.
	NonFinite int
	// Excluded is the number of excluded rows.
	Excluded int
	// NoSignal marks the rows whose advantage is 0 because there is nothing to learn from their reward: excluded,
	// not finite, or in a zero-signal group. A row whose reward happens to equal its group's mean is not marked. To
	// leave these rows out of the loss, also out of its KL term and its denominators, set their length to 0 in
	// TokenWeights and their mask to 0 in TokenLoss.
	NoSignal []bool
}

// ZeroSignalFrac returns the fraction of groups without signal, or 0 if there are no groups.
func (s *AdvantageStats) ZeroSignalFrac() float64 {
	if s.Groups == 0 {
		return 0
	}
	return float64(s.ZeroSignalGroups) / float64(s.Groups)
}

// Advantages returns the group-relative advantage of each row: with mean and std taken over the rows of the same group,
//
//	A_i = (r_i - mean) / (std + Eps)        with DivideByStd
//	A_i = r_i - mean                        without
//
// std is the sample standard deviation, with n-1 in the denominator, so that rewards [1 0 0 0] become
// [1.5 -0.5 -0.5 -0.5]. Groups are told apart by groups[i] alone, never by position or by the text of the prompt: the
// order of the rows does not matter.
//
// Rows with excluded[i] (episodes that cannot be trained on; nil excludes none) and rows with a NaN or infinite reward
// get advantage 0 and do not enter mean and std. A group whose rewards are all equal gets 0, and so does a group with
// a single usable row: its reward has nothing to be compared with.
//
// Slices of different lengths and bad options are errors.
func Advantages(
	rewards []float64, groups []int, excluded []bool, opts AdvantageOptions,
) ([]float64, *AdvantageStats, error) {
	if err := opts.Validate(); err != nil {
		return nil, nil, err
	}
	baselines, stats, err := compareGroups(rewards, groups, excluded)
	if err != nil {
		return nil, nil, err
	}
	advantages := make([]float64, len(rewards))
	for i, reward := range rewards {
		if stats.NoSignal[i] {
			continue
		}
		b := baselines[groups[i]]
		advantages[i] = reward - b.mean
		if opts.DivideByStd {
			advantages[i] /= b.std + opts.Eps
		}
	}
	return advantages, stats, nil
}

// compareGroups returns the baseline of each group and counts what carries no signal.
func compareGroups(rewards []float64, groups []int, excluded []bool) (map[int]baseline, *AdvantageStats, error) {
	if len(groups) != len(rewards) || (excluded != nil && len(excluded) != len(rewards)) {
		return nil, nil, fmt.Errorf("grpo: %d rewards, %d group ids and %d exclusion marks; they must be parallel",
			len(rewards), len(groups), len(excluded))
	}
	stats := &AdvantageStats{NoSignal: make([]bool, len(rewards))}
	usable := make(map[int][]float64) // finite rewards by group id; a group of only NaN has an empty entry
	for i, reward := range rewards {
		if excluded != nil && excluded[i] {
			stats.Excluded++
			stats.NoSignal[i] = true
			continue
		}
		group := usable[groups[i]]
		if isFinite(reward) {
			group = append(group, reward)
		} else {
			stats.NonFinite++
			stats.NoSignal[i] = true
		}
		usable[groups[i]] = group
	}

	baselines := make(map[int]baseline, len(usable))
	for id, group := range usable {
		b := newBaseline(group)
		baselines[id] = b
		stats.Groups++
		if !b.signal {
			stats.ZeroSignalGroups++
		}
		if len(group) < 2 {
			stats.SingleGroups++
		}
	}
	for i := range rewards {
		if !baselines[groups[i]].signal {
			stats.NoSignal[i] = true
		}
	}
	return baselines, stats, nil
}

// baseline is what the rewards of one group are compared with.
type baseline struct {
	count, mean, std float64
	signal           bool // whether the rewards differ
}

// newBaseline returns the mean and the sample standard deviation of finite rewards.
func newBaseline(rewards []float64) baseline {
	if len(rewards) < 2 {
		return baseline{}
	}
	n := float64(len(rewards))
	low, high := rewards[0], rewards[0]
	var mean float64
	for _, r := range rewards {
		low, high = min(low, r), max(high, r)
		mean += r / n
	}
	var squares float64
	for _, r := range rewards {
		squares += (r - mean) * (r - mean)
	}
	return baseline{
		count:  n,
		mean:   mean,
		std:    math.Sqrt(squares / (n - 1)),
		signal: high-low > equalRewards*max(1, math.Abs(low), math.Abs(high)),
	}
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
