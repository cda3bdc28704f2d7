// Command train trains a policy as a config file says, goes on with a run that was interrupted, evaluates one, or tries
// the whole pipeline in seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Train a language model with reinforcement learning to search and answer, or to solve maths problems.

Usage:
  go run ./scripts/train --config FILE [--run_dir DIR] [--set key=value ...]
  go run ./scripts/train --config FILE --dry_run
  go run ./scripts/train --config FILE --eval_only [--ckpt base|last|best|DIR]

Examples:
  go run ./scripts/train --config configs/quickstart.yaml
  go run ./scripts/train --config configs/search_smollm2_cpu.yaml \
      --set model=models/SmolLM2-135M-Instruct.gguf --set train_data=my/qa.jsonl --set corpus=my/corpus.jsonl
  go run ./scripts/train --config configs/gsm8k_qwen05b_t4.yaml --dry_run
  go run ./scripts/train --config configs/quickstart.yaml --eval_only --ckpt best

Running the same command again goes on from the last checkpoint of the run folder. Ctrl-C saves and stops; a second
Ctrl-C stops at once.

Flags:
`

func main() {
	cli.Main(command)
}

// exitCollapsed is the exit code of a run that stop_on_collapse ended.
const exitCollapsed = 3

// command runs the program with the given arguments and returns its exit code.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	var saved string
	err := run(ctx, args, out, &saved)
	if errors.Is(err, learn.ErrCollapsed) {
		err = cli.WithCode(exitCollapsed, err)
	}
	return cli.Code("train", err, saved, errOut)
}

// run sets saved, once there is something to go on with, to what an interrupted user should know.
func run(ctx context.Context, args []string, out io.Writer, saved *string) error {
	ignoreFileSizeSignal()
	flags := cli.Flags("train", usage, out)
	settings := config.AddFlags(flags)
	dry := flags.Bool("dry_run", false, "try everything with a tiny untrained model and a world made in memory")
	evalOnly := flags.Bool("eval_only", false, "evaluate instead of training")
	ckpt := flags.String("ckpt", "base", "with --eval_only: what to evaluate: base for the config's model, last or best of the run folder, or a folder")
	profile := flags.Bool("profile", false, "write to standard error, at the end, where the device's time went")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *evalOnly && *dry {
		return errors.New("--dry_run and --eval_only exclude each other")
	}
	if flags.Changed("ckpt") && !*evalOnly {
		return errors.New("--ckpt only goes with --eval_only; a run resumes from its run_dir by itself")
	}
	if *ckpt == "" {
		return errors.New("--ckpt is empty; give base, last, best or the folder of a checkpoint")
	}
	cfg, changes, err := settings.Open()
	if err != nil {
		return err
	}
	for _, change := range changes {
		fmt.Fprintf(out, "set      %s\n", change)
	}
	opts := nanoagentrl.Options{Out: out, Terminal: cli.IsTerminal(out)}
	if *dry {
		return nanoagentrl.DryRun(ctx, cfg, opts)
	}
	opts.EvalOnly, opts.Checkpoint = *evalOnly, *ckpt
	r, err := nanoagentrl.Open(ctx, cfg, opts)
	if err != nil {
		return err
	}
	defer r.Close()
	if *profile {
		defer r.Device.WriteProfile(os.Stderr)
	}
	if *evalOnly {
		_, err := r.Evaluate(ctx)
		return err
	}
	err = r.Train(ctx)
	if step := r.Trainer.Saved(); step > 0 {
		*saved = fmt.Sprintf("the same command goes on after step %d", step)
	} else {
		*saved = "no step was done yet; the same command starts again"
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "done     %d steps; metrics, samples and checkpoints are in %s\n", r.Trainer.Step(), cfg.RunDir)
	return nil
}
