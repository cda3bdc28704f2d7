package embed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed/embedtest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// A server that gives up waiting for a request closes the encoder while it works.
func TestCloseWaitsForTheBatchUnderWay(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	e, err := embed.Open(t.Context(), dev, embedtest.Write(t, 1, nil), weights.HubOptions{}, embed.Options{})
	require.NoError(t, err)
	texts := make([]string, 20_000)
	for i := range texts {
		texts[i] = fmt.Sprintf("where was somebody born in town %d?", i)
	}
	begun, ended := make(chan struct{}, len(texts)), make(chan error)
	go func() {
		_, err := e.Passages(t.Context(), texts, func(int) { begun <- struct{}{} })
		ended <- err
	}()
	<-begun
	e.Close()
	require.ErrorContains(t, <-ended, "was closed")
	_, err = e.Queries(t.Context(), texts[:1])
	require.ErrorContains(t, err, "was closed")
	e.Close()
}

func TestLayersThatTheConfigLeavesOutAreAnError(t *testing.T) {
	dir := embedtest.Write(t, 1, nil)
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	fewer := regexp.MustCompile(`"num_hidden_layers": ?\d+`).ReplaceAll(text, []byte(`"num_hidden_layers": 1`))
	require.NotEqual(t, text, fewer)
	require.NoError(t, os.WriteFile(path, fewer, 0o644))
	_, err = embed.Open(t.Context(), testdevice.Open(t, device.Go), dir, weights.HubOptions{}, embed.Options{})
	require.ErrorContains(t, err, "there is a tensor encoder.layer.1.")
	require.ErrorContains(t, err, "config.json has 1 layers")
}
