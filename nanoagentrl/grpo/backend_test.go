package grpo

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/gomlx/gomlx/backends"
	_ "github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/stretchr/testify/require"
)

// openGo opens the pure Go backend. Its default mode can deadlock on large products, hence the parallelism.
var openGo = sync.OnceValues(func() (backends.Backend, error) {
	return backends.NewWithConfig("go:parallelism=-1")
})

// openXLA opens XLA's CPU backend; it is replaced where cgo is on.
var openXLA = func() (backends.Backend, error) {
	return nil, errors.New("built without cgo, so the XLA backend is not compiled in")
}

// tokens are the inputs of a loss, flat.
type tokens struct {
	logp, old, ref, adv []float64
	mask                []bool
	weight              []float64
}

// implementation is one of the ways to compute the loss. LossResult.PerToken is only set by the float64 one.
type implementation struct {
	name string
	// tol is the relative precision of a value.
	tol  float64
	loss func(t *testing.T, in tokens, opts LossOptions) *LossResult
}

// forEachImplementation runs a test on the float64 reference and on the graph code.
func forEachImplementation(t *testing.T, test func(t *testing.T, impl implementation)) {
	t.Run("float64", func(t *testing.T) { test(t, reference()) })
	forEachGraph(t,
		func(t *testing.T, g *graphLoss[float32]) { test(t, implementation{"Float32", 1e-5, g.loss}) },
		func(t *testing.T, g *graphLoss[float64]) { test(t, implementation{"Float64", 1e-8, g.loss}) })
}

func reference() implementation {
	return implementation{"float64", 1e-12, func(t *testing.T, in tokens, opts LossOptions) *LossResult {
		out, err := TokenLossFloat64(in.logp, in.old, in.ref, in.adv, in.mask, in.weight, opts)
		require.NoError(t, err)
		return out
	}}
}

// forEachGraph runs a test on the graph code: Float32 and Float64 on pure Go, and Float32 on XLA where it is installed.
func forEachGraph(
	t *testing.T, float32s func(*testing.T, *graphLoss[float32]), float64s func(*testing.T, *graphLoss[float64]),
) {
	t.Run("go/Float32", func(t *testing.T) { float32s(t, graphOnGo32(t)) })
	t.Run("go/Float64", func(t *testing.T) {
		backend, err := openGo()
		require.NoError(t, err)
		goFloat64.backend = backend
		float64s(t, goFloat64)
	})
	t.Run("xla/Float32", func(t *testing.T) {
		backend, err := openXLA()
		if err != nil {
			t.Skipf("skipped: no XLA here: %v", err)
		}
		xlaFloat32.backend = backend
		float32s(t, xlaFloat32)
	})
}

func graphOnGo32(t *testing.T) *graphLoss[float32] {
	backend, err := openGo()
	require.NoError(t, err)
	goFloat32.backend = backend
	return goFloat32
}

// The graphs compiled so far are shared by all tests.
var (
	goFloat32  = &graphLoss[float32]{execs: map[graphKey]*graph.Exec{}}
	goFloat64  = &graphLoss[float64]{execs: map[graphKey]*graph.Exec{}}
	xlaFloat32 = &graphLoss[float32]{execs: map[graphKey]*graph.Exec{}}
)

// graphLoss runs TokenLoss on a backend; inputs of equal options reuse one Exec, as in training.
type graphLoss[T float32 | float64] struct {
	backend backends.Backend
	execs   map[graphKey]*graph.Exec
}

type graphKey struct {
	opts   LossOptions
	hasRef bool
}

func (g *graphLoss[T]) loss(t *testing.T, in tokens, opts LossOptions) *LossResult {
	return g.lossWithShape(t, in, opts, len(in.logp))
}

func (g *graphLoss[T]) lossWithShape(t *testing.T, in tokens, opts LossOptions, dims ...int) *LossResult {
	t.Helper()
	outputs, err := g.exec(t, opts, in.ref != nil).Exec(in.args(g.tensor(dims), dims)...)
	require.NoError(t, err)
	for _, output := range outputs {
		defer output.FinalizeAll()
	}
	require.True(t, slices.Equal(dims, outputs[1].Shape().Dimensions), "dlogp has the shape of logp")
	require.Equal(t, dtypes.FromGenericsType[T](), outputs[1].DType())
	metrics, err := MetricsFromVector(tensors.MustCopyFlatData[T](outputs[2]))
	require.NoError(t, err)
	return &LossResult{
		Loss:    float64(tensors.ToScalar[T](outputs[0])),
		DLogP:   toFloat64(tensors.MustCopyFlatData[T](outputs[1])),
		Metrics: metrics,
	}
}

// exec returns the compiled loss, dlogp and metrics.
func (g *graphLoss[T]) exec(t *testing.T, opts LossOptions, hasRef bool) *graph.Exec {
	key := graphKey{opts, hasRef}
	if g.execs[key] == nil {
		exec, err := graph.NewExecAny(g.backend, func(in []*graph.Node) []*graph.Node {
			loss, dlogp, metrics := buildLoss(in, opts)
			return []*graph.Node{loss, dlogp, metrics}
		})
		require.NoError(t, err)
		g.execs[key] = exec.SetMaxCache(-1)
	}
	return g.execs[key]
}

// buildLoss calls TokenLoss on inputs in the order of tokens.args.
func buildLoss(in []*graph.Node, opts LossOptions) (loss, dlogp, metrics *graph.Node) {
	logp, old, adv, mask, weight := in[0], in[1], in[2], in[3], in[4]
	var ref *graph.Node
	if len(in) > 5 {
		ref = in[5]
	}
	return TokenLoss(logp, old, ref, adv, mask, weight, opts)
}

func (g *graphLoss[T]) tensor(dims []int) func(values []float64) any {
	return func(values []float64) any {
		converted := make([]T, len(values))
		for i, v := range values {
			converted[i] = T(v)
		}
		return tensors.FromFlatDataAndDimensions(converted, dims...)
	}
}

// args lists logp, old, adv, mask, weight and, if there is one, ref.
func (in tokens) args(tensor func([]float64) any, dims []int) []any {
	args := []any{tensor(in.logp), tensor(in.old), tensor(in.adv),
		tensors.FromFlatDataAndDimensions(in.mask, dims...), tensor(in.weight)}
	if in.ref != nil {
		args = append(args, tensor(in.ref))
	}
	return args
}

func toFloat64[T float32 | float64](values []T) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}
