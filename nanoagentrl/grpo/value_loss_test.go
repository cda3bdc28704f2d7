package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// valueInputs are the inputs of a critic's loss, flat.
type valueInputs struct {
	values, old, returns []float64
	mask                 []bool
	weight               []float64
}

type valueLoss func(t *testing.T, in valueInputs, clip float64) (dvalues []float64, metrics ValueMetrics)

// forEachValueLoss runs a test on the float64 reference and on the graph code, with the precision of each.
func forEachValueLoss(t *testing.T, test func(t *testing.T, loss valueLoss, tol float64)) {
	t.Run("float64", func(t *testing.T) {
		test(t, func(t *testing.T, in valueInputs, clip float64) ([]float64, ValueMetrics) {
			loss, dvalues, metrics, err := ValueLossFloat64(in.values, in.old, in.returns, in.mask, in.weight, clip)
			require.NoError(t, err)
			require.Equal(t, loss, metrics.Loss)
			return dvalues, metrics
		}, 1e-12)
	})
	forEachGraph(t,
		func(t *testing.T, g *graphLoss[float32]) { test(t, valueGraph[float32](g.backend), 2e-6) },
		func(t *testing.T, g *graphLoss[float64]) { test(t, valueGraph[float64](g.backend), 1e-12) })
}

// valueExecs are the graphs compiled so far, by backend and clip.
var valueExecs = map[[2]any]*graph.Exec{}

func valueGraph[T float32 | float64](backend backends.Backend) valueLoss {
	return func(t *testing.T, in valueInputs, clip float64) ([]float64, ValueMetrics) {
		exec, ok := valueExecs[[2]any{backend, clip}]
		if !ok {
			var err error
			exec, err = graph.NewExecAny(backend, func(n []*graph.Node) []*graph.Node {
				dvalues, metrics := ValueLoss(n[0], n[1], n[2], n[3], n[4], clip)
				return []*graph.Node{dvalues, metrics}
			})
			require.NoError(t, err)
			valueExecs[[2]any{backend, clip}] = exec.SetMaxCache(-1)
		}
		var args []any
		for _, values := range [][]float64{in.values, in.old, in.returns, nil, in.weight} {
			if values == nil {
				args = append(args, tensors.FromFlatDataAndDimensions(in.mask, len(in.mask)))
				continue
			}
			converted := make([]T, len(values))
			for i, v := range values {
				converted[i] = T(v)
			}
			args = append(args, tensors.FromFlatDataAndDimensions(converted, len(converted)))
		}
		out, err := exec.Exec(args...)
		require.NoError(t, err)
		metrics, err := ValueMetricsFromVector(tensors.MustCopyFlatData[T](out[1]))
		require.NoError(t, err)
		return toFloat64(tensors.MustCopyFlatData[T](out[0])), metrics
	}
}

func randomValues(rng *rand.Rand, n int) (in valueInputs) {
	for range n {
		in.values = append(in.values, float64(float32(rng.NormFloat64())))
		in.old = append(in.old, float64(float32(in.values[len(in.values)-1]+0.3*rng.NormFloat64())))
		in.returns = append(in.returns, float64(float32(rng.NormFloat64())))
		in.weight = append(in.weight, float64(float32(rng.Float64()/float64(n))))
		in.mask = append(in.mask, rng.Float64() < 0.7)
	}
	return in
}

// The table of docs/grpo_math.md.
func TestValueLossOnBothSidesOfTheClip(t *testing.T) {
	for _, c := range []struct {
		name                                    string
		value, old, target, loss, slope, counts float64
	}{
		{"inside", 0.6, 0.5, 0, 0.18, 0.6, 0},
		{"moved away from its target: not held", 0.9, 0.5, 0, 0.405, 0.9, 0},
		{"moved far towards its target: no gradient", 0.9, 0.5, 1, 0.045, 0, 1},
		{"the same downwards", 0.1, 0.5, 0, 0.045, 0, 1},
		{"moved past its target: pulled back", 0.9, 0.5, 0.6, 0.045, 0.3, 0},
	} {
		in := valueInputs{[]float64{c.value}, []float64{c.old}, []float64{c.target}, []bool{true}, []float64{1}}
		forEachValueLoss(t, func(t *testing.T, loss valueLoss, tol float64) {
			slope, metrics := loss(t, in, 0.2)
			assert.InDelta(t, c.loss, metrics.Loss, 1e-6, c.name)
			assert.InDelta(t, c.slope, slope[0], 1e-6, c.name)
			assert.Equal(t, c.counts, metrics.Clipped, c.name)
			slope, metrics = loss(t, in, 0)
			assert.InDelta(t, (c.value-c.target)*(c.value-c.target)/2, metrics.Loss, 1e-6)
			assert.InDelta(t, c.value-c.target, slope[0], 1e-6, "not clipped at all")
			assert.Zero(t, metrics.Clipped)
		})
	}
}

