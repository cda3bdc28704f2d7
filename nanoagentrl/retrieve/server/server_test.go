package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// index searches three passages.
func index(t *testing.T) *retrieve.BM25 {
	t.Helper()
	x, err := retrieve.NewBM25([]data.Passage{
		{ID: "0", Contents: "\"Fox\"\nThe red fox & the <hen>."}, {ID: "1", Contents: "\"Hen\"\nA red hen."},
		{ID: "2", Contents: "\"órgãos\"\nBeyoncé and C++"},
	}, retrieve.DefaultBM25())
	require.NoError(t, err)
	return x
}

func start(t *testing.T, o Options) *httptest.Server {
	t.Helper()
	if o.Searcher == nil {
		o.Searcher = index(t)
	}
	s, err := New(o)
	require.NoError(t, err)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web
}

func post(t *testing.T, web *httptest.Server, body string) (status int, answer string) {
	t.Helper()
	response, err := http.Post(web.URL+"/retrieve", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	return response.StatusCode, read(t, response)
}

func get(t *testing.T, web *httptest.Server, path string) (status int, answer string) {
	t.Helper()
	response, err := http.Get(web.URL + path)
	require.NoError(t, err)
	return response.StatusCode, read(t, response)
}

func read(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

func TestBothFormsOfAnAnswer(t *testing.T) {
	web := start(t, Options{})
	status, answer := post(t, web, `{"queries": ["hen", "zzzz"], "topk": 1}`)
	assert.Equal(t, 200, status)
	assert.Equal(t, `{"result":[[{"id":"1","contents":"\"Hen\"\nA red hen."}],[]]}`+"\n", answer)

	status, answer = post(t, web, `{"queries": ["fox"], "topk": 1, "return_scores": true}`)
	assert.Equal(t, 200, status)
	hit := index(t).Search(t.Context(), []string{"fox"}, 1)[0].Passages[0]
	assert.Equal(t, fmt.Sprintf(`{"result":[[{"document":{"id":"0","contents":"\"Fox\"\nThe red fox & the <hen>."},"score":%v}]]}`,
		hit.Score)+"\n", answer)

	_, answer = post(t, web, `{"queries": []}`)
	assert.Equal(t, `{"result":[]}`+"\n", answer)
}

// The client that trains gets from the server, to the last bit, what it would find in process.
func TestServerAndProcessFindTheSame(t *testing.T) {
	x := index(t)
	client, err := retrieve.NewClient(start(t, Options{Searcher: x}).URL, retrieve.DefaultClient())
	require.NoError(t, err)
	queries := []string{"fox", "", "red hen", "zzzz", "órgãos \"x\" <b>", "the red"}
	for _, topk := range []int{1, 2, 50} {
		assert.Equal(t, x.Search(t.Context(), queries, topk), client.Search(t.Context(), queries, topk))
	}
	assert.NoError(t, client.Ping(t.Context()))
}

func TestTopKOverTheCorpusGivesEachPassageOnce(t *testing.T) {
	web := start(t, Options{Searcher: index(t)})
	_, answer := post(t, web, `{"queries": ["red órgãos"], "topk": 5, "return_scores": true}`)
	var decoded struct {
		Result [][]struct {
			Document struct{ ID string }
			Score    float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &decoded))
	require.Len(t, decoded.Result, 1)
	require.Len(t, decoded.Result[0], 3, "as many scores as documents")
	for i, hit := range decoded.Result[0] {
		assert.Contains(t, []string{"0", "1", "2"}, hit.Document.ID)
		if i > 0 {
			assert.LessOrEqual(t, hit.Score, decoded.Result[0][i-1].Score, "sorted")
		}
	}
}

func TestQueriesWithoutHitsLeaveOthersAlone(t *testing.T) {
	web := start(t, Options{})
	status, answer := post(t, web, `{"queries": ["", "zzzz", "!!!", "hen"], "topk": 1}`)
	assert.Equal(t, 200, status)
	assert.Equal(t, `{"result":[[],[],[],[{"id":"1","contents":"\"Hen\"\nA red hen."}]]}`+"\n", answer)
}

func TestAccentsQuotesAndLongQueriesAreAnswered(t *testing.T) {
	web := start(t, Options{})
	for _, query := range []string{"órgãos", "Beyonc\u00e9", "Beyonce\u0301", `C++ "x" (y)`, "東京 タワー", "\x00",
		strings.Repeat("fox ", 2500), strings.Repeat("x", 10_000)} {
		body, err := json.Marshal(map[string]any{"queries": []string{query}, "topk": 3})
		require.NoError(t, err)
		status, answer := post(t, web, string(body))
		assert.Equal(t, 200, status, answer)
	}
	status, _ := post(t, web, "{\"queries\": [\"\xff\xfe \\ud800\"]}")
	assert.Equal(t, 200, status)
}

func TestOneQueryAsSkyRLSendsIt(t *testing.T) {
	web := start(t, Options{})
	status, answer := post(t, web, `{"query": "hen", "topk": 1, "return_scores": false}`)
	assert.Equal(t, 200, status)
	assert.Equal(t, `{"result":[[{"id":"1","contents":"\"Hen\"\nA red hen."}]]}`+"\n", answer)
}

func TestTopKOfARequestThatDoesNotSayIt(t *testing.T) {
	web := start(t, Options{TopK: 2})
	for _, body := range []string{`{"queries": ["red fox hen órgãos"]}`, `{"queries": ["red fox hen órgãos"], "topk": null}`} {
		_, answer := post(t, web, body)
		assert.Equal(t, 2, strings.Count(answer, `"id"`))
	}
	_, err := New(Options{TopK: 11, Limits: Limits{TopK: 10}})
	assert.ErrorContains(t, err, "more than the limit of 10")
}

func TestBadRequestIsRefusedInWords(t *testing.T) {
	web := start(t, Options{Limits: Limits{Body: 2000, Batch: 3, Query: 20, TopK: 100}})
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"empty":                  {"", 400, "it is empty; want {\\\"queries\\\""},
		"no JSON":                {"queries=x", 400, "invalid character 'q'"},
		"cut":                    {`{"queries": ["x"`, 400, "it breaks off"},
		"a list":                 {`["x"]`, 400, "it is a JSON array"},
		"null":                   {`null`, 400, `there are no \"queries\"`},
		"two objects":            {`{"queries": ["x"]} {}`, 400, "goes on after the request"},
		"no queries":             {`{"topk": 3}`, 400, `there are no \"queries\"; want`},
		"queries is a text":      {`{"queries": "x"}`, 400, `\"queries\" cannot be a JSON string`},
		"queries of numbers":     {`{"queries": [1]}`, 400, `\"queries\" cannot be a JSON number`},
		"null query":             {`{"queries": ["x", null]}`, 400, `\"queries\"[1] is null`},
		"query and queries":      {`{"queries": ["x"], "query": "y"}`, 400, "not both"},
		"topk 0":                 {`{"queries": ["x"], "topk": 0}`, 400, `\"topk\" is 0; want a whole number from 1 to 100`},
		"topk -1":                {`{"queries": ["x"], "topk": -1}`, 400, `\"topk\" is -1`},
		"topk 1e9":               {`{"queries": ["x"], "topk": 1e9}`, 400, `\"topk\" is 1e+09; want a whole number from 1 to 100`},
		"topk 1.5":               {`{"queries": ["x"], "topk": 1.5}`, 400, `\"topk\" is 1.5`},
		"topk beyond all ints":   {`{"queries": ["x"], "topk": 1e300}`, 400, `\"topk\" is 1e+300`},
		"topk a text":            {`{"queries": ["x"], "topk": "3"}`, 400, `\"topk\" cannot be a JSON string`},
		"too many queries":       {`{"queries": ["", "", "", ""]}`, 400, "4 queries are more than the limit of 3"},
		"too long a query":       {`{"queries": ["", "123456789012345678901"]}`, 400, "query 1 has 21 bytes"},
		"too large a body":       {strings.Repeat(" ", 2001), 413, "larger than the limit of 2000 bytes"},
		"return_scores a number": {`{"queries": [], "return_scores": 1}`, 400, `\"return_scores\" cannot be`},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := post(t, web, c.body)
			assert.Equal(t, c.status, status)
			assert.Contains(t, answer, c.want)
			assert.True(t, strings.HasPrefix(answer, `{"detail":"`), answer)
		})
	}
	status, _ := get(t, web, "/retrieve")
	assert.Equal(t, 405, status)
	status, _ = get(t, web, "/")
	assert.Equal(t, 404, status)
}

