package nn

import (
	"math"
	"testing"

	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

func wantAll(ids []int) Row {
	mask := make([]uint8, len(ids))
	for i := 1; i < len(ids); i++ {
		mask[i] = 1
	}
	return Row{IDs: ids, Mask: mask}
}

func logProbs(t *testing.T, program *Program, params *Params, rows []Row, width int, left bool) []float32 {
	batch, err := NewBatch(rows, width, left)
	require.NoError(t, err)
	logp, _, err := program.LogProbs(params, batch, 1)
	require.NoError(t, err)
	return logp
}

func TestRowInLeftPaddedBatchEqualsRowAlone(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		cfg := tinyConfig()
		params, program := tinyParams(t, dev, cfg, 5), NewProgram(dev, cfg)
		long := wantAll([]int{4, 8, 15, 16, 23, 36, 1, 2, 3, 4, 5, 6, 7})
		short := wantAll([]int{3, 1, 4, 1, 5})
		alone := logProbs(t, program, params, []Row{short}, 0, false)
		for _, left := range []bool{false, true} {
			both := logProbs(t, program, params, []Row{long, short}, 32, left)
			require.InDeltaSlice(t, alone, both[len(long.IDs)-1:], 1e-4, "left %v", left)
		}
	})
}

// Under rotary positions a shift of a whole row changes log-probabilities by next to nothing, so positions are looked
// at themselves.
func TestPositionsCountValidTokensOnly(t *testing.T) {
	rows := []Row{wantAll([]int{7, 8, 9}), wantAll([]int{5})}
	left, err := NewBatch(rows, 4, true)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 0, 1, 2, 0, 0, 0, 0}, left.positions)
	require.Equal(t, []int32{0, 1, 1, 1, 0, 0, 0, 1}, left.valid)
	require.Equal(t, []int32{1, 2}, left.before)
	right, err := NewBatch(rows, 4, false)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 0, 0, 0, 0, 0}, right.positions)
	require.Equal(t, []int32{0, 1}, right.before)
}

// Off by one: prompt [p1 p2 p3] and response [r1 r2] train r1 and r2, predicted from p3 and r1.
func TestFirstResponseTokenIsWanted(t *testing.T) {
	b, err := NewBatch([]Row{{IDs: []int{11, 12, 13, 21, 22}, Mask: []uint8{0, 0, 0, 1, 1}}}, 0, false)
	require.NoError(t, err)
	require.Equal(t, []int32{2, 3}, b.before)
	require.Equal(t, []int32{21, 22}, b.labels)
}

func TestFirstTokenOfRowCannotBeWanted(t *testing.T) {
	_, err := NewBatch([]Row{{IDs: []int{1, 2}, Mask: []uint8{1, 1}}}, 0, false)
	require.ErrorContains(t, err, "first token")
	_, err = NewBatch([]Row{{IDs: []int{1, 2}, Mask: []uint8{0}}}, 0, false)
	require.ErrorContains(t, err, "2 tokens and a mask of 1")
}

func TestRaggedBatchEqualsRowByRow(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		cfg := tinyConfig()
		params, program := tinyParams(t, dev, cfg, 6), NewProgram(dev, cfg)
		program.chunk = 16
		rows := []Row{
			{IDs: []int{1, 2, 3, 4, 5, 6, 7, 8}, Mask: []uint8{0, 0, 0, 1, 0, 1, 1, 1}},
			{IDs: []int{9, 8, 7}, Mask: []uint8{0, 0, 1}},
			wantAll([]int{30, 31, 32, 33, 34, 35, 36, 0, 1, 2, 3, 4, 5, 6, 7}),
		}
		var want []float32
		for _, r := range rows {
			want = append(want, logProbs(t, program, params, []Row{r}, 0, false)...)
		}
		require.InDeltaSlice(t, want, logProbs(t, program, params, rows, 0, false), 1e-4)
	})
}

