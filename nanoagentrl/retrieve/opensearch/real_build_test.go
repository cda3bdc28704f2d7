package opensearch_test

import (
	"context"
	"io"
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
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch/opensearchtest"
)

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

// A node that is killed while it is searched gives a typed error and no passages; once it is back, the same searcher
// goes on, and so does a build that was under way.
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
	go func() {
		defer close(back)
		for range 100 { // A node that comes back may answer some queries before all shards are there.
			results := patient.Search(t.Context(), queries, 3)
			var found [][]episode.Passage
			for _, r := range results {
				if r.Err == nil {
					found = append(found, r.Passages)
				}
			}
			if len(found) == len(results) {
				back <- found
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	node.Restart()
	assert.Equal(t, want, <-back, "the same passages after the restart")
	assert.NotEmpty(t, notes)
	require.NoError(t, <-ended, "the build went on as well")
	assert.Equal(t, 140, open(t, opensearch.Options{URL: node.URL, Index: "killed_build", Corpora: []string{corpus}}).Len())
}
