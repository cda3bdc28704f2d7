package weights

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testCommit = "0123456789abcdef0123456789abcdef01234567"

// fakeHub serves one repository, org/toy, as the hub does.
type fakeHub struct {
	*httptest.Server
	files map[string][]byte

	mu       sync.Mutex
	requests []string          // "GET file", "HEAD file", "info"
	cut      map[string]int    // how many more times a file ends before its last byte
	headers  map[string]string // of the last request
	status   int               // of everything, if not 0
	hang     chan struct{}     // files wait for it, if not nil
}

func newFakeHub(t *testing.T, files map[string][]byte) *fakeHub {
	t.Helper()
	h := &fakeHub{files: files, cut: map[string]int{}, headers: map[string]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	for _, name := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "HF_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_ENDPOINT", h.URL)
	return h
}

func (h *fakeHub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.headers["Authorization"] = r.Header.Get("Authorization")
	status, hang := h.status, h.hang
	h.mu.Unlock()
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	if r.URL.Path == "/api/models/org/toy/revision/main" || r.URL.Path == "/api/models/org/toy/revision/refs/pr/1" {
		h.note("info")
		var siblings []map[string]string
		for name := range h.files {
			siblings = append(siblings, map[string]string{"rfilename": name})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "org/toy", "sha": testCommit, "siblings": siblings})
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/toy/resolve/"+testCommit+"/")
	data, found := h.files[name]
	if !ok || !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h.note(r.Method + " " + name)
	if hang != nil && r.Method == http.MethodGet {
		<-hang
	}
	w.Header().Set("ETag", fmt.Sprintf("%q", strconv.Itoa(int(crc32.ChecksumIEEE(data)))))
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method == http.MethodGet {
		h.mu.Lock()
		if h.cut[name] > 0 {
			h.cut[name]--
			data = data[:len(data)-1]
		}
		h.mu.Unlock()
		_, _ = w.Write(data)
	}
}

func (h *fakeHub) note(request string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, request)
}

// count returns the number of requests since the last call that begin with a prefix, and forgets all.
func (h *fakeHub) count(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	h.requests = nil
	return n
}

// toyRepo returns the files of a model as a repository has them, with some that are not needed.
func toyRepo(t *testing.T, shard int64) map[string][]byte {
	t.Helper()
	cfg := toyConfig("llama")
	dir := t.TempDir()
	require.NoError(t, SaveFolder(dir, cfg, fromMap(toyWeights(cfg)), SaveOptions{MaxShardBytes: shard}))
	files := map[string][]byte{
		"tokenizer.json": []byte("{}"), "README.md": []byte("# toy"), "pytorch_model.bin": []byte("pickle"),
		"1_Pooling/config.json":  []byte(`{"pooling_mode_mean_tokens": true}`),
		"onnx/model.safetensors": []byte("x"), "gguf/toy-q8.gguf": ggufToy(cfg, toyWeights(cfg)).build(),
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
	}
	return files
}

func TestResolveFetchesOnlyWhatIsNeededAndOnce(t *testing.T) {
	for _, shard := range []int64{0, 1000} {
		h := newFakeHub(t, toyRepo(t, shard))
		opts := HubOptions{CacheDir: t.TempDir(), Token: "secret"}
		var complete []string
		opts.Progress = func(file string, done, total int64) {
			if done == total {
				complete = append(complete, file)
			}
		}
		path, err := Resolve(t.Context(), "org/toy", opts)
		require.NoError(t, err)
		assert.Equal(t, "Bearer secret", h.headers["Authorization"])
		src, err := Open(path)
		require.NoError(t, err)
		requireWeights(t, src, toyWeights(toyConfig("llama")))
		require.NoError(t, src.Close())
		assert.FileExists(t, filepath.Join(path, "tokenizer.json"))
		assert.FileExists(t, filepath.Join(path, "1_Pooling", "config.json"))
		// Python finds the snapshot by this file.
		ref, err := os.ReadFile(filepath.Join(opts.CacheDir, "models--org--toy", "refs", "main"))
		require.NoError(t, err)
		assert.Equal(t, testCommit, string(ref))
		for _, unwanted := range []string{"README.md", "pytorch_model.bin", "onnx", "gguf"} {
			_, err := os.Stat(filepath.Join(path, unwanted))
			assert.ErrorIs(t, err, os.ErrNotExist, unwanted)
		}
		assert.Equal(t, len(complete), h.count("GET "))
		assert.Contains(t, complete, "tokenizer.json")

		again, err := Resolve(t.Context(), "org/toy", opts)
		require.NoError(t, err)
		assert.Equal(t, path, again)
		assert.Zero(t, h.count("GET "))

		// By its commit, the model needs no network at all; nor does it offline.
		h.Close()
		again, err = Resolve(t.Context(), "org/toy@"+testCommit, opts)
		require.NoError(t, err)
		assert.Equal(t, path, again)
		t.Setenv("HF_HUB_OFFLINE", "1")
		again, err = Resolve(t.Context(), "org/toy", opts)
		require.NoError(t, err)
		assert.Equal(t, path, again)
	}
}

