package warmstart

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

func vocabulary(t *testing.T, task string) *tokenizer.Words {
	t.Helper()
	tok, err := Tokenizer(task)
	require.NoError(t, err)
	return tok
}

// text decodes the tokens of an episode by one writer.
func text(tok *tokenizer.Words, e *episode.Episode, sources ...episode.Source) string {
	var ids []int
	for i, id := range e.IDs {
		if slices.Contains(sources, e.Sources[i]) {
			ids = append(ids, id)
		}
	}
	return tok.Decode(ids)
}

var copyStage = Stage{Name: "copy", Batch: 8, Copy: 1, Passages: 4, Facts: 2, Questions: 5, Hard: 0.7, CopyTwoHop: 0.4,
	QuestionFirst: 0.5}

func sequences(tok *tokenizer.Words, s Stage, n int, seed uint64) (all []Example) {
	c, rng := newCopier(tok), rand.New(rand.NewPCG(seed, 1))
	for range n {
		all = append(all, c.sequence(rng, &s))
	}
	return all
}

// What is trained on is exactly the replies; every fact in them stands in the passages, and the values are its values.
func TestCopySequencesTrainOnRepliesThatThePassagesBear(t *testing.T) {
	tok := vocabulary(t, Facts)
	unk, _ := tok.TokenID(tokenizer.WordUnk)
	hops := map[int]int{}
	for _, x := range sequences(tok, copyStage, 100, 1) {
		e := x.Episode
		require.NoError(t, agent.Check(e))
		require.NotContains(t, e.IDs, unk)
		require.Len(t, e.Turns, copyStage.Questions)
		told := world.ReadFacts(text(tok, e, episode.Environment))
		require.GreaterOrEqual(t, len(told), copyStage.Passages)
		require.Equal(t, 1, strings.Count(text(tok, e, episode.Environment), "<information>"))
		var values []string
		for _, turn := range e.Turns {
			said := world.ReadFacts(turn.Text)
			hops[len(said)]++
			for _, f := range said {
				require.Contains(t, told, f)
				values = append(values, f.Value)
			}
			require.Equal(t, turn.Text, tok.Decode(e.IDs[turn.Begin:turn.End]))
			require.Equal(t, said[len(said)-1].Value, turn.Content)
			require.True(t, strings.HasSuffix(turn.Text, answer(turn.Content)))
		}
		var marked []int
		for _, at := range x.Values {
			require.Equal(t, episode.Policy, e.Sources[at])
			marked = append(marked, e.IDs[at])
		}
		require.Equal(t, strings.Join(values, " "), tok.Decode(marked))
	}
	assert.Greater(t, hops[2], 100)
	assert.Greater(t, hops[1], 200)
}

func TestCopySequencesKnowOnlyNamesOfTheTrainingSplit(t *testing.T) {
	tok := vocabulary(t, Facts)
	allowed := map[string]bool{}
	for _, k := range []world.Kind{world.Person, world.Town} {
		for _, n := range world.Names(k, world.Train) {
			allowed[n] = true
		}
	}
	for _, x := range sequences(tok, copyStage, 200, 2) {
		for _, f := range world.ReadFacts(tok.Decode(x.Episode.IDs)) {
			require.True(t, allowed[f.Subject], f)
			if _, entity := f.Relation.Leads(); entity {
				require.True(t, allowed[f.Value], f)
			}
		}
	}
}

// In one sequence a name and a relation have one value, else there would be nothing to learn.
func TestCopySequencesDoNotContradictThemselves(t *testing.T) {
	tok := vocabulary(t, Facts)
	hard := copyStage
	hard.Hard, hard.Passages, hard.Facts = 1, 10, 4
	for _, x := range sequences(tok, hard, 100, 3) {
		value := map[string]string{}
		for _, f := range world.ReadFacts(text(tok, x.Episode, episode.Environment)) {
			key := f.Subject + string(f.Relation)
			require.NotContains(t, value, key)
			value[key] = f.Value
		}
	}
}

func TestHardPassagesShareWords(t *testing.T) {
	tok := vocabulary(t, Facts)
	sharing := func(hard float64) (share float64) {
		s := copyStage
		s.Hard, s.Passages = hard, 3
		for _, x := range sequences(tok, s, 200, 4) {
			seen := map[string]int{}
			most := 0
			for _, f := range world.ReadFacts(text(tok, x.Episode, episode.Environment)) {
				for _, word := range strings.Fields(f.Subject) {
					seen[word+f.Subject]++
					if seen[word]++; seen[word] > seen[word+f.Subject] {
						most = 1
					}
				}
			}
			share += float64(most) / 200
		}
		return share
	}
	assert.Less(t, sharing(0), 0.3)
	assert.Greater(t, sharing(1), sharing(0)+0.2)
}

func TestQuestionFirstLooksLikeAnEpisode(t *testing.T) {
	tok := vocabulary(t, Facts)
	s := copyStage
	s.QuestionFirst = 1
	for _, x := range sequences(tok, s, 20, 5) {
		e := x.Episode
		before, _, _ := strings.Cut(tok.Decode(e.IDs), "<information>")
		require.True(t, strings.HasPrefix(before, e.Question+" <search> "), before)
		require.Equal(t, uint8(0), e.Mask()[len(tok.Encode(before))-1], "the query is given, not trained on")
	}
	s.QuestionFirst = 0
	for _, x := range sequences(tok, s, 20, 5) {
		require.True(t, strings.HasPrefix(tok.Decode(x.Episode.IDs), "<information>"))
	}
}

func TestCopySequencesDependOnTheSeedAlone(t *testing.T) {
	tok := vocabulary(t, Facts)
	assert.Equal(t, sequences(tok, copyStage, 5, 6), sequences(tok, copyStage, 5, 6))
	assert.NotEqual(t, sequences(tok, copyStage, 5, 6), sequences(tok, copyStage, 5, 7))
}