// Chunked log-probabilities against softmax over the whole [B, T, V] tensor in float64, from logits that the head
// graph itself gives for every vocabulary entry.
func TestChunkedLogProbsEqualFullSoftmax(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	cfg := tinyConfig()
	params, program := tinyParams(t, dev, cfg, 7), NewProgram(dev, cfg)
	ids := []int{4, 8, 15, 16, 23}
	got := logProbs(t, program, params, []Row{wantAll(ids)}, 0, false)
	for at := 1; at < len(ids); at++ {
		sum := 0.0
		for v := range cfg.VocabSize {
			row := append(append([]int{}, ids[:at]...), v)
			mask := make([]uint8, len(row))
			mask[at] = 1
			l := logProbs(t, program, params, []Row{{IDs: row, Mask: mask}}, 16, false)[0]
			sum += math.Exp(float64(l))
			if v == ids[at] {
				require.InDelta(t, l, got[at-1], 1e-5)
			}
		}
		require.InDelta(t, 1, sum, 1e-5)
	}
}

// scoreByDecoding feeds each row token by token (after a prefill of its first `first` tokens) and returns the
// residual stream after its last token.
func scoreByDecoding(t *testing.T, program *Program, params *Params, rows [][]int, first int) [][]float32 {
	cache, err := NewCache(params, len(rows), 48)
	require.NoError(t, err)
	defer func() { cache.Free() }()
	out := make([][]float32, len(rows))
	read := func(x *tensors.Tensor, width int, fed [][]int) {
		values, err := device.Values[float32](x)
		require.NoError(t, err)
		for i, list := range fed {
			if len(list) > 0 {
				at := (i*width + len(list) - 1) * params.cfg.HiddenSize
				out[i] = append([]float32{}, values[at:at+params.cfg.HiddenSize]...)
			}
		}
		device.Free(x)
	}
	longest := 0
	fed := make([][]int, len(rows))
	for i, r := range rows {
		fed[i] = r[:min(first, len(r))]
		longest = max(longest, len(r))
	}
	if first > 0 {
		x, err := program.Extend(params, cache, fed, 16)
		require.NoError(t, err)
		read(x, 16, fed)
	}
	for at := first; at < longest; at++ {
		fed := make([][]int, len(rows))
		for i, r := range rows {
			if at < len(r) {
				fed[i] = r[at : at+1]
			}
		}
		x, err := program.Extend(params, cache, fed, 1)
		require.NoError(t, err)
		read(x, 1, fed)
		if at == first+1 { // Growing and permuting the cache in mid-stream must change nothing.
			same := make([]int, len(rows))
			for i := range same {
				same[i] = i
			}
			cache, err = cache.Rearranged(params, same, 64)
			require.NoError(t, err)
		}
	}
	return out
}

func TestPrefillEqualsStepByStep(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		cfg := tinyConfig()
		params, program := tinyParams(t, dev, cfg, 8), NewProgram(dev, cfg)
		rows := [][]int{{4, 8, 15, 16, 23, 36, 1, 2, 3}, {9, 8, 7, 6, 5}, {1, 2, 3, 4, 5, 6, 7}}
		steps := scoreByDecoding(t, program, params, rows, 0)
		for _, first := range []int{4, 9} {
			got := scoreByDecoding(t, program, params, rows, first)
			for i := range rows {
				require.InDeltaSlice(t, steps[i], got[i], 1e-4, "row %d, prefill of %d", i, first)
			}
		}
		for i, r := range rows { // a batch row equals the row alone
			require.InDeltaSlice(t, scoreByDecoding(t, program, params, [][]int{r}, 0)[0], steps[i], 1e-4)
		}
	})
}

