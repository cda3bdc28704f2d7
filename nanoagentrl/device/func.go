package device

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
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
	// calls, nanos and compileNanos count calls, their time, and the time of those that compiled.
	calls, nanos, compileNanos atomic.Int64
}

// NewFunc returns a Func that builds its graph with build, which panics on a shape that cannot be, as graph code does.
// The number of compiled shapes is not limited: callers bucket their shapes, and Compilations tells whether they did.
func (d *Device) NewFunc(name string, build func(inputs []*graph.Node) []*graph.Node) *Func {
	f := &Func{name: name}
	d.mu.Lock()
	d.funcs = append(d.funcs, f)
	d.mu.Unlock()
	f.exec = graph.MustNewExec(d.Backend, func(inputs []*graph.Node) []*graph.Node {
		f.built.Add(1)
		return build(inputs)
	}).WithName(name).SetMaxCache(-1)
	return f
}

// SharedFunc returns the Func that was made on this device under the same name and key, or makes it, so that what one
// run compiled serves the next. The key holds all that build depends on beside its inputs.
func (d *Device) SharedFunc(name, key string, build func(inputs []*graph.Node) []*graph.Node) *Func {
	d.sharing.Lock()
	defer d.sharing.Unlock()
	key = name + "\n" + key
	f, ok := d.shared[key]
	if !ok {
		f = d.NewFunc(name, build)
		d.shared[key] = f
	}
	return f
}

// Call runs the function on tensors and returns its outputs, which the caller frees with Free.
func (f *Func) Call(inputs ...*tensors.Tensor) ([]*tensors.Tensor, error) {
	before, start := f.built.Load(), time.Now()
	outputs, err := f.exec.Exec(inputs)
	took := time.Since(start).Nanoseconds()
	f.calls.Add(1)
	f.nanos.Add(took)
	if f.built.Load() > before {
		f.compileNanos.Add(took)
	}
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", f.name, err)
	}
	return outputs, nil
}

// Calls returns how often the function was called.
func (f *Func) Calls() int { return int(f.calls.Load()) }

// Compilations returns how many input shapes were compiled so far.
func (f *Func) Compilations() int { return int(f.built.Load()) }

// Compilations returns how many graphs were compiled on the device so far, and the time of the calls that did so. A run
// whose shapes are well bucketed compiles little after its first steps.
func (d *Device) Compilations() (n int, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.funcs {
		n += f.Compilations()
		took += time.Duration(f.compileNanos.Load())
	}
	return n, took
}

// WriteProfile writes where the device's time went: for each function the calls, the seconds they took, and the shapes
// that were compiled with the seconds of the calls that did so, the most expensive first.
func (d *Device) WriteProfile(w io.Writer) {
	d.mu.Lock()
	type row struct {
		calls, shapes  int64
		total, compile time.Duration
	}
	rows := map[string]row{}
	for _, f := range d.funcs {
		r := rows[f.name]
		r.calls += f.calls.Load()
		r.shapes += f.built.Load()
		r.total += time.Duration(f.nanos.Load())
		r.compile += time.Duration(f.compileNanos.Load())
		rows[f.name] = r
	}
	d.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(rows), func(a, b string) int { return cmp.Compare(rows[b].total, rows[a].total) })
	fmt.Fprintf(w, "%-34s %8s %9s %7s %9s\n", "function", "calls", "seconds", "shapes", "compiling")
	for _, name := range names {
		if r := rows[name]; r.calls > 0 {
			fmt.Fprintf(w, "%-34.34s %8d %9.2f %7d %9.2f\n", name, r.calls, r.total.Seconds(), r.shapes, r.compile.Seconds())
		}
	}
}

// Free releases the memory of tensors now, instead of when the garbage collector finds them.
func Free(list ...*tensors.Tensor) {
	for _, t := range list {
		if t != nil {
			_ = t.FinalizeAll() // An error means that the buffer is gone already.
		}
	}
}

// Upload copies host values to a device buffer. values may be changed afterwards.
func Upload[T float32 | int32](d *Device, values []T, dims ...int) (*tensors.Tensor, error) {
	buffer, err := d.Backend.BufferFromFlatData(0, values, shapes.Make(dtypes.FromGenericsType[T](), dims...))
	if err != nil {
		return nil, fmt.Errorf("copying %v values to the device: %w", dims, err)
	}
	t, err := tensors.FromBuffer(d.Backend, buffer)
	if err != nil {
		return nil, fmt.Errorf("copying %v values to the device: %w", dims, err)
	}
	return t, nil
}

// Values copies a tensor to the host. It reads the device buffer itself: gomlx's own accessors leave a second copy of
// the values in the tensor for as long as it lives.
func Values[T float32 | int32](t *tensors.Tensor) ([]T, error) {
	out := make([]T, t.Size())
	err := func() error {
		backend, err := t.Backend()
		if err != nil {
			return err
		}
		buffer, err := t.Buffer(backend, 0)
		if err != nil {
			return err
		}
		return backend.BufferToFlatData(buffer, out)
	}()
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
