package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
)

func timeIndex(ctx context.Context, o *options, out io.Writer) error {
	dir := filepath.Join(o.dir, "index")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	start := time.Now()
	m, err := bm25.Build(ctx, filepath.Join(o.dir, "corpus.jsonl"), dir, bm25.BuildOptions{})
	if err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	x, err := bm25.Open(dir, retrieve.DefaultBM25())
	if err != nil {
		return err
	}
	index, texts := x.Bytes()
	values := map[string]any{"what": "ours: index", "n": m.Counts.Passages, "terms": m.Counts.Terms,
		"postings": m.Counts.Postings, "index_s": round(seconds), "peak_gib": peakGiB(),
		"index_mib": round(float64(index) / (1 << 20)), "texts_mib": round(float64(texts) / (1 << 20)),
		"cores": runtime.GOMAXPROCS(0)}
	if err := line(out, values); err != nil {
		return err
	}
	return x.Close()
}

func timeSearch(ctx context.Context, o *options, out io.Writer) error {
	queries, err := readLines(o.dir, "queries.txt")
	if err != nil {
		return err
	}
	start := time.Now()
	x, err := retrieve.OpenBM25(filepath.Join(o.dir, "index"), retrieve.DefaultBM25())
	if err != nil {
		return err
	}
	opened := time.Since(start)
	start = time.Now()
	if err := x.Index().Verify(ctx); err != nil {
		return err
	}
	verified := time.Since(start)
	best := time.Duration(1<<63 - 1)
	var first []retrieve.Result
	for range o.reps {
		start := time.Now()
		first = x.Search(ctx, queries, o.topk)
		best = min(best, time.Since(start))
		for _, r := range first {
			if r.Err != nil {
				return r.Err
			}
		}
	}
	var alone []time.Duration
	for _, query := range queries[:min(len(queries), 500)] {
		start := time.Now()
		x.Search(ctx, []string{query}, o.topk)
		alone = append(alone, time.Since(start))
	}
	total := time.Duration(0)
	for _, t := range alone {
		total += t
	}
	hits := [][]string{}
	for _, r := range first[:min(2, len(first))] {
		ids := []string{}
		for _, p := range r.Passages {
			ids = append(ids, p.ID)
		}
		hits = append(hits, ids)
	}
	if err := writeHits(ctx, o.dir, first); err != nil {
		return err
	}
	values := map[string]any{"what": "ours: search", "n": x.Index().Len(), "queries": len(queries), "topk": o.topk,
		"open_ms": round(opened.Seconds() * 1000), "verify_s": round(verified.Seconds()),
		"q_s": round(float64(len(queries)) / best.Seconds()), "single_q_s": round(float64(len(alone)) / total.Seconds()),
		"p50_ms": percentile(alone, 0.5), "p99_ms": percentile(alone, 0.99), "peak_gib": peakGiB(), "first_hits": hits,
		"cores": runtime.GOMAXPROCS(0)}
	if err := line(out, values); err != nil {
		return err
	}
	return x.Close()
}

// writeHits writes the ids and scores of all queries, for the peers to compare with.
func writeHits(ctx context.Context, dir string, results []retrieve.Result) error {
	return writeLines(ctx, filepath.Join(dir, "hits.txt"), len(results), func(i int) string {
		text := ""
		for _, p := range results[i].Passages {
			text += fmt.Sprintf("%s:%.4f ", p.ID, p.Score)
		}
		return text
	})
}
