package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// hfConfig is what decides in config.json what a decoder computes. Before decoding it is filled with the defaults that
// transformers has for the model type; pointers are fields where null means something other than an absent key.
type hfConfig struct {
	ModelType        string          `json:"model_type"`
	VocabSize        int             `json:"vocab_size"`
	HiddenSize       int             `json:"hidden_size"`
	IntermediateSize int             `json:"intermediate_size"`
	NumLayers        int             `json:"num_hidden_layers"`
	NumHeads         int             `json:"num_attention_heads"`
	NumKVHeads       *int            `json:"num_key_value_heads"`
	HeadDim          int             `json:"head_dim"`
	MaxPositions     int             `json:"max_position_embeddings"`
	NormEps          float64         `json:"rms_norm_eps"`
	HiddenAct        string          `json:"hidden_act"`
	TieEmbeddings    bool            `json:"tie_word_embeddings"`
	AttentionBias    bool            `json:"attention_bias"`
	MLPBias          bool            `json:"mlp_bias"`
	RopeTheta        float64         `json:"rope_theta"`
	RopeScaling      json.RawMessage `json:"rope_scaling"`
	RopeParameters   json.RawMessage `json:"rope_parameters"`
	RopeInterleaved  bool            `json:"rope_interleaved"`
	PartialRotary    float64         `json:"partial_rotary_factor"`
	UseSlidingWindow bool            `json:"use_sliding_window"`
	SlidingWindow    *int            `json:"sliding_window"`
	MaxWindowLayers  int             `json:"max_window_layers"`
	LayerTypes       []string        `json:"layer_types"`
	Quantization     json.RawMessage `json:"quantization_config"`
	specialTokens
}

// specialTokens are the keys that config.json and generation_config.json share.
type specialTokens struct {
	BOS *int     `json:"bos_token_id"`
	EOS tokenIDs `json:"eos_token_id"`
	Pad *int     `json:"pad_token_id"`
}

// tokenIDs is a token id, a list of them, or null.
type tokenIDs []int

func (t *tokenIDs) UnmarshalJSON(text []byte) error {
	*t = nil
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]int)(t))
	}
	var id *int
	if err := json.Unmarshal(text, &id); err != nil {
		return errors.New("want a token id or a list of them")
	}
	if id != nil {
		*t = tokenIDs{*id}
	}
	return nil
}

// hfDefaults returns the defaults of transformers' configuration classes; ok is false for an unsupported model type.
func hfDefaults(modelType string) (defaults hfConfig, ok bool) {
	c := hfConfig{HiddenAct: "silu", NormEps: 1e-6, RopeTheta: 10000, PartialRotary: 1}
	llamaTokens := specialTokens{BOS: new(1), EOS: tokenIDs{2}}
	switch modelType {
	case "llama":
		c.MaxPositions, c.specialTokens = 2048, llamaTokens
	case "mistral":
		c.MaxPositions, c.specialTokens = 4096*32, llamaTokens
		c.NumKVHeads, c.SlidingWindow = new(8), new(4096)
	case "qwen2":
		c.MaxPositions, c.NumKVHeads = 32768, new(32)
		c.SlidingWindow, c.MaxWindowLayers = new(4096), 28
	default:
		return hfConfig{}, false
	}
	return c, true
}

// readHFConfig reads config.json and, if it is there, generation_config.json of a folder. The end-of-sequence ids are
// those of both files, since base and chat models name different ones: Qwen2.5's chat models stop at 151645 by the one
// file and at 151645 and 151643 by the other.
func readHFConfig(dir string) (nn.Config, error) {
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nn.Config{}, fmt.Errorf("model folder: %w", err)
	}
	cfg, err := parseHFConfig(text)
	if err != nil {
		return nn.Config{}, fmt.Errorf("%s: %w", path, err)
	}
	path = filepath.Join(dir, "generation_config.json")
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cfg, nil
	}
	if err != nil {
		return nn.Config{}, fmt.Errorf("model folder: %w", err)
	}
	var generation specialTokens
	if err := json.Unmarshal(text, &generation); err != nil {
		return nn.Config{}, fmt.Errorf("%s: %w", path, err)
	}
	addEOS(&cfg, generation.EOS...)
	if cfg.BOS < 0 {
		cfg.BOS = idOrNone(generation.BOS)
	}
	if cfg.Pad < 0 {
		cfg.Pad = idOrNone(generation.Pad)
	}
	return cfg, nil
}

