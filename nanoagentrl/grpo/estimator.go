package grpo

import "fmt"

// Estimator names a way to turn the rewards of a batch of episodes into an advantage for each token.
type Estimator string

// The estimators. The first three compare the episodes of a group with each other, so that a group needs at least two.
const (
	// Group is GRPO's: Advantages, the same at all tokens of an episode.
	Group Estimator = "group"
	// RLOO is LeaveOneOut, the same at all tokens of an episode.
	RLOO Estimator = "rloo"
	// ReinforcePPBaseline is REINFORCE++ with a group's mean as baseline.
	ReinforcePPBaseline Estimator = "reinforce_pp_baseline"
	// ReinforcePP is REINFORCE++: discounted returns, normalised over the batch.
	ReinforcePP Estimator = "reinforce_pp"
	// GAE is PPO's: generalised advantage estimation with a critic.
	GAE Estimator = "gae"
)

// Validate returns an error that lists the estimators if e is none of them.
func (e Estimator) Validate() error {
	switch e {
	case Group, RLOO, ReinforcePPBaseline, ReinforcePP, GAE:
		return nil
	}
	return fmt.Errorf("grpo: unknown advantage estimator %q; choose %s, %s, %s, %s or %s",
		e, Group, RLOO, ReinforcePP, ReinforcePPBaseline, GAE)
}

// NeedsCritic reports whether the estimator reads Trajectory.Values.
func (e Estimator) NeedsCritic() bool { return e == GAE }

// NeedsGroups reports whether the estimator compares the episodes of a group with each other.
func (e Estimator) NeedsGroups() bool { return e == Group || e == RLOO || e == ReinforcePPBaseline }

// Trajectory is what an estimator sees of an episode. Mask, Penalty and Values are parallel to its tokens.
type Trajectory struct {
	// Group tells the prompt apart, Reward is what the whole episode earned.
	Group  int
	Reward float64
	// Excluded leaves the episode out, as if it were not there.
	Excluded bool
	// Mask is true at the policy's tokens. What stands elsewhere in the other slices is never read.
	Mask []bool
	// Penalty is taken off the reward of each token (KLEstimator.Penalties); nil takes off nothing.
	Penalty []float64
	// Values are the critic's predictions of the return, each made before its token was chosen; only GAE needs them.
	Values []float64
}

// check compares the lengths of the slices.
func (t *Trajectory) check(e Estimator) error {
	if t.Penalty != nil && len(t.Penalty) != len(t.Mask) {
		return fmt.Errorf("grpo: %d penalties for %d tokens", len(t.Penalty), len(t.Mask))
	}
	if e.NeedsCritic() && len(t.Values) != len(t.Mask) {
		return fmt.Errorf("grpo: estimator %s needs the critic's value of each of %d tokens, got %d",
			e, len(t.Mask), len(t.Values))
	}
	return nil
}

// total is the reward of the whole episode with all penalties taken off.
func (t *Trajectory) total() float64 {
	total := t.Reward
	for i, penalty := range t.Penalty {
		if t.Mask[i] {
			total -= penalty
		}
	}
	return total
}

// tokenRewards spreads the reward over the tokens: minus the penalty at each policy token, and the reward of the
// episode at the last of them. Tokens of the environment earn nothing.
func (t *Trajectory) tokenRewards() []float64 {
	rewards := make([]float64, len(t.Mask))
	last := -1
	for i, isPolicy := range t.Mask {
		if !isPolicy {
			continue
		}
		last = i
		if t.Penalty != nil {
			rewards[i] = -t.Penalty[i]
		}
	}
	if last >= 0 {
		rewards[last] += t.Reward
	}
	return rewards
}

// Estimates are the advantages of a batch.
type Estimates struct {
	// Advantages[i][t] is the advantage of token t of episode i; 0 where the mask is false.
	Advantages [][]float64
	// Returns are what the critic should have predicted at the same places; nil without a critic.
	Returns [][]float64
	// Stats counts groups and signals by the rewards alone, without penalties. NoSignal marks the episodes whose
	// advantages are all 0 for want of something to learn from, penalties included.
	Stats *AdvantageStats
}

// Estimate returns the advantages of all tokens of a batch. Every episode of a step must be in it, since groups, and for
// some estimators the whole batch, are compared. An episode whose reward, penalties or values are not finite gets
// advantage 0 and is left out of all comparisons. Slices of different lengths and bad options are errors.
func (e Estimator) Estimate(batch []Trajectory, opts AdvantageOptions) (*Estimates, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	penalised := false
	rewards, totals := make([]float64, len(batch)), make([]float64, len(batch))
	groups, excluded := make([]int, len(batch)), make([]bool, len(batch))
	for i := range batch {
		t := &batch[i]
		if err := t.check(e); err != nil {
			return nil, err
		}
		penalised = penalised || t.Penalty != nil
		rewards[i], totals[i], groups[i], excluded[i] = t.Reward, t.total(), t.Group, t.Excluded
	}
	_, byReward, err := compareGroups(rewards, groups, excluded)
	if err != nil {
		return nil, err
	}
	out, err := e.estimate(batch, totals, groups, excluded, opts)
	if err != nil {
		return nil, err
	}
	if penalised || !e.NeedsGroups() {
		byReward.NoSignal, byReward.NonFinite = out.Stats.NoSignal, out.Stats.NonFinite
		out.Stats = byReward
	}
	return out, nil
}

func (e Estimator) estimate(batch []Trajectory, totals []float64, groups []int, excluded []bool,
	opts AdvantageOptions) (*Estimates, error) {
	switch e {
	case ReinforcePP:
		return reinforcePP(batch, opts), nil
	case ReinforcePPBaseline:
		return reinforcePPBaseline(batch, totals, groups, excluded, opts)
	case GAE:
		return generalised(batch, opts), nil
	}
	var episodes []float64
	var stats *AdvantageStats
	var err error
	if e == RLOO {
		episodes, stats, err = LeaveOneOut(totals, groups, excluded)
	} else {
		episodes, stats, err = Advantages(totals, groups, excluded, opts)
	}
	if err != nil {
		return nil, err
	}
	return &Estimates{Advantages: spread(batch, episodes), Stats: stats}, nil
}

// spread gives each policy token of an episode the advantage of the episode.
func spread(batch []Trajectory, episodes []float64) [][]float64 {
	tokens := make([][]float64, len(batch))
	for i, t := range batch {
		tokens[i] = make([]float64, len(t.Mask))
		for at, isPolicy := range t.Mask {
			if isPolicy {
				tokens[i][at] = episodes[i]
			}
		}
	}
	return tokens
}
