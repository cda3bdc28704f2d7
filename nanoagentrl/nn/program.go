package nn

import (
	"math"
	"slices"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Program holds the compiled graphs of one model shape on one device. A policy and its reference share one: the graphs
// take the weights as inputs. One graph serves all blocks, so compiling takes moments whatever the depth, and memory
// does not grow with layers x tokens².
type Program struct {
	dev   *device.Device
	cfg   Config
	chunk int

	embed, block, blockKeep, blockGrad, weightGrad *device.Func
	gatherRows, head, headInput, spreadRows        *device.Func
	embedGrad, add, zeros, transpose               *device.Func
	// keepBudget bounds the bytes that blocks keep for their backward pass.
	keepBudget int
	decode     *decodeGraphs
}

// headBudget bounds the size in bytes of one chunk of logits.
const headBudget = 128 << 20

// DefaultKeepBudget bounds, in bytes, what the blocks keep of the forward pass for the backward pass.
const DefaultKeepBudget = 1_500_000_000

// NewProgram prepares the graphs; each is compiled when it first meets a shape. Programs of equal models on one device
// share what was compiled.
func NewProgram(dev *device.Device, cfg Config) *Program {
	p := &Program{dev: dev, cfg: cfg, keepBudget: DefaultKeepBudget}
	p.chunk = 1 << int(math.Log2(max(16, float64(headBudget)/float64(4*cfg.VocabSize))))
	n, key := cfg.numLayerParams(), cfg.graphKey()
	p.embed = dev.SharedFunc("embed", key, func(in []*Node) []*Node { // embedding, ids [N, 1]
		return []*Node{ConvertDType(Gather(in[0], in[1]), dtypes.Float32)} // [N, D]
	})
	p.block = dev.SharedFunc("block", key, func(in []*Node) []*Node { // parameters, x, cos, sin, valid
		y, _ := blockForward(&p.cfg, layerOf(in[:n]), in[n], in[n+1], in[n+2], in[n+3])
		return []*Node{y}
	})
	p.blockKeep = dev.SharedFunc("block, kept", key, func(in []*Node) []*Node { // parameters, x, cos, sin, valid
		y, keep := blockForward(&p.cfg, layerOf(in[:n]), in[n], in[n+1], in[n+2], in[n+3])
		return append([]*Node{y}, keep.list()...)
	})
	p.blockGrad = dev.SharedFunc("block gradient", key, func(in []*Node) []*Node { // parameters, x, kept, cos, sin, valid, dy
		rest := in[n+1+numKept:]
		g := blockBackward(&p.cfg, layerOf(in[:n]), in[n], keptOf(in[n+1:]), rest[0], rest[1], rest[2], rest[3])
		return slices.Concat([]*Node{g.dx}, g.vectors, g.kept, g.inputs)
	})
	p.weightGrad = dev.SharedFunc("weight gradient", key, func(in []*Node) []*Node { // kept, inputs
		return weightGradients(in[:numMatrices], in[numMatrices:])
	})
	p.gatherRows = dev.SharedFunc("gather rows", key, func(in []*Node) []*Node { // x [N, D], places [n, 1]
		return []*Node{Gather(in[0], in[1])} // [n, D]
	})
	p.head = dev.SharedFunc("head", key, func(in []*Node) []*Node { // norm, output, rows, labels, invTemp
		logp, entropy := headForward(&p.cfg, in[0], in[1], in[2], in[3], in[4])
		return []*Node{logp, entropy}
	})
	p.headInput = dev.SharedFunc("head input", key, func(in []*Node) []*Node { // norm, output, rows
		return []*Node{headInput(&p.cfg, in[0], in[1], in[2])} // [D, n]
	})
	p.transpose = dev.SharedFunc("transpose", key, func(in []*Node) []*Node { return []*Node{Transpose(in[0], 0, 1)} })
	p.spreadRows = dev.SharedFunc("spread rows", key, func(in []*Node) []*Node { // places [N, 1], chunks [n, D]
		chunks := append([]*Node{}, in[1:]...)
		zero := Zeros(in[0].Graph(), in[1].Shape())
		rows := Concatenate(append(chunks, SliceAxis(zero, 0, AxisRange(0, 1))), 0)
		return []*Node{Gather(rows, in[0])} // [N, D]
	})
	p.embedGrad = dev.SharedFunc("embedding gradient", key, func(in []*Node) []*Node { // sum [V, D], ids [N, 1], dx [N, D]
		return []*Node{ScatterSum(in[0], in[1], in[2], false, false)}
	})
	p.zeros = dev.SharedFunc("zeros", key, func(in []*Node) []*Node { return []*Node{ZerosLike(in[0])} })
	p.decode = newDecodeGraphs(dev, &p.cfg)
	p.add = dev.SharedFunc("add", key, func(in []*Node) []*Node { return []*Node{Add(in[0], in[1])} })
	return p
}

// Device returns the device the program runs on.
func (p *Program) Device() *device.Device { return p.dev }

// Config returns the shape of the model.
func (p *Program) Config() *Config { return &p.cfg }

// SetKeepBudget bounds the bytes that the blocks may keep of a forward pass for the backward pass. Blocks for which
// there is no room run their forward pass again. The results are the same, bit for bit.
func (p *Program) SetKeepBudget(bytes int) { p.keepBudget = bytes }

// forward runs the blocks and returns the residual stream after the last. At most two tensors of the stream are alive
// at a time.
func (p *Program) forward(params *Params, in inputs) (*tensors.Tensor, error) {
	out, err := p.embed.Call(params.embedding(), in.ids)
	if err != nil {
		return nil, err
	}
	x := out[0]
	for i := range p.cfg.NumLayers {
		out, err := p.block.Call(p.blockArgs(params, i, x, in)...)
		device.Free(x)
		if err != nil {
			return nil, err
		}
		x = out[0]
	}
	return x, nil
}

// blockArgs are the inputs of block i on x.
func (p *Program) blockArgs(params *Params, i int, x *tensors.Tensor, in inputs) []*tensors.Tensor {
	return append(append([]*tensors.Tensor{}, params.layer(i)...), x, in.cos, in.sin, in.valid)
}

// LogProbs returns, for each wanted token of the batch, its log-probability and the entropy of the distribution it is
// scored under, in nats, with logits divided by the temperature.
func (p *Program) LogProbs(params *Params, batch *Batch, temperature float64) (logp, entropy []float32, err error) {
	in, err := batch.upload(p.dev, &p.cfg)
	defer in.free()
	if err != nil {
		return nil, nil, err
	}
	x, err := p.forward(params, in)
	if err != nil {
		return nil, nil, err
	}
	defer device.Free(x)
	err = p.eachChunk(batch, x, func(c chunk) error {
		invTemp := tensors.FromScalar(float32(1 / temperature))
		defer device.Free(invTemp)
		out, err := p.head.Call(params.finalNorm(), params.output(), c.rows, c.labels, invTemp)
		if err != nil {
			return err
		}
		defer device.Free(out...)
		l, err := device.Values[float32](out[0])
		if err != nil {
			return err
		}
		e, err := device.Values[float32](out[1])
		logp, entropy = append(logp, l[:c.end-c.begin]...), append(entropy, e[:c.end-c.begin]...)
		return err
	})
	return logp, entropy, err
}

// chunk is a stretch of a batch's wanted tokens, padded to a bucketed size.
type chunk struct {
	begin, end, size int
	rows, labels     *tensors.Tensor // [size, D], [size]
}

// eachChunk gathers the rows that predict the wanted tokens, at most p.chunk at a time, so that logits never exist for
// more tokens than that.
func (p *Program) eachChunk(batch *Batch, x *tensors.Tensor, do func(chunk) error) error {
	for begin := 0; begin < batch.Wanted; begin += p.chunk {
		c := chunk{begin: begin, end: min(begin+p.chunk, batch.Wanted)}
		c.size = min(p.chunk, nextPowerOfTwo(c.end-c.begin))
		places, labels := make([]int32, c.size), make([]int32, c.size)
		copy(places, batch.before[c.begin:c.end])
		copy(labels, batch.labels[c.begin:c.end])
		if err := p.runChunk(c, places, labels, x, do); err != nil {
			return err
		}
	}
	return nil
}

func (p *Program) runChunk(c chunk, places, labels []int32, x *tensors.Tensor, do func(chunk) error) error {
	at, err := device.Upload(p.dev, places, c.size, 1)
	if err != nil {
		return err
	}
	defer device.Free(at)
	if c.labels, err = device.Upload(p.dev, labels, c.size); err != nil {
		return err
	}
	defer device.Free(c.labels)
	out, err := p.gatherRows.Call(x, at)
	if err != nil {
		return err
	}
	defer device.Free(out...)
	c.rows = out[0]
	return do(c)
}

func nextPowerOfTwo(n int) int {
	size := 16
	for size < n {
		size *= 2
	}
	return size
}
