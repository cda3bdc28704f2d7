package retrieve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// quick waits milliseconds between attempts where DefaultClient waits seconds.
func quick() ClientOptions {
	return ClientOptions{Timeout: 20 * time.Second, Retries: 3, Backoff: time.Millisecond}
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func newClient(t *testing.T, address string, options ClientOptions) *Client {
	t.Helper()
	client, err := NewClient(address, options)
	require.NoError(t, err)
	return client
}

// answering serves the same body to every request and counts them.
func answering(t *testing.T, status int, body string) (address string, requests *atomic.Int64) {
	requests = new(atomic.Int64)
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}), requests
}

// searchR1Handler serves a Searcher in the Search-R1 form.
func searchR1Handler(t *testing.T, searcher Searcher) http.HandlerFunc {
	type document struct {
		ID       string `json:"id"`
		Contents string `json:"contents"`
	}
	type scored struct {
		Document document `json:"document"`
		Score    float64  `json:"score"`
	}
	return func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Queries      []string `json:"queries"`
			TopK         int      `json:"topk"`
			ReturnScores bool     `json:"return_scores"`
		}
		assert.Equal(t, "POST /retrieve", r.Method+" "+r.URL.Path)
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&request))
		assert.True(t, request.ReturnScores)
		lists := [][]scored{}
		for _, result := range searcher.Search(r.Context(), request.Queries, request.TopK) {
			list := []scored{}
			for _, p := range result.Passages {
				list = append(list, scored{document{p.ID, p.Contents}, p.Score})
			}
			lists = append(lists, list)
		}
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"result": lists}))
	}
}

func TestClientFindsWhatTheServersSearcherFinds(t *testing.T) {
	index := newBM25(t, "\"Fox\"\nred fox", "\"Hen\"\nred hen", "\"Dog\"\nthe dog & the fox")
	client := newClient(t, serve(t, searchR1Handler(t, index)), quick())
	queries := []string{"fox", "", "red hen", "zzzz", "órgãos \"x\" <b>"}
	want := index.Search(context.Background(), queries, 2)
	assert.Equal(t, want, client.Search(context.Background(), queries, 2))
	assert.Len(t, want[0].Passages, 2)
	assert.NoError(t, client.Ping(context.Background()))
	assert.Empty(t, client.Search(context.Background(), nil, 2))
}

