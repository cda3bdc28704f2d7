//go:build cgo

package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gomlx/go-xla/pkg/pjrt"
	"github.com/gomlx/gomlx/backends/xla"
)

// HasXLA says whether XLA support is built in.
const HasXLA = true

// openXLA opens the named plugin without downloading anything.
func openXLA(kind Kind) (*Device, error) {
	xla.EnableAutoInstall(false)
	plugin := map[Kind]string{XLA: "cpu", CUDA: "cuda"}[kind]
	if _, found := pjrt.AvailablePlugins()[plugin]; !found {
		return nil, fmt.Errorf("the XLA plugin for %s is not installed; %s", plugin, installHint(kind))
	}
	var options pjrt.NamedValuesMap
	if kind == XLA {
		// One device is all that is used; the plugin would show four, each with a thread pool of its own.
		options = pjrt.NamedValuesMap{"cpu_device_count": int64(1)}
	}
	backend, err := xla.NewWithOptions(plugin, options)
	if err != nil {
		return nil, fmt.Errorf("the XLA plugin for %s did not start: %w", plugin, err)
	}
	reason := "the CPU plugin is installed; no CUDA device was found"
	if kind == CUDA {
		reason = "a CUDA device and its plugin were found"
	}
	return &Device{Backend: backend, Kind: kind, Reason: reason}, nil
}

func installHint(kind Kind) string {
	if kind == CUDA {
		return "install it with `go run ./scripts/setup_xla --cuda`"
	}
	return "install it with `go run ./scripts/setup_xla`, it is about twenty times faster than pure Go"
}

// PluginPath returns the file of the CPU plugin that would be used, or an error that says how to get one.
func PluginPath() (string, error) {
	if path, found := pjrt.AvailablePlugins()["cpu"]; found {
		return path, nil
	}
	return "", errors.New(installHint(XLA))
}

// PluginFolder returns the user's folder for XLA plugins.
func PluginFolder() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the folder for XLA plugins: %w", err)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "go-xla"), nil
	}
	return filepath.Join(home, ".local", "lib", "go-xla"), nil
}

// hasNVIDIA reports whether an NVIDIA driver is loaded.
func hasNVIDIA() bool {
	data, err := os.ReadFile("/proc/driver/nvidia/version")
	return err == nil && strings.Contains(string(data), "NVRM")
}
