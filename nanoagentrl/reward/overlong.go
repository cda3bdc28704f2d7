package reward

import "fmt"

// Overlong is DAPO's soft punishment of episodes that come near the end of their token budget (arXiv:2503.14476, eq.
// 13): nothing up to Limit - Buffer policy tokens, then a share that rises linearly to 1 at Limit, so that the policy
// learns to keep short before it is cut off.
type Overlong struct {
	// Weight is what is taken off the reward at Limit; 0 is no penalty.
	Weight float64
	// Limit is the budget of policy tokens of an episode, Buffer the number of its last tokens that are punished.
	Limit, Buffer int
}

// Share returns how much of the penalty an episode of so many policy tokens gets, from 0 to 1.
func (o Overlong) Share(tokens int) float64 {
	into := float64(tokens - (o.Limit - o.Buffer))
	return min(max(into/float64(o.Buffer), 0), 1)
}

// Penalise returns a scorer that also takes o off the reward. It fails if the weight is negative or not finite, or the
// buffer is not within the limit.
func (s *Scorer) Penalise(o Overlong) (*Scorer, error) {
	if !(o.Weight >= 0 && o.Weight <= maxPenalty) {
		return nil, fmt.Errorf("reward: overlong_penalty is %g, must be from 0 to %g", o.Weight, maxPenalty)
	}
	if o.Weight > 0 && (o.Buffer < 1 || o.Buffer > o.Limit) {
		return nil, fmt.Errorf("reward: overlong_buffer is %d, must be from 1 to max_new_tokens (%d)", o.Buffer, o.Limit)
	}
	penalised := *s
	penalised.overlong = o
	return &penalised, nil
}

// maxPenalty bounds the weight of a penalty to what can still be a reward.
const maxPenalty = 1e6
