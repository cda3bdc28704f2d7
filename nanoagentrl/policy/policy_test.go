package policy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

func words(t *testing.T, n int) *tokenizer.Words {
	t.Helper()
	list := []string{tokenizer.WordUnk, tokenizer.WordPad, tokenizer.WordBOS, tokenizer.WordEOS}
	for i := len(list); i < n; i++ {
		list = append(list, fmt.Sprint("w", i))
	}
	tok, err := tokenizer.NewWords(list)
	require.NoError(t, err)
	return tok
}

func shape() nn.Config {
	return nn.Config{ModelType: "qwen2", HiddenSize: 8, IntermediateSize: 12, NumLayers: 2, NumHeads: 2, NumKVHeads: 1,
		HeadDim: 4, MaxPositions: 64, RopeTheta: 12345, NormEps: 1e-6, AttentionBias: true, TieEmbeddings: true,
		BOS: -1, Pad: -1}
}

func random(t *testing.T, dev *device.Device, cfg nn.Config, seed uint64) *Policy {
	t.Helper()
	p, err := Random(dev, cfg, words(t, 10), dtypes.Float32, seed)
	require.NoError(t, err)
	t.Cleanup(p.Free)
	return p
}

func logProbs(t *testing.T, p *Policy) []float32 {
	t.Helper()
	batch, err := nn.NewBatch([]nn.Row{{IDs: []int{4, 5, 6, 7, 8, 9, 3}, Mask: []uint8{0, 1, 1, 1, 1, 1, 1}}}, 0, false)
	require.NoError(t, err)
	logp, _, err := p.Program.LogProbs(p.Params, batch, 1)
	require.NoError(t, err)
	return logp
}

func TestSavedPolicyLoadsToTheSameWeightsAndLogits(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		for _, tied := range []bool{true, false} {
			cfg := shape()
			cfg.TieEmbeddings = tied
			p := random(t, dev, cfg, 1)
			dir := t.TempDir()
			require.NoError(t, p.Save(dir))
			loaded, err := Load(t.Context(), dev, dir, Options{DType: dtypes.Float32})
			require.NoError(t, err)
			defer loaded.Free()
			for _, name := range p.Params.Names() {
				want, err := p.Params.Host(name)
				require.NoError(t, err)
				got, err := loaded.Params.Host(name)
				require.NoError(t, err)
				require.Equal(t, want, got, name)
			}
			require.Equal(t, logProbs(t, p), logProbs(t, loaded))
			require.Equal(t, p.ID, loaded.ID)
			require.Equal(t, *p.Program.Config(), *loaded.Program.Config())
			require.Equal(t, p.Tokenizer.Encode("w4 w9 x"), loaded.Tokenizer.Encode("w4 w9 x"))
		}
	})
}

// The ID names the weights as they were loaded: the same on every device and whatever is done to the policy later.
func TestIDIsThatOfTheWeightsAsLoaded(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := random(t, dev, shape(), 1)
	dir := t.TempDir()
	require.NoError(t, p.Save(dir))
	file, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	data := file[8+binary.LittleEndian.Uint64(file):] // the values of all tensors, in order
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(data)), p.ID)
	require.Equal(t, p.ID, random(t, dev, shape(), 1).ID)
	require.NotEqual(t, p.ID, random(t, dev, shape(), 2).ID)
	hash, err := p.Hash()
	require.NoError(t, err)
	require.Equal(t, p.ID, hash)

	moved := make([]float32, 10*8)
	tensor, err := device.Upload(dev, moved, 10, 8)
	require.NoError(t, err)
	require.NoError(t, p.Params.Replace(0, tensor))
	hash, err = p.Hash()
	require.NoError(t, err)
	require.NotEqual(t, p.ID, hash)
}

func TestBF16KeepsItsMastersAndTheSameID(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := random(t, dev, shape(), 1)
	dir := t.TempDir()
	require.NoError(t, p.Save(dir))
	narrow, err := Load(t.Context(), dev, dir, Options{DType: dtypes.BFloat16})
	require.NoError(t, err)
	defer narrow.Free()
	require.Equal(t, p.ID, narrow.ID)
	hash, err := narrow.Hash()
	require.NoError(t, err)
	require.Equal(t, p.ID, hash)
	require.InDeltaSlice(t, logProbs(t, p), logProbs(t, narrow), 0.05)
	require.NotEqual(t, logProbs(t, p), logProbs(t, narrow))
}

func TestTokenizerThatDoesNotFitTheModelIsAnError(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	dir := t.TempDir()
	require.NoError(t, random(t, dev, shape(), 1).Save(dir))
	require.NoError(t, words(t, 11).Save(dir))
	_, err := Load(t.Context(), dev, dir, Options{DType: dtypes.Float32})
	require.ErrorContains(t, err, dir+": the tokenizer has ids up to 10, the model an embedding of 10 rows")
}

func TestModelWithoutAnEndTokenIsAnError(t *testing.T) {
	tok, err := tokenizer.NewWords([]string{tokenizer.WordUnk, "a"})
	require.NoError(t, err)
	_, err = Random(testdevice.Open(t, device.Go), shape(), tok, dtypes.Float32, 1)
	require.ErrorContains(t, err, "no end token")
}

