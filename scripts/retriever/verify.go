package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/dense"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

func verifyCommand(flags *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
	s := new(source)
	addCorpus(flags, s)
	flags.StringVar(&s.index, "index", "", "folder of the index")
	return func(ctx context.Context, args []string, stdout, _ io.Writer) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if s.index == "" {
			return fmt.Errorf("give --index DIR; see --help")
		}
		corpus := ""
		if s.corpus != "" {
			var err error
			if corpus, err = s.corpusFile(); err != nil {
				return err
			}
		}
		folders := []string{s.index}
		if _, err := indexfile.KindOf(s.index); errors.Is(err, indexfile.ErrNoIndex) {
			if _, err := indexfile.KindOf(filepath.Join(s.index, kindBM25)); err == nil {
				folders = []string{filepath.Join(s.index, kindBM25), filepath.Join(s.index, kindDense)}
			}
		}
		for _, dir := range folders {
			if err := verify(ctx, dir, corpus, stdout); err != nil {
				return err
			}
		}
		return nil
	}
}

// verify reads the index in a folder whole and, if a corpus is given, compares the two.
func verify(ctx context.Context, dir, corpus string, out io.Writer) (err error) {
	kind, err := indexfile.KindOf(dir)
	if err != nil {
		return err
	}
	var about, madeFrom string
	var whole func(context.Context) error
	var belongs func() error
	if kind == kindDense {
		x, err := dense.Open(dir)
		if err != nil {
			return err
		}
		defer closing(x, &err)
		m := x.Manifest()
		about, madeFrom, whole = describeDense(x), m.Corpus.Name, x.Verify
		belongs = func() error { return m.Check(ctx, dir, corpus) }
	} else {
		x, err := retrieve.OpenBM25(dir, retrieve.DefaultBM25())
		if err != nil {
			return err
		}
		defer closing(x, &err)
		m := x.Index().Manifest()
		about, madeFrom, whole = describe(x.Index()), m.Corpus.Name, x.Index().Verify
		belongs = func() error { return m.Check(ctx, dir, corpus, m.Analyzer) }
	}
	if err := whole(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is as it was written: %s, made from %s\n", dir, about, madeFrom)
	if corpus == "" {
		return nil
	}
	if err := belongs(); err != nil {
		return err
	}
	fmt.Fprintf(out, "it belongs to %s\n", corpus)
	return nil
}
