package device

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// PluginPathVariable names the environment variable with the folders, separated by colons, in which XLA plugins are
// looked for. If it is set, PluginFolder is not searched unless it is among them.
const PluginPathVariable = "PJRT_PLUGIN_LIBRARY_PATH"

// PluginFolder returns the user's folder for XLA plugins. It need not exist.
func PluginFolder() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the folder for XLA plugins: %w", err)
	}
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "go-xla"), nil
	case "windows":
		return filepath.Join(home, "AppData", "Local", "go-xla"), nil
	default:
		return filepath.Join(home, ".local", "lib", "go-xla"), nil
	}
}

var driverVersion = regexp.MustCompile(`NVRM version:.*?\s(\d+\.\d[\d.]*)`)

// NVIDIADriver returns the version of the NVIDIA driver that is loaded, such as "580.65.06", or "" if there is none.
func NVIDIADriver() string {
	data, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	return parseDriver(string(data))
}

func parseDriver(text string) string {
	if m := driverVersion.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// cudaFlags adds to the value of XLA_FLAGS the folder with CUDA's tools that lies beside the CUDA plugin, unless the
// user named one. go-xla v0.1.4 would name a folder of its author's machine.
func cudaFlags(flags, plugin string) string {
	const option = "--xla_gpu_cuda_data_dir"
	if strings.Contains(flags, option) {
		return flags
	}
	tools := filepath.Join(filepath.Dir(filepath.Dir(plugin)), "nvidia")
	return strings.TrimSpace(flags + " " + option + "=" + tools)
}
