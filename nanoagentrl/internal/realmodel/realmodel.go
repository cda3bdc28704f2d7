// Package realmodel loads the pretrained models that tests compare against references.
package realmodel

import (
	"fmt"
	"sync"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// The files of the two models below the models folder.
const (
	SmolLM2   = "SmolLM2-135M-Instruct.Q4_1.gguf"
	QwenCoder = "qwen2.5-coder-0.5b-instruct.gguf"
)

// Model is a loaded model.
type Model struct {
	Program   *nn.Program
	Params    *nn.Params
	Tokenizer *tokenizer.BPE
}

var (
	mu     sync.Mutex
	loaded = map[string]*Model{}
)

// Load returns a model in f32 on a device, loading it once for each test process. It skips the test where the file is
// missing. At most one model is kept at a time.
func Load(t testing.TB, dev *device.Device, file string, dtype dtypes.DType) *Model {
	t.Helper()
	path := testenv.Model(t, file)
	mu.Lock()
	defer mu.Unlock()
	key := fmt.Sprint(file, dev.Kind, dtype)
	if m, ok := loaded[key]; ok {
		return m
	}
	for k, m := range loaded {
		m.Params.Free()
		delete(loaded, k)
	}
	src, err := weights.Open(path)
	require.NoError(t, err)
	defer src.Close()
	tok, err := tokenizer.FromGGUF(src.Metadata())
	require.NoError(t, err)
	params, err := nn.NewParams(dev, src.Config(), dtype, func(name string, _ []int) ([]float32, error) {
		values, _, err := src.Tensor(name)
		return values, err
	})
	require.NoError(t, err)
	m := &Model{Program: nn.NewProgram(dev, src.Config()), Params: params, Tokenizer: tok}
	loaded[key] = m
	return m
}
