// Package weights reads and writes the weights of language models: Hugging Face folders (config.json and
// safetensors), GGUF files, and models named as on the Hugging Face hub. It knows the shape of a model only through
// nn.Config, hands tensors out as float32 under their Hugging Face names, and refuses whatever the model code would
// have to ignore, since ignoring a weight or a setting changes the model without a word.
//
// It leaves out: the tokenizer (package tokenizer reads Source.Metadata of a GGUF file, or the files beside
// config.json), pickled PyTorch files, quantised safetensors, and writing GGUF.
package weights

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// Source is one opened model. Its methods may be called from several goroutines at once, except Close.
type Source interface {
	// Path returns the Hugging Face folder of the model, where the tokenizer's files lie too, or the path of a GGUF
	// file.
	Path() string
	// Config returns the shape of the model; it has passed nn.Config.Validate.
	Config() nn.Config
	// Names returns the names of all tensors of the model in ascending order. They are Hugging Face names; a GGUF
	// tensor that has no such name keeps its own.
	Names() []string
	// Info returns what the file says about a tensor, without reading its values.
	Info(name string) (info TensorInfo, ok bool)
	// Tensor reads a tensor as float32, in row-major order, with the shape it has in Hugging Face files (projections
	// [out, in]). The caller owns the returned slices.
	Tensor(name string) (data []float32, shape []int, err error)
	// Metadata returns the metadata of a GGUF file, and nil for a Hugging Face folder. Scalars have the Go type of the
	// same width as in the file (uint32, float32, bool, string ...), arrays are slices of that type ([]string,
	// []int32, []float32 ...). The map must not be changed.
	Metadata() map[string]any
	// Close closes the files.
	Close() error
}

// TensorInfo describes one stored tensor.
type TensorInfo struct {
	// Name is the Hugging Face name, StoredName the one in the file; they differ in GGUF files only.
	Name, StoredName string
	// Shape is the shape in Hugging Face's order of axes: a projection is [out, in].
	Shape []int
	// Type is the storage type as the file calls it, such as "BF16" or "Q4_K".
	Type string
	// File is the path of the file that holds the values.
	File string
}

// Open opens a model: a Hugging Face folder, one .safetensors file inside such a folder (only the tensors of that file
// are then there), or a .gguf file. The path of a model that is given by its hub name comes from Resolve. No weights
// are read yet, but all headers are, with every length and offset checked against the size of the file.
func Open(path string) (Source, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	switch {
	case stat.IsDir():
		return openFolder(path)
	case strings.EqualFold(filepath.Ext(path), ".safetensors"):
		return openFolderFile(path)
	case strings.EqualFold(filepath.Ext(path), ".gguf"):
		return openGGUF(path)
	}
	return nil, fmt.Errorf("%s: cannot tell what this is: want a Hugging Face folder (config.json and *.safetensors), "+
		"a .safetensors file in such a folder, or a .gguf file", path)
}

// Load reads the tensors that the model's configuration asks for, one by one in the order of nn.Config.Params, and
// passes each to visit, which may keep data. Check runs first, so that a model that does not fit fails before any
// weights are read. An error of visit ends the iteration and is returned with the tensor's name.
func Load(src Source, visit func(name string, data []float32, shape []int) error) error {
	if err := Check(src); err != nil {
		return err
	}
	cfg := src.Config()
	for _, p := range cfg.Params() {
		data, shape, err := src.Tensor(p.Name)
		if err != nil {
			return err
		}
		if err := visit(p.Name, data, shape); err != nil {
			return fmt.Errorf("tensor %s: %w", p.Name, err)
		}
	}
	return nil
}

// Check compares the tensors of a model with its configuration. It returns an error that names file, tensor and shapes
// when a tensor is missing or has another shape, and when the model holds a weight of the decoder that nn does not
// implement, such as the q_norm of Qwen3 or a bias of o_proj. Other tensors that the configuration does not ask for (a
// value head, an output matrix that is tied to the embedding, a saved rotary table) are no error.
func Check(src Source) error {
	cfg := src.Config()
	names := src.Names()
	if cfg.NumLayers > len(names) {
		return fmt.Errorf("%s: the configuration has %d layers, but there are only %d tensors; "+
			"the weights are incomplete or the configuration belongs to another model",
			src.Path(), cfg.NumLayers, len(names))
	}
	params := cfg.Params()
	wanted := make(map[string]bool, len(params))
	for _, p := range params {
		wanted[p.Name] = true
		info, ok := src.Info(p.Name)
		if !ok {
			return fmt.Errorf("%s: tensor %s, of shape %v, is missing; the download is incomplete (a shard?) "+
				"or the configuration belongs to another model", src.Path(), p.Name, p.Shape)
		}
		if !slices.Equal(info.Shape, p.Shape) {
			return fmt.Errorf("%s: tensor %s has shape %v, but the configuration of %s asks for %v; "+
				"weights and configuration belong to different models", info.File, info.label(), info.Shape,
				src.Path(), p.Shape)
		}
	}
	for _, name := range names {
		if wanted[name] || !unimplemented(name, cfg.TieEmbeddings) {
			continue
		}
		info, _ := src.Info(name)
		if layer, ok := layerOf(name); ok && layer >= cfg.NumLayers {
			return fmt.Errorf("%s: there is a tensor %s, but the configuration of %s has %d layers, the last of which is "+
				"%d; weights and configuration belong to different models", info.File, info.label(), src.Path(),
				cfg.NumLayers, cfg.NumLayers-1)
		}
		return fmt.Errorf("%s: tensor %s of shape %v belongs to the decoder, but %s models as implemented here have "+
			"no such weight, and leaving it out would change the model; use a model of the Llama or Qwen2 family",
			info.File, info.label(), info.Shape, cfg.ModelType)
	}
	return nil
}

// layerOf returns the layer that a tensor belongs to.
func layerOf(name string) (layer int, ok bool) {
	rest, ok := strings.CutPrefix(name, "model.layers.")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	return layer, err == nil
}

// CheckFinite returns an error that names file, tensor and place if a tensor's values have a NaN or an infinity among
// them.
func CheckFinite(info TensorInfo, values []float32) error {
	for i, v := range values {
		if v-v != 0 {
			return fmt.Errorf("%s: tensor %s has %v at place %d of %d; the file is damaged, or of a training that diverged",
				info.File, info.label(), v, i, len(values))
		}
	}
	return nil
}

// unimplemented reports whether a tensor that no parameter asks for takes part in the computation of the decoder.
func unimplemented(name string, tied bool) bool {
	if strings.HasSuffix(name, "rotary_emb.inv_freq") || (tied && name == "lm_head.weight") {
		return false
	}
	for _, prefix := range []string{"model.", "lm_head.", "blk.", "output", "token_embd", "rope_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// label returns the tensor's Hugging Face name and, where it differs, the one in the file.
func (t TensorInfo) label() string {
	if t.StoredName != "" && t.StoredName != t.Name {
		return fmt.Sprintf("%s (%s)", t.StoredName, t.Name)
	}
	return t.Name
}

// numValues returns the number of elements of a shape, and an error if an axis is negative or the product of the axes
// exceeds limit.
func numValues(shape []int, limit int64) (int, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative axis", shape)
		}
		if d == 0 {
			return 0, nil
		}
		if n > limit/int64(d) {
			return 0, fmt.Errorf("shape %v has more elements than the file has room for", shape)
		}
		n *= int64(d)
	}
	return int(n), nil
}