func TestResolveFetchesOneGGUFFileAndRevisions(t *testing.T) {
	h := newFakeHub(t, toyRepo(t, 0))
	t.Setenv("HF_HOME", t.TempDir())
	path, err := Resolve(t.Context(), "org/toy/gguf/toy-q8.gguf@refs/pr/1", HubOptions{})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(path, filepath.Join(os.Getenv("HF_HOME"), "hub", "models--org--toy")), path)
	assert.Equal(t, 1, h.count("GET "))
	src, err := Open(path)
	require.NoError(t, err)
	requireWeights(t, src, toyWeights(toyConfig("llama")))
	require.NoError(t, src.Close())
	again, err := Resolve(t.Context(), "org/toy/gguf/toy-q8.gguf@refs/pr/1", HubOptions{Offline: true})
	require.NoError(t, err)
	assert.Equal(t, path, again)
	// The folder is in the cache, but no model of another kind.
	_, err = Resolve(t.Context(), "org/toy@refs/pr/1", HubOptions{Offline: true})
	require.ErrorContains(t, err, "config.json is missing")

	path, err = Resolve(t.Context(), "org/toy/model.safetensors", HubOptions{})
	require.NoError(t, err)
	src, err = Open(path)
	require.NoError(t, err)
	require.NoError(t, Check(src))
	require.NoError(t, src.Close())
}

func TestTransferThatBreaksOffIsRepeatedAndNeverTakenForComplete(t *testing.T) {
	h := newFakeHub(t, toyRepo(t, 0))
	opts := HubOptions{CacheDir: t.TempDir()}
	h.cut["model.safetensors"] = fetchAttempts
	_, err := Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, "fetch model.safetensors: got ")
	require.ErrorContains(t, err, "3 times in a row")
	opts.Offline = true
	_, err = Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, "not complete in the cache")
	h.cut["model.safetensors"] = fetchAttempts - 1
	opts.Offline = false
	path, err := Resolve(t.Context(), "org/toy", opts)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(path, "model.safetensors"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(h.files["model.safetensors"], data))
}

func TestOfflineAndNotInTheCacheSaysHowToGetIt(t *testing.T) {
	h := newFakeHub(t, nil)
	for _, variable := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", ""} {
		opts := HubOptions{CacheDir: t.TempDir(), Offline: variable == ""}
		if variable != "" {
			t.Setenv(variable, "1")
		}
		_, err := Resolve(t.Context(), "org/toy", opts)
		for _, want := range []string{
			`model "org/toy"`, "no such file or folder", "offline mode is on", "run once with network", opts.CacheDir,
		} {
			require.ErrorContains(t, err, want)
		}
		if variable != "" {
			t.Setenv(variable, "0")
		}
	}
	assert.Zero(t, h.count(""))
}

func TestUnreachableHubFallsBackToACompleteCopy(t *testing.T) {
	h := newFakeHub(t, toyRepo(t, 0))
	opts := HubOptions{CacheDir: t.TempDir()}
	path, err := Resolve(t.Context(), "org/toy", opts)
	require.NoError(t, err)
	var warnings []string
	opts.Warn = func(message string) { warnings = append(warnings, message) }
	h.status = http.StatusBadGateway
	for range 2 { // the library forgets the commit when it fails; the second time shows that we do not
		again, err := Resolve(t.Context(), "org/toy", opts)
		require.NoError(t, err)
		assert.Equal(t, path, again)
	}
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0], "using the copy of org/toy in the cache")
	h.status = http.StatusUnauthorized // an answer, not an outage
	_, err = Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, "HF_TOKEN")

	require.NoError(t, os.Remove(filepath.Join(path, "model.safetensors")))
	h.Close()
	_, err = Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, "check the network connection")
	require.Len(t, warnings, 2)
}