func TestWithWeightsSharesGraphsAndTakesOnlyTheSameShape(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := random(t, dev, shape(), 1)
	save := func(change func(c *nn.Config)) string {
		cfg, dir := shape(), t.TempDir()
		change(&cfg)
		require.NoError(t, random(t, dev, cfg, 2).Save(dir))
		return dir
	}
	dir := save(func(c *nn.Config) { c.MaxPositions = 128 })
	q, err := p.WithWeights(t.Context(), dir, Options{})
	require.NoError(t, err)
	defer q.Free()
	require.Same(t, p.Program, q.Program)
	require.Equal(t, random(t, dev, shape(), 2).ID, q.ID)
	require.Equal(t, logProbs(t, random(t, dev, shape(), 2)), logProbs(t, q))

	for want, change := range map[string]func(c *nn.Config){
		"HiddenSize is 16, not 8":       func(c *nn.Config) { c.HiddenSize = 16 },
		"NumLayers is 3, not 2":         func(c *nn.Config) { c.NumLayers = 3 },
		"NumKVHeads is 2, not 1":        func(c *nn.Config) { c.NumKVHeads = 2 },
		"TieEmbeddings is false":        func(c *nn.Config) { c.TieEmbeddings = false },
		"RopeTheta is 10000, not 12345": func(c *nn.Config) { c.RopeTheta = 10000 },
		"NormEps is 1e-05, not 1e-06":   func(c *nn.Config) { c.NormEps = 1e-5 },
	} {
		dir := save(change)
		_, err := p.WithWeights(t.Context(), dir, Options{})
		require.ErrorContains(t, err, dir+": this is not a model of the same shape as random (seed 1): ")
		require.ErrorContains(t, err, want)
	}
}

// GGUF files hold rms_norm_eps in f32, Hugging Face folders in decimal.
func TestShapesMayDifferByTheRoundingOfTheirNumbers(t *testing.T) {
	gguf := shape()
	gguf.NormEps = float64(float32(1e-6))
	require.NotEqual(t, shape().NormEps, gguf.NormEps)
	require.Empty(t, differences(shape(), gguf))
	gguf.RopeScaling = &nn.RopeScaling{Factor: 8}
	require.Equal(t, []string{"RopeScaling is {8 0 0 0}, not <nil>"}, differences(shape(), gguf))
}

func TestBrokenModelFoldersAreOneClearError(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := random(t, dev, shape(), 1)
	for name, test := range map[string]struct {
		spoil func(dir string)
		want  []string
	}{
		"weights cut": {func(dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 1000))
		}, []string{"model.safetensors"}},
		"weights missing": {func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
		}, []string{"safetensors"}},
		"no config": {func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "config.json")))
		}, []string{"config.json"}},
		"no tokenizer": {func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
		}, []string{"tokenizer"}},
		"another shape in the config": {func(dir string) {
			edit(t, filepath.Join(dir, "config.json"), func(c map[string]any) { c["intermediate_size"] = 13 })
		}, []string{"gate_proj", "[12 8]", "[13 8]"}},
		"a weight that is no number": {func(dir string) {
			path := filepath.Join(dir, "model.safetensors")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			binary.LittleEndian.PutUint32(text[len(text)-4:], math.Float32bits(float32(math.NaN())))
			require.NoError(t, os.WriteFile(path, text, 0o644))
		}, []string{"model.safetensors: tensor model.", " has NaN at place ", "damaged"}},
	} {
		dir := t.TempDir()
		require.NoError(t, p.Save(dir))
		test.spoil(dir)
		loaded, err := Load(t.Context(), dev, dir, Options{DType: dtypes.Float32, Hub: weights.HubOptions{Offline: true}})
		require.Error(t, err, name)
		require.Nil(t, loaded, name)
		require.NotContains(t, err.Error(), "\n", name)
		for _, want := range append(test.want, dir) {
			require.ErrorContains(t, err, want, name)
		}
	}
}

func edit(t *testing.T, path string, change func(map[string]any)) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(text, &object))
	change(object)
	text, err = json.Marshal(object)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

func TestLoadingEndsWithItsContext(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	dir := t.TempDir()
	require.NoError(t, random(t, dev, shape(), 1).Save(dir))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Load(ctx, dev, dir, Options{DType: dtypes.Float32})
	require.ErrorIs(t, err, context.Canceled)
}

func TestChatTemplateChoices(t *testing.T) {
	p := random(t, testdevice.Open(t, device.Go), shape(), 1)
	for _, choice := range []string{"never", "auto"} {
		template, err := p.ChatTemplate(choice)
		require.NoError(t, err)
		require.Nil(t, template)
	}
	_, err := p.ChatTemplate("always")
	require.ErrorContains(t, err, `chat_template is "always", but random (seed 1) has none`)
	var b strings.Builder
	p.Describe(&b)
	require.Equal(t, "model    random (seed 1): qwen2, 0.0 M parameters, 2 layers x 8, vocabulary 10, Float32\n", b.String())
}

func TestDTypeNames(t *testing.T) {
	for name, want := range map[string]dtypes.DType{"f32": dtypes.Float32, "bf16": dtypes.BFloat16} {
		got, err := ParseDType(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := ParseDType("fp16")
	require.ErrorContains(t, err, `dtype "fp16" is unknown; choose f32 or bf16`)
}
