package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
)

func indexCommand(flags *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
	s := new(source)
	addCorpus(flags, s)
	out := flags.String("out", "", "folder that receives the index")
	flags.BoolVar(&s.rebuild, "rebuild", false, "discard whatever index the folder holds")
	workers := flags.Int("workers", 0, "goroutines that analyse; 0 is one for each core")
	addAnalysis(flags, s)
	addCluster(flags, s)
	create := addClusterIndex(flags, s)
	encoder := addEncoder(flags)
	return func(ctx context.Context, args []string, stdout, log io.Writer) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if err := encoder.check(); err != nil {
			return err
		}
		if encoder.kind == kindOpenSearch {
			return create(ctx, stdout, log)
		}
		for _, name := range []string{"k1", "b"} {
			if flags.Changed(name) {
				return fmt.Errorf("--%s goes with --kind opensearch; an index of ours takes it when it is searched", name)
			}
		}
		if s.corpus == "" || *out == "" {
			return fmt.Errorf("give --corpus FILE and --out DIR; see --help")
		}
		if *workers < 0 {
			return fmt.Errorf("--workers is %d, must be at least 0", *workers)
		}
		if encoder.kind != kindBM25 {
			if err := encoder.buildDense(ctx, s, *out, stdout, log); err != nil || encoder.kind == kindDense {
				return err
			}
		}
		return buildWords(ctx, s, encoder.part(*out, kindBM25), *workers, stdout, log)
	}
}

// buildWords makes an index of words.
func buildWords(ctx context.Context, s *source, out string, workers int, stdout, log io.Writer) error {
	path, err := s.corpusFile()
	if err != nil {
		return err
	}
	start := time.Now()
	_, err = bm25.Build(ctx, path, out, bm25.BuildOptions{Analyzer: s.analyzer, Rebuild: s.rebuild, Workers: workers,
		Progress: showProgress(log)})
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(log, "the same command goes on from here\n")
	}
	if err != nil {
		return err
	}
	x, err := bm25.Open(out, retrieve.DefaultBM25())
	if err != nil {
		return err
	}
	if err := x.Verify(ctx); err != nil { // It may have been there before.
		return errors.Join(err, x.Close())
	}
	fmt.Fprintf(stdout, "%s: %s; %v\n", out, describe(x), time.Since(start).Round(time.Millisecond))
	return x.Close()
}

// showProgress returns a function that draws a bar on a terminal and writes a line every ten seconds elsewhere.
func showProgress(log io.Writer) func(bm25.Progress) {
	file, ok := log.(*os.File)
	if ok && term.IsTerminal(int(file.Fd())) {
		return bar(file)
	}
	var last time.Time
	resumed, merging := false, false
	return func(p bm25.Progress) {
		switch {
		case p.Resumed > 0 && !resumed:
			resumed = true
			fmt.Fprintf(log, "going on after %s passages of an earlier run\n", humanize.Comma(int64(p.Resumed)))
		case p.Merging && !merging:
			merging = true
			fmt.Fprintf(log, "%s passages indexed; merging\n", humanize.Comma(int64(p.Passages)))
		case time.Since(last) < 10*time.Second:
			return
		case p.Merging:
			fmt.Fprintf(log, "%s terms merged\n", humanize.Comma(int64(p.Terms)))
		default:
			fmt.Fprintf(log, "%s passages, %s of %s\n", humanize.Comma(int64(p.Passages)), humanize.IBytes(uint64(p.Bytes)),
				humanize.IBytes(uint64(p.Total)))
		}
		last = time.Now()
	}
}

// bar draws the progress over a line of a terminal.
func bar(terminal io.Writer) func(bm25.Progress) {
	var drawn *progressbar.ProgressBar
	return func(p bm25.Progress) {
		if drawn == nil {
			drawn = progressbar.NewOptions64(p.Total, progressbar.OptionSetWriter(terminal), progressbar.OptionShowBytes(true),
				progressbar.OptionSetDescription("indexing"), progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
			if p.Resumed > 0 {
				fmt.Fprintf(terminal, "going on after %s passages of an earlier run\n", humanize.Comma(int64(p.Resumed)))
			}
		}
		if p.Merging {
			drawn.Describe(fmt.Sprintf("merging, %s terms", humanize.Comma(int64(p.Terms))))
		}
		_ = drawn.Set64(p.Bytes)
	}
}
