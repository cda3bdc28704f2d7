package opensearch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch/opensearchtest"
)

// Everything here runs against a real node.
func TestRealNode(t *testing.T) {
	node := opensearchtest.Start(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *opensearchtest.Node)
	}{
		{"top three equal ours", topThreeEqualOurs},
		{"scores carry k1+1", scoresCarryK1Plus1},
		{"ties stand in the order of the corpus", tiesInOrder},
		{"odd queries", oddQueries},
		{"vectors", vectors},
		{"several files are one corpus", severalFiles},
		{"refused passages", refusedPassages},
		{"interrupted build goes on", interruptedBuild},
		{"another index is refused", mismatches},
		{"cancelled", cancelled},
		{"killed and restarted", killedAndRestarted}, // last: the others need the node
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, node) })
	}
}

func buildOptions(node *opensearchtest.Node, index string) opensearch.BuildOptions {
	return opensearch.BuildOptions{URL: node.URL, Index: index, K1: 0.9, B: 0.4, Rebuild: true}
}

func build(t *testing.T, corpora []string, o opensearch.BuildOptions) *opensearch.Index {
	t.Helper()
	_, err := opensearch.Build(t.Context(), corpora, o)
	require.NoError(t, err)
	return open(t, opensearch.Options{URL: o.URL, Index: o.Index, Corpora: corpora, Embed: o.Embed})
}

func open(t *testing.T, o opensearch.Options) *opensearch.Index {
	t.Helper()
	x, err := opensearch.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.Close()) })
	return x
}

func search(t *testing.T, s retrieve.Searcher, topk int, queries ...string) [][]episode.Passage {
	t.Helper()
	var found [][]episode.Passage
	for _, r := range s.Search(t.Context(), queries, topk) {
		require.NoError(t, r.Err)
		found = append(found, r.Passages)
	}
	return found
}

func ids(passages []episode.Passage) (list []string) {
	for _, p := range passages {
		list = append(list, p.ID)
	}
	return list
}

// writeCorpus writes passages to a file.
func writeCorpus(t *testing.T, passages []data.Passage) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	var text strings.Builder
	for _, p := range passages {
		line, err := json.Marshal(p)
		require.NoError(t, err)
		text.Write(append(line, '\n'))
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
	return path
}

func inProcess(t *testing.T, corpus string) *retrieve.BM25 {
	t.Helper()
	passages, err := data.ReadCorpus(corpus)
	require.NoError(t, err)
	x, err := retrieve.NewBM25(passages, retrieve.DefaultBM25())
	require.NoError(t, err)
	return x
}

// All questions of two data sets, with one shard and with three: the first three passages are those of BM25 in
// process, and so are their scores up to the rounding of float32, which may also swap two passages whose scores are
// that close.
func topThreeEqualOurs(t *testing.T, node *opensearchtest.Node) {
	for _, set := range []string{"wiki18_pool", "hotpotqa"} {
		folder := testenv.Shared(t, "data", set)
		questions, err := data.ReadQuestions(folder, data.QuestionOptions{})
		require.NoError(t, err)
		var queries []string
		for _, q := range questions {
			queries = append(queries, q.Text)
		}
		want := search(t, inProcess(t, folder), 3, queries...)
		for _, shards := range []int{1, 3} {
			o := buildOptions(node, fmt.Sprintf("%s_%d", set, shards))
			o.Shards = shards
			got := search(t, build(t, []string{folder}, o), 3, queries...)
			same := 0
			for i := range queries {
				if slices.Equal(ids(got[i]), ids(want[i])) {
					same++
				} else {
					t.Logf("%s, %d shards: %q: OpenSearch %s, ours %s", set, shards, queries[i], show(got[i]), show(want[i]))
				}
				require.Len(t, got[i], len(want[i]), queries[i])
				for rank, p := range got[i] {
					assert.InEpsilon(t, want[i][rank].Score, p.Score, 1e-5, queries[i])
				}
			}
			t.Logf("%s, %d shards: top 3 equal for %d of %d questions", set, shards, same, len(queries))
			assert.GreaterOrEqual(t, float64(same), 0.995*float64(len(queries)))
		}
	}
}

func show(passages []episode.Passage) string {
	var out strings.Builder
	for _, p := range passages {
		fmt.Fprintf(&out, " %s:%.6f", p.ID, p.Score)
	}
	return out.String()
}

// OpenSearch's own score is k1 + 1 times ours.
func scoresCarryK1Plus1(t *testing.T, node *opensearchtest.Node) {
	passages, questions := data.TinyWorld(3, 30)
	corpus := writeCorpus(t, passages)
	x := build(t, []string{corpus}, buildOptions(node, "factor"))
	query := questions[0].Text
	ours := search(t, inProcess(t, corpus), 1, query)[0][0]
	adapted := search(t, x, 1, query)[0][0]
	body, err := json.Marshal(map[string]any{"query": map[string]any{"match": map[string]any{"contents": query}}, "size": 1})
	require.NoError(t, err)
	response, err := http.Post(node.URL+"/factor/_search", "application/json", strings.NewReader(string(body)))
	require.NoError(t, err)
	defer response.Body.Close()
	var raw struct {
		Hits struct {
			Hits []struct {
				Score float64 `json:"_score"`
			}
		}
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&raw))
	assert.InEpsilon(t, ours.Score, adapted.Score, 1e-6)
	assert.InEpsilon(t, 1.9*ours.Score, raw.Hits.Hits[0].Score, 1e-6, "the server's version is 2")
}

