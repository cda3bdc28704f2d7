// Command check_env reports what this machine has for training, how fast it is, and what to do about each thing that
// is missing.
package main

import (
	"context"
	"errors"
	"io"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/envcheck"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
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
	cli.Main(run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Code("check_env", check(ctx, args, stdout), "", stderr)
}

func check(ctx context.Context, args []string, stdout io.Writer) error {
	flags := cli.Flags("check_env", usage, stdout)
	asJSON := flags.Bool("json", false, "write one JSON object instead of a table")
	var o envcheck.Options
	flags.DurationVar(&o.Limit, "limit", 0, "time for measuring a backend (default 1m)")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	report := envcheck.Collect(ctx, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	write := report.WriteText
	if *asJSON {
		write = report.WriteJSON
	}
	if err := write(stdout); err != nil {
		return err
	}
	if !report.Ready {
		return cli.WithCode(cli.Failed, errors.New("this machine cannot train yet; see above"))
	}
	return nil
}
