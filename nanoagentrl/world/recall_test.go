package world_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// recalls returns, over the questions of all splits, how often BM25's first three passages hold the passage of the
// first hop and of the last for a good query, name and relation, and that of the last for the question itself.
func recalls(t *testing.T, opts world.FactsOptions) (first, last, raw float64) {
	t.Helper()
	w, err := world.NewFacts(opts)
	require.NoError(t, err)
	index, err := retrieve.NewBM25(w.Corpus, retrieve.DefaultBM25())
	require.NoError(t, err)
	finds := func(query, gold string) float64 {
		for _, p := range index.Search(t.Context(), []string{query}, 3)[0].Passages {
			if p.ID == gold {
				return 1
			}
		}
		return 0
	}
	good := func(q data.Question, hop int) float64 {
		f := w.Path(q.ID)[hop]
		return finds(f.Subject+" "+string(f.Relation), q.GoldPassages[hop])
	}
	n := 0.0
	for _, split := range world.Splits {
		for _, q := range w.Questions(split) {
			end := len(q.GoldPassages) - 1
			first, last, raw = first+good(q, 0), last+good(q, end), raw+finds(q.Text, q.GoldPassages[end])
			n++
		}
	}
	t.Logf("%+v: %.3f first hop, %.3f last hop, %.3f question as it stands", opts, first/n, last/n, raw/n)
	return first / n, last / n, raw / n
}

func TestGoodQueriesFindTheirPassageNineTimesOutOfTen(t *testing.T) {
	for _, size := range []int{1, 2, 4} {
		opts := world.DefaultFacts()
		opts.FactsPerPassage = size
		one, _, _ := recalls(t, opts)
		assert.InDelta(t, 0.90, one, 0.05)
	}
}

func TestTwoHopQuestionAsItStandsMissesTheSecondPassage(t *testing.T) {
	opts := world.DefaultFacts()
	opts.Hops = world.TwoHop
	first, last, raw := recalls(t, opts)
	assert.InDelta(t, 0.90, first, 0.05)
	assert.InDelta(t, 0.90, last, 0.05)
	assert.Less(t, raw, 0.05)
}

func TestWithoutNoiseGoodQueriesAlwaysFindTheirPassage(t *testing.T) {
	opts := world.DefaultFacts()
	opts.Noise, opts.Hops = 0, world.MixedHops
	for _, size := range []int{1, 4} {
		opts.FactsPerPassage = size
		first, last, _ := recalls(t, opts)
		assert.GreaterOrEqual(t, first, 0.99)
		assert.GreaterOrEqual(t, last, 0.99)
	}
}
