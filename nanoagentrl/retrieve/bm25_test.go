package retrieve

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/bm25"
)

func corpus(contents ...string) []data.Passage {
	passages := make([]data.Passage, len(contents))
	for i, text := range contents {
		passages[i] = data.Passage{ID: fmt.Sprint("p", i), Contents: text}
	}
	return passages
}

func newBM25(t testing.TB, contents ...string) *BM25 {
	t.Helper()
	index, err := NewBM25(corpus(contents...), DefaultBM25())
	require.NoError(t, err)
	return index
}

func search(t testing.TB, s Searcher, query string, topk int) []episode.Passage {
	t.Helper()
	results := s.Search(context.Background(), []string{query}, topk)
	require.Len(t, results, 1)
	require.NoError(t, results[0].Err)
	return results[0].Passages
}

func idsOf(passages []episode.Passage) []string {
	out := make([]string, len(passages))
	for i, p := range passages {
		out[i] = p.ID
	}
	return out
}

// Scores by hand: 3 passages of 2, 2 and 4 terms, k1 0.9, b 0.4, mean length 8/3.
func TestBM25ScoresAreTheFormula(t *testing.T) {
	index := newBM25(t, "red fox", "red hen", "fox fox hen dog")
	norm := func(length float64) float64 { return 0.9 * (0.6 + 0.4*length/(8.0/3)) }
	idf := func(df float64) float64 { return math.Log(1 + (3-df+0.5)/(df+0.5)) }

	got := search(t, index, "fox dog", 3)
	require.Equal(t, []string{"p2", "p0"}, idsOf(got))
	assert.InDelta(t, idf(2)*2/(2+norm(4))+idf(1)*1/(1+norm(4)), got[0].Score, 1e-6)
	assert.InDelta(t, idf(2)*1/(1+norm(2)), got[1].Score, 1e-6)
	assert.Equal(t, "fox fox hen dog", got[0].Contents)

	twice := search(t, index, "fox FOX foxes", 3)
	once := search(t, index, "fox", 3)
	assert.InDelta(t, 3*once[0].Score, twice[0].Score, 1e-6, "a repeated term counts as often")
}

func TestEqualScoresStandInCorpusOrder(t *testing.T) {
	index := newBM25(t, "dog", "red fox", "fox red", "red fox", "a red and the fox")
	assert.Equal(t, []string{"p1", "p2", "p3", "p4"}, idsOf(search(t, index, "fox red", 9)))
	assert.Equal(t, []string{"p1", "p2"}, idsOf(search(t, index, "red fox", 2)))
}

func TestTopKOverTheCorpusGivesEachHitOnce(t *testing.T) {
	index := newBM25(t, "red fox", "red hen", "red dog")
	for _, topk := range []int{3, 5, 1e9} {
		assert.Equal(t, []string{"p0", "p1", "p2"}, idsOf(search(t, index, "red", topk)))
	}
	assert.Equal(t, []string{"p1"}, idsOf(search(t, index, "hen", 5)), "only what matches")
}

func TestTopKBelowOneIsRefused(t *testing.T) {
	index := newBM25(t, "red fox")
	for _, topk := range []int{0, -1} {
		for _, result := range index.Search(context.Background(), []string{"red", "fox"}, topk) {
			var fault *Error
			require.ErrorAs(t, result.Err, &fault)
			assert.Equal(t, KindRequest, fault.Kind)
			assert.Empty(t, result.Passages)
		}
	}
}

func TestUnknownQueryTermsGiveNoHitsAndLeaveOtherQueriesAlone(t *testing.T) {
	index := newBM25(t, "red fox", "red hen")
	queries := []string{"", "fox", "zzzz", "!!!", "the of and", "hen"}
	results := index.Search(context.Background(), queries, 3)
	require.Len(t, results, len(queries))
	for i, want := range [][]string{{}, {"p0"}, {}, {}, {}, {"p1"}} {
		require.NoError(t, results[i].Err)
		assert.Equal(t, want, idsOf(results[i].Passages), "%q", queries[i])
	}
}

func TestCorpusOfEmptyPassagesGivesNoNaN(t *testing.T) {
	for _, contents := range [][]string{{""}, {"", "", ""}, {"the", "!!!"}} {
		index := newBM25(t, contents...)
		assert.Empty(t, search(t, index, "fox the", 3))
		explained, err := index.Index().Explain("fox", "p0")
		require.NoError(t, err)
		assert.Zero(t, explained.Score)
	}
	index := newBM25(t, "", "fox", "")
	got := search(t, index, "fox", 3)
	require.Equal(t, []string{"p1"}, idsOf(got))
	assert.InDelta(t, math.Log(1+0.5/1.5)/1.9, got[0].Score, 1e-6, "empty passages do not count")
}

