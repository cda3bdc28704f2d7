package weights

import (
	"hash/crc32"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// realModel holds what Python's gguf 0.19 makes of a file: dequantize, with llama's q and k put back into the order of
// Hugging Face by reshape(heads, rows/heads/2, 2, width).swapaxes(1, 2).
type realModel struct {
	file    string
	config  nn.Config
	crc     uint32 // CRC-32 over all parameters in order, as little-endian float32
	tensors []realTensor
}

type realTensor struct {
	name, kind string
	crc        uint32
	first      [3]float32
	deviation  float64
}

var realModels = []realModel{
	{"SmolLM2-135M-Instruct.Q4_1.gguf", nn.Config{
		ModelType: "llama", VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30, NumHeads: 9,
		NumKVHeads: 3, HeadDim: 64, MaxPositions: 8192, RopeTheta: 1e5, NormEps: 1e-5, TieEmbeddings: true,
		BOS: 1, Pad: 2, EOS: []int{2, 0},
	}, 0xcf9f6559, []realTensor{
		{"model.embed_tokens.weight", "Q8_0", 0x39786908,
			[3]float32{-0.10654449462890625, 0.032978057861328125, 0.048198699951171875}, 0.1355782002210617},
		{"model.layers.0.input_layernorm.weight", "F32", 0xcb4130eb,
			[3]float32{0.01397705078125, 0.0238037109375, -0.019775390625}, 0.03990942984819412},
		{"model.layers.0.self_attn.q_proj.weight", "Q4_1", 0x568c15c3,
			[3]float32{-0.0963134765625, 0.1573486328125, -0.0963134765625}, 0.28394606709480286},
	}},
	{"qwen2.5-coder-0.5b-instruct.gguf", nn.Config{
		ModelType: "qwen2", VocabSize: 151936, HiddenSize: 896, IntermediateSize: 4864, NumLayers: 24, NumHeads: 14,
		NumKVHeads: 2, HeadDim: 64, MaxPositions: 32768, RopeTheta: 1e6, NormEps: 1e-6, AttentionBias: true,
		BOS: 151643, Pad: 151643, EOS: []int{151645, 151643},
	}, 0x66177601, []realTensor{
		{"model.embed_tokens.weight", "Q5_0", 0xdfa299da,
			[3]float32{-0.01709747314453125, 0.02469635009765625, 0.022796630859375}, 0.01732761226594448},
		{"model.layers.0.self_attn.q_proj.weight", "Q5_0", 0x62c11a2f,
			[3]float32{-0.01084136962890625, -0.0216827392578125, 0.004065513610839844}, 0.05279267951846123},
		{"model.layers.0.self_attn.v_proj.weight", "Q8_0", 0x305e8a77,
			[3]float32{0.009490013122558594, 0.011263847351074219, 0.009312629699707031}, 0.008437388576567173},
		{"model.layers.0.mlp.down_proj.weight", "Q6_K", 0x918276c6,
			[3]float32{-0.0018410682678222656, -0.0018410682678222656, 0.02945709228515625}, 0.012928768061101437},
		{"model.layers.2.mlp.down_proj.weight", "Q4_K", 0x496e7b86,
			[3]float32{-0.0026998519897460938, -0.0006878376007080078, 0.0006535053253173828}, 0.004414933267980814},
	}},
}

func TestRealGGUFsAgreeWithPythonInEveryBit(t *testing.T) {
	for _, m := range realModels {
		t.Run(m.file, func(t *testing.T) {
			src, err := Open(testenv.Model(t, m.file))
			require.NoError(t, err)
			defer src.Close()
			assert.Equal(t, m.config, src.Config())
			for _, want := range m.tensors {
				info, ok := src.Info(want.name)
				require.True(t, ok)
				assert.Equal(t, want.kind, info.Type)
				data, shape, err := src.Tensor(want.name)
				require.NoError(t, err)
				assert.Equal(t, info.Shape, shape)
				assert.Equal(t, want.first[:], data[:3])
				assert.InDelta(t, want.deviation, deviation(data), 1e-4*want.deviation)
				assert.Equal(t, want.crc, crcOf(0, data), want.name)
			}
			crc, spent := uint32(0), time.Duration(0)
			start := time.Now()
			require.NoError(t, Load(src, func(name string, data []float32, shape []int) error {
				spent += time.Since(start)
				crc = crcOf(crc, data)
				start = time.Now()
				return nil
			}))
			t.Logf("%d weights read in %v", m.config.NumParams(), spent)
			assert.Equal(t, m.crc, crc, "some tensor differs")
		})
	}
}

func TestRealGGUFTokenizerMetadata(t *testing.T) {
	for file, want := range map[string]struct {
		pre           string
		tokens, merge int
	}{
		"SmolLM2-135M-Instruct.Q4_1.gguf":  {"smollm", 49152, 48900},
		"qwen2.5-coder-0.5b-instruct.gguf": {"qwen2", 151936, 151387},
	} {
		src, err := Open(testenv.Model(t, file))
		require.NoError(t, err)
		metadata := src.Metadata()
		assert.Equal(t, want.pre, metadata["tokenizer.ggml.pre"])
		assert.Len(t, metadata["tokenizer.ggml.tokens"].([]string), want.tokens)
		assert.Len(t, metadata["tokenizer.ggml.token_type"].([]int32), want.tokens)
		assert.Len(t, metadata["tokenizer.ggml.merges"].([]string), want.merge)
		assert.Contains(t, metadata["tokenizer.chat_template"], "<|im_start|>")
		require.NoError(t, src.Close())
	}
}

// crcOf continues a checksum over the little-endian bytes of values.
func crcOf(crc uint32, values []float32) uint32 {
	buffer := make([]byte, 4*encodeValues)
	for len(values) > 0 {
		n := min(encodeValues, len(values))
		_ = F32.encode(buffer, values[:n]) // cannot fail
		crc = crc32.Update(crc, crc32.IEEETable, buffer[:4*n])
		values = values[n:]
	}
	return crc
}

func deviation(values []float32) float64 {
	var sum, squares float64
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(values))
	return math.Sqrt(squares/n - sum*sum/n/n)
}