func TestResolveErrorsOfTheHub(t *testing.T) {
	h := newFakeHub(t, toyRepo(t, 0))
	opts := HubOptions{CacheDir: t.TempDir()}
	for ref, want := range map[string]string{
		"org/absent": "check the name and the revision",
		"org/toy@v2": "check the name and the revision",
		"org/toy/none.gguf": "holds no file none.gguf; it has GGUF files, each of which can be named: " +
			"org/toy/gguf/toy-q8.gguf",
	} {
		_, err := Resolve(t.Context(), ref, opts)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "there is no such file or folder, and it could not be fetched from the hub")
	}
	delete(h.files, "model.safetensors")
	_, err := Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, "neither model.safetensors nor model.safetensors.index.json; it has GGUF files")
	delete(h.files, "config.json")
	_, err = Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, "holds no config.json")
	h.files = map[string][]byte{}
	_, err = Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, "holds no config.json")
}

func TestResolveEndsWithItsContext(t *testing.T) {
	h := newFakeHub(t, toyRepo(t, 0))
	hang := make(chan struct{})
	h.hang = hang
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	cache := t.TempDir()
	_, err := Resolve(ctx, "org/toy", HubOptions{CacheDir: cache})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(start), 3*time.Second)
	close(hang)
	// The transfer in the background must end before its folder goes.
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(cache, "*", "blobs", "*.lock"))
		return err == nil && len(left) == 0
	}, 5*time.Second, 10*time.Millisecond)
}

func TestResolveLocalPathsAndNamesThatAreNeither(t *testing.T) {
	h := newFakeHub(t, nil)
	home := t.TempDir()
	t.Setenv("HOME", home)
	file := writeTestFile(t, home, "models/x.gguf", "")
	for ref, want := range map[string]string{
		file: file, home: home, "~/models/x.gguf": file, "~/models": filepath.Dir(file),
	} {
		got, err := Resolve(t.Context(), ref, HubOptions{})
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, ref := range []string{
		"./models/x", "/no/such/folder", "~/nothing", "one", "models/y.gguf", "model.safetensors", "a/b/c", "../org/name",
		"org/../name", "org/name/../x.gguf", "org/na me", "org/name@", "org/name@../x", "a/b/c.txt",
	} {
		_, err := Resolve(t.Context(), ref, HubOptions{})
		require.ErrorContains(t, err, "there is no such file or folder, and it is not a hub name either", ref)
		require.ErrorContains(t, err, strconv.Quote(ref))
	}
	_, err := Resolve(t.Context(), "", HubOptions{})
	require.ErrorContains(t, err, "no model is named")
	assert.Zero(t, h.count(""))
}

func TestHubNames(t *testing.T) {
	for ref, want := range map[string]hubRef{
		"Qwen/Qwen2.5-0.5B-Instruct":           {"Qwen/Qwen2.5-0.5B-Instruct", "", "main"},
		"org/name@v1.0":                        {"org/name", "", "v1.0"},
		"org/name/m.Q4_K_M.gguf":               {"org/name", "m.Q4_K_M.gguf", "main"},
		"org/name/sub/m.gguf@refs/pr/2":        {"org/name", "sub/m.gguf", "refs/pr/2"},
		"org/name/model.safetensors@" + "main": {"org/name", "model.safetensors", "main"},
	} {
		got, ok := parseHubRef(ref)
		require.True(t, ok, ref)
		assert.Equal(t, want, got)
		assert.Equal(t, strings.TrimSuffix(ref, "@main"), got.String())
	}
}

func TestPythonsCacheIsUsed(t *testing.T) {
	newFakeHub(t, nil)
	cache := t.TempDir()
	snapshot := filepath.Join(cache, "models--org--toy", "snapshots", testCommit)
	for name, data := range toyRepo(t, 1000) {
		writeTestFile(t, snapshot, name, string(data))
	}
	writeTestFile(t, filepath.Join(cache, "models--org--toy"), "refs/main", testCommit)
	opts := HubOptions{CacheDir: cache, Offline: true}
	path, err := Resolve(t.Context(), "org/toy", opts)
	require.NoError(t, err)
	assert.Equal(t, snapshot, path)
	// A shard that the index names and that is not there makes the copy incomplete.
	shards, err := filepath.Glob(filepath.Join(snapshot, "model-00002-*"))
	require.NoError(t, err)
	require.Len(t, shards, 1)
	require.NoError(t, os.Remove(shards[0]))
	_, err = Resolve(t.Context(), "org/toy", opts)
	require.ErrorContains(t, err, shards[0]+" is missing")
}

func TestProgressWithoutATerminalIsOneLinePerFile(t *testing.T) {
	var out bytes.Buffer
	show := TerminalProgress(&out)
	show("a.safetensors", 1_000_000, 2_000_000)
	show("a.safetensors", 2_000_000, 2_000_000)
	show("b.json", 5, 0)
	show("b.json", 10, 10)
	assert.Equal(t, "fetched a.safetensors (2.0 MB)\nfetched b.json (0.0 MB)\n", out.String())
}
