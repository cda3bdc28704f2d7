// Command setup_notebooks sets up what the notebooks need: the GoNB kernel and Jupyter.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/notebook/kernel"
)

const usage = `Sets up what the notebooks need, in pinned versions:
  1. builds the kernel program gonb and goimports from source, with go install;
  2. makes a Python environment with Jupyter, with pip;
  3. writes the description of the kernel into your Jupyter data folder, where every Jupyter of yours finds it;
  4. builds the project's packages, so that the first cell need not wait for the compiler.
1 and 2 go into a folder of their own; nothing else is changed. What is there already is left alone.

Usage: go run ./scripts/setup_notebooks [options]

Examples:
  go run ./scripts/setup_notebooks            # says what it does, and at the end how to open the notebooks
  go run ./scripts/setup_notebooks --check    # only tells what is there
  go run ./scripts/setup_notebooks --no_lab   # without JupyterLab: to run notebooks, or if you have a Jupyter

Options:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit status: 0, 1 if something is missing, 2 for bad input.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("setup_notebooks", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.SortFlags = false
	flags.SetNormalizeFunc(config.NormalizeFlag)
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsages()) }
	check := flags.Bool("check", false, "tell what is there, and change nothing")
	noLab := flags.Bool("no_lab", false, "leave JupyterLab out")
	folder := flags.String("folder", "", "folder of the programs and of the Python environment "+
		"(default: in your cache folder)")
	python := flags.String("python", "python3", "the Python that makes the environment")
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "setup_notebooks: %v\n", err)
		return code
	}
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil {
		return fail(2, fmt.Errorf("%w; see --help", err))
	}
	if flags.NArg() > 0 {
		return fail(2, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0)))
	}
	s, err := kernel.Default(ctx)
	if err != nil {
		return fail(1, err)
	}
	s.Lab, s.Python = !*noLab, *python
	if *folder != "" {
		if s.Folder, err = filepath.Abs(*folder); err != nil {
			return fail(2, err)
		}
	}
	if *check {
		return report(ctx, s, stdout)
	}
	if err := s.Install(ctx, stdout); err != nil {
		return fail(1, err)
	}
	if s.Lab {
		fmt.Fprintf(stdout, "Next: %s lab notebooks\n", s.Jupyter())
	} else {
		fmt.Fprintf(stdout, "Next: go run ./scripts/run_notebooks\n")
	}
	return 0
}

// report tells what is there.
func report(ctx context.Context, s *kernel.Setup, stdout io.Writer) int {
	code := 0
	for _, part := range s.Parts(ctx) {
		if part.Err == nil {
			fmt.Fprintf(stdout, "ok       %s\n         in %s\n", part.Name, part.Where)
			continue
		}
		code = 1
		fmt.Fprintf(stdout, "missing  %s\n         in %s: %v\n", part.Name, part.Where, part.Err)
	}
	if code != 0 {
		fmt.Fprintln(stdout, "To install what is missing: go run ./scripts/setup_notebooks")
	}
	return code
}
