package learn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// plainAdamW is AdamW written out once more, in float64.
type plainAdamW struct {
	opts     AdamWOptions
	step     int
	p, m, v  [][]float64
	isMatrix []bool
	clipped  int
}

func newPlainAdamW(t *testing.T, p *policy.Policy, opts AdamWOptions) *plainAdamW {
	plain := &plainAdamW{opts: opts}
	for i, v := range values(t, p) {
		plain.p = append(plain.p, float64s(v))
		plain.m, plain.v = append(plain.m, make([]float64, len(v))), append(plain.v, make([]float64, len(v)))
		plain.isMatrix = append(plain.isMatrix, len(p.Params.Config().Params()[i].Shape) == 2)
	}
	return plain
}

func float64s(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

func (a *plainAdamW) apply(grads [][]float64, lr float64) (norm float64) {
	for _, g := range grads {
		for _, x := range g {
			norm += x * x
		}
	}
	norm = math.Sqrt(norm)
	scale := 1.0
	if a.opts.MaxGradNorm > 0 && norm > a.opts.MaxGradNorm {
		scale = a.opts.MaxGradNorm / norm
		a.clipped++
	}
	a.step++
	for i, g := range grads {
		for j, x := range g {
			x *= scale
			a.m[i][j] = a.opts.Beta1*a.m[i][j] + (1-a.opts.Beta1)*x
			a.v[i][j] = a.opts.Beta2*a.v[i][j] + (1-a.opts.Beta2)*x*x
			mHat := a.m[i][j] / (1 - math.Pow(a.opts.Beta1, float64(a.step)))
			vHat := a.v[i][j] / (1 - math.Pow(a.opts.Beta2, float64(a.step)))
			change := mHat / (math.Sqrt(vHat) + a.opts.Eps)
			if a.isMatrix[i] {
				change += a.opts.WeightDecay * a.p[i][j]
			}
			a.p[i][j] -= lr * change
		}
	}
	return norm
}

func hostGradients(t *testing.T, grads *nn.Gradients) [][]float64 {
	t.Helper()
	out := make([][]float64, len(grads.Tensors))
	for i, g := range grads.Tensors {
		if g != nil {
			v, err := device.Values[float32](g)
			require.NoError(t, err)
			out[i] = float64s(v)
		}
	}
	return out
}

func TestAdamWEqualsFloat64OverSeveralSteps(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		p := tiny(t, dev, 1)
		opts := AdamWOptions{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, MaxGradNorm: 1}
		o := newAdamW(t, p, opts)
		plain := newPlainAdamW(t, p, opts)
		last := append([]float64{}, plain.p[len(plain.p)-1]...) // has no gradient
		for step, scale := range []float64{0.01, 2, 0.001, 0.1, 0.02, 1} {
			grads := gradients(t, p, uint64(step), scale)
			want := plain.apply(hostGradients(t, grads), 0.05)
			norm, err := o.Apply(p.Params, grads, 0.05)
			require.NoError(t, err)
			require.InEpsilon(t, want, norm, 1e-5, "the norm is the one before clipping")
			for i, got := range values(t, p) {
				require.InDeltaSlice(t, plain.p[i], float64s(got), 3e-6, "step %d, tensor %d", step+1, i)
			}
		}
		require.Equal(t, 6, o.Step())
		require.Greater(t, plain.clipped, 1)
		require.Less(t, plain.clipped, 6, "some steps are clipped and some are not")
		require.Equal(t, last, plain.p[len(plain.p)-1], "a parameter without a gradient does not decay either")
		m, v := o.Moments(len(plain.p) - 1)
		require.Nil(t, m)
		require.Nil(t, v)
	})
}

func TestWeightDecayIsForMatricesOnly(t *testing.T) {
	p := tiny(t, testdevice.Open(t, device.Go), 1)
	o := newAdamW(t, p, AdamWOptions{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.5})
	before := values(t, p)
	_, err := o.Apply(p.Params, gradients(t, p, 1, 0), 0.1)
	require.NoError(t, err)
	for i, after := range values(t, p) {
		factor := 1.0
		if name := p.Params.Names()[i]; p.Params.Master(i).Rank() == 2 && name != "lm_head.weight" {
			factor = 1 - 0.1*0.5
		}
		for j := range after {
			require.InDelta(t, factor*float64(before[i][j]), float64(after[j]), 1e-7, p.Params.Names()[i])
		}
	}
}

