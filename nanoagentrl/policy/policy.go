// Package policy holds a language model that is ready to act: weights on a device, compiled graphs, tokenizer and chat
// template. It loads one from a Hugging Face folder, a GGUF file or the hub, or makes an untrained one, and saves it as
// a Hugging Face folder.
package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"reflect"
	"runtime/debug"
	"strings"
	"unsafe"

	"github.com/gomlx/gomlx/pkg/core/dtypes"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// Policy is a model with its tokenizer. Policies made by WithWeights share compiled graphs.
type Policy struct {
	Program   *nn.Program
	Params    *nn.Params
	Tokenizer tokenizer.Stored
	// Template is the model's chat template; nil if it has none.
	Template *tokenizer.ChatTemplate
	// Name is what the model was loaded from.
	Name string
	// ID is the SHA-256 of the f32 weights as they were loaded, in the order of nn.Config.Params.
	ID string
	// DType is the type of the matrix products.
	DType dtypes.DType
}

// Options say how a model is loaded.
type Options struct {
	// DType is the type of the matrix products: dtypes.Float32 or dtypes.BFloat16.
	DType dtypes.DType
	// Hub bounds downloads.
	Hub weights.HubOptions
}

// ParseDType reads "f32" or "bf16".
func ParseDType(name string) (dtypes.DType, error) {
	switch name {
	case "f32":
		return dtypes.Float32, nil
	case "bf16":
		return dtypes.BFloat16, nil
	}
	return dtypes.InvalidDType, fmt.Errorf("dtype %q is unknown; choose f32 or bf16", name)
}

// Load loads a model from a folder, a file or a hub name.
func Load(ctx context.Context, dev *device.Device, ref string, opts Options) (*Policy, error) {
	path, err := weights.Resolve(ctx, ref, opts.Hub)
	if err != nil {
		return nil, err
	}
	src, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	tok, err := tokenizerOf(src)
	if err != nil {
		return nil, err
	}
	cfg := src.Config()
	if tok.VocabSize() > cfg.VocabSize {
		return nil, fmt.Errorf("%s: the tokenizer has ids up to %d, the model an embedding of %d rows; "+
			"they belong to different models", path, tok.VocabSize()-1, cfg.VocabSize)
	}
	if len(cfg.EOS) == 0 {
		cfg.EOS = tokenizer.EndIDs(tok)
	}
	if len(cfg.EOS) == 0 {
		return nil, fmt.Errorf("%s: neither the model nor the tokenizer names an end token", path)
	}
	p := &Policy{Program: nn.NewProgram(dev, cfg), Tokenizer: tok, Name: ref, DType: opts.DType}
	if p.Template, err = tok.Settings().ChatTemplate(); err != nil && !errors.Is(err, tokenizer.ErrNoChatTemplate) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := p.load(ctx, src); err != nil {
		return nil, err
	}
	return p, nil
}

// tokenizerOf reads the tokenizer that belongs to a model.
func tokenizerOf(src weights.Source) (tokenizer.Stored, error) {
	if meta := src.Metadata(); meta != nil {
		tok, err := tokenizer.FromGGUF(meta)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", src.Path(), err)
		}
		return tok, nil
	}
	return tokenizer.Load(src.Path())
}

// load uploads the weights of src and computes the ID.
func (p *Policy) load(ctx context.Context, src weights.Source) (err error) {
	if err := weights.Check(src); err != nil {
		return err
	}
	sum := sha256.New()
	p.Params, err = nn.NewParams(p.Program.Device(), *p.Program.Config(), p.DType,
		func(name string, _ []int) ([]float32, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			data, _, err := src.Tensor(name)
			if err == nil {
				info, _ := src.Info(name)
				err = weights.CheckFinite(info, data)
			}
			addValues(sum, data)
			return data, err
		})
	p.ID = hex.EncodeToString(sum.Sum(nil))
	debug.FreeOSMemory() // Reading left as much garbage as there are weights.
	return err
}

// addValues hashes the bytes of f32 values.
func addValues(sum hash.Hash, values []float32) {
	if len(values) > 0 {
		sum.Write(unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values)))
	}
}

