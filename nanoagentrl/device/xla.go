//go:build cgo

package device

import (
	"errors"
	"fmt"
	"os"

	"github.com/gomlx/go-xla/pkg/pjrt"
	"github.com/gomlx/gomlx/backends/xla"
)

// HasXLA says whether XLA support is built in.
const HasXLA = true

// openXLA opens the named plugin without downloading anything.
func openXLA(kind Kind) (*Device, error) {
	xla.EnableAutoInstall(false)
	plugin := map[Kind]string{XLA: "cpu", CUDA: "cuda"}[kind]
	path, err := findPlugin(plugin)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, fmt.Errorf("the XLA plugin for %s is not installed; %s", plugin, installHint(kind))
	}
	var options pjrt.NamedValuesMap
	flags := os.Getenv("XLA_FLAGS")
	switch kind {
	case XLA:
		// One device is all that is used; the plugin would show four, each with a thread pool of its own.
		options = pjrt.NamedValuesMap{"cpu_device_count": int64(1)}
	case CUDA:
		if err := os.Setenv("XLA_FLAGS", cudaFlags(flags, path)); err != nil {
			return nil, fmt.Errorf("setting XLA_FLAGS for CUDA: %w", err)
		}
	}
	backend, err := xla.NewWithOptions(plugin, options)
	if err != nil {
		os.Setenv("XLA_FLAGS", flags) // The CPU plugin may be next.
		return nil, fmt.Errorf("the XLA plugin for %s did not start: %w", plugin, err)
	}
	reason := "the CPU plugin is installed; no CUDA device was found"
	if kind == CUDA {
		reason = "a CUDA device and its plugin were found"
	}
	return newDevice(backend, kind, reason), nil
}

func installHint(kind Kind) string {
	if kind == CUDA {
		return "install it with `go run ./scripts/setup_xla --cuda`"
	}
	return "install it with `go run ./scripts/setup_xla`, it is about twenty times faster than pure Go"
}

// PluginPath returns the file of the CPU plugin that would be used, or an error that says how to get one.
func PluginPath() (string, error) {
	path, err := findPlugin("cpu")
	if err == nil && path == "" {
		err = errors.New(installHint(XLA))
	}
	return path, err
}

// findPlugin returns the file of a plugin, or "" if there is none. go-xla tries to load every plugin it comes across,
// whatever its name, and panics on one that cannot be loaded.
func findPlugin(name string) (path string, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = errors.New("a file in the folder for XLA plugins is damaged or made for another machine; " +
				"replace it with `go run ./scripts/setup_xla --force`")
		}
	}()
	return pjrt.AvailablePlugins()[name], nil
}

func hasNVIDIA() bool { return NVIDIADriver() != "" }