func TestNonFiniteGradientLeavesWeightsMomentsAndStep(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			p := tiny(t, dev, 1)
			o := newAdamW(t, p, AdamWOptions{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, MaxGradNorm: 1})
			_, err := o.Apply(p.Params, gradients(t, p, 1, 1), 0.1)
			require.NoError(t, err)
			weights, moments := values(t, p), firstMoments(t, o)

			grads := gradients(t, p, 2, 1)
			spoilt := make([]float32, grads.Tensors[3].Size())
			spoilt[1] = bad
			device.Free(grads.Tensors[3])
			grads.Tensors[3] = upload(t, p, spoilt, p.Params.Config().Params()[3].Shape)
			norm, err := o.Apply(p.Params, grads, 0.1)
			require.ErrorIs(t, err, ErrNotFinite)
			require.True(t, math.IsNaN(norm) || math.IsInf(norm, 1))
			require.Equal(t, weights, values(t, p))
			require.Equal(t, moments, firstMoments(t, o))
			require.Equal(t, 1, o.Step())
		}
	})
}

// What a checkpoint holds of the optimiser makes the next step the same; nothing less does.
func TestRestoredOptimizerMakesTheSameNextStep(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		opts := AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1}
		train := func(p *policy.Policy, o *AdamW, steps ...uint64) {
			for _, seed := range steps {
				_, err := o.Apply(p.Params, gradients(t, p, seed, 0.5), 0.05)
				require.NoError(t, err)
			}
		}
		whole := tiny(t, dev, 1)
		o := newAdamW(t, whole, opts)
		train(whole, o, 1, 2, 3)
		dir := t.TempDir()
		require.NoError(t, SaveState(dir, whole, o))
		train(whole, o, 4)

		after := func(step int, forget func(o *AdamW)) [][]float32 {
			p := tiny(t, dev, 99)
			o := newAdamW(t, p, opts)
			require.NoError(t, LoadState(t.Context(), dir, p, o, step))
			forget(o)
			train(p, o, 4)
			return values(t, p)
		}
		keep := func(*AdamW) {}
		want := values(t, whole)
		requireNear(t, want, after(3, keep), exactOn(dev), "resumed")
		differs := func(got [][]float32, what string) {
			worst := 0.0
			for i := range want {
				for j := range want[i] {
					worst = max(worst, math.Abs(float64(want[i][j]-got[i][j])))
				}
			}
			require.Greater(t, worst, 1e-3, what)
		}
		differs(after(0, keep), "with the step counter lost, the bias correction is another")
		differs(after(3, func(o *AdamW) {
			o.Free()
			clear(o.m)
			clear(o.v)
		}), "a cold start is another")
	})
}

func TestScheduleValues(t *testing.T) {
	at := func(s Schedule, steps ...int) (rates []float64) {
		for _, step := range steps {
			rates = append(rates, s.At(step))
		}
		return rates
	}
	for _, test := range []struct {
		schedule Schedule
		steps    []int
		want     []float64
	}{
		{Schedule{Peak: 2, Shape: "constant", Steps: 10}, []int{1, 5, 10, 11}, []float64{2, 2, 2, 2}},
		{Schedule{Peak: 2, Shape: "constant", Warmup: 4, Steps: 10}, []int{1, 2, 4, 5, 10}, []float64{0.5, 1, 2, 2, 2}},
		{Schedule{Peak: 2, Shape: "linear", Warmup: 2, Steps: 10}, []int{1, 2, 3, 7, 10, 11},
			[]float64{1, 2, 2, 1, 0.25, 0}},
		{Schedule{Peak: 2, Shape: "cosine", Warmup: 2, Steps: 10}, []int{1, 2, 3, 7, 10, 11},
			[]float64{1, 2, 2, 1, 1 - math.Cos(math.Pi/8), 0}},
		{Schedule{Peak: 2, Shape: "linear", Warmup: 10, Steps: 4}, []int{1, 4}, []float64{0.2, 0.8}},
		{Schedule{Peak: 2, Shape: "linear", Steps: 1}, []int{1}, []float64{2}},
	} {
		require.InDeltaSlice(t, test.want, at(test.schedule, test.steps...), 1e-12, "%+v", test.schedule)
	}
}