func TestValueLossInGraphAgainstFloat64AndFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(71, 72))
	in := randomValues(rng, 200)
	for _, clip := range []float64{0, 0.2} {
		at := func(i int, value float64) float64 {
			moved := in
			moved.values = append([]float64{}, in.values...)
			moved.values[i] = value
			loss, _, _, err := ValueLossFloat64(moved.values, in.old, in.returns, in.mask, in.weight, clip)
			require.NoError(t, err)
			return loss
		}
		want, wantSlopes, wantMetrics, err := ValueLossFloat64(in.values, in.old, in.returns, in.mask, in.weight, clip)
		require.NoError(t, err)
		require.Equal(t, clip > 0, wantMetrics.Clipped > 0)
		for i, value := range in.values {
			assert.InDelta(t, (at(i, value+1e-6)-at(i, value-1e-6))/2e-6, wantSlopes[i], 1e-7)
		}
		forEachValueLoss(t, func(t *testing.T, loss valueLoss, tol float64) {
			slopes, metrics := loss(t, in, clip)
			assert.InDelta(t, want, metrics.Loss, tol*10)
			assert.InDeltaSlice(t, wantSlopes, slopes, tol)
			assert.Equal(t, wantMetrics.Tokens, metrics.Tokens)
			assert.Equal(t, wantMetrics.Clipped, metrics.Clipped)
		})
	}
}

// A value that has not moved is inside the clip, whatever float32 makes of the differences.
func TestUnmovedValuesAreNeverClipped(t *testing.T) {
	in := randomValues(rand.New(rand.NewPCG(73, 74)), 500)
	in.old = in.values
	for i := range in.mask {
		in.mask[i] = true
	}
	forEachValueLoss(t, func(t *testing.T, loss valueLoss, tol float64) {
		slopes, metrics := loss(t, in, 0.2)
		assert.Zero(t, metrics.Clipped)
		for i, slope := range slopes {
			assert.InDelta(t, in.weight[i]*(in.values[i]-in.returns[i]), slope, tol)
		}
	})
}

func TestValueLossReadsNothingAtMaskedPlaces(t *testing.T) {
	clean := randomValues(rand.New(rand.NewPCG(75, 76)), 40)
	for _, clip := range []float64{0, 0.2} {
		forEachValueLoss(t, func(t *testing.T, loss valueLoss, tol float64) {
			wantSlopes, want := loss(t, clean, clip)
			for _, filler := range []float64{nan, inf, 1e9} {
				dirty := valueInputs{mask: clean.mask}
				for i, isPolicy := range clean.mask {
					for _, pair := range []struct {
						to   *[]float64
						from []float64
					}{{&dirty.values, clean.values}, {&dirty.old, clean.old}, {&dirty.returns, clean.returns},
						{&dirty.weight, clean.weight}} {
						value := filler
						if isPolicy {
							value = pair.from[i]
						}
						*pair.to = append(*pair.to, value)
					}
				}
				slopes, got := loss(t, dirty, clip)
				assert.Equal(t, want, got)
				assert.Equal(t, wantSlopes, slopes)
			}
		})
	}
}

func TestValueLossOfMicroBatchesAddsUp(t *testing.T) {
	in := randomValues(rand.New(rand.NewPCG(77, 78)), 48)
	forEachValueLoss(t, func(t *testing.T, loss valueLoss, tol float64) {
		wantSlopes, want := loss(t, in, 0.2)
		var slopes []float64
		var total ValueMetrics
		for begin := 0; begin < 48; begin += 6 {
			end := begin + 6
			part, metrics := loss(t, valueInputs{in.values[begin:end], in.old[begin:end], in.returns[begin:end],
				in.mask[begin:end], in.weight[begin:end]}, 0.2)
			slopes = append(slopes, part...)
			total.Add(metrics)
		}
		assert.Equal(t, wantSlopes, slopes)
		assert.InDelta(t, want.Loss, total.Loss, 10*tol)
		assert.Equal(t, want.Tokens, total.Tokens)
		assert.Equal(t, want.Clipped, total.Clipped)
	})
}

func TestValueLossRefusesBadArguments(t *testing.T) {
	one := []float64{1}
	for _, clip := range []float64{-1, math.NaN(), math.Inf(1)} {
		_, _, _, err := ValueLossFloat64(one, one, one, []bool{true}, one, clip)
		assert.ErrorContains(t, err, "value_clip")
	}
	_, _, _, err := ValueLossFloat64(one, one, one, []bool{true, true}, one, 0)
	assert.ErrorContains(t, err, "mask 2")
	_, err = ValueMetricsFromVector([]float32{1})
	assert.ErrorContains(t, err, "got 1")
}
