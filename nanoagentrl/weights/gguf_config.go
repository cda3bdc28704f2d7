package weights

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// ggufKeys reads the settings of one architecture from a GGUF file's metadata. The first error sticks.
type ggufKeys struct {
	metadata map[string]any
	arch     string
	err      error
}

// ggufConfig turns a GGUF file's metadata into a configuration, and refuses what nn does not compute. divisors are the
// values of rope_freqs.weight, or nil.
func ggufConfig(file *ggufFile, divisors []float32) (nn.Config, error) {
	arch, _ := file.metadata["general.architecture"].(string)
	if arch != "llama" && arch != "qwen2" {
		return nn.Config{}, fmt.Errorf("general.architecture %q is not supported; llama and qwen2 are", arch)
	}
	k := &ggufKeys{metadata: file.metadata, arch: arch}
	shapes := map[string][]int{}
	for _, t := range file.tensors {
		shapes[t.name] = t.shape
	}
	embedding := shapes["token_embd.weight"]
	if len(embedding) != 2 {
		return nn.Config{}, fmt.Errorf("tensor token_embd.weight is missing or no matrix (shape %v)", embedding)
	}
	_, untied := shapes["output.weight"]
	_, biased := shapes["blk.0.attn_q.bias"]
	cfg := nn.Config{
		ModelType: arch, VocabSize: embedding[0],
		HiddenSize: k.int("embedding_length"), IntermediateSize: k.int("feed_forward_length"),
		NumLayers: k.int("block_count"), NumHeads: k.int("attention.head_count"),
		MaxPositions: k.int("context_length"), RopeTheta: k.float("rope.freq_base", 10000),
		NormEps: k.float("attention.layer_norm_rms_epsilon", 0), AttentionBias: arch == "qwen2", TieEmbeddings: !untied,
		BOS: k.token("bos_token_id"), Pad: k.token("padding_token_id"), EOS: k.endTokens(),
	}
	if arch == "llama" && biased {
		// Llama with biases of query, key and value is Qwen2; so it can be saved under a name transformers knows.
		cfg.ModelType, cfg.AttentionBias = "qwen2", true
	}
	cfg.NumKVHeads = k.intOr("attention.head_count_kv", cfg.NumHeads)
	if cfg.NumHeads > 0 {
		cfg.HeadDim = k.intOr("attention.key_length", cfg.HiddenSize/cfg.NumHeads)
	}
	k.checkSupported(&cfg)
	k.scaling(&cfg, divisors)
	if k.err != nil {
		return nn.Config{}, k.err
	}
	return cfg, checkConfig(&cfg)
}

// checkSupported notes an error for a setting that changes what the model computes in a way that nn does not.
func (k *ggufKeys) checkSupported(cfg *nn.Config) {
	if parts := number(k.metadata["split.count"]); parts > 1 {
		k.fail("this is one of %g parts of a model; join them with llama.cpp's llama-gguf-split --merge", parts)
	}
	if n := k.intOr("attention.value_length", cfg.HeadDim); n != cfg.HeadDim {
		k.fail("values of width %d beside keys of width %d are not implemented", n, cfg.HeadDim)
	}
	if n := k.intOr("rope.dimension_count", cfg.HeadDim); n != cfg.HeadDim {
		k.fail("rotary positions on %d of %d dimensions are not implemented", n, cfg.HeadDim)
	}
	if n := k.intOr("attention.sliding_window", 0); n > 0 && n < cfg.MaxPositions {
		k.fail("attention with a sliding window (%d) is not implemented; use a model with full attention", n)
	}
	for _, key := range []string{"expert_count", "logit_scale", "attention.clamp_kqv", "attention.max_alibi_bias",
		"residual_scale", "embedding_scale", "attention.scale"} {
		if v, ok := k.get(key); ok && number(v) != 0 {
			k.fail("%s.%s is %v; this is not implemented", k.arch, key, v)
		}
	}
	if causal, ok := k.get("attention.causal"); ok && causal == false {
		k.fail("%s.attention.causal is false; only decoders are implemented", k.arch)
	}
}

// scaling reads the scaling of the rotary frequencies: linear by keys, Llama 3's by the tensor of divisors.
func (k *ggufKeys) scaling(cfg *nn.Config, divisors []float32) {
	kind, _ := k.get("rope.scaling.type")
	factor := k.float("rope.scaling.factor", 1)
	if old := k.float("rope.scale_linear", 1); factor == 1 {
		factor = old
	}
	switch {
	case kind == "none" || factor == 0:
		factor = 1
	case kind != nil && kind != "linear":
		k.fail("rotary scaling %v is not implemented; none and linear are", kind)
	case factor < 1 || math.IsInf(factor, 1) || math.IsNaN(factor):
		k.fail("the factor of the rotary scaling is %g, must be at least 1", factor)
	}
	if k.err != nil {
		return
	}
	cfg.RopeScaling = linearScaling(factor)
	if divisors == nil {
		return
	}
	if factor != 1 || len(divisors) != cfg.HeadDim/2 {
		k.fail("tensor rope_freqs.weight has %d values, want %d, and rotary scaling by %g besides: not implemented",
			len(divisors), cfg.HeadDim/2, factor)
		return
	}
	scaling, err := scalingFromDivisors(divisors, cfg.RopeTheta)
	if err != nil {
		k.err = err
	}
	cfg.RopeScaling = scaling
}