func TestOddUnicodeQueries(t *testing.T) {
	index := newBM25(t, "Beyonc\u00e9 sings", "os órgãos do corpo", "C++ and C", "東京 タワー", "ภาษาไทย")
	composed, decomposed := "Beyonc\u00e9", "Beyonce\u0301"
	for query, want := range map[string][]string{
		"órgãos": {"p1"}, composed: {"p0"}, decomposed: {}, "BEYONCÉ": {"p0"}, `C++ "x" (y)`: {"p2"}, "東": {"p3"},
		"タワー": {"p3"}, "ภาษาไทย": {"p4"}, strings.Repeat("fox ", 2500): {}, strings.Repeat("x", 10_000): {},
		"\xff\xfe sings \xc3": {"p0"}, "\x00": {}, "\u0301": {}, "👍🏽": {}, strings.Repeat("\u0301", 1000): {},
	} {
		assert.Equal(t, want, idsOf(search(t, index, query, 3)), "%q", query)
	}
}

func TestComposedAccentsFindDecomposedOnes(t *testing.T) {
	options := DefaultBM25()
	options.ComposeAccents = true
	index, err := NewBM25(corpus("Beyonc\u00e9 sings", "Beyonce\u0301 dances", "Beyonce"), options)
	require.NoError(t, err)
	for _, query := range []string{"beyonc\u00e9", "beyonce\u0301"} {
		assert.Equal(t, []string{"p0", "p1"}, idsOf(search(t, index, query, 3)))
	}
}

func TestEachPassageReturnsItsOwnText(t *testing.T) {
	var contents []string
	for i := range 5000 {
		contents = append(contents, fmt.Sprintf("\"Passage\"\nnumber n%d", i))
	}
	index := newBM25(t, contents...)
	for _, i := range []int{0, 1, 2047, 2048, 2500, 4998, 4999} {
		got := search(t, index, fmt.Sprintf("n%d", i), 3)
		require.Len(t, got, 1)
		assert.Equal(t, contents[i], got[0].Contents)
		assert.Equal(t, fmt.Sprint("p", i), got[0].ID)
	}
}

// randomCorpus has words of very uneven frequency.
func randomCorpus(random *rand.Rand, n, vocabulary int) []string {
	contents := make([]string, n)
	for i := range contents {
		var words []string
		for range random.IntN(40) {
			words = append(words, randomWord(random, vocabulary))
		}
		contents[i] = strings.Join(words, " ")
	}
	return contents
}

func randomWord(random *rand.Rand, vocabulary int) string {
	return fmt.Sprint("w", int(math.Pow(float64(vocabulary), random.Float64())))
}

func TestCanceledSearchFailsWithTheContextsError(t *testing.T) {
	index := newBM25(t, "red fox")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, result := range index.Search(ctx, []string{"red", "fox", "hen"}, 3) {
		assert.ErrorIs(t, result.Err, context.Canceled)
		assert.Empty(t, result.Passages)
	}
}

func TestConcurrentSearchesAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	index := newBM25(t, randomCorpus(random, 3000, 200)...)
	queries := make([]string, 50)
	for i := range queries {
		queries[i] = randomWord(random, 200) + " " + randomWord(random, 200)
	}
	want := index.Search(context.Background(), queries, 5)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { assert.Equal(t, want, index.Search(context.Background(), queries, 5)) })
	}
	group.Wait()
}

func TestBM25RefusesWhatItCannotIndex(t *testing.T) {
	_, err := NewBM25(nil, DefaultBM25())
	assert.ErrorContains(t, err, "at least one passage")
	nan, inf := math.NaN(), math.Inf(1)
	for _, options := range []BM25Options{{K1: -1}, {K1: nan}, {K1: inf}, {B: -0.1}, {B: 1.1}, {B: nan}} {
		_, err := NewBM25(corpus("x"), options)
		assert.Error(t, err, "%+v", options)
	}
}

func TestTinyWorldFindsItsPassages(t *testing.T) {
	passages, questions := data.TinyWorld(1, 60)
	index, err := NewBM25(passages, DefaultBM25())
	require.NoError(t, err)
	for _, q := range questions {
		assert.Equal(t, q.GoldPassages, idsOf(search(t, index, q.Text, 1)), q.Text)
	}
}

// 20,000 passages of about 100 words from 100,000 with Zipf frequencies; queries of 8 words out of a passage.
func BenchmarkBM25(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	contents := make([]string, 20_000)
	for i := range contents {
		words := make([]string, 80+random.IntN(41))
		for k := range words {
			words[k] = randomWord(random, 100_000)
		}
		contents[i] = strings.Join(words, " ")
	}
	index := newBM25(b, contents...)
	queries := make([]string, 256)
	for i := range queries {
		words := strings.Fields(contents[random.IntN(len(contents))])
		queries[i] = strings.Join(words[:8], " ")
	}
	for b.Loop() {
		index.Search(context.Background(), queries, 3)
	}
	b.ReportMetric(float64(b.N*len(queries))/b.Elapsed().Seconds(), "queries/s")
}

func TestIndexThatCannotBeSearchedIsATypedError(t *testing.T) {
	index := newBM25(t, "red fox")
	var fault *Error
	require.ErrorAs(t, failure(context.Background(), bm25.ErrDamaged), &fault)
	assert.Equal(t, KindIndex, fault.Kind)
	assert.ErrorIs(t, fault, bm25.ErrDamaged)
	assert.NoError(t, index.Close())
	_, err := OpenBM25(t.TempDir(), DefaultBM25())
	assert.ErrorIs(t, err, bm25.ErrNoIndex)
}
