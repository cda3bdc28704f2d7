package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Params are the weights of one model on a device: f32 masters, and copies in the compute type where that differs. The
// order is that of Config.Params.
type Params struct {
	dev     *device.Device
	cfg     Config
	names   []string
	index   map[string]int
	masters []*tensors.Tensor
	// compute holds the tensors that graphs take; where the type is f32 they are the masters themselves.
	compute []*tensors.Tensor
	dtype   dtypes.DType
	cast    *device.Func
}

// NewParams uploads weights, asking load for each tensor by its name and shape, and keeps compute copies of the
// matrices in dtype (Float32 or BFloat16).
func NewParams(dev *device.Device, cfg Config, dtype dtypes.DType,
	load func(name string, shape []int) ([]float32, error)) (_ *Params, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Params{dev: dev, cfg: cfg, dtype: dtype, index: map[string]int{}}
	defer func() {
		if err != nil {
			p.Free()
		}
	}()
	p.cast = dev.SharedFunc("cast", dtype.String(), func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ConvertDType(in[0], dtype)}
	})
	for i, param := range cfg.Params() {
		values, err := load(param.Name, param.Shape)
		if err != nil {
			return nil, fmt.Errorf("loading %s: %w", param.Name, err)
		}
		t, err := device.Upload(dev, values, param.Shape...)
		if err != nil {
			return nil, fmt.Errorf("loading %s: %w", param.Name, err)
		}
		p.names = append(p.names, param.Name)
		p.index[param.Name] = i
		p.masters = append(p.masters, t)
		p.compute = append(p.compute, nil)
		if err := p.refresh(i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// RandomParams makes weights for a model trained from nothing: matrices normal with the given standard deviation,
// norms 1, biases 0. The same seed gives the same weights.
func RandomParams(dev *device.Device, cfg Config, dtype dtypes.DType, seed uint64, std float64) (*Params, error) {
	rng := rand.New(rand.NewPCG(seed, 0x6e6e))
	return NewParams(dev, cfg, dtype, func(name string, shape []int) ([]float32, error) {
		size := 1
		for _, d := range shape {
			size *= d
		}
		values := make([]float32, size)
		scale := std
		if strings.HasSuffix(name, "down_proj.weight") || strings.HasSuffix(name, "o_proj.weight") {
			scale /= math.Sqrt(2 * float64(cfg.NumLayers)) // GPT-2's scaling of what is added to the residual stream.
		}
		for i := range values {
			switch {
			case strings.HasSuffix(name, "norm.weight"):
				values[i] = 1
			case !strings.HasSuffix(name, ".bias"):
				values[i] = float32(rng.NormFloat64() * scale)
			}
		}
		return values, nil
	})
}

// refresh makes the compute copy of tensor i from its master.
func (p *Params) refresh(i int) error {
	if p.dtype == dtypes.Float32 || len(p.masters[i].Shape().Dimensions) < 2 {
		p.compute[i] = p.masters[i]
		return nil
	}
	out, err := p.cast.Call(p.masters[i])
	if err != nil {
		return fmt.Errorf("casting %s: %w", p.names[i], err)
	}
	device.Free(p.compute[i])
	p.compute[i] = out[0]
	return nil
}

// Config returns the shape of the model.
func (p *Params) Config() *Config { return &p.cfg }

// Names lists the tensors in order.
func (p *Params) Names() []string { return p.names }

// Master returns the f32 tensor number i, in the order of Config.Params. It belongs to p.
func (p *Params) Master(i int) *tensors.Tensor { return p.masters[i] }

// Replace gives tensor number i new f32 values and frees the old ones. p owns t from then on.
func (p *Params) Replace(i int, t *tensors.Tensor) error {
	device.Free(p.masters[i])
	p.masters[i] = t
	return p.refresh(i)
}

// Host copies the f32 values of a tensor to the host.
func (p *Params) Host(name string) ([]float32, error) {
	i, ok := p.index[name]
	if !ok {
		return nil, fmt.Errorf("the model has no tensor %q", name)
	}
	return device.Values[float32](p.masters[i])
}

// Freeze frees the masters that have compute copies: the weights can then be used, but not read or replaced.
func (p *Params) Freeze() {
	for i, t := range p.masters {
		if p.compute[i] != t {
			device.Free(t)
			p.masters[i] = nil
		}
	}
}

// Free releases the weights.
func (p *Params) Free() {
	for i, t := range p.masters {
		if p.compute[i] != t {
			device.Free(p.compute[i])
		}
		device.Free(t)
	}
	p.masters, p.compute = nil, nil
}

// layer returns the compute tensors of block i.
func (p *Params) layer(i int) []*tensors.Tensor {
	n := p.cfg.numLayerParams()
	return p.compute[1+i*n : 1+(i+1)*n]
}

func (p *Params) embedding() *tensors.Tensor { return p.compute[0] }

func (p *Params) finalNorm() *tensors.Tensor {
	return p.compute[1+p.cfg.NumLayers*p.cfg.numLayerParams()]
}

// output returns the output matrix: the embedding if the two are tied.
func (p *Params) output() *tensors.Tensor {
	if p.cfg.TieEmbeddings {
		return p.compute[0]
	}
	return p.compute[len(p.compute)-1]
}
