package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

// tinyConfig is a model small enough for finite differences, with everything in it: grouped queries, biases.
func tinyConfig() Config {
	return Config{ModelType: "qwen2", VocabSize: 37, HiddenSize: 16, IntermediateSize: 24, NumLayers: 2, NumHeads: 4,
		NumKVHeads: 2, HeadDim: 8, MaxPositions: 128, RopeTheta: 10000, NormEps: 1e-6, AttentionBias: true,
		TieEmbeddings: true, BOS: -1, Pad: -1}
}

// tinyParams returns random weights with norms and biases that are not at their neutral values.
func tinyParams(t testing.TB, dev *device.Device, cfg Config, seed uint64) *Params {
	rng := rand.New(rand.NewPCG(seed, 1))
	p, err := NewParams(dev, cfg, dtypes.Float32, func(name string, shape []int) ([]float32, error) {
		size := 1
		for _, d := range shape {
			size *= d
		}
		values := make([]float32, size)
		for i := range values {
			values[i] = float32(rng.NormFloat64() * 0.3)
			if len(shape) == 1 && shape[0] == cfg.HiddenSize {
				values[i]++
			}
		}
		return values, nil
	})
	require.NoError(t, err)
	t.Cleanup(p.Free)
	return p
}

// checkGradients compares hand-written gradients with central finite differences of Σ out·weights, in float64 on the
// pure Go backend, to a relative error of 1e-5. forward maps the inputs to one output; backward maps the inputs and the
// output's gradient to the inputs' gradients.
func checkGradients(t *testing.T, shapesOf [][]int, forward func(in []*Node) *Node, backward func(in []*Node, dy *Node) []*Node) {
	dev := testdevice.Open(t, device.Go)
	rng := rand.New(rand.NewPCG(7, 7))
	values := make([][]float64, len(shapesOf))
	for i, dims := range shapesOf {
		values[i] = make([]float64, shapes.Make(dtypes.Float64, dims...).Size())
		for j := range values[i] {
			values[i][j] = rng.NormFloat64()
		}
	}
	args := func() []*tensors.Tensor {
		list := make([]*tensors.Tensor, len(values))
		for i, v := range values {
			list[i] = tensors.FromFlatDataAndDimensions(append([]float64{}, v...), shapesOf[i]...)
		}
		return list
	}
	weigh := func(y *Node) *Node { // fixed, uneven weights for the output's elements
		n := Iota(y.Graph(), shapes.Make(dtypes.Float64, y.Shape().Size()), 0)
		return Reshape(Sin(AddScalar(MulScalar(n, 1.7), 0.3)), y.Shape().Dimensions...)
	}
	objective := dev.NewFunc("objective", func(in []*Node) []*Node {
		y := forward(in)
		return []*Node{ReduceAllSum(Mul(y, weigh(y)))}
	})
	gradient := dev.NewFunc("gradient", func(in []*Node) []*Node { return backward(in, weigh(forward(in))) })
	value := func() float64 {
		out, err := objective.Call(args()...)
		require.NoError(t, err)
		return tensors.ToScalar[float64](out[0])
	}
	out, err := gradient.Call(args()...)
	require.NoError(t, err)
	require.Len(t, out, len(values))
	const step = 1e-5
	for i := range values {
		got := tensors.MustCopyFlatData[float64](out[i])
		require.Equal(t, shapesOf[i], out[i].Shape().Dimensions, "gradient %d", i)
		for j := range values[i] {
			was := values[i][j]
			values[i][j] = was + step
			up := value()
			values[i][j] = was - step
			down := value()
			values[i][j] = was
			want := (up - down) / (2 * step)
			require.InDelta(t, want, got[j], 1e-5*max(1, math.Abs(want)), "input %d element %d", i, j)
		}
	}
}

