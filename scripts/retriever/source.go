package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dustin/go-humanize"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
)

// source are the options that say what is searched.
type source struct {
	corpus, index, dataDir string
	k1, b                  float64
	rebuild                bool
	analyzer               analysis.Analyzer
	flags                  *pflag.FlagSet
	cluster
}

func addCorpus(flags *pflag.FlagSet, s *source) {
	flags.StringVar(&s.corpus, "corpus", "", "JSONL file of the passages, a folder with a corpus.jsonl, or the name of a data set")
	flags.StringVar(&s.dataDir, "data_dir", "", "folder of data sets that can be named")
}

func addAnalysis(flags *pflag.FlagSet, s *source) {
	flags.BoolVar(&s.analyzer.ComposeAccents, "compose_accents", false, "find accented letters however they were typed (NFC)")
	flags.BoolVar(&s.analyzer.NoStemming, "no_stemming", false, "keep the endings of words")
	flags.BoolVar(&s.analyzer.KeepStopWords, "keep_stop_words", false, "index the, of, and … as well")
	flags.BoolVar(&s.analyzer.KeepPossessive, "keep_possessive", false, "keep the 's of words")
}

func addSource(flags *pflag.FlagSet) *source {
	s := &source{flags: flags}
	addCorpus(flags, s)
	flags.StringVar(&s.index, "index", "", "folder of an index; with --corpus it must be that of the corpus, and is made if it is not there")
	flags.BoolVar(&s.rebuild, "rebuild", false, "make the index again, whatever the folder holds")
	flags.Float64Var(&s.k1, "k1", retrieve.DefaultBM25().K1, "BM25's saturation of the term frequency")
	flags.Float64Var(&s.b, "b", retrieve.DefaultBM25().B, "BM25's normalisation by length, from 0 to 1")
	addAnalysis(flags, s)
	addCluster(flags, s)
	return s
}

// corpusFile returns the file of the corpus.
func (s *source) corpusFile() (string, error) {
	return data.Places{Dir: s.dataDir}.Corpus(s.corpus)
}

// open indexes the corpus in memory, or opens the index, which it makes first if it has to.
func (s *source) open(ctx context.Context, log io.Writer) (*retrieve.BM25, error) {
	options := retrieve.BM25Options{K1: s.k1, B: s.b, Analyzer: s.analyzer}
	switch {
	case s.corpus == "" && s.index == "":
		return nil, fmt.Errorf("give --corpus FILE or --index DIR; see --help")
	case s.index == "":
		return s.inMemory(options, log)
	case s.corpus == "" && s.rebuild:
		return nil, fmt.Errorf("--rebuild needs the --corpus")
	case s.corpus != "":
		path, err := s.corpusFile()
		if err != nil {
			return nil, err
		}
		build := bm25.BuildOptions{Analyzer: s.analyzer, Rebuild: s.rebuild, Progress: showProgress(log)}
		if _, err := bm25.Build(ctx, path, s.index, build); err != nil {
			return nil, err
		}
	default:
		for _, name := range []string{"compose_accents", "no_stemming", "keep_stop_words", "keep_possessive"} {
			if s.flags.Changed(name) {
				return nil, fmt.Errorf("--%s belongs to the index and cannot be changed later; with --corpus it is made anew", name)
			}
		}
	}
	return retrieve.OpenBM25(s.index, options)
}

func (s *source) inMemory(options retrieve.BM25Options, log io.Writer) (*retrieve.BM25, error) {
	path, err := s.corpusFile()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// Measured: the texts, some 250 bytes a passage beside them, and an index of a third at most while it is made.
	need := 2 * uint64(info.Size())
	fmt.Fprintf(log, "corpus %s has %s; in memory it takes about %s\n", path, humanize.IBytes(uint64(info.Size())),
		humanize.IBytes(need))
	if memory, err := mem.VirtualMemory(); err == nil && memory.Available < need {
		fmt.Fprintf(log, "WARNING only %s of memory are free: make an index with --index DIR instead, which stays on the disk\n",
			humanize.IBytes(memory.Available))
	}
	passages, err := data.ReadCorpus(path)
	if err != nil {
		return nil, err
	}
	x, err := retrieve.NewBM25(passages, options)
	if err == nil && x.Index().Counts().Tokens == 0 {
		err = fmt.Errorf("%s: %w", path, bm25.ErrNoWords)
	}
	return x, err
}

// describe says in a line what is searched.
func describe(x *bm25.Index) string {
	counts := x.Counts()
	index, passages := x.Bytes()
	text := fmt.Sprintf("%s passages, %s terms, %s postings in %s", humanize.Comma(int64(counts.Passages)),
		humanize.Comma(int64(counts.Terms)), humanize.Comma(int64(counts.Postings)), humanize.IBytes(uint64(index)))
	if passages > 0 {
		text += fmt.Sprintf(", texts in %s", humanize.IBytes(uint64(passages)))
	}
	return text
}

// closing closes an index and joins its error to another.
func closing(x io.Closer, err *error) { *err = errors.Join(*err, x.Close()) }
