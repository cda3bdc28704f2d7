package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/eval"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// Trainer is the training loop. Its parts are put together by the caller.
type Trainer struct {
	Config    *config.Config
	Policy    *policy.Policy
	Rollouter *agent.Rollouter
	Scorer    *reward.Scorer
	Learner   *Learner
	Optimizer *AdamW
	Cursor    *data.Cursor
	Evaluator *eval.Evaluator
	Splits    []eval.Split
	// Reference identifies the reference weights; it is kept in checkpoints.
	Reference string
	// Checkpoints is the folder of the run's checkpoints.
	Checkpoints string
	Log         *RunLog
	Report      Reporter

	step  int
	saved int
	best  *checkpoint.BestCheckpoint
}

// Resume makes the trainer go on after a step, with the best evaluation so far.
func (t *Trainer) Resume(step int, best *checkpoint.BestCheckpoint) {
	t.step, t.saved, t.best = step, step, best
}

// Step returns the number of steps done.
func (t *Trainer) Step() int { return t.step }

// Run trains until Config.Steps steps are done. When ctx ends, the step under way is dropped, the last whole step is
// saved, and the error wraps ctx.Err().
func (t *Trainer) Run(ctx context.Context) error {
	err := t.run(ctx)
	if err == nil || t.step == t.saved {
		return err
	}
	// What was learned is saved also when the search engine or the disk gave up: a second failure is told as well.
	return errors.Join(err, t.save())
}

func (t *Trainer) run(ctx context.Context) error {
	if t.step == 0 && t.Config.EvalAtStart {
		if err := t.evaluate(ctx); err != nil {
			return err
		}
	}
	for t.step < t.Config.Steps {
		cursor := t.Cursor.State()
		stats, err := t.trainStep(ctx)
		if err != nil {
			return errors.Join(err, t.Cursor.Restore(cursor))
		}
		t.step++
		if err := t.Log.Metrics(t.step, stats); err != nil {
			return err
		}
		t.Report.Step(t.step, t.Config.Steps, stats)
		last := t.step == t.Config.Steps
		if every(t.Config.EvalEvery, t.step) || last && t.Config.EvalEvery > 0 {
			if err := t.evaluate(ctx); err != nil {
				return err
			}
		}
		if every(t.Config.SaveEvery, t.step) || last || t.bestIsNow() {
			if err := t.save(); err != nil {
				return err
			}
		}
	}
	return nil
}

func every(n, step int) bool { return n > 0 && step%n == 0 }

// trainStep is one step: questions, episodes, rewards, weight updates.
func (t *Trainer) trainStep(ctx context.Context) (Stats, error) {
	start := time.Now()
	step := t.step + 1
	t.Report.Phase(step, t.Config.Steps, "rolling out")
	questions := t.Cursor.Next(t.Config.PromptsPerStep)
	episodes, err := t.Rollouter.Rollout(ctx, questions, t.Config.GroupSize, agent.Seeds(t.Config.Seed, "train", step))
	if err != nil {
		return nil, err
	}
	t.Scorer.Score(episodes)
	rolled := time.Since(start)

	t.Report.Phase(step, t.Config.Steps, "training")
	schedule := Schedule{Peak: t.Config.LR, Shape: t.Config.LRSchedule, Warmup: t.Config.WarmupSteps, Steps: t.Config.Steps}
	stats, err := t.Learner.Update(ctx, episodes, schedule.At(step))
	if err != nil {
		return nil, err
	}
	for name, value := range agent.Stats("train/", episodes) {
		stats[name] = value
	}
	addRewards(stats, episodes)
	total := time.Since(start)
	stats["perf/rollout_sec"] = rolled.Seconds()
	stats["perf/train_sec"] = (total - rolled).Seconds()
	stats["perf/tokens_per_sec"] = float64(countTokens(episodes)) / total.Seconds()
	stats["perf/mem_gb"] = PeakMemoryGB()
	stats["train/skipped_prompts"] = float64(t.Rollouter.Skipped())
	if stats["train/retriever_error_rate"] == 1 {
		return nil, fmt.Errorf("every search of step %d failed: %w", step, t.Rollouter.SearchError())
	}
	return stats, t.sample(step, "train", episodes, questions)
}

