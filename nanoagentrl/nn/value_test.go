package nn

import (
	"math"
	"testing"

	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

func TestGradientOfValueHead(t *testing.T) {
	cfg := Config{NormEps: 1e-5}
	checkGradients(t, [][]int{{6}, {6}, {1}, {4, 6}}, // norm, weight, bias, rows
		func(in []*Node) *Node {
			_, values := valueForward(&cfg, in[0], in[1], in[2], in[3])
			return values
		},
		func(in []*Node, dy *Node) []*Node {
			g := valueBackward(&cfg, in[0], in[1], in[2], in[3], OnesLike(dy), nil,
				func(values, _ *Node, _ []*Node) (*Node, *Node) { return dy, values })
			return []*Node{g[1], g[2], g[3], g[0]}
		})
}

// valueRows are two rows of different lengths; their wanted tokens take more than one chunk of 16.
var valueRows = []Row{
	{IDs: []int{1, 5, 9, 2, 30, 7}, Mask: []uint8{0, 0, 1, 1, 0, 1}},
	{IDs: []int{4, 8, 15, 16, 23, 36, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, Mask: []uint8{
		0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
}

// newCritic returns a critic of a tiny model whose head is not zero.
func newCritic(t *testing.T, dev *device.Device, tied bool) (*Critic, *Params) {
	t.Helper()
	cfg := tinyConfig()
	cfg.TieEmbeddings = tied
	model := tinyParams(t, dev, cfg, 3)
	program := NewProgram(dev, cfg)
	program.chunk = 16
	c, err := NewCritic(program, model)
	require.NoError(t, err)
	t.Cleanup(c.Free)
	n := len(c.Names())
	weight := make([]float32, cfg.HiddenSize)
	for i := range weight {
		weight[i] = float32(math.Sin(float64(2*i + 1)))
	}
	for i, values := range [][]float32{weight, {0.25}} {
		up, err := device.Upload(dev, values, len(values))
		require.NoError(t, err)
		require.NoError(t, c.Replace(n-2+i, up))
	}
	return c, model
}

func valuesOf(t *testing.T, c *Critic, rows []Row) []float32 {
	t.Helper()
	batch, err := NewBatch(rows, 0, false)
	require.NoError(t, err)
	values, err := c.Values(batch)
	require.NoError(t, err)
	require.Len(t, values, batch.Wanted)
	return values
}

func TestNewCriticPredictsZeroAndSharesNoWeights(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	for _, tied := range []bool{true, false} {
		cfg := tinyConfig()
		cfg.TieEmbeddings = tied
		model := tinyParams(t, dev, cfg, 3)
		c, err := NewCritic(NewProgram(dev, cfg), model)
		require.NoError(t, err)
		defer c.Free()
		for _, v := range valuesOf(t, c, valueRows) {
			require.Zero(t, v)
		}
		names := c.Names()
		require.Equal(t, []string{"model.norm.weight", valueWeightName, valueBiasName}, names[len(names)-3:],
			"there is no output matrix")
		for i, name := range names[:len(names)-2] {
			require.NotSame(t, model.Master(i), c.Master(i), name)
			want, err := model.Host(name)
			require.NoError(t, err)
			got, err := device.Values[float32](c.Master(i))
			require.NoError(t, err)
			require.Equal(t, want, got, name)
		}
	}
}

// A value belongs to the state before a token: it knows the tokens up to there, and neither that token nor later ones.
func TestValueKnowsOnlyWhatCameBeforeItsToken(t *testing.T) {
	c, _ := newCritic(t, testdevice.Open(t, device.Go), true)
	ids := []int{4, 8, 15, 16, 23}
	value := func(ids []int, at int) float64 {
		mask := make([]uint8, len(ids))
		mask[at] = 1
		return float64(valuesOf(t, c, []Row{{IDs: ids, Mask: mask}})[0])
	}
	want := value(ids, 3)
	require.InDelta(t, want, value([]int{4, 8, 15, 1, 1}, 3), 1e-6)
	require.Greater(t, math.Abs(want-value([]int{4, 8, 14, 16, 23}, 3)), 1e-3)
}

func TestValuesOfABatchEqualRowByRow(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		c, _ := newCritic(t, dev, false)
		together := valuesOf(t, c, valueRows)
		var alone []float32
		for _, row := range valueRows {
			alone = append(alone, valuesOf(t, c, []Row{row})...)
		}
		require.InDeltaSlice(t, alone, together, 1e-5)
	})
}

// As TestGradientOfWholeModel: each tensor is moved along its own gradient, and the change of the loss Σ w·V² is
// compared with the gradient's norm.
func TestGradientOfWholeCritic(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		c, _ := newCritic(t, dev, false)
		batch, err := NewBatch(valueRows, 0, false)
		require.NoError(t, err)
		weights := make([]float32, batch.Wanted)
		for i := range weights {
			weights[i] = float32(math.Sin(float64(i)*1.3)) * 0.5
		}
		loss := Loss{Name: "weighted squares", Extras: [][]float32{weights},
			Fn: func(values, inside *Node, extras []*Node) (*Node, *Node) {
				weight := Mul(inside, extras[0])
				return MulScalar(Mul(weight, values), 2), ExpandAxes(ReduceAllSum(Mul(weight, Mul(values, values))), 0)
			}}
		lossOf := func() float64 {
			sum := 0.0
			for i, v := range valuesOf(t, c, valueRows) {
				sum += float64(weights[i]) * float64(v) * float64(v)
			}
			return sum
		}
		grads := c.NewGradients()
		defer grads.Free()
		sums, err := c.Backward(batch, loss, grads)
		require.NoError(t, err)
		require.Len(t, sums, 1)
		require.InDelta(t, lossOf(), sums[0], 1e-4)
		for i, name := range c.Names() {
			g, err := device.Values[float32](grads.Tensors[i])
			require.NoError(t, err)
			was, err := device.Values[float32](c.Master(i))
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
				require.NoError(t, c.Replace(i, up))
				return lossOf()
			}
			got := (at(length) - at(-length)) / (2 * length)
			at(0)
			require.InEpsilon(t, norm, got, 5e-3, name)
		}
	})
}

func TestCriticRefusesInputsOfAnotherLength(t *testing.T) {
	c, _ := newCritic(t, testdevice.Open(t, device.Go), true)
	batch, err := NewBatch(valueRows, 0, false)
	require.NoError(t, err)
	_, err = c.Backward(batch, Loss{Name: "short", Extras: [][]float32{{1, 2}}}, c.NewGradients())
	require.ErrorContains(t, err, "input 0 has 2 values for 20 tokens")
}