// Random makes an untrained model over the tokens of tok.
func Random(dev *device.Device, cfg nn.Config, tok tokenizer.Stored, dtype dtypes.DType, seed uint64) (*Policy, error) {
	cfg.VocabSize = tok.VocabSize()
	cfg.EOS = tokenizer.EndIDs(tok)
	if len(cfg.EOS) == 0 {
		return nil, errors.New("the tokenizer of the random model has no end token")
	}
	params, err := nn.RandomParams(dev, cfg, dtype, seed, 0.05)
	if err != nil {
		return nil, err
	}
	p := &Policy{Program: nn.NewProgram(dev, cfg), Params: params, Tokenizer: tok, DType: dtype,
		Name: fmt.Sprintf("random (seed %d)", seed)}
	p.ID, err = p.Hash()
	return p, err
}

// Hash returns the SHA-256 of the current f32 weights, in the order of nn.Config.Params.
func (p *Policy) Hash() (string, error) {
	sum := sha256.New()
	for _, name := range p.Params.Names() {
		values, err := p.Params.Host(name)
		if err != nil {
			return "", err
		}
		addValues(sum, values)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// WithWeights returns a policy with p's tokenizer and graphs and the weights of a model of the same shape, such as a
// checkpoint of p. opts.DType is not used: the graphs are p's.
func (p *Policy) WithWeights(ctx context.Context, ref string, opts Options) (*Policy, error) {
	path, err := weights.Resolve(ctx, ref, opts.Hub)
	if err != nil {
		return nil, err
	}
	src, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	if differences := differences(*p.Program.Config(), src.Config()); len(differences) > 0 {
		return nil, fmt.Errorf("%s: this is not a model of the same shape as %s: %s", path, p.Name,
			strings.Join(differences, ", "))
	}
	q := &Policy{Program: p.Program, Tokenizer: p.Tokenizer, Template: p.Template, Name: ref, DType: p.DType}
	if err := q.load(ctx, src); err != nil {
		return nil, err
	}
	return q, nil
}

// differences lists the fields, but for names of tokens and the length the model was made for, in which two shapes
// differ: graphs made for one give something else than the other model.
func differences(want, got nn.Config) (list []string) {
	want.ModelType, want.MaxPositions, want.BOS, want.Pad, want.EOS = got.ModelType, got.MaxPositions, got.BOS, got.Pad, got.EOS
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		if a, b := w.Field(i).Interface(), g.Field(i).Interface(); !same(a, b) {
			list = append(list, fmt.Sprintf("%s is %v, not %v", w.Type().Field(i).Name, show(b), show(a)))
		}
	}
	return list
}

// same compares two settings; numbers may differ by rounding, since GGUF files hold them in f32.
func same(a, b any) bool {
	x, number := a.(float64)
	y, _ := b.(float64)
	if number {
		return math.Abs(x-y) <= 1e-6*math.Abs(x)
	}
	return reflect.DeepEqual(a, b)
}

// show follows the pointer to a rope scaling.
func show(value any) any {
	if scaling, ok := value.(*nn.RopeScaling); ok && scaling != nil {
		return *scaling
	}
	return value
}

// Save writes the model and its tokenizer into dir as a Hugging Face folder with f32 weights.
func (p *Policy) Save(dir string) error {
	if err := weights.SaveFolder(dir, *p.Program.Config(), p.Params.Host, weights.SaveOptions{}); err != nil {
		return err
	}
	return p.Tokenizer.Save(dir)
}

// Generator returns a sampler for the policy's current weights.
func (p *Policy) Generator(rows int) *generate.Generator {
	return generate.New(p.Program, p.Params, p.Tokenizer, generate.Limits{Rows: rows})
}

// ChatTemplate returns the function that renders prompts: the model's template for "always" and "auto", nil for
// "never" and for "auto" without a template. "always" without a template is an error.
func (p *Policy) ChatTemplate(choice string) (agent.Template, error) {
	switch {
	case choice == "never" || choice == "auto" && p.Template == nil:
		return nil, nil
	case p.Template == nil:
		return nil, fmt.Errorf("chat_template is %q, but %s has none", choice, p.Name)
	}
	return p.Template.Render, nil
}

// Free releases the weights.
func (p *Policy) Free() { p.Params.Free() }

// Describe writes a line about the model.
func (p *Policy) Describe(w io.Writer) {
	c := p.Program.Config()
	fmt.Fprintf(w, "model    %s: %s, %.1f M parameters, %d layers x %d, vocabulary %d, %s\n", p.Name, c.ModelType,
		float64(c.NumParams())/1e6, c.NumLayers, c.HiddenSize, c.VocabSize, p.DType)
}
