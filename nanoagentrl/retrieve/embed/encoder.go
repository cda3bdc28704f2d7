// Package embed turns texts into vectors with a sentence encoder, so that near vectors mean near texts:
// all-MiniLM-L6-v2, E5 and other models of BERT's kind that take the mean of the token vectors (Reimers and Gurevych,
// arXiv:1908.10084). Vectors have length 1, so that their product is the cosine.
package embed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gomlx/gomlx/pkg/core/dtypes"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn/bert"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// Options change what the folder of a model says.
type Options struct {
	// QueryPrefix and PassagePrefix stand before each text; nil takes what the model wants, "query: " and "passage: "
	// for E5.
	QueryPrefix, PassagePrefix *string
	// MaxTokens is the longest text in tokens; the end of a longer one is not seen. 0 takes the model's.
	MaxTokens int
	// DType is the type of the matrix products: dtypes.Float32, which 0 means too, or dtypes.BFloat16, which takes half
	// of the time on processors with bf16 instructions and turns vectors by a cosine of some 0.99994. Not on pure Go,
	// which sums in bf16.
	DType dtypes.DType
}

// Model tells one encoder, with how it is used, from another.
type Model struct {
	// Name is the name of the model's folder, for people to read.
	Name string `json:"name"`
	// SHA256 is the digest of the model's configuration, tokenizer and weights, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Dim is the number of values of a vector.
	Dim           int    `json:"dim"`
	MaxTokens     int    `json:"max_tokens"`
	QueryPrefix   string `json:"query_prefix"`
	PassagePrefix string `json:"passage_prefix"`
	// DType is the type of the matrix products if that is not f32.
	DType string `json:"dtype,omitempty"`
}

// Encoder is a loaded sentence encoder. It is safe for concurrent use.
type Encoder struct {
	dev       *device.Device
	net       *bert.Model
	tokenizer *tokenizer.WordPiece
	lowercase bool
	model     Model
	// use is held by whoever encodes, so that Close waits for them.
	use     sync.RWMutex
	closing atomic.Bool
}

// Open loads the model that ref names, a folder or a name on the Hugging Face hub (see weights.Resolve), onto a device.
func Open(ctx context.Context, dev *device.Device, ref string, hub weights.HubOptions, o Options) (*Encoder, error) {
	dir, err := weights.Resolve(ctx, ref, hub)
	if err != nil {
		return nil, fmt.Errorf("encoder: %w", err)
	}
	e, err := open(dev, dir, ref, o)
	if err != nil {
		return nil, fmt.Errorf("encoder: %w", err)
	}
	return e, nil
}

const weightsName = "model.safetensors"

func open(dev *device.Device, dir, ref string, o Options) (*Encoder, error) {
	dtype := cmp.Or(o.DType, dtypes.Float32)
	if dtype != dtypes.Float32 && dev.Kind == device.Go {
		return nil, errors.New("bf16 needs XLA; on pure Go, which sums in it, vectors would be too far off: take f32")
	}
	s, err := readSettings(dir, ref)
	if err != nil {
		return nil, err
	}
	e := &Encoder{dev: dev, lowercase: s.lowercase, model: Model{Name: nameOf(dir, ref), Dim: s.config.HiddenSize,
		MaxTokens: s.maxTokens, QueryPrefix: s.queryPrefix, PassagePrefix: s.passagePrefix}}
	if dtype == dtypes.BFloat16 {
		e.model.DType = "bf16"
	}
	if o.QueryPrefix != nil {
		e.model.QueryPrefix = *o.QueryPrefix
	}
	if o.PassagePrefix != nil {
		e.model.PassagePrefix = *o.PassagePrefix
	}
	if e.tokenizer, err = tokenizer.LoadWordPiece(dir); err != nil {
		return nil, err
	}
	if n := e.tokenizer.VocabSize(); n > s.config.VocabSize {
		return nil, fmt.Errorf("%s: tokenizer.json has ids up to %d, config.json a vocab_size of %d; they belong to different "+
			"models", dir, n-1, s.config.VocabSize)
	}
	if o.MaxTokens != 0 {
		if o.MaxTokens <= e.tokenizer.Around() || o.MaxTokens > s.config.MaxPositions {
			return nil, fmt.Errorf("%d tokens a text were asked for; the model takes from %d to %d", o.MaxTokens,
				e.tokenizer.Around()+1, s.config.MaxPositions)
		}
		e.model.MaxTokens = o.MaxTokens
	}
	if e.model.SHA256, err = digest(dir, "config.json", "tokenizer.json", weightsName); err != nil {
		return nil, err
	}
	e.net, err = load(dev, dir, s.config, dtype)
	return e, err
}

// nameOf returns the name of a model for people.
func nameOf(dir, ref string) string {
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	if strings.Contains(filepath.ToSlash(dir), "/snapshots/") {
		return ref
	}
	return filepath.Base(dir)
}

// load reads the weights, which may have the prefix that BERT with a head gives them.
func load(dev *device.Device, dir string, config bert.Config, dtype dtypes.DType) (_ *bert.Model, err error) {
	file, err := weights.OpenSafetensors(filepath.Join(dir, weightsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s; a model that only has pytorch_model.bin must be saved once as safetensors", dir,
			weightsName)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, name := range file.Names() {
		var layer int
		if _, err := fmt.Sscanf(strings.TrimPrefix(name, "bert."), "encoder.layer.%d.", &layer); err == nil && layer >= config.NumLayers {
			return nil, fmt.Errorf("%s: there is a tensor %s, but config.json has %d layers; they belong to different models",
				filepath.Join(dir, weightsName), name, config.NumLayers)
		}
	}
	return bert.New(dev, config, dtype, func(name string, shape []int) ([]float32, error) {
		for _, stored := range []string{name, "bert." + name} {
			info, ok := file.Info(stored)
			if !ok {
				continue
			}
			if !slices.Equal(info.Shape, shape) {
				return nil, fmt.Errorf("%s: tensor %s has shape %v, but config.json asks for %v; they belong to different "+
					"models", info.File, stored, info.Shape, shape)
			}
			values, _, err := file.Tensor(stored)
			if err == nil {
				err = weights.CheckFinite(info, values)
			}
			return values, err
		}
		return nil, fmt.Errorf("%s: tensor %s, of shape %v, is missing; is this the checkpoint of a BERT encoder?",
			filepath.Join(dir, weightsName), name, shape)
	})
}

// digest returns the SHA-256 of files of a folder, one after the other.
func digest(dir string, names ...string) (string, error) {
	sum := sha256.New()
	for _, name := range names {
		file, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name == weightsName {
			return "", fmt.Errorf("%s has no %s; a model that only has pytorch_model.bin must be saved once as safetensors", dir,
				name)
		}
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Model describes the encoder.
func (e *Encoder) Model() Model { return e.model }

// Dim returns the number of values of a vector.
func (e *Encoder) Dim() int { return e.model.Dim }

// Device returns the device that the encoder runs on.
func (e *Encoder) Device() *device.Device { return e.dev }

// Close waits for batches under way and frees the weights. Encoding ends with an error after that.
func (e *Encoder) Close() {
	if e.closing.Swap(true) {
		return
	}
	e.use.Lock()
	defer e.use.Unlock()
	e.net.Free()
}