func TestCacheWrittenByGraphEqualsInPlace(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	write := dev.NewFunc("write", func(in []*Node) []*Node {
		return []*Node{cacheWrite(in[0], in[1], in[2], in[3])}
	})
	cfg := tinyConfig()
	params := tinyParams(t, dev, cfg, 9)
	cache, err := NewCache(params, 2, 6)
	require.NoError(t, err)
	defer cache.Free()
	size := 2 * cfg.NumKVHeads * 3 * cfg.HeadDim
	fresh := make([]float32, size)
	for i := range fresh {
		fresh[i] = float32(i + 1)
	}
	cache.lens = []int{2, 4}
	up, err := device.Upload(dev, fresh, 2, cfg.NumKVHeads, 3, cfg.HeadDim)
	require.NoError(t, err)
	lens, err := device.Upload(dev, []int32{2, 4}, 2)
	require.NoError(t, err)
	counts, err := device.Upload(dev, []int32{3, 1}, 2)
	require.NoError(t, err)
	out, err := write.Call(cache.keys[0], up, lens, counts)
	require.NoError(t, err)
	require.NoError(t, cache.writeInPlace(cache.keys[0], up, []int{3, 1}))
	want, err := device.Values[float32](cache.keys[0])
	require.NoError(t, err)
	got, err := device.Values[float32](out[0])
	require.NoError(t, err)
	require.Equal(t, want, got)
	nonzero := 0
	for _, v := range got {
		if v != 0 {
			nonzero++
		}
	}
	require.Equal(t, (3+1)*cfg.NumKVHeads*cfg.HeadDim, nonzero)
}

func TestCacheRefusesMoreTokensThanItHolds(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	cfg := tinyConfig()
	params, program := tinyParams(t, dev, cfg, 9), NewProgram(dev, cfg)
	cache, err := NewCache(params, 1, 2)
	require.NoError(t, err)
	defer cache.Free()
	_, err = program.Extend(params, cache, [][]int{{1, 2, 3}}, 16)
	require.ErrorContains(t, err, "room for 2 tokens, needs 3")
}

// Inverse transform sampling against a float64 walk along the cumulative distribution, over vocabularies that do and
// do not divide into blocks; then the frequencies of many draws.
func TestInverseCDFFollowsTheDistribution(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		draw := dev.NewFunc("draw", func(in []*Node) []*Node { return []*Node{inverseCDF(in[0], in[1])} })
		for _, v := range []int{5, 128, 300} {
			logit := make([]float32, v)
			for i := range logit {
				logit[i] = float32(2 * math.Sin(float64(i*i)))
			}
			logit[v/2] = -1e30 // an impossible id
			const n = 512
			scores, uniform := make([]float32, 0, n*v), make([]float32, n)
			for i := range n {
				scores = append(scores, logit...)
				uniform[i] = (float32(i) + 0.5) / n
			}
			uniform[n-1] = 1 - 1.0/(1<<24) // the largest draw there is
			s, err := device.Upload(dev, scores, n, v)
			require.NoError(t, err)
			u, err := device.Upload(dev, uniform, n)
			require.NoError(t, err)
			out, err := draw.Call(s, u)
			require.NoError(t, err)
			ids, err := device.Values[int32](out[0])
			require.NoError(t, err)
			total := 0.0
			for _, l := range logit {
				total += math.Exp(float64(l))
			}
			misses := 0
			for i, id := range ids {
				require.NotEqual(t, int32(v/2), id, "an id of probability 0 was drawn")
				want, sum := 0, 0.0
				for want = range v {
					if sum += math.Exp(float64(logit[want])) / total; sum > float64(uniform[i]) {
						break
					}
				}
				if int(id) != want {
					misses++
				}
			}
			require.LessOrEqual(t, misses, 2, "vocabulary %d: draws at the border of two ids may differ, no others", v)
		}
	})
}

func TestGreedyTakesTheMostLikely(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		cfg := tinyConfig()
		params, program := tinyParams(t, dev, cfg, 10), NewProgram(dev, cfg)
		cache, err := NewCache(params, 1, 8)
		require.NoError(t, err)
		defer cache.Free()
		x, err := program.Extend(params, cache, [][]int{{5}}, 1)
		require.NoError(t, err)
		ids, logp, err := program.Sample(params, x, 0, nil)
		require.NoError(t, err)
		best, bestLogp := 0, float32(math.Inf(-1))
		for v := range cfg.VocabSize {
			l := logProbs(t, program, params, []Row{{IDs: []int{5, v}, Mask: []uint8{0, 1}}}, 16, false)[0]
			if l > bestLogp {
				best, bestLogp = v, l
			}
		}
		require.Equal(t, int32(best), ids[0])
		require.InDelta(t, bestLogp, logp[0], 1e-4)
	})
}