func TestClientReadsAllFormsOfHits(t *testing.T) {
	for name, c := range map[string]struct {
		hits string
		want []episode.Passage
	}{
		"scores": {`[{"document": {"id": "7", "contents": "x"}, "score": 1.5}]`,
			[]episode.Passage{{ID: "7", Contents: "x", Score: 1.5}}},
		"without scores": {`[{"id": "7", "contents": "x"}, {"id": "3", "contents": "y"}]`,
			[]episode.Passage{{ID: "7", Contents: "x"}, {ID: "3", Contents: "y"}}},
		"numeric id": {`[{"document": {"id": 7, "contents": "x"}, "score": 1}]`,
			[]episode.Passage{{ID: "7", Contents: "x", Score: 1}}},
		"title and text": {`[{"id": "7", "title": "T", "text": "x"}, {"id": "8", "title": "\"T\"", "text": "y"}]`,
			[]episode.Passage{{ID: "7", Contents: "\"T\"\nx"}, {ID: "8", Contents: "\"T\"\ny"}}},
		"text":    {`[{"id": "7", "text": "x"}]`, []episode.Passage{{ID: "7", Contents: "x"}}},
		"no hits": {`[]`, []episode.Passage{}},
		"unsorted": {`[{"document": {"id": "1", "text": ""}, "score": 1}, {"document": {"id": "2", "text": ""}, "score": 3},
			{"document": {"id": "3", "text": ""}, "score": 3}]`,
			[]episode.Passage{{ID: "2", Score: 3}, {ID: "3", Score: 3}, {ID: "1", Score: 1}}},
		"more than topk": {`[{"id": 1, "text": ""}, {"id": 2, "text": ""}, {"id": 3, "text": ""}, {"id": 4, "text": ""}]`,
			[]episode.Passage{{ID: "1"}, {ID: "2"}, {ID: "3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := answering(t, 200, `{"result": [`+c.hits+`]}`)
			assert.Equal(t, c.want, search(t, newClient(t, address, quick()), "q", 3))
		})
	}
}

// What a server may answer instead of results is a typed error after a bounded wait, and never a passage.
func TestServerFaultIsATypedErrorNeverAPassage(t *testing.T) {
	const good = `[{"document": {"id": "1", "contents": "x"}, "score": 1}]`
	for name, c := range map[string]struct {
		status   int
		body     string
		kind     Kind
		attempts int64
	}{
		"500 is tried again":          {500, "Internal Server Error", KindStatus, 4},
		"503 is tried again":          {503, "", KindStatus, 4},
		"400 is not":                  {400, `{"detail": "field required"}`, KindStatus, 1},
		"404 is not":                  {404, "<html>not found</html>", KindStatus, 1},
		"422 schema error":            {422, `{"detail": [{"msg": "field required"}]}`, KindStatus, 1},
		"429 is not":                  {429, "slow down", KindStatus, 1},
		"a redirect is not followed":  {302, "", KindStatus, 1},
		"an empty answer":             {200, "", KindDecode, 1},
		"HTML":                        {200, "<html>Bad gateway</html>", KindDecode, 1},
		"JSON that is cut":            {200, `{"result": [[{"document": {"id": "1"`, KindDecode, 1},
		"an error object":             {200, `{"error": "index not loaded"}`, KindDecode, 1},
		"an error text as result":     {200, `{"result": "index not loaded"}`, KindDecode, 1},
		"an error text as hits":       {200, `{"result": ["index not loaded", "x"]}`, KindDecode, 1},
		"an error text as hit":        {200, `{"result": [["index not loaded"], []]}`, KindDecode, 1},
		"an error text as document":   {200, `{"result": [[{"document": "not loaded", "score": 1}], []]}`, KindDecode, 1},
		"null hits":                   {200, `{"result": [null, []]}`, KindDecode, 1},
		"null document":               {200, `{"result": [[{"document": null, "score": 1}], []]}`, KindDecode, 1},
		"a document without id":       {200, `{"result": [[{"contents": "index not loaded"}], []]}`, KindDecode, 1},
		"a document without contents": {200, `{"result": [[{"document": {"id": "1"}, "score": 1}], []]}`, KindDecode, 1},
		"a score that is no number":   {200, `{"result": [[{"id": "1", "contents": "", "score": NaN}], []]}`, KindDecode, 1},
		"null":                        {200, `null`, KindDecode, 1},
		"too few results":             {200, `{"result": [` + good + `]}`, KindCount, 1},
		"too many results":            {200, `{"result": [` + good + `,` + good + `,` + good + `]}`, KindCount, 1},
		"too large":                   {200, `{"result": [[], []]}` + strings.Repeat(" ", 5000), KindTooLarge, 1},
	} {
		t.Run(name, func(t *testing.T) {
			address, requests := answering(t, c.status, c.body)
			options := quick()
			options.MaxBytes = 4096
			results := newClient(t, address, options).Search(context.Background(), []string{"a", "b"}, 3)
			require.Len(t, results, 2)
			for _, result := range results {
				var failure *Error
				require.ErrorAs(t, result.Err, &failure)
				assert.Equal(t, c.kind, failure.Kind, failure.Error())
				assert.Equal(t, address+"/retrieve", failure.URL)
				assert.Equal(t, int(c.attempts), failure.Attempts)
				assert.Empty(t, result.Passages)
				if c.kind == KindStatus {
					assert.Equal(t, c.status, failure.Status)
				}
			}
			assert.Equal(t, c.attempts, requests.Load())
		})
	}
}

func TestHangingServerTimesOutOnce(t *testing.T) {
	var requests atomic.Int64
	release := make(chan struct{})
	address := serve(t, func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		<-release
	})
	defer close(release)
	options := quick()
	options.Timeout = 50 * time.Millisecond
	start := time.Now()
	result := newClient(t, address, options).Search(context.Background(), []string{"q"}, 3)[0]
	assert.Less(t, time.Since(start), 10*time.Second)
	var failure *Error
	require.ErrorAs(t, result.Err, &failure)
	assert.Equal(t, KindTimeout, failure.Kind)
	assert.EqualValues(t, 1, requests.Load())
	assert.NoError(t, context.Background().Err())
}

func TestAnswerThatStopsHalfwayTimesOut(t *testing.T) {
	release := make(chan struct{})
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"result": [`)
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	options := quick()
	options.Timeout = 50 * time.Millisecond
	var failure *Error
	require.ErrorAs(t, newClient(t, address, options).Search(context.Background(), []string{"q"}, 3)[0].Err, &failure)
	assert.Equal(t, KindTimeout, failure.Kind)
}

func TestRetryGoesOnUntilTheServerRecovers(t *testing.T) {
	index := newBM25(t, "red fox")
	good := searchR1Handler(t, index)
	var requests atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 1:
			http.Error(w, "loading", http.StatusServiceUnavailable)
		case 2: // breaks the connection in the middle of the answer
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"result"`)
		default:
			good(w, r)
		}
	})
	assert.Equal(t, []string{"p0"}, idsOf(search(t, newClient(t, address, quick()), "fox", 3)))
	assert.EqualValues(t, 3, requests.Load())
}

func TestNegativeRetriesMeanOneAttempt(t *testing.T) {
	address, requests := answering(t, 500, "")
	options := quick()
	options.Retries = -1
	assert.Error(t, newClient(t, address, options).Search(context.Background(), []string{"q"}, 3)[0].Err)
	assert.EqualValues(t, 1, requests.Load())
}

