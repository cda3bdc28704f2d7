package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/dense"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed/embedtest"
)

func perform(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs lockedBuffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// lockedBuffer may be read while a server writes to it.
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

// writeCorpus writes the passages of the tiny world.
func writeCorpus(t *testing.T, people int) (path string) {
	t.Helper()
	passages, _ := data.TinyWorld(1, people)
	var out bytes.Buffer
	for _, p := range passages {
		require.NoError(t, json.NewEncoder(&out).Encode(p))
	}
	path = filepath.Join(t.TempDir(), "corpus.jsonl")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
	return path
}

func TestIndexThenSearchThenVerify(t *testing.T) {
	corpus, dir := writeCorpus(t, 20), filepath.Join(t.TempDir(), "index")
	code, stdout, stderr := perform(t.Context(), "index", "--corpus", corpus, "--out", dir)
	require.Equal(t, 0, code, stderr)
	assert.Contains(t, stdout, "20 passages, ")
	assert.Contains(t, stderr, "20 passages indexed; merging")

	_, questions := data.TinyWorld(1, 20)
	q := questions[4]
	code, fromIndex, stderr := perform(t.Context(), "search", "--index", dir, "--explain", q.Text)
	require.Equal(t, 0, code, stderr)
	assert.Contains(t, fromIndex, "  1.  ")
	assert.Regexp(t, `(?m)^ +born +1 +1 +20 +`, fromIndex, "what each term adds")
	code, fromMemory, _ := perform(t.Context(), "search", "--corpus", corpus, "--explain", q.Text)
	require.Equal(t, 0, code)
	assert.Equal(t, fromMemory, fromIndex)

	code, stdout, _ = perform(t.Context(), "search", "--index", dir, "--json", "--topk", "1", q.Text, "zzzz")
	require.Equal(t, 0, code)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, 2)
	assert.Contains(t, lines[0], `"id":"`+q.GoldPassages[0]+`"`)
	assert.JSONEq(t, `{"query": "zzzz", "passages": []}`, lines[1])

	code, stdout, _ = perform(t.Context(), "verify", "--index", dir, "--corpus", corpus)
	assert.Equal(t, 0, code)
	assert.Contains(t, stdout, "it belongs to "+corpus)
	code, _, stderr = perform(t.Context(), "verify", "--index", dir, "--corpus", writeCorpus(t, 19))
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "does not belong to this corpus")
}

func TestInterruptedIndexGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	corpus, dir := writeCorpus(t, 20), filepath.Join(t.TempDir(), "index")
	code, _, stderr := perform(ctx, "index", "--corpus", corpus, "--out", dir)
	assert.Equal(t, 130, code)
	assert.Contains(t, stderr, "the same command goes on")
	code, _, stderr = perform(t.Context(), "index", "--corpus", corpus, "--out", dir)
	assert.Equal(t, 0, code, stderr)
}

// serving starts the server on a free port and returns its address; stop ends it and returns its exit code and log.
func serving(t *testing.T, args ...string) (address string, stop func() (int, string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out, log lockedBuffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"serve", "--port", "0"}, args...), &out, &log) }()
	found := regexp.MustCompile(`address=(http://\S+)/retrieve`)
	deadline := time.Now().Add(20 * time.Second)
	for address == "" {
		if m := found.FindStringSubmatch(log.String()); m != nil {
			address = m[1]
		}
		require.True(t, time.Now().Before(deadline) && len(code) == 0, log.String())
		time.Sleep(2 * time.Millisecond)
	}
	return address, func() (int, string) {
		cancel()
		return <-code, log.String()
	}
}

