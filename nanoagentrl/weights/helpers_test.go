package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// toyConfig returns a two-layer model of a few thousand weights.
func toyConfig(modelType string) nn.Config {
	return nn.Config{
		ModelType: modelType, VocabSize: 10, HiddenSize: 8, IntermediateSize: 12, NumLayers: 2, NumHeads: 2,
		NumKVHeads: 1, HeadDim: 4, MaxPositions: 128, RopeTheta: 10000, NormEps: 1e-5,
		AttentionBias: modelType == "qwen2", TieEmbeddings: modelType == "llama", BOS: 1, Pad: -1, EOS: []int{2},
	}
}

// toyWeights returns random values for every parameter; all of them have at most 8 significant bits, so that they
// survive F16 and BF16.
func toyWeights(cfg nn.Config) map[string][]float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	weights := map[string][]float32{}
	for _, p := range cfg.Params() {
		n, _ := numValues(p.Shape, math.MaxInt64)
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(rng.IntN(255)-127) / 64
		}
		weights[p.Name] = values
	}
	return weights
}

// fromMap makes the argument of SaveFolder from a map.
func fromMap(weights map[string][]float32) func(string) ([]float32, error) {
	return func(name string) ([]float32, error) {
		data, ok := weights[name]
		if !ok {
			return nil, fmt.Errorf("no weights for %s", name)
		}
		return data, nil
	}
}

// requireWeights loads src and compares every parameter, and their order, with want.
func requireWeights(t *testing.T, src Source, want map[string][]float32) {
	t.Helper()
	var order []string
	require.NoError(t, Load(src, func(name string, data []float32, shape []int) error {
		require.Equal(t, want[name], data, name)
		order = append(order, name)
		return nil
	}))
	cfg := src.Config()
	var params []string
	for _, p := range cfg.Params() {
		params = append(params, p.Name)
	}
	require.Equal(t, params, order)
}

func writeTestFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// ggufBuilder writes GGUF files for tests.
type ggufBuilder struct {
	version uint32
	keys    []ggufPair
	tensors []ggufRaw
}

type ggufPair struct {
	key   string
	value any
}

// ggufRaw is a tensor with its shape in row-major order and its encoded values.
type ggufRaw struct {
	name  string
	shape []int
	kind  uint32
	data  []byte
	skew  int // added to the offset that the header gives
}

func (b *ggufBuilder) set(key string, value any) {
	for i := range b.keys {
		if b.keys[i].key == key {
			b.keys[i].value = value
			return
		}
	}
	b.keys = append(b.keys, ggufPair{key, value})
}

func (b *ggufBuilder) remove(key string) {
	for i := range b.keys {
		if b.keys[i].key == key {
			b.keys = append(b.keys[:i:i], b.keys[i+1:]...)
			return
		}
	}
}

func (b *ggufBuilder) build() []byte {
	var out bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
			}
			if err := binary.Write(&out, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	align := 32
	put([]byte("GGUF"), b.version, uint64(len(b.tensors)), uint64(len(b.keys)))
	for _, pair := range b.keys {
		if a, ok := pair.value.(uint32); ok && a > 0 && pair.key == "general.alignment" {
			align = int(a)
		}
		put(pair.key)
		switch v := pair.value.(type) {
		case uint32:
			put(uint32(4), v)
		case int32:
			put(uint32(5), v)
		case float32:
			put(uint32(6), v)
		case bool:
			put(uint32(7), v)
		case string:
			put(uint32(8), v)
		case uint64:
			put(uint32(10), v)
		case []int32:
			put(uint32(9), uint32(5), uint64(len(v)), v)
		case []float32:
			put(uint32(9), uint32(6), uint64(len(v)), v)
		case []string:
			put(uint32(9), uint32(8), uint64(len(v)))
			for _, s := range v {
				put(s)
			}
		default:
			panic(fmt.Sprintf("no GGUF type for %T", v))
		}
	}
	offset := 0
	for _, t := range b.tensors {
		put(t.name, uint32(len(t.shape)))
		for i := range t.shape {
			put(uint64(t.shape[len(t.shape)-1-i]))
		}
		put(t.kind, uint64(offset+t.skew))
		offset += (len(t.data) + align - 1) / align * align
	}
	for _, t := range b.tensors {
		out.Write(make([]byte, (align-out.Len()%align)%align))
		out.Write(t.data)
	}
	return out.Bytes()
}