func TestHealthAndMetrics(t *testing.T) {
	web := start(t, Options{Kind: "bm25", Passages: 3})
	status, answer := get(t, web, "/healthz")
	assert.Equal(t, 200, status)
	assert.JSONEq(t, `{"status": "ok", "kind": "bm25", "passages": 3}`, answer)
	post(t, web, `{"queries": ["hen", "zzzz"], "topk": 1}`)
	post(t, web, `{}`)
	_, text := get(t, web, "/metrics")
	for _, line := range []string{
		`retriever_requests_total{code="200"} 1`, `retriever_requests_total{code="400"} 1`, "retriever_queries_total 2",
		"retriever_fruitless_queries_total 1", "retriever_hits_total 1", `retriever_refused_total{reason="request"} 1`,
		`retriever_passages{kind="bm25"} 3`, "retriever_request_seconds_count 2", "retriever_requests_searching 0", "go_goroutines ",
	} {
		assert.Contains(t, text, "\n"+line)
	}
}

// gate is a searcher that waits until it is let through or the context ends.
type gate struct {
	entered chan struct{}
	open    chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) Search(ctx context.Context, queries []string, _ int) []retrieve.Result {
	results := make([]retrieve.Result, len(queries))
	g.entered <- struct{}{}
	select {
	case <-g.open:
	case <-ctx.Done():
		for i := range results {
			results[i].Err = ctx.Err()
		}
	}
	return results
}