func TestServerAndProcessFindTheSameFromCorpusAndIndex(t *testing.T) {
	corpus := writeCorpus(t, 60)
	passages, questions := data.TinyWorld(1, 60)
	inProcess, err := retrieve.NewBM25(passages, retrieve.DefaultBM25())
	require.NoError(t, err)
	var queries []string
	for _, q := range questions {
		queries = append(queries, q.Text)
	}
	want := inProcess.Search(t.Context(), queries, 5)
	index := filepath.Join(t.TempDir(), "index")
	for _, args := range [][]string{{"--corpus", corpus}, {"--corpus", corpus, "--index", index}, {"--index", index}} {
		address, stop := serving(t, args...)
		client, err := retrieve.NewClient(address, retrieve.DefaultClient())
		require.NoError(t, err)
		assert.Equal(t, want, client.Search(t.Context(), queries, 5), args)
		response, err := http.Get(address + "/healthz")
		require.NoError(t, err)
		assert.Equal(t, 200, response.StatusCode)
		require.NoError(t, response.Body.Close())
		code, log := stop()
		assert.Equal(t, 0, code, log)
		assert.Contains(t, log, "level=INFO msg=stopping")
	}
}

func TestDenseAndHybridFindTheSameFromCorpusAndIndex(t *testing.T) {
	corpus, model := writeCorpus(t, 30), embedtest.Write(t, 1, nil)
	for _, kind := range []string{"dense", "hybrid"} {
		dir := filepath.Join(t.TempDir(), kind)
		encoder := []string{"--kind", kind, "--model", model, "--backend", "go"}
		code, stdout, stderr := perform(t.Context(), append([]string{"index", "--corpus", corpus, "--out", dir}, encoder...)...)
		require.Equal(t, 0, code, stderr)
		assert.Contains(t, stdout, "30 passages, vectors of 16 values by tiny in 960 B;")
		question := []string{"--json", "where was somebody born?"}
		args := append(append([]string{"search", "--index", dir}, encoder...), question...)
		code, fromIndex, stderr := perform(t.Context(), args...)
		require.Equal(t, 0, code, stderr)
		assert.Equal(t, 3, strings.Count(fromIndex, `"Contents"`)+strings.Count(fromIndex, `"contents"`), fromIndex)
		search := func(args ...string) (int, string, string) {
			return perform(t.Context(), append(append([]string{"search"}, args...), question...)...)
		}
		code, fromMemory, stderr := search(append(encoder, "--corpus", corpus)...)
		require.Equal(t, 0, code, stderr)
		assert.Equal(t, fromMemory, fromIndex)

		code, stdout, stderr = perform(t.Context(), "verify", "--index", dir, "--corpus", corpus)
		require.Equal(t, 0, code, stderr)
		assert.Equal(t, map[string]int{"dense": 1, "hybrid": 2}[kind], strings.Count(stdout, "is as it was written"), stdout)
		assert.Contains(t, stdout, "it belongs to "+corpus)
		code, _, stderr = perform(t.Context(), "verify", "--index", dir, "--corpus", writeCorpus(t, 31))
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, "does not belong to this corpus")

		code, _, stderr = search("--index", dir, "--kind", kind, "--backend", "go", "--model", embedtest.Write(t, 2, nil))
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, "does not belong to this model")
		code, _, stderr = search(append(encoder, "--index", dir, "--corpus", writeCorpus(t, 31))...)
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, "does not belong to this corpus")
	}
	// Halves of different corpora with as many passages.
	dir, other := filepath.Join(t.TempDir(), "hybrid"), filepath.Join(t.TempDir(), "other.jsonl")
	text, err := os.ReadFile(corpus)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	slices.Reverse(lines)
	require.NoError(t, os.WriteFile(other, []byte(strings.Join(lines, "")), 0o644))
	for kind, from := range map[string]string{"bm25": other, "dense": corpus} {
		args := []string{"index", "--corpus", from, "--out", filepath.Join(dir, kind), "--kind", kind}
		if kind == "dense" {
			args = append(args, "--model", model, "--backend", "go")
		}
		code, _, stderr := perform(t.Context(), args...)
		require.Equal(t, 0, code, stderr)
	}
	code, _, stderr := perform(t.Context(), "search", "--index", dir, "--kind", "hybrid", "--model", model, "--backend", "go", "q")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "of different corpora")
	code, _, stderr = perform(t.Context(), "search", "--index", filepath.Join(dir, "dense"), "q")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "search it with --kind dense")

	code, _, stderr = perform(t.Context(), "search", "--corpus", corpus, "--kind", "dense", "--model", t.TempDir(), "q")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "there is no config.json")
}

