package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/dense"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/recall"
)

// kinds are the ways to search.
var kinds = []string{"bm25", "dense", "hybrid"}

// encoderSettings are the options of dense and hybrid search.
type encoderSettings struct {
	kinds                      []string
	model, backend, denseIndex string
	rrfK                       int
}

func (e *encoderSettings) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&e.kinds, "kind", []string{"bm25"}, "how to search: bm25, dense, hybrid, or several to compare them")
	flags.StringVar(&e.model, "model", "", "dense, hybrid: folder of the encoder or its name on the hub")
	flags.StringVar(&e.backend, "backend", "auto", "dense, hybrid: where the encoder runs: auto, xla, cuda or go")
	flags.StringVar(&e.denseIndex, "dense_index", "", "dense, hybrid: folder that keeps the vectors of the corpus; made if it "+
		"is not there")
	flags.IntVar(&e.rrfK, "rrf_k", retrieve.FusionK, "hybrid: constant of the reciprocal rank fusion")
}

func (e *encoderSettings) check(flags *pflag.FlagSet) error {
	for i, kind := range e.kinds {
		if !slices.Contains(kinds, kind) || slices.Contains(e.kinds[:i], kind) {
			return fmt.Errorf("--kind is %q; want some of %v", e.kinds, kinds)
		}
	}
	switch {
	case len(e.kinds) == 0:
		return fmt.Errorf("--kind is empty; want some of %v", kinds)
	case !e.encodes():
		return nil
	case e.model == "":
		return errors.New("--kind dense and hybrid need --model, the folder of an encoder or its name on the hub")
	case flags.Changed("index") || flags.Changed("retriever_url"):
		return errors.New("--kind dense and hybrid search a corpus: --index and --retriever_url are of no use; --dense_index " +
			"keeps vectors")
	case e.rrfK < 1:
		return fmt.Errorf("--rrf_k is %d, must be at least 1", e.rrfK)
	}
	return nil
}

// encodes reports whether an encoder is needed.
func (e *encoderSettings) encodes() bool {
	return slices.ContainsFunc(e.kinds, func(k string) bool { return k != "bm25" })
}

// searchers opens an engine for each kind.
func (s *settings) searchers(ctx context.Context, places data.Places, questions string, stderr io.Writer) (
	_ []retrieve.Searcher, close func() error, err error) {
	var words retrieve.Searcher
	if s.encoder.kinds[0] != "dense" || len(s.encoder.kinds) > 1 {
		if words, err = s.searcher(ctx, places, questions, stderr); err != nil {
			return nil, nil, err
		}
	}
	close = func() error { return nil }
	var meaning *dense.Searcher
	if s.encoder.encodes() {
		path, err := s.corpusFile(places, questions)
		if err != nil {
			return nil, nil, err
		}
		dev, err := device.Open(s.encoder.backend)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(stderr, "encoder %s on %s\n", s.encoder.model, dev)
		last := 0
		meaning, err = dense.Source{Corpus: path, Index: s.encoder.denseIndex, Encoder: s.encoder.model,
			Progress: func(p dense.Progress) {
				if p.Encoded-last >= 2000 { // roughly: two batches may tell it at once
					last = p.Encoded
					fmt.Fprintf(stderr, "%d of %d passages encoded\n", p.Encoded, p.Total)
				}
			}}.Open(ctx, dev)
		if err != nil {
			dev.Close()
			return nil, nil, err
		}
		close = func() error {
			err := meaning.Close()
			dev.Close()
			return err
		}
	}
	var engines []retrieve.Searcher
	for _, kind := range s.encoder.kinds {
		switch kind {
		case "bm25":
			engines = append(engines, words)
		case "dense":
			engines = append(engines, meaning)
		case "hybrid":
			engines = append(engines, &retrieve.Fusion{Searchers: []retrieve.Searcher{words, meaning}, K: s.encoder.rrfK})
		}
	}
	return engines, close, nil
}

// folder returns the folder of the figure and files of a kind.
func (s *settings) folder(kind string) string {
	if len(s.encoder.kinds) == 1 {
		return s.out
	}
	return filepath.Join(s.out, kind)
}

// comparison prints what each kind finds for all questions as they stand, in percent.
func (s *settings) comparison(out io.Writer, rows map[string][]recall.Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "kind\tfound\t")
	for _, k := range s.k {
		fmt.Fprintf(w, "@%d\t", k)
	}
	fmt.Fprintln(w)
	for _, kind := range s.encoder.kinds {
		metric := ""
		for _, r := range rows[kind] {
			if r.Group != rows[kind][0].Group {
				continue
			}
			if r.Metric != metric {
				if metric != "" {
					fmt.Fprintln(w)
				}
				metric = r.Metric
				fmt.Fprintf(w, "%s\t%s\t", kind, metric)
			}
			fmt.Fprintf(w, "%.1f\t", 100*r.Raw)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
