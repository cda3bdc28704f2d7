package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch"
)

// cluster are the options that say which index of OpenSearch is meant.
type cluster struct{ url, name string }

func addCluster(flags *pflag.FlagSet, s *source) {
	flags.StringVar(&s.url, "url", "", "with --kind opensearch: address of a node, or several separated by commas")
	flags.StringVar(&s.name, "name", "", "with --kind opensearch: name of the index")
}

// check refuses an index that is not named whole.
func (c *cluster) check() error {
	if c.url == "" || c.name == "" {
		return fmt.Errorf("--kind opensearch needs --url http://HOST:9200 and --name INDEX; see --help")
	}
	return nil
}

// openCluster opens the index in OpenSearch and compares it with the corpora, if there are any.
func (s *source) openCluster(ctx context.Context) (*opensearch.Index, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	for _, name := range []string{"index", "rebuild", "compose_accents", "no_stemming", "keep_stop_words", "keep_possessive"} {
		if s.flags.Changed(name) {
			return nil, fmt.Errorf("--%s does not go with --kind opensearch", name)
		}
	}
	corpora, err := s.corpora()
	if err != nil {
		return nil, err
	}
	x, err := opensearch.Open(ctx, opensearch.Options{URL: s.url, Index: s.name, Corpora: corpora})
	if err != nil {
		return nil, err
	}
	if s.flags.Changed("k1") || s.flags.Changed("b") {
		if err := x.CheckBM25(s.k1, s.b); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	return x, nil
}

// corpora returns the files of --corpus, which are several if it has commas.
func (s *source) corpora() ([]string, error) {
	if s.corpus == "" {
		return nil, nil
	}
	var paths []string
	for name := range strings.SplitSeq(s.corpus, ",") {
		path, err := data.Places{Dir: s.dataDir}.Corpus(name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// addClusterIndex adds the options of an index that is made, and returns what makes it.
func addClusterIndex(flags *pflag.FlagSet, s *source) func(ctx context.Context, stdout, log io.Writer) error {
	var o opensearch.BuildOptions
	flags.IntVar(&o.Shards, "shards", 1, "with --kind opensearch: parts that the index is spread over")
	flags.IntVar(&o.Replicas, "replicas", 0, "with --kind opensearch: copies of each part")
	flags.Float64Var(&o.K1, "k1", retrieve.DefaultBM25().K1, "with --kind opensearch: BM25's saturation of the term frequency")
	flags.Float64Var(&o.B, "b", retrieve.DefaultBM25().B, "with --kind opensearch: BM25's normalisation by length, from 0 to 1")
	return func(ctx context.Context, stdout, log io.Writer) error {
		switch err := s.check(); {
		case err != nil:
			return err
		case s.corpus == "":
			return fmt.Errorf("give --corpus FILE[,FILE ...]; see --help")
		case o.Shards < 1 || o.Shards > 1024 || o.Replicas < 0:
			return fmt.Errorf("--shards is %d and --replicas %d; want from 1 to 1024, and at least 0", o.Shards, o.Replicas)
		case o.K1 < 0 || o.B < 0 || o.B > 1:
			return fmt.Errorf("--k1 is %g and --b %g; want at least 0, and from 0 to 1", o.K1, o.B)
		}
		corpora, err := s.corpora()
		if err != nil {
			return err
		}
		o.URL, o.Index, o.Rebuild, o.Progress = s.url, s.name, s.rebuild, sending(log)
		start := time.Now()
		m, err := opensearch.Build(ctx, corpora, o)
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(log, "the same command goes on from here\n")
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "index %s: %s passages; %v\n", s.name, humanize.Comma(int64(m.Passages)),
			time.Since(start).Round(time.Millisecond))
		return nil
	}
}

// sending returns a function that shows how far the sending of passages is.
func sending(log io.Writer) func(opensearch.Progress) {
	show, checking := showProgress(log), false
	return func(p opensearch.Progress) {
		if p.Checking {
			if !checking {
				fmt.Fprintf(log, "reading %s of passages for their digest\n", humanize.IBytes(uint64(p.Total)))
			}
			checking = true
			return
		}
		show(bm25.Progress{Passages: p.Passages, Resumed: p.Present, Bytes: p.Bytes, Total: p.Total})
	}
}