func floatBytes(values []float32) []byte {
	out := make([]byte, 4*len(values))
	if err := F32.encode(out, values); err != nil {
		panic(err)
	}
	return out
}

// ggufToyNames are the GGUF names of the parts of a block.
var ggufToyNames = map[string]string{
	"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
	"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

// ggufToy returns a GGUF file of a toy model in F32, as llama.cpp's converter writes it.
func ggufToy(cfg nn.Config, weights map[string][]float32) *ggufBuilder {
	arch := cfg.ModelType
	b := &ggufBuilder{version: 3, keys: []ggufPair{
		{"general.architecture", arch},
		{arch + ".block_count", uint32(cfg.NumLayers)},
		{arch + ".context_length", uint32(cfg.MaxPositions)},
		{arch + ".embedding_length", uint32(cfg.HiddenSize)},
		{arch + ".feed_forward_length", uint32(cfg.IntermediateSize)},
		{arch + ".attention.head_count", uint32(cfg.NumHeads)},
		{arch + ".attention.head_count_kv", uint32(cfg.NumKVHeads)},
		{arch + ".attention.layer_norm_rms_epsilon", float32(cfg.NormEps)},
		{arch + ".rope.freq_base", float32(cfg.RopeTheta)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.tokens", []string{"<|endoftext|>", "<s>", "<|im_end|>", "a", "b", "c", "d", "e", "f", "g"}},
		{"tokenizer.ggml.token_type", []int32{3, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
		{"tokenizer.ggml.bos_token_id", uint32(1)},
		{"tokenizer.ggml.eos_token_id", uint32(2)},
	}}
	for _, p := range cfg.Params() {
		name := map[string]string{"model.embed_tokens.weight": "token_embd.weight",
			"model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[p.Name]
		data := weights[p.Name]
		var layer int
		if _, err := fmt.Sscanf(p.Name, "model.layers.%d.", &layer); err == nil {
			rest := p.Name[len(fmt.Sprintf("model.layers.%d.", layer)):]
			ext := filepath.Ext(rest)
			part := rest[:len(rest)-len(ext)]
			name = fmt.Sprintf("blk.%d.%s%s", layer, ggufToyNames[part], ext)
			heads := map[string]int{"self_attn.q_proj": cfg.NumHeads, "self_attn.k_proj": cfg.NumKVHeads}[part]
			if arch == "llama" && heads > 0 {
				data = permute(data, p.Shape[0], heads)
			}
		}
		b.tensors = append(b.tensors, ggufRaw{name: name, shape: p.Shape, data: floatBytes(data)})
	}
	return b
}

// permute is what llama.cpp's converter does to query and key projections:
// w.reshape(heads, 2, rows/heads/2, width).swapaxes(1, 2).
func permute(w []float32, rows, heads int) []float32 {
	width, half := len(w)/rows, rows/heads/2
	out := make([]float32, 0, len(w))
	for h := range heads {
		for i := range half {
			for j := range 2 {
				row := h*2*half + j*half + i
				out = append(out, w[row*width:(row+1)*width]...)
			}
		}
	}
	return out
}

// openBytes reads a GGUF file from memory.
func openBytes(data []byte) (*ggufSource, error) {
	return newGGUF("toy.gguf", bytes.NewReader(data), int64(len(data)))
}

// readerAt reads from a string.
func readerAt(s string) *bytes.Reader { return bytes.NewReader([]byte(s)) }
