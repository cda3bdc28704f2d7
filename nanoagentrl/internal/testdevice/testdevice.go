// Package testdevice opens the devices that tests run on: always pure Go, and XLA on the CPU where its plugin is
// installed.
package testdevice

import (
	"flag"
	"os"
	"sync"
	"testing"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

var (
	open = map[device.Kind]func() (*device.Device, error){
		device.Go:  sync.OnceValues(func() (*device.Device, error) { return device.Open("go") }),
		device.XLA: sync.OnceValues(openXLA),
	}
)

// Tests of tiny models spend their time compiling, so XLA leaves its optimisations out, unless the user sets XLA_FLAGS
// or benchmarks are to be run.
const xlaFlags = "--xla_backend_optimization_level=0"

func openXLA() (*device.Device, error) {
	bench := flag.Lookup("test.bench")
	if _, set := os.LookupEnv("XLA_FLAGS"); !set && (bench == nil || bench.Value.String() == "") {
		if err := os.Setenv("XLA_FLAGS", xlaFlags); err != nil {
			return nil, err
		}
		defer os.Unsetenv("XLA_FLAGS")
	}
	return device.Open("xla")
}

// Each runs a test on every device that can be had; the XLA half is skipped with the reason where it cannot.
func Each(t *testing.T, test func(t *testing.T, dev *device.Device)) {
	for _, kind := range []device.Kind{device.Go, device.XLA} {
		t.Run(string(kind), func(t *testing.T) { test(t, Open(t, kind)) })
	}
}

// Open returns the process's one device of a kind, or skips the test with the reason why there is none.
func Open(t testing.TB, kind device.Kind) *device.Device {
	t.Helper()
	dev, err := open[kind]()
	if err != nil {
		t.Skipf("skipped on %s: %v", kind, err)
	}
	return dev
}
