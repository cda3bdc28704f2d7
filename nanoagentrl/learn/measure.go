package learn

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// measurement is the outcome of an evaluation of all splits.
type measurement struct {
	metrics Stats
	samples []splitSample
}

// splitSample is the first episode of a split.
type splitSample struct {
	split   string
	episode *episode.Episode
}

// evaluate measures the policy on all splits and remembers a new best. Of equal values the earliest step is the best;
// the weights before the first step are no candidate, since they are in no checkpoint.
func (t *Trainer) evaluate(ctx context.Context) (*measurement, error) {
	m := &measurement{metrics: Stats{}}
	for _, split := range t.Splits {
		start := time.Now()
		episodes, metrics, err := t.Evaluator.Run(ctx, split, func(done, total int) {
			t.Report.Phase(t.step, t.Config.Steps, fmt.Sprintf("evaluating %s %d/%d", split.Name, done, total))
		})
		if err != nil {
			return nil, err
		}
		for name, value := range metrics {
			m.metrics[name] = value
		}
		m.metrics[evalSeconds+split.Name] = time.Since(start).Seconds()
		t.Report.Eval(t.step, split.Name, metrics)
		if len(episodes) > 0 {
			m.samples = append(m.samples, splitSample{split.Name, episodes[0]})
		}
	}
	eval.Mean(m.metrics, t.Splits)
	value, ok := m.metrics[t.Config.BestMetric]
	if ok && !math.IsNaN(value) && (t.best == nil || value > t.best.Value) && t.step > 0 {
		t.best = &checkpoint.BestCheckpoint{Step: t.step, Metric: t.Config.BestMetric, Value: value}
		t.newBest = true
	}
	return m, nil
}

// addRewards adds the means of the reward and of each of its parts.
func addRewards(stats Stats, episodes []*episode.Episode) {
	if len(episodes) == 0 {
		return
	}
	sums, squares := Stats{}, 0.0
	for _, e := range episodes {
		sums["train/em"] += reward.Correct(e)
		sums["train/reward_mean"] += e.Reward
		squares += e.Reward * e.Reward
		for part, value := range e.Parts {
			sums["train/reward_"+part] += value
		}
	}
	n := float64(len(episodes))
	for name, sum := range sums {
		stats[name] = sum / n
	}
	mean := stats["train/reward_mean"]
	stats["train/reward_std"] = math.Sqrt(max(0, squares/n-mean*mean))
}

func countTokens(episodes []*episode.Episode) int {
	n := 0
	for _, e := range episodes {
		n += len(e.IDs)
	}
	return n
}

// watch looks for signs over several steps that a run goes wrong. It starts afresh when a run is resumed.
type watch struct{ clipped int }

// A run in which more than clippedShare of the episodes are cut off by the token budget for clippedSteps steps in a row
// learns little: an episode that is cut off has no answer.
const (
	clippedShare = 0.5
	clippedSteps = 5
)

// see takes the metrics of a step and returns a warning, or "".
func (w *watch) see(stats Stats) string {
	if stats["train/clipped_ratio"] <= clippedShare {
		w.clipped = 0
		return ""
	}
	w.clipped++
	if w.clipped%clippedSteps != 0 {
		return ""
	}
	return fmt.Sprintf("more than %.0f %% of the episodes were cut off by max_new_tokens in each of the last %d steps; "+
		"they cannot be rewarded for an answer: raise max_new_tokens, or ask for shorter ones", 100*clippedShare, w.clipped)
}
