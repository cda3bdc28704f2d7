package retrieve

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
)

// BM25Options are the parameters of BM25 and of the analysis; their zero values are not the usual ones, see DefaultBM25.
type BM25Options = bm25.Options

// DefaultBM25 returns Anserini's parameters, k1 0.9 and b 0.4, and its analysis.
func DefaultBM25() BM25Options { return bm25.Default() }

// Analyze returns the index terms of a text under the usual analysis; see analysis.Analyzer.
func Analyze(text string) []string { return analysis.Analyzer{}.Terms(text) }

// BM25 searches an index in this process. It is safe for concurrent use.
type BM25 struct{ index *bm25.Index }

var _ Searcher = (*BM25)(nil)

// NewBM25 indexes a corpus in memory. The slice is kept, not copied.
func NewBM25(corpus []data.Passage, options BM25Options) (*BM25, error) {
	index, err := bm25.New(corpus, options)
	if err != nil {
		return nil, fmt.Errorf("retrieve: %w", err)
	}
	return &BM25{index}, nil
}

// OpenBM25 opens an index that bm25.Build made; see bm25.Open.
func OpenBM25(dir string, options BM25Options) (*BM25, error) {
	index, err := bm25.Open(dir, options)
	if err != nil {
		return nil, fmt.Errorf("retrieve: %w", err)
	}
	return &BM25{index}, nil
}

// Index returns the index that is searched.
func (x *BM25) Index() *bm25.Index { return x.index }

// Close closes an index that was opened.
func (x *BM25) Close() error { return x.index.Close() }

// Search implements Searcher. Only passages that hold at least one term of the query are found. A term that stands
// several times in a query counts as often. The queries are spread over all cores; once the context ends, the rest
// of them fail with its error.
func (x *BM25) Search(ctx context.Context, queries []string, topk int) []Result {
	results := make([]Result, len(queries))
	if err := checkTopK(topk); err != nil {
		failAll(results, &Error{Kind: KindRequest, Err: err})
		return results
	}
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(queries) {
				return
			}
			passages, err := x.searchOne(ctx, queries[i], topk)
			if err != nil {
				results[i].Err = failure(ctx, err)
				continue
			}
			results[i].Passages = passages
		}
	}
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(queries)) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
	return results
}

func (x *BM25) searchOne(ctx context.Context, query string, topk int) ([]episode.Passage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	hits, err := x.index.Search(ctx, query, topk)
	if err != nil {
		return nil, err
	}
	passages := make([]episode.Passage, len(hits))
	for i, hit := range hits {
		p, err := x.index.Passage(int(hit.Doc))
		if err != nil {
			return nil, err
		}
		passages[i] = episode.Passage{ID: p.ID, Contents: p.Contents, Score: float64(hit.Score)}
	}
	return passages, nil
}

// failure tells the caller's end and an index that cannot be searched apart.
func failure(ctx context.Context, err error) *Error {
	if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
		return &Error{Kind: KindCanceled, Err: err}
	}
	return &Error{Kind: KindIndex, Err: err}
}
