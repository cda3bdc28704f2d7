package weights

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// The config.json files of Qwen2.5-0.5B-Instruct, Llama-3.2-1B-Instruct and SmolLM2-135M-Instruct, as published.
const (
	qwenConfig = `{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
		"eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
		"intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
		"num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
		"rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
		"use_cache": true, "use_sliding_window": false, "vocab_size": 151936}`
	qwenGeneration = `{"bos_token_id": 151643, "pad_token_id": 151643, "do_sample": true,
		"eos_token_id": [151645, 151643], "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20}`
	llamaConfig = `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu",
		"hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072,
		"mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
		"num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
		"high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
		"rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256}`
	smolConfig = `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536,
		"is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
		"num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2,
		"pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
		"rope_theta": 100000, "tie_word_embeddings": true, "transformers.js_config": {"kv_cache_dtype": {}},
		"vocab_size": 49152}`
)

func TestConfigsAsPublished(t *testing.T) {
	for text, want := range map[string]nn.Config{
		qwenConfig: {ModelType: "qwen2", VocabSize: 151936, HiddenSize: 896, IntermediateSize: 4864, NumLayers: 24,
			NumHeads: 14, NumKVHeads: 2, HeadDim: 64, MaxPositions: 32768, RopeTheta: 1e6, NormEps: 1e-6,
			AttentionBias: true, TieEmbeddings: true, BOS: 151643, Pad: -1, EOS: []int{151645}},
		llamaConfig: {ModelType: "llama", VocabSize: 128256, HiddenSize: 2048, IntermediateSize: 8192, NumLayers: 16,
			NumHeads: 32, NumKVHeads: 8, HeadDim: 64, MaxPositions: 131072, RopeTheta: 5e5, NormEps: 1e-5,
			RopeScaling:   &nn.RopeScaling{Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192},
			TieEmbeddings: true, BOS: 128000, Pad: -1, EOS: []int{128001, 128008, 128009}},
		smolConfig: {ModelType: "llama", VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30,
			NumHeads: 9, NumKVHeads: 3, HeadDim: 64, MaxPositions: 8192, RopeTheta: 1e5, NormEps: 1e-5,
			TieEmbeddings: true, BOS: 1, Pad: 2, EOS: []int{2}},
	} {
		got, err := parseHFConfig([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

// edited returns a config.json with some keys replaced; a nil value removes the key, jsonNull sets null.
func edited(t *testing.T, text string, keys map[string]any) []byte {
	t.Helper()
	values := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(text), &values))
	for key, value := range keys {
		if value == nil {
			delete(values, key)
		} else {
			values[key] = value
		}
	}
	out, err := json.Marshal(values)
	require.NoError(t, err)
	return out
}

var jsonNull = json.RawMessage("null")

func TestConfigDefaultsAreThoseOfTransformers(t *testing.T) {
	optional := map[string]any{"num_key_value_heads": nil, "head_dim": nil, "max_position_embeddings": nil,
		"rms_norm_eps": nil, "rope_theta": nil, "rope_scaling": nil, "tie_word_embeddings": nil, "hidden_act": nil,
		"bos_token_id": nil, "eos_token_id": nil, "pad_token_id": nil, "num_attention_heads": 32, "hidden_size": 256}
	for modelType, want := range map[string]nn.Config{
		"llama": {NumKVHeads: 32, HeadDim: 8, MaxPositions: 2048, RopeTheta: 1e4, NormEps: 1e-6, BOS: 1, Pad: -1,
			EOS: []int{2}},
		"qwen2": {NumKVHeads: 32, HeadDim: 8, MaxPositions: 32768, RopeTheta: 1e4, NormEps: 1e-6, BOS: -1, Pad: -1,
			AttentionBias: true},
	} {
		optional["model_type"] = modelType
		got, err := parseHFConfig(edited(t, smolConfig, optional))
		require.NoError(t, err)
		want.ModelType, want.VocabSize, want.HiddenSize = modelType, 49152, 256
		want.IntermediateSize, want.NumLayers, want.NumHeads = 1536, 30, 32
		assert.Equal(t, want, got)
	}
	// null means "all heads" and "none", where an absent key means a number.
	nulls := map[string]any{"num_key_value_heads": jsonNull, "head_dim": jsonNull}
	got, err := parseHFConfig(edited(t, qwenConfig, nulls))
	require.NoError(t, err)
	assert.Equal(t, 14, got.NumKVHeads)
	assert.Equal(t, 64, got.HeadDim)
	got, err = parseHFConfig(edited(t, llamaConfig, map[string]any{"bos_token_id": jsonNull, "eos_token_id": jsonNull}))
	require.NoError(t, err)
	assert.Equal(t, -1, got.BOS)
	assert.Empty(t, got.EOS)
}

func TestMistralIsLlamaOnlyWithoutSlidingWindow(t *testing.T) {
	mistral := map[string]any{"model_type": "mistral", "sliding_window": jsonNull}
	got, err := parseHFConfig(edited(t, smolConfig, mistral))
	require.NoError(t, err)
	assert.Equal(t, "llama", got.ModelType)
	for _, window := range []any{nil, 4096} { // an absent key is a window of 4096
		mistral["sliding_window"] = window
		_, err = parseHFConfig(edited(t, smolConfig, mistral))
		require.ErrorContains(t, err, "sliding window")
	}
	mistral["sliding_window"] = 8192 // as long as the longest sequence: never used
	_, err = parseHFConfig(edited(t, smolConfig, mistral))
	require.NoError(t, err)
}

func TestRopeThetaInsideRopeParameters(t *testing.T) {
	// The form that version 5 of transformers writes.
	got, err := parseHFConfig(edited(t, smolConfig, map[string]any{"rope_theta": nil, "rope_scaling": nil,
		"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 100000.0}}))
	require.NoError(t, err)
	assert.Equal(t, 1e5, got.RopeTheta)
	assert.Nil(t, got.RopeScaling)
	got, err = parseHFConfig(edited(t, llamaConfig, map[string]any{"rope_theta": nil, "rope_scaling": nil,
		"rope_parameters": map[string]any{"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
			"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}))
	require.NoError(t, err)
	assert.Equal(t, 5e5, got.RopeTheta)
	assert.Equal(t, &nn.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192},
		got.RopeScaling)
}

func TestLinearRopeScalingDividesEveryFrequency(t *testing.T) {
	scaled := map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 4}}
	got, err := parseHFConfig(edited(t, smolConfig, scaled))
	require.NoError(t, err)
	for _, divisor := range ropeDivisors(got.RopeScaling, got.RopeTheta, got.HeadDim) {
		require.InDelta(t, 4, divisor, 1e-12)
	}
	assert.True(t, isLinear(got.RopeScaling))
	assert.False(t, isLinear(&nn.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}))
	scaled["rope_scaling"] = map[string]any{"type": "linear", "factor": 1}
	got, err = parseHFConfig(edited(t, smolConfig, scaled))
	require.NoError(t, err)
	assert.Nil(t, got.RopeScaling)
}

func TestConfigsThatAreRefused(t *testing.T) {
	type keys = map[string]any
	for _, c := range []struct {
		base string
		keys keys
		want string
	}{
		{qwenConfig, keys{"model_type": "qwen3"}, `model_type "qwen3" is not supported; supported are llama, qwen2`},
		{qwenConfig, keys{"model_type": nil}, `model_type "" is not supported`},
		{smolConfig, keys{"hidden_size": nil, "head_dim": 64}, "hidden_size is 0, must be positive"},
		{smolConfig, keys{"vocab_size": nil}, "vocab_size is 0, must be positive"},
		{smolConfig, keys{"num_attention_heads": 0, "head_dim": 64}, "num_attention_heads is 0"},
		{smolConfig, keys{"num_attention_heads": 7}, "not a multiple of num_attention_heads (7)"},
		{smolConfig, keys{"num_key_value_heads": 2}, "num_attention_heads (9) is not a multiple"},
		{smolConfig, keys{"num_hidden_layers": 1 << 30}, "no model has more than"},
		{smolConfig, keys{"attention_bias": true}, "gives o_proj a bias"},
		{smolConfig, keys{"mlp_bias": true}, "mlp_bias true"},
		{smolConfig, keys{"hidden_act": "gelu"}, `hidden_act is "gelu"`},
		{smolConfig, keys{"rope_interleaved": true}, "rope_interleaved"},
		{smolConfig, keys{"partial_rotary_factor": 0.5}, "partial_rotary_factor"},
		{smolConfig, keys{"quantization_config": keys{"bits": 4}}, "quantised safetensors"},
		{qwenConfig, keys{"rope_scaling": keys{"type": "yarn", "factor": 4}},
			`rotary scaling "yarn" is not implemented; default, linear`},
		{llamaConfig, keys{"rope_scaling": keys{"rope_type": "llama3", "factor": 4}}, "rotary scaling llama3 needs"},
		{llamaConfig, keys{"rope_scaling": keys{"rope_type": "linear"}}, "factor is 0, must be at least 1"},
		{qwenConfig, keys{"rope_parameters": keys{"full_attention": keys{"rope_type": "default"}}},
			"for each type of layer (full_attention)"},
		{qwenConfig, keys{"rope_parameters": keys{"partial_rotary_factor": 0.25}}, "partial_rotary_factor"},
		{smolConfig, keys{"eos_token_id": "</s>"}, "want a token id or a list"},
		{smolConfig, keys{"hidden_size": "576"}, "cannot unmarshal"},
	} {
		_, err := parseHFConfig(edited(t, c.base, c.keys))
		require.ErrorContains(t, err, c.want)
	}
}

func TestQwenSlidingWindowIsRefusedOnlyIfUsed(t *testing.T) {
	keys := map[string]any{"use_sliding_window": true, "sliding_window": 4096}
	_, err := parseHFConfig(edited(t, qwenConfig, keys)) // layers 21 to 23
	require.ErrorContains(t, err, "sliding window")
	for key, value := range map[string]any{"max_window_layers": 24, "sliding_window": 32768, "use_sliding_window": false} {
		unused := maps.Clone(keys)
		unused[key] = value
		_, err = parseHFConfig(edited(t, qwenConfig, unused))
		require.NoError(t, err, key)
	}
	for kind, ok := range map[string]bool{"full_attention": true, "sliding_attention": false} {
		_, err = parseHFConfig(edited(t, qwenConfig, map[string]any{"layer_types": []string{"full_attention", kind}}))
		require.Equal(t, ok, err == nil, kind)
	}
}

func TestStopSetOfQwenIsTheUnionOfBothConfigFiles(t *testing.T) {
	for _, c := range []struct {
		config, generation any
		want               []int
	}{
		{151645, []int{151645, 151643}, []int{151645, 151643}}, // Instruct
		{151643, []int{151645, 151643}, []int{151643, 151645}},
		{151643, 151645, []int{151643, 151645}},
		{[]int{151645, 151643}, jsonNull, []int{151645, 151643}},
		{jsonNull, 151643, []int{151643}},
	} {
		dir := t.TempDir()
		writeTestFile(t, dir, "config.json", string(edited(t, qwenConfig, map[string]any{"eos_token_id": c.config})))
		writeTestFile(t, dir, "generation_config.json",
			string(edited(t, qwenGeneration, map[string]any{"eos_token_id": c.generation})))
		cfg, err := readHFConfig(dir)
		require.NoError(t, err)
		assert.Equal(t, c.want, cfg.EOS)
		assert.Equal(t, 151643, cfg.Pad, "generation_config.json names the padding token")
		assert.Equal(t, 151643, cfg.BOS)
	}
}

func TestOpenErrorsSayWhatIsThereAndWhatIsWanted(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(writeTestFile(t, dir, "notes.txt", ""))
	require.ErrorContains(t, err, "notes.txt: cannot tell what this is")
	writeTestFile(t, dir, "m.Q4_K_M.gguf", "")
	_, err = Open(dir)
	require.ErrorContains(t, err, "no config.json")
	require.ErrorContains(t, err, "it holds m.Q4_K_M.gguf")
	writeTestFile(t, dir, "config.json", smolConfig)
	writeTestFile(t, dir, "pytorch_model.bin", "")
	_, err = Open(dir)
	require.ErrorContains(t, err, "neither model.safetensors nor model.safetensors.index.json")
	require.ErrorContains(t, err, "pytorch_model.bin")
	for text, want := range map[string]string{
		"{":                 "model.safetensors.index.json: unexpected end",
		`{"weight_map":{}}`: "weight_map is missing or empty",
		`{"weight_map":{"a":"../x.safetensors"}}`:                        `weight_map names "../x.safetensors" for a`,
		`{"weight_map":{"a":"/x.safetensors"}}`:                          "name of a file in this folder",
		`{"weight_map":{"a":"model-00001-of-00002.safetensors"}}`:        "is missing, and the index names it",
		`{"weight_map":{"b":"one.safetensors","a":"one.safetensors"}}`:   "one.safetensors: tensor b is not in it",
		`{"weight_map":{"a":"one.safetensors","c":"cut.safetensors"}}`:   "truncated",
		`{"weight_map":{"a":"one.safetensors"}, "metadata": {"x": 1.5}}`: "",
	} {
		writeTestFile(t, dir, indexFile, text)
		whole := safetensorsBytes(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 4))
		writeTestFile(t, dir, "one.safetensors", string(whole))
		writeTestFile(t, dir, "cut.safetensors", string(whole[:len(whole)-1]))
		src, err := Open(dir)
		if want == "" {
			require.NoError(t, err)
			require.NoError(t, src.Close())
			continue
		}
		require.ErrorContains(t, err, want)
	}
	writeTestFile(t, dir, "generation_config.json", "{]")
	_, err = Open(dir)
	require.ErrorContains(t, err, "generation_config.json: invalid character")
}

func TestLoadRefusesWeightsThatDoNotFit(t *testing.T) {
	cfg := toyConfig("llama")
	for _, c := range []struct {
		change func(tensors map[string][]int)
		want   []string
	}{
		{func(s map[string][]int) { delete(s, "model.layers.1.mlp.up_proj.weight") },
			[]string{"tensor model.layers.1.mlp.up_proj.weight, of shape [12 8], is missing", "shard"}},
		{func(s map[string][]int) { s["model.layers.1.mlp.up_proj.weight"] = []int{8, 12} },
			[]string{"model.safetensors: tensor model.layers.1.mlp.up_proj.weight has shape [8 12]", "asks for [12 8]"}},
		{func(s map[string][]int) { s["model.layers.0.self_attn.q_norm.weight"] = []int{4} },
			[]string{"model.layers.0.self_attn.q_norm.weight of shape [4] belongs to the decoder", "would change the model"}},
		{func(s map[string][]int) { s["model.layers.0.self_attn.o_proj.bias"] = []int{8} }, []string{"o_proj.bias"}},
		{func(s map[string][]int) { s["model.layers.2.input_layernorm.weight"] = []int{8} }, []string{"model.layers.2.",
			"has 2 layers, the last of which is 1", "different models"}},
		{func(s map[string][]int) { s["model.norm.bias"] = []int{8} }, []string{"model.norm.bias"}},
		{func(s map[string][]int) {
			for name := range s {
				if strings.Contains(name, "layers") {
					delete(s, name)
				}
			}
			delete(s, "model.norm.weight")
		}, []string{"has 2 layers, but there are only 1 tensors"}},
		{func(s map[string][]int) {
			s["v_head.weight"] = []int{1, 8}                             // a value head
			s["lm_head.weight"] = []int{10, 8}                           // tied
			s["model.layers.0.self_attn.rotary_emb.inv_freq"] = []int{2} // a table
		}, nil},
	} {
		dir := t.TempDir()
		require.NoError(t, SaveFolder(dir, cfg, fromMap(toyWeights(cfg)), SaveOptions{}))
		shapes := map[string][]int{}
		for _, p := range cfg.Params() {
			shapes[p.Name] = p.Shape
		}
		c.change(shapes)
		var tensors []Tensor
		for name, shape := range shapes {
			n, err := numValues(shape, 1<<20)
			require.NoError(t, err)
			tensors = append(tensors, Tensor{Name: name, Shape: shape, Data: make([]float32, n)})
		}
		require.NoError(t, WriteSafetensors(filepath.Join(dir, singleFile), tensors, F32, nil))
		src, err := Open(dir)
		require.NoError(t, err)
		visited := 0
		err = Load(src, func(string, []float32, []int) error { visited++; return nil })
		require.NoError(t, src.Close())
		if c.want == nil {
			require.NoError(t, err)
			require.Equal(t, len(cfg.Params()), visited)
			continue
		}
		require.Zero(t, visited, "weights were handed out before the check")
		for _, want := range append(c.want, dir) {
			require.ErrorContains(t, err, want)
		}
	}
}
