package data

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// folderOf makes a folder of data sets with the given files, each holding one question.
func folderOf(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		path := filepath.Join(dir, filepath.FromSlash(file))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(`{"question": "`+file+`?", "golden_answers": ["x"], "id": 1, "contents": ""}`), 0o644))
	}
	return dir
}

func TestSetsAreFoundByName(t *testing.T) {
	dir := folderOf(t, "nq_open/qa.jsonl", "2wikimultihopqa/train.jsonl", "2wikimultihopqa/dev.jsonl", "gsm8k/train.jsonl",
		"gsm8k/test.jsonl", "mine/test.parquet", "mine/qa.jsonl", "mine/extra.jsonl")
	places := Places{Dir: dir, Hub: HubOptions{Offline: true}}
	for _, c := range []struct{ value, split, want, source string }{
		{"nq", "train", "nq_open/qa.jsonl", "nq"},
		{"nq", "test", "nq_open/qa.jsonl", "nq"},
		{"nq:qa", "test", "nq_open/qa.jsonl", "nq"},
		{"nq_open", "train", "nq_open/qa.jsonl", "nq_open"},
		{"2wiki", "train", "2wikimultihopqa/train.jsonl", "2wiki"},
		{"2wiki", "test", "2wikimultihopqa/dev.jsonl", "2wiki"},
		{"gsm8k", "test", "gsm8k/test.jsonl", "gsm8k"},
		{"gsm8k:train", "test", "gsm8k/train.jsonl", "gsm8k"},
		{"mine", "train", "mine/qa.jsonl", "mine"},
		{"mine", "test", "mine/test.parquet", "mine"},
		{"mine:extra", "train", "mine/extra.jsonl", "mine"},
	} {
		path, opts, err := places.Questions(t.Context(), c.value, c.split)
		require.NoError(t, err, c.value)
		assert.Equal(t, filepath.Join(dir, filepath.FromSlash(c.want)), path, c.value)
		assert.Equal(t, QuestionOptions{Source: c.source}, opts)
	}
	for _, path := range []string{"./nq", "data/nq.jsonl", "other.jsonl", "nq.jsonl", "NQ", "/abs/nq", "a b", ""} {
		got, opts, err := places.Questions(t.Context(), path, "test")
		require.NoError(t, err)
		assert.Equal(t, path, got, "a path stays one")
		assert.Equal(t, QuestionOptions{Split: "test"}, opts)
	}
}

func TestWhatANameCannotMean(t *testing.T) {
	dir := folderOf(t, "nq/train.jsonl")
	places := Places{Dir: dir, Hub: HubOptions{Offline: true, CacheDir: t.TempDir()}}
	for value, want := range map[string]string{
		"nq:dev":      "has no dev, as .jsonl or .parquet; it holds: train.jsonl",
		"nq":          "has no test or dev or validation or val or qa or rows",
		"hotpot_qa":   "hotpot_qa is neither a file nor a data set; did you mean hotpotqa? There are 2wiki, bamboogle,",
		"gsmk8:train": "did you mean gsm8k?",
		"popqa:train": "data set popqa has no split train; it has test",
		"popqa":       "data set popqa: popqa/test.jsonl of RUC-NLPIR/FlashRAG_datasets is not in the cache, and offline mode is on",
	} {
		_, _, err := places.Questions(t.Context(), value, "test")
		assert.ErrorContains(t, err, want)
	}
	_, _, err := places.Questions(t.Context(), "popqa", "test")
	assert.ErrorContains(t, err, dir+" has no folder popqa")
	_, err = places.Corpus("n")
	assert.ErrorContains(t, err, "n is neither a file nor a data set; did you mean nq?")
	places.Dir = ""
	_, _, err = places.Questions(t.Context(), "popqa", "test")
	assert.ErrorContains(t, err, "data_dir")
}

func TestCorporaAreFoundByName(t *testing.T) {
	dir := folderOf(t, "hotpotqa/corpus.jsonl", "wiki18_pool/corpus.jsonl", "nq/qa.jsonl")
	places := Places{Dir: dir}
	for _, name := range []string{"hotpotqa", "wiki18_pool"} {
		path, err := places.Corpus(name)
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(dir, name, "corpus.jsonl"), path)
		passages, err := ReadCorpus(path)
		require.NoError(t, err)
		assert.Len(t, passages, 1)
	}
	path, err := places.Corpus(filepath.Join(dir, "hotpotqa"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "hotpotqa", "corpus.jsonl"), path)
	for value, want := range map[string]string{"nq": "has no corpus.jsonl", "hotpotqa:dev": "has no splits",
		"popqa": "not fetched from the hub", "none.jsonl": "none.jsonl"} {
		_, err := places.Corpus(value)
		assert.ErrorContains(t, err, want)
	}
}

