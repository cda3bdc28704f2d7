package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var lossShapes = [][]int{{}, {1}, {7}, {1, 1}, {1, 5}, {5, 1}, {3, 17}, {2, 3, 4}, {4, 129}, {1000}}

func TestGraphEqualsFloat64OverManyShapes(t *testing.T) {
	forEachGraph(t,
		func(t *testing.T, g *graphLoss[float32]) { compareOverShapes(t, g, 2e-5) },
		func(t *testing.T, g *graphLoss[float64]) { compareOverShapes(t, g, 1e-8) })
}

func compareOverShapes[T float32 | float64](t *testing.T, g *graphLoss[T], tol float64) {
	rng := rand.New(rand.NewPCG(15, 16))
	options := []LossOptions{
		{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.5}, {ClipLow: 0.2, ClipHigh: 0.2}, {ClipLow: 1, KLCoef: 0.001},
	}
	for i, dims := range lossShapes {
		opts := options[i%len(options)]
		for range 10 {
			in := randomTokens(rng, volume(dims))
			want := reference().loss(t, in, opts)
			got := g.lossWithShape(t, in, opts, dims...)
			assertSameResult(t, want, got, tol)
		}
	}
}

func volume(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// dlogp is written out by hand; automatic differentiation of the loss must give the same, masked NaNs included.
func TestDLogPEqualsAutomaticGradient(t *testing.T) {
	forEachGraph(t,
		func(t *testing.T, g *graphLoss[float32]) { compareGradients(t, g, 1e-6) },
		func(t *testing.T, g *graphLoss[float64]) { compareGradients(t, g, 1e-8) })
}

func compareGradients[T float32 | float64](t *testing.T, g *graphLoss[T], tol float64) {
	rng := rand.New(rand.NewPCG(17, 18))
	batches := []tokens{outliers()}
	for range 10 {
		in := randomTokens(rng, 4)
		for i, isPolicy := range in.mask {
			if !isPolicy {
				in.logp[i], in.old[i], in.ref[i], in.adv[i], in.weight[i] = nan, 1e9, nan, nan, nan
			}
		}
		batches = append(batches, in)
	}
	exec, err := graph.NewExecAny(g.backend, func(in []*graph.Node) []*graph.Node {
		loss, dlogp, _ := buildLoss(in, LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLCoef: 0.3})
		return []*graph.Node{dlogp, graph.Gradient(loss, in[0])[0]}
	})
	require.NoError(t, err)
	defer exec.Finalize()
	for _, in := range batches {
		outputs, err := exec.Exec(in.args(g.tensor([]int{4}), []int{4})...)
		require.NoError(t, err)
		byHand := toFloat64(tensors.MustCopyFlatData[T](outputs[0]))
		automatic := toFloat64(tensors.MustCopyFlatData[T](outputs[1]))
		for i := range byHand {
			assert.InDelta(t, byHand[i], automatic[i], tol*max(1, math.Abs(byHand[i])))
			assert.Equal(t, in.mask[i], byHand[i] != 0)
		}
	}
}

// outliers are policy tokens whose log-probabilities are absurdly far from the others'.
func outliers() tokens {
	return tokens{
		logp: []float64{-1, -1, -1e9, -1e9}, old: []float64{-1e9, -1, -1, -1e9}, ref: []float64{-1, -1e9, -2e9, -1},
		adv: []float64{-1, 1, 1, 1}, mask: []bool{true, true, true, true}, weight: []float64{1, 1, 1, 1},
	}
}

func TestMaskMayBeNumeric(t *testing.T) {
	in := randomTokens(rand.New(rand.NewPCG(19, 20)), 30)
	numeric := make([]float64, len(in.mask))
	bytes := make([]uint8, len(in.mask))
	for i, isPolicy := range in.mask {
		if isPolicy {
			numeric[i], bytes[i] = 1, 1
		}
	}
	g := graphOnGo32(t)
	want := g.loss(t, in, DefaultLossOptions())
	tensor := g.tensor([]int{30})
	for _, mask := range []any{tensor(numeric), tensors.FromFlatDataAndDimensions(bytes, 30)} {
		args := in.args(tensor, []int{30})
		args[3] = mask
		outputs, err := g.exec(t, DefaultLossOptions(), true).Exec(args...)
		require.NoError(t, err)
		assert.Equal(t, want.DLogP, toFloat64(tensors.MustCopyFlatData[float32](outputs[1])))
	}
}

func TestGraphRefusesBadArguments(t *testing.T) {
	run := func(opts LossOptions, change func(args []any), hasRef bool) error {
		g := graphOnGo32(t)
		in := randomTokens(rand.New(rand.NewPCG(21, 22)), 4)
		if !hasRef {
			in.ref = nil
		}
		args := in.args(g.tensor([]int{4}), []int{4})
		change(args)
		_, err := g.exec(t, opts, hasRef).Exec(args...)
		return err
	}
	nothing := func([]any) {}
	require.NoError(t, run(DefaultLossOptions(), nothing, true))
	assert.ErrorContains(t, run(LossOptions{ClipLow: -1}, nothing, true), "clip_low")
	assert.ErrorContains(t, run(DefaultLossOptions(), nothing, false), "set kl_coef to 0")
	wrongShape := func(i int) func([]any) {
		return func(args []any) { args[i] = tensors.FromFlatDataAndDimensions([]float32{1, 2, 3, 4}, 2, 2) }
	}
	assert.ErrorContains(t, run(DefaultLossOptions(), wrongShape(1), true), "old has shape")
	assert.ErrorContains(t, run(DefaultLossOptions(), wrongShape(3), true), "mask has shape")
	integers := func(args []any) { args[0] = tensors.FromFlatDataAndDimensions([]int32{1, 2, 3, 4}, 4) }
	assert.ErrorContains(t, run(DefaultLossOptions(), integers, true), "Float32 or Float64")
}
