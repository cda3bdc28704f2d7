package weights

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

func TestSaveAndOpenGiveTheSameModel(t *testing.T) {
	for _, modelType := range []string{"llama", "qwen2"} {
		for _, dtype := range []DType{F32, BF16, F16, ""} {
			for _, shard := range []int64{0, 1, 700} {
				dir := filepath.Join(t.TempDir(), "new", "folder")
				cfg := toyConfig(modelType)
				cfg.EOS = []int{2, 0}
				weights := toyWeights(cfg)
				require.NoError(t, SaveFolder(dir, cfg, fromMap(weights), SaveOptions{DType: dtype, MaxShardBytes: shard}))
				src, err := Open(dir)
				require.NoError(t, err)
				assert.Equal(t, cfg, src.Config())
				assert.Equal(t, dir, src.Path())
				assert.Nil(t, src.Metadata())
				requireWeights(t, src, weights)
				info, ok := src.Info("model.norm.weight")
				require.True(t, ok)
				if dtype == "" {
					dtype = F32
				}
				assert.Equal(t, string(dtype), info.Type)
				require.NoError(t, src.Close())
			}
		}
	}
}

func TestSaveRoundsToNearest(t *testing.T) {
	dir := t.TempDir()
	cfg := toyConfig("llama")
	weights := toyWeights(cfg)
	weights["model.norm.weight"] = []float32{1 + 1.0/512, 1 + 3.0/512, 1.0 / 3, -1.0 / 3, 0, 1, 2, 3}
	require.NoError(t, SaveFolder(dir, cfg, fromMap(weights), SaveOptions{DType: BF16}))
	src, err := Open(dir)
	require.NoError(t, err)
	defer src.Close()
	got, _, err := src.Tensor("model.norm.weight")
	require.NoError(t, err)
	// Steps of BF16 are 1/128 from 1 on, and 1/512 below 1/2.
	assert.Equal(t, []float32{1, 1 + 1.0/128, 171.0 / 512, -171.0 / 512, 0, 1, 2, 3}, got)
}