// addRewards adds the means of the reward and of each of its parts.
func addRewards(stats Stats, episodes []*episode.Episode) {
	if len(episodes) == 0 {
		return
	}
	n := float64(len(episodes))
	mean, square := 0.0, 0.0
	for _, e := range episodes {
		stats["train/em"] += reward.Correct(e) / n
		for part, value := range e.Parts {
			stats["train/reward_"+part] += value / n
		}
		mean += e.Reward / n
		square += e.Reward * e.Reward / n
	}
	stats["train/reward_mean"] = mean
	stats["train/reward_std"] = math.Sqrt(max(0, square-mean*mean))
}

func countTokens(episodes []*episode.Episode) int {
	n := 0
	for _, e := range episodes {
		n += len(e.IDs)
	}
	return n
}

// sample logs the first group's first and last episode every Config.SampleEvery steps.
func (t *Trainer) sample(step int, split string, episodes []*episode.Episode, _ []data.Question) error {
	if !every(t.Config.SampleEvery, step) || len(episodes) == 0 {
		return nil
	}
	t.Report.Sample(step, episodes[0])
	for _, e := range []*episode.Episode{episodes[0], episodes[len(episodes)-1]} {
		if err := t.Log.Sample(step, split, e); err != nil {
			return err
		}
	}
	return nil
}

// evaluate measures the policy on all splits and remembers a new best.
func (t *Trainer) evaluate(ctx context.Context) error {
	all := Stats{}
	for _, split := range t.Splits {
		start := time.Now()
		episodes, metrics, err := t.Evaluator.Run(ctx, split, func(done, total int) {
			t.Report.Phase(t.step, t.Config.Steps, fmt.Sprintf("evaluating %s %d/%d", split.Name, done, total))
		})
		if err != nil {
			return err
		}
		for name, value := range metrics {
			all[name] = value
		}
		all["perf/eval_sec_"+split.Name] = time.Since(start).Seconds()
		t.Report.Eval(t.step, split.Name, metrics)
		if len(episodes) > 0 {
			if err := t.Log.Sample(t.step, split.Name, episodes[0]); err != nil {
				return err
			}
		}
	}
	eval.Mean(all, t.Splits)
	if value, ok := all[t.Config.BestMetric]; ok && (t.best == nil || value > t.best.Value) && t.step > 0 {
		t.best = &checkpoint.BestCheckpoint{Step: t.step, Metric: t.Config.BestMetric, Value: value}
	}
	return t.Log.Metrics(t.step, all)
}

func (t *Trainer) bestIsNow() bool { return t.best != nil && t.best.Step == t.step }

// save writes a checkpoint of the current step and prunes old ones.
func (t *Trainer) save() error {
	t.Report.Phase(t.step, t.Config.Steps, "saving")
	cursor := t.Cursor.State()
	state := checkpoint.RunState{
		Step: t.step, OptimizerStep: t.Optimizer.Step(), Seed: t.Config.Seed,
		Cursor:     checkpoint.Cursor{Epoch: cursor.Epoch, Position: cursor.Position},
		ConfigHash: t.Config.Hash(), Config: t.Config.Fingerprint(), Reference: t.Reference, Best: t.best,
	}
	dir, err := checkpoint.Save(t.Checkpoints, t.step, func(dir string) error {
		if err := SaveState(dir, t.Policy, t.Optimizer); err != nil {
			return err
		}
		return checkpoint.WriteState(dir, state)
	})
	if err != nil {
		return err
	}
	t.saved = t.step
	if t.bestIsNow() {
		if err := checkpoint.SetBest(t.Checkpoints, t.best.Step, t.best.Metric, t.best.Value); err != nil {
			return err
		}
	}
	t.Report.Saved(dir)
	_, err = checkpoint.Prune(t.Checkpoints, t.Config.KeepLast, t.Config.KeepEvery)
	return err
}
