// Command warmstart teaches an untrained model the protocol and the copying of answers, or small sums, as a recipe
// says: the model that a quickstart begins with.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/warmstart"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Make a warm start: a tiny model that knows the protocol but acts badly, by supervised training on made-up
demonstrations. The same recipe and seed give the same model.

Usage:
  go run ./scripts/warmstart --config FILE --out DIR [--set key=value ...]

Examples:
  go run ./scripts/warmstart --config configs/warmstart_facts.yaml --out configs/warmstart_facts
  go run ./scripts/warmstart --config configs/warmstart_sums.yaml --out configs/warmstart_sums --set seed=2
  go run ./scripts/warmstart --config configs/warmstart_facts.yaml --out /tmp/try \
      --set stages.1.tokens=50000 --set model.layers=3

DIR receives the model as a Hugging Face folder, recipe.yaml with all settings, and warmstart.json with what it took and
how good it is. Ctrl-C keeps what was learned; the same command goes on from there. A second Ctrl-C stops at once.

Flags:
`

func main() {
	cli.Main(command)
}

func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	return cli.Code("warmstart", run(ctx, args, out, errOut), "the same command goes on", errOut)
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	flags := cli.Flags("warmstart", usage, out)
	path := flags.String("config", "", "YAML file with the recipe")
	dir := flags.String("out", "", "folder for the model")
	set := flags.StringArray("set", nil, "override one setting, key=value, with points between the parts of a key and "+
		"numbers from 1 for stages; may be given several times")
	profile := flags.Bool("profile", false, "write to standard error, at the end, where the device's time went")
	switch err := cli.Parse(flags, args); {
	case err != nil:
		return err
	case *path == "":
		return errors.New("no recipe: give --config FILE, for example --config configs/warmstart_facts.yaml")
	case *dir == "":
		return errors.New("give the folder for the model with --out")
	}
	recipe, changes, err := warmstart.Open(*path, *set)
	if err != nil {
		return err
	}
	for _, change := range changes {
		fmt.Fprintf(out, "set      %s\n", change)
	}
	if err := checkOut(*dir); err != nil {
		return err
	}
	opts := warmstart.Options{Dir: *dir, Out: out, Terminal: cli.IsTerminal(out)}
	if *profile {
		opts.Profile = errOut
	}
	result, err := warmstart.Train(ctx, recipe, opts)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "done     %.2fM tokens, %.0f s; the model is in %s (%.2f MB)\n", float64(result.Tokens)/1e6,
		result.Seconds, filepath.Clean(*dir), float64(result.WeightBytes)/1e6)
	return nil
}

// checkOut refuses a folder that holds something else than a warm start, made or under way.
func checkOut(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	for _, name := range []string{warmstart.ResultName, warmstart.ResumeName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("--out: %s holds other files; name a new folder or that of a warm start", dir)
}
