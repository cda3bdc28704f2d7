package nanoagentrl

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// resume goes on from the newest complete checkpoint, if there is one.
func (r *Run) resume(ctx context.Context, t *learn.Trainer) error {
	cleaned, err := checkpoint.Clean(t.Checkpoints)
	if err != nil {
		return err
	}
	for _, name := range cleaned {
		fmt.Fprintf(r.opts.Out, "resume   removed %s, which a killed run had left behind\n", name)
	}
	found, err := checkpoint.Latest(t.Checkpoints)
	if err != nil {
		return err
	}
	for _, p := range found.PassedOver {
		fmt.Fprintf(r.opts.Out, "resume   passed over %s: %v\n", p.Dir, p.Err)
	}
	if found.Dir == "" {
		if len(found.PassedOver) > 0 {
			fmt.Fprintf(r.opts.Out, "resume   no checkpoint in %s is whole: the run starts anew\n", t.Checkpoints)
		}
		return nil
	}
	state, err := checkpoint.ReadState(found.Dir)
	if err != nil {
		return err
	}
	if err := state.CheckResume(r.Config, t.Reference); err != nil {
		return err
	}
	place := data.CursorState{Epoch: state.Cursor.Epoch, Position: state.Cursor.Position, Size: state.Cursor.Size}
	err = t.Cursor.Restore(place)
	if err != nil {
		return err
	}
	if err := learn.LoadState(ctx, found.Dir, r.Policy, r.optimizer, state.OptimizerStep); err != nil {
		return err
	}
	if t.Critic != nil {
		if err := t.Critic.LoadState(found.Dir, state.CriticStep); err != nil {
			return err
		}
	}
	t.Resume(state.Step, state.Best)
	if state.Best != nil && state.Best.Step == state.Step {
		if err := checkpoint.SetBest(t.Checkpoints, state.Best.Step, state.Best.Metric, state.Best.Value); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.opts.Out, "resume   from step %d, %s\n", state.Step, found.Dir)
	return nil
}

// finishEval puts the wanted weights into the policy.
func (r *Run) finishEval(ctx context.Context) error {
	dir, err := r.wanted()
	if err != nil {
		return fmt.Errorf("checkpoint to evaluate: %w", err)
	}
	if dir != "" {
		if err := r.loadCheckpoint(ctx, dir); err != nil {
			return fmt.Errorf("checkpoint to evaluate: %w", err)
		}
		fmt.Fprintf(r.opts.Out, "weights  from %s\n", dir)
	}
	r.generator = r.Policy.Generator(r.Config.RolloutBatch)
	return nil
}

// wanted returns the folder that Options.Checkpoint means, "" for the config's own model.
func (r *Run) wanted() (string, error) {
	root := filepath.Join(r.Config.RunDir, "checkpoints")
	switch r.opts.Checkpoint {
	case "", "base":
		return "", nil
	case "last":
		found, err := checkpoint.Latest(root)
		if err == nil && found.Dir == "" {
			err = fmt.Errorf("there is none in %s", root)
		}
		return found.Dir, err
	case "best":
		_, dir, ok, err := checkpoint.Best(root)
		if err == nil && !ok {
			err = fmt.Errorf("none in %s is marked as the best", root)
		}
		return dir, err
	default:
		return r.opts.Checkpoint, nil
	}
}

// loadCheckpoint replaces the policy's weights by those in a folder. One of ours is read through first; a folder without
// a manifest is taken for a model from elsewhere.
func (r *Run) loadCheckpoint(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, checkpoint.ManifestName)); err == nil {
		if err := checkpoint.Verify(dir); err != nil {
			return err
		}
		state, err := checkpoint.ReadState(dir)
		if err != nil {
			return err
		}
		r.evalStep = state.Step
	}
	loaded, err := r.Policy.WithWeights(ctx, dir, policy.Options{})
	if err != nil {
		return err
	}
	r.Policy.Free()
	r.Policy = loaded
	return nil
}
