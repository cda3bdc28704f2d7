package weights

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

func TestGGUFGivesTheModelItWasMadeFrom(t *testing.T) {
	for _, modelType := range []string{"llama", "qwen2"} {
		for _, version := range []uint32{2, 3} {
			for _, align := range []uint32{8, 32, 4096} {
				cfg := toyConfig(modelType)
				weights := toyWeights(cfg)
				b := ggufToy(cfg, weights)
				b.version = version
				b.set("general.alignment", align)
				path := writeTestFile(t, t.TempDir(), "toy.gguf", string(b.build()))
				src, err := Open(path)
				require.NoError(t, err)
				want := cfg
				want.EOS = []int{2, 0} // <|endoftext|> is a control token
				assert.Equal(t, want, src.Config())
				assert.Equal(t, path, src.Path())
				requireWeights(t, src, weights) // the permutation of llama's q and k is undone
				require.NoError(t, src.Close())
			}
		}
	}
}

func TestGGUFBiasesOfLlamaArePermutedToo(t *testing.T) {
	cfg := toyConfig("llama")
	cfg.AttentionBias = true
	weights := toyWeights(cfg)
	src, err := openBytes(ggufToy(cfg, weights).build())
	require.NoError(t, err)
	// nn has one layout with biases, which transformers calls Qwen2.
	assert.Equal(t, "qwen2", src.Config().ModelType)
	assert.True(t, src.Config().AttentionBias)
	requireWeights(t, src, weights)
}

func TestGGUFMetadataHasTheTypesOfTheFile(t *testing.T) {
	b := ggufToy(toyConfig("llama"), toyWeights(toyConfig("llama")))
	for key, value := range map[string]any{
		"a.u32": uint32(7), "a.i32": int32(-7), "a.f32": float32(1.5), "a.bool": true, "a.u64": uint64(1 << 40),
		"a.f32s": []float32{1, 2}, "a.i32s": []int32{-1, 2}, "a.strings": []string{"", "é", "\xff"},
	} {
		b.set(key, value)
		src, err := openBytes(b.build())
		require.NoError(t, err)
		assert.Equal(t, value, src.Metadata()[key])
	}
	src, err := openBytes(b.build())
	require.NoError(t, err)
	assert.Equal(t, "gpt2", src.Metadata()["tokenizer.ggml.model"])
	assert.Equal(t, uint32(2), src.Metadata()["tokenizer.ggml.eos_token_id"])
}

func TestGGUFScalarTypes(t *testing.T) {
	for number, c := range map[uint32]struct {
		bytes []byte
		want  any
	}{
		0: {[]byte{200}, uint8(200)}, 1: {[]byte{200}, int8(-56)}, 2: {[]byte{1, 200}, uint16(51201)},
		3: {[]byte{1, 200}, int16(-14335)}, 5: {[]byte{254, 255, 255, 255}, int32(-2)}, 7: {[]byte{1}, true},
		11: {[]byte{254, 255, 255, 255, 255, 255, 255, 255}, int64(-2)},
		12: {binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.1)), 0.1},
		6:  {binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.1)), float32(0.1)},
	} {
		data := []byte("GGUF\x03\x00\x00\x00")
		data = binary.LittleEndian.AppendUint64(data, 0)
		data = binary.LittleEndian.AppendUint64(data, 1)
		data = append(binary.LittleEndian.AppendUint64(data, 1), 'k')
		data = append(binary.LittleEndian.AppendUint32(data, number), c.bytes...)
		file, err := parseGGUF(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		assert.Equal(t, c.want, file.metadata["k"])
	}
}

func TestGGUFEndTokensComeFromKeysAndControlTokens(t *testing.T) {
	cfg := toyConfig("llama")
	b := ggufToy(cfg, toyWeights(cfg))
	b.set("tokenizer.ggml.eot_token_id", uint32(5))
	b.set("tokenizer.ggml.padding_token_id", uint32(4))
	b.set("tokenizer.ggml.token_type", []int32{1, 3, 3, 1, 1, 1, 1, 1, 1, 1}) // <|endoftext|> as ordinary text
	src, err := openBytes(b.build())
	require.NoError(t, err)
	assert.Equal(t, []int{2, 5}, src.Config().EOS)
	assert.Equal(t, 4, src.Config().Pad)
	b.remove("tokenizer.ggml.bos_token_id")
	b.remove("tokenizer.ggml.eos_token_id")
	b.remove("tokenizer.ggml.tokens")
	src, err = openBytes(b.build())
	require.NoError(t, err)
	assert.Equal(t, []int{5}, src.Config().EOS)
	assert.Equal(t, -1, src.Config().BOS)
}

