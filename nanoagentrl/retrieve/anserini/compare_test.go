package anserini

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

func list(hits ...Hit) (passages []episode.Passage) {
	for _, h := range hits {
		passages = append(passages, episode.Passage{ID: h.ID, Score: h.Score})
	}
	return passages
}

func TestDifferencesHaveTheirReason(t *testing.T) {
	base := list(Hit{"a", 3}, Hit{"b", 2}, Hit{"c", 1}, Hit{"d", 1})
	for name, c := range map[string]struct {
		theirs []episode.Passage
		want   string
	}{
		"equal":                  {base, ""},
		"rounded":                {list(Hit{"a", 3.00005}, Hit{"b", 1.99995}, Hit{"c", 1}), ""},
		"equal up to k":          {list(Hit{"a", 3}, Hit{"b", 2}, Hit{"c", 1}, Hit{"x", 1}), ""},
		"other one of two equal": {list(Hit{"a", 3}, Hit{"b", 2}, Hit{"d", 1}), "ties"},
		"another score":          {list(Hit{"a", 3}, Hit{"b", 2.1}, Hit{"c", 1}), "scores"},
		"fewer":                  {list(Hit{"a", 3}, Hit{"b", 2}), "scores"},
		"more":                   {nil, "scores"},
		"an unknown passage":     {list(Hit{"a", 3}, Hit{"x", 2}, Hit{"c", 1}), "passages"},
		"swapped, no tie":        {list(Hit{"b", 3}, Hit{"a", 2}, Hit{"c", 1}), "passages"},
	} {
		assert.Equal(t, c.want, differ(base, c.theirs, 3), name)
	}
	assert.True(t, tied(base, 3), "the fourth has the score of the third")
	assert.False(t, tied(base, 2))
	assert.True(t, tied(base, 5), "there are fewer")
}

// fixed gives every question the same answer.
type fixed struct{ retrieve.Result }

func (f fixed) Search(_ context.Context, queries []string, _ int) []retrieve.Result {
	results := make([]retrieve.Result, len(queries))
	for i := range results {
		results[i] = f.Result
	}
	return results
}

func TestComparisonCounts(t *testing.T) {
	a := fixed{retrieve.Result{Passages: list(Hit{"a", 3}, Hit{"b", 2}, Hit{"c", 1})}}
	b := fixed{retrieve.Result{Passages: list(Hit{"a", 3.5}, Hit{"b", 2}, Hit{"c", 1})}}
	same, err := Compare(t.Context(), a, a, []string{"who?", "where?"}, 2)
	require.NoError(t, err)
	assert.Equal(t, []any{2, 2, 0, 0, 0.0}, []any{same.Questions, same.Equal, same.Ties, same.Other, same.Largest})
	assert.Equal(t, []Vector{{"s", "who?", []Hit{{"a", 3}, {"b", 2}}}}, same.Vectors("s", 1))
	other, err := Compare(t.Context(), a, b, []string{"who?"}, 2)
	require.NoError(t, err)
	assert.Equal(t, []any{0, 0, 1, 0.5}, []any{other.Equal, other.Ties, other.Other, other.Largest})
	assert.Equal(t, "scores", other.Differences[0].Reason)
	_, err = Compare(t.Context(), a, fixed{retrieve.Result{Err: errors.New("gone")}}, []string{"who?"}, 2)
	assert.ErrorContains(t, err, "gone")
}