// Each name of the field has its questions among the shared data, and a source that scores are reported under.
func TestNamesOfTheSharedData(t *testing.T) {
	places := Places{Dir: testenv.Shared(t, "data"), Hub: HubOptions{Offline: true}}
	for name, want := range map[string]int{"nq": 2888, "triviaqa": 800, "popqa": 802, "hotpotqa": 160, "2wiki": 800,
		"musique": 726, "bamboogle": 100, "squad": 11829, "gsm8k": 1019, "wiki18_pool": 1408, "xquad_en": 953} {
		path, opts, err := places.Questions(t.Context(), name, "test")
		require.NoError(t, err)
		questions, err := ReadQuestions(path, opts)
		require.NoError(t, err)
		assert.Len(t, questions, want, name)
		assert.Equal(t, name, questions[0].Source)
	}
	path, opts, err := places.Questions(t.Context(), "search_r1_example:rows", "train")
	require.NoError(t, err)
	questions, err := ReadQuestions(path, opts)
	require.NoError(t, err)
	assert.Len(t, questions, 50)
	assert.Equal(t, "nq", questions[0].Source, "a row's own source wins")
	assert.NotEmpty(t, questions[0].Prompt)
}

// hubServer serves files of one repository as the hub does; cut shortens that many transfers.
func hubServer(t *testing.T, repo string, files map[string]string) (cut, transfers *atomic.Int64) {
	t.Helper()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	cut, transfers = new(atomic.Int64), new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/datasets/"+repo+"/revision/main" {
			_ = json.NewEncoder(w).Encode(map[string]any{"id": repo, "sha": commit})
			return
		}
		name, ok := strings.CutPrefix(r.URL.Path, "/datasets/"+repo+"/resolve/"+commit+"/")
		text, found := files[name]
		if !ok || !found {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf("%q", strconv.Itoa(int(crc32.ChecksumIEEE([]byte(text))))))
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		if r.Method == http.MethodGet {
			transfers.Add(1)
			if cut.Add(-1) >= 0 {
				text = text[:len(text)-1]
			}
			_, _ = w.Write([]byte(text))
		}
	}))
	t.Cleanup(server.Close)
	for _, name := range []string{"HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "HF_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Cleanup(func() { server.CloseClientConnections() })
	return cut, transfers
}

const popqaRow = `{"id": "test_0", "question": "Who?", "golden_answers": ["Ada"], "metadata": {}}` + "\n"

func TestSetIsFetchedFromTheHubOnce(t *testing.T) {
	cut, transfers := hubServer(t, flashRAG, map[string]string{"popqa/test.jsonl": popqaRow})
	cut.Store(1)
	var notes []string
	places := Places{Hub: HubOptions{CacheDir: t.TempDir(), Note: func(m string) { notes = append(notes, m) }}}
	for range 2 {
		path, opts, err := places.Questions(t.Context(), "popqa", "test")
		require.NoError(t, err)
		questions, err := ReadQuestions(path, opts)
		require.NoError(t, err)
		assert.Equal(t, []Question{{ID: "test_0", Text: "Who?", Answers: []string{"Ada"}, Source: "popqa"}}, questions)
	}
	assert.EqualValues(t, 2, transfers.Load(), "one that broke off and one whole")
	assert.NotEmpty(t, notes)

	places.Hub.Offline = true
	_, _, err := places.Questions(t.Context(), "popqa", "test")
	require.NoError(t, err)
	places.Hub.Offline = false
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	_, _, err = places.Questions(t.Context(), "popqa", "test")
	require.NoError(t, err)
	assert.Contains(t, notes[len(notes)-1], "cannot be reached")
}

func TestTransferThatAlwaysBreaksOffIsAnError(t *testing.T) {
	cut, _ := hubServer(t, flashRAG, map[string]string{"popqa/test.jsonl": popqaRow})
	cut.Store(100)
	places := Places{Hub: HubOptions{CacheDir: t.TempDir()}}
	_, _, err := places.Questions(t.Context(), "popqa", "test")
	require.Error(t, err)
	_, _, err = Places{Hub: HubOptions{CacheDir: places.Hub.CacheDir, Offline: true}}.Questions(t.Context(), "popqa", "test")
	assert.ErrorContains(t, err, "not in the cache")
	_, _, err = places.Questions(t.Context(), "bamboogle", "test")
	assert.ErrorContains(t, err, "status 404")
}
