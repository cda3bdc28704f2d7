package nanoagentrl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// DryRun drives everything that a config asks for with a two-layer untrained model and a world made in memory:
// rollouts, masks, rewards, updates, evaluation, checkpoints, an interruption and the resumption. It then checks that
// the interrupted run ended with the same weights as one that was not. A backend that this machine does not have is
// replaced by the best there is. Files go into a temporary folder, which is removed.
func DryRun(ctx context.Context, cfg *config.Config, opts Options) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	dir, err := os.MkdirTemp("", "nanoagentrl-dry-run-")
	if err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	defer os.RemoveAll(dir)
	small := dryConfig(cfg)
	if dev, err := device.Open(small.Backend); err == nil {
		dev.Close()
	} else {
		fmt.Fprintf(opts.Out, "dry run  with backend auto: %v\n", err)
		small.Backend = string(device.Auto)
	}
	in := func(name string) *config.Config {
		c := *small
		c.RunDir = filepath.Join(dir, name)
		return &c
	}
	first, err := dryPass(ctx, in("whole"), opts, 0)
	if err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	defer first.Close()
	quiet := Options{Reporter: learn.NewConsole(io.Discard, false), Device: first.Device}
	second, err := dryPass(ctx, in("parts"), quiet, dryStop)
	if err != nil {
		return fmt.Errorf("dry run, interrupted after %d steps: %w", dryStop, err)
	}
	second.Close()
	third, err := dryPass(ctx, in("parts"), quiet, 0)
	if err != nil {
		return fmt.Errorf("dry run, resumed: %w", err)
	}
	defer third.Close()
	difference, err := maxDifference(first.Policy, third.Policy)
	if err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	if !(difference <= sameWeights(first.Device.Kind)) {
		return fmt.Errorf("dry run: the run that was interrupted and resumed ended with other weights than the whole one "+
			"(by up to %.2g)", difference)
	}
	fmt.Fprintln(opts.Out, "dry run  passed: rollout, reward, update, evaluation, checkpoint, resume (same weights)")
	return nil
}

// drySteps is the number of training steps of a dry run, dryStop the one after which it is interrupted.
const drySteps, dryStop = 3, 2

// dryConfig shrinks a config to a tiny model, tiny data and few tokens, and leaves the rest as it is.
func dryConfig(cfg *config.Config) *config.Config {
	c := *cfg
	c.Model, c.Reference, c.Offline = config.RandomModel, "base", true
	c.RandomLayers, c.RandomHidden, c.RandomHeads, c.RandomKVHeads, c.RandomIntermediate = 2, 32, 2, 1, 32
	c.TrainData, c.EvalData, c.Corpus, c.RetrieverURL = config.Tiny, []string{config.Tiny}, config.Tiny, ""
	c.OpenSearchURL, c.OpenSearchIndex = "", ""
	c.PromptSource, c.ChatTemplate = "config", "never"
	c.PromptsPerStep, c.GroupSize = 2*c.Minibatches, 2
	if c.Task == "gsm8k" {
		c.GroupSize = 8 // One guess in many is right, and its reward has no other parts.
	}
	c.MaxTurns, c.MaxNewTokens, c.MaxTurnTokens, c.MaxObsTokens = min(c.MaxTurns, 3), 24, 8, 48
	c.OverlongBuffer = min(c.OverlongBuffer, c.MaxNewTokens)
	c.MaxContext = max(2048, c.MaxContext)    // whatever the prompt
	c.RewardFormat = max(c.RewardFormat, 0.1) // so that untrained episodes differ in reward
	c.Steps, c.WarmupSteps, c.LR = drySteps, min(c.WarmupSteps, 1), 1e-3
	c.EvalEvery, c.EvalAtStart, c.MaxEvalQuestions, c.BestMetric = 2, true, 2, "eval/em"
	c.SampleEvery, c.SaveEvery, c.KeepLast = 2, 1, 2
	c.Showcase, c.Figure = false, config.NoFigure
	return &c
}

// sameWeights is how far the weights of two equal runs may lie apart: pure Go repeats itself to the last bit, XLA may add
// up in another order.
func sameWeights(kind device.Kind) float64 {
	if kind == device.Go {
		return 0
	}
	return 1e-6
}

// maxDifference returns the largest difference between two weights at the same place.
func maxDifference(a, b *policy.Policy) (difference float64, err error) {
	for _, name := range a.Params.Names() {
		x, err := a.Params.Host(name)
		if err != nil {
			return 0, err
		}
		y, err := b.Params.Host(name)
		if err != nil {
			return 0, err
		}
		for i := range x {
			difference = max(difference, math.Abs(float64(x[i])-float64(y[i]))) // NaN stays
		}
	}
	return difference, nil
}

// dryPass trains to the end, or until stopAfter steps are done if that is not 0, and returns the run, which the caller
// closes.
func dryPass(ctx context.Context, cfg *config.Config, opts Options, stopAfter int) (r *Run, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stopAfter > 0 {
		opts.Reporter = &stopper{opts.Reporter, stopAfter, cancel}
	}
	if r, err = Open(ctx, cfg, opts); err != nil {
		return nil, err
	}
	err = r.Train(ctx)
	if stopAfter > 0 && errors.Is(err, context.Canceled) && r.Trainer.Step() == stopAfter {
		err = nil
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// stopper cancels a run after a number of steps.
type stopper struct {
	learn.Reporter
	after  int
	cancel context.CancelFunc
}

// Step implements learn.Reporter.
func (s *stopper) Step(step, steps int, stats learn.Stats) {
	s.Reporter.Step(step, steps, stats)
	if step == s.after {
		s.cancel()
	}
}