func TestGradientOfLinear(t *testing.T) {
	checkGradients(t, [][]int{{3, 4}, {5, 4}, {5}},
		func(in []*Node) *Node { return linear(in[0], in[1], in[2]) },
		func(in []*Node, dy *Node) []*Node {
			dx, kept := linearBackward(in[1], dy)
			return []*Node{dx, weightGradient(kept, in[0]), biasGradient(dy)}
		})
}

// Two rows, two queries for each key/value head, and a padding token at the end of the second row.
func TestGradientOfAttention(t *testing.T) {
	valid := func(g *Graph) *Node { return Const(g, [][]int32{{1, 1, 1}, {1, 1, 0}}) }
	checkGradients(t, [][]int{{2, 6, 4}, {2, 3, 4}, {2, 3, 4}},
		func(in []*Node) *Node {
			o, _ := attention(in[0], in[1], in[2], valid(in[0].Graph()))
			return o
		},
		func(in []*Node, dy *Node) []*Node {
			o, lse := attention(in[0], in[1], in[2], valid(dy.Graph()))
			dqT, dk, dv := attentionBackward(in[0], in[1], Transpose(in[1], 1, 2), in[2], valid(dy.Graph()), o, lse, dy)
			return []*Node{Transpose(dqT, 1, 2), dk, dv}
		})
}

// Cut into several stretches, attention gives what it gives in one.
func TestGradientOfAttentionInStretches(t *testing.T) {
	shortest, most := shortestStretch, mostStretches
	defer func() { shortestStretch, mostStretches = shortest, most }()
	shortestStretch, mostStretches = 2, 3
	require.Equal(t, []stretch{{0, 2}, {2, 4}, {4, 7}}, stretches(7))
	valid := func(g *Graph) *Node { return Const(g, [][]int32{{1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 0, 0}}) }
	shapesOf := [][]int{{2, 14, 4}, {2, 7, 4}, {2, 7, 4}}
	checkGradients(t, shapesOf,
		func(in []*Node) *Node {
			o, _ := attention(in[0], in[1], in[2], valid(in[0].Graph()))
			return o
		},
		func(in []*Node, dy *Node) []*Node {
			o, lse := attention(in[0], in[1], in[2], valid(dy.Graph()))
			dqT, dk, dv := attentionBackward(in[0], in[1], Transpose(in[1], 1, 2), in[2], valid(dy.Graph()), o, lse, dy)
			return []*Node{Transpose(dqT, 1, 2), dk, dv}
		})
	cut := dev(t).NewFunc("compare", func(in []*Node) []*Node {
		o, lse := attention(in[0], in[1], in[2], valid(in[0].Graph()))
		shortestStretch = 100
		whole, wholeLSE := attention(in[0], in[1], in[2], valid(in[0].Graph()))
		return []*Node{ReduceAllMax(Abs(Sub(o, whole))), ReduceAllMax(Abs(Sub(lse, wholeLSE)))}
	})
	var args []*tensors.Tensor
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dims := range shapesOf {
		values := make([]float32, dims[0]*dims[1]*dims[2])
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		args = append(args, tensors.FromFlatDataAndDimensions(values, dims...))
	}
	out, err := cut.Call(args...)
	require.NoError(t, err)
	for _, difference := range out {
		require.Less(t, tensors.ToScalar[float32](difference), float32(1e-6))
	}
}

func dev(t *testing.T) *device.Device { return testdevice.Open(t, device.Go) }

func TestGradientOfHead(t *testing.T) {
	cfg := &Config{NormEps: 1e-5}
	parts := func(in []*Node) (labels, invTemp *Node) {
		return Const(in[0].Graph(), []int32{2, 0, 4}), Scalar(in[0].Graph(), dtypes.Float64, 1/0.7)
	}
	checkGradients(t, [][]int{{3, 4}, {4}, {5, 4}}, // rows, norm, output matrix
		func(in []*Node) *Node {
			labels, invTemp := parts(in)
			logp, _ := headForward(cfg, in[1], in[2], in[0], labels, invTemp)
			return logp
		},
		func(in []*Node, dy *Node) []*Node {
			labels, invTemp := parts(in)
			normed := headInput(cfg, in[1], in[2], in[0])
			g := headBackward(cfg, in[1], in[2], in[0], normed, labels, invTemp, nil, nil,
				func(*Node, *Node, []*Node) (*Node, *Node) { return dy, nil })
			return []*Node{g.rows, g.norm, Transpose(g.outputT, 0, 1)}
		})
}

