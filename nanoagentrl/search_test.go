package nanoagentrl

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/opensearch/opensearchtest"
)

// A search server that dies in the middle of a run ends it after the last whole step, which is saved; nothing of the
// server's errors reaches an episode.
func TestServerThatDiesEndsTheRunWithItsLastStepSaved(t *testing.T) {
	firstPause = time.Millisecond
	var calls, dieAfter atomic.Int64
	dieAfter.Store(1 << 40)
	server := searchServer(t, func(w http.ResponseWriter) bool {
		if calls.Add(1) > dieAfter.Load() {
			http.Error(w, "out of memory", http.StatusInternalServerError)
			return false
		}
		return true
	})
	cfg := tiny(t, "retriever_url="+server, "retriever_retries=0", "retriever_max_failures=3", "corpus=", "save_every=100",
		"max_turns=3", "eval_every=0", "eval_at_start=false", "steps=80", "lr=0")
	rec := record()
	rec.onStep = func(step int) {
		if step == 2 {
			dieAfter.Store(calls.Load())
		}
	}
	o, err := train(t, t.Context(), cfg, rec)
	require.ErrorIs(t, err, retrieve.ErrGaveUp)
	require.NotErrorIs(t, err, context.Canceled, "nobody interrupted it")
	require.ErrorContains(t, err, "3 searches in a row failed")
	require.ErrorContains(t, err, "out of memory")
	require.GreaterOrEqual(t, len(rec.stats), 2)
	require.Equal(t, dieAfter.Load()+3, calls.Load())
	require.Len(t, rec.warnings, 2, "each wait is told")
	for _, s := range o.samples {
		for _, turn := range s.Episode.Turns {
			require.NotContains(t, turn.Observation, "out of memory")
		}
	}
	require.Equal(t, []string{checkpoint.Name(len(rec.stats))}, rec.saved)

	dieAfter.Store(1 << 40)
	cfg.Steps = len(rec.stats) + 1
	rec = record()
	_, err = train(t, t.Context(), cfg, rec)
	require.NoError(t, err, "the same command goes on")
	require.Len(t, rec.stats, 1)
}

// A server that is away for a while, as when it is restarted, changes nothing but the time that a run takes.
func TestRestartedServerChangesNothing(t *testing.T) {
	firstPause = time.Millisecond
	var calls, from, until atomic.Int64
	from.Store(1 << 40)
	server := searchServer(t, func(w http.ResponseWriter) bool {
		n := calls.Add(1)
		if from.Load() < n && n <= until.Load() {
			panic(http.ErrAbortHandler) // breaks the connection
		}
		return true
	})
	settings := []string{"retriever_url=" + server, "retriever_retries=0", "corpus="}
	want := trained(t, tiny(t, settings...))
	rec := record()
	rec.onStep = func(step int) {
		if step == 2 {
			until.Store(calls.Load() + 4)
			from.Store(calls.Load())
		}
	}
	got, err := train(t, t.Context(), tiny(t, settings...), rec)
	require.NoError(t, err)
	require.Greater(t, calls.Load(), until.Load(), "the test needs an outage")
	require.NotEmpty(t, rec.warnings)
	requireSame(t, want, got)
}

// Searches that fail for good are marked, stay out of the loss and never become an observation; the run goes on.
func TestFailedSearchesAreMarkedAndLeftOut(t *testing.T) {
	var calls atomic.Int64
	server := searchServer(t, func(w http.ResponseWriter) bool {
		if n := calls.Add(1); n > 1 && n%3 == 0 { // the first asks whether the server is there
			http.Error(w, "schema error", http.StatusUnprocessableEntity)
			return false
		}
		return true
	})
	rec := record()
	o, err := train(t, t.Context(), tiny(t, "retriever_url="+server, "corpus=", "max_turns=3", "eval_every=0",
		"eval_at_start=false", "steps=10"), rec)
	require.NoError(t, err)
	failed, marked := 0.0, 0
	for _, s := range rec.stats {
		failed += s["train/retriever_errors"]
	}
	require.Positive(t, failed)
	for _, s := range o.samples {
		e := s.Episode
		if e.Stop == episode.StopRetriever {
			marked++
			require.Zero(t, e.Advantage)
		}
		for _, turn := range e.Turns {
			require.NotContains(t, turn.Observation, "schema error")
		}
	}
	require.Positive(t, marked, "the test needs a failed episode among the samples")
}

