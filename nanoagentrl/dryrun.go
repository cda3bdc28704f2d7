package nanoagentrl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// DryRun drives everything that a config asks for with a two-layer untrained model and a world made in memory:
// rollouts, masks, rewards, updates, evaluation, checkpoints, an interruption and the resumption. It then checks that
// the interrupted run ended with the same weights as one that was not. Its files go into a temporary folder, which is
// removed.
func DryRun(ctx context.Context, cfg *config.Config, opts Options) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nanoagentrl-dry-run-")
	if err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	defer os.RemoveAll(dir)
	whole, err := dryPass(ctx, dryConfig(cfg, dir+"/whole"), opts, 0)
	if err != nil {
		return fmt.Errorf("dry run: %w", err)
	}
	quiet := Options{}
	if _, err := dryPass(ctx, dryConfig(cfg, dir+"/parts"), quiet, 2); err != nil {
		return fmt.Errorf("dry run, interrupted after two steps: %w", err)
	}
	parts, err := dryPass(ctx, dryConfig(cfg, dir+"/parts"), quiet, 0)
	if err != nil {
		return fmt.Errorf("dry run, resumed: %w", err)
	}
	if whole != parts {
		return errors.New("dry run: the run that was interrupted and resumed ended with other weights than the whole one")
	}
	if opts.Out != nil {
		fmt.Fprintln(opts.Out, "dry run  passed: rollout, reward, update, evaluation, checkpoint, resume (same weights)")
	}
	return nil
}

// drySteps is the number of training steps of a dry run.
const drySteps = 3

// dryConfig shrinks a config to a tiny model, tiny data and few tokens, and leaves the rest as it is.
func dryConfig(cfg *config.Config, dir string) *config.Config {
	c := *cfg
	c.RunDir, c.Model, c.Reference, c.Offline = dir, config.RandomModel, "base", true
	c.RandomLayers, c.RandomHidden, c.RandomHeads, c.RandomKVHeads, c.RandomIntermediate = 2, 32, 4, 2, 64
	c.TrainData, c.EvalData, c.Corpus, c.RetrieverURL = config.Tiny, []string{config.Tiny}, config.Tiny, ""
	c.PromptSource, c.ChatTemplate = "config", "never"
	c.PromptsPerStep, c.GroupSize = 2*c.Minibatches, min(c.GroupSize, 4)
	c.MaxTurns, c.MaxNewTokens, c.MaxTurnTokens, c.MaxObsTokens = min(c.MaxTurns, 3), 24, 8, 96
	c.MaxContext = 512
	c.RewardFormat = max(c.RewardFormat, 0.1) // an untrained model has no other reward
	c.Steps, c.WarmupSteps, c.LR = drySteps, min(c.WarmupSteps, 1), 1e-3
	c.EvalEvery, c.EvalAtStart, c.MaxEvalQuestions = 2, true, 4
	c.SampleEvery, c.SaveEvery, c.KeepLast = 2, 1, 2
	return &c
}

// dryPass trains to the end, or until stopAfter steps are done if that is not 0, and returns the hash of the weights.
func dryPass(ctx context.Context, cfg *config.Config, opts Options, stopAfter int) (hash string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stopAfter > 0 {
		opts.Reporter = stopper{learn.NewConsole(io.Discard, false), stopAfter, cancel}
	}
	r, err := Open(ctx, cfg, opts)
	if err != nil {
		return "", err
	}
	defer r.Close()
	err = r.Train(ctx)
	if stopAfter > 0 && errors.Is(err, context.Canceled) && r.Trainer.Step() == stopAfter {
		err = nil
	}
	if err != nil {
		return "", err
	}
	return r.Policy.Hash()
}

// stopper cancels a run after a number of steps.
type stopper struct {
	*learn.Console
	after  int
	cancel context.CancelFunc
}

// Step implements learn.Reporter.
func (s stopper) Step(step, _ int, _ learn.Stats) {
	if step == s.after {
		s.cancel()
	}
}