func TestGradientOfBlock(t *testing.T) {
	cfg := tinyConfig()
	cfg.HiddenSize, cfg.NumHeads, cfg.NumKVHeads, cfg.HeadDim, cfg.IntermediateSize = 4, 2, 1, 2, 3
	shapesOf := [][]int{{6, 4}} // x: two rows of three tokens
	for _, p := range cfg.LayerParams(0) {
		shapesOf = append(shapesOf, p.Shape)
	}
	rest := func(g *Graph) (cos, sin, valid *Node) {
		angle := Iota(g, shapes.Make(dtypes.Float64, 2, 3, 1), 1)
		return Cos(angle), Sin(angle), Const(g, [][]int32{{1, 1, 1}, {1, 1, 0}})
	}
	checkGradients(t, shapesOf,
		func(in []*Node) *Node {
			cos, sin, valid := rest(in[0].Graph())
			y, _ := blockForward(&cfg, layerOf(in[1:]), in[0], cos, sin, valid)
			return y
		},
		func(in []*Node, dy *Node) []*Node {
			cos, sin, valid := rest(dy.Graph())
			_, keep := blockForward(&cfg, layerOf(in[1:]), in[0], cos, sin, valid)
			g := blockBackward(&cfg, layerOf(in[1:]), in[0], keep, cos, sin, valid, dy)
			return append([]*Node{g.dx}, inOrder(g.vectors, weightGradients(g.kept, g.inputs))...)
		})
}

func TestGradientOfRMSNorm(t *testing.T) {
	checkGradients(t, [][]int{{3, 6}, {6}},
		func(in []*Node) *Node { return rmsNorm(in[0], in[1], 1e-5) },
		func(in []*Node, dy *Node) []*Node {
			dx, dw := rmsNormBackward(in[0], in[1], 1e-5, dy)
			return []*Node{dx, dw}
		})
}

func TestGradientOfSwiGLU(t *testing.T) {
	checkGradients(t, [][]int{{3, 5}, {3, 5}},
		func(in []*Node) *Node { return swiglu(in[0], in[1]) },
		func(in []*Node, dy *Node) []*Node {
			dg, du := swigluBackward(in[0], in[1], dy)
			return []*Node{dg, du}
		})
}

func TestGradientOfRotary(t *testing.T) {
	angles := func(g *Graph) (cos, sin *Node) {
		a := Iota(g, shapes.Make(dtypes.Float64, 3, 2), 0)
		return Cos(a), Sin(a)
	}
	checkGradients(t, [][]int{{3, 4}},
		func(in []*Node) *Node { cos, sin := angles(in[0].Graph()); return rotate(in[0], cos, sin, -1) },
		func(in []*Node, dy *Node) []*Node {
			cos, sin := angles(dy.Graph())
			return []*Node{rotateBackward(dy, cos, sin, -1)}
		})
}

