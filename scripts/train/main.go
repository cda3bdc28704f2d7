// Command train trains a policy as a config file says, goes on with a run that was interrupted, evaluates one, or tries
// the whole pipeline in seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

const usage = `Train a language model with GRPO to search and answer, or to solve maths problems.

Usage:
  go run ./scripts/train --config FILE [--run_dir DIR] [--set key=value ...]
  go run ./scripts/train --config FILE --dry_run
  go run ./scripts/train --config FILE --eval_only [--ckpt base|DIR]

Examples:
  go run ./scripts/train --config configs/quickstart.yaml
  go run ./scripts/train --config configs/search_smollm2_cpu.yaml \
      --set model=models/SmolLM2-135M-Instruct.gguf --set train_data=my/qa.jsonl --set corpus=my/corpus.jsonl
  go run ./scripts/train --config configs/gsm8k_qwen05b_t4.yaml --dry_run --set backend=auto
  go run ./scripts/train --config configs/quickstart.yaml --eval_only --ckpt runs/quickstart/checkpoints/step-000004

Running the same command again goes on from the last checkpoint of the run folder. Ctrl-C saves and stops; a second
Ctrl-C stops at once.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "train: interrupted; the same command goes on from the last checkpoint")
		os.Exit(130)
	default:
		fmt.Fprintf(os.Stderr, "train: %v\n", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("train", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { fmt.Fprintf(os.Stderr, "%s%s", usage, flags.FlagUsages()) }
	settings := config.AddFlags(flags)
	dry := flags.Bool("dry_run", false, "try everything with a tiny untrained model and a world made in memory")
	evalOnly := flags.Bool("eval_only", false, "evaluate instead of training")
	ckpt := flags.String("ckpt", "base", "with --eval_only: the checkpoint folder to evaluate, or base for the config's model")
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
		fmt.Printf("set      %s\n", change)
	}
	opts := nanoagentrl.Options{Out: os.Stdout, Terminal: term.IsTerminal(int(os.Stdout.Fd()))}
	if *dry {
		return nanoagentrl.DryRun(ctx, cfg, opts)
	}
	opts.EvalOnly, opts.Checkpoint = *evalOnly, *ckpt
	r, err := nanoagentrl.Open(ctx, cfg, opts)
	if err != nil {
		return err
	}
	defer r.Close()
	if *evalOnly {
		_, err := r.Evaluate(ctx)
		return err
	}
	if err := r.Train(ctx); err != nil {
		return err
	}
	fmt.Printf("done     %d steps; metrics, samples and checkpoints are in %s\n", r.Trainer.Step(), cfg.RunDir)
	return nil
}
