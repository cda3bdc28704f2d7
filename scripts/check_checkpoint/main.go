// Command check_checkpoint makes checkpoints as the train command does, and writes beside each what our code says about
// it. check.py, in the same folder, opens them with Python's libraries and compares.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Makes checkpoints, each by one step of training from another kind of model, and writes what our code says
about them: the contents of every tensor, log-probabilities, the five likeliest next tokens, token ids and rendered
chats. check.py then opens them with Python's transformers and compares.

Usage: go run ./scripts/check_checkpoint --out DIR [options]

Examples:
  go run ./scripts/check_checkpoint --out ckpt       # three tiny models of random weights; pure Go is enough
  go run ./scripts/check_checkpoint --out ckpt --model models/SmolLM2-135M-Instruct.Q4_1.gguf \
      --tokenizer models/qwen2.5-coder-0.5b-instruct.gguf
  python3 scripts/check_checkpoint/check.py ckpt             # needs torch and transformers
  python3 scripts/check_checkpoint/check.py ckpt tensors     # only weights; needs numpy and safetensors

Options:
`

func main() {
	cli.Main(run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Code("check_checkpoint", makeAll(ctx, args, stdout), "", stderr)
}

func makeAll(ctx context.Context, args []string, stdout io.Writer) error {
	flags := cli.Flags("check_checkpoint", usage, stdout)
	out := flags.String("out", "", "folder for the checkpoints, which must not exist or be empty")
	tokenizers := flags.StringArray("tokenizer", nil, "pretrained model whose kind and tokenizer one more tiny model "+
		"gets, a GGUF file or a Hugging Face folder; may be given several times")
	models := flags.StringArray("model", nil, "pretrained model to start one more checkpoint from")
	set := flags.StringArray("set", nil, "override a setting of the training runs, key=value; may be given several "+
		"times")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *out == "" {
		return errors.New("give the folder for the checkpoints with --out")
	}
	if err := checkEmpty(*out); err != nil {
		return err
	}
	list, err := subjects(*tokenizers, *models)
	if err != nil {
		return err
	}
	for _, s := range list {
		fmt.Fprintf(stdout, "==> %s\n", s.name)
		if err := s.make(ctx, *out, *set, stdout); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// checkEmpty returns an error if dir holds anything: a run found there would be resumed instead of made.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--out: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("--out %s is not empty; give a new folder", dir)
	}
	return nil
}

// minShift is the smallest change of a log-probability, in nats, that the training step must make somewhere: two
// hundred times what check.py tolerates, so that a checkpoint with the weights from before the step does not pass.
const minShift = 0.1

// make trains one step in out/NAME and writes out/NAME/expected.json. The log-probabilities are those of the policy in
// memory, which never sees what was saved.
func (s subject) make(ctx context.Context, out string, overrides []string, log io.Writer) error {
	dir := filepath.Join(out, s.name)
	settings, err := s.settings(dir)
	if err != nil {
		return err
	}
	cfg := config.Default()
	if _, err := cfg.SetAll(append(append(settings, "run_dir="+dir), overrides...)); err != nil {
		return err
	}
	r, err := nanoagentrl.Open(ctx, cfg, nanoagentrl.Options{Out: log})
	if err != nil {
		return err
	}
	defer r.Close()
	sequences := probes(r.Policy)
	before, err := logProbs(r.Policy, sequences)
	if err != nil {
		return err
	}
	if err := r.Train(ctx); err != nil {
		return err
	}
	expected, err := expect(r.Policy, sequences)
	if err != nil {
		return err
	}
	if expected.Shift = largestShift(before, expected.Sequences); expected.Shift < minShift {
		return fmt.Errorf("the training step changed the log-probabilities by at most %.3g, want %g: had it any "+
			"signal? Try another seed: --set seed=N", expected.Shift, minShift)
	}
	fmt.Fprintf(log, "moved    log-probabilities by up to %.2g nats in one step\n", expected.Shift)
	expected.Checkpoint = filepath.ToSlash(filepath.Join("checkpoints", checkpoint.Name(r.Trainer.Step())))
	return writeJSON(filepath.Join(dir, "expected.json"), expected)
}
