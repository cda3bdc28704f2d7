package anserini_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
)

// hub serves two data sets as the hub does: a listing with sizes and digests, and files that can be fetched from the
// middle.
type hub struct {
	folder string
	// cut breaks the first transfer of each file after half of it; wrong lists another digest; huge another size.
	cut, wrong, huge bool

	mu      sync.Mutex
	fetched map[string]int
	ranges  int
}

const indexRepo, corpusRepo = "PeterJinGo/wiki-18-bm25-index", "PeterJinGo/wiki-18-corpus"

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, repo := range []string{indexRepo, corpusRepo} {
		if r.URL.Path == "/api/datasets/"+repo+"/tree/main" {
			h.list(w, filepath.Join(h.folder, filepath.FromSlash(repo)))
			return
		}
		if name, found := strings.CutPrefix(r.URL.Path, "/datasets/"+repo+"/resolve/main/"); found {
			h.send(w, r, filepath.Join(h.folder, filepath.FromSlash(repo), filepath.FromSlash(name)))
			return
		}
	}
	http.NotFound(w, r)
}

func (h *hub) list(w http.ResponseWriter, folder string) {
	files := []any{map[string]any{"type": "directory", "path": "bm25"}}
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(folder, path)
		entry := map[string]any{"type": "file", "path": filepath.ToSlash(name), "size": len(text)}
		if h.huge {
			entry["size"] = 1 << 60
		}
		if len(text) > 1000 { // small files carry no digest
			sum := sha256.Sum256(text)
			if h.wrong {
				sum[0]++
			}
			entry["lfs"] = map[string]any{"oid": hex.EncodeToString(sum[:])}
		}
		files = append(files, entry)
		return nil
	})
	_ = json.NewEncoder(w).Encode(files)
}

func (h *hub) send(w http.ResponseWriter, r *http.Request, path string) {
	h.mu.Lock()
	h.fetched[path]++
	first := h.fetched[path] == 1
	if r.Header.Get("Range") != "" {
		h.ranges++
	}
	h.mu.Unlock()
	text, err := os.ReadFile(path)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if h.cut && first && len(text) > 1000 {
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, path, time.Time{}, bytes.NewReader(text))
}

// publish puts a corpus and its Anserini index where the hub serves them from.
func publish(t *testing.T, corpus string) *hub {
	t.Helper()
	h := &hub{folder: t.TempDir(), fetched: map[string]int{}}
	require.NoError(t, os.MkdirAll(filepath.Join(h.folder, indexRepo), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(h.folder, corpusRepo), 0o755))
	require.NoError(t, engine(t).Index(t.Context(), corpus, filepath.Join(h.folder, indexRepo, "bm25")))
	text, err := os.ReadFile(corpus)
	require.NoError(t, err)
	h.pack(t, text)
	return h
}

func (h *hub) pack(t *testing.T, text []byte) {
	t.Helper()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err := zip.Write(text)
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	require.NoError(t, os.WriteFile(filepath.Join(h.folder, corpusRepo, "wiki-18.jsonl.gz"), packed.Bytes(), 0o644))
}