func TestDenseServerAnswersAsInProcess(t *testing.T) {
	corpus, model := writeCorpus(t, 30), embedtest.Write(t, 1, nil)
	address, stop := serving(t, "--corpus", corpus, "--kind", "dense", "--model", model, "--backend", "go")
	client, err := retrieve.NewClient(address, retrieve.DefaultClient())
	require.NoError(t, err)
	dev, err := device.Open("go")
	require.NoError(t, err)
	defer dev.Close()
	inProcess, err := dense.Source{Corpus: corpus, Encoder: model}.Open(t.Context(), dev)
	require.NoError(t, err)
	queries := []string{"where was somebody born?", "", "a trade"}
	assert.Equal(t, inProcess.Search(t.Context(), queries, 5), client.Search(t.Context(), queries, 5))
	require.NoError(t, inProcess.Close())
	code, log := stop()
	assert.Equal(t, 0, code, log)
	assert.Contains(t, log, "kind=dense")
}

func TestDamagedIndexIsNotSearched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	code, _, stderr := perform(t.Context(), "index", "--corpus", writeCorpus(t, 60), "--out", dir)
	require.Equal(t, 0, code, stderr)
	path := filepath.Join(dir, "passages.bin")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[len(text)/2] ^= 1
	require.NoError(t, os.WriteFile(path, text, 0o644))
	corpus := writeCorpus(t, 60)
	for _, args := range [][]string{{"serve", "--port", "0", "--index", dir}, {"search", "x", "--index", dir}, {"verify", "--index", dir},
		{"index", "--corpus", corpus, "--out", dir}} {
		code, stdout, stderr := perform(t.Context(), args...)
		assert.Equal(t, 2, code)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "the index is damaged")
		assert.Contains(t, stderr, "--rebuild")
	}
}

func TestServerRefusesAnIndexOfAnotherCorpusUnlessRebuilt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	code, _, stderr := perform(t.Context(), "index", "--corpus", writeCorpus(t, 20), "--out", dir)
	require.Equal(t, 0, code, stderr)
	other := writeCorpus(t, 21)
	code, _, stderr = perform(t.Context(), "serve", "--port", "0", "--index", dir, "--corpus", other)
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "does not belong to this corpus")
	_, stop := serving(t, "--index", dir, "--corpus", other, "--rebuild")
	code, log := stop()
	assert.Equal(t, 0, code)
	assert.Contains(t, log, "21 passages")
}

func TestLogInJSON(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, stderr := perform(ctx, "serve", "--port", "0", "--corpus", writeCorpus(t, 5), "--log_format", "json")
	for _, line := range strings.Split(strings.TrimSpace(stderr), "\n")[1:] {
		assert.True(t, json.Valid([]byte(line)), line)
	}
	assert.Contains(t, stderr, `"msg":"serving"`)
}

func TestCorpusByName(t *testing.T) {
	corpus := writeCorpus(t, 5)
	folder := filepath.Join(t.TempDir(), "sets")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.Rename(filepath.Dir(corpus), filepath.Join(folder, "hotpotqa")))
	code, stdout, stderr := perform(t.Context(), "search", "--data_dir", folder, "--corpus", "hotpotqa", "born")
	require.Equal(t, 0, code, stderr)
	assert.Contains(t, stdout, "  1.  ")
}

// An index that does not fit into memory should not show only when the process is killed.
func TestSizeAndMemoryArePrintedBeforeACorpusIsRead(t *testing.T) {
	corpus := writeCorpus(t, 5)
	_, _, stderr := perform(t.Context(), "search", "--corpus", corpus, "born")
	assert.Regexp(t, "^corpus "+regexp.QuoteMeta(corpus)+` has \d+ B; in memory it takes about [\d.]+ (B|KiB)\n`, stderr)
	dir := filepath.Join(t.TempDir(), "index")
	_, stdout, _ := perform(t.Context(), "index", "--corpus", corpus, "--out", dir)
	assert.Regexp(t, `5 passages, \d+ terms, \d+ postings in [\d.]+ (B|KiB), texts in \d+ B;`, stdout)
}

