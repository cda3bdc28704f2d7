package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// SaveOptions says how SaveFolder stores weights. The zero value means F32 and shards of at most 5 GB.
type SaveOptions struct {
	// DType is the storage type; "" means F32.
	DType DType
	// MaxShardBytes is the largest size of one file's values in bytes; 0 means 5e9. A tensor is never split.
	MaxShardBytes int64
}

// SaveFolder writes a Hugging Face model folder that Python's transformers loads as LlamaForCausalLM or
// Qwen2ForCausalLM: config.json, generation_config.json, and model.safetensors or its shards with their index. The
// tokenizer's files are not its business. tensor is called once for each parameter, in the order of nn.Config.Params,
// and returns its values; they are written at once and not kept.
//
// All files are written under temporary names first and renamed when the last one is complete and on disk, so that an
// error, which names the file, leaves an older model in the folder as it was. Renaming takes a moment: who must be safe
// against a kill within it writes to a new folder and renames that.
func SaveFolder(dir string, cfg nn.Config, tensor func(name string) ([]float32, error), opts SaveOptions) error {
	if opts.DType == "" {
		opts.DType = F32
	}
	if opts.MaxShardBytes <= 0 {
		opts.MaxShardBytes = 5e9
	}
	config, generation, err := configFiles(&cfg, opts.DType)
	if err != nil {
		return fmt.Errorf("save model to %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	files := &pendingFiles{dir: dir}
	err = saveShards(files, &cfg, tensor, opts)
	if err == nil {
		err = files.write("generation_config.json", contents(generation))
	}
	if err == nil {
		err = files.write("config.json", contents(config))
	}
	written := slices.Clone(files.names)
	if err == nil {
		err = files.commit()
	}
	if err != nil {
		return errors.Join(err, files.discard())
	}
	return removeStale(dir, written)
}

// saveShards writes the weights and, if they take several files, the index.
func saveShards(files *pendingFiles, cfg *nn.Config, tensor func(string) ([]float32, error), opts SaveOptions) error {
	shards, total := splitShards(cfg, opts)
	weightMap := map[string]string{}
	for i, params := range shards {
		name := singleFile
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		tensors := make([]Tensor, len(params))
		for k, p := range params {
			weightMap[p.Name] = name
			tensors[k] = Tensor{Name: p.Name, Shape: p.Shape, Read: func() ([]float32, error) { return tensor(p.Name) }}
		}
		err := files.write(name, func(w io.Writer) error {
			// The format entry is what transformers looks for before it loads a file.
			return encodeSafetensors(w, tensors, opts.DType, map[string]string{"format": "pt"})
		})
		if err != nil {
			return err
		}
	}
	if len(shards) == 1 {
		return nil
	}
	index, err := jsonText(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weightMap})
	if err != nil {
		return err
	}
	return files.write(indexFile, contents(index))
}

// splitShards cuts the parameters, in their order, into runs of at most MaxShardBytes, and returns the total size.
func splitShards(cfg *nn.Config, opts SaveOptions) (shards [][]nn.Param, total int64) {
	var size int64
	for _, p := range cfg.Params() {
		n := int64(opts.DType.size())
		for _, d := range p.Shape {
			n *= int64(d)
		}
		if len(shards) == 0 || size+n > opts.MaxShardBytes {
			shards, size = append(shards, nil), 0
		}
		size += n
		total += n
		shards[len(shards)-1] = append(shards[len(shards)-1], p)
	}
	return shards, total
}

var weightFile = regexp.MustCompile(`^model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?$`)

// removeStale removes the weights of an earlier save that had another number of shards; they would be loaded instead.
func removeStale(dir string, written []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	for _, e := range entries {
		if weightFile.MatchString(e.Name()) && !slices.Contains(written, e.Name()) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("save model: %w", err)
			}
		}
	}
	return nil
}

// pyFloat is written with a decimal point or an exponent, so that Python reads a float and not an int.
type pyFloat float64

func (f pyFloat) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return nil, fmt.Errorf("%g is no number of JSON", float64(f))
	}
	if float64(f) == math.Trunc(float64(f)) && math.Abs(float64(f)) < 1e15 {
		return strconv.AppendFloat(nil, float64(f), 'f', 1, 64), nil
	}
	return strconv.AppendFloat(nil, float64(f), 'g', -1, 64), nil
}

// configFiles returns config.json and generation_config.json. rope_theta, rope_scaling and torch_dtype stand where
// version 4 of transformers has them; version 5 reads them too.
func configFiles(cfg *nn.Config, dtype DType) (config, generation []byte, err error) {
	if err := errors.Join(checkConfig(cfg), dtype.check()); err != nil {
		return nil, nil, err
	}
	ids := map[string]any{"bos_token_id": idOrNull(cfg.BOS), "eos_token_id": nil, "pad_token_id": idOrNull(cfg.Pad)}
	switch len(cfg.EOS) {
	case 0:
	case 1:
		ids["eos_token_id"] = cfg.EOS[0]
	default:
		ids["eos_token_id"] = cfg.EOS
	}
	values := map[string]any{
		"vocab_size": cfg.VocabSize, "hidden_size": cfg.HiddenSize, "intermediate_size": cfg.IntermediateSize,
		"num_hidden_layers": cfg.NumLayers, "num_attention_heads": cfg.NumHeads,
		"num_key_value_heads": cfg.NumKVHeads, "head_dim": cfg.HeadDim,
		"max_position_embeddings": cfg.MaxPositions, "rms_norm_eps": pyFloat(cfg.NormEps),
		"rope_theta": pyFloat(cfg.RopeTheta), "rope_scaling": ropeScalingJSON(cfg.RopeScaling),
		"hidden_act": "silu", "tie_word_embeddings": cfg.TieEmbeddings, "attention_dropout": pyFloat(0),
		"initializer_range": pyFloat(0.02), "use_cache": true, "torch_dtype": dtype.torchName(),
		"model_type": cfg.ModelType,
	}
	for key, id := range ids {
		values[key] = id
	}
	switch {
	case cfg.ModelType == "qwen2" && cfg.AttentionBias:
		values["architectures"] = []string{"Qwen2ForCausalLM"}
		values["use_sliding_window"] = false
	case cfg.ModelType == "llama" && !cfg.AttentionBias:
		values["architectures"] = []string{"LlamaForCausalLM"}
		values["attention_bias"], values["mlp_bias"] = false, false
	default:
		return nil, nil, fmt.Errorf("transformers has no model of type %q with attention bias %v: llama has none, and "+
			"qwen2 always has one", cfg.ModelType, cfg.AttentionBias)
	}
	if config, err = jsonText(values); err != nil {
		return nil, nil, err
	}
	generation, err = jsonText(ids)
	return config, generation, err
}

func ropeScalingJSON(s *nn.RopeScaling) any {
	switch {
	case s == nil:
		return nil
	case isLinear(s):
		return map[string]any{"type": "linear", "factor": pyFloat(s.Factor)}
	}
	return map[string]any{
		"rope_type": "llama3", "factor": pyFloat(s.Factor), "low_freq_factor": pyFloat(s.LowFreqFactor),
		"high_freq_factor": pyFloat(s.HighFreqFactor), "original_max_position_embeddings": s.OriginalMaxPositions,
	}
}

func idOrNull(id int) any {
	if id < 0 {
		return nil
	}
	return id
}

// jsonText formats a value as transformers does: two spaces, keys in order, a newline at the end.
func jsonText(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}
