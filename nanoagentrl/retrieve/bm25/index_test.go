package bm25

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

func passagesOf(contents ...string) []data.Passage {
	passages := make([]data.Passage, len(contents))
	for i, text := range contents {
		passages[i] = data.Passage{ID: fmt.Sprint("p", i), Contents: text}
	}
	return passages
}

func inMemoryIndex(t testing.TB, options Options, contents ...string) *Index {
	t.Helper()
	x, err := New(passagesOf(contents...), options)
	require.NoError(t, err)
	return x
}

func search(t testing.TB, x *Index, query string, topk int) []Hit {
	t.Helper()
	hits, err := x.Search(context.Background(), query, topk)
	require.NoError(t, err)
	return hits
}

// randomCorpus has words of very uneven frequency, so that terms are skipped in every way.
func randomCorpus(random *rand.Rand, n, longest, vocabulary int) []string {
	contents := make([]string, n)
	for i := range contents {
		var words []string
		for range random.IntN(longest) {
			words = append(words, randomWord(random, vocabulary))
		}
		contents[i] = strings.Join(words, " ")
	}
	return contents
}

func randomWord(random *rand.Rand, vocabulary int) string {
	return fmt.Sprint("w", int(math.Pow(float64(vocabulary), random.Float64())))
}

func randomQuery(random *rand.Rand, vocabulary int) string {
	var words []string
	for range 1 + random.IntN(7) {
		words = append(words, randomWord(random, vocabulary))
	}
	return strings.Join(words, " ")
}

// ranker ranks by counting the words of every passage.
type ranker struct {
	index *Index
	terms []map[string]int
}

func newRanker(x *Index, contents []string) *ranker {
	r := &ranker{index: x}
	for _, text := range contents {
		counts := map[string]int{}
		for _, term := range x.options.Terms(text) {
			counts[term]++
		}
		r.terms = append(r.terms, counts)
	}
	return r
}

func (r *ranker) search(t testing.TB, query string, topk int) []Hit {
	t.Helper()
	s := new(scan)
	require.NoError(t, s.open(r.index, query))
	hits := []Hit{}
	for doc, counts := range r.terms {
		score, length := 0.0, 0
		for _, n := range counts {
			length += n
		}
		found := false
		for _, term := range s.terms {
			if n := counts[term.text]; n > 0 {
				found = true
				score += float64(r.index.part(term.weight, uint32(n), lengthToByte(length)))
			}
		}
		if found {
			hits = append(hits, Hit{uint32(doc), float32(score)})
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits[:min(topk, len(hits))]
}

func TestSearchEqualsScoringEveryPassage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 10 { // With the largest k1 all scores are 0.
		options := Options{K1: []float64{0.9, 1.2, 0, 5, 1e9}[round%5], B: []float64{0.4, 0.75, 1, 0, 0.4}[round%5]}
		contents := randomCorpus(random, 1+random.IntN(9000), 40, 60)
		x := inMemoryIndex(t, options, contents...)
		want := newRanker(x, contents)
		for range 12 {
			query, topk := randomQuery(random, 70), 1+random.IntN(12)
			require.Equal(t, want.search(t, query, topk), search(t, x, query, topk), "%+v %q %d", options, query, topk)
		}
	}
}

// Passages that repeat a word many times, in a few places, make blocks whose bounds differ: whole windows are passed over.
func TestSearchEqualsScoringEveryPassageWhereBlocksDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	contents := randomCorpus(random, 30_000, 12, 20)
	for range 40 {
		at := random.IntN(len(contents))
		contents[at] = strings.Repeat(randomWord(random, 20)+" ", 1+random.IntN(400))
	}
	x := inMemoryIndex(t, Default(), contents...)
	want := newRanker(x, contents)
	for range 40 {
		query, topk := randomQuery(random, 20), 1+random.IntN(5)
		require.Equal(t, want.search(t, query, topk), search(t, x, query, topk), "%q %d", query, topk)
	}
}

func TestSegmentsAreMergedInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	contents := randomCorpus(random, 2*segmentLines+17, 4, 3000)
	contents[0], contents[segmentLines-1], contents[segmentLines] = "first", "last of one", "first of two"
	contents[len(contents)-1] = "last"
	x := inMemoryIndex(t, Default(), contents...)
	want := newRanker(x, contents)
	for _, query := range []string{"first", "last", "first last", "two", "w1 w2", "w2999 w17 w1"} {
		require.Equal(t, want.search(t, query, 5), search(t, x, query, 5), query)
	}
	assert.Equal(t, len(contents), x.Counts().Passages)
}

