package nn

import (
	"fmt"

	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Gradients hold the f32 gradient of each parameter, in the order of Config.Params, summed over micro-batches. Tensors
// that no batch has touched are nil.
type Gradients struct{ Tensors []*tensors.Tensor }

// NewGradients returns gradients with nothing in them for a model of this shape.
func NewGradients(cfg *Config) *Gradients {
	return &Gradients{Tensors: make([]*tensors.Tensor, len(cfg.Params()))}
}

// Free releases the gradients and empties g for the next step.
func (g *Gradients) Free() {
	device.Free(g.Tensors...)
	clear(g.Tensors)
}

// accumulate adds t to gradient i and takes ownership of it.
func (p *Program) accumulate(g *Gradients, i int, t *tensors.Tensor) error {
	if g.Tensors[i] == nil {
		g.Tensors[i] = t
		return nil
	}
	out, err := p.add.Call(g.Tensors[i], t)
	if err != nil {
		return err
	}
	device.Free(g.Tensors[i], t)
	g.Tensors[i] = out[0]
	return nil
}

// Loss names a TokenLoss, so that its compiled graph can be found again, and gives its inputs.
type Loss struct {
	// Name identifies Fn and all that is baked into it; two losses with different behaviour need different names.
	Name string
	Fn   TokenLoss
	// Extras are the values per wanted token that Fn takes, [Batch.Wanted] each.
	Extras [][]float32
}

// Outcome is what Backward found on the way.
type Outcome struct {
	// LogProbs and Entropy have one value for each wanted token, in nats.
	LogProbs, Entropy []float32
	// Sums are the sums of the loss over all wanted tokens; nil if it has none.
	Sums []float64
}

// Backward adds the gradients of a loss over the wanted tokens of a batch to grads. It runs the blocks forward, keeping
// only the input of each, then the head, then the blocks backward, recomputing each from its input: memory grows with
// layers x tokens x D, not with layers x tokens². A batch without wanted tokens has no gradient and gives an empty
// Outcome.
func (p *Program) Backward(params *Params, batch *Batch, temperature float64, loss Loss, grads *Gradients) (
	*Outcome, error) {
	for i, e := range loss.Extras {
		if len(e) != batch.Wanted {
			return nil, fmt.Errorf("loss %s: input %d has %d values for %d tokens", loss.Name, i, len(e), batch.Wanted)
		}
	}
	if batch.Wanted == 0 {
		return &Outcome{}, nil
	}
	in, err := batch.upload(p.dev, &p.cfg)
	defer in.free()
	if err != nil {
		return nil, err
	}
	stream, err := p.forward(params, in, true)
	if err != nil {
		return nil, err
	}
	defer func() { device.Free(stream...) }()
	outcome, dx, err := p.headBackward(params, batch, stream[len(stream)-1], temperature, loss, grads)
	if err != nil {
		return nil, err
	}
	for i := p.cfg.NumLayers - 1; i >= 0; i-- {
		next, err := p.blockBackward(params, i, in, stream[i], dx, grads)
		device.Free(dx, stream[i+1])
		if err != nil {
			return nil, err
		}
		stream, dx = stream[:i+1], next
	}
	defer device.Free(dx)
	return outcome, p.embeddingBackward(params, in.ids, dx, grads)
}

// blockBackward adds the gradients of block i, whose input was x, and returns the gradient for x.
func (p *Program) blockBackward(params *Params, i int, in inputs, x, dy *tensors.Tensor, grads *Gradients) (
	*tensors.Tensor, error) {
	args := append(append([]*tensors.Tensor{}, params.layer(i)...), x, in.cos, in.sin, in.valid, dy)
	out, err := p.blockGrad.Call(args...)
	if err != nil {
		return nil, err
	}
	products := out[len(out)-numMatrices-numInputs:]
	matrices, err := p.weightGrad.Call(products...)
	device.Free(products...)
	if err != nil {
		device.Free(out[0])
		return nil, err
	}
	vectors := out[1 : len(out)-numMatrices-numInputs]
	first := 1 + i*p.cfg.numLayerParams()
	for j, t := range inOrder(vectors, matrices) {
		if err := p.accumulate(grads, first+j, t); err != nil {
			device.Free(out[0])
			return nil, err
		}
	}
	return out[0], nil
}

// embeddingBackward adds the gradient of the embedding rows.
func (p *Program) embeddingBackward(params *Params, ids, dx *tensors.Tensor, grads *Gradients) error {
	if grads.Tensors[0] == nil {
		zeros, err := p.zeros.Call(params.Master(0))
		if err != nil {
			return err
		}
		grads.Tensors[0] = zeros[0]
	}
	out, err := p.embedGrad.Call(grads.Tensors[0], ids, dx)
	if err != nil {
		return err
	}
	device.Free(grads.Tensors[0])
	grads.Tensors[0] = out[0]
	return nil
}

// headBackward runs the head forward and backward over all chunks and returns the gradient [N, D] of the last block's
// output.
func (p *Program) headBackward(params *Params, batch *Batch, x *tensors.Tensor, temperature float64, loss Loss,
	grads *Gradients) (outcome *Outcome, dx *tensors.Tensor, err error) {
	fn := p.headGradFunc(loss)
	outputIndex := 0 // of the output matrix
	if !p.cfg.TieEmbeddings {
		outputIndex = len(grads.Tensors) - 1
	}
	normIndex := 1 + p.cfg.NumLayers*p.cfg.numLayerParams()
	var pieces []*tensors.Tensor
	defer func() { device.Free(pieces...) }()
	outcome, rows := &Outcome{}, 0
	err = p.eachChunk(batch, x, func(c chunk) error {
		given, err := p.lossInputs(c, temperature, loss)
		defer device.Free(given...)
		if err != nil {
			return err
		}
		out, err := fn.Call(append([]*tensors.Tensor{params.finalNorm(), params.output(), c.rows, c.labels}, given...)...)
		if err != nil {
			return err
		}
		defer device.Free(out[3:]...)
		pieces, rows = append(pieces, out[0]), rows+c.size
		if err := p.accumulate(grads, normIndex, out[1]); err != nil {
			return err
		}
		if err := p.accumulate(grads, outputIndex, out[2]); err != nil {
			return err
		}
		return outcome.collect(out[3:], c.end-c.begin)
	})
	if err != nil {
		return nil, nil, err
	}
	dx, err = p.spread(batch, pieces, rows)
	return outcome, dx, err
}

// lossInputs returns the temperature, the padding mask and the loss's own values for a chunk.
func (p *Program) lossInputs(c chunk, temperature float64, loss Loss) (given []*tensors.Tensor, err error) {
	given = append(given, tensors.FromScalar(float32(1/temperature)))
	inside := make([]float32, c.size)
	for i := range c.end - c.begin {
		inside[i] = 1
	}
	padded := [][]float32{inside}
	for _, values := range loss.Extras {
		part := make([]float32, c.size)
		copy(part, values[c.begin:c.end])
		padded = append(padded, part)
	}
	for _, padded := range padded {
		t, err := device.Upload(p.dev, padded, c.size)
		if err != nil {
			return given, err
		}
		given = append(given, t)
	}
	return given, nil
}

// collect adds what one chunk of n tokens gave: log-probabilities, entropies and, if the loss has them, sums.
func (o *Outcome) collect(out []*tensors.Tensor, n int) error {
	for i, into := range []*[]float32{&o.LogProbs, &o.Entropy} {
		values, err := device.Values[float32](out[i])
		if err != nil {
			return err
		}
		*into = append(*into, values[:n]...)
	}
	if len(out) == 2 {
		return nil
	}
	sums, err := device.Values[float32](out[2])
	if err != nil {
		return err
	}
	if o.Sums == nil {
		o.Sums = make([]float64, len(sums))
	}
	for i, v := range sums {
		o.Sums[i] += float64(v)
	}
	return nil
}

// headGradFunc compiles the head's backward pass for a loss once.
func (p *Program) headGradFunc(loss Loss) *device.Func {
	if fn, ok := p.headGrads[loss.Name]; ok {
		return fn
	}
	// norm, output, rows, labels, invTemp, inside, extras
	fn := p.dev.NewFunc("head gradient "+loss.Name, func(in []*Node) []*Node {
		g := headBackward(&p.cfg, in[0], in[1], in[2], in[3], in[4], in[5], in[6:], loss.Fn)
		out := []*Node{g.rows, g.norm, g.output, g.logp, g.entropy}
		if g.sums != nil {
			out = append(out, g.sums)
		}
		return out
	})
	p.headGrads[loss.Name] = fn
	return fn
}

// spread puts the gradients of the predicting rows back at their places among all tokens; the others get 0.
func (p *Program) spread(batch *Batch, pieces []*tensors.Tensor, rows int) (*tensors.Tensor, error) {
	places := make([]int32, batch.Rows*batch.Width)
	for i := range places {
		places[i] = int32(rows) // the row of zeros after the pieces
	}
	for j, at := range batch.before {
		places[at] = int32(j)
	}
	at, err := device.Upload(p.dev, places, len(places), 1)
	if err != nil {
		return nil, err
	}
	defer device.Free(at)
	out, err := p.spreadRows.Call(append([]*tensors.Tensor{at}, pieces...)...)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// NegativeLogLikelihood is the Loss Σ -w·logp with one weight for each token.
func NegativeLogLikelihood(weights []float32) Loss {
	return Loss{Name: "nll", Extras: [][]float32{weights}, Fn: func(logp, inside *Node, extras []*Node) (*Node, *Node) {
		return Neg(Mul(inside, extras[0])), nil
	}}
}
