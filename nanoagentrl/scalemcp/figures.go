package scalemcp

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// costOfDepth is what each step of the plan adds to the cost, in searches.
const costOfDepth = 0.25

// Figures are the figures of a benchmark run; see the package comment.
type Figures struct {
	JointSuccess          Decimal `json:"joint_success"`
	AverageCost           Decimal `json:"average_cost"`
	SearchQueries         int     `json:"search_queries"`
	MaskedRetrievedTokens int     `json:"masked_retrieved_tokens"`
	OutcomePolicyUpdates  int     `json:"outcome_policy_updates"`
	// RetrievedTokens counts retrieved words whatever their mask; MaskedRetrievedTokens must be equal to it.
	RetrievedTokens int `json:"-"`
}

// Decimal is a number that is written with at least one decimal: "1.0".
type Decimal float64

// String returns the number to at most four decimals.
func (d Decimal) String() string { return withDecimal(math.Round(float64(d)*1e4) / 1e4) }

// MarshalJSON writes every digit.
func (d Decimal) MarshalJSON() ([]byte, error) { return []byte(withDecimal(float64(d))), nil }

func withDecimal(x float64) string {
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// Count counts the figures of the episodes of tasks, one each, from the mask and the turns that stand in them. An
// episode in which a passage cannot be found again among the tokens is an error.
func Count(tasks []Task, episodes []*episode.Episode) (*Figures, error) {
	if len(tasks) != len(episodes) || len(tasks) == 0 {
		return nil, fmt.Errorf("scalemcp: %d episodes of %d tasks", len(episodes), len(tasks))
	}
	tok, err := vocabulary(tasks)
	if err != nil {
		return nil, fmt.Errorf("scalemcp: %w", err)
	}
	scorer, err := reward.NewScorer(reward.DefaultWeights(), false)
	if err != nil {
		return nil, fmt.Errorf("scalemcp: %w", err)
	}
	scorer.Score(episodes)
	f := &Figures{}
	successes, cost := 0, 0.0
	for i, ep := range episodes {
		success := reward.Correct(ep) == 1 && slices.Equal(planOf(ep), tasks[i].Plan)
		if success {
			successes++
		}
		searches := ep.CountActions(episode.ActionSearch)
		f.SearchQueries += searches
		cost += float64(searches) + costOfDepth*float64(tasks[i].Depth)

		places, err := retrieved(ep, tok.EncodePlain)
		if err != nil {
			return nil, fmt.Errorf("scalemcp: task %d: %w", tasks[i].Number, err)
		}
		f.RetrievedTokens += len(places)
		mask := ep.Mask()
		for _, at := range places {
			if mask[at] == 0 {
				f.MaskedRetrievedTokens++
			}
		}
		updated, err := outcomeUpdate(ep, success)
		if err != nil {
			return nil, fmt.Errorf("scalemcp: task %d: %w", tasks[i].Number, err)
		}
		if updated {
			f.OutcomePolicyUpdates++
		}
	}
	f.JointSuccess = Decimal(float64(successes) / float64(len(episodes)))
	f.AverageCost = Decimal(cost / float64(len(episodes)))
	return f, nil
}

// planOf returns the steps that the policy named in its last turn.
func planOf(ep *episode.Episode) []string {
	if len(ep.Turns) == 0 {
		return nil
	}
	named := stepsPattern.FindStringSubmatch(ep.Turns[len(ep.Turns)-1].Text)
	if named == nil {
		return nil
	}
	return strings.Split(named[1], " "+arrow+" ")
}

// retrieved returns where the words of the retrieved passages stand in the episode: the tokens of each passage's text,
// without its title, looked for in order among the tokens between its turn and the next.
func retrieved(ep *episode.Episode, encode func(text string) []int) (places []int, err error) {
	for i, turn := range ep.Turns {
		at, end := turn.End, len(ep.IDs)
		if i+1 < len(ep.Turns) {
			end = ep.Turns[i+1].Begin
		}
		for _, p := range turn.Passages {
			_, text, _ := strings.Cut(p.Contents, "\n")
			words := encode(text)
			for at+len(words) <= end && !slices.Equal(ep.IDs[at:at+len(words)], words) {
				at++
			}
			if at+len(words) > end {
				return nil, fmt.Errorf("the words of passage %s are not among the tokens after turn %d", p.ID, i+1)
			}
			for range words {
				places = append(places, at)
				at++
			}
		}
	}
	return places, nil
}

// outcomeUpdate computes the gradient of the loss of one episode, whose outcome is its advantage: +1 for a success, -1
// otherwise. It reports whether every token of a turn, and no other token, has a gradient in the right direction. What
// the policy did not write has no log-probability; NaN stands there, so that a single wrong bit of the mask shows.
func outcomeUpdate(ep *episode.Episode, success bool) (bool, error) {
	n := len(ep.IDs)
	if len(ep.Sources) != n || len(ep.LogProbs) != n {
		return false, fmt.Errorf("%d tokens, %d sources and %d log-probabilities", n, len(ep.Sources), len(ep.LogProbs))
	}
	logp, adv, weight, written := make([]float64, n), make([]float64, n), make([]float64, n), make([]bool, n)
	weights, err := grpo.TokenWeights([]int{ep.CountTokens(episode.Policy)}, grpo.TokenMean, 0)
	if err != nil {
		return false, err
	}
	outcome := -1.0
	if success {
		outcome = 1
	}
	mask := make([]bool, n)
	for t, m := range ep.Mask() {
		logp[t], adv[t], weight[t], mask[t] = math.NaN(), outcome, weights[0], m == 1
	}
	for _, turn := range ep.Turns {
		for t := turn.Begin; t < turn.End; t++ {
			logp[t], written[t] = float64(ep.LogProbs[t]), true
		}
	}
	loss, err := grpo.TokenLossFloat64(logp, logp, nil, adv, mask, weight, grpo.LossOptions{ClipLow: 0.2, ClipHigh: 0.2})
	if err != nil {
		return false, err
	}
	for t, slope := range loss.DLogP {
		if written[t] && !(slope*outcome < 0) || !written[t] && slope != 0 {
			return false, nil // also for NaN
		}
	}
	return true, nil
}
