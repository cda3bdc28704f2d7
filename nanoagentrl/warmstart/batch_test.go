package warmstart

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// made is an episode of prompt tokens and policy tokens; values are counted from the first policy token.
func made(prompt, policy int, values ...int) Example {
	e := &episode.Episode{}
	e.Append(episode.Prompt, make([]int, prompt), nil)
	ids := make([]int, policy)
	for i := range ids {
		ids[i] = 100 + i
	}
	e.Append(episode.Policy, ids, make([]float32, policy))
	x := Example{Episode: e}
	for _, v := range values {
		x.Values = append(x.Values, prompt+v)
	}
	return x
}

func TestCutKeepsEveryPolicyTokenOnceAndFewShapes(t *testing.T) {
	examples := []Example{made(5, 3), made(100, 10), made(90, 10), made(4, 4), made(95, 10), made(250, 20)}
	examples[1].Episode.Append(episode.Environment, make([]int, 500), nil) // What nobody answered costs nothing.
	parts, err := cut(examples)
	require.NoError(t, err)
	wanted, tokens := 0, 0
	var shapes [][2]int
	for _, p := range parts {
		wanted, tokens = wanted+p.batch.Wanted, tokens+p.tokens
		shapes = append(shapes, [2]int{p.batch.Rows, p.batch.Width})
	}
	assert.Equal(t, 3+10+10+4+10+20, wanted)
	assert.Equal(t, 8+110+100+8+105+270, tokens)
	assert.Equal(t, [][2]int{{4, 288}, {4, 160}, {4, 32}}, shapes)
}

func TestBucketsAreFewAndHoldTheirLengths(t *testing.T) {
	for n, want := range map[int]int{1: 32, 32: 32, 33: 96, 96: 96, 97: 160, 160: 160, 512: 544} {
		assert.Equal(t, want, bucket(n), "%d", n)
	}
}

func TestScoreCountsTheValuesOfEachRow(t *testing.T) {
	p, err := pad([]Example{made(5, 3, 1, 2), made(7, 2, 0), made(3, 2)}, 32)
	require.NoError(t, err)
	assert.Equal(t, 4, p.batch.Rows)
	assert.Equal(t, []int{1, 2, 3}, p.values)
	likely, unlikely := float32(math.Log(0.51)), float32(math.Log(0.49))
	var s score
	s.add(p, []float32{unlikely, likely, unlikely, likely, 0, 0, 0})
	assert.Equal(t, 2, s.right)
	assert.Equal(t, 3, s.values)
	assert.Equal(t, 7, s.tokens)
	assert.InDelta(t, 2.0/3, s.accuracy(), 1e-9)
	assert.InDelta(t, -2*math.Log(0.51)-2*math.Log(0.49), s.loss, 1e-6)
	assert.True(t, math.IsNaN((&score{}).accuracy()))
}

// A training that goes on must see what it would have seen.
func TestBatchesDependOnTheirNumberAlone(t *testing.T) {
	r := Default()
	r.World.Fresh = 3
	r.Stages = []Stage{
		{Batch: 4, Copy: 0.5, Passages: 2, Facts: 1, Questions: 2, Habits: Mixed},
		{Batch: 4, Copy: 0.5, Passages: 2, Facts: 1, Questions: 2, Habits: Mixed},
	}
	tok := vocabulary(t, Facts)
	get := func(s *source, stage, n int) []Example {
		examples, err := s.batch(t.Context(), stage, n)
		require.NoError(t, err)
		require.Len(t, examples, 4)
		return examples
	}
	whole := newSource(r, tok)
	seen := map[string]bool{}
	for stage := range 2 {
		for n := range 8 {
			batch := get(whole, stage, n)
			require.Equal(t, batch, get(newSource(r, tok), stage, n), "stage %d, batch %d", stage, n)
			for _, x := range batch {
				text := tok.Decode(x.Episode.IDs)
				require.False(t, seen[text] && len(x.Episode.IDs) > 20, "no sequence comes twice: %s", text)
				seen[text] = true
			}
		}
	}
}
