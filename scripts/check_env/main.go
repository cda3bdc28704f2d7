// Command check_env reports what this machine has for training, how fast it is, and what to do about each thing that
// is missing.
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

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/envcheck"
)

const usage = `Reports what this machine has for training, and what to do about each thing that is missing.
Nothing is downloaded or changed. The exit status is 0 if one can train at all, else 1.

Usage: go run ./scripts/check_env [options]

Examples:
  go run ./scripts/check_env           # a table
  go run ./scripts/check_env --json    # one JSON object, for programs and bug reports

Options:
`

func main() {
	probe.Serve()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit status: 0 if one can train, 1 if not, 2 for bad input or an interrupt.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("check_env", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.SortFlags = false
	flags.SetNormalizeFunc(config.NormalizeFlag)
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsages()) }
	asJSON := flags.Bool("json", false, "write one JSON object instead of a table")
	var o envcheck.Options
	flags.DurationVar(&o.Limit, "limit", 0, "time for measuring a backend (default 1m)")
	fail := func(err error) int {
		fmt.Fprintf(stderr, "check_env: %v\n", err)
		return 2
	}
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil {
		return fail(fmt.Errorf("%w; see --help", err))
	}
	if flags.NArg() > 0 {
		return fail(fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0)))
	}
	report := envcheck.Collect(ctx, o)
	if ctx.Err() != nil {
		return fail(errors.New("interrupted"))
	}
	write := report.WriteText
	if *asJSON {
		write = report.WriteJSON
	}
	if err := write(stdout); err != nil {
		return fail(err)
	}
	if !report.Ready {
		return 1
	}
	return 0
}
