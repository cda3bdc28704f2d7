// Package cli is the frame that the programs of this folder share: signals, flags and exit codes.
package cli

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

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// The exit codes. Failed is work that was understood and did not succeed; Fault something wrong in the command or in
// what it names; Interrupted what shells give to a program that Ctrl-C ended.
const (
	OK          = 0
	Failed      = 1
	Fault       = 2
	Interrupted = 130
)

// Main runs a program and exits with the code that it returns. An interrupt or a request to end cancels the context; a
// second one ends the program at once.
func Main(run func(ctx context.Context, args []string, out, errOut io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Flags returns an empty set of flags that are known with "_" and with "-", listed as they were added. --help writes
// usage and the flags to out.
func Flags(name, usage string, out io.Writer) *pflag.FlagSet {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	flags.SetNormalizeFunc(config.NormalizeFlag)
	flags.Usage = func() { fmt.Fprint(out, usage, flags.FlagUsages()) }
	return flags
}

// Parse reads the arguments of a program that takes flags only.
func Parse(flags *pflag.FlagSet, args []string) error {
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w; see --help", err)
	case flags.NArg() > 0 && flags.Lookup("set") != nil:
		return fmt.Errorf("unexpected argument %q; settings are changed with --set key=value", flags.Arg(0))
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	return nil
}

// coded is an error that ends a program with a code of its own.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// WithCode returns err as one that ends the program with a code other than Fault; nil stays nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return coded{err, code}
}

// Code writes what ended a program, if it was an error, to errOut and returns the exit code: OK for nil and --help,
// Interrupted when the context ended, what WithCode said, and Fault for any other error. goesOn is what an interrupted
// user should know, or empty.
func Code(name string, err error, goesOn string, errOut io.Writer) int {
	var own coded
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return OK
	case errors.Is(err, context.Canceled):
		if goesOn != "" {
			goesOn = "; " + goesOn
		}
		fmt.Fprintf(errOut, "%s: interrupted%s\n", name, goesOn)
		return Interrupted
	}
	fmt.Fprintf(errOut, "%s: %v\n", name, err)
	if errors.As(err, &own) {
		return own.code
	}
	return Fault
}

// IsTerminal reports whether what is written to out appears on a terminal.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
