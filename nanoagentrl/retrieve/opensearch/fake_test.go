package opensearch

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// What a healthy node does not do on demand is done by a server of our own here; the real node is in real_test.go.

// cluster answers as an OpenSearch with one finished index does, except where a test puts other handlers.
type cluster struct {
	bulk, search http.HandlerFunc
	passages     int
	requests     atomic.Int64
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/":
		fmt.Fprint(w, `{"version": {"distribution": "opensearch", "number": "2.19.6"}}`)
	case strings.HasSuffix(r.URL.Path, "/_mapping") && r.Method == http.MethodGet:
		meta, _ := json.Marshal(map[string]any{"x": map[string]any{"mappings": map[string]any{"_meta": (&Manifest{Format: format,
			Passages: c.passages, Complete: true, K1: 0.9, B: 0.4}).meta()}}})
		_, _ = w.Write(meta)
	case strings.HasSuffix(r.URL.Path, "/_count"):
		fmt.Fprintf(w, `{"count": %d, "_shards": {"total": 1, "successful": 1}}`, c.passages)
	case strings.HasSuffix(r.URL.Path, "/_msearch"):
		c.requests.Add(1)
		c.search(w, r)
	case strings.HasSuffix(r.URL.Path, "/_bulk"):
		c.requests.Add(1)
		c.bulk(w, r)
	default:
		fmt.Fprint(w, `{"acknowledged": true}`)
	}
}

func (c *cluster) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return server.URL
}

var hurried = retrieve.ClientOptions{Retries: 3, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond, Timeout: 5 * time.Second}

func openFake(t *testing.T, c *cluster, patience retrieve.ClientOptions) *Index {
	t.Helper()
	c.passages = 9
	x, err := Open(t.Context(), Options{URL: c.start(t), Index: "x", Client: patience})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.Close()) })
	return x
}

// asked returns the texts of the queries of an msearch request.
func asked(r *http.Request) (texts []string) {
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		var line struct {
			Query struct{ Match struct{ Contents string } }
		}
		_ = json.Unmarshal(lines.Bytes(), &line)
		if line.Query.Match.Contents != "" {
			texts = append(texts, line.Query.Match.Contents)
		}
	}
	return texts
}

const hit = `{"status": 200, "_shards": {"total": 1, "successful": 1}, "hits": {"hits": [{"_score": 1.9, "_source": {"id": "7", "contents": "c"}}]}}`

func answers(w http.ResponseWriter, items ...string) {
	fmt.Fprintf(w, `{"took": 1, "responses": [%s]}`, strings.Join(items, ","))
}

// Queries that the node was too busy for are asked again without those that have an answer, one that it cannot answer
// fails alone, and a search that lacks a shard is no answer.
func TestQueriesOfARequestSucceedAndFailOneByOne(t *testing.T) {
	var rounds [][]string
	c := &cluster{search: func(w http.ResponseWriter, r *http.Request) {
		texts := asked(r)
		rounds = append(rounds, texts)
		var items []string
		for _, text := range texts {
			switch {
			case text == "bad":
				items = append(items, `{"status": 400, "error": {"type": "query_shard_exception", "reason": "no"}}`)
			case text == "busy" && len(rounds) < 3:
				items = append(items, `{"status": 429, "error": {"type": "rejected_execution_exception", "reason": "queue"}}`)
			case text == "half" && len(rounds) < 2:
				items = append(items, strings.Replace(hit, `"successful": 1`, `"successful": 0, "failed": 1`, 1))
			case text == "never":
				items = append(items, `{"status": 503, "error": {"type": "no_shard_available_action_exception", "reason": ""}}`)
			default:
				items = append(items, hit)
			}
		}
		answers(w, items...)
	}}
	x := openFake(t, c, hurried)
	results := x.Search(t.Context(), []string{"good", "bad", "busy", "half", "never"}, 3)
	assert.Equal(t, [][]string{{"good", "bad", "busy", "half", "never"}, {"busy", "half", "never"}, {"busy", "never"}, {"never"}}, rounds)
	for _, i := range []int{0, 2, 3} {
		require.NoError(t, results[i].Err)
		assert.Equal(t, "7", results[i].Passages[0].ID)
		assert.InDelta(t, 1.0, results[i].Passages[0].Score, 1e-6, "1.9 of OpenSearch 2 are 1.0 of Lucene")
	}
	assertFailure(t, results[1], retrieve.KindStatus, 400, 1)
	assertFailure(t, results[4], retrieve.KindStatus, 503, 4)
	assert.ErrorContains(t, results[1].Err, "query_shard_exception")
}

