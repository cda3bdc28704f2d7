package nn

import (
	"errors"
	"fmt"
)

// Config holds the shape of a decoder-only transformer of the Llama / Qwen2 family: grouped-query attention, rotary
// positions, RMSNorm before each half of a block, a SwiGLU feed-forward layer, and an output matrix that may be tied
// to the embedding. The field names follow the keys of Hugging Face's config.json.
type Config struct {
	// ModelType is "llama" or "qwen2"; it only decides what is written into config.json.
	ModelType string
	// VocabSize is the number of rows of the embedding matrix, which may exceed the tokenizer's vocabulary.
	VocabSize int
	// HiddenSize is the width of the residual stream.
	HiddenSize int
	// IntermediateSize is the width of the feed-forward layer.
	IntermediateSize int
	// NumLayers is the number of transformer blocks.
	NumLayers int
	// NumHeads is the number of query heads.
	NumHeads int
	// NumKVHeads is the number of key and value heads; it divides NumHeads.
	NumKVHeads int
	// HeadDim is the width of one head; it is even.
	HeadDim int
	// MaxPositions is the longest sequence, in tokens, that the model was made for.
	MaxPositions int
	// RopeTheta is the base of the rotary frequencies.
	RopeTheta float64
	// RopeScaling is Llama 3's frequency scaling; nil means none.
	RopeScaling *RopeScaling
	// NormEps is added to the mean square in RMSNorm.
	NormEps float64
	// AttentionBias says whether the query, key and value projections have a bias, as in Qwen2.
	AttentionBias bool
	// TieEmbeddings says whether the output matrix is the embedding matrix.
	TieEmbeddings bool
	// BOS, EOS and Pad are token ids; BOS and Pad are -1 when the model has none. EOS may hold several ids, since base
	// and chat models name different ones in config.json and generation_config.json.
	BOS, Pad int
	EOS      []int
}

// RopeScaling holds the parameters of Llama 3's rotary frequency scaling ("rope_type": "llama3" in config.json).
type RopeScaling struct {
	Factor, LowFreqFactor, HighFreqFactor float64
	OriginalMaxPositions                  int
}

// graphKey names everything in the config that graphs depend on beside their inputs.
func (c *Config) graphKey() string {
	copied := *c
	copied.RopeScaling = nil // an address; it only changes the rotary tables, which are inputs
	return fmt.Sprintf("%+v", copied)
}

// Validate returns an error that names the first field whose value no model can have.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"intermediate_size", c.IntermediateSize},
		{"num_hidden_layers", c.NumLayers}, {"num_attention_heads", c.NumHeads},
		{"num_key_value_heads", c.NumKVHeads}, {"head_dim", c.HeadDim}, {"max_position_embeddings", c.MaxPositions},
	} {
		if f.value <= 0 {
			return fmt.Errorf("model config: %s is %d, must be positive", f.name, f.value)
		}
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		return fmt.Errorf("model config: num_attention_heads (%d) is not a multiple of num_key_value_heads (%d)",
			c.NumHeads, c.NumKVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("model config: head_dim (%d) is odd; rotary positions need pairs", c.HeadDim)
	}
	if c.RopeTheta <= 0 || c.NormEps <= 0 {
		return errors.New("model config: rope_theta and rms_norm_eps must be positive")
	}
	return nil
}

// NumParams returns the number of weights of a model of this shape.
func (c *Config) NumParams() int {
	total := 0
	for _, p := range c.Params() {
		size := 1
		for _, d := range p.Shape {
			size *= d
		}
		total += size
	}
	return total
}

// Param names one weight tensor and its shape.
type Param struct {
	Name  string
	Shape []int
}

// Params lists the weight tensors of a model of this shape under their Hugging Face names, in a fixed order: the
// embedding, the blocks, the final norm, and the output matrix unless it is tied. Projections are stored
// [out, in], as in safetensors files.
func (c *Config) Params() []Param {
	params := []Param{{"model.embed_tokens.weight", []int{c.VocabSize, c.HiddenSize}}}
	for layer := range c.NumLayers {
		params = append(params, c.LayerParams(layer)...)
	}
	params = append(params, Param{"model.norm.weight", []int{c.HiddenSize}})
	if !c.TieEmbeddings {
		params = append(params, Param{"lm_head.weight", []int{c.VocabSize, c.HiddenSize}})
	}
	return params
}

// LayerParams lists the weight tensors of one block, in the order in which block graphs take them.
func (c *Config) LayerParams(layer int) []Param {
	prefix := fmt.Sprintf("model.layers.%d.", layer)
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	params := []Param{
		{prefix + "input_layernorm.weight", []int{c.HiddenSize}},
		{prefix + "self_attn.q_proj.weight", []int{q, c.HiddenSize}},
		{prefix + "self_attn.k_proj.weight", []int{kv, c.HiddenSize}},
		{prefix + "self_attn.v_proj.weight", []int{kv, c.HiddenSize}},
		{prefix + "self_attn.o_proj.weight", []int{c.HiddenSize, q}},
		{prefix + "post_attention_layernorm.weight", []int{c.HiddenSize}},
		{prefix + "mlp.gate_proj.weight", []int{c.IntermediateSize, c.HiddenSize}},
		{prefix + "mlp.up_proj.weight", []int{c.IntermediateSize, c.HiddenSize}},
		{prefix + "mlp.down_proj.weight", []int{c.HiddenSize, c.IntermediateSize}},
	}
	if c.AttentionBias {
		params = append(params,
			Param{prefix + "self_attn.q_proj.bias", []int{q}},
			Param{prefix + "self_attn.k_proj.bias", []int{kv}},
			Param{prefix + "self_attn.v_proj.bias", []int{kv}})
	}
	return params
}