// The whole model and its loss in f32: each parameter tensor is moved along its own gradient, which gives the largest
// change of the loss for a step of given length, and the change is compared with the gradient's norm to 0.5 %.
func TestGradientOfWholeModel(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		cfg := tinyConfig()
		for _, tied := range []bool{true, false} {
			cfg.TieEmbeddings = tied
			params := tinyParams(t, dev, cfg, 3)
			program := NewProgram(dev, cfg)
			program.chunk = 16 // several chunks, the last one padded
			batch, err := NewBatch([]Row{
				{IDs: []int{1, 5, 9, 2, 30, 7}, Mask: []uint8{0, 0, 1, 1, 0, 1}},
				{IDs: []int{4, 8, 15, 16, 23, 36, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Mask: []uint8{
					0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
			}, 32, false)
			require.NoError(t, err)
			weights := make([]float32, batch.Wanted)
			for i := range weights {
				weights[i] = float32(math.Sin(float64(i)*1.3)) * 0.5
			}
			lossOf := func() float64 {
				logp, _, err := program.LogProbs(params, batch, 0.8)
				require.NoError(t, err)
				sum := 0.0
				for i, l := range logp {
					sum -= float64(weights[i]) * float64(l)
				}
				return sum
			}
			grads := NewGradients(&cfg)
			defer grads.Free()
			_, err = program.Backward(params, batch, 0.8, NegativeLogLikelihood(weights), grads)
			require.NoError(t, err)
			for i, name := range params.Names() {
				g, err := device.Values[float32](grads.Tensors[i])
				require.NoError(t, err)
				was, err := params.Host(name)
				require.NoError(t, err)
				norm := 0.0
				for _, v := range g {
					norm += float64(v) * float64(v)
				}
				norm = math.Sqrt(norm)
				require.Greater(t, norm, 1e-3, name)
				const length = 4e-3
				at := func(scale float64) float64 {
					moved := make([]float32, len(was))
					for j := range was {
						moved[j] = was[j] + float32(scale*float64(g[j])/norm)
					}
					up, err := device.Upload(dev, moved, grads.Tensors[i].Shape().Dimensions...)
					require.NoError(t, err)
					require.NoError(t, params.Replace(i, up))
					return lossOf()
				}
				got := (at(length) - at(-length)) / (2 * length)
				at(0)
				require.InEpsilon(t, norm, got, 5e-3, "%s (tied %v)", name, tied)
			}
		}
	})
}

// Blocks that run again instead of keeping what they computed give the same gradients, bit for bit.
func TestKeepBudgetChangesNoGradient(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		cfg := tinyConfig()
		params := tinyParams(t, dev, cfg, 5)
		batch, err := NewBatch([]Row{{IDs: []int{1, 5, 9, 2, 30, 7}, Mask: []uint8{0, 0, 1, 1, 0, 1}}}, 0, false)
		require.NoError(t, err)
		one := cfg.keptBytes(batch.Rows*batch.Width, 4)
		var want [][]float32
		for _, budget := range []int{2 * one, 2*one - 1, 0} { // both blocks, the last one, none
			program := NewProgram(dev, cfg)
			program.SetKeepBudget(budget)
			before := program.blockKeep.Calls() + program.block.Calls() // of all programs of this model
			grads := NewGradients(&cfg)
			_, err := program.Backward(params, batch, 1, NegativeLogLikelihood([]float32{1, -2, 0.5}), grads)
			require.NoError(t, err)
			require.Equal(t, budget/one+2*(2-budget/one), program.blockKeep.Calls()+program.block.Calls()-before)
			var got [][]float32
			for _, g := range grads.Tensors {
				values, err := device.Values[float32](g)
				require.NoError(t, err)
				got = append(got, values)
			}
			grads.Free()
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "budget %d", budget)
		}
	})
}

// keptBytes is what the tensors of a block really take.
func TestKeptBytesCountsWhatABlockKeeps(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	cfg := tinyConfig()
	params := tinyParams(t, dev, cfg, 5)
	program := NewProgram(dev, cfg)
	batch, err := NewBatch([]Row{{IDs: []int{1, 5, 9}, Mask: []uint8{0, 1, 1}}, {IDs: []int{1}, Mask: []uint8{0}}}, 0, false)
	require.NoError(t, err)
	in, err := batch.upload(dev, &cfg)
	require.NoError(t, err)
	defer in.free()
	s, err := program.forwardKeeping(params, in)
	require.NoError(t, err)
	defer s.free()
	size := uintptr(0)
	for _, kept := range append(s.kept[0], s.x[0]) {
		size += kept.Shape().Memory()
	}
	require.EqualValues(t, size, cfg.keptBytes(batch.Rows*batch.Width, 4))
}