// script runs one of the scripts and returns its output and exit status.
func script(t *testing.T, env []string, name string, args ...string) (string, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Root(), "scripts", "kaggle", name), args...)
	command.Env = append(os.Environ(), env...)
	// A file and no pipe, which the server in the background would keep open.
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	command.Stdout, command.Stderr = out, out
	_ = command.Run() // a status is looked at by the caller
	require.NoError(t, out.Close())
	text, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	t.Logf("%s %v\n%s", name, args, text)
	return string(text), command.ProcessState.ExitCode()
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// From the hub to passages: set up over a line that breaks, start, search all questions through our client, stop.
func TestScriptsFetchServeAndStop(t *testing.T) {
	e := engine(t)
	corpus := filepath.Join(testenv.Shared(t, "data", "wiki18_pool"), "corpus.jsonl")
	h := publish(t, corpus)
	h.cut = true
	server := httptest.NewServer(h)
	defer server.Close()
	folder := t.TempDir()
	env := []string{"DATA=" + folder, "HUB=" + server.URL, "JAR=" + e.Jar, "PORT=" + freePort(t), "JAVA_OPTS=-Xmx512m -XX:TieredStopAtLevel=1"}
	out, code := script(t, env, "start_retriever.sh")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "run setup_retriever.sh first")

	out, code = script(t, env, "setup_retriever.sh")
	require.Equal(t, 0, code, out)
	assert.Contains(t, out, "index and corpus belong together")
	assert.Positive(t, h.ranges, "what was cut off went on in the middle")
	before := total(h.fetched)
	out, code = script(t, env, "setup_retriever.sh")
	require.Equal(t, 0, code, out)
	assert.Equal(t, before, total(h.fetched), "nothing is fetched again")

	out, code = script(t, env, "start_retriever.sh")
	require.Equal(t, 0, code, out)
	defer script(t, env, "start_retriever.sh", "stop")
	out, code = script(t, env, "start_retriever.sh")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "it runs already")
	url := "http://127.0.0.1:" + strings.TrimPrefix(env[3], "PORT=")
	sameThroughTheClient(t, url, corpus)
	oddRequests(t, url)

	out, code = script(t, env, "start_retriever.sh", "stop")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "stopped")
	_, code = script(t, env, "start_retriever.sh", "status")
	assert.Equal(t, 1, code)
	assert.NoFileExists(t, filepath.Join(folder, "retriever.pid"))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "retriever.pid"), []byte("1\n"), 0o644))
	out, code = script(t, env, "start_retriever.sh", "stop")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "it does not run", "another process has the number now")
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// sameThroughTheClient compares what our client gets from the server with the search in process.
func sameThroughTheClient(t *testing.T, url, corpus string) {
	t.Helper()
	client, err := retrieve.NewClient(url, retrieve.DefaultClient())
	require.NoError(t, err)
	require.NoError(t, client.Ping(t.Context()))
	passages, err := data.ReadCorpus(corpus)
	require.NoError(t, err)
	ours, err := retrieve.NewBM25(passages, retrieve.DefaultBM25())
	require.NoError(t, err)
	queries := texts(t, filepath.Dir(corpus))
	got, want := client.Search(t.Context(), queries, 3), ours.Search(t.Context(), queries, 3)
	same := 0
	for i := range queries {
		require.NoError(t, got[i].Err)
		require.Len(t, got[i].Passages, len(want[i].Passages))
		if slices.EqualFunc(got[i].Passages, want[i].Passages, func(a, b episode.Passage) bool {
			return a.ID == b.ID && a.Contents == b.Contents
		}) {
			same++
		}
		for rank, p := range got[i].Passages {
			assert.InDelta(t, want[i].Passages[rank].Score, p.Score, 1e-4)
		}
	}
	t.Logf("through server and client: the same 3 passages as in process for %d of %d questions, the others differ by ties", same, len(queries))
	assert.GreaterOrEqual(t, float64(same), 0.99*float64(len(queries)))
}

// oddRequests: bad ones are told so with status 400, odd ones are answered, and neither disturbs the next.
func oddRequests(t *testing.T, url string) {
	t.Helper()
	post := func(body string) (int, string) {
		response, err := http.Post(url+"/retrieve", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer response.Body.Close()
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		require.NoError(t, err)
		return response.StatusCode, text.String()
	}
	for body, want := range map[string]string{
		`{"queries": ["a"], "topk": 0}`:          "topk is 0",
		`{"queries": ["a"], "topk": -1}`:         "topk is -1",
		`{"queries": ["a"], "topk": 1000000000}`: "topk is 1000000000",
		`{"queries": ["a"], "topk": "3"}`:        "topk is",
		`{"queries": []}`:                        "must be a list",
		`{"queries": "a"}`:                       "must be a list",
		`{"queries": [1]}`:                       "query 0 is not a text",
		`{}`:                                     "must be a list",
		`[`:                                      "not JSON",
		``:                                       "must be a list",
	} {
		status, text := post(body)
		assert.Equal(t, 400, status, body)
		assert.Contains(t, text, want, body)
	}
	queries := []string{"", "zzzzqqq", "!!!", "órgãos", "Beyoncé", "Beyonce\u0301", `C++ "x" (y) AND NOT`, strings.Repeat("word ", 2000), "prodigal son"}
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, "w%d ", i)
	}
	queries = append(queries, many.String())
	body, err := json.Marshal(map[string]any{"queries": queries, "topk": 2})
	require.NoError(t, err)
	status, text := post(string(body))
	require.Equal(t, 200, status, text)
	var answer struct {
		Result [][]struct{ ID, Contents string }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	require.Len(t, answer.Result, len(queries))
	for i := range 3 {
		assert.Empty(t, answer.Result[i], queries[i])
	}
	assert.Len(t, answer.Result[8], 2)
	assert.Contains(t, answer.Result[8][0].Contents, "Prodigal", "documents without scores")
	status, text = post(`{"query": "prodigal son", "topk": 1, "return_scores": true}`)
	assert.Equal(t, 200, status)
	assert.Contains(t, text, `"score":`)
}

