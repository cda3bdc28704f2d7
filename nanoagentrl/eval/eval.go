// Package eval measures a policy on held-out questions.
package eval

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// Run plays the questions of a split and returns the episodes and their Metrics, together with the number of questions
// that were left out because their prompts are too long, eval/skipped_prompts_<split>. progress, which may be nil, is
// told how many questions are done. It is an error if every search failed: the numbers would say nothing about the
// policy.
func (e *Evaluator) Run(ctx context.Context, split Split, progress func(done, total int)) (
	[]*episode.Episode, map[string]float64, error) {
	seeds := agent.Seeds(e.Seed, "eval/"+split.Name, 0)
	skipped := e.Rollouter.Skipped()
	var searchErr error
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
		if err := e.Rollouter.SearchError(); err != nil {
			searchErr = err
		}
		for _, ep := range played {
			ep.Group += begin
		}
		episodes = append(episodes, played...)
	}
	e.Scorer.Score(episodes)
	metrics := Metrics(split.Name, episodes)
	if metrics["eval/retriever_error_rate_"+split.Name] == 1 {
		return nil, nil, fmt.Errorf("evaluating %s: every search failed: %w", split.Name, searchErr)
	}
	metrics["eval/skipped_prompts_"+split.Name] = float64(e.Rollouter.Skipped() - skipped)
	return episodes, metrics, nil
}

// Metrics summarises scored episodes of a split: eval/em_<split> is the mean over questions of the mean over their
// samples; eval/pass_at_k_<split> and eval/pass_hat_k_<split> are the shares of questions that at least one, and all,
// of their k samples answered, k being the number of samples; eval/reward_<split>, the reward parts and the statistics
// of agent.Stats follow. An episode whose search failed counts as wrong; eval/retriever_error_rate_<split> tells how
// many there were. No episodes give an empty map.
func Metrics(split string, episodes []*episode.Episode) map[string]float64 {
	metrics := map[string]float64{}
	if len(episodes) == 0 {
		return metrics
	}
	for _, ep := range episodes {
		metrics["eval/em_"+split] += reward.Correct(ep)
		metrics["eval/reward_"+split] += ep.Reward
		for part, value := range ep.Parts {
			if part != reward.PartEM && part != reward.PartEMNumber {
				metrics["eval/"+part+"_"+split] += value
			}
		}
	}
	for name := range metrics {
		metrics[name] /= float64(len(episodes))
	}
	metrics["eval/pass_at_k_"+split], metrics["eval/pass_hat_k_"+split] = anyAndAll(episodes)
	for name, value := range agent.Stats("eval/", episodes) {
		metrics[name+"_"+split] = value
	}
	return metrics
}

// anyAndAll returns pass@k and pass^k, the means over questions, with all samples of each question.
func anyAndAll(episodes []*episode.Episode) (anyRight, allRight float64) {
	samples, right := map[int]int{}, map[int]int{}
	for _, ep := range episodes {
		samples[ep.Group]++
		if reward.Correct(ep) == 1 {
			right[ep.Group]++
		}
	}
	for _, group := range slices.Sorted(maps.Keys(samples)) {
		at, _ := PassAtK(samples[group], right[group], samples[group])
		hat, _ := PassHatK(samples[group], right[group], samples[group])
		anyRight += at
		allRight += hat
	}
	n := float64(len(samples))
	return anyRight / n, allRight / n
}

// Mean adds eval/em, eval/pass_at_k and eval/pass_hat_k, the means of the splits' own over the splits, and returns
// metrics.
func Mean(metrics map[string]float64, splits []Split) map[string]float64 {
	for _, name := range []string{"eval/em", "eval/pass_at_k", "eval/pass_hat_k"} {
		sum, n := 0.0, 0
		for _, s := range splits {
			if value, ok := metrics[name+"_"+s.Name]; ok {
				sum, n = sum+value, n+1
			}
		}
		if n > 0 {
			metrics[name] = sum / float64(n)
		}
	}
	return metrics
}

// Names returns the names of all metrics that an evaluation of the splits gives, sorted.
func Names(scorer *reward.Scorer, splits []Split) []string {
	metrics := map[string]float64{}
	for _, s := range splits {
		var episodes []*episode.Episode
		for _, q := range s.Questions {
			e := &episode.Episode{DataSource: q.Source, Turns: []episode.Turn{{Action: episode.ActionInvalid}}}
			if reward.IsMath(q.Source) {
				e.Turns[0].Action = episode.ActionNone
			}
			scorer.ScoreOne(e)
			episodes = append(episodes, e)
		}
		maps.Copy(metrics, Metrics(s.Name, episodes))
		metrics["eval/skipped_prompts_"+s.Name] = 0
	}
	return slices.Sorted(maps.Keys(Mean(metrics, splits)))
}

// Line is a short summary of one split's metrics.
func Line(split string, metrics map[string]float64) string {
	var b strings.Builder
	at := func(name string) float64 { return metrics["eval/"+name+"_"+split] }
	has := func(name string) bool { _, ok := metrics["eval/"+name+"_"+split]; return ok }
	fmt.Fprintf(&b, "%s: EM %.1f %%", split, 100*at("em"))
	if has("em_lenient") {
		fmt.Fprintf(&b, ", lenient %.1f %%, F1 %.1f %%", 100*at("em_lenient"), 100*at("f1"))
	}
	if has("em_number_strict") {
		fmt.Fprintf(&b, ", in #### form %.1f %%", 100*at("em_number_strict"))
	}
	fmt.Fprintf(&b, ", searches %.2f, invalid %.1f %%, %.0f tokens", at("num_searches"), 100*at("invalid_format_rate"),
		at("response_len"))
	if failed := at("retriever_error_rate"); failed > 0 {
		fmt.Fprintf(&b, ", SEARCH FAILED in %.1f %% of the episodes", 100*failed)
	}
	if skipped := at("skipped_prompts"); skipped > 0 {
		fmt.Fprintf(&b, ", %.0f questions left out (prompt too long)", skipped)
	}
	return b.String()
}
