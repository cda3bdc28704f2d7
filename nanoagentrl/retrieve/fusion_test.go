package retrieve

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// listed finds the same passages for every query, as far as topk goes, or fails.
type listed struct {
	ids  []string
	err  error
	topk *int
}

func (l listed) Search(_ context.Context, queries []string, topk int) []Result {
	if l.topk != nil {
		*l.topk = topk
	}
	results := make([]Result, len(queries))
	for i := range results {
		results[i].Err = l.err
		for rank, id := range l.ids[:min(topk, len(l.ids))] {
			results[i].Passages = append(results[i].Passages, episode.Passage{ID: id, Contents: "of " + id, Score: float64(9 - rank)})
		}
	}
	return results
}

func TestFusionIsTheSumOfReciprocalRanks(t *testing.T) {
	asked := 0
	f := &Fusion{Searchers: []Searcher{listed{ids: []string{"a", "b", "c"}, topk: &asked}, listed{ids: []string{"c", "d", "a", "e"}}}}
	got := search(t, f, "q", 9)
	require.Equal(t, []string{"a", "c", "b", "d", "e"}, idsOf(got), "a and c, b and d score alike or nearly")
	for i, want := range []float64{1./61 + 1./63, 1./63 + 1./61, 1. / 62, 1. / 62, 1. / 64} {
		assert.InDelta(t, want, got[i].Score, 1e-15)
	}
	assert.Equal(t, "of d", got[3].Contents)
	assert.Equal(t, FusionDepth, asked)

	assert.Equal(t, []string{"a", "c"}, idsOf(search(t, f, "q", 2)))
	f.K, f.Depth = 1, 2
	got = search(t, f, "q", 2)
	assert.Equal(t, 2, asked)
	assert.Equal(t, []string{"a", "c"}, idsOf(got))
	assert.InDelta(t, 1./2, got[1].Score, 1e-15, "a and c are first in one engine each")
	assert.Len(t, search(t, f, "q", 3), 4-1)
	assert.Equal(t, 3, asked, "never below topk")
}

func TestFusionFailsWithItsEngines(t *testing.T) {
	broken := errors.New("no index")
	f := &Fusion{Searchers: []Searcher{listed{ids: []string{"a"}}, listed{err: &Error{Kind: KindIndex, Err: broken}}}}
	results := f.Search(t.Context(), []string{"x", "y"}, 3)
	require.Len(t, results, 2)
	require.ErrorIs(t, results[1].Err, broken)
	var typed *Error
	require.ErrorAs(t, results[0].Err, &typed)
	assert.Equal(t, KindIndex, typed.Kind)
	assert.Empty(t, results[0].Passages)

	assert.ErrorContains(t, f.Search(t.Context(), []string{"x"}, 0)[0].Err, "topk is 0")
	assert.ErrorContains(t, new(Fusion).Search(t.Context(), []string{"x"}, 1)[0].Err, "needs engines")
}
