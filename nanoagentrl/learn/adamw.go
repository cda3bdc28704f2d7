package learn

import (
	"errors"
	"fmt"
	"math"

	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// ErrNotFinite says that a gradient held NaN or infinity; the weights were left as they were.
var ErrNotFinite = errors.New("the gradient is not finite")

// AdamWOptions are the settings of AdamW.
type AdamWOptions struct {
	Beta1, Beta2, Eps float64
	// WeightDecay is decoupled and applies to matrices only, not to norms and biases.
	WeightDecay float64
	// MaxGradNorm scales gradients down to this global L2 norm; 0 leaves them as they are.
	MaxGradNorm float64
}

// AdamW is the optimiser of arXiv:1711.05101:
//
//	m ← β1·m + (1-β1)·g          v ← β2·v + (1-β2)·g²
//	p ← p - lr·(m̂ / (√v̂ + ε) + decay·p),   m̂ = m/(1-β1ᵗ),   v̂ = v/(1-β2ᵗ)
//
// with gradients g scaled to the global norm first. Everything is f32 on the device.
type AdamW struct {
	dev     *device.Device
	opts    AdamWOptions
	step    int
	m, v    []*tensors.Tensor
	update  *device.Func
	squares *device.Func
	zeros   *device.Func
}

// Parameters are the weights that an optimiser changes: those of a policy (nn.Params) or of a critic (nn.Critic).
type Parameters interface {
	// Names lists the tensors in order.
	Names() []string
	// Master returns the f32 tensor number i, which belongs to the parameters.
	Master(i int) *tensors.Tensor
	// Replace gives tensor number i new values and frees the old ones; it takes t over.
	Replace(i int, t *tensors.Tensor) error
}

// numScalars is the length of the vector of settings that the update graph takes.
const numScalars = 8

// NewAdamW returns an optimiser that has made no step.
func NewAdamW(dev *device.Device, numParams int, opts AdamWOptions) *AdamW {
	return &AdamW{
		dev: dev, opts: opts, m: make([]*tensors.Tensor, numParams), v: make([]*tensors.Tensor, numParams),
		update: dev.SharedFunc("AdamW", "", func(in []*Node) []*Node { // p, m, v, g, scalars
			p, m, v := adamWUpdate(in[0], in[1], in[2], in[3], in[4])
			return []*Node{p, m, v}
		}),
		zeros: dev.SharedFunc("zeros", "", func(in []*Node) []*Node { return []*Node{ZerosLike(in[0])} }),
		squares: dev.SharedFunc("sum of squares", "", func(in []*Node) []*Node {
			return []*Node{ReduceAllSum(Mul(in[0], in[0]))}
		}),
	}
}

// adamWUpdate is one step of one tensor; scalars are gradient scale, β1, β2, 1-β1ᵗ, 1-β2ᵗ, lr, ε, decay.
func adamWUpdate(p, m, v, g, scalars *Node) (newP, newM, newV *Node) {
	at := func(i int) *Node { return Reshape(SliceAxis(scalars, 0, AxisElem(i))) }
	g = Mul(g, at(0))
	newM = Add(Mul(m, at(1)), Mul(g, OneMinus(at(1))))
	newV = Add(Mul(v, at(2)), Mul(Mul(g, g), OneMinus(at(2))))
	direction := Div(Div(newM, at(3)), Add(Sqrt(Div(newV, at(4))), at(6)))
	newP = Sub(p, Mul(at(5), Add(direction, Mul(at(7), p))))
	return newP, newM, newV
}

// Step returns the number of updates made.
func (o *AdamW) Step() int { return o.step }

// Norm returns the global L2 norm of gradients.
func (o *AdamW) Norm(grads *nn.Gradients) (float64, error) {
	sum := 0.0
	for _, g := range grads.Tensors {
		if g == nil {
			continue
		}
		out, err := o.squares.Call(g)
		if err != nil {
			return 0, err
		}
		sum += float64(tensors.ToScalar[float32](out[0]))
		device.Free(out...)
	}
	return math.Sqrt(sum), nil
}

// relieveFrom is the size in bytes of a tensor whose update leaves holes worth closing.
const relieveFrom = 64 << 20

// Apply makes one step with learning rate lr and returns the gradients' norm before clipping. Parameters without a
// gradient stay as they are, and the gradients are freed on the way. If the norm is not finite, nothing is changed and
// the error is ErrNotFinite.
func (o *AdamW) Apply(params Parameters, grads *nn.Gradients, lr float64) (norm float64, err error) {
	if norm, err = o.Norm(grads); err != nil {
		return norm, err
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, ErrNotFinite
	}
	o.step++
	for i, g := range grads.Tensors {
		if g == nil {
			continue
		}
		if err := o.applyOne(params, i, g, o.scalars(norm, lr, params.Master(i).Rank())); err != nil {
			return norm, fmt.Errorf("updating %s: %w", params.Names()[i], err)
		}
		large := g.Shape().Memory() >= relieveFrom
		device.Free(g) // Its memory serves the moments of the next tensor of this shape.
		grads.Tensors[i] = nil
		if large {
			device.Relieve()
		}
	}
	return norm, nil
}

// scalars are the settings of this step for a tensor of the given rank, in the order of adamWUpdate.
func (o *AdamW) scalars(norm, lr float64, rank int) []float32 {
	scale := 1.0
	if o.opts.MaxGradNorm > 0 && norm > o.opts.MaxGradNorm {
		scale = o.opts.MaxGradNorm / norm
	}
	decay := o.opts.WeightDecay
	if rank < 2 {
		decay = 0
	}
	t := float64(o.step)
	return []float32{float32(scale), float32(o.opts.Beta1), float32(o.opts.Beta2),
		float32(1 - math.Pow(o.opts.Beta1, t)), float32(1 - math.Pow(o.opts.Beta2, t)),
		float32(lr), float32(o.opts.Eps), float32(decay)}
}

func (o *AdamW) applyOne(params Parameters, i int, g *tensors.Tensor, scalars []float32) error {
	for _, moment := range []*[]*tensors.Tensor{&o.m, &o.v} {
		if (*moment)[i] == nil {
			zeros, err := o.zeros.Call(g)
			if err != nil {
				return err
			}
			(*moment)[i] = zeros[0]
		}
	}
	s, err := device.Upload(o.dev, scalars, numScalars)
	if err != nil {
		return err
	}
	defer device.Free(s)
	out, err := o.update.Call(params.Master(i), o.m[i], o.v[i], g, s)
	if err != nil {
		return err
	}
	device.Free(o.m[i], o.v[i])
	o.m[i], o.v[i] = out[1], out[2]
	return params.Replace(i, out[0])
}

// Moments returns both moments of parameter i, which belong to the optimiser; nil if it was never updated.
func (o *AdamW) Moments(i int) (m, v *tensors.Tensor) { return o.m[i], o.v[i] }

// Restore sets the number of updates made.
func (o *AdamW) Restore(step int) { o.step = step }

// SetMoments restores the moments of parameter i, of the given shape.
func (o *AdamW) SetMoments(i int, m, v []float32, shape []int) (err error) {
	device.Free(o.m[i], o.v[i])
	if o.m[i], err = device.Upload(o.dev, m, shape...); err != nil {
		return err
	}
	o.v[i], err = device.Upload(o.dev, v, shape...)
	return err
}

// Free releases the moments.
func (o *AdamW) Free() {
	device.Free(o.m...)
	device.Free(o.v...)
}