func assertFailure(t *testing.T, result retrieve.Result, kind retrieve.Kind, status, attempts int) {
	t.Helper()
	assert.Empty(t, result.Passages)
	var failure *retrieve.Error
	require.ErrorAs(t, result.Err, &failure)
	assert.Equal(t, []any{kind, status, attempts}, []any{failure.Kind, failure.Status, failure.Attempts}, "%v", result.Err)
}

func TestAnswersThatAreNoneAreTypedErrors(t *testing.T) {
	write := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, text) }
	}
	for name, c := range map[string]struct {
		search   http.HandlerFunc
		kind     retrieve.Kind
		status   int
		attempts int
	}{
		"HTML":              {write(200, "<html>hello</html>"), retrieve.KindDecode, 200, 1},
		"another shape":     {write(200, `{"responses": 3}`), retrieve.KindDecode, 200, 1},
		"too few results":   {write(200, `{"responses": []}`), retrieve.KindCount, 0, 1},
		"no contents":       {write(200, `{"responses": [{"status": 200, "hits": {"hits": [{"_source": {"id": "1"}}]}}]}`), retrieve.KindDecode, 0, 1},
		"404":               {write(404, `{"error": "no such index"}`), retrieve.KindStatus, 404, 1},
		"429 is tried":      {write(429, "slow down"), retrieve.KindStatus, 429, 4},
		"500 is tried":      {write(500, "<html>"), retrieve.KindStatus, 500, 4},
		"too large":         {write(200, strings.Repeat("x", 1<<21)), retrieve.KindTooLarge, 0, 1},
		"broken connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, retrieve.KindConnection, 0, 4},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"responses": [`)
		}, retrieve.KindConnection, 0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			patience := hurried
			patience.MaxBytes = 1 << 20
			x := openFake(t, &cluster{search: c.search}, patience)
			assertFailure(t, x.Search(t.Context(), []string{"q"}, 3)[0], c.kind, c.status, c.attempts)
		})
	}
}

