package opensearch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// All questions of two data sets, with one shard and with three: the first three passages are those of BM25 in process, and
// so are their scores up to the rounding of float32, which may also swap two passages whose scores are that close.
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

func severalFiles(t *testing.T, node *opensearchtest.Node) {
	passages, questions := data.TinyWorld(3, 60)
	whole := writeCorpus(t, passages)
	parts := []string{writeCorpus(t, passages[:25]), writeCorpus(t, passages[25:])}
	o := buildOptions(node, "parts")
	o.BatchPassages = 7
	x := build(t, parts, o)
	assert.Equal(t, 60, x.Len())
	var queries []string
	for _, q := range questions {
		queries = append(queries, q.Text)
	}
	got, want := search(t, x, 5, queries...), search(t, inProcess(t, whole), 5, queries...)
	for i := range queries {
		assert.Equal(t, ids(want[i]), ids(got[i]), queries[i])
	}
	_, err := opensearch.Open(t.Context(), opensearch.Options{URL: node.URL, Index: "parts", Corpora: []string{whole}})
	assert.ErrorContains(t, err, "it was made from 2 files, not 1")
	_, err = opensearch.Open(t.Context(), opensearch.Options{URL: node.URL, Index: "parts", Corpora: []string{parts[1], parts[0]}})
	assert.ErrorContains(t, err, "it was made from corpus.jsonl with")
}

// A passage that cannot be taken ends the build with an error that names file and line, and the index stays unusable.
func refusedPassages(t *testing.T, node *opensearchtest.Node) {
	good, _ := data.TinyWorld(3, 20)
	long := append(slices.Clone(good), data.Passage{ID: strings.Repeat("x", 513), Contents: "long id"})
	double := append(slices.Clone(good), data.Passage{ID: good[4].ID, Contents: "another"})
	for want, corpus := range map[string]string{
		"was refused: an id has at most 512 bytes": writeCorpus(t, long),
		"another passage has this id":              writeCorpus(t, double),
	} {
		_, err := opensearch.Build(t.Context(), []string{corpus}, buildOptions(node, "refused"))
		require.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, corpus+":21")
		_, err = opensearch.Open(t.Context(), opensearch.Options{URL: node.URL, Index: "refused"})
		var mismatch *opensearch.MismatchError
		require.ErrorAs(t, err, &mismatch)
		assert.Contains(t, mismatch.Reason, "it is not finished")
	}
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	require.NoError(t, os.WriteFile(broken, []byte("{\"id\": \"0\", \"contents\": \"a\"}\n{\"id\": \"1\", \"contents\": null}\n"), 0o644))
	_, err := opensearch.Build(t.Context(), []string{broken}, buildOptions(node, "refused"))
	assert.ErrorContains(t, err, broken+":2")
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o644))
	_, err = opensearch.Build(t.Context(), []string{empty}, buildOptions(node, "refused"))
	assert.ErrorContains(t, err, "holds no passages")
}

// A build that was cut short goes on, and nothing that was sent twice counts twice.
func interruptedBuild(t *testing.T, node *opensearchtest.Node) {
	passages, questions := data.TinyWorld(3, 140)
	corpus := writeCorpus(t, passages)
	o := buildOptions(node, "interrupted")
	o.BatchPassages, o.Client.Parallel = 10, 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Progress = func(p opensearch.Progress) {
		if p.Passages >= 50 {
			cancel()
		}
	}
	_, err := opensearch.Build(ctx, []string{corpus}, o)
	require.ErrorIs(t, err, context.Canceled)
	_, err = opensearch.Open(t.Context(), opensearch.Options{URL: node.URL, Index: "interrupted"})
	require.ErrorContains(t, err, "it is not finished")

	var last opensearch.Progress
	o.Rebuild, o.Progress = false, func(p opensearch.Progress) { last = p }
	m, err := opensearch.Build(t.Context(), []string{corpus}, o)
	require.NoError(t, err)
	assert.Equal(t, 140, m.Passages)
	assert.GreaterOrEqual(t, last.Present, 50)
	assert.Less(t, last.Present, 140)
	assert.Equal(t, 140, last.Passages)
	assert.Equal(t, last.Total, last.Bytes)

	last = opensearch.Progress{}
	_, err = opensearch.Build(t.Context(), []string{corpus}, o)
	require.NoError(t, err, "once more")
	assert.Zero(t, last.Passages, "a finished index is kept")
	x := open(t, opensearch.Options{URL: node.URL, Index: "interrupted", Corpora: []string{corpus}})
	want := search(t, inProcess(t, corpus), 3, questions[0].Text)[0]
	for rank, p := range search(t, x, 3, questions[0].Text)[0] {
		assert.Equal(t, want[rank].ID, p.ID)
		assert.InEpsilon(t, want[rank].Score, p.Score, 1e-6)
	}
}