func TestExplainAddsUpToTheScore(t *testing.T) {
	x := inMemoryIndex(t, Default(), "red fox red", "red hen", "the fox sleeps")
	got := search(t, x, "red red foxes owl", 1)
	explained, err := x.Explain("red red foxes owl", "p0")
	require.NoError(t, err)
	assert.Equal(t, []Hit{{0, float32(explained.Score)}}, got)
	assert.Equal(t, 3, explained.Length)
	require.Len(t, explained.Terms, 2)
	red, fox := explained.Terms[0], explained.Terms[1]
	assert.Equal(t, []any{"red", 2, 2, 2}, []any{red.Term, red.Count, red.Frequency, red.DocFrequency})
	assert.Equal(t, []any{"fox", 1, 1, 2}, []any{fox.Term, fox.Count, fox.Frequency, fox.DocFrequency})
	assert.InDelta(t, explained.Score, red.Score+fox.Score, 1e-6)
	assert.InDelta(t, math.Log(1+1.5/2.5), red.IDF, 1e-6)

	_, err = x.Explain("red", "none")
	assert.ErrorContains(t, err, `"none"`)
}

func TestLengthsAreRoundedAsInLucene(t *testing.T) {
	// From SmallFloat.byte4ToInt.
	for length, want := range map[int]int{
		0: 0, 23: 23, 39: 39, 40: 40, 41: 40, 42: 42, 55: 54, 57: 56, 100: 96, 119: 112, 1000: 984, math.MaxInt32: 2013265944,
	} {
		assert.Equal(t, want, byteToLength(lengthToByte(length)), "%d", length)
	}
	for code := range 256 {
		assert.Equal(t, uint8(code), lengthToByte(byteToLength(uint8(code))))
	}
}

func TestCounts(t *testing.T) {
	x := inMemoryIndex(t, Default(), "red fox red", "red hen", "")
	assert.Equal(t, Counts{Passages: 3, NonEmpty: 2, Tokens: 5, Terms: 3, Postings: 4}, x.Counts())
	index, passages := x.Bytes()
	assert.Positive(t, index)
	assert.Zero(t, passages)
}

func TestFrequenciesStopAt65535(t *testing.T) {
	x := inMemoryIndex(t, Options{K1: 1e6, B: 0}, strings.Repeat("fox ", 70_000), strings.Repeat("fox ", 65_535))
	hits := search(t, x, "fox", 2)
	assert.Equal(t, hits[0].Score, hits[1].Score)
	assert.Equal(t, uint32(0), hits[0].Doc)
}

func TestWhatCannotBeAsked(t *testing.T) {
	x := inMemoryIndex(t, Default(), "red fox")
	_, err := x.Search(t.Context(), "red", 0)
	assert.ErrorContains(t, err, "topk is 0")
	for _, doc := range []int{-1, 1} {
		_, err = x.Passage(doc)
		assert.ErrorContains(t, err, fmt.Sprintf("no passage %d among 1", doc))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = x.Search(ctx, "red", 1)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []Hit{{0, search(t, x, "red", 1)[0].Score}}, search(t, x, "red", 1), "after a cancelled search")
}

// What is remembered of frequent terms is bounded, changes no result, whoever asks first, and is that of the most frequent.
func TestPresencesAreThoseOfThePostingsAndBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	contents := randomCorpus(random, 4000, 40, 12)
	x := inMemoryIndex(t, Default(), contents...)
	x.presences.most = 3
	want := newRanker(x, contents)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for word := 12; word > 0; word-- {
				query := fmt.Sprint("w", word, " w3 w8 w5")
				hits, err := x.Search(context.Background(), query, 5)
				assert.NoError(t, err)
				assert.Equal(t, want.search(t, query, 5), hits)
			}
		})
	}
	group.Wait()
	require.Len(t, x.presences.terms, 3)
	for _, word := range []string{"w1", "w2", "w3"} {
		e, _, err := x.dictionary.find(word)
		require.NoError(t, err)
		held := x.presences.terms[word]
		require.NotNil(t, held, word)
		require.Equal(t, e.df, held.df)
		for doc, counts := range want.terms {
			require.EqualValues(t, min(counts[word], repeated), held.of(uint32(doc)), "%s %d", word, doc)
		}
	}
}

// A query that begins with a limit finds what one that begins with none does, also where many passages are equal.
func TestPrimedQueryKeepsEqualPassages(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 9))
	contents := make([]string, primeWindows*window+100)
	for i := range contents {
		contents[i] = "common"
		if random.IntN(3) == 0 {
			contents[i] += " frequent"
		}
		if random.IntN(9) == 0 {
			contents[i] += " seldom"
		}
	}
	x := inMemoryIndex(t, Default(), contents...)
	want := newRanker(x, contents)
	for range 2 { // The second time the presences are there.
		for _, query := range []string{"seldom frequent", "seldom frequent common", "common frequent", "seldom common seldom"} {
			for _, topk := range []int{1, 3, 20, 21} {
				require.Equal(t, want.search(t, query, topk), search(t, x, query, topk), "%s %d", query, topk)
			}
		}
	}
	s := new(scan)
	require.NoError(t, s.open(x, "seldom frequent common"))
	limit, err := s.prime(3)
	require.NoError(t, err)
	best := search(t, x, "seldom frequent common", 3)
	assert.Less(t, limit, best[2].Score)
	assert.InDelta(t, best[2].Score, limit, 1e-4, "here it is the best there can be")
}