func TestShardsFollowTheLimitAndTheIndexNamesThem(t *testing.T) {
	dir := t.TempDir()
	cfg := toyConfig("qwen2")
	weights := toyWeights(cfg)
	require.NoError(t, SaveFolder(dir, cfg, fromMap(weights), SaveOptions{MaxShardBytes: 1000}))
	text, err := os.ReadFile(filepath.Join(dir, indexFile))
	require.NoError(t, err)
	var index struct {
		Metadata struct {
			TotalSize int `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	require.NoError(t, json.Unmarshal(text, &index))
	assert.Equal(t, 4*cfg.NumParams(), index.Metadata.TotalSize)
	require.Len(t, index.WeightMap, len(cfg.Params()))
	files, err := filepath.Glob(filepath.Join(dir, "model-*.safetensors"))
	require.NoError(t, err)
	require.Greater(t, len(files), 3)
	for _, path := range files {
		s, err := OpenSafetensors(path)
		require.NoError(t, err)
		size := 0
		for _, name := range s.Names() {
			assert.Equal(t, filepath.Base(path), index.WeightMap[name])
			size += 4 * len(weights[name])
		}
		assert.LessOrEqual(t, size, 1000)
		assert.Equal(t, map[string]string{"format": "pt"}, s.Metadata())
		require.NoError(t, s.Close())
	}
}

func TestSavingAgainRemovesTheShardsOfTheOldSave(t *testing.T) {
	dir := t.TempDir()
	cfg := toyConfig("llama")
	kept := writeTestFile(t, dir, "tokenizer.json", "{}")
	for _, limit := range []int64{0, 500, 1000, 0} {
		weights := toyWeights(cfg)
		weights["model.norm.weight"][0] = float32(limit)
		require.NoError(t, SaveFolder(dir, cfg, fromMap(weights), SaveOptions{MaxShardBytes: limit}))
		src, err := Open(dir)
		require.NoError(t, err)
		requireWeights(t, src, weights) // a stale model.safetensors would come first
		require.NoError(t, src.Close())
	}
	assert.NoFileExists(t, filepath.Join(dir, indexFile))
	assert.FileExists(t, kept)
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, singleFile)}, files)
}

func TestConfigJSONIsWhatTransformersNeeds(t *testing.T) {
	cfg := toyConfig("llama")
	cfg.EOS = []int{2, 0}
	cfg.RopeScaling = &nn.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 64}
	text, generation, err := configFiles(&cfg, BF16)
	require.NoError(t, err)
	assert.JSONEq(t, `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 1, "eos_token_id": [2, 0], "head_dim": 4, "hidden_act": "silu", "hidden_size": 8,
		"initializer_range": 0.02, "intermediate_size": 12, "max_position_embeddings": 128, "mlp_bias": false,
		"model_type": "llama", "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 1,
		"pad_token_id": null, "rms_norm_eps": 1e-05, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
		"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
		"rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
		"vocab_size": 10}`, string(text))
	// Newer versions of transformers check that a float is written as one.
	assert.Contains(t, string(text), `"rope_theta": 10000.0,`)
	assert.Contains(t, string(text), `"factor": 8.0,`)
	assert.JSONEq(t, `{"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": null}`, string(generation))

	cfg = toyConfig("qwen2")
	cfg.RopeScaling = linearScaling(2.5)
	text, _, err = configFiles(&cfg, F32)
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, json.Unmarshal(text, &values))
	assert.Equal(t, []any{"Qwen2ForCausalLM"}, values["architectures"])
	assert.Equal(t, map[string]any{"type": "linear", "factor": 2.5}, values["rope_scaling"])
	assert.Equal(t, false, values["use_sliding_window"])
	assert.Equal(t, "float32", values["torch_dtype"])
	assert.Equal(t, 2.0, values["eos_token_id"])
	back, err := parseHFConfig(text)
	require.NoError(t, err)
	assert.Equal(t, cfg, back)
}

func TestSaveRefusesWhatTransformersCouldNotLoad(t *testing.T) {
	for want, change := range map[string]func(cfg *nn.Config){
		"llama has none, and qwen2 always": func(cfg *nn.Config) { cfg.AttentionBias = true },
		`no model of type "mamba"`:         func(cfg *nn.Config) { cfg.ModelType = "mamba" },
		"hidden_size is 0":                 func(cfg *nn.Config) { cfg.HiddenSize = 0 },
	} {
		dir := filepath.Join(t.TempDir(), "out")
		cfg := toyConfig("llama")
		change(&cfg)
		err := SaveFolder(dir, cfg, fromMap(nil), SaveOptions{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, dir)
		assert.NoDirExists(t, dir)
	}
	require.ErrorContains(t, SaveFolder(t.TempDir(), toyConfig("llama"), fromMap(nil), SaveOptions{DType: "Q8_0"}),
		`cannot write values as "Q8_0"`)
}

func TestFailedSaveLeavesTheOldModelAndNothingHalfWritten(t *testing.T) {
	dir := t.TempDir()
	cfg := toyConfig("llama")
	weights := toyWeights(cfg)
	require.NoError(t, SaveFolder(dir, cfg, fromMap(weights), SaveOptions{MaxShardBytes: 1000}))
	before, err := os.ReadDir(dir)
	require.NoError(t, err)
	lost := errors.New("device lost")
	calls := 0
	err = SaveFolder(dir, cfg, func(name string) ([]float32, error) {
		if calls++; calls == len(weights) { // in the last shard
			return nil, lost
		}
		return make([]float32, len(weights[name])), nil
	}, SaveOptions{MaxShardBytes: 1000})
	require.ErrorIs(t, err, lost)
	require.ErrorContains(t, err, filepath.Join(dir, "model-"))
	src, err := Open(dir)
	require.NoError(t, err)
	defer src.Close()
	requireWeights(t, src, weights)
	after, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Equal(t, len(before), len(after), "temporary files are left")
}

func TestOpenOneFileOfAFolder(t *testing.T) {
	dir := t.TempDir()
	cfg := toyConfig("llama")
	weights := toyWeights(cfg)
	require.NoError(t, SaveFolder(dir, cfg, fromMap(weights), SaveOptions{}))
	src, err := Open(filepath.Join(dir, singleFile))
	require.NoError(t, err)
	requireWeights(t, src, weights)
	require.Equal(t, dir, src.Path())
	require.NoError(t, src.Close())

	require.NoError(t, SaveFolder(dir, cfg, fromMap(weights), SaveOptions{MaxShardBytes: 1000}))
	shards, err := filepath.Glob(filepath.Join(dir, "model-00001-of-*.safetensors"))
	require.NoError(t, err)
	require.Len(t, shards, 1)
	src, err = Open(shards[0])
	require.NoError(t, err)
	err = Load(src, func(string, []float32, []int) error { return nil })
	require.ErrorContains(t, err, "is missing; the download is incomplete (a shard?)")
	require.NoError(t, src.Close())

	require.NoError(t, os.Remove(filepath.Join(dir, "config.json")))
	_, err = Open(shards[0])
	require.ErrorContains(t, err, "needs its config.json beside it")
}
