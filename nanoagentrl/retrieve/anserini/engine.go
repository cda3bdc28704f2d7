// Package anserini runs Anserini, the engine inside Pyserini, beside ours, and compares what the two find. It needs
// Java 21 or newer, the jar that scripts/kaggle/setup_retriever.sh --engine_only fetches, and the source of this
// module.
package anserini

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/gofrs/flock"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/java"
)

// Engine is a Java and a jar.
type Engine struct {
	// Home is the folder of the Java, Jar the path of the jar.
	Home, Jar string
}

// Find returns the engine of a jar, or of the one in the user's cache folder if jar is "auto", which is fetched if it
// is not there.
func Find(ctx context.Context, jar string) (*Engine, error) {
	home, err := java.Find(21, 99)
	if err != nil {
		return nil, err
	}
	if jar == "auto" {
		if jar, err = fetch(ctx); err != nil {
			return nil, err
		}
	}
	if jar, err = filepath.Abs(jar); err != nil {
		return nil, err
	}
	if _, err := os.Stat(jar); err != nil {
		return nil, fmt.Errorf("anserini: %w; DATA=DIR scripts/kaggle/setup_retriever.sh --engine_only fetches it", err)
	}
	return &Engine{home, jar}, nil
}

// scripts is the folder of the scripts that fetch and serve.
func scripts() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "scripts", "kaggle")
}

// fetch returns the jar in the user's cache folder.
func fetch(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "nanoagentrl", "anserini")
	jar := filepath.Join(folder, "anserini-2.3.0-fatjar.jar")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock := flock.New(filepath.Join(folder, "lock")) // Packages are tested at the same time.
	if err := lock.Lock(); err != nil {
		return "", err
	}
	defer lock.Unlock()
	command := exec.CommandContext(ctx, filepath.Join(scripts(), "setup_retriever.sh"), "--engine_only")
	command.Env = append(os.Environ(), "DATA="+folder, "JAR="+jar)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("anserini: %w: %s", err, output)
	}
	return jar, nil
}

// Index indexes a corpus into a folder, with Anserini's usual analysis; the texts stay out of it, as in the index of
// wiki-18.
func (e *Engine) Index(ctx context.Context, corpus, folder string) error {
	corpus, err := data.CorpusPath(corpus)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(corpus)
	if err != nil {
		return err
	}
	input, err := os.MkdirTemp("", "anserini")
	if err != nil {
		return err
	}
	defer os.RemoveAll(input)
	// Anserini wants a folder, and does not follow links.
	if err := os.WriteFile(filepath.Join(input, "corpus.jsonl"), text, 0o644); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, java.Run(e.Home, "java"), "-cp", e.Jar, "io.anserini.index.IndexCollection",
		"-collection", "JsonCollection", "-input", input, "-index", folder, "-generator", "DefaultLuceneDocumentGenerator",
		"-threads", "1")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("anserini: %w: %s", err, output)
	}
	return nil
}

// Serve serves an index and its corpus and returns the address once it answers. stop ends the server.
func (e *Engine) Serve(ctx context.Context, index, corpus string) (url string, stop func(), err error) {
	corpus, err = data.CorpusPath(corpus)
	if err != nil {
		return "", nil, err
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	command := exec.CommandContext(ctx, java.Run(e.Home, "java"), "-cp", e.Jar,
		filepath.Join(scripts(), "RetrieverServer.java"), "--index", index, "--corpus", corpus, "--port", strconv.Itoa(port))
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		cancel()
		return "", nil, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	stop = func() { cancel(); <-ended }
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	for !healthy(url) {
		select {
		case <-ended:
			cancel()
			return "", nil, fmt.Errorf("anserini: the server ended: %s", log.Bytes())
		case <-ctx.Done():
			stop()
			return "", nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return url, stop, nil
}

func healthy(url string) bool {
	response, err := http.Get(url + "/healthz")
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close()) == nil && response.StatusCode == http.StatusOK
}

// freePort returns a port that nobody listens on now.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
