// Package device chooses where the maths runs: an XLA plugin (CUDA or CPU) when there is one, else pure Go. It says
// which it took and why, and how to get a faster one.
//
// It also hides two traps of the backends. The pure Go backend deadlocks in its default mode on few cores, so it is
// opened with unlimited workers; and on Linux large buffers are kept by the process instead of being handed back to
// the kernel at each step (see malloc_linux.go).
package device

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
)

// Kind names what does the arithmetic.
type Kind string

// The kinds of device. Auto is only a choice: the device opened has one of the other kinds.
const (
	Auto Kind = "auto"
	XLA  Kind = "xla"
	CUDA Kind = "cuda"
	Go   Kind = "go"
)

// goConfig opens the pure Go backend with one goroutine for each operation that is ready. In its default mode, several
// large matrix products fill its pool of workers and then wait for each other for ever.
const goConfig = "parallelism=-1"

// Device is an opened backend.
type Device struct {
	// Backend runs gomlx graphs.
	Backend backends.Backend
	// Kind is XLA (on the CPU), CUDA or Go.
	Kind Kind
	// Reason says in one sentence why this kind was chosen, and how to get a faster one.
	Reason string

	mu    sync.Mutex
	funcs []*Func

	sharing sync.Mutex
	shared  map[string]*Func // by name and key
}

// Open opens the device that choice asks for: "auto" takes CUDA, else XLA on the CPU, else pure Go. Nothing is
// downloaded. The error of a choice that cannot be had says what to do.
func Open(choice string) (*Device, error) {
	switch kind := Kind(strings.ToLower(choice)); kind {
	case Go:
		return openGo("pure Go was asked for")
	case XLA, CUDA:
		dev, err := openXLA(kind)
		if err != nil {
			return nil, fmt.Errorf("backend %q: %w", choice, err)
		}
		return dev, nil
	case Auto, "":
		return openBest()
	default:
		return nil, fmt.Errorf("backend %q is unknown; choose auto, xla, cuda or go", choice)
	}
}

// openBest takes the fastest backend that opens. CUDA is tried only where there is an NVIDIA driver.
func openBest() (*Device, error) {
	var cudaErr error
	if hasNVIDIA() {
		dev, err := openXLA(CUDA)
		if err == nil {
			return dev, nil
		}
		cudaErr = err
	}
	dev, err := openXLA(XLA)
	if err != nil {
		return openGo(fmt.Sprintf("XLA is not available: %v", err))
	}
	if cudaErr != nil {
		dev.Reason = fmt.Sprintf("there is an NVIDIA driver, but %v", cudaErr)
	}
	return dev, nil
}

// quiet guards os.Stdout while openGo has taken it away.
var quiet sync.Mutex

func openGo(reason string) (*Device, error) {
	// The backend announces its parallelism on standard output, where it would spoil machine-readable output.
	quiet.Lock()
	defer quiet.Unlock()
	stdout := os.Stdout
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stdout = null
		defer null.Close()
	}
	backend, err := simplego.New(goConfig)
	os.Stdout = stdout
	if err != nil {
		return nil, fmt.Errorf("opening the pure Go backend: %w", err)
	}
	return newDevice(backend, Go, reason), nil
}

func newDevice(backend backends.Backend, kind Kind, reason string) *Device {
	return &Device{Backend: backend, Kind: kind, Reason: reason, shared: map[string]*Func{}}
}

// String describes the device and why it was chosen in one line.
func (d *Device) String() string {
	name := map[Kind]string{XLA: "XLA on the CPU", CUDA: "XLA on CUDA", Go: "pure Go"}[d.Kind]
	cores := "1 core"
	if n := runtime.NumCPU(); n != 1 {
		cores = fmt.Sprintf("%d cores", n)
	}
	return fmt.Sprintf("%s, %s (%s)", name, cores, d.Reason)
}

// SharedMemory reports whether host code may read and write a device buffer in place.
func (d *Device) SharedMemory() bool { return d.Kind != CUDA && d.Backend.HasSharedBuffers() }

// Close frees the backend; tensors on it become invalid.
func (d *Device) Close() { d.Backend.Finalize() }

// MeasureGFLOPS multiplies two n x n matrices of the given type a few times and returns the best rate in 10^9
// floating-point operations per second.
func (d *Device) MeasureGFLOPS(dtype dtypes.DType, n int) (float64, error) {
	product := d.NewFunc("gflops", func(inputs []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.DotGeneral(inputs[0], []int{1}, nil, inputs[1], []int{1}, nil)}
	})
	ones := d.NewFunc("ones", func(inputs []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ConvertDType(
			graph.BroadcastToShape(inputs[0], shapes.Make(inputs[0].DType(), n, n)), dtype)}
	})
	made, err := ones.Call(scalar(1))
	if err != nil {
		return 0, err
	}
	defer Free(made...)
	best := 0.0
	for range 4 {
		start := time.Now()
		out, err := product.Call(made[0], made[0])
		if err != nil {
			return 0, err
		}
		best = max(best, 2*float64(n)*float64(n)*float64(n)/time.Since(start).Seconds()/1e9)
		Free(out...)
	}
	return best, nil
}
