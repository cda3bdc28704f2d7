package nn

import (
	"math"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// decodeGraphs are the graphs of Extend and Sample.
type decodeGraphs struct{ block, sample, greedy, logits, write *device.Func }

func newDecodeGraphs(dev *device.Device, cfg *Config) *decodeGraphs {
	n, key := cfg.numLayerParams(), cfg.graphKey()
	return &decodeGraphs{
		block: dev.SharedFunc("cached block", key, func(in []*Node) []*Node { // parameters, x, cos, sin, [keys, values, lens]
			return blockCached(cfg, layerOf(in[:n]), in[n], in[n+1], in[n+2], in[n+3:])
		}),
		sample: dev.SharedFunc("sample", key, func(in []*Node) []*Node { // norm, output, x [B, D], invTemp, uniform [B]
			scores, raw := logits(cfg, in[0], in[1], in[2], in[3])
			ids := inverseCDF(scores, in[4])
			return []*Node{ids, measure(scores, Mul(pick(raw, ids), in[3])).logp}
		}),
		greedy: dev.SharedFunc("greedy", key, func(in []*Node) []*Node { // norm, output, x [B, D], invTemp
			scores, raw := logits(cfg, in[0], in[1], in[2], in[3])
			ids := ArgMax(scores, -1, dtypes.Int32)
			return []*Node{ids, measure(scores, Mul(pick(raw, ids), in[3])).logp}
		}),
		logits: dev.SharedFunc("logits", key, func(in []*Node) []*Node { // norm, output, x [B, D]
			scores, _ := logits(cfg, in[0], in[1], in[2], ScalarOne(in[2].Graph(), dtypes.Float32))
			return []*Node{scores}
		}),
		write: dev.SharedFunc("cache write", key, func(in []*Node) []*Node { // cache, fresh, lens, counts
			return []*Node{cacheWrite(in[0], in[1], in[2], in[3])}
		}),
	}
}

// blockCached is one block on T new tokens of each row, which see the row's cached tokens and each other causally.
// x is [B*T, D], cos and sin [B, T, E/2]; cache is empty or holds keys and values [B, K, L, E] and the number of cached
// tokens of each row [B]. It returns the block's output and the new keys and values [B, K, T, E].
func blockCached(cfg *Config, l layer, x, cos, sin *Node, cache []*Node) []*Node {
	b, t := cos.Shape().Dim(0), cos.Shape().Dim(1)
	kv, e := cfg.NumKVHeads, cfg.HeadDim
	h := project(cfg, l, x, cos, sin)
	o := cachedAttention(h.q, h.k, h.v, cache)
	f := finish(cfg, l, x, mergeHeads(o, b, t, kv, cfg.NumHeads/kv, e))
	return []*Node{f.y, Reshape(h.k, b, kv, t, e), Reshape(h.v, b, kv, t, e)}
}

// cachedAttention is attention over two stretches of keys, the cached and the new ones, joined in one softmax.
func cachedAttention(q, k, v *Node, cache []*Node) *Node {
	g, bk, t := q.Graph(), k.Shape().Dim(0), k.Shape().Dim(1)
	query := Iota(g, shapes.Make(dtypes.Int32, 1, t, t), 1)
	key := Iota(g, shapes.Make(dtypes.Int32, 1, t, t), 2)
	fresh := scores(q, k, additive(LessOrEqual(key, query))) // [B*K, G*T, T]
	top := ReduceAndKeep(fresh, ReduceMax, -1)               // [B*K, G*T, 1]
	var old, values *Node
	if len(cache) > 0 {
		b, length, e := cache[0].Shape().Dim(0), cache[0].Shape().Dim(2), cache[0].Shape().Dim(3)
		heads := bk / b
		values = Reshape(cache[1], bk, length, e)
		place := Iota(g, shapes.Make(dtypes.Int32, b, heads, 1, length), 3)
		cached := LessThan(place, BroadcastToDims(ExpandAxes(cache[2], 1, 2, 3), b, heads, 1, length))
		old = scoresOf(q, Reshape(cache[0], bk, length, e), Reshape(additive(cached), bk, 1, length)) // [B*K, G*T, L]
		top = Max(top, ReduceAndKeep(old, ReduceMax, -1))
	}
	weigh := func(s, v *Node) (o, sum *Node) {
		w := Exp(Sub(s, top))
		o = DotGeneral(ConvertDType(w, q.DType()), []int{2}, []int{0}, v, []int{1}, []int{0}) // [B*K, G*T, E]
		return widen(o), ReduceAndKeep(w, ReduceSum, -1)
	}
	o, sum := weigh(fresh, v)
	if old != nil {
		o2, sum2 := weigh(old, values)
		o, sum = Add(o, o2), Add(sum, sum2)
	}
	return ConvertDType(Div(o, sum), q.DType())
}

// scoresOf returns scaled scores plus an additive mask that is the same for all queries: q [B*K, G*T, E],
// k [B*K, L, E], mask [B*K, 1, L].
func scoresOf(q, k, mask *Node) *Node {
	s := widen(DotGeneral(q, []int{2}, []int{0}, k, []int{2}, []int{0})) // [B*K, G*T, L]
	s = MulScalar(s, 1/math.Sqrt(float64(q.Shape().Dim(2))))
	return Add(s, BroadcastToShape(mask, s.Shape()))
}

// inverseCDF draws one id for each row of scores [B, V] by walking the cumulative distribution up to uniform [B], in
// [0, 1): first over blocks of 128 ids, then inside one, with sums made by products with a triangular matrix.
func inverseCDF(scores, uniform *Node) *Node {
	const width = 128
	g, b, v := scores.Graph(), scores.Shape().Dim(0), scores.Shape().Dim(1)
	p := Exp(Sub(scores, ReduceAndKeep(scores, ReduceMax, -1))) // [B, V], unnormalised
	padded := p
	if rest := v % width; rest != 0 {
		padded = Concatenate([]*Node{p, Zeros(g, shapes.Make(p.DType(), b, width-rest))}, -1)
	}
	blocks := padded.Shape().Dim(1) / width
	table := Reshape(padded, b, blocks, width)
	mass := ReduceSum(table, -1)                                                // [B, blocks]
	upTo := cumulative(mass)                                                    // [B, blocks]
	total := SliceAxis(upTo, 1, AxisRange(blocks-1, blocks))                    // [B, 1]
	target := Mul(ExpandAxes(uniform, -1), total)                               // [B, 1]
	block := countBelow(upTo, target)                                           // [B, 1]
	chosen := oneHotRows(block, blocks)                                         // [B, blocks]
	start := ReduceAndKeep(Mul(chosen, Sub(upTo, mass)), ReduceSum, -1)         // [B, 1]
	inside := DotGeneral(chosen, []int{1}, []int{0}, table, []int{1}, []int{0}) // [B, width]
	place := countBelow(Add(cumulative(inside), start), target)                 // [B, 1]
	id := Squeeze(Add(MulScalar(block, width), place), -1)                      // [B]
	weight := ReduceSum(Mul(oneHotRows(place, width), inside), -1)              // [B]
	impossible := LessOrEqual(weight, ZerosLike(weight))                        // rounding led to an id of probability 0
	return Where(impossible, ArgMax(scores, -1, dtypes.Int32), id)
}

// cumulative returns inclusive sums along the last axis of x [B, n].
func cumulative(x *Node) *Node {
	n := x.Shape().Dim(1)
	from := Iota(x.Graph(), shapes.Make(dtypes.Int32, n, n), 1)
	to := Iota(x.Graph(), shapes.Make(dtypes.Int32, n, n), 0)
	return product(x, ConvertDType(LessOrEqual(from, to), x.DType())) // [B, n]
}

// countBelow returns how many of upTo [B, n] are at most target [B, 1], as an index below n, [B, 1] int32.
func countBelow(upTo, target *Node) *Node {
	below := LessOrEqual(upTo, BroadcastToShape(target, upTo.Shape()))
	count := ReduceAndKeep(ConvertDType(below, dtypes.Int32), ReduceSum, -1)
	return MinScalar(count, upTo.Shape().Dim(1)-1)
}

// oneHotRows returns [B, n] f32 with 1 at each row's index [B, 1].
func oneHotRows(index *Node, n int) *Node {
	b := index.Shape().Dim(0)
	ids := Iota(index.Graph(), shapes.Make(dtypes.Int32, b, n), 1)
	return ConvertDType(Equal(ids, BroadcastToDims(index, b, n)), dtypes.Float32)
}

// Extend runs T new tokens of each cached row through the model, appends their keys and values to the cache, and
// returns the residual stream [B*T, D]. tokens[b] holds the new tokens of row b: at most T of them, possibly none.
func (p *Program) Extend(params *Params, cache *Cache, tokens [][]int, width int) (*tensors.Tensor, error) {
	b := cache.Rows()
	ids, positions := make([]int32, b*width), make([]int32, b*width)
	counts := make([]int, b)
	for row, list := range tokens {
		counts[row] = len(list)
		for t, id := range list {
			ids[row*width+t], positions[row*width+t] = int32(id), int32(cache.lens[row]+t)
		}
	}
	batch := &Batch{Rows: b, Width: width, ids: ids, positions: positions, valid: make([]int32, b*width)}
	in, err := batch.upload(p.dev, &p.cfg)
	defer in.free()
	if err != nil {
		return nil, err
	}
	lens, err := cache.uploadLens(p.dev)
	if err != nil {
		return nil, err
	}
	defer device.Free(lens)
	x, err := p.embed.Call(params.embedding(), in.ids)
	if err != nil {
		return nil, err
	}
	for i := range p.cfg.NumLayers {
		args := append(append([]*tensors.Tensor{}, params.layer(i)...), x[0], in.cos, in.sin)
		if cache.longest() > 0 {
			args = append(args, cache.keys[i], cache.values[i], lens)
		}
		out, err := p.decode.block.Call(args...)
		device.Free(x...)
		if err != nil {
			return nil, err
		}
		err = cache.write(p.decode.write, i, out[1], out[2], lens, counts)
		device.Free(out[1:]...)
		if err != nil {
			device.Free(out[0])
			return nil, err
		}
		x = out[:1]
	}
	for row, n := range counts {
		cache.lens[row] += n
	}
	return x[0], nil
}

// NextLogits returns the model's scores [V] of all tokens that might follow ids.
func (p *Program) NextLogits(params *Params, ids []int) ([]float32, error) {
	cache, err := NewCache(params, 1, len(ids))
	if err != nil {
		return nil, err
	}
	defer cache.Free()
	x, err := p.Extend(params, cache, [][]int{ids}, len(ids))
	if err != nil {
		return nil, err
	}
	defer device.Free(x)
	at, err := device.Upload(p.dev, []int32{int32(len(ids) - 1)}, 1, 1)
	if err != nil {
		return nil, err
	}
	defer device.Free(at)
	last, err := p.gatherRows.Call(x, at)
	if err != nil {
		return nil, err
	}
	defer device.Free(last...)
	out, err := p.decode.logits.Call(params.finalNorm(), params.output(), last[0])
	if err != nil {
		return nil, err
	}
	defer device.Free(out...)
	return device.Values[float32](out[0])
}

// Sample draws the next token of each row from the residual stream x [B, D] of its last token, by inverse transform of
// uniform [B], numbers in [0, 1). With temperature 0 it takes the most likely token and uniform may be nil. It returns
// the ids and their log-probabilities, in nats, under softmax(logits/temperature), for temperature 0 under the
// model's own distribution.
func (p *Program) Sample(params *Params, x *tensors.Tensor, temperature float64, uniform []float32) (
	ids []int32, logp []float32, err error) {
	fn, invTemp := p.decode.greedy, float32(1)
	args := []*tensors.Tensor{params.finalNorm(), params.output(), x}
	if temperature > 0 {
		fn, invTemp = p.decode.sample, float32(1/temperature)
	}
	scale := tensors.FromScalar(invTemp)
	defer device.Free(scale)
	args = append(args, scale)
	if temperature > 0 {
		u, err := device.Upload(p.dev, uniform, len(uniform))
		if err != nil {
			return nil, nil, err
		}
		defer device.Free(u)
		args = append(args, u)
	}
	out, err := fn.Call(args...)
	if err != nil {
		return nil, nil, err
	}
	defer device.Free(out...)
	if ids, err = device.Values[int32](out[0]); err != nil {
		return nil, nil, err
	}
	logp, err = device.Values[float32](out[1])
	return ids, logp, err
}