func TestManyQueriesAreSplitAndKeepTheirOrder(t *testing.T) {
	index := newBM25(t, "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7")
	good := searchR1Handler(t, index)
	var lock sync.Mutex
	var sizes []int
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var request struct{ Queries []string }
		assert.NoError(t, json.Unmarshal(body, &request))
		lock.Lock()
		sizes = append(sizes, len(request.Queries))
		lock.Unlock()
		if request.Queries[0] == "n3" {
			http.Error(w, "this batch fails", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		good(w, r)
	})
	options := quick()
	options.MaxBatch = 3
	queries := []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"}
	results := newClient(t, address, options).Search(context.Background(), queries, 3)
	for i, result := range results {
		if i >= 3 && i < 6 {
			assert.Error(t, result.Err, "query %d is in the failing batch", i)
			continue
		}
		require.NoError(t, result.Err)
		assert.Equal(t, []string{fmt.Sprint("p", i)}, idsOf(result.Passages))
	}
	assert.ElementsMatch(t, []int{3, 3, 2}, sizes)
}

func TestCallersEndIsNotTheServersFault(t *testing.T) {
	release := make(chan struct{})
	hanging := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	failing, _ := answering(t, 500, "")
	slow := quick()
	slow.Timeout, slow.Backoff = time.Minute, time.Minute
	for name, address := range map[string]string{"during an attempt": hanging, "between attempts": failing} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			result := newClient(t, address, slow).Search(ctx, []string{"q"}, 3)[0]
			var failure *Error
			require.ErrorAs(t, result.Err, &failure)
			assert.Equal(t, KindCanceled, failure.Kind)
			assert.ErrorIs(t, result.Err, context.DeadlineExceeded)
		})
	}
}

func TestTopKBelowOneAsksNothing(t *testing.T) {
	address, requests := answering(t, 200, `{"result": [[]]}`)
	var failure *Error
	require.ErrorAs(t, newClient(t, address, quick()).Search(context.Background(), []string{"q"}, 0)[0].Err, &failure)
	assert.Equal(t, KindRequest, failure.Kind)
	assert.Zero(t, requests.Load())
}

func TestUnreachableRetrieverIsOneClearError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	free := listener.Addr().String()
	require.NoError(t, listener.Close())

	err = newClient(t, "http://me:secret@"+free, quick()).Ping(context.Background())
	var failure *Error
	require.ErrorAs(t, err, &failure)
	assert.Equal(t, KindConnection, failure.Kind)
	assert.Equal(t, 4, failure.Attempts)
	assert.Contains(t, err.Error(), "no retrieval server answers at http://me:xxxxx@"+free+"/retrieve; start one there")
	assert.NotContains(t, err.Error(), "secret")
	assert.NotContains(t, err.Error(), "\n")

	address, _ := answering(t, 404, "nothing here")
	err = newClient(t, address, quick()).Ping(context.Background())
	assert.ErrorContains(t, err, "does not answer POST /retrieve in the Search-R1 form")
	assert.ErrorContains(t, err, `status 404: the server says: "nothing here"`)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, newClient(t, address, quick()).Ping(ctx), context.Canceled)
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:8000":           "http://127.0.0.1:8000/retrieve",
		"http://127.0.0.1:8000/":          "http://127.0.0.1:8000/retrieve",
		"http://127.0.0.1:8000/retrieve":  "http://127.0.0.1:8000/retrieve",
		"http://127.0.0.1:8000/retrieve/": "http://127.0.0.1:8000/retrieve",
		"https://host/search?key=1":       "https://host/search/retrieve?key=1",
	} {
		assert.Equal(t, want, newClient(t, address, quick()).endpoint)
	}
	for _, address := range []string{"", "127.0.0.1:8000", "host", "ftp://host", "http://", "http://a b", "/retrieve"} {
		_, err := NewClient(address, quick())
		assert.ErrorContains(t, err, "is not the address of a server", address)
	}
}

func TestBackoffIsBoundedAndSpread(t *testing.T) {
	options := ClientOptions{Backoff: 100 * time.Millisecond, MaxBackoff: 300 * time.Millisecond}
	client := newClient(t, "http://x", options)
	for attempts, longest := range map[int]time.Duration{1: 100e6, 2: 200e6, 3: 300e6, 60: 300e6} {
		different := map[time.Duration]bool{}
		for range 50 {
			wait := client.options.wait(attempts)
			assert.LessOrEqual(t, wait, longest)
			assert.GreaterOrEqual(t, wait, longest/2)
			different[wait] = true
		}
		assert.Greater(t, len(different), 10)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	index := newBM25(t, "red fox")
	server := httptest.NewUnstartedServer(searchR1Handler(t, index))
	var opened atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := newClient(t, server.URL, quick())
	for range 5 {
		search(t, client, "fox", 3)
	}
	assert.EqualValues(t, 1, opened.Load())
}

func TestErrorTextNamesTheServerAndTheCause(t *testing.T) {
	cause := errors.New("boom")
	failure := &Error{Kind: KindStatus, URL: "http://x/retrieve", Status: 500, Attempts: 4, Err: cause}
	assert.Equal(t, "retrieve: http://x/retrieve: status 500 after 4 attempts: boom", failure.Error())
	assert.ErrorIs(t, failure, cause)
}
