package device

import (
	"fmt"
	"sync/atomic"

	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// Func is a graph function that is compiled once for each combination of input shapes. It may be called from several
// goroutines.
type Func struct {
	exec  *graph.Exec
	name  string
	built atomic.Int64
}

// NewFunc returns a Func that builds its graph with build, which panics on a shape that cannot be, as graph code does.
// The number of compiled shapes is not limited: callers bucket their shapes, and Compilations tells whether they did.
func (d *Device) NewFunc(name string, build func(inputs []*graph.Node) []*graph.Node) *Func {
	f := &Func{name: name}
	f.exec = graph.MustNewExec(d.Backend, func(inputs []*graph.Node) []*graph.Node {
		f.built.Add(1)
		return build(inputs)
	}).WithName(name).SetMaxCache(-1)
	return f
}

// Call runs the function on tensors and returns its outputs, which the caller frees with Free.
func (f *Func) Call(inputs ...*tensors.Tensor) ([]*tensors.Tensor, error) {
	outputs, err := f.exec.Exec(inputs)
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", f.name, err)
	}
	return outputs, nil
}

// Compilations returns how many input shapes were compiled so far.
func (f *Func) Compilations() int { return int(f.built.Load()) }

// Free releases the memory of tensors now, instead of when the garbage collector finds them.
func Free(list ...*tensors.Tensor) {
	for _, t := range list {
		if t != nil {
			_ = t.FinalizeAll() // An error means that the buffer is gone already.
		}
	}
}

// Upload copies host values to a device buffer and drops the host copy.
func Upload[T float32 | int32](d *Device, values []T, dims ...int) (*tensors.Tensor, error) {
	t := tensors.FromFlatDataAndDimensions(values, dims...)
	if err := t.MaterializeOnDevice(d.Backend, d.SharedMemory(), 0); err != nil {
		return nil, fmt.Errorf("copying %v values to the device: %w", dims, err)
	}
	t.FinalizeLocal()
	return t, nil
}

// Values copies a tensor to the host.
func Values[T float32 | int32](t *tensors.Tensor) ([]T, error) {
	out := make([]T, t.Size())
	err := tensors.ConstFlatData(t, func(flat []T) { copy(out, flat) })
	if err != nil {
		return nil, fmt.Errorf("copying a tensor of shape %s to the host: %w", t.Shape(), err)
	}
	return out, nil
}

// Shared allocates a zeroed buffer that both graphs and host code use in place. It needs SharedMemory. The caller must
// not write to it while a Func runs on it.
func (d *Device) Shared(shape shapes.Shape) (*tensors.Tensor, error) {
	t := tensors.FromShape(shape)
	if err := t.MaterializeOnDevice(d.Backend, true, 0); err != nil {
		return nil, fmt.Errorf("allocating a shared buffer of shape %s: %w", shape, err)
	}
	return t, nil
}

func scalar(v float32) *tensors.Tensor { return tensors.FromScalar(v) }
