// Command agent_eval plays a scripted benchmark through the real turn loop and prints its figures.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/scalemcp"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Plays a benchmark of scripted policies through the turn loop, the Episodes and the loss that training
uses, and prints what they left behind: a check of the machinery that takes less than a second.

Usage: go run ./scripts/agent_eval [options]

Examples:
  go run ./scripts/agent_eval                                 # every method, in one table
  go run ./scripts/agent_eval --method search-r1 --benchmark scalemcp-mini --episodes 120 --seed 42 --json

Options:
`

const (
	benchmark = "scalemcp-mini"
	// maxEpisodes bounds what is held in memory.
	maxEpisodes = 100_000
	note        = "A success here says that the turn loop, the mask and the loss work; it is not comparable with the " +
		"exact match of a paper."
)

func main() {
	cli.Main(run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Code("agent_eval", evaluate(ctx, args, stdout), "", stderr)
}

func evaluate(ctx context.Context, args []string, stdout io.Writer) error {
	flags := cli.Flags("agent_eval", usage, stdout)
	method := flags.String("method", "", "search-r1, never-search or random-tool (default: all of them)")
	name := flags.String("benchmark", benchmark, "the benchmark; there is one")
	episodes := flags.Int("episodes", 120, "number of episodes")
	seed := flags.Uint64("seed", 42, "seed of the tasks and of what the baselines guess")
	asJSON := flags.Bool("json", false, "write one JSON object instead of a table")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	methods := scalemcp.Methods
	if flags.Changed("method") {
		methods = []scalemcp.Method{scalemcp.Method(*method)}
		if !*asJSON { // the others beside it
			for _, other := range scalemcp.Methods {
				if other != methods[0] {
					methods = append(methods, other)
				}
			}
		}
	}
	switch {
	case *name != benchmark:
		return fmt.Errorf("unknown benchmark %q; there is %s", *name, benchmark)
	case *episodes < 1 || *episodes > maxEpisodes:
		return fmt.Errorf("--episodes is %d, must be from 1 to %d", *episodes, maxEpisodes)
	}
	for _, m := range methods {
		if err := m.Validate(); err != nil {
			return err
		}
	}
	results, err := play(ctx, methods, *episodes, *seed)
	if err != nil {
		return cli.WithCode(cli.Failed, err)
	}
	if *asJSON {
		err = writeJSON(stdout, results, *episodes, *seed, flags.Changed("method"))
	} else {
		err = writeTable(stdout, results, *episodes, *seed)
	}
	return cli.WithCode(cli.Failed, err)
}

// result is one row of the table.
type result struct {
	Method scalemcp.Method `json:"method"`
	scalemcp.Figures
}

func play(ctx context.Context, methods []scalemcp.Method, episodes int, seed uint64) ([]result, error) {
	tasks := scalemcp.Tasks(episodes, seed)
	var results []result
	for _, m := range methods {
		figures, err := scalemcp.Run(ctx, m, tasks, seed)
		if err != nil {
			return nil, err
		}
		results = append(results, result{m, *figures})
	}
	return results, nil
}

// writeJSON writes the figures of one method at the top of the object, those of several in a list.
func writeJSON(out io.Writer, results []result, episodes int, seed uint64, one bool) error {
	type header struct {
		Benchmark string `json:"benchmark"`
		Episodes  int    `json:"episodes"`
		Seed      uint64 `json:"seed"`
		Note      string `json:"note"`
	}
	h := header{benchmark, episodes, seed, note}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if one {
		return encoder.Encode(struct {
			header
			result
		}{h, results[0]})
	}
	return encoder.Encode(struct {
		header
		Results []result `json:"results"`
	}{h, results})
}

func writeTable(out io.Writer, results []result, episodes int, seed uint64) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %d episodes, seed %d\n\n", benchmark, episodes, seed)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "method\tjoint_success\taverage_cost\tsearch_queries\tmasked_retrieved_tokens\t"+
		"outcome_policy_updates")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%v\t%v\t%d\t%d\t%d\n", r.Method, r.JointSuccess, r.AverageCost, r.SearchQueries,
			r.MaskedRetrievedTokens, r.OutcomePolicyUpdates)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s\n%s\n", text.String(), note)
	return err
}
