package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

func searchCommand(flags *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
	s := addSource(flags)
	topk := flags.Int("topk", 3, "passages for each query")
	explain := flags.Bool("explain", false, "print what each term adds to a score")
	encoder := addEncoder(flags)
	addFusion(flags, encoder)
	whole := flags.Bool("verify", true, "read the whole index first, to be sure that it is as it was written")
	asJSON := flags.Bool("json", false, "print the passages of a query as one line of JSON")
	return func(ctx context.Context, queries []string, stdout, log io.Writer) (err error) {
		switch {
		case len(queries) == 0:
			return fmt.Errorf(`give at least one query, for example "who wrote hamlet"`)
		case *topk < 1:
			return fmt.Errorf("--topk is %d, must be at least 1", *topk)
		case *explain && *asJSON:
			return fmt.Errorf("--explain and --json exclude each other")
		case *explain && encoder.kind != kindBM25:
			return fmt.Errorf("--explain goes with --kind bm25")
		}
		x, err := openEngine(ctx, encoder, s, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, x.close()) }()
		if *whole {
			if err := x.verify(ctx); err != nil {
				return err
			}
		}
		for i, result := range x.Search(ctx, queries, *topk) {
			if result.Err != nil {
				return result.Err
			}
			if *asJSON {
				err = json.NewEncoder(stdout).Encode(map[string]any{"query": queries[i], "passages": result.Passages})
			} else {
				err = show(stdout, x.Searcher, queries[i], result.Passages, *explain)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func show(out io.Writer, x retrieve.Searcher, query string, passages []episode.Passage, explain bool) error {
	fmt.Fprintf(out, "%s\n", query)
	if len(passages) == 0 {
		fmt.Fprintln(out, "  nothing found")
	}
	for rank, p := range passages {
		title, text := data.SplitContents(p.Contents)
		fmt.Fprintf(out, "%3d. %8.4f  %s  %s: %s\n", rank+1, p.Score, p.ID, title, start(text))
		words, ok := x.(*retrieve.BM25)
		if !explain || !ok {
			continue
		}
		why, err := words.Index().Explain(query, p.ID)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(table, "\tterm\tin query\tin passage\tin passages\tidf\tadds\n")
		for _, t := range why.Terms {
			fmt.Fprintf(table, "\t%s\t%d\t%d\t%d\t%.4f\t%.4f\n", t.Term, t.Count, t.Frequency, t.DocFrequency, t.IDF, t.Score)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(out, "     length %d terms, the mean is %.1f\n", why.Length, why.Average)
	}
	return nil
}

// start returns the beginning of a text on one line.
func start(text string) string {
	const most = 90
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most]) + "…"
}