func tiesInOrder(t *testing.T, node *opensearchtest.Node) {
	var passages []data.Passage
	for i := range 40 {
		passages = append(passages, data.Passage{ID: fmt.Sprint(97 * i % 40), Contents: "\"Same\"\nthe same heron"})
	}
	o := buildOptions(node, "ties")
	o.Shards, o.BatchPassages = 4, 3
	found := search(t, build(t, []string{writeCorpus(t, passages)}, o), 25, "heron")[0]
	require.Len(t, found, 25)
	for i, p := range found {
		assert.Equal(t, passages[i].ID, p.ID)
	}
}

// No query breaks the parser, each is answered alone, and all as in process.
func oddQueries(t *testing.T, node *opensearchtest.Node) {
	passages := []data.Passage{
		{ID: "0", Contents: "\"Organs\"\nÓrgãos de pipe and Beyoncé"}, {ID: "1", Contents: "\"Beyonce\u0301\"\nBeyonce\u0301 sang in 東京 tower"},
		{ID: "2", Contents: ""}, {ID: "c++", Contents: "\"C++\"\nC++ templates \"x\" (y)"}, {ID: "ünï/ 1", Contents: "heron's herons"},
	}
	corpus := writeCorpus(t, passages)
	x, ours := build(t, []string{corpus}, buildOptions(node, "odd")), inProcess(t, corpus)
	var many strings.Builder
	for i := range maxTerms + 1 {
		fmt.Fprintf(&many, "word%d ", i)
	}
	queries := []string{
		"", "zzzz", "!!!", "the of and", "órgãos", "Beyoncé", "Beyonce\u0301", "東京", `C++ "x" (y)`, "heron AND NOT (tower", "a:b *",
		"\x00\n\t", strings.Repeat("heron ", 2000), strings.Repeat("x", 10000), strings.Repeat("東京", 2000), strings.Repeat("the ", 3000),
		"tower heron heron", "herons' 👩‍🚀", many.String()[:strings.LastIndex(strings.TrimSpace(many.String()), " ")] + " tower",
	}
	queries[len(queries)-1] = strings.Replace(queries[len(queries)-1], "word0 ", "", 1)
	got, want := search(t, x, 10, queries...), search(t, ours, 10, queries...)
	for i, q := range queries {
		require.Equal(t, ids(want[i]), ids(got[i]), "%.60q", q)
		for rank := range got[i] {
			assert.InEpsilon(t, want[i][rank].Score, got[i][rank].Score, 1e-5, "%.60q", q)
			assert.Equal(t, want[i][rank].Contents, got[i][rank].Contents)
		}
	}
	results := x.Search(t.Context(), []string{"tower", many.String(), "heron"}, 3)
	assert.NoError(t, results[0].Err)
	assert.ErrorContains(t, results[1].Err, "more different terms than OpenSearch takes: 1025")
	assert.Len(t, results[2].Passages, 1, "the others are answered")
	for _, topk := range []int{0, -1} {
		for _, r := range x.Search(t.Context(), []string{"tower"}, topk) {
			assertKind(t, retrieve.KindRequest, r.Err)
		}
	}
	assert.Len(t, search(t, x, 1e9, "tower heron")[0], 2, "more than there are")
}

const maxTerms = 1024

// embed makes a vector of the words of each text.
func embed(texts []string) ([][]float32, error) {
	const dimension = 32
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		v, norm := make([]float32, dimension), 0.0
		for _, term := range retrieve.Analyze(text) {
			h := fnv.New32a()
			h.Write([]byte(term))
			sign := 1 - 2*float32(h.Sum32()>>31)
			v[h.Sum32()%dimension] += sign
		}
		for _, x := range v {
			norm += float64(x * x)
		}
		for c := range v {
			v[c] /= float32(math.Sqrt(max(norm, 1e-9)))
		}
		vectors[i] = v
	}
	return vectors, nil
}

// The plugin's graph finds the passages with the largest inner products, and the scores are these.
func vectors(t *testing.T, node *opensearchtest.Node) {
	passages, questions := data.TinyWorld(3, 140)
	o := buildOptions(node, "vectors")
	o.Embed, o.Shards = embed, 2
	x := build(t, []string{writeCorpus(t, passages)}, o)
	assert.Equal(t, 32, x.Manifest().Dimension)
	var texts, queries []string
	for _, p := range passages {
		texts = append(texts, p.Contents)
	}
	for _, q := range questions[:40] {
		queries = append(queries, q.Text)
	}
	stored, _ := embed(texts)
	asked, _ := embed(queries)
	hits, all := 0, 0
	for i, found := range search(t, x, 5, queries...) {
		var exact []float64
		for _, v := range stored {
			exact = append(exact, dot(asked[i], v))
		}
		best := slices.Sorted(slices.Values(exact))
		fifth := best[len(best)-5]
		require.Len(t, found, 5)
		for _, p := range found {
			place := slices.IndexFunc(passages, func(q data.Passage) bool { return q.ID == p.ID })
			assert.InDelta(t, exact[place], p.Score, 1e-4)
			all++
			if exact[place] >= fifth-1e-6 {
				hits++
			}
		}
	}
	t.Logf("%d of the %d nearest passages found", hits, all)
	assert.GreaterOrEqual(t, float64(hits), 0.95*float64(all), "the search is approximate")

	o.Embed = func(texts []string) ([][]float32, error) { return make([][]float32, len(texts)-1), nil }
	o.Index = "vectors_wrong"
	_, err := opensearch.Build(t.Context(), []string{writeCorpus(t, passages)}, o)
	assert.ErrorContains(t, err, "0 vectors for 1 texts")
	broken := open(t, opensearch.Options{URL: node.URL, Index: "vectors",
		Embed: func([]string) ([][]float32, error) { return nil, errors.New("out of memory") }})
	for _, r := range broken.Search(t.Context(), []string{"a", "b"}, 3) {
		assert.ErrorContains(t, r.Err, "out of memory")
	}
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
