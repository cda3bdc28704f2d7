package learn

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
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
	// Critic is the learner's; nil if it has none.
	Critic    *Critic
	Cursor    *data.Cursor
	Evaluator *eval.Evaluator
	Splits    []eval.Split
	// Reference identifies the reference weights; it is kept in checkpoints.
	Reference string
	// Checkpoints is the folder of the run's checkpoints.
	Checkpoints string
	Log         *RunLog
	Report      Reporter

	// step is the last whole step, saved the last one with a checkpoint.
	step, saved int
	// best is the best evaluation so far; newBest says that it is not in a checkpoint yet.
	best    *checkpoint.BestCheckpoint
	newBest bool
	// broken says why the weights, or the folder, must not be saved to; "" if they may.
	broken string
	alarm  *alarm
	// collapsed is the collapse that the last step was found to be in, or "".
	collapsed string
}

// Resume makes the trainer go on after a step, with the best evaluation so far.
func (t *Trainer) Resume(step int, best *checkpoint.BestCheckpoint) {
	t.step, t.saved, t.best = step, step, best
}

// Step returns the number of steps done.
func (t *Trainer) Step() int { return t.step }

// Saved returns the step of the last checkpoint, 0 if there is none.
func (t *Trainer) Saved() int { return t.saved }

// Run trains until Config.Steps steps are done. When ctx ends before the first weight update of a step, the step is
// dropped; else it is finished. Then the last whole step is saved, and the error wraps ctx.Err(). What was learned is
// saved also when the search engine or the log gave up. If that save fails, its error comes in place of ctx.Err(): more
// was lost than time.
func (t *Trainer) Run(ctx context.Context) error {
	if t.broken != "" {
		return fmt.Errorf("this run cannot go on: %s; open it again", t.broken)
	}
	err := t.run(ctx)
	if err == nil || t.step == t.saved || t.broken != "" {
		return err
	}
	if failed := t.save(); failed != nil {
		return fmt.Errorf("%w (the run had ended with: %v)", failed, err)
	}
	return err
}

func (t *Trainer) run(ctx context.Context) error {
	if err := t.rememberSteps(); err != nil {
		return err
	}
	if err := t.closeStep(ctx); err != nil { // What the last process had left to do.
		return err
	}
	for t.step < t.Config.Steps {
		if err := t.trainStep(ctx); err != nil {
			return err
		}
		if err := t.closeStep(ctx); err != nil {
			return err
		}
		if t.collapsed != "" && t.Config.StopOnCollapse {
			return fmt.Errorf("%w at step %d (%s); the best checkpoint, if there is one, is named in %s", ErrCollapsed, t.step,
				t.collapsed, filepath.Join(t.Checkpoints, checkpoint.BestName))
		}
	}
	return nil
}

// rememberSteps makes the alarm look at the steps that were logged before.
func (t *Trainer) rememberSteps() error {
	if t.alarm != nil {
		return nil
	}
	t.alarm = newAlarm(t.Config)
	lines, err := t.Log.steps()
	if err != nil {
		return err
	}
	for _, line := range lines {
		t.alarm.see(int(line["step"]), line)
	}
	return nil
}