// searchServer finds the same passage for every query; before may refuse an answer.
func searchServer(t *testing.T, before func(w http.ResponseWriter) bool) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var body struct{ Queries []string }
		if json.NewDecoder(request.Body).Decode(&body) != nil || !before(w) {
			return
		}
		result := make([][]any, len(body.Queries))
		for i := range result {
			result[i] = []any{map[string]any{"document": map[string]any{"id": "1", "contents": "\"Ada\"\nAda was"}, "score": 1}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"result": result})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// people writes the tiny world as a data set that can be named, with questions in one file, and returns its folder.
func people(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	folder := filepath.Join(dir, "people")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	passages, questions := data.TinyWorld(tinySeed, tinyPeople)
	write := func(name string, values ...any) {
		file, err := os.Create(filepath.Join(folder, name))
		require.NoError(t, err)
		for _, v := range values {
			require.NoError(t, json.NewEncoder(file).Encode(v))
		}
		require.NoError(t, file.Close())
	}
	var rows, held, corpus []any
	for i, q := range questions {
		if i%4 == 0 {
			held = append(held, q)
		} else {
			rows = append(rows, q)
		}
	}
	for _, p := range passages {
		corpus = append(corpus, p)
	}
	write("qa.jsonl", rows...)
	write("held.jsonl", held...)
	write("corpus.jsonl", corpus...)
	return dir
}

func TestDataSetsAreReadByName(t *testing.T) {
	dir := people(t)
	settings := []string{"data_dir=" + dir, "train_data=people", "corpus=people", "eval_data=[people:held]", "steps=1"}
	r, err := Open(t.Context(), tiny(t, append(settings, "best_metric=eval/em_people_held")...), Options{})
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, r.questions, 72)
	require.Equal(t, "people_held", r.Splits[0].Name)
	require.NoError(t, r.Train(t.Context()))

	_, err = Open(t.Context(), tiny(t, append(settings, "eval_data=[people]")...), Options{})
	require.ErrorContains(t, err, "eval_data: people and train_data people are the same questions")
}

// An index on the disk is made once, searched like the one in memory, and refused when the corpus is another.
func TestRunWithAnIndexOnTheDiskEqualsOneInMemory(t *testing.T) {
	dir := people(t)
	index := filepath.Join(t.TempDir(), "index")
	settings := []string{"data_dir=" + dir, "train_data=people", "corpus=people", "eval_data=[people:held]", "best_metric="}
	want := trained(t, tiny(t, settings...))
	for range 2 {
		requireSame(t, want, trained(t, tiny(t, append(settings, "index="+index)...)))
	}
	corpus := filepath.Join(dir, "people", "corpus.jsonl")
	text, err := os.ReadFile(corpus)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(corpus, append(text, []byte(`{"id": "new", "contents": ""}`)...), 0o644))
	_, err = Open(t.Context(), tiny(t, append(settings, "index="+index)...), Options{})
	require.ErrorContains(t, err, "does not belong to this corpus")
	dry := dryConfig(tiny(t, append(settings, "index="+index)...))
	dry.RunDir = filepath.Join(t.TempDir(), "run")
	r, err := Open(t.Context(), dry, Options{})
	require.NoError(t, err, "a dry run has a world of its own")
	r.Close()
}

// A run whose passages lie in OpenSearch is the run over the same corpus in memory; another corpus is refused.
func TestRunInOpenSearchEqualsOneInMemory(t *testing.T) {
	node := opensearchtest.Start(t)
	dir := people(t)
	corpus := filepath.Join(dir, "people", "corpus.jsonl")
	_, err := opensearch.Build(t.Context(), []string{corpus}, opensearch.BuildOptions{URL: node.URL, Index: "people", K1: 0.9, B: 0.4,
		Shards: 2, Rebuild: true})
	require.NoError(t, err)
	settings := []string{"data_dir=" + dir, "train_data=people", "corpus=people", "eval_data=[people:held]", "best_metric="}
	cluster := append(settings, "opensearch_url="+node.URL, "opensearch_index=people")
	requireSame(t, trained(t, tiny(t, settings...)), trained(t, tiny(t, cluster...)))

	_, err = Open(t.Context(), tiny(t, append(cluster, "bm25_k1=1.2")...), Options{})
	require.ErrorContains(t, err, "it ranks with k1 0.9 and b 0.4, not 1.2")
	text, err := os.ReadFile(corpus)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(corpus, append(text, []byte(`{"id": "new", "contents": ""}`)...), 0o644))
	_, err = Open(t.Context(), tiny(t, cluster...), Options{})
	require.ErrorContains(t, err, "SHA-256")
}
