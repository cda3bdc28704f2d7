package nanoagentrl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/dense"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch"
)

// searchState is what a run holds of its search engine, and of where its data came from.
type searchState struct {
	index   io.Closer       // nil if there is nothing to close
	meaning *dense.Searcher // to be closed
	// giveUp ends what is searching; nil while nothing is.
	giveUp context.CancelCauseFunc
	// trainFile is the file of the training questions, if they are those of a data set that was named.
	trainFile string
}

func (s *searchState) close() {
	if s.index != nil {
		_ = s.index.Close() // It was only read.
	}
	if s.meaning != nil {
		_ = s.meaning.Close()
	}
}

// places says where data sets are looked for by name.
func (r *Run) places() data.Places {
	return data.Places{Dir: r.Config.DataDir, Hub: data.HubOptions{Offline: r.Config.Offline,
		Note: func(message string) { fmt.Fprintln(r.opts.Out, message) }}}
}

// readNamed reads the questions of a file, a folder or a data set that is named. A data set whose questions lie in one file
// may give them for training or for an evaluation, and not for both.
func (r *Run) readNamed(ctx context.Context, value, split string) ([]data.Question, error) {
	path, opts, err := r.places().Questions(ctx, value, split)
	if err != nil {
		return nil, err
	}
	if opts.Source != "" && split == "train" {
		r.search.trainFile = path
	}
	if opts.Source != "" && split != "train" && path == r.search.trainFile {
		return nil, fmt.Errorf("%s and train_data %s are the same questions (%s); name splits, such as %s:dev, or "+
			"another data set", value, r.Config.TrainData, path, opts.Source)
	}
	return data.ReadQuestions(path, opts)
}

// needsCorpus reports whether the passages must be in memory: to be indexed there, or for the vocabulary of a random model.
func (r *Run) needsCorpus() bool {
	cfg := r.Config
	inMemory := cfg.RetrieverURL == "" && cfg.OpenSearchURL == "" && !r.usesIndex()
	words := cfg.Model == config.RandomModel && cfg.RetrieverURL == "" && cfg.Corpus != ""
	return cfg.Task == string(agent.TaskSearch) && (inMemory || words)
}

// usesIndex reports whether the index on the disk is searched.
func (r *Run) usesIndex() bool {
	return r.Config.Index != "" && r.Config.Corpus != config.Tiny && r.Config.Corpus != config.WorldFacts
}

// openIndex indexes the corpus in memory, or opens the index on the disk, which it makes first if it has to.
func (r *Run) openIndex(ctx context.Context) (*retrieve.BM25, error) {
	cfg := r.Config
	options := retrieve.BM25Options{K1: cfg.BM25K1, B: cfg.BM25B}
	if !r.usesIndex() {
		index, err := retrieve.NewBM25(r.corpus, options)
		if err == nil && index.Index().Counts().Tokens == 0 {
			err = fmt.Errorf("corpus: %s: %w", cfg.Corpus, bm25.ErrNoWords)
		}
		return index, err
	}
	path, err := r.places().Corpus(cfg.Corpus)
	if err != nil {
		return nil, err
	}
	progress := func(p bm25.Progress) {
		r.opts.Reporter.Phase(0, 0, fmt.Sprintf("indexing %s, %d passages", cfg.Corpus, p.Passages))
	}
	dir := r.indexFolder("bm25")
	if _, err := bm25.Build(ctx, path, dir, bm25.BuildOptions{Progress: progress}); err != nil {
		return nil, err
	}
	index, err := retrieve.OpenBM25(dir, options)
	if err != nil {
		return nil, err
	}
	r.search.index = index
	return index, index.Index().Verify(ctx)
}

// openCluster opens the index in OpenSearch, and compares it with the corpus if that is named.
func (r *Run) openCluster(ctx context.Context) error {
	cfg := r.Config
	options := opensearch.Options{URL: cfg.OpenSearchURL, Index: cfg.OpenSearchIndex, Client: patience(cfg)}
	if cfg.Corpus != "" {
		path, err := r.places().Corpus(cfg.Corpus)
		if err != nil {
			return err
		}
		options.Corpora = []string{path}
	}
	x, err := opensearch.Open(ctx, options)
	if err != nil {
		return err
	}
	r.search.index = x
	if err := x.CheckBM25(cfg.BM25K1, cfg.BM25B); err != nil {
		return err
	}
	r.Searcher = r.outlasting(x)
	fmt.Fprintf(r.opts.Out, "search   OpenSearch index %s with %d passages\n", cfg.OpenSearchIndex, x.Len())
	return nil
}

// firstPause is the wait after the first failure in a row; tests shorten it.
var firstPause = time.Second

// outlasting returns a searcher that waits out an outage of the server, and ends the run when it lasts.
func (r *Run) outlasting(server retrieve.Searcher) *retrieve.Outlast {
	return &retrieve.Outlast{Searcher: server, Failures: r.Config.RetrieverMaxFailures, Pause: firstPause,
		MaxPause: 30 * time.Second,
		GiveUp: func(err error) {
			if r.search.giveUp != nil {
				r.search.giveUp(err)
			}
		},
		Note: func(message string) {
			step := r.evalStep
			if r.Trainer != nil {
				step = r.Trainer.Step()
			}
			r.opts.Reporter.Warn(step, message)
		},
	}
}

// whileSearchable does some work whose context ends when the search engine is given up. The error is then why. Only a
// server can be given up.
func (r *Run) whileSearchable(ctx context.Context, work func(context.Context) error) error {
	if _, server := r.Searcher.(*retrieve.Outlast); !server {
		return work(ctx)
	}
	inner, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r.search.giveUp = giveUp
	defer func() { r.search.giveUp = nil }()
	err := work(inner)
	if cause := context.Cause(inner); errors.Is(cause, retrieve.ErrGaveUp) && errors.Is(err, context.Canceled) {
		if r.Trainer == nil {
			return cause
		}
		return fmt.Errorf("%w; what was learned up to step %d is saved, and the same command goes on from there", cause,
			r.Trainer.Step())
	}
	return err
}