// What must not be used is refused: another corpus, contents shifted by a line, damaged files, a disk without room.
func TestSetupTakesWhatIsWholeAndRefusesTheRest(t *testing.T) {
	e := engine(t)
	passages, err := data.ReadCorpus(testenv.Shared(t, "data", "xquad_en"))
	require.NoError(t, err)
	var whole, shifted, short []byte
	for i, p := range passages {
		line := func(contents string) []byte {
			text, err := json.Marshal(data.Passage{ID: p.ID, Contents: contents})
			require.NoError(t, err)
			return append(text, '\n')
		}
		whole = append(whole, line(p.Contents)...)
		shifted = append(shifted, line(passages[(i+1)%len(passages)].Contents)...)
		if i > 0 {
			short = append(short, line(p.Contents)...)
		}
	}
	corpus := filepath.Join(t.TempDir(), "corpus.jsonl")
	require.NoError(t, os.WriteFile(corpus, whole, 0o644))
	h := publish(t, corpus)
	server := httptest.NewServer(h)
	defer server.Close()
	setup := func(more ...string) (string, int) {
		return script(t, append([]string{"DATA=" + t.TempDir(), "HUB=" + server.URL, "JAR=" + e.Jar, "PAUSE=0", "JAVA_OPTS=-XX:TieredStopAtLevel=1"}, more...), "setup_retriever.sh")
	}
	out, code := setup()
	require.Equal(t, 0, code, out)

	// The hub's own file is an archive, though its name does not say so.
	var archive bytes.Buffer
	bundle := tar.NewWriter(&archive)
	require.NoError(t, bundle.WriteHeader(&tar.Header{Name: "retrieval-corpus/wiki-18.jsonl", Mode: 0o644, Size: int64(len(whole))}))
	_, err = bundle.Write(whole)
	require.NoError(t, errors.Join(err, bundle.Close()))
	h.pack(t, archive.Bytes())
	out, code = setup()
	require.Equal(t, 0, code, out)

	h.pack(t, shifted)
	out, code = setup()
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "were found by their own words under their own id")
	h.pack(t, short)
	out, code = setup()
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "the index holds 240 passages, the corpus 239")
	h.huge = true
	out, code = setup()
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "there is not enough room")
	h.huge, h.wrong = false, true
	before := total(h.fetched)
	out, code = setup()
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "has another SHA-256")
	assert.GreaterOrEqual(t, total(h.fetched), before+6, "it was tried anew")
	out, code = setup("HUB=http://127.0.0.1:1")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "no answer from http://127.0.0.1:1")
	out, code = setup("DATA=")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, "set DATA to a folder")
}

// Help, bad arguments and a missing DATA; none of it needs Java.
func TestScriptsSayWhatIsMissing(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("skipped: the scripts need bash")
	}
	for _, name := range []string{"setup_retriever.sh", "start_retriever.sh"} {
		out, code := script(t, nil, name, "--help")
		assert.Equal(t, 0, code)
		assert.Contains(t, out, "Examples:")
		out, code = script(t, []string{"DATA="}, name)
		assert.Equal(t, 2, code)
		assert.Contains(t, out, "see --help")
		_, code = script(t, []string{"DATA=" + t.TempDir()}, name, "--bad")
		assert.Equal(t, 2, code)
	}
	out, code := script(t, []string{"DATA=" + t.TempDir(), "PORT=1"}, "start_retriever.sh", "stop")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "it does not run")
}
