package nanoagentrl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/dense"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// openInProcess opens the search of retriever_kind and returns what it is.
func (r *Run) openInProcess(ctx context.Context) (about string, err error) {
	var words *retrieve.BM25
	kind := r.Config.RetrieverKind
	if kind != "dense" {
		if words, err = r.openIndex(ctx); err != nil {
			return "", err
		}
		r.Searcher = words
		about = fmt.Sprintf("BM25 in process over %d passages", words.Index().Len())
	}
	if kind == "bm25" {
		return about, nil
	}
	if err := r.openMeaning(ctx); err != nil {
		return "", err
	}
	meaning := r.search.meaning
	x := meaning.Index()
	if kind == "dense" {
		r.Searcher = meaning
		return fmt.Sprintf("dense in process with %s over %d passages", x.Model().Name, x.Len()), nil
	}
	if x.Len() != words.Index().Len() {
		return "", fmt.Errorf("index: the folders bm25 and dense of %s hold %d and %d passages; remove the wrong one",
			r.Config.Index, words.Index().Len(), x.Len())
	}
	r.Searcher = &retrieve.Fusion{Searchers: []retrieve.Searcher{words, meaning}}
	return fmt.Sprintf("hybrid in process, BM25 and %s over %d passages", x.Model().Name, x.Len()), nil
}

// openMeaning opens the dense half of the search on the run's device.
func (r *Run) openMeaning(ctx context.Context) error {
	cfg := r.Config
	source := dense.Source{Encoder: cfg.Encoder, Hub: weights.HubOptions{Offline: cfg.Offline,
		Warn: func(message string) { fmt.Fprintln(r.opts.Out, message) }},
		Progress: func(p dense.Progress) {
			r.opts.Reporter.Phase(0, 0, fmt.Sprintf("encoding %s, %d of %d passages", cfg.Corpus, p.Encoded, p.Stored))
		}}
	if r.usesIndex() {
		path, err := r.places().Corpus(cfg.Corpus)
		if err != nil {
			return err
		}
		source.Corpus, source.Index = path, r.indexFolder("dense")
	} else {
		source.Passages = r.corpus
	}
	meaning, err := source.Open(ctx, r.Device)
	if err != nil {
		return err
	}
	if err := meaning.Index().Verify(ctx); err != nil {
		return errors.Join(err, meaning.Close())
	}
	r.search.meaning = meaning
	return nil
}

// indexFolder returns the folder of one kind of index: for hybrid one in the folder that index names.
func (r *Run) indexFolder(kind string) string {
	if r.Config.RetrieverKind == "hybrid" {
		return filepath.Join(r.Config.Index, kind)
	}
	return r.Config.Index
}
