// Command ablations trains the variants of a suite with several seeds each and compares what they reach.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/ablation"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Answer a question about the method by experiment: train the variants of a suite with several seeds each,
and compare them in a table with 95 % intervals, a figure and a CSV.

Usage:
  go run ./scripts/ablations --suite FILE [--seeds N] [--only VARIANT ...] [--set key=value ...] [--docs FILE]
  go run ./scripts/ablations --suite FILE --list
  go run ./scripts/ablations --suite FILE --dry_run

Examples:
  go run ./scripts/ablations --suite configs/ablations/loss_mask.yaml
  go run ./scripts/ablations --suite configs/ablations/loss_mask.yaml --docs docs/results.md
  go run ./scripts/ablations --suite configs/ablations/kl.yaml --only kl_0.1 --seeds 5
  go run ./scripts/ablations --suite configs/ablations/kl.yaml --set steps=60 --out runs/longer

Running the same command again makes only the runs that are not complete, and goes on with those that were interrupted.
Ctrl-C saves and stops; a second Ctrl-C stops at once. Runs with equal settings and seeds in other suites of the same
--out are not made twice. Table, figure and CSV are kept beside the runs, and once all runs are there in --figures too.

Exit codes: 0 all asked for is there, 1 a run failed, 2 something in the command or the suite is wrong, 130 interrupted.

