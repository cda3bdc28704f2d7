// Command train trains a policy as a config file says, goes on with a run that was interrupted, evaluates one, or tries
// the whole pipeline in seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes: 3 is a run that stop_on_collapse ended, 130 is what shells give to a program that Ctrl-C ended.
const exitOK, exitFault, exitCollapsed, exitInterrupted = 0, 2, 3, 130

// command runs the program with the given arguments and returns its exit code.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	err := run(ctx, args, out)
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return exitOK
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(errOut, "train: interrupted; the same command goes on from the last checkpoint")
		return exitInterrupted
	case errors.Is(err, learn.ErrCollapsed):
		fmt.Fprintf(errOut, "train: %v\n", err)
		return exitCollapsed
	default:
		fmt.Fprintf(errOut, "train: %v\n", err)
		return exitFault
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	ignoreFileSizeSignal()
	flags := pflag.NewFlagSet("train", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { fmt.Fprintf(out, "%s%s", usage, flags.FlagUsages()) }
	settings := config.AddFlags(flags)
	dry := flags.Bool("dry_run", false, "try everything with a tiny untrained model and a world made in memory")
	evalOnly := flags.Bool("eval_only", false, "evaluate instead of training")
	ckpt := flags.String("ckpt", "base", "with --eval_only: what to evaluate: base for the config's model, last or best of the run folder, or a folder")
	profile := flags.Bool("profile", false, "write to standard error, at the end, where the device's time went")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; settings are changed with --set key=value", flags.Arg(0))
	}
	if *evalOnly && *dry {
		return errors.New("--dry_run and --eval_only exclude each other")
	}
	if flags.Changed("ckpt") && !*evalOnly {
		return errors.New("--ckpt only goes with --eval_only; a run resumes from its run_dir by itself")
	}
	cfg, changes, err := settings.Open()
	if err != nil {
		return err
	}
	for _, change := range changes {
		fmt.Fprintf(out, "set      %s\n", change)
	}
	opts := nanoagentrl.Options{Out: out, Terminal: isTerminal(out)}
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
	if err := r.Train(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "done     %d steps; metrics, samples and checkpoints are in %s\n", r.Trainer.Step(), cfg.RunDir)
	return nil
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
