package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/server"
)

func measured(t *testing.T, args ...string) map[string]any {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), args, &out))
	var values map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &values))
	return values
}

// sets is a folder with one data set, the tiny world.
func sets(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "people"), 0o755))
	passages, questions := data.TinyWorld(1, 30)
	var corpus, qa bytes.Buffer
	for _, p := range passages {
		require.NoError(t, json.NewEncoder(&corpus).Encode(p))
	}
	for _, q := range questions {
		require.NoError(t, json.NewEncoder(&qa).Encode(q))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "people", "corpus.jsonl"), corpus.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "people", "qa.jsonl"), qa.Bytes(), 0o644))
	return dir
}

func TestSameSeedMakesTheSameCorpus(t *testing.T) {
	source := sets(t)
	text := func(args ...string) string {
		dir := t.TempDir()
		measured(t, append([]string{"corpus", "--n", "100", "--queries", "10", "--out", dir, "--terms"}, args...)...)
		var all strings.Builder
		for _, name := range []string{"corpus.jsonl", "queries.txt", "corpus_terms.txt", "query_terms.txt"} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Contains(t, []int{10, 100}, bytes.Count(content, []byte("\n")), name)
			all.Write(content)
		}
		return all.String()
	}
	for _, kind := range []string{"passages", "zipf"} {
		one := text("--data_dir", source, "--text", kind)
		assert.Equal(t, one, text("--data_dir", source, "--text", kind))
		assert.NotEqual(t, one, text("--data_dir", source, "--text", kind, "--seed", "2"))
	}
}

func TestCopiesOfAPassageDiffer(t *testing.T) {
	dir := t.TempDir()
	measured(t, "corpus", "--n", "90", "--data_dir", sets(t), "--out", dir)
	passages, err := data.ReadCorpus(dir)
	require.NoError(t, err)
	require.Len(t, passages, 90)
	different := map[string]bool{}
	for _, p := range passages {
		different[p.Contents] = true
	}
	assert.Greater(t, len(different), 85)
}

func TestIndexSearchAndLoad(t *testing.T) {
	dir := t.TempDir()
	measured(t, "corpus", "--text", "zipf", "--n", "300", "--queries", "20", "--out", dir)
	built := measured(t, "index", "--dir", dir)
	assert.Equal(t, 300.0, built["n"])
	assert.Positive(t, built["index_mib"])
	searched := measured(t, "search", "--dir", dir)
	assert.Positive(t, searched["q_s"])
	assert.FileExists(t, filepath.Join(dir, "hits.txt"))

	x, err := retrieve.OpenBM25(filepath.Join(dir, "index"), retrieve.DefaultBM25())
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	s, err := server.New(server.Options{Searcher: x, Kind: "bm25", Passages: 300})
	require.NoError(t, err)
	web := httptest.NewServer(s)
	defer web.Close()
	loaded := measured(t, "load", "--dir", dir, "--url", web.URL, "--connections", "8", "--seconds", "1", "--batch", "3")
	assert.Positive(t, loaded["requests"])
	assert.Zero(t, loaded["failed"])
	assert.Zero(t, loaded["different"])

	assert.ErrorContains(t, run(t.Context(), []string{"load", "--dir", dir, "--url", web.URL, "--topk", "2000"}, &bytes.Buffer{}),
		"status 400", "over the server's limit")
}

func TestTableHasARowForEachPeer(t *testing.T) {
	dir := t.TempDir()
	text := `{"what": "corpus", "n": 200}
{"what": "ours: index", "n": 200, "index_s": 1.5, "peak_gib": 0.36, "index_mib": 17.5}
{"what": "ours: search", "n": 200, "queries": 2000, "q_s": 16000, "single_q_s": 8000.4, "peak_gib": 0.2}
{"what": "bm25s_numba", "n": 200, "queries": 2000, "index_s": 9, "q_s": 10900, "single_q_s": 4000, "same_top3_as_ours": 0.9931, "memory_gib": 0.2, "peak_gib": 1.2}
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "results.jsonl"), []byte(text), 0o644))
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"table", "--dir", dir}, &out))
	assert.Equal(t, `| 200 passages | index, s | memory, GiB | index, MiB | questions | queries/s | one after the other | same first three |
|---|---|---|---|---|---|---|---|
| ours | 1.5 | 0.36 | 17.5 | 2000 | 16000 | 8000 | – |
| bm25s_numba | 9 | 1.2 | – | 2000 | 10900 | 4000 | 99.3 % |
`, out.String())
}

func TestBadInput(t *testing.T) {
	for want, args := range map[string][]string{
		"what to do is":         {"fly"},
		"give --dir":            {"index"},
		"give --out":            {"corpus"},
		"give --data_dir":       {"corpus", "--out", t.TempDir()},
		`--text is "x"`:         {"corpus", "--out", t.TempDir(), "--text", "x"},
		"must be at least 1":    {"corpus", "--n", "0"},
		"the command corpus":    {"search", "--dir", t.TempDir()},
		"has no folder with a ": {"corpus", "--out", t.TempDir(), "--data_dir", t.TempDir()},
	} {
		assert.ErrorContains(t, run(t.Context(), args, &bytes.Buffer{}), want)
	}
}