// endNames are the tokens that end a turn or a text in the chat formats of the Llama and Qwen2 families. GGUF files
// name only one end token by its id, where generation_config.json may name several.
var endNames = []string{
	"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>",
}

const ggufControlToken = 3

// endTokens returns the ids of the end tokens: those named by keys, then those control tokens that are so by name.
func (k *ggufKeys) endTokens() []int {
	var cfg nn.Config
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		addEOS(&cfg, k.token(key))
	}
	tokens, _ := k.metadata["tokenizer.ggml.tokens"].([]string)
	kinds, _ := k.metadata["tokenizer.ggml.token_type"].([]int32)
	for id := range min(len(tokens), len(kinds)) {
		if kinds[id] == ggufControlToken && slices.Contains(endNames, tokens[id]) {
			addEOS(&cfg, id)
		}
	}
	return cfg.EOS
}

func (k *ggufKeys) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

func (k *ggufKeys) get(key string) (any, bool) {
	v, ok := k.metadata[k.arch+"."+key]
	return v, ok
}

// int returns a setting that must be there; intOr has a default. One value for each layer, all equal, counts as one.
func (k *ggufKeys) int(key string) int {
	if _, ok := k.get(key); !ok {
		k.fail("metadata key %s.%s is missing", k.arch, key)
	}
	return k.intOr(key, 0)
}

func (k *ggufKeys) intOr(key string, otherwise int) int {
	v, ok := k.get(key)
	if !ok {
		return otherwise
	}
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice && list.Len() > 0 {
		v = list.Index(0).Interface()
		for i := range list.Len() {
			if list.Index(i).Interface() != v {
				k.fail("metadata key %s.%s differs from layer to layer, which is not implemented", k.arch, key)
			}
		}
	}
	n, ok := integer(v)
	if !ok {
		k.fail("metadata key %s.%s is %v; want an integer from 0 to %d", k.arch, key, v, math.MaxInt32)
	}
	return n
}

func (k *ggufKeys) float(key string, otherwise float64) float64 {
	v, ok := k.get(key)
	if !ok {
		return otherwise
	}
	x := number(v)
	if math.IsNaN(x) {
		k.fail("metadata key %s.%s is %v; want a number", k.arch, key, v)
	}
	return x
}

// token returns a token's id, or -1 when there is none.
func (k *ggufKeys) token(key string) int {
	if id, ok := integer(k.metadata["tokenizer.ggml."+key]); ok {
		return id
	}
	return -1
}

// number returns a metadata value as float64, NaN if it is none. A float32 becomes the float64 that is written with the
// same digits, so that 1e-05 is 1e-05 as in config.json.
func number(v any) float64 {
	if f, ok := v.(float32); ok {
		x, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
		if err != nil {
			return math.NaN()
		}
		return x
	}
	switch value := reflect.ValueOf(v); {
	case !value.IsValid():
		return math.NaN()
	case value.CanInt():
		return float64(value.Int())
	case value.CanUint():
		return float64(value.Uint())
	case value.CanFloat():
		return value.Float()
	}
	return math.NaN()
}

// integer returns a metadata value of any integer type that lies in 0 ... MaxInt32.
func integer(v any) (int, bool) {
	x := number(v)
	if _, isFloat := v.(float32); isFloat || x != math.Trunc(x) || x < 0 || x > math.MaxInt32 {
		return 0, false
	}
	return int(x), true
}

// ggufNames maps the middle part of names in a block to Hugging Face's.
var ggufNames = map[string]string{
	"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
	"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
	"attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
	"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}

// hfName returns the Hugging Face name of a tensor; one that has none keeps its name.
func hfName(name string) string {
	switch name {
	case "token_embd.weight":
		return "model.embed_tokens.weight"
	case "output_norm.weight":
		return "model.norm.weight"
	case "output.weight":
		return "lm_head.weight"
	}
	parts := strings.Split(name, ".")
	if len(parts) != 4 || parts[0] != "blk" {
		return name
	}
	if _, err := strconv.ParseUint(parts[1], 10, 31); err != nil {
		return name
	}
	middle, ok := ggufNames[parts[2]]
	if !ok {
		return name
	}
	return strings.Join([]string{"model.layers", parts[1], middle, parts[3]}, ".")
}
