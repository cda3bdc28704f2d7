// Package bert is the encoder of BERT (Devlin and others, arXiv:1810.04805) as sentence embedders use it: learned
// positions, token types, attention in both directions, LayerNorm after each half of a block, GELU. It runs forward
// only and ends with the mean of the token vectors, scaled to length 1.
//
// Axis letters in shape comments: B rows, T tokens of a row, N = B*T tokens, D hidden size, H heads, E head dimension,
// F feed-forward size.
package bert

import "fmt"

// Config holds the shape of an encoder. The field names follow the keys of Hugging Face's config.json.
type Config struct {
	// VocabSize is the number of rows of the embedding matrix.
	VocabSize int
	// HiddenSize is the width of the residual stream, IntermediateSize that of the feed-forward layer.
	HiddenSize, IntermediateSize int
	// NumLayers is the number of blocks, NumHeads that of the attention heads of each; it divides HiddenSize.
	NumLayers, NumHeads int
	// MaxPositions is the longest row in tokens, TypeVocabSize the number of token types, of which the first is used.
	MaxPositions, TypeVocabSize int
	// NormEps is added to the variance in LayerNorm.
	NormEps float64
}

// Validate returns an error that names the first field whose value no encoder can have.
func (c *Config) Validate() error {
	const most = 1 << 24
	for _, f := range []struct {
		name  string
		value int
	}{
		{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"intermediate_size", c.IntermediateSize},
		{"num_hidden_layers", c.NumLayers}, {"num_attention_heads", c.NumHeads},
		{"max_position_embeddings", c.MaxPositions}, {"type_vocab_size", c.TypeVocabSize},
	} {
		if f.value <= 0 || f.value > most {
			return fmt.Errorf("encoder config: %s is %d, must be from 1 to %d", f.name, f.value, most)
		}
	}
	if c.HiddenSize%c.NumHeads != 0 {
		return fmt.Errorf("encoder config: hidden_size (%d) is not a multiple of num_attention_heads (%d)", c.HiddenSize,
			c.NumHeads)
	}
	if !(c.NormEps > 0) {
		return fmt.Errorf("encoder config: layer_norm_eps is %g, must be positive", c.NormEps)
	}
	return nil
}

// Param names one weight tensor and its shape.
type Param struct {
	Name  string
	Shape []int
}

// Params lists the weight tensors of an encoder of this shape under their names in checkpoints of BertModel.
// Projections are stored [out, in].
func (c *Config) Params() []Param {
	d, f := c.HiddenSize, c.IntermediateSize
	params := []Param{
		{wordEmbedding, []int{c.VocabSize, d}}, {positionEmbedding, []int{c.MaxPositions, d}},
		{typeEmbedding, []int{c.TypeVocabSize, d}}, {embeddingNorm + ".weight", []int{d}}, {embeddingNorm + ".bias", []int{d}},
	}
	for layer := range c.NumLayers {
		for _, part := range []struct {
			name  string
			shape []int
		}{
			{"attention.self.query", []int{d, d}}, {"attention.self.key", []int{d, d}}, {"attention.self.value", []int{d, d}},
			{"attention.output.dense", []int{d, d}}, {"attention.output.LayerNorm", []int{d}},
			{"intermediate.dense", []int{f, d}}, {"output.dense", []int{d, f}}, {"output.LayerNorm", []int{d}},
		} {
			name := layerName(layer, part.name)
			params = append(params, Param{name + ".weight", part.shape}, Param{name + ".bias", part.shape[:1]})
		}
	}
	return params
}

const (
	wordEmbedding     = "embeddings.word_embeddings.weight"
	positionEmbedding = "embeddings.position_embeddings.weight"
	typeEmbedding     = "embeddings.token_type_embeddings.weight"
	embeddingNorm     = "embeddings.LayerNorm"
)

func layerName(layer int, part string) string { return fmt.Sprintf("encoder.layer.%d.%s", layer, part) }