func TestGGUFDefaultsOfAbsentKeys(t *testing.T) {
	cfg := toyConfig("llama")
	cfg.NumKVHeads, cfg.RopeTheta = 2, 10000
	b := ggufToy(cfg, toyWeights(cfg))
	b.remove("llama.attention.head_count_kv")
	b.remove("llama.rope.freq_base")
	src, err := openBytes(b.build())
	require.NoError(t, err)
	assert.Equal(t, 2, src.Config().NumKVHeads)
	assert.Equal(t, 10000.0, src.Config().RopeTheta)
	b.set("llama.attention.head_count_kv", []int32{2, 2})
	_, err = openBytes(b.build())
	require.NoError(t, err)
	b.set("llama.attention.key_length", uint32(6))
	b.set("llama.attention.value_length", uint32(6))
	src, err = openBytes(b.build())
	require.NoError(t, err)
	assert.Equal(t, 6, src.Config().HeadDim)
}

func TestGGUFRopeScaling(t *testing.T) {
	cfg := toyConfig("llama")
	linear := &nn.RopeScaling{Factor: 4, LowFreqFactor: 1, HighFreqFactor: 2, OriginalMaxPositions: 1}
	for _, c := range []struct {
		keys map[string]any
		want *nn.RopeScaling
		err  string
	}{
		{map[string]any{"rope.scaling.type": "none", "rope.scaling.factor": float32(4)}, nil, ""},
		{map[string]any{"rope.scaling.type": "linear", "rope.scaling.factor": float32(4)}, linear, ""},
		{map[string]any{"rope.scaling.factor": float32(4)}, linear, ""},
		{map[string]any{"rope.scale_linear": float32(4)}, linear, ""},
		{map[string]any{"rope.scaling.factor": float32(0)}, nil, ""},
		{map[string]any{"rope.scaling.type": "linear"}, nil, ""},
		{map[string]any{"rope.scaling.type": "yarn", "rope.scaling.factor": float32(4)}, nil, "yarn is not implemented"},
		{map[string]any{"rope.scaling.factor": float32(0.5)}, nil, "factor of the rotary scaling is 0.5"},
		{map[string]any{"rope.scaling.factor": "x"}, nil, "rope.scaling.factor is x; want a number"},
	} {
		b := ggufToy(cfg, toyWeights(cfg))
		for key, value := range c.keys {
			b.set("llama."+key, value)
		}
		src, err := openBytes(b.build())
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			require.ErrorContains(t, err, "toy.gguf: ")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, src.Config().RopeScaling, c.keys)
	}
}

// llama3Divisors is how llama.cpp's converter computes rope_freqs.weight for Llama 3.
func llama3Divisors(factor, low, high, original, base float64, dim int) []float32 {
	var out []float32
	for i := 0; i < dim; i += 2 {
		freq := 1 / math.Pow(base, float64(i)/float64(dim))
		wavelength := 2 * math.Pi / freq
		switch {
		case wavelength < original/high:
			out = append(out, 1)
		case wavelength > original/low:
			out = append(out, float32(factor))
		default:
			smooth := (original/wavelength - low) / (high - low)
			out = append(out, float32(1/((1-smooth)/factor+smooth)))
		}
	}
	return out
}

func TestGGUFRopeTableOfLlama3BecomesItsScaling(t *testing.T) {
	cfg := toyConfig("llama")
	cfg.HeadDim, cfg.RopeTheta = 64, 500000
	for _, c := range []struct {
		divisors []float32
		want     *nn.RopeScaling
		err      string
	}{
		{llama3Divisors(32, 1, 4, 8192, 500000, 64),
			&nn.RopeScaling{Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}, ""},
		{slices.Repeat([]float32{1}, 32), nil, ""},
		{slices.Repeat([]float32{4}, 32), linearScaling(4), ""},
		{llama3Divisors(32, 1, 4, 4096, 500000, 64), nil, "rope_freqs.weight"},
		{slices.Repeat([]float32{float32(math.NaN())}, 32), nil, "rope_freqs.weight"},
		{slices.Repeat([]float32{1}, 31), nil, "has 31 values, want 32"},
	} {
		b := ggufToy(cfg, toyWeights(cfg))
		b.set("llama.attention.key_length", uint32(64))
		b.set("llama.attention.value_length", uint32(64))
		b.tensors = append(b.tensors, ggufRaw{name: ropeTable, shape: []int{len(c.divisors)}, data: floatBytes(c.divisors)})
		src, err := openBytes(b.build())
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, Check(src), "the table is no weight of the model")
		if c.want == nil {
			assert.Nil(t, src.Config().RopeScaling)
			continue
		}
		got := src.Config().RopeScaling
		require.NotNil(t, got)
		assert.Equal(t, c.want, got)
	}
}

