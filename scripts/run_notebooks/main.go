// Command run_notebooks runs notebooks from top to bottom with the GoNB kernel, without a browser, and checks them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/notebook/ipynb"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/notebook/kernel"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Runs notebooks from top to bottom with the GoNB kernel, without a browser, and checks them. A notebook
fails if a cell ends in an error, if the program of a cell panics or exits with an error (which Jupyter's own tools
call a success), if an image is missing, or if a cell prints something else than what the file holds (unless the cell
has the tag "` + ipynb.Varies + `"). The files stay as they are, unless --write is given.

Usage: go run ./scripts/run_notebooks [options] [notebook ...]

Examples:
  go run ./scripts/run_notebooks                                     # all in notebooks/
  go run ./scripts/run_notebooks --write notebooks/02_grpo_by_hand.ipynb   # keeps the new outputs

Options:
`

func main() {
	cli.Main(run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Code("run_notebooks", runAll(ctx, args, stdout), "", stderr)
}

func runAll(ctx context.Context, args []string, stdout io.Writer) error {
	flags := cli.Flags("run_notebooks", usage, stdout)
	write := flags.Bool("write", false, "write the outputs into the files if the run had no error")
	limit := flags.Duration("limit", 30*time.Minute, "the longest that a cell may take")
	folder := flags.String("folder", "", "the --folder of setup_notebooks")
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w; see --help", err)
	}
	s, err := kernel.Default(ctx)
	if err != nil {
		return err
	}
	if *folder != "" {
		if s.Folder, err = filepath.Abs(*folder); err != nil {
			return err
		}
	}
	paths := flags.Args()
	if len(paths) == 0 {
		if paths, _ = filepath.Glob(filepath.Join(s.Repository, "notebooks", "*.ipynb")); len(paths) == 0 {
			return errors.New("there are no notebooks")
		}
	}
	failed := 0
	for _, path := range paths {
		start := time.Now()
		faults, err := check(ctx, s, path, *limit, *write)
		if err != nil {
			faults = append(faults, err.Error())
		}
		verdict := "ok    "
		if len(faults) > 0 {
			verdict = "FAILED"
			failed++
		}
		fmt.Fprintf(stdout, "%s  %s (%.0f s)\n", verdict, path, time.Since(start).Seconds())
		for _, fault := range faults {
			fmt.Fprintf(stdout, "        %s\n", fault)
		}
	}
	if failed > 0 {
		return cli.WithCode(cli.Failed, fmt.Errorf("%d of %d notebooks failed", failed, len(paths)))
	}
	return nil
}

// check runs a notebook and returns what is wrong with it.
func check(ctx context.Context, s *kernel.Setup, path string, limit time.Duration, write bool) ([]string, error) {
	kept, err := ipynb.Read(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nanoagentrl-notebook")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, filepath.Base(path))
	if err := s.Execute(ctx, path, to, limit); err != nil {
		return nil, err
	}
	fresh, err := ipynb.Read(to)
	if err != nil {
		return nil, err
	}
	faults := append(fresh.RunFaults(), fresh.FormFaults(kernel.Name)...)
	if !write {
		return append(faults, ipynb.Compare(kept, fresh)...), nil
	}
	if len(faults) > 0 {
		return faults, nil
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return nil, err
	}
	return nil, os.WriteFile(path, text, 0o644)
}
