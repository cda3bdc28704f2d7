package retrieve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// Fusion searches with several engines over the same corpus and joins what they find by reciprocal rank fusion
// (Cormack, Clarke and Büttcher, SIGIR 2009):
//
//	score(d) = Σ_engines 1 / (K + rank of d)
//
// with ranks from 1; an engine that does not find d adds nothing. Passages are told apart by their ids.
type Fusion struct {
	Searchers []Searcher
	// K flattens the differences between the first ranks; 0 stands for 60.
	K int
	// Depth is the number of passages that each engine is asked for, at least topk; 0 stands for 100.
	Depth int
}

var _ Searcher = (*Fusion)(nil)

// The usual values of a Fusion.
const (
	FusionK     = 60
	FusionDepth = 100
)

// Search implements Searcher, except that passages of equal score stand in the order of the first engine, then of the
// second, and so on. A query fails if it fails in any engine. The engines search at the same time.
func (f *Fusion) Search(ctx context.Context, queries []string, topk int) []Result {
	results := make([]Result, len(queries))
	err := checkTopK(topk)
	if err == nil && (len(f.Searchers) == 0 || f.K < 0 || f.Depth < 0) {
		err = fmt.Errorf("a fusion needs engines, and K and depth of at least 0; got %d, %d and %d", len(f.Searchers), f.K, f.Depth)
	}
	if err != nil {
		failAll(results, &Error{Kind: KindRequest, Err: err})
		return results
	}
	found := make([][]Result, len(f.Searchers))
	var group sync.WaitGroup
	for i, s := range f.Searchers {
		group.Go(func() { found[i] = s.Search(ctx, queries, max(topk, cmp.Or(f.Depth, FusionDepth))) })
	}
	group.Wait()
	for q := range queries {
		var lists [][]episode.Passage
		var failed error
		for _, list := range found {
			failed = errors.Join(failed, list[q].Err)
			lists = append(lists, list[q].Passages)
		}
		if failed != nil {
			results[q].Err = failed
			continue
		}
		results[q].Passages = f.fuse(lists, topk)
	}
	return results
}

// fuse joins the lists of one query.
func (f *Fusion) fuse(lists [][]episode.Passage, topk int) []episode.Passage {
	fused := []episode.Passage{} // in the order of the first engine, then of the others
	place := map[string]int{}
	k := float64(cmp.Or(f.K, FusionK))
	for _, list := range lists {
		for rank, p := range list {
			i, seen := place[p.ID]
			if !seen {
				i = len(fused)
				place[p.ID] = i
				p.Score = 0
				fused = append(fused, p)
			}
			fused[i].Score += 1 / (k + float64(rank+1))
		}
	}
	slices.SortStableFunc(fused, func(a, b episode.Passage) int { return cmp.Compare(b.Score, a.Score) })
	return fused[:min(topk, len(fused))]
}