func TestGGUFModelsThatAreRefused(t *testing.T) {
	cfg := toyConfig("llama")
	set := func(key string, value any) func(b *ggufBuilder) { return func(b *ggufBuilder) { b.set(key, value) } }
	first := func(change func(t *ggufRaw)) func(b *ggufBuilder) {
		return func(b *ggufBuilder) { change(&b.tensors[0]) }
	}
	kind := func(number uint32) func(b *ggufBuilder) { return first(func(t *ggufRaw) { t.kind = number }) }
	shape := func(shape ...int) func(b *ggufBuilder) { return first(func(t *ggufRaw) { t.shape = shape }) }
	remove := func(key string) func(b *ggufBuilder) { return func(b *ggufBuilder) { b.remove(key) } }
	for _, c := range []struct {
		change func(b *ggufBuilder)
		want   string
	}{
		{set("general.architecture", "qwen3"), `general.architecture "qwen3" is not supported; llama and qwen2 are`},
		{remove("general.architecture"), `general.architecture "" is not`},
		{remove("llama.block_count"), "llama.block_count is missing"},
		{set("llama.block_count", "x"), "llama.block_count is x; want an integer"},
		{set("llama.block_count", int32(-1)), "llama.block_count is -1; want an integer"},
		{set("llama.block_count", uint32(0)), "num_hidden_layers is 0, must be positive"},
		{set("llama.block_count", uint32(1<<30)), "no model has more than"},
		{set("llama.attention.head_count_kv", []int32{1, 2}), "differs from layer to layer"},
		{set("llama.attention.value_length", uint32(8)), "values of width 8 beside keys of width 4"},
		{set("llama.rope.dimension_count", uint32(2)), "rotary positions on 2 of 4 dimensions"},
		{set("llama.attention.sliding_window", uint32(64)), "sliding window (64) is not implemented"},
		{set("llama.expert_count", uint32(8)), "llama.expert_count is 8; this is not"},
		{set("llama.logit_scale", float32(0.5)), "llama.logit_scale is 0.5"},
		{set("llama.attention.causal", false), "only decoders"},
		{set("split.count", int32(3)), "one of 3 parts of a model"},
		{func(b *ggufBuilder) { b.tensors = b.tensors[1:] }, "token_embd.weight is missing"},
		{kind(23), `tensor "token_embd.weight": storage type IQ4_XS can`},
		{kind(99), `tensor "token_embd.weight": storage type number 99`},
		{kind(8), "a row has 8 values, which is not a multiple of"},
		{first(func(t *ggufRaw) { t.name = "blk.0.attn_norm.weight" }), `tensor "blk.0.attn_norm.weight" occurs twice`},
		{func(b *ggufBuilder) { b.keys = append(b.keys, ggufPair{"a", "1"}, ggufPair{"a", "2"}) },
			`metadata key "a" occurs twice`},
		{set("general.alignment", uint32(24)), "general.alignment is 24; want a power of two"},
		{set("general.alignment", uint32(0)), "general.alignment is 0; want a power of two"},
		{func(b *ggufBuilder) { b.version = 1 }, "version 1 cannot be read; 2 and 3 can"},
		{func(b *ggufBuilder) { b.version = 3 << 24 }, "big-endian"},
		{shape(1, 1, 1, 10, 8), "it has 5 axes"},
		{shape(0, 8), "an axis of 0 elements"},
		{shape(1<<30, 1<<30), "more elements than the file has room for"},
		{shape(10, 16), "tensors token_embd.weight and blk.0.attn_norm.weight overlap"},
		{first(func(t *ggufRaw) { t.skew = 4 }), "its offset 4 is not a multiple of the alignment, 32"},
	} {
		b := ggufToy(cfg, toyWeights(cfg))
		c.change(b)
		_, err := openBytes(b.build())
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "toy.gguf: ")
	}
	_, err := openBytes([]byte("PK\x03\x04 and so on, for some bytes"))
	require.ErrorContains(t, err, `not a GGUF file: it starts with "PK\x03\x04"`)
}

