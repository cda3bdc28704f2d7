package bert

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Model is an encoder with its weights on a device. It may be used from several goroutines.
type Model struct {
	dev     *device.Device
	cfg     Config
	dtype   dtypes.DType
	weights []*tensors.Tensor
	// One graph serves all blocks, so that a new shape of rows is compiled in a moment.
	embed, block, pool *device.Func
}

// New uploads the weights of an encoder, asking load for each tensor by its name and shape. Matrix products are taken in
// dtype, dtypes.Float32 or dtypes.BFloat16, everything else in float32.
func New(dev *device.Device, cfg Config, dtype dtypes.DType,
	load func(name string, shape []int) ([]float32, error)) (_ *Model, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Model{dev: dev, cfg: cfg, dtype: dtype}
	defer func() {
		if err != nil {
			m.Free()
		}
	}()
	if err := m.upload(load); err != nil {
		return nil, err
	}
	m.embed = dev.NewFunc("encoder embedding", func(in []*Node) []*Node { // weights, ids and places [N]
		return []*Node{embed(&m.cfg, in[:numEmbeddingParams], in[numEmbeddingParams], in[numEmbeddingParams+1])}
	})
	m.block = dev.NewFunc("encoder block", func(in []*Node) []*Node { // weights, x [N, D], texts [B, T]
		x, texts := in[numLayerParams], in[numLayerParams+1]
		return []*Node{block(&m.cfg, in[:numLayerParams], x, texts)}
	})
	m.pool = dev.NewFunc("encoder pooling", func(in []*Node) []*Node { // x [N, D], texts [B, T], slots [S]
		return []*Node{pool(in[0], Reshape(in[1], in[0].Shape().Dim(0)), in[2])}
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
	narrow := m.dev.NewFunc("encoder matrix", func(in []*Node) []*Node { return []*Node{ConvertDType(in[0], m.dtype)} })
	dense := func(name string, in, out int) error {
		if err := put(transposed(host[name+".weight"], out, in), in, out); err != nil {
			return err
		}
		if m.dtype != dtypes.Float32 {
			last := &m.weights[len(m.weights)-1]
			converted, err := narrow.Call(*last)
			if err != nil {
				return err
			}
			device.Free(*last)
			*last = converted[0]
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

// Pack is a batch of texts in rows of one width, several texts to a row. The tokens of a text follow one another in one
// row.
type Pack struct {
	// IDs are the token ids, Places the places of the tokens in their texts, Texts the numbers of these texts, from 0, and
	// -1 for padding: [B*T] each.
	IDs, Places, Texts []int32
	// Width is T, Slots the number of embeddings; numbers of texts are below it.
	Width, Slots int
}

// NewPack returns a pack of rows that are all padding.
func NewPack(rows, width, slots int) *Pack {
	n := rows * width
	p := &Pack{IDs: make([]int32, n), Places: make([]int32, n), Texts: make([]int32, n), Width: width, Slots: slots}
	for i := range p.Texts {
		p.Texts[i] = -1
	}
	return p
}

// Put lays a text into a row, from a column on.
func (p *Pack) Put(text, row, column int, ids []int32) {
	at := row*p.Width + column
	copy(p.IDs[at:], ids)
	for i := range ids {
		p.Places[at+i], p.Texts[at+i] = int32(i), int32(text)
	}
}

func (p *Pack) check(cfg *Config) error {
	n := len(p.IDs)
	if p.Width < 1 || p.Slots < 1 || n == 0 || n%p.Width != 0 || len(p.Places) != n || len(p.Texts) != n {
		return fmt.Errorf("encoder: %d ids, %d places and %d texts do not make rows of %d tokens with %d texts", n, len(p.Places),
			len(p.Texts), p.Width, p.Slots)
	}
	for i, place := range p.Places {
		if place < 0 || int(place) >= cfg.MaxPositions {
			return fmt.Errorf("encoder: token %d has the place %d in its text; the model has %d", i, place, cfg.MaxPositions)
		}
	}
	return nil
}

// Encode returns the embeddings [Slots, D] of the texts of a pack; slots without a text are 0.
func (m *Model) Encode(p *Pack) ([]float32, error) {
	if err := p.check(&m.cfg); err != nil {
		return nil, err
	}
	slots := make([]int32, p.Slots)
	for i := range slots {
		slots[i] = int32(i)
	}
	n := len(p.IDs)
	var inputs []*tensors.Tensor // ids [N], places [N], texts [B, T], slots [S]
	defer func() { device.Free(inputs...) }()
	for _, in := range []struct {
		values []int32
		dims   []int
	}{{p.IDs, []int{n}}, {p.Places, []int{n}}, {p.Texts, []int{n / p.Width, p.Width}}, {slots, []int{p.Slots}}} {
		t, err := device.Upload(m.dev, in.values, in.dims...)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, t)
	}
	texts := inputs[2]
	out, err := m.embed.Call(append(slices.Clone(m.weights[:numEmbeddingParams]), inputs[:2]...)...)
	if err != nil {
		return nil, err
	}
	for layer := range slices.Chunk(m.weights[numEmbeddingParams:], numLayerParams) {
		x := out[0]
		out, err = m.block.Call(append(slices.Clone(layer), x, texts)...)
		device.Free(x)
		if err != nil {
			return nil, err
		}
	}
	defer device.Free(out...)
	pooled, err := m.pool.Call(out[0], texts, inputs[3])
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
