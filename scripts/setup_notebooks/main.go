// Command setup_notebooks sets up what the notebooks need: the GoNB kernel and Jupyter.
package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/notebook/kernel"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
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
	cli.Main(run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Code("setup_notebooks", setUp(ctx, args, stdout), "the same command goes on", stderr)
}

func setUp(ctx context.Context, args []string, stdout io.Writer) error {
	flags := cli.Flags("setup_notebooks", usage, stdout)
	check := flags.Bool("check", false, "tell what is there, and change nothing")
	noLab := flags.Bool("no_lab", false, "leave JupyterLab out")
	folder := flags.String("folder", "", "folder of the programs and of the Python environment "+
		"(default: in your cache folder)")
	python := flags.String("python", "python3", "the Python that makes the environment")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	s, err := kernel.Default(ctx)
	if err != nil {
		return cli.WithCode(cli.Failed, err)
	}
	s.Lab, s.Python = !*noLab, *python
	if *folder != "" {
		if s.Folder, err = filepath.Abs(*folder); err != nil {
			return err
		}
	}
	if *check {
		return report(ctx, s, stdout)
	}
	if err := s.Install(ctx, stdout); err != nil {
		return cli.WithCode(cli.Failed, err)
	}
	if s.Lab {
		fmt.Fprintf(stdout, "Next: %s lab notebooks\n", s.Jupyter())
	} else {
		fmt.Fprintf(stdout, "Next: go run ./scripts/run_notebooks\n")
	}
	return nil
}

// report tells what is there.
func report(ctx context.Context, s *kernel.Setup, stdout io.Writer) error {
	missing := 0
	for _, part := range s.Parts(ctx) {
		if part.Err == nil {
			fmt.Fprintf(stdout, "ok       %s\n         in %s\n", part.Name, part.Where)
			continue
		}
		missing++
		fmt.Fprintf(stdout, "missing  %s\n         in %s: %v\n", part.Name, part.Where, part.Err)
	}
	if missing == 0 {
		return nil
	}
	return cli.WithCode(cli.Failed, fmt.Errorf("%d parts are missing; go run ./scripts/setup_notebooks installs them",
		missing))
}