func TestGGUFWeightsThatDoNotFitAreRefused(t *testing.T) {
	cfg := toyConfig("llama")
	for want, change := range map[string]func(b *ggufBuilder){
		"blk.0.attn_q_norm.weight (model.layers.0.self_attn.q_norm.weight) of shape [4] belongs": func(b *ggufBuilder) {
			b.tensors = append(b.tensors, ggufRaw{name: "blk.0.attn_q_norm.weight", shape: []int{4}, data: make([]byte, 16)})
		},
		"blk.0.ffn_gate_exps.weight": func(b *ggufBuilder) {
			b.tensors = append(b.tensors, ggufRaw{name: "blk.0.ffn_gate_exps.weight", shape: []int{4}, data: make([]byte, 16)})
		},
		"output.bias": func(b *ggufBuilder) {
			b.tensors = append(b.tensors, ggufRaw{name: "output.bias", shape: []int{10}, data: make([]byte, 40)})
		},
		"tensor model.layers.1.mlp.down_proj.weight, of shape [8 12], is missing": func(b *ggufBuilder) {
			b.tensors = slices.DeleteFunc(b.tensors, func(t ggufRaw) bool { return t.name == "blk.1.ffn_down.weight" })
		},
		"tensor blk.1.ffn_down.weight (model.layers.1.mlp.down_proj.weight) has shape [12 8], but": func(b *ggufBuilder) {
			for i := range b.tensors {
				if b.tensors[i].name == "blk.1.ffn_down.weight" {
					slices.Reverse(b.tensors[i].shape)
				}
			}
		},
		"has 100 layers, but there are only": func(b *ggufBuilder) { b.set("llama.block_count", uint32(100)) },
	} {
		b := ggufToy(cfg, toyWeights(cfg))
		change(b)
		src, err := openBytes(b.build())
		require.NoError(t, err)
		err = Load(src, func(string, []float32, []int) error { t.Fatal("weights handed out"); return nil })
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "toy.gguf: ")
	}
}

func TestGGUFTruncatedAnywhereIsAnError(t *testing.T) {
	cfg := toyConfig("llama")
	whole := ggufToy(cfg, toyWeights(cfg)).build()
	_, err := openBytes(whole)
	require.NoError(t, err)
	for n := range whole {
		_, err := openBytes(whole[:n])
		require.ErrorContains(t, err, "toy.gguf: ", "cut to %d of %d bytes", n, len(whole))
		require.True(t, strings.Contains(err.Error(), "truncated"), "cut to %d of %d bytes: %v", n, len(whole), err)
	}
}

func TestGGUFCorruptAnywhereNeverPanicsOrAllocatesMuch(t *testing.T) {
	cfg := toyConfig("llama")
	cfg.NumLayers = 1
	whole := ggufToy(cfg, toyWeights(cfg)).build()
	var refused int
	allocated := allocatedBytes(func() {
		for i := range whole[:len(whole)-4*cfg.NumParams()] {
			for _, b := range []byte{0, 0x7f, 0xff, whole[i] ^ 1} {
				data := bytes.Clone(whole)
				data[i] = b
				if exerciseGGUF(data) != nil {
					refused++
				}
			}
		}
	})
	t.Logf("%d refused, %d MB in all", refused, allocated>>20)
	assert.Greater(t, refused, 1000)
	// A reader's buffer of 64 KB and the copy of the file dominate; a claimed length of GBs would stand out.
	assert.Less(t, allocated, uint64(4*len(whole))*(256<<10))
}

// exerciseGGUF opens a file, checks it and reads all its tensors.
func exerciseGGUF(data []byte) error {
	src, err := openBytes(data)
	if err != nil {
		return err
	}
	for _, name := range src.Names() {
		if _, _, err := src.Tensor(name); err != nil {
			return err
		}
	}
	return Check(src)
}

func TestGGUFHugeLengthsAllocateLittle(t *testing.T) {
	header := func(tensors, keys uint64) []byte {
		data := []byte("GGUF\x03\x00\x00\x00")
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(data, tensors), keys)
	}
	key := append(binary.LittleEndian.AppendUint64(header(0, 1), 1), 'k')
	array := func(kind uint32, n uint64) []byte {
		data := binary.LittleEndian.AppendUint32(bytes.Clone(key), ggufArrayKind)
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(data, kind), n)
	}
	for _, n := range []uint64{1 << 24, 1 << 31, math.MaxInt64, math.MaxUint64} {
		for _, data := range [][]byte{
			header(n, 0), header(0, n), binary.LittleEndian.AppendUint64(header(0, 1), n),
			binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(bytes.Clone(key), 8), n),
			array(0, n), array(8, n), array(12, n), array(9, n),
			append(array(12, 1<<20), make([]byte, 1<<20)...), // enough bytes for the bound, not for the elements
		} {
			allocated := allocatedBytes(func() {
				_, err := openBytes(data)
				require.Error(t, err)
			})
			require.Less(t, allocated, uint64(8<<20))
		}
	}
}