func TestBadInputIsOneLineAndStatusTwo(t *testing.T) {
	for want, args := range map[string][]string{
		`there is no command "server"; want index`: {"server"},
		"give --corpus FILE or --index DIR":        {"serve"},
		"give --corpus FILE and --out DIR":         {"index", "--corpus", "x"},
		"--rebuild needs the --corpus":             {"serve", "--index", "x", "--rebuild", "--port", "0"},
		"--no_stemming belongs to the index":       {"search", "--index", "x", "--no_stemming", "q"},
		"--kind opensearch needs --url":            {"serve", "--kind", "opensearch", "--name", "x", "--port", "0"},
		"--index does not go with --kind opense":   {"search", "--kind", "opensearch", "--url", "http://h", "--name", "x", "--index", "d", "q"},
		"give --corpus FILE[,FILE ...]":            {"index", "--kind", "opensearch", "--url", "http://h", "--name", "x"},
		"--shards is 0":                            {"index", "--kind", "opensearch", "--url", "http://h", "--name", "x", "--corpus", "c", "--shards", "0"},
		"--b 2; want at least 0, and from 0 to 1":  {"index", "--kind", "opensearch", "--url", "http://h", "--name", "x", "--corpus", "c", "--b", "2"},
		`--kind is "tfidf"; want one of [bm25 d`:   {"serve", "--corpus", "x", "--kind", "tfidf", "--port", "0"},
		"--kind dense needs --model":               {"index", "--corpus", "x", "--out", "y", "--kind", "dense"},
		"--model goes with --kind dense or hybrid": {"search", "--corpus", "x", "--model", "m", "q"},
		"--explain goes with --kind bm25":          {"search", "--corpus", "x", "--explain", "--kind", "hybrid", "q"},
		"--rrf_k is 0, must be at least 1":         {"search", "--corpus", "x", "--kind", "hybrid", "--model", "m", "--rrf_k", "0", "q"},
		"--port is 70000, must be from 0 to 65535": {"serve", "--corpus", "x", "--port", "70000"},
		`--log_format is "xml"`:                    {"serve", "--corpus", "x", "--log_format", "xml"},
		`--log_level is "loud"`:                    {"serve", "--corpus", "x", "--log-level", "loud"},
		"give at least one query":                  {"search", "--corpus", "x"},
		"--topk is 0, must be at least 1":          {"search", "--corpus", "x", "--topk", "0", "q"},
		"--explain and --json exclude each other":  {"search", "--corpus", "x", "--explain", "--json", "q"},
		"unknown flag: --corpse; see --help":       {"serve", "--corpse", "x"},
		`unexpected argument "x"; see --help`:      {"serve", "x"},
		"give --index DIR":                         {"verify"},
		"--topk is -1, must be more than 0":        {"serve", "--corpus", "x", "--topk", "-1"},
		"--timeout is -1s, must be more than 0":    {"serve", "--corpus", "x", "--timeout", "-1s"},
		"--workers is -1, must be at least 0":      {"index", "--corpus", "x", "--out", "y", "--workers", "-1"},
	} {
		code, stdout, stderr := perform(t.Context(), args...)
		assert.Equal(t, 2, code, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
	code, _, stderr := perform(t.Context(), "search", "--corpus", "none.jsonl", "q")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "none.jsonl")
	code, _, stderr = perform(t.Context(), "search", "--index", t.TempDir(), "q")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "build one with retriever index")
}

func TestHelpHasExamples(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"index", "-h"}} {
		code, stdout, _ := perform(t.Context(), args...)
		assert.Equal(t, 0, code)
		assert.Contains(t, stdout, "curl -d")
	}
	_, stdout, _ := perform(t.Context(), "serve", "--help")
	assert.Contains(t, stdout, "--max_concurrent")
	code, _, _ := perform(t.Context())
	assert.Equal(t, 2, code)

}