// closeStep makes the evaluation and the checkpoint that are due after a step. The evaluation is logged last: a run
// that was interrupted in between finds no trace of it and makes it again.
func (t *Trainer) closeStep(ctx context.Context) error {
	var measured *measurement
	if t.evalDue() && t.Log.Evaluated() != t.step {
		var err error
		if measured, err = t.evaluate(ctx); err != nil {
			return err
		}
	}
	if t.saveDue() {
		t.noteReward()
		if err := t.save(); err != nil {
			return err
		}
	}
	if measured == nil {
		return nil
	}
	if err := t.Log.Metrics(t.step, measured.metrics); err != nil {
		return err
	}
	for _, s := range measured.samples {
		if err := t.Log.Sample(t.step, s.split, s.episode); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trainer) evalDue() bool {
	if t.step == 0 {
		return t.Config.EvalAtStart
	}
	return every(t.Config.EvalEvery, t.step) || t.step == t.Config.Steps && t.Config.EvalEvery > 0
}

func (t *Trainer) saveDue() bool {
	return t.newBest || t.step != t.saved && (every(t.Config.SaveEvery, t.step) || t.step == t.Config.Steps)
}

func every(n, step int) bool { return n > 0 && step%n == 0 }

// trainStep makes one step and logs it. On an error the step is not counted, and its questions come again.
func (t *Trainer) trainStep(ctx context.Context) error {
	cursor, updates := t.Cursor.State(), t.updates()
	stats, episodes, err := t.learnFromRollout(ctx, t.step+1)
	if err != nil {
		if t.updates() != updates {
			t.broken = fmt.Sprintf("step %d ended in the midst of its weight updates", t.step+1)
			err = fmt.Errorf("%w; the weights are halfway through step %d and were not saved", err, t.step+1)
		}
		if back := t.Cursor.Restore(cursor); back != nil {
			return fmt.Errorf("%w; %w", err, back)
		}
		return err
	}
	t.step++
	if err := t.Log.Metrics(t.step, stats); err != nil {
		return err
	}
	t.Report.Step(t.step, t.Config.Steps, stats)
	t.collapsed = ""
	for _, f := range t.alarm.see(t.step, stats) {
		t.Report.Warn(t.step, f.text)
		if f.collapse {
			t.collapsed = f.text
		}
	}
	return t.sample(episodes)
}

// updates counts all weight updates so far.
func (t *Trainer) updates() int { return t.Optimizer.Step() + t.criticStep() }

// criticStep counts those of the critic.
func (t *Trainer) criticStep() int {
	if t.Critic == nil {
		return 0
	}
	return t.Critic.Step()
}

// learnFromRollout is one step: questions, episodes, rewards, weight updates.
func (t *Trainer) learnFromRollout(ctx context.Context, step int) (Stats, []*episode.Episode, error) {
	start := time.Now()
	c, err := t.collect(ctx, step)
	if err != nil {
		return nil, nil, err
	}
	rolled := time.Since(start)
	device.Relieve()

	t.Report.Phase(step, t.Config.Steps, "training")
	rates := Rates{Policy: t.schedule(t.Config.LR).At(step), Critic: t.schedule(t.Config.CriticLR).At(step)}
	stats, err := t.Learner.UpdateAt(ctx, c.train, rates)
	if err != nil {
		return nil, nil, err
	}
	for name, value := range agent.Stats("train/", c.played) {
		stats[name] = value
	}
	addRewards(stats, c.played)
	if t.Config.DynamicSampling > 0 {
		c.addTo(stats)
	}
	if t.Config.FormatAnnealSteps > 0 {
		stats["train/format_factor"] = t.formatFactor(step)
	}
	total := time.Since(start)
	stats["train/skipped_prompts"] = float64(t.Rollouter.Skipped())
	stats["perf/rollout_sec"] = rolled.Seconds()
	stats["perf/train_sec"] = (total - rolled).Seconds()
	stats["perf/tokens_per_sec"] = float64(countTokens(c.played)) / total.Seconds()
	stats["perf/mem_gb"] = PeakMemoryGB()
	compiled, compiling := t.Policy.Program.Device().Compilations()
	stats["perf/compilations"], stats["perf/compile_sec"] = float64(compiled), compiling.Seconds()
	return stats, c.train, nil
}

func (t *Trainer) schedule(peak float64) Schedule {
	c := t.Config
	return Schedule{Peak: peak, Shape: c.LRSchedule, Warmup: c.WarmupSteps, Steps: c.Steps}
}

// sample logs the first and the last episode of the step every Config.SampleEvery steps, and shows the first.
func (t *Trainer) sample(episodes []*episode.Episode) error {
	if !every(t.Config.SampleEvery, t.step) || len(episodes) == 0 {
		return nil
	}
	t.Report.Sample(t.step, episodes[0])
	for _, e := range []*episode.Episode{episodes[0], episodes[len(episodes)-1]} {
		if err := t.Log.Sample(t.step, "train", e); err != nil {
			return err
		}
	}
	return nil
}

// save writes a checkpoint of the current step and prunes old ones.
func (t *Trainer) save() error {
	t.Report.Phase(t.step, t.Config.Steps, "saving")
	device.Relieve()
	if err := t.Log.Sync(); err != nil {
		return err
	}
	cursor := t.Cursor.State()
	state := checkpoint.RunState{
		Step: t.step, OptimizerStep: t.Optimizer.Step(), CriticStep: t.criticStep(), Seed: t.Config.Seed,
		Cursor:     checkpoint.Cursor{Epoch: cursor.Epoch, Position: cursor.Position, Size: cursor.Size},
		ConfigHash: t.Config.Hash(), Config: t.Config.Fingerprint(), Reference: t.Reference, Best: t.best,
	}
	dir, err := checkpoint.Save(t.Checkpoints, t.step, func(dir string) error {
		if err := SaveState(dir, t.Policy, t.Optimizer); err != nil {
			return err
		}
		if t.Critic != nil {
			if err := t.Critic.SaveState(dir); err != nil {
				return err
			}
		}
		return checkpoint.WriteState(dir, state)
	})
	if err != nil {
		t.broken = fmt.Sprintf("step %d could not be saved", t.step)
		return err
	}
	t.saved = t.step
	if t.newBest {
		if err := checkpoint.SetBest(t.Checkpoints, t.best.Step, t.best.Metric, t.best.Value); err != nil {
			return err
		}
		t.newBest = false
	}
	t.Report.Saved(dir)
	_, err = checkpoint.Prune(t.Checkpoints, t.Config.KeepLast, t.Config.KeepEvery)
	return err
}
