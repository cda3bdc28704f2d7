package world_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/world"
)

// reader encodes texts and remembers which words were met.
type reader struct {
	*testing.T
	tok  *tokenizer.Words
	unk  int
	used map[int]bool
}

func newReader(t *testing.T, words []string) *reader {
	t.Helper()
	assert.LessOrEqual(t, len(words), 400)
	tok, err := tokenizer.NewWords(words)
	require.NoError(t, err)
	unk, ok := tok.TokenID(tokenizer.WordUnk)
	require.True(t, ok)
	return &reader{t, tok, unk, map[int]bool{}}
}

func (r *reader) read(texts ...string) {
	r.Helper()
	for _, text := range texts {
		ids := r.tok.EncodePlain(text)
		require.NotContains(r, ids, r.unk, "%q", text)
		for _, id := range ids {
			r.used[id] = true
		}
	}
}

// unused lists the words that no text had, special tokens aside.
func (r *reader) unused() (words []string) {
	for id := range r.tok.VocabSize() {
		if !r.used[id] && !slices.Contains(world.Special, r.tok.Decode([]int{id})) {
			words = append(words, r.tok.Decode([]int{id}))
		}
	}
	return words
}

func TestFactsVocabularyHasEveryWordOfWorldAndProtocolAndNoOther(t *testing.T) {
	r := newReader(t, world.FactsVocabulary())
	for _, hops := range []string{world.OneHop, world.TwoHop} {
		opts := world.DefaultFacts()
		opts.Hops, opts.FactsPerPassage = hops, 1
		w, err := world.NewFacts(opts)
		require.NoError(t, err)
		for _, split := range world.Splits {
			for _, q := range w.Questions(split) {
				r.read(append(q.Answers, q.Text)...)
			}
		}
		var shown []episode.Passage
		for _, p := range w.Corpus {
			shown = append(shown, episode.Passage{Contents: p.Contents})
		}
		for page := range slices.Chunk(shown, world.MaxDocs) {
			r.read(agent.Observation(page))
		}
	}
	r.read(agent.Observation(nil), agent.Correction, "<think> </think>")
	assert.Empty(t, r.unused())
	assert.Equal(t, world.FactsVocabulary(), world.FactsVocabulary())
}

func TestSumsVocabularyHasEveryWordOfProblemsAndSolutions(t *testing.T) {
	r := newReader(t, world.SumsVocabulary())
	opts := world.DefaultSums()
	opts.Largest, opts.Problems = world.LargestNumber, 5000
	w, err := world.NewSums(opts)
	require.NoError(t, err)
	for _, split := range world.Splits {
		for _, q := range w.Questions(split) {
			sum, _ := w.Sum(q.ID)
			r.read(q.Text, sum.Solution())
		}
	}
	zero := world.Sum{Start: 1, Steps: []world.Step{{Amount: 1}}}
	r.read(zero.Solution(), "zero thirteen", world.Tell(rand.New(rand.NewPCG(1, 1)), zero))
	for _, word := range r.unused() {
		require.Regexp(t, `^</?[a-z]+>$`, word, "only the tags have no place in sums")
	}
}

// Two words with one stem would be the same to BM25.
func TestNoTwoWordsHaveTheSameStemAndNoneIsAStopWord(t *testing.T) {
	stems := map[string]string{}
	for _, k := range []world.Kind{world.Person, world.Town} {
		for _, n := range world.Names(k, world.Train) {
			for _, word := range strings.Fields(n) {
				stems[word] = ""
			}
		}
	}
	for _, r := range []world.Relation{world.Trade, world.River} {
		for _, word := range r.Values(world.Train) {
			stems[word] = ""
		}
	}
	for _, r := range append(world.Relations(world.Person), world.Relations(world.Town)...) {
		stems[string(r)] = ""
	}
	words := map[string]string{}
	for word := range stems {
		terms := retrieve.Analyze(word)
		require.Len(t, terms, 1, word)
		assert.Equal(t, "", words[terms[0]], "%s has the stem of %s", word, words[terms[0]])
		words[terms[0]] = word
	}
	assert.Greater(t, len(words), 250)
}
