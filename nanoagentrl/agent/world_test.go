package agent

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent/agenttest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// world is a rollout with a scripted policy and a fake search engine.
type world struct {
	tok      *agenttest.Tokenizer
	sampler  *agenttest.Sampler
	searcher *agenttest.Searcher
	opts     Options
}

func newWorld(turns ...[]string) *world {
	tok := agenttest.NewTokenizer()
	return &world{
		tok: tok, sampler: agenttest.NewSampler(tok, turns...),
		searcher: &agenttest.Searcher{Passages: map[string][]episode.Passage{"q": {lake, river}, "r": {river}}},
		opts: Options{
			Task: TaskSearch, Temperature: 1, MaxTurns: 4, MaxNewTokens: 400, TopK: 3, MaxObsTokens: 200,
			MaxContext: 2000,
		},
	}
}

func (w *world) rollouter(t *testing.T) *Rollouter {
	t.Helper()
	r, err := New(w.tok, w.sampler, w.searcher, &Prompter{User: "Q: {question}"}, w.opts)
	require.NoError(t, err)
	return r
}

// play rolls out, checks what must hold for every rollout, and returns the episodes.
func (w *world) play(t *testing.T, group int, questions ...string) []*episode.Episode {
	t.Helper()
	episodes, err := w.rollouter(t).Rollout(context.Background(), rows(questions...), group, Seeds(1, "train", 0))
	require.NoError(t, err)
	w.check(t, episodes)
	return episodes
}

func rows(questions ...string) []data.Question {
	var result []data.Question
	for _, q := range questions {
		result = append(result, data.Question{ID: "id_" + q, Text: q, Answers: []string{"gold " + q}, Source: "nq"})
	}
	return result
}

// check rebuilds each episode's text from its parts: prompt, turns, observations, with nothing lost or moved.
func (w *world) check(t *testing.T, episodes []*episode.Episode) {
	t.Helper()
	for _, e := range episodes {
		require.NoError(t, Check(e))
		require.Len(t, e.Mask(), len(e.IDs))
		assert.NotEmpty(t, e.Stop)
		assert.LessOrEqual(t, e.CountTokens(episode.Policy), w.opts.MaxNewTokens)
		assert.LessOrEqual(t, len(e.IDs), w.opts.MaxContext)
		assert.LessOrEqual(t, len(e.Turns), max(w.opts.MaxTurns, 1))

		at, drawn := len(w.tok.Encode(e.PromptText)), 0
		assert.Equal(t, w.tok.Encode(e.PromptText), e.IDs[:at])
		for _, turn := range e.Turns {
			require.Equal(t, at, turn.Begin)
			for ; at < turn.End; at++ {
				assert.Equal(t, episode.Policy, e.Sources[at])
				assert.Equal(t, agenttest.LogProb(drawn), e.LogProbs[at])
				drawn++
			}
			assert.True(t, strings.HasPrefix(w.tok.Decode(e.IDs[turn.Begin:turn.End]), turn.Text))
			observed := w.tok.EncodePlain(turn.Observation)
			assert.True(t, slices.Equal(observed, e.IDs[at:at+len(observed)]))
			for range observed {
				assert.Equal(t, episode.Environment, e.Sources[at])
				assert.Zero(t, e.LogProbs[at])
				at++
			}
		}
		assert.Equal(t, at, len(e.IDs))
	}
	assert.Zero(t, w.sampler.Unreleased(), "every sequence is released once")
}

func actions(e *episode.Episode) []episode.Action {
	var result []episode.Action
	for _, turn := range e.Turns {
		result = append(result, turn.Action)
	}
	return result
}

// segments decodes an episode with NUL between different sources.
func segments(tok *agenttest.Tokenizer, e *episode.Episode) string {
	var out strings.Builder
	for i := range e.IDs {
		if i > 0 && e.Sources[i] != e.Sources[i-1] {
			out.WriteByte(0)
		}
		out.WriteString(string(tok.Bytes(e.IDs[i])))
	}
	return out.String()
}
