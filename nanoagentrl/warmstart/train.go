package warmstart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// Options are what a warm start needs beside its recipe.
type Options struct {
	// Dir receives the model and, while it is not finished, what is needed to go on.
	Dir string
	// Out receives the progress; nil drops it. Terminal says that a line of it can be overwritten.
	Out      io.Writer
	Terminal bool
	// Profile receives, at the end, where the device's time went; nil drops it.
	Profile io.Writer
}

// progress is where a training stands; it is all that is kept of it beside weights and moments.
type progress struct {
	// Stage counts from 0; Batches and Tokens are those of the stage.
	Stage   int `json:"stage"`
	Batches int `json:"batches"`
	Tokens  int `json:"tokens"`
	// Updates and TotalTokens are those of all stages, Seconds the time spent on them.
	Updates     int     `json:"updates"`
	TotalTokens int     `json:"total_tokens"`
	Seconds     float64 `json:"seconds"`
	// Recent holds the accuracies of the last batches of the stage that had values.
	Recent []float64 `json:"recent"`
	// Recipe is the recipe the training follows.
	Recipe string `json:"recipe"`
	// Stages are the outcomes of the finished stages.
	Stages []StageResult `json:"stages"`
}

// StageResult is how a stage ended.
type StageResult struct {
	Name    string `json:"name"`
	Batches int    `json:"batches"`
	Tokens  int    `json:"tokens"`
	// Right is the share of values that were right in the last batches, before they were trained on; -1 if they had
	// none.
	Right float64 `json:"right"`
	// Reached says whether Stage.Until ended the stage.
	Reached bool `json:"reached"`
}

// window is the number of batches that Stage.Until looks at.
const window = 10

// trainer makes weight updates from the batches of a recipe.
type trainer struct {
	recipe    *Recipe
	policy    *policy.Policy
	optimizer *learn.AdamW
	source    *source
	progress
	show *display
}

// Train makes a warm start and saves it into opts.Dir as a Hugging Face folder, with the recipe and the results beside
// it. If ctx ends, what was learned so far is kept there, the error wraps ctx.Err(), and calling Train again with the
// same recipe and folder goes on.
func Train(ctx context.Context, r *Recipe, opts Options) (*Result, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	dev, err := device.Open(r.Backend)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	fmt.Fprintf(opts.Out, "device   %s\n", dev)
	if opts.Profile != nil {
		defer dev.WriteProfile(opts.Profile)
	}
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("warm start: %w", err)
	}
	t, err := newTrainer(dev, r)
	if err != nil {
		return nil, err
	}
	defer t.free()
	t.policy.Describe(opts.Out)
	t.show = newDisplay(opts.Out, opts.Terminal, r)
	if err := t.resume(ctx, opts); err != nil {
		return nil, err
	}
	if err := t.run(ctx); err != nil {
		if ctx.Err() == nil {
			return nil, err
		}
		return nil, errors.Join(err, t.suspend(opts.Dir))
	}
	return t.finish(ctx, dev, opts)
}

func newTrainer(dev *device.Device, r *Recipe) (*trainer, error) {
	tok, err := Tokenizer(r.Task)
	if err != nil {
		return nil, err
	}
	text, err := r.YAML()
	if err != nil {
		return nil, err
	}
	t := &trainer{recipe: r, source: newSource(r, tok), show: newDisplay(io.Discard, false, r)}
	t.progress.Recipe = string(text)
	if t.policy, err = NewPolicy(dev, r); err != nil {
		return nil, err
	}
	o := r.Optimizer
	t.optimizer = learn.NewAdamW(dev, len(t.policy.Params.Names()), learn.AdamWOptions{Beta1: o.Beta1, Beta2: o.Beta2,
		Eps: 1e-8, WeightDecay: o.WeightDecay, MaxGradNorm: o.MaxGradNorm})
	return t, nil
}

func (t *trainer) free() {
	t.optimizer.Free()
	t.policy.Free()
}

// run goes through the stages that are left.
func (t *trainer) run(ctx context.Context) error {
	defer t.show.clear()
	for ; t.Stage < len(t.recipe.Stages); t.Stage++ {
		stage := &t.recipe.Stages[t.Stage]
		reached := false
		for t.Tokens < stage.Tokens && !reached {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("warm start: %w", err)
			}
			start := time.Now()
			s, norm, err := t.step(ctx, stage)
			if err != nil {
				return err
			}
			t.Seconds += time.Since(start).Seconds()
			if t.see(s); len(t.Recent) == window && stage.Until > 0 {
				reached = mean(t.Recent) >= stage.Until
			}
			t.show.step(t, s, norm)
		}
		result := StageResult{stage.Name, t.Batches, t.Tokens, round(mean(t.Recent)), reached}
		t.Stages = append(t.Stages, result)
		t.show.stage(t, result)
		t.Batches, t.Tokens, t.Recent = 0, 0, nil
	}
	return nil
}

// see keeps the accuracy of a batch, if it had values.
func (t *trainer) see(s *score) {
	if s.values == 0 {
		return
	}
	t.Recent = append(t.Recent, s.accuracy())
	t.Recent = t.Recent[max(0, len(t.Recent)-window):]
}

// mean is NaN for an empty list.
func mean(list []float64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return sum / float64(len(list))
}

// round keeps four decimals, and makes NaN, which JSON does not have, -1.
func round(v float64) float64 {
	if math.IsNaN(v) {
		return -1
	}
	return math.Round(v*1e4) / 1e4
}

// rate is the learning rate of the next update.
func (t *trainer) rate(stage *Stage) float64 {
	done := float64(t.Tokens) / float64(stage.Tokens)
	lr := stage.LRFrom + (stage.LRTo-stage.LRFrom)*done
	if warmup := t.recipe.Optimizer.WarmupSteps; t.Updates < warmup {
		lr *= float64(t.Updates+1) / float64(warmup)
	}
	return lr
}

// step makes one weight update: the mean of -log p over the policy's tokens of a batch goes down. The score is that of
// the weights before.
func (t *trainer) step(ctx context.Context, stage *Stage) (*score, float64, error) {
	examples, err := t.source.batch(ctx, t.Stage, t.Batches)
	if err != nil {
		return nil, 0, err
	}
	parts, err := cut(examples)
	if err != nil {
		return nil, 0, err
	}
	wanted := 0
	for _, p := range parts {
		wanted += p.batch.Wanted
	}
	grads := nn.NewGradients(t.policy.Program.Config())
	defer grads.Free()
	s := &score{}
	for _, p := range parts {
		weights := make([]float32, p.batch.Wanted)
		for i := range weights {
			weights[i] = 1 / float32(wanted)
		}
		outcome, err := t.policy.Program.Backward(t.policy.Params, p.batch, 1, nn.NegativeLogLikelihood(weights), grads)
		if err != nil {
			return nil, 0, err
		}
		s.add(p, outcome.LogProbs)
		t.Tokens += p.tokens
		t.TotalTokens += p.tokens
	}
	norm, err := t.optimizer.Apply(t.policy.Params, grads, t.rate(stage))
	if err != nil {
		return nil, 0, fmt.Errorf("warm start, stage %s, update %d: %w", stage.Name, t.Updates+1, err)
	}
	t.Batches++
	t.Updates++
	return s, norm, nil
}

func resumeDir(dir string) string { return filepath.Join(dir, ResumeName) }
