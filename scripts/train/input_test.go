package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

func TestUnreachableRetrieverIsNamedQuickly(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + listener.Addr().String() + "/retrieve"
	require.NoError(t, listener.Close())
	start := time.Now()
	newWorld(t).refused([]string{"--set", "retriever_url=" + url}, "no retrieval server answers at "+url)
	require.Less(t, time.Since(start), 5*time.Second)
}

func TestRetrieverThatHangsOrAnswersNonsenseIsNamed(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Content-Type") {
		default:
			<-release
		}
	}))
	defer server.Close()
	defer close(release)
	newWorld(t, "retriever_timeout_sec: 0.1").refused([]string{"--set", "retriever_url=" + server.URL},
		"no retrieval server answers at "+server.URL, "no answer within 100ms")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>welcome</html>"))
	}))
	defer page.Close()
	newWorld(t).refused([]string{"--set", "retriever_url=" + page.URL}, page.URL,
		"does not answer POST /retrieve in the Search-R1 form")
}

func TestBrokenLinesOfDataAreNamedByFileAndLine(t *testing.T) {
	w := newWorld(t)
	corpus := w.write("corpus.jsonl", `{"id": "1", "contents": "\"T\"\nx"}`+"\n"+`{"id": "2", "contents": `+"\n")
	good := w.write("qa.jsonl", `{"question": "q", "golden_answers": ["a"]}`+"\n")
	bad := w.write("bad.jsonl", `{"question": "q", "golden_answers": ["a"]}`+"\n\n"+`{"question": "q"}`+"\n")
	set := func(train, eval, corpus string) []string {
		return []string{"--set", "train_data=" + train, "--set", "eval_data=[" + eval + "]", "--set", "corpus=" + corpus}
	}
	w.refused(set(good, good, corpus), corpus+":2: ")
	w.refused(set(bad, good, corpus), bad+":3: ")
	w.refused(set(good, good, w.write("empty.jsonl", `{"id": "1", "contents": ""}`+"\n")), "corpus: ", "no passage has a word")
	w.refused(set(good, bad, corpus), bad+":3: ")
	w.refused(set(filepath.Join(w.dir, "none.jsonl"), good, corpus), "train_data: ", "none.jsonl: no such file")
	w.refused(set(good, filepath.Join(w.dir, "none.jsonl"), corpus), "eval_data: ", "none.jsonl: no such file")
	w.refused(set(good, good, filepath.Join(w.dir, "none.jsonl")), "corpus: ", "none.jsonl: no such file")
}

func TestPromptLongerThanTheContextIsRefused(t *testing.T) {
	newWorld(t).refused([]string{"--set", "user_prompt=" + strings.Repeat("word ", 200) + "{question}"},
		"96 of 96 prompts are too long", "do not fit into max_context (128)", "long_prompt: skip")
}

// savedModel trains a step and returns the folder of a model that fits the world.
func (w *world) savedModel() string {
	w.t.Helper()
	code, _, errOut := w.train("--set", "steps=1")
	require.Zero(w.t, code, errOut)
	model := filepath.Join(w.dir, "model")
	require.NoError(w.t, os.Rename(filepath.Join(w.run, "checkpoints", "step-000001"), model))
	require.NoError(w.t, os.RemoveAll(w.run))
	return model
}

func TestModelThatIsMissingCutOrOfAnotherShapeIsRefused(t *testing.T) {
	w := newWorld(t, "offline: true")
	model := w.savedModel()
	use := []string{"--set", "model=" + model}
	code, _, errOut := w.train(use...)
	require.Zero(t, code, errOut)
	require.NoError(t, os.RemoveAll(w.run))

	w.refused([]string{"--set", "model=" + model + "-not"}, model+"-not", "no such file or folder")
	w.refused([]string{"--set", "model=owner/not-in-the-cache"}, "owner/not-in-the-cache", "offline")

	weights := filepath.Join(model, "model.safetensors")
	whole, err := os.ReadFile(weights)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(weights, int64(len(whole)-100)))
	w.refused(use, weights)
	require.NoError(t, os.Truncate(weights, 5))
	w.refused(use, weights)
	require.NoError(t, os.Remove(weights))
	w.refused(use, model)
	require.NoError(t, os.WriteFile(weights, whole, 0o644))

	path := filepath.Join(model, "config.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(text, &object))
	object["intermediate_size"] = 20
	changed, err := json.Marshal(object)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, changed, 0o644))
	w.refused(use, weights, "gate_proj.weight has shape [16 16]", "asks for [20 16]")
	require.NoError(t, os.WriteFile(path, text[:len(text)/2], 0o644))
	w.refused(use, path)
}

func TestCorruptGGUFIsRefused(t *testing.T) {
	w := newWorld(t)
	for name, text := range map[string]string{
		"empty.gguf":    "",
		"text.gguf":     "this is no model, but long enough to be read as the head of one",
		"head.gguf":     "GGUF\x03\x00\x00\x00",
		"huge.gguf":     "GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f",
		"version.gguf":  "GGUF\x63\x00\x00\x00" + strings.Repeat("\x00", 16),
		"nothing.gguf":  "GGUF\x03\x00\x00\x00" + strings.Repeat("\x00", 16),
		"download.gguf": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
	} {
		path := w.write(name, text)
		w.refused([]string{"--set", "model=" + path}, path)
	}
}

func TestRunFolderThatCannotBeWrittenIsNamed(t *testing.T) {
	w := newWorld(t)
	w.run = filepath.Join(w.write("file", ""), "run")
	w.refused([]string{"--run_dir", w.run}, w.run, "not a directory")
}

func TestResumeWithOtherSettingsIsRefusedWithTheListOfThem(t *testing.T) {
	w := newWorld(t)
	code, _, errOut := w.train()
	require.Zero(t, code, errOut)
	before := w.files()
	code, _, errOut = w.train("--set", "lr=0.5", "--set", "group_size=4")
	require.Equal(t, cli.Fault, code)
	requireClear(t, errOut, "step 2 was made with other settings", "group_size: 2 -> 4\n", "lr: 0.25 -> 0.5\n",
		"another run_dir")
	require.Equal(t, before, w.files())
}
