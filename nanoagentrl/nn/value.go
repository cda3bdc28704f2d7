package nn

import (
	"fmt"
	"slices"

	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Critic is a value function: the embedding, the blocks and the final norm of a model with weights of its own and, in
// place of the output matrix, a head that reads one number off the residual stream,
//
//	V = Σ_d weight_d·norm(x)_d + bias
//
// at the place from which a token is predicted: before the token is known.
type Critic struct {
	program *Program
	// body has no output matrix of its own, weight [D] and bias [1] are f32.
	body         *Params
	weight, bias *tensors.Tensor

	values *device.Func
}

// The names of the head's tensors, after those of the body.
const (
	valueWeightName = "value_head.weight"
	valueBiasName   = "value_head.bias"
)

// NewCritic returns a critic that starts from copies of a model's weights, with a head of zeros: it predicts 0
// everywhere. The graphs of the blocks are those of program.
func NewCritic(program *Program, model *Params) (c *Critic, err error) {
	c = &Critic{program: program}
	defer func() {
		if err != nil {
			c.Free()
		}
	}()
	cfg := model.cfg
	cfg.TieEmbeddings = true
	c.body, err = NewParams(program.dev, cfg, model.dtype, func(name string, _ []int) ([]float32, error) {
		return model.Host(name)
	})
	if err != nil {
		return nil, fmt.Errorf("critic: %w", err)
	}
	if c.weight, err = device.Upload(program.dev, make([]float32, cfg.HiddenSize), cfg.HiddenSize); err != nil {
		return nil, fmt.Errorf("critic: %w", err)
	}
	if c.bias, err = device.Upload(program.dev, make([]float32, 1), 1); err != nil {
		return nil, fmt.Errorf("critic: %w", err)
	}
	c.values = program.dev.SharedFunc("values", program.cfg.graphKey(), func(in []*Node) []*Node { // norm, weight, bias, rows
		_, values := valueForward(&program.cfg, in[0], in[1], in[2], in[3])
		return []*Node{values}
	})
	return c, nil
}

// Program returns the graphs that the critic shares with its policy.
func (c *Critic) Program() *Program { return c.program }

// Names lists the tensors in order: those of the body, then the head's.
func (c *Critic) Names() []string {
	return append(slices.Clone(c.body.names), valueWeightName, valueBiasName)
}

// Master returns the f32 tensor number i, in the order of Names. It belongs to c.
func (c *Critic) Master(i int) *tensors.Tensor {
	switch i - len(c.body.names) {
	case 0:
		return c.weight
	case 1:
		return c.bias
	}
	return c.body.Master(i)
}

// Replace gives tensor number i new f32 values and frees the old ones. c owns t from then on.
func (c *Critic) Replace(i int, t *tensors.Tensor) error {
	switch i - len(c.body.names) {
	case 0:
		device.Free(c.weight)
		c.weight = t
		return nil
	case 1:
		device.Free(c.bias)
		c.bias = t
		return nil
	}
	return c.body.Replace(i, t)
}

// NewGradients returns gradients with nothing in them, in the order of Names.
func (c *Critic) NewGradients() *Gradients {
	return &Gradients{Tensors: make([]*tensors.Tensor, len(c.body.names)+2)}
}

// Free releases the weights.
func (c *Critic) Free() {
	if c.body != nil {
		c.body.Free()
	}
	device.Free(c.weight, c.bias)
}

// Values returns the value before each wanted token of the batch.
func (c *Critic) Values(batch *Batch) (values []float32, err error) {
	p := c.program
	in, err := batch.upload(p.dev, &p.cfg)
	defer in.free()
	if err != nil {
		return nil, err
	}
	x, err := p.forward(c.body, in)
	if err != nil {
		return nil, err
	}
	defer device.Free(x)
	err = p.eachChunk(batch, x, func(part chunk) error {
		out, err := c.values.Call(c.body.finalNorm(), c.weight, c.bias, part.rows)
		if err != nil {
			return err
		}
		defer device.Free(out...)
		v, err := device.Values[float32](out[0])
		if err != nil {
			return err
		}
		values = append(values, v[:part.end-part.begin]...)
		return nil
	})
	return values, err
}

// Backward adds the gradients of a loss over the values before the wanted tokens of a batch to grads, as
// Program.Backward does for log-probabilities, and returns the sums of the loss over all wanted tokens. loss.Fn is
// given the values [n] in place of log-probabilities and returns their derivative.
func (c *Critic) Backward(batch *Batch, loss Loss, grads *Gradients) (sums []float64, err error) {
	for i, e := range loss.Extras {
		if len(e) != batch.Wanted {
			return nil, fmt.Errorf("loss %s: input %d has %d values for %d tokens", loss.Name, i, len(e), batch.Wanted)
		}
	}
	if batch.Wanted == 0 {
		return nil, nil
	}
	p := c.program
	in, err := batch.upload(p.dev, &p.cfg)
	defer in.free()
	if err != nil {
		return nil, err
	}
	s, err := p.forwardKeeping(c.body, in)
	defer s.free()
	if err != nil {
		return nil, err
	}
	sums, dx, err := c.headBackward(batch, s.last(), loss, grads)
	if err != nil {
		return nil, err
	}
	return sums, p.blocksBackward(c.body, in, s, dx, grads)
}

// headBackward runs the head forward and backward over all chunks and returns the gradient [N, D] of the last block's
// output.
func (c *Critic) headBackward(batch *Batch, x *tensors.Tensor, loss Loss, grads *Gradients) (
	sums []float64, dx *tensors.Tensor, err error) {
	p, fn := c.program, c.gradFunc(loss)
	var pieces []*tensors.Tensor
	defer func() { device.Free(pieces...) }()
	norm, rows := len(c.body.names)-1, 0
	err = p.eachChunk(batch, x, func(part chunk) error {
		given, err := p.lossInputs(part, 1, loss)
		defer device.Free(given...)
		if err != nil {
			return err
		}
		// The first of the given is the temperature, which a value does not have.
		out, err := fn.Call(append([]*tensors.Tensor{c.body.finalNorm(), c.weight, c.bias, part.rows}, given[1:]...)...)
		if err != nil {
			return err
		}
		defer device.Free(out[4:]...)
		pieces, rows = append(pieces, out[0]), rows+part.size
		for i, t := range out[1:4] { // norm, weight, bias
			if err := p.accumulate(grads, norm+i, t); err != nil {
				return err
			}
		}
		v, err := device.Values[float32](out[4])
		if err != nil {
			return err
		}
		if sums == nil {
			sums = make([]float64, len(v))
		}
		for i := range v {
			sums[i] += float64(v[i])
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	dx, err = p.spread(batch, pieces, rows)
	return sums, dx, err
}

// gradFunc returns the head's backward pass for a loss.
func (c *Critic) gradFunc(loss Loss) *device.Func {
	// norm, weight, bias, rows, inside, extras
	return c.program.dev.SharedFunc("value gradient "+loss.Name, c.program.cfg.graphKey(), func(in []*Node) []*Node {
		return valueBackward(&c.program.cfg, in[0], in[1], in[2], in[3], in[4], in[5:], loss.Fn)
	})
}

// valueForward returns the normed rows [n, D] and the values [n] for rows [n, D] of the residual stream.
func valueForward(cfg *Config, norm, weight, bias, rows *Node) (normed, values *Node) {
	normed = rmsNorm(rows, norm, cfg.NormEps)                                  // [n, D]
	values = ReduceSum(Mul(normed, ExpandLeftToRank(weight, rows.Rank())), -1) // [n]
	return normed, Add(values, bias)
}

// valueBackward returns the gradients for rows [n, D], norm [D], weight [D] and bias [1], and the sums of the loss.
func valueBackward(cfg *Config, norm, weight, bias, rows, inside *Node, extras []*Node, loss TokenLoss) []*Node {
	normed, values := valueForward(cfg, norm, weight, bias, rows)
	dvalues, sums := loss(values, inside, extras)
	column := ExpandAxes(dvalues, -1)                             // [n, 1]
	dnormed := Mul(column, ExpandLeftToRank(weight, rows.Rank())) // [n, D]
	drows, dnorm := rmsNormBackward(rows, norm, cfg.NormEps, dnormed)
	dweight := ReduceSum(Mul(column, normed), 0) // [D]
	dbias := Reshape(ReduceAllSum(dvalues), 1)   // [1]
	return []*Node{drows, dnorm, dweight, dbias, sums}
}