func TestSlowNodeIsATimeoutAndIsNotAskedAgain(t *testing.T) {
	release := make(chan struct{})
	c := &cluster{search: func(http.ResponseWriter, *http.Request) { <-release }}
	patience := hurried
	patience.Timeout = 300 * time.Millisecond
	x := openFake(t, c, patience)
	defer close(release)
	assertFailure(t, x.Search(t.Context(), []string{"q"}, 3)[0], retrieve.KindTimeout, 0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	assertFailure(t, x.Search(ctx, []string{"q"}, 3)[0], retrieve.KindCanceled, 0, 1)
}

// Queries go out in batches, and each result stands at its query.
func TestQueriesAreSentInBatches(t *testing.T) {
	c := &cluster{search: func(w http.ResponseWriter, r *http.Request) {
		var items []string
		for _, text := range asked(r) {
			items = append(items, strings.Replace(hit, `"7"`, `"`+text+`"`, 1))
		}
		answers(w, items...)
	}}
	patience := hurried
	patience.MaxBatch = 10
	x := openFake(t, c, patience)
	var queries []string
	for i := range 95 {
		queries = append(queries, fmt.Sprintf("q%d", i))
	}
	for i, r := range x.Search(t.Context(), queries, 1) {
		require.NoError(t, r.Err)
		assert.Equal(t, queries[i], r.Passages[0].ID)
	}
	assert.Equal(t, int64(10), c.requests.Load())
}

// Passages that a busy cluster refuses are sent again, alone.
func TestRefusedPassagesAreSentAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"id": "a", "contents": "A"}`+"\n"+`{"id": "b", "contents": "B"}`+"\n"), 0o644))
	var bodies []string
	status := func(codes ...int) string {
		var items []string
		for _, code := range codes {
			items = append(items, fmt.Sprintf(`{"create": {"status": %d, "error": {"type": "t", "reason": "r"}}}`, code))
		}
		return `{"items": [` + strings.Join(items, ",") + `]}`
	}
	steps := []string{"503", status(201, 429), status(429), status(201)}
	c := &cluster{passages: 2, bulk: func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		step := steps[min(len(bodies), len(steps)-1)]
		bodies = append(bodies, string(text))
		if step == "503" {
			w.WriteHeader(503)
		}
		fmt.Fprint(w, step)
	}}
	patience := hurried
	patience.Parallel = 1
	o := BuildOptions{URL: c.start(t), Index: "x", K1: 0.9, B: 0.4, Rebuild: true, Client: patience}
	m, err := Build(t.Context(), []string{path}, o)
	require.NoError(t, err)
	assert.Equal(t, 2, m.Passages)
	require.Len(t, bodies, 4)
	assert.Equal(t, bodies[0], bodies[1])
	assert.Equal(t, `{"create":{"_id":"b"}}`+"\n"+`{"id":"b","contents":"B","place":1}`+"\n", bodies[2])

	// One that is never taken ends it after all attempts, as a failure of the server.
	steps, bodies = []string{status(201, 429), status(429)}, nil
	_, err = Build(t.Context(), []string{path}, o)
	var failure *retrieve.Error
	require.ErrorAs(t, err, &failure)
	assert.Equal(t, []any{429, 4}, []any{failure.Status, failure.Attempts})
	// One that the mapping refuses is the corpus's fault.
	steps, bodies = []string{status(201, 400)}, nil
	_, err = Build(t.Context(), []string{path}, o)
	assert.ErrorContains(t, err, path+`:2: the passage with id "b" was refused: t: r`)
	assert.Len(t, bodies, 1)
}

func TestBadAddressesAndNamesAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"is not the address of a node": {URL: "localhost:9200", Index: "x"},
		"is not the name of an index":  {URL: "http://h:1", Index: "Wiki 18"},
		`"a/../b" is not the name`:     {URL: "http://h:1", Index: "a/../b"},
	} {
		_, err := Open(t.Context(), o)
		assert.ErrorContains(t, err, want)
	}
	quick := hurried
	quick.Retries = -1
	_, err := Open(t.Context(), Options{URL: "http://user:secret@127.0.0.1:1", Index: "x", Client: quick})
	require.ErrorContains(t, err, "is the cluster up")
	assert.NotContains(t, err.Error(), "secret")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"version": {"number": "8.1.0"}}`)
	}))
	defer other.Close()
	_, err = Open(t.Context(), Options{URL: other.URL, Index: "x", Client: quick})
	assert.ErrorContains(t, err, "not an OpenSearch")
}

// A second node takes over when the first does not answer.
func TestSecondNodeTakesOver(t *testing.T) {
	c := &cluster{passages: 9, search: func(w http.ResponseWriter, _ *http.Request) { answers(w, hit) }}
	x, err := Open(t.Context(), Options{URL: "http://127.0.0.1:1," + c.start(t), Index: "x", Client: hurried})
	require.NoError(t, err)
	defer x.Close()
	for range 5 {
		assert.NoError(t, x.Search(t.Context(), []string{"q"}, 3)[0].Err)
	}
}

// The score of the plugin is undone for products of either sign.
func TestInnerProductUndoesThePlugin(t *testing.T) {
	for _, p := range []float64{-3, -0.5, 0, 0.25, 2} {
		score := p + 1
		if p < 0 {
			score = 1 / (1 - p)
		}
		assert.InDelta(t, p, innerProduct(score), 1e-12)
	}
}