func TestCrowdIsBoundedAndSaysTryAgain(t *testing.T) {
	g := newGate()
	web := start(t, Options{Searcher: g, Limits: Limits{Concurrent: 2, Waiting: 1}})
	statuses := make(chan int, 10)
	ask := func() {
		response, err := http.Post(web.URL+"/retrieve", "", strings.NewReader(`{"queries": ["x"]}`))
		if err != nil {
			statuses <- 0
			return
		}
		if response.StatusCode == 503 && response.Header.Get("Retry-After") == "" {
			response.StatusCode = -1
		}
		response.Body.Close()
		statuses <- response.StatusCode
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(ask)
	}
	assert.Equal(t, 503, <-statuses, "two search, one waits, one is sent away")
	<-g.entered
	<-g.entered
	assert.Empty(t, g.entered)
	close(g.open)
	group.Wait()
	for range 3 {
		assert.Equal(t, 200, <-statuses)
	}
}

func TestSlowSearchEndsWithItsTime(t *testing.T) {
	web := start(t, Options{Searcher: newGate(), Timeout: 20 * time.Millisecond})
	status, answer := post(t, web, `{"queries": ["x"]}`)
	assert.Equal(t, 503, status)
	assert.Contains(t, answer, "not done within 20ms")
}

func TestFailedSearchIsAnErrorAndNoPassage(t *testing.T) {
	broken := searcherFunc(func(queries []string) []retrieve.Result {
		results := make([]retrieve.Result, len(queries))
		results[0].Err = errors.New("the index is damaged")
		return results
	})
	status, answer := post(t, start(t, Options{Searcher: broken}), `{"queries": ["x", "y"]}`)
	assert.Equal(t, 500, status)
	assert.Equal(t, `{"detail":"the index is damaged"}`+"\n", answer)

	short := searcherFunc(func([]string) []retrieve.Result { return nil })
	status, answer = post(t, start(t, Options{Searcher: short}), `{"queries": ["x"]}`)
	assert.Equal(t, 500, status)
	assert.Contains(t, answer, "0 results for 1 queries")

	panics := searcherFunc(func([]string) []retrieve.Result { panic("oops") })
	var log lockedBuffer
	web := start(t, Options{Searcher: panics, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		status, answer = post(t, web, `{"queries": ["x"]}`)
		assert.Equal(t, 500, status)
		assert.NotContains(t, answer, "oops")
	}
	assert.Contains(t, log.String(), "oops")
}

// lockedBuffer may be written to while it is read.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

type searcherFunc func(queries []string) []retrieve.Result

func (f searcherFunc) Search(_ context.Context, queries []string, _ int) []retrieve.Result {
	return f(queries)
}

func TestStoppingServerLetsRequestsEnd(t *testing.T) {
	g := newGate()
	s, err := New(Options{Searcher: g})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	status := make(chan int, 1)
	go func() {
		response, err := http.Post(address+"/retrieve", "", strings.NewReader(`{"queries": ["x"]}`))
		if err != nil {
			status <- 0
			return
		}
		response.Body.Close()
		status <- response.StatusCode
	}()
	<-g.entered
	stop()
	require.Eventually(t, func() bool {
		response, err := http.Get(address + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		return err != nil
	}, 5*time.Second, 5*time.Millisecond, "no new connections")
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	assert.Equal(t, 503, recorder.Code)
	close(g.open)
	assert.Equal(t, 200, <-status)
	assert.NoError(t, <-ended)
}

func TestServerStopsWithinItsGrace(t *testing.T) {
	g := newGate()
	s, err := New(Options{Searcher: g, Grace: 20 * time.Millisecond})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	go func() {
		response, err := http.Post("http://"+listener.Addr().String()+"/retrieve", "", strings.NewReader(`{"queries": ["x"]}`))
		if err == nil {
			response.Body.Close()
		}
	}()
	<-g.entered
	stop()
	assert.ErrorContains(t, <-ended, "did not end within 20ms")
}

// Whatever a client sends is a request within the limits or an error.
func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		`{"queries": ["who", "órgãos"], "topk": 3, "return_scores": true}`, `{"query": "x"}`, `{"queries": [null]}`,
		`{"queries": "x", "topk": 1e9}`, `[`, `null`, `{"queries": []} x`, "\xff", `{"topk": -0.0, "queries": ["\ud800"]}`,
	} {
		f.Add([]byte(seed))
	}
	limits := Limits{Batch: 4, Query: 16, TopK: 10}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := decodeRequest(body, 3, limits)
		if err != nil {
			require.NotContains(t, err.Error(), "Go ")
			return
		}
		require.LessOrEqual(t, len(r.queries), limits.Batch)
		require.True(t, 1 <= r.topk && r.topk <= limits.TopK)
		for _, query := range r.queries {
			require.LessOrEqual(t, len(query), limits.Query)
		}
	})
}
