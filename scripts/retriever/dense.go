package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/dense"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// The kinds of search.
const (
	kindBM25       = "bm25"
	kindDense      = "dense"
	kindHybrid     = "hybrid"
	kindOpenSearch = "opensearch"
)

// kinds are the ways to search that index, serve and search know.
var kinds = []string{kindBM25, kindDense, kindHybrid, kindOpenSearch}

// encoderOptions are the options of dense and hybrid search.
type encoderOptions struct {
	kind, model, backend string
	queryPrefix, prefix  string
	dtype                string
	maxTokens, rrfK      int
	flags                *pflag.FlagSet
}

func addEncoder(flags *pflag.FlagSet) *encoderOptions {
	o := &encoderOptions{flags: flags}
	flags.StringVar(&o.kind, "kind", kindBM25, "how to search: by words (bm25), by meaning (dense), by both (hybrid), "+
		"or in a cluster (opensearch)")
	flags.StringVar(&o.model, "model", "", "dense, hybrid: folder of the encoder or its name on the hub, such as "+
		"sentence-transformers/all-MiniLM-L6-v2")
	flags.StringVar(&o.backend, "backend", "auto", "dense, hybrid: where the encoder runs: auto, xla, cuda or go")
	flags.StringVar(&o.queryPrefix, "query_prefix", "", `dense, hybrid: text before each query (default as the `+
		`model wants, "query: " for E5)`)
	flags.StringVar(&o.prefix, "passage_prefix", "", `dense, hybrid: text before each passage (default as the `+
		`model wants, "passage: " for E5)`)
	flags.IntVar(&o.maxTokens, "max_tokens", 0, "dense, hybrid: tokens of a passage that are seen (0: as many as the "+
		"model wants)")
	flags.StringVar(&o.dtype, "dtype", "f32", "dense, hybrid: type of the encoder's matrix products: f32, or bf16, which is "+
		"faster on XLA and less exact")
	return o
}

func addFusion(flags *pflag.FlagSet, o *encoderOptions) {
	flags.IntVar(&o.rrfK, "rrf_k", retrieve.FusionK, "hybrid: constant of the reciprocal rank fusion")
}

// check refuses options that do not go together.
func (o *encoderOptions) check() error {
	switch o.kind {
	case kindBM25, kindOpenSearch:
		for _, name := range []string{"model", "query_prefix", "passage_prefix", "max_tokens", "dtype", "rrf_k"} {
			if o.flags.Changed(name) {
				return fmt.Errorf("--%s goes with --kind dense or hybrid", name)
			}
		}
		return nil
	case kindDense, kindHybrid:
		switch {
		case o.model == "":
			return fmt.Errorf("--kind %s needs --model, the folder of an encoder such as all-MiniLM-L6-v2 or its name on the hub",
				o.kind)
		case o.rrfK < 1 && o.flags.Lookup("rrf_k") != nil:
			return fmt.Errorf("--rrf_k is %d, must be at least 1", o.rrfK)
		case o.maxTokens < 0:
			return fmt.Errorf("--max_tokens is %d, must be at least 0", o.maxTokens)
		}
		_, err := policy.ParseDType(o.dtype)
		return err
	}
	return fmt.Errorf("--kind is %q; want one of %v", o.kind, kinds)
}

// part returns the folder of one half of the index that --index or --out names: for hybrid a folder in it.
func (o *encoderOptions) part(dir, kind string) string {
	if o.kind != kindHybrid || dir == "" {
		return dir
	}
	return filepath.Join(dir, kind)
}

// source returns what is searched by meaning.
func (o *encoderOptions) source(s *source, dir string, log io.Writer) (dense.Source, error) {
	d := dense.Source{Index: o.part(dir, kindDense), Encoder: o.model, Rebuild: s.rebuild, Progress: showEncoding(log)}
	d.Hub = weights.HubOptions{Warn: func(message string) { fmt.Fprintln(log, message) }}
	d.Embed.MaxTokens = o.maxTokens
	d.Embed.DType, _ = policy.ParseDType(o.dtype) // check knows the names
	if o.flags.Changed("query_prefix") {
		d.Embed.QueryPrefix = &o.queryPrefix
	}
	if o.flags.Changed("passage_prefix") {
		d.Embed.PassagePrefix = &o.prefix
	}
	var err error
	if s.corpus != "" {
		d.Corpus, err = s.corpusFile()
	}
	return d, err
}

// openDense opens the search by meaning, on a device of its own.
func (o *encoderOptions) openDense(ctx context.Context, s *source, log io.Writer) (*dense.Searcher, func() error, error) {
	switch {
	case s.corpus == "" && s.index == "":
		return nil, nil, fmt.Errorf("give --corpus FILE or --index DIR; see --help")
	case s.corpus == "" && s.rebuild:
		return nil, nil, fmt.Errorf("--rebuild needs the --corpus")
	}
	from, err := o.source(s, s.index, log)
	if err != nil {
		return nil, nil, err
	}
	dev, err := device.Open(o.backend)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(log, "encoder %s on %s\n", o.model, dev)
	searcher, err := from.Open(ctx, dev)
	if err != nil {
		dev.Close()
		return nil, nil, err
	}
	return searcher, func() error {
		err := searcher.Close()
		dev.Close()
		return err
	}, nil
}

