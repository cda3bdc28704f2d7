package nn

import (
	"fmt"
	"slices"

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
func (p *Program) accumulate(g *Gradients, i int, t *tensors.Tensor) (err error) {
	g.Tensors[i], err = p.sum(g.Tensors[i], t)
	return err
}

// sum returns a + b and takes ownership of both; a may be nil. On an error it returns a.
func (p *Program) sum(a, b *tensors.Tensor) (*tensors.Tensor, error) {
	if a == nil {
		return b, nil
	}
	out, err := p.add.Call(a, b)
	device.Free(b)
	if err != nil {
		return a, err
	}
	device.Free(a)
	return out[0], nil
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

// Backward adds the gradients of a loss over the wanted tokens of a batch to grads. It runs the blocks forward, then
// the head, then the blocks backward. Of each block it keeps the input, and of as many as the keep budget allows what
// their products gave; the others run forward again on the way back. So memory grows with layers x tokens x D, not with
// layers x tokens². A batch without wanted tokens has no gradient and gives an empty Outcome.
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
	s, err := p.forwardKeeping(params, in)
	defer s.free()
	if err != nil {
		return nil, err
	}
	outcome, dx, err := p.headBackward(params, batch, s.last(), temperature, loss, grads)
	if err != nil {
		return nil, err
	}
	return outcome, p.blocksBackward(params, in, s, dx, grads)
}

// stream is what a forward pass leaves for the backward pass.
type stream struct {
	// x are the inputs of the blocks, and last the output of the last.
	x []*tensors.Tensor
	// kept are the outputs of blockKeep after the first, nil for blocks that have to run again.
	kept [][]*tensors.Tensor
}

func (s *stream) last() *tensors.Tensor { return s.x[len(s.x)-1] }

func (s *stream) free() {
	device.Free(s.x...)
	for _, kept := range s.kept {
		device.Free(kept...)
	}
}

// forwardKeeping runs the blocks forward and keeps what the budget allows, of the last blocks first: their memory is
// free again before the first blocks ask for some.
func (p *Program) forwardKeeping(params *Params, in inputs) (*stream, error) {
	s := &stream{kept: make([][]*tensors.Tensor, p.cfg.NumLayers)}
	x, err := p.embed.Call(params.embedding(), in.ids)
	if err != nil {
		return s, err
	}
	s.x = x
	room := p.keepBudget / p.cfg.keptBytes(in.ids.Shape().Dim(0), params.layer(0)[1].DType().Size())
	for i := range p.cfg.NumLayers {
		fn := p.block
		if p.cfg.NumLayers-i <= room {
			fn = p.blockKeep
		}
		out, err := fn.Call(p.blockArgs(params, i, s.last(), in)...)
		if err != nil {
			return s, err
		}
		s.x, s.kept[i] = append(s.x, out[0]), out[1:]
	}
	return s, nil
}

// blocksBackward carries the gradient dx [N, D] of the last block's output, which it takes over, back through all
// blocks and the embedding, and frees the stream on the way.
func (p *Program) blocksBackward(params *Params, in inputs, s *stream, dx *tensors.Tensor, grads *Gradients) error {
	for i := p.cfg.NumLayers - 1; i >= 0; i-- {
		device.Free(s.last())
		s.x = s.x[:i+1]
		if len(s.kept[i]) == 0 {
			out, err := p.blockKeep.Call(p.blockArgs(params, i, s.x[i], in)...)
			if err != nil {
				device.Free(dx)
				return err
			}
			device.Free(out[0])
			s.kept[i] = out[1:]
		}
		next, err := p.blockBackward(params, i, in, s.x[i], s.kept[i], dx, grads)
		device.Free(dx)
		if err != nil {
			return err
		}
		device.Free(s.kept[i]...)
		s.kept[i], dx = nil, next
	}
	defer device.Free(dx)
	return p.embeddingBackward(params, in.ids, dx, grads)
}

// blockBackward adds the gradients of block i, whose input was x and which kept what is given, and returns the gradient
// for x.
func (p *Program) blockBackward(params *Params, i int, in inputs, x *tensors.Tensor, kept []*tensors.Tensor,
	dy *tensors.Tensor, grads *Gradients) (*tensors.Tensor, error) {
	args := slices.Concat(params.layer(i), []*tensors.Tensor{x}, kept, []*tensors.Tensor{in.cos, in.sin, in.valid, dy})
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
	var outputT *tensors.Tensor // the output matrix's gradient [D, V]
	defer func() { device.Free(append(pieces, outputT)...) }()
	outcome, rows := &Outcome{}, 0
	err = p.eachChunk(batch, x, func(c chunk) error {
		given, err := p.lossInputs(c, temperature, loss)
		defer device.Free(given...)
		if err != nil {
			return err
		}
		normed, err := p.headInput.Call(params.finalNorm(), params.output(), c.rows)
		if err != nil {
			return err
		}
		defer device.Free(normed...)
		args := []*tensors.Tensor{params.finalNorm(), params.output(), c.rows, normed[0], c.labels}
		out, err := fn.Call(append(args, given...)...)
		if err != nil {
			return err
		}
		defer device.Free(out[3:]...)
		pieces, rows = append(pieces, out[0]), rows+c.size
		if err := p.accumulate(grads, normIndex, out[1]); err != nil {
			return err
		}
		if outputT, err = p.sum(outputT, out[2]); err != nil {
			return err
		}
		return outcome.collect(out[3:], c.end-c.begin)
	})
	if err != nil {
		return nil, nil, err
	}
	output, err := p.transpose.Call(outputT)
	if err != nil {
		return nil, nil, err
	}
	device.Free(outputT)
	outputT = nil
	if err := p.accumulate(grads, outputIndex, output[0]); err != nil {
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

// headGradFunc returns the head's backward pass for a loss.
func (p *Program) headGradFunc(loss Loss) *device.Func {
	// norm, output, rows, normedT, labels, invTemp, inside, extras
	return p.dev.SharedFunc("head gradient "+loss.Name, p.cfg.graphKey(), func(in []*Node) []*Node {
		g := headBackward(&p.cfg, in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7:], loss.Fn)
		out := []*Node{g.rows, g.norm, g.outputT, g.logp, g.entropy}
		if g.sums != nil {
			out = append(out, g.sums)
		}
		return out
	})
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