func mismatches(t *testing.T, node *opensearchtest.Node) {
	passages, _ := data.TinyWorld(3, 20)
	corpus, other := writeCorpus(t, passages), writeCorpus(t, passages[:19])
	o := buildOptions(node, "mismatch")
	x := build(t, []string{corpus}, o)
	assert.NoError(t, x.CheckBM25(0.9, 0.4))
	assert.ErrorContains(t, x.CheckBM25(1.2, 0.75), "it ranks with k1 0.9 and b 0.4, not 1.2 and 0.75")
	o.Rebuild = false
	_, err := opensearch.Build(t.Context(), []string{other}, o)
	assert.ErrorContains(t, err, "SHA-256")
	o.K1 = 1.2
	_, err = opensearch.Build(t.Context(), []string{corpus}, o)
	assert.ErrorContains(t, err, "k1 0.9")

	do := func(method, path, body string) {
		t.Helper()
		request, err := http.NewRequest(method, node.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		text, _ := io.ReadAll(response.Body)
		require.NoError(t, response.Body.Close())
		require.Less(t, response.StatusCode, 300, "%s", text)
	}
	do("DELETE", "/mismatch/_doc/"+passages[3].ID+"?refresh=true", "")
	do("PUT", "/foreign", `{}`)
	for want, o := range map[string]opensearch.Options{
		"SHA-256": {Index: "mismatch", Corpora: []string{other}},
		"it holds 19 passages and was made of 20": {Index: "mismatch", Corpora: []string{corpus}},
		"its passages have no vectors":            {Index: "mismatch", Embed: embed},
		"there is no such index":                  {Index: "nothing"},
		"was not made by retriever index":         {Index: "foreign"},
	} {
		o.URL = node.URL
		_, err := opensearch.Open(t.Context(), o)
		var mismatch *opensearch.MismatchError
		require.ErrorAs(t, err, &mismatch, want)
		assert.ErrorContains(t, err, want)
	}
}

func cancelled(t *testing.T, node *opensearchtest.Node) {
	passages, _ := data.TinyWorld(3, 20)
	x := build(t, []string{writeCorpus(t, passages)}, buildOptions(node, "cancelled"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range x.Search(ctx, []string{"born", "river"}, 3) {
		assertKind(t, retrieve.KindCanceled, r.Err)
		assert.ErrorIs(t, r.Err, context.Canceled)
	}
}

func assertKind(t *testing.T, kind retrieve.Kind, err error) {
	t.Helper()
	var failure *retrieve.Error
	if assert.ErrorAs(t, err, &failure) {
		assert.Equal(t, kind, failure.Kind, "%v", err)
	}
}

// A node that is killed while it is searched gives a typed error and no passages; once it is back, the same searcher goes on,
// and so does a build that was under way.
func killedAndRestarted(t *testing.T, node *opensearchtest.Node) {
	passages, questions := data.TinyWorld(3, 140)
	corpus := writeCorpus(t, passages)
	built := build(t, []string{corpus}, buildOptions(node, "killed"))
	x := open(t, opensearch.Options{URL: node.URL, Index: "killed",
		Client: retrieve.ClientOptions{Retries: 1, Backoff: 10 * time.Millisecond, Timeout: 20 * time.Second}})
	// Shards come back one by one, which some queries see and some do not; the usual attempts bridge that.
	y := open(t, opensearch.Options{URL: node.URL, Index: "killed"})
	var queries []string
	for _, q := range questions {
		queries = append(queries, q.Text)
	}
	want := search(t, built, 3, queries...)

	// A build that waits for the node.
	o := buildOptions(node, "killed_build")
	o.BatchPassages, o.Client.Parallel = 1, 1
	reached, ended := make(chan struct{}), make(chan error, 1)
	o.Progress = func(p opensearch.Progress) {
		if p.Passages == 20 {
			close(reached)
		}
	}
	o.Client.Retries, o.Client.MaxBackoff = 60, time.Second
	go func() {
		_, err := opensearch.Build(t.Context(), []string{corpus}, o)
		ended <- err
	}()
	<-reached

	failed := make(chan []retrieve.Result, 1)
	searching := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			results := x.Search(t.Context(), queries, 3)
			if results[0].Err != nil || n > 10000 {
				failed <- results
				return
			}
			if n == 3 {
				close(searching)
			}
		}
	}()
	<-searching
	node.Kill()
	for _, r := range <-failed {
		assertKind(t, retrieve.KindConnection, r.Err)
		assert.Empty(t, r.Passages)
		assert.ErrorContains(t, r.Err, node.URL)
		assert.ErrorContains(t, r.Err, "after 2 attempts")
	}
	var notes []string
	patient := &retrieve.Outlast{Searcher: y, Failures: 100, Pause: 500 * time.Millisecond, MaxPause: time.Second,
		Note: func(m string) { notes = append(notes, m) }}
	back := make(chan [][]episode.Passage, 1)
	go func() { back <- search(t, patient, 3, queries...) }()
	node.Restart()
	assert.Equal(t, want, <-back, "the same passages after the restart")
	assert.NotEmpty(t, notes)
	require.NoError(t, <-ended, "the build went on as well")
	assert.Equal(t, 140, open(t, opensearch.Options{URL: node.URL, Index: "killed_build", Corpora: []string{corpus}}).Len())
}
