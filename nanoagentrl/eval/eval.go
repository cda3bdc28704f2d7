// Package eval measures a policy on held-out questions.
package eval

import (
	"context"
	"fmt"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// Split is a named set of questions.
type Split struct {
	Name      string
	Questions []data.Question
}

// Evaluator plays episodes and scores them.
type Evaluator struct {
	Rollouter *agent.Rollouter
	Scorer    *reward.Scorer
	// Seed and Samples fix the draws, where the temperature is not 0, and the number of episodes for each question.
	Seed    uint64
	Samples int
}

// Chunk is the number of questions played between two calls of progress.
const Chunk = 16

// Run plays the questions of a split and returns the episodes and the metrics: eval/em_<split> is the mean over
// questions of the mean over their samples, the other reward parts and rollout statistics follow under eval/<name>_
// <split>. progress, which may be nil, is told how many questions are done.
func (e *Evaluator) Run(ctx context.Context, split Split, progress func(done, total int)) (
	[]*episode.Episode, map[string]float64, error) {
	seeds := agent.Seeds(e.Seed, "eval/"+split.Name, 0)
	var episodes []*episode.Episode
	for begin := 0; begin < len(split.Questions); begin += Chunk {
		if progress != nil {
			progress(begin, len(split.Questions))
		}
		part := split.Questions[begin:min(begin+Chunk, len(split.Questions))]
		played, err := e.Rollouter.Rollout(ctx, part, e.Samples, func(q, s int) uint64 { return seeds(begin+q, s) })
		if err != nil {
			return nil, nil, fmt.Errorf("evaluating %s: %w", split.Name, err)
		}
		for _, ep := range played {
			ep.Group += begin
		}
		episodes = append(episodes, played...)
	}
	e.Scorer.Score(episodes)
	return episodes, Metrics(split.Name, episodes), nil
}

// Metrics summarises scored episodes of a split.
func Metrics(split string, episodes []*episode.Episode) map[string]float64 {
	metrics := map[string]float64{}
	if len(episodes) == 0 {
		return metrics
	}
	n := float64(len(episodes))
	for _, ep := range episodes {
		metrics["eval/em_"+split] += reward.Correct(ep) / n
		metrics["eval/reward_"+split] += ep.Reward / n
		for part, value := range ep.Parts {
			if part != "em" && part != "em_number" {
				metrics["eval/"+part+"_"+split] += value / n
			}
		}
	}
	for name, value := range agent.Stats("eval/", episodes) {
		metrics[name+"_"+split] = value
	}
	return metrics
}

// Mean adds eval/em, the mean of eval/em_<split> over the splits, and returns metrics.
func Mean(metrics map[string]float64, splits []Split) map[string]float64 {
	sum, n := 0.0, 0
	for _, s := range splits {
		if em, ok := metrics["eval/em_"+s.Name]; ok {
			sum, n = sum+em, n+1
		}
	}
	if n > 0 {
		metrics["eval/em"] = sum / float64(n)
	}
	return metrics
}

// Line is a short summary of one split's metrics.
func Line(split string, metrics map[string]float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: EM %.1f %%", split, 100*metrics["eval/em_"+split])
	if lenient, ok := metrics["eval/em_lenient_"+split]; ok {
		fmt.Fprintf(&b, ", lenient %.1f %%, F1 %.1f %%", 100*lenient, 100*metrics["eval/f1_"+split])
	}
	if strict, ok := metrics["eval/em_number_strict_"+split]; ok {
		fmt.Fprintf(&b, ", in #### form %.1f %%", 100*strict)
	}
	fmt.Fprintf(&b, ", searches %.2f, invalid %.1f %%, %.0f tokens", metrics["eval/num_searches_"+split],
		100*metrics["eval/invalid_format_rate_"+split], metrics["eval/response_len_"+split])
	return b.String()
}
