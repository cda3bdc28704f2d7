//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/server"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

// The environment variables that make this test binary the command itself, with a limit on the size of files.
const (
	childArgs  = "NANOAGENTRL_TEST_TRAIN_ARGS"
	childLimit = "NANOAGENTRL_TEST_TRAIN_FILE_SIZE"
)

func TestMain(m *testing.M) {
	text := os.Getenv(childArgs)
	if text == "" {
		os.Exit(m.Run())
	}
	var args []string
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		panic(err)
	}
	if size, err := strconv.Atoi(os.Getenv(childLimit)); err == nil {
		limit := syscall.Rlimit{Cur: uint64(size), Max: uint64(size)}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			panic(err)
		}
	}
	os.Args = append([]string{"train"}, args...)
	main()
	os.Exit(0)
}

// process prepares the command on the world's config as a process of its own.
func (w *world) process(fileSize string, args ...string) *exec.Cmd {
	text, err := json.Marshal(append([]string{"--config", w.path}, args...))
	require.NoError(w.t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childArgs+"="+string(text), childLimit+"="+fileSize)
	return child
}

// A file that cannot grow is what a program sees of a full disk.
func TestFullDiskIsOneClearErrorAndLeavesNothingHalfWritten(t *testing.T) {
	for _, test := range []struct {
		name, size string
		config     string
		want, left []string
	}{
		{"at the start", "100", "", []string{"config.yaml", "file too large"}, nil},
		{"at the checkpoint", "20000", "", []string{"save step 1 in ", "model.safetensors", "file too large"},
			[]string{"config.yaml", "metrics.jsonl"}},
		{"at a line of metrics", "20000", "prompts_per_step: 2\nsave_every: 0\neval_every: 0\nsteps: 100",
			[]string{"save step ", "file too large", "metrics.jsonl"}, []string{"config.yaml", "metrics.jsonl"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.set(test.config)
			child := w.process(test.size)
			var errOut bytes.Buffer
			child.Stderr = &errOut
			err := child.Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, errOut.String())
			require.Equal(t, cli.Fault, exit.ExitCode(), errOut.String())
			requireClear(t, errOut.String(), test.want...)
			require.Equal(t, 1, strings.Count(errOut.String(), "\n"), errOut.String())
			for _, name := range test.left {
				require.Contains(t, w.files(), name)
			}
			for _, name := range w.files() {
				require.NotContains(t, name, "tmp")
				require.NotContains(t, name, "checkpoints/")
			}
			if text, err := os.ReadFile(filepath.Join(w.run, learn.MetricsName)); err == nil {
				require.True(t, bytes.HasSuffix(text, []byte("\n")), "no half line")
			}
			code, _, inProcess := w.train()
			require.Zero(t, code, "with room, the same command goes on: %s", inProcess)
		})
	}
}

func TestFullDiskLeavesTheOldCheckpoint(t *testing.T) {
	w := newWorld(t)
	code, _, errOut := w.train()
	require.Zero(t, code, errOut)
	output, err := w.process("20000", "--set", "steps=4").CombinedOutput()
	require.ErrorContains(t, err, "exit status 2", string(output))
	root := filepath.Join(w.run, "checkpoints")
	found, err := checkpoint.Latest(root)
	require.NoError(t, err)
	require.Equal(t, 2, found.Step)
	require.Empty(t, found.PassedOver)

	straight := newWorld(t)
	code, _, errOut = straight.train("--set", "steps=4")
	require.Zero(t, code, errOut)
	code, _, errOut = w.train("--set", "steps=4")
	require.Zero(t, code, errOut)
	weights := func(w *world) []byte {
		text, err := os.ReadFile(filepath.Join(w.run, "checkpoints", "step-000004", "model.safetensors"))
		require.NoError(t, err)
		return text
	}
	require.Equal(t, weights(straight), weights(w))
}

// A search server that goes and stays away ends the command with one line that says what is saved; with a server again the
// same command goes on.
func TestSearchServerThatStaysDeadIsOneClearError(t *testing.T) {
	serve := func(address string) *httptest.Server {
		index, err := retrieve.NewBM25([]data.Passage{{ID: "1", Contents: "Ada was"}}, retrieve.DefaultBM25())
		require.NoError(t, err)
		s, err := server.New(server.Options{Searcher: index, Kind: "bm25", Passages: 1})
		require.NoError(t, err)
		web := httptest.NewUnstartedServer(s)
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err)
		require.NoError(t, web.Listener.Close())
		web.Listener = listener
		web.Start()
		t.Cleanup(web.Close)
		return web
	}
	web := serve("127.0.0.1:0")
	w := newWorld(t)
	w.set("corpus: ''\nretriever_url: " + web.URL + "\nretriever_retries: 0\nretriever_max_failures: 2\nmax_turns: 2\n" +
		"save_every: 0\neval_every: 0\nsteps: 200\nprompts_per_step: 8\nmax_new_tokens: 12\nlr: 0")
	child := w.process("")
	var errOut bytes.Buffer
	child.Stderr = &errOut
	pipe, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "step 3/") {
			web.Close()
		}
	}
	var exit *exec.ExitError
	require.ErrorAs(t, child.Wait(), &exit)
	require.Equal(t, cli.Fault, exit.ExitCode(), errOut.String())
	requireClear(t, errOut.String(), "the search engine is gone: 2 searches in a row failed", web.URL, "is saved",
		"the same command goes on from there")
	require.Equal(t, 1, strings.Count(errOut.String(), "\n"), errOut.String())
	found, err := checkpoint.Latest(filepath.Join(w.run, "checkpoints"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, found.Step, 3)

	code, _, again := w.train()
	require.Equal(t, cli.Fault, code)
	requireClear(t, again, web.URL, "start one there")
	serve(web.Listener.Addr().String())
	code, out, again := w.train("--set", "steps="+strconv.Itoa(found.Step+1))
	require.Zero(t, code, again)
	require.Contains(t, out, "resume   from step "+strconv.Itoa(found.Step))
}

// Ctrl-C and kill save the last whole step and end with the code of an interruption.
func TestSignalSavesAndEndsWithCode130(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		w := newWorld(t)
		child := w.process("", "--set", "steps=100000", "--set", "save_every=0", "--set", "eval_every=0")
		var errOut bytes.Buffer
		child.Stderr = &errOut
		pipe, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		var last string
		sent := false
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			last = lines.Text()
			if strings.HasPrefix(last, "step 3/") && !sent {
				require.NoError(t, child.Process.Signal(signal))
				sent = true
			}
		}
		var exit *exec.ExitError
		require.ErrorAs(t, child.Wait(), &exit)
		require.Equal(t, cli.Interrupted, exit.ExitCode(), errOut.String())
		require.Regexp(t, `^train: interrupted; the same command goes on after step \d+\n$`, errOut.String())
		require.True(t, strings.HasPrefix(last, "saved "+w.run), last)
		found, err := checkpoint.Latest(filepath.Join(w.run, "checkpoints"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, found.Step, 3)
	}
}