Flags:
`

func main() {
	cli.Main(command)
}

// errRuns says that runs failed, which has been told already.
var errRuns = errors.New("runs failed; the same command tries them again")

func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	err := run(ctx, args, out, errOut)
	if errors.Is(err, errRuns) {
		err = cli.WithCode(cli.Failed, err)
	}
	return cli.Code("ablations", err, "the same command goes on", errOut)
}

// options are what stands on the command line.
type options struct {
	suite, figures, docs string
	figuresGiven         bool
	grid                 ablation.GridOptions
	parallel             int
	list                 bool
}

func parse(args []string, out, errOut io.Writer) (*options, error) {
	o := &options{}
	flags := cli.Flags("ablations", usage, out)
	flags.StringVar(&o.suite, "suite", "", "YAML file of the suite")
	flags.StringVar(&o.grid.Out, "out", "runs/ablations", "folder of the runs, OUT/SUITE/VARIANT/seed-N")
	flags.StringVar(&o.figures, "figures", "figures/ablations", "folder of figure and CSV of complete suites")
	flags.StringVar(&o.docs, "docs", "", "document whose section on the suite is made anew once all runs are there")
	flags.IntVar(&o.parallel, "parallel", max(1, runtime.NumCPU()/2), "runs at a time")
	flags.IntVar(&o.grid.Seeds, "seeds", 0, "seeds of each variant (the suite's if not given)")
	flags.StringArrayVar(&o.grid.Only, "only", nil, "train this variant only; may be given several times")
	flags.StringArrayVar(&o.grid.Set, "set", nil, "override one setting in all runs, key=value; may be given several "+
		"times")
	flags.BoolVar(&o.list, "list", false, "show the runs and how far they are, and stop")
	flags.BoolVar(&o.grid.Tiny, "dry_run", false, "try the suite with a tiny untrained model, two steps a run, in a "+
		"temporary folder")
	if err := cli.Parse(flags, args); err != nil {
		return nil, err
	}
	switch {
	case o.suite == "":
		return nil, errors.New("no suite: give --suite FILE, for example --suite configs/ablations/loss_mask.yaml")
	case flags.Changed("seeds") && o.grid.Seeds < 1:
		return nil, fmt.Errorf("--seeds: got %d, want at least 1", o.grid.Seeds)
	case o.parallel < 1:
		return nil, fmt.Errorf("--parallel: got %d, want at least 1", o.parallel)
	case o.grid.Tiny && (o.list || o.docs != "" || flags.Changed("figures") || flags.Changed("out")):
		return nil, errors.New("--dry_run leaves nothing behind: it goes with neither --list, --docs, --figures nor --out")
	}
	o.figuresGiven = flags.Changed("figures")
	if len(o.grid.Set) > 0 && !o.figuresGiven {
		o.figures = "" // those in the repository are of the suites as they are
	}
	if o.docs != "" && o.figures == "" {
		return nil, errors.New("--docs shows a figure: with --set give its folder with --figures")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, out, errOut)
	if err != nil {
		return err
	}
	suite, err := ablation.Load(o.suite)
	if err != nil {
		return err
	}
	if o.docs != "" {
		if err := ablation.CheckDoc(o.docs, suite.Name); err != nil {
			return err
		}
	}
	if o.grid.Tiny {
		dir, err := os.MkdirTemp("", "nanoagentrl-ablations-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.grid.Out, o.figures = dir, ""
	}
	grid, err := suite.Grid(o.grid)
	if err != nil {
		return err
	}
	if o.list {
		return grid.List(out)
	}
	if o.grid.Seeds > 0 && o.grid.Seeds < suite.Seeds && !o.figuresGiven {
		o.figures = "" // those in the repository have all seeds
		if o.docs != "" {
			return fmt.Errorf("--docs shows the suite with its %d seeds; with fewer, give the figure's folder with --figures",
				suite.Seeds)
		}
	}
	outcome, err := grid.Run(ctx, ablation.RunOptions{Parallel: o.parallel, Out: out, Terminal: cli.IsTerminal(out)})
	if outcome == nil {
		return err
	}
	if failed := o.report(grid, out); failed != nil {
		return errors.Join(err, failed)
	}
	switch {
	case err != nil:
		return err
	case len(outcome.Failures) > 0:
		return fmt.Errorf("%d %w", len(outcome.Failures), errRuns)
	case o.grid.Tiny:
		fmt.Fprintln(out, "dry run  passed; the numbers are those of an untrained model and mean nothing")
	}
	return nil
}

// report prints and writes what is there, and what only a complete suite gets.
func (o *options) report(grid *ablation.Grid, out io.Writer) error {
	results, missing, err := grid.Results()
	if err != nil || len(results) == 0 {
		return err
	}
	fmt.Fprintf(out, "\n%s\n\n%s\n", grid.Suite.Title, ablation.Table(grid.Suite, results))
	if err := grid.Write(grid.Dir, results); err != nil {
		return err
	}
	if missing > 0 {
		fmt.Fprintf(out, "%d of %d runs are there; table, figure and CSV so far are in %s\n", len(results),
			len(results)+missing, grid.Dir)
		return nil
	}
	if o.figures == "" {
		if !o.grid.Tiny {
			fmt.Fprintf(out, "table, figure and CSV are in %s\n", grid.Dir)
		}
		return nil
	}
	paths, err := grid.Publish(results, o.figures, o.docs, o.line())
	for _, path := range paths {
		fmt.Fprintf(out, "wrote    %s\n", path)
	}
	return err
}

// line is the command that makes the same again.
func (o *options) line() string {
	words := []string{"go run ./scripts/ablations --suite", filepath.ToSlash(o.suite)}
	if o.grid.Seeds > 0 {
		words = append(words, "--seeds", strconv.Itoa(o.grid.Seeds))
	}
	for _, override := range o.grid.Set {
		words = append(words, "--set", quoted(override))
	}
	if len(o.grid.Set) > 0 {
		words = append(words, "--out", quoted(filepath.ToSlash(o.grid.Out)), "--figures", quoted(filepath.ToSlash(o.figures)))
	}
	if o.docs != "" {
		words = append(words, "--docs", filepath.ToSlash(o.docs))
	}
	return strings.Join(words, " ")
}

// quoted makes a text one word of a shell.
func quoted(text string) string {
	if strings.ContainsAny(text, " \t'\"[]{}()*?$&;|<>\\`#~!") {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return text
}
