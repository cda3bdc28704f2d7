package bert

import (
	"fmt"
	"math"
	"slices"

	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Model is an encoder with its weights in float32 on a device. It may be used from several goroutines.
type Model struct {
	dev     *device.Device
	cfg     Config
	weights []*tensors.Tensor
	// One graph serves all blocks, so that a new shape of rows is compiled in a moment.
	embed, block, pool *device.Func
}

// New uploads the weights of an encoder, asking load for each tensor by its name and shape.
func New(dev *device.Device, cfg Config, load func(name string, shape []int) ([]float32, error)) (_ *Model, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Model{dev: dev, cfg: cfg}
	defer func() {
		if err != nil {
			m.Free()
		}
	}()
	if err := m.upload(load); err != nil {
		return nil, err
	}
	m.embed = dev.NewFunc("encoder embedding", func(in []*Node) []*Node { // 4 weights, ids [B, T]
		return []*Node{embed(&m.cfg, in[:numEmbeddingParams], in[numEmbeddingParams])}
	})
	m.block = dev.NewFunc("encoder block", func(in []*Node) []*Node { // weights, x [N, D], lengths [B]
		x, lengths := in[numLayerParams], in[numLayerParams+1]
		return []*Node{block(&m.cfg, in[:numLayerParams], x, lengths)}
	})
	m.pool = dev.NewFunc("encoder pooling", func(in []*Node) []*Node { // x [N, D], lengths [B]
		return []*Node{pool(in[0], in[1])}
	})
	return m, nil
}

// upload puts the weights on the device in the layouts that the graph takes: position and type embeddings added,
// queries, keys and values in one matrix, matrices [in, out].
func (m *Model) upload(load func(name string, shape []int) ([]float32, error)) error {
	host := map[string][]float32{}
	for _, p := range m.cfg.Params() {
		size := 1
		for _, d := range p.Shape {
			size *= d
		}
		values, err := load(p.Name, p.Shape)
		if err == nil && len(values) != size {
			err = fmt.Errorf("it has %d values, the shape %v asks for %d", len(values), p.Shape, size)
		}
		if err != nil {
			return fmt.Errorf("loading %s: %w", p.Name, err)
		}
		host[p.Name] = values
	}
	put := func(values []float32, dims ...int) error {
		t, err := device.Upload(m.dev, values, dims...)
		if err == nil {
			m.weights = append(m.weights, t)
		}
		return err
	}
	d, f := m.cfg.HiddenSize, m.cfg.IntermediateSize
	places := host[positionEmbedding]
	for i := range places {
		places[i] += host[typeEmbedding][i%d]
	}
	if err := put(host[wordEmbedding], m.cfg.VocabSize, d); err != nil {
		return err
	}
	if err := put(places, m.cfg.MaxPositions, d); err != nil {
		return err
	}
	norm := func(name string) error {
		if err := put(host[name+".weight"], d); err != nil {
			return err
		}
		return put(host[name+".bias"], d)
	}
	dense := func(name string, in, out int) error {
		if err := put(transposed(host[name+".weight"], out, in), in, out); err != nil {
			return err
		}
		return put(host[name+".bias"], out)
	}
	if err := norm(embeddingNorm); err != nil {
		return err
	}
	for i := range m.cfg.NumLayers {
		m.joinHeads(host, i)
		for _, step := range []func() error{
			func() error { return dense(layerName(i, "qkv"), d, 3*d) },
			func() error { return dense(layerName(i, "attention.output.dense"), d, d) },
			func() error { return norm(layerName(i, "attention.output.LayerNorm")) },
			func() error { return dense(layerName(i, "intermediate.dense"), d, f) },
			func() error { return dense(layerName(i, "output.dense"), f, d) },
			func() error { return norm(layerName(i, "output.LayerNorm")) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

// joinHeads joins the projections of queries, keys and values of a layer, and scales queries by 1/sqrt(E).
func (m *Model) joinHeads(host map[string][]float32, layer int) {
	scale := float32(1 / math.Sqrt(float64(m.cfg.HiddenSize/m.cfg.NumHeads)))
	for _, kind := range []string{".weight", ".bias"} {
		var all []float32
		for i, part := range []string{"query", "key", "value"} {
			for _, v := range host[layerName(layer, "attention.self."+part)+kind] {
				if i == 0 {
					v *= scale
				}
				all = append(all, v)
			}
		}
		host[layerName(layer, "qkv")+kind] = all
	}
}

// transposed returns the transpose of a matrix [rows, columns].
func transposed(values []float32, rows, columns int) []float32 {
	out := make([]float32, len(values))
	for i := range rows {
		for j := range columns {
			out[j*rows+i] = values[i*columns+j]
		}
	}
	return out
}

// Encode returns the embeddings [rows, D] of rows of token ids, padded to one width: ids is [rows*width], lengths says
// how many tokens of each row, at its start, are no padding.
func (m *Model) Encode(ids, lengths []int32, width int) ([]float32, error) {
	if width < 1 || width > m.cfg.MaxPositions || len(ids) != len(lengths)*width {
		return nil, fmt.Errorf("encoder: %d ids do not make %d rows of %d tokens, or these are more than %d", len(ids),
			len(lengths), width, m.cfg.MaxPositions)
	}
	tokens, err := device.Upload(m.dev, ids, len(lengths), width)
	if err != nil {
		return nil, err
	}
	defer device.Free(tokens)
	sizes, err := device.Upload(m.dev, lengths, len(lengths))
	if err != nil {
		return nil, err
	}
	defer device.Free(sizes)
	out, err := m.embed.Call(append(slices.Clone(m.weights[:numEmbeddingParams]), tokens)...)
	if err != nil {
		return nil, err
	}
	for layer := range slices.Chunk(m.weights[numEmbeddingParams:], numLayerParams) {
		x := out[0]
		out, err = m.block.Call(append(slices.Clone(layer), x, sizes)...)
		device.Free(x)
		if err != nil {
			return nil, err
		}
	}
	defer device.Free(out...)
	pooled, err := m.pool.Call(out[0], sizes)
	if err != nil {
		return nil, err
	}
	defer device.Free(pooled...)
	return device.Values[float32](pooled[0])
}

// Config returns the shape of the encoder.
func (m *Model) Config() Config { return m.cfg }

// Free releases the weights.
func (m *Model) Free() {
	device.Free(m.weights...)
	m.weights = nil
}
