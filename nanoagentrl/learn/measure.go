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
	if value, ok := m.metrics[t.Config.BestMetric]; ok && t.step > 0 {
		t.noteBest(t.Config.BestMetric, value)
	}
	return m, nil
}

// noteBest remembers the current step as the best if its value is larger than that of the best by the same metric.
func (t *Trainer) noteBest(metric string, value float64) {
	if !math.IsNaN(value) && (t.best == nil || t.best.Metric != metric || value > t.best.Value) {
		t.best = &checkpoint.BestCheckpoint{Step: t.step, Metric: metric, Value: value}
		t.newBest = true
	}
}

// rewardMetric is the metric by which a run without evaluations finds its best checkpoint.
const rewardMetric = "train/reward_mean"

// noteReward makes a checkpoint that is about to be saved the best if the run has no evaluations and its reward over the
// last steps was larger than at all checkpoints before.
func (t *Trainer) noteReward() {
	if t.Config.EvalEvery == 0 && t.Config.BestMetric != "" && t.step > 0 {
		t.noteBest(rewardMetric, t.alarm.recent(rewardMetric))
	}
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