// parseHFConfig turns config.json into a configuration, and refuses what nn does not compute.
func parseHFConfig(text []byte) (nn.Config, error) {
	var kind struct {
		ModelType string `json:"model_type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nn.Config{}, err
	}
	c, ok := hfDefaults(kind.ModelType)
	if !ok {
		return nn.Config{}, fmt.Errorf("model_type %q is not supported; supported are llama, qwen2, "+
			"and mistral without a sliding window", kind.ModelType)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nn.Config{}, err
	}
	if err := c.checkSupported(); err != nil {
		return nn.Config{}, err
	}
	cfg := nn.Config{
		ModelType: c.ModelType, VocabSize: c.VocabSize, HiddenSize: c.HiddenSize,
		IntermediateSize: c.IntermediateSize, NumLayers: c.NumLayers, NumHeads: c.NumHeads, NumKVHeads: c.NumHeads,
		HeadDim: c.HeadDim, MaxPositions: c.MaxPositions, RopeTheta: c.RopeTheta, NormEps: c.NormEps,
		AttentionBias: c.ModelType == "qwen2", TieEmbeddings: c.TieEmbeddings,
		BOS: idOrNone(c.BOS), Pad: idOrNone(c.Pad),
	}
	if c.ModelType == "mistral" {
		cfg.ModelType = "llama"
	}
	if c.NumKVHeads != nil {
		cfg.NumKVHeads = *c.NumKVHeads
	}
	if cfg.HeadDim == 0 && c.NumHeads > 0 {
		if c.HiddenSize%c.NumHeads != 0 {
			return nn.Config{}, fmt.Errorf("there is no head_dim, and hidden_size (%d) is not a multiple of "+
				"num_attention_heads (%d)", c.HiddenSize, c.NumHeads)
		}
		cfg.HeadDim = c.HiddenSize / c.NumHeads
	}
	addEOS(&cfg, c.EOS...)
	if err := c.rope(&cfg); err != nil {
		return nn.Config{}, err
	}
	return cfg, checkConfig(&cfg)
}

// checkSupported returns an error for a setting that changes what the model computes in a way that nn does not.
func (c *hfConfig) checkSupported() error {
	windowed := c.SlidingWindow != nil && *c.SlidingWindow < c.MaxPositions
	switch {
	case c.ModelType == "qwen2" && c.LayerTypes == nil:
		windowed = windowed && c.UseSlidingWindow && c.MaxWindowLayers < c.NumLayers
	case c.ModelType != "mistral":
		windowed = slices.ContainsFunc(c.LayerTypes, func(kind string) bool { return kind != "full_attention" })
	}
	quantized := len(c.Quantization) > 0 && !bytes.Equal(c.Quantization, []byte("null"))
	for _, refused := range []struct {
		is   bool
		what string
	}{
		{quantized, "quantization_config: quantised safetensors cannot be read; use the unquantised weights, or a GGUF file"},
		{windowed, "attention with a sliding window is not implemented; use a model with full attention"},
		{c.HiddenAct != "silu" && c.HiddenAct != "swish",
			fmt.Sprintf("hidden_act is %q; only silu is implemented", c.HiddenAct)},
		{c.AttentionBias && c.ModelType != "qwen2",
			"attention_bias true gives o_proj a bias too, which is not implemented"},
		{c.MLPBias, "mlp_bias true is not implemented"},
		{c.RopeInterleaved, "rope_interleaved true is not implemented"},
		{c.PartialRotary != 1, "partial_rotary_factor other than 1 is not implemented"},
	} {
		if refused.is {
			return errors.New(refused.what)
		}
	}
	return nil
}

// checkConfig validates a configuration that was read from a file, and bounds it so that products of its fields cannot
// overflow.
func checkConfig(cfg *nn.Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	const limit = 1 << 28
	for _, v := range []int{
		cfg.VocabSize, cfg.HiddenSize, cfg.IntermediateSize, cfg.NumLayers, cfg.NumHeads, cfg.HeadDim, cfg.MaxPositions,
	} {
		if v > limit {
			return fmt.Errorf("model config: a size is %d; no model has more than %d", v, limit)
		}
	}
	return nil
}

// addEOS appends the end-of-sequence ids that are not there yet.
func addEOS(cfg *nn.Config, ids ...int) {
	for _, id := range ids {
		if id >= 0 && !slices.Contains(cfg.EOS, id) {
			cfg.EOS = append(cfg.EOS, id)
		}
	}
}

func idOrNone(id *int) int {
	if id == nil {
		return -1
	}
	return *id
}
