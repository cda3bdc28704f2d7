package warmstart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// The files beside the model.
const (
	// RecipeName holds the recipe as it was resolved, ResultName the Result.
	RecipeName = "recipe.yaml"
	ResultName = "warmstart.json"
	// ResumeName is the folder of what an interrupted training goes on from.
	ResumeName = "resume"

	progressName = "progress.json"
)

// Result is what a warm start came to.
type Result struct {
	// Device is where it was made, Updates, Tokens and Seconds what it took, evaluation not included.
	Device  string  `json:"device"`
	Updates int     `json:"updates"`
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
	// WeightBytes is the size of the saved weights.
	WeightBytes int64         `json:"weight_bytes"`
	Stages      []StageResult `json:"stages"`
	// Eval holds the measurements of the saved model.
	Eval []Measurement `json:"eval"`
}

// YAML returns all settings of the recipe as a file that Open reads.
func (r *Recipe) YAML() ([]byte, error) {
	text, err := yaml.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("warm start: writing the recipe: %w", err)
	}
	return text, nil
}

// suspend keeps what is needed to go on.
func (t *trainer) suspend(dir string) error {
	_, err := checkpoint.Save(resumeDir(dir), t.Updates, func(dir string) error {
		if err := learn.SaveState(dir, t.policy, t.optimizer); err != nil {
			return err
		}
		return writeJSON(filepath.Join(dir, progressName), t.progress)
	})
	if err != nil {
		return fmt.Errorf("warm start: keeping the interrupted training: %w", err)
	}
	_, err = checkpoint.Prune(resumeDir(dir), 1, 0)
	return err
}

// resume goes on where an interrupted training with the same recipe was left.
func (t *trainer) resume(ctx context.Context, opts Options) error {
	found, err := checkpoint.Latest(resumeDir(opts.Dir))
	if errors.Is(err, os.ErrNotExist) || err == nil && found.Dir == "" {
		return nil
	}
	if err != nil {
		return err
	}
	var p progress
	text, err := os.ReadFile(filepath.Join(found.Dir, progressName))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return fmt.Errorf("warm start: %s: %w", found.Dir, err)
	}
	if p.Recipe != t.Recipe {
		return fmt.Errorf("warm start: %s was left by a training with another recipe (%s); take another folder, or "+
			"delete it", resumeDir(opts.Dir), firstDifference(p.Recipe, t.Recipe))
	}
	if err := learn.LoadState(ctx, found.Dir, t.policy, t.optimizer, p.Updates); err != nil {
		return err
	}
	t.progress = p
	t.show.tokens, t.show.seconds = p.TotalTokens, p.Seconds
	fmt.Fprintf(opts.Out, "resume   from update %d, %s\n", p.Updates, found.Dir)
	return nil
}

// firstDifference shows the first line in which two texts differ.
func firstDifference(before, after string) string {
	b, a := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range min(len(b), len(a)) {
		if b[i] != a[i] {
			return fmt.Sprintf("%q, now %q", strings.TrimSpace(b[i]), strings.TrimSpace(a[i]))
		}
	}
	return "one of them is longer"
}

// finish saves the model, measures what was saved, and writes the result.
func (t *trainer) finish(ctx context.Context, dev *device.Device, opts Options) (*Result, error) {
	size, err := t.save(opts.Dir)
	if err != nil {
		return nil, err
	}
	result := &Result{Device: dev.String(), Updates: t.Updates, Tokens: t.TotalTokens,
		Seconds: float64(time.Duration(t.Seconds*1e9).Round(time.Second)) / 1e9, WeightBytes: size, Stages: t.Stages}
	saved, err := t.policy.WithWeights(ctx, opts.Dir, policy.Options{})
	if err != nil {
		return nil, err
	}
	defer saved.Free()
	if result.Eval, err = Evaluate(ctx, saved, t.recipe, opts.Out); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(opts.Dir, ResultName), result); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(resumeDir(opts.Dir)); err != nil {
		return nil, fmt.Errorf("warm start: %w", err)
	}
	return result, nil
}

// save writes model, tokenizer and recipe, and returns the size of the weights.
func (t *trainer) save(dir string) (int64, error) {
	opts := weights.SaveOptions{DType: weights.DType(strings.ToUpper(t.recipe.SaveDType))}
	if err := weights.SaveFolder(dir, *t.policy.Program.Config(), t.policy.Params.Host, opts); err != nil {
		return 0, err
	}
	if err := t.policy.Tokenizer.Save(dir); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, RecipeName), []byte(t.Recipe), 0o644); err != nil {
		return 0, fmt.Errorf("warm start: %w", err)
	}
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return 0, fmt.Errorf("warm start: %w", err)
	}
	if info.Size() > int64(t.recipe.MaxBytes) {
		return 0, fmt.Errorf("warm start: the weights take %d bytes, more than max_bytes (%d); make the model smaller",
			info.Size(), t.recipe.MaxBytes)
	}
	return info.Size(), nil
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("warm start: %s: %w", path, err)
	}
	return nil
}