// openDenseEngine opens an engine of kind dense or hybrid.
func (o *encoderOptions) openDenseEngine(ctx context.Context, s *source, log io.Writer) (*engine, error) {
	searcher, free, err := o.openDense(ctx, s, log)
	if err != nil {
		return nil, err
	}
	x := searcher.Index()
	e := &engine{searcher, x.Len(), describeDense(x), x.Verify, free}
	if o.kind == kindDense {
		return e, nil
	}
	words := *s
	words.index = o.part(s.index, kindBM25)
	lexical, err := words.open(ctx, log)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	if lexical.Index().Len() != x.Len() || otherCorpus(lexical.Index().Manifest(), x.Manifest()) {
		err := fmt.Errorf("the two halves of the index in %s are of different corpora, with %d and %d passages; build it "+
			"again (retriever index --kind hybrid --rebuild)", s.index, lexical.Index().Len(), x.Len())
		return nil, errors.Join(err, lexical.Close(), free())
	}
	return &engine{
		Searcher: &retrieve.Fusion{Searchers: []retrieve.Searcher{lexical, searcher}, K: o.rrfK}, passages: x.Len(),
		about: describe(lexical.Index()) + "; " + describeDense(x),
		verify: func(ctx context.Context) error {
			return errors.Join(lexical.Index().Verify(ctx), x.Verify(ctx))
		},
		close: func() error { return errors.Join(lexical.Close(), free()) },
	}, nil
}

// otherCorpus reports whether two indexes on the disk were made of different corpora.
func otherCorpus(words *bm25.Manifest, meaning *dense.Manifest) bool {
	return words != nil && meaning != nil && words.Corpus.SHA256 != meaning.Corpus.SHA256
}

// describeDense says in a line what is searched.
func describeDense(x *dense.Index) string {
	return fmt.Sprintf("%s passages, vectors of %d values by %s in %s", humanize.Comma(int64(x.Len())), x.Dim(), x.Model().Name,
		humanize.IBytes(uint64(x.Bytes())))
}

// buildDense makes the vectors of an index.
func (o *encoderOptions) buildDense(ctx context.Context, s *source, dir string, stdout, log io.Writer) error {
	from, err := o.source(s, dir, log)
	if err != nil {
		return err
	}
	dev, err := device.Open(o.backend)
	if err != nil {
		return err
	}
	defer dev.Close()
	fmt.Fprintf(log, "encoder %s on %s\n", o.model, dev)
	start := time.Now()
	searcher, err := from.Open(ctx, dev)
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(log, "the same command goes on from here\n")
	}
	if err != nil {
		return err
	}
	if err := searcher.Index().Verify(ctx); err != nil {
		return errors.Join(err, searcher.Close())
	}
	fmt.Fprintf(stdout, "%s: %s; %v\n", from.Index, describeDense(searcher.Index()), time.Since(start).Round(time.Millisecond))
	return searcher.Close()
}

// showEncoding returns a function that draws a bar on a terminal and writes a line every ten seconds elsewhere.
func showEncoding(log io.Writer) func(dense.Progress) {
	var mu sync.Mutex
	var drawn *progressbar.ProgressBar
	var last time.Time
	resumed, begun := false, time.Now()
	file, ok := log.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	return func(p dense.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Resumed > 0 && !resumed {
			resumed = true
			fmt.Fprintf(log, "going on after %s passages of an earlier run\n", humanize.Comma(int64(p.Resumed)))
		}
		switch {
		case terminal && p.Total > 0:
			if drawn == nil {
				drawn = progressbar.NewOptions(p.Total, progressbar.OptionSetWriter(log), progressbar.OptionShowCount(),
					progressbar.OptionShowIts(), progressbar.OptionSetItsString("passages"),
					progressbar.OptionSetDescription("encoding"), progressbar.OptionThrottle(100*time.Millisecond),
					progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
			}
			_ = drawn.Set(p.Encoded)
			return
		case time.Since(last) < 10*time.Second && p.Encoded < p.Total:
			return
		case p.Total == 0:
			fmt.Fprintf(log, "%s passages stored\n", humanize.Comma(int64(p.Stored)))
		default:
			rate := float64(p.Encoded-p.Resumed) / time.Since(begun).Seconds()
			fmt.Fprintf(log, "%s of %s passages encoded, %.1f a second\n", humanize.Comma(int64(p.Encoded)),
				humanize.Comma(int64(p.Total)), rate)
		}
		last = time.Now()
	}
}
