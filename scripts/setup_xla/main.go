// Command setup_xla installs the XLA plugin, which makes training about twenty times faster than pure Go. It is the
// only command that downloads a plugin.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/install"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const usage = `Installs the XLA plugin that runs the maths fast, into your own plugin folder.

Usage: go run ./scripts/setup_xla [options]

Examples:
  go run ./scripts/setup_xla                 # the CPU plugin: go-xla's release, else the Python wheel through pip
  go run ./scripts/setup_xla --from pip      # only the Python wheel (linux/amd64), pinned by checksum
  go run ./scripts/setup_xla --wheel FILE    # that wheel as a file, for a machine without network
  go run ./scripts/setup_xla --cuda          # the CUDA plugin and NVIDIA's libraries, some gigabytes

Options:
`

func main() {
	probe.Serve()
	cli.Main(run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Code("setup_xla", setUp(ctx, args, stdout), "", stderr)
}

func setUp(ctx context.Context, args []string, stdout io.Writer) error {
	flags := cli.Flags("setup_xla", usage, stdout)
	o := install.Options{Log: stdout}
	from := flags.String("from", "auto", "source of the CPU plugin: auto, gomlx or pip")
	flags.StringVar(&o.Wheel, "wheel", "", "install the CPU plugin from this Python wheel")
	cuda := flags.Bool("cuda", false, "install the CUDA plugin instead of the CPU plugin")
	flags.IntVar(&o.CUDAVersion, "cuda_version", 0, "12 or 13 (default: the newest that the NVIDIA driver supports)")
	flags.StringVar(&o.Folder, "folder", "", "plugin folder (default: yours, where programs look by themselves)")
	flags.BoolVar(&o.Force, "force", false, "replace a plugin that is there")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	o.From = install.Source(*from)
	if *cuda && (o.Wheel != "" || flags.Changed("from")) {
		return errors.New("--cuda goes with neither --wheel nor --from: they are for the CPU plugin")
	}
	backend, err := installPlugin(ctx, o, *cuda, stdout)
	if err != nil {
		return err
	}
	return tryOut(ctx, backend, o.Folder, stdout)
}

func installPlugin(ctx context.Context, o install.Options, cuda bool, stdout io.Writer) (backend string, err error) {
	kind := "CPU"
	if cuda {
		kind = "CUDA"
	}
	fmt.Fprintf(stdout, "Installing the XLA %s plugin\n", kind)
	var text string
	var already bool
	if cuda {
		backend = "cuda"
		text, already, err = install.CUDA(ctx, o)
	} else {
		backend = "xla"
		var plugin *install.Plugin
		if plugin, already, err = install.CPU(ctx, o); err == nil {
			text = plugin.String()
		}
	}
	if err != nil {
		return "", err
	}
	if already {
		fmt.Fprintf(stdout, "Already installed: %s\n(--force replaces it)\n", text)
	} else {
		fmt.Fprintf(stdout, "Installed: %s\n", text)
	}
	return backend, nil
}

// tryOut measures the backend in a child process, since a plugin may end the process that opens it.
func tryOut(ctx context.Context, backend, folder string, stdout io.Writer) error {
	const next = "Next: go run ./scripts/train --config configs/quickstart.yaml\n"
	if !device.HasXLA {
		fmt.Fprint(stdout, "This program was built without cgo, so it cannot try the plugin out, and training would run "+
			"on pure Go.\nInstall a C compiler (gcc or clang), and build with CGO_ENABLED=1.\n", next)
		return nil
	}
	if !searched(folder) {
		fmt.Fprintf(stdout, "Programs look elsewhere for plugins. Set: export %s=%s\n", device.PluginPathVariable,
			pluginDir(folder, backend))
		os.Setenv(device.PluginPathVariable, pluginDir(folder, backend))
	}
	result, err := probe.Measure(ctx, backend, 5*time.Minute)
	if err != nil {
		return cli.WithCode(cli.Failed, fmt.Errorf("the plugin is installed, but it does not run here: %w", err))
	}
	fmt.Fprintf(stdout, "Measured: %.0f GFLOPS in f32, %.0f in bf16\n%s", result.GFLOPSF32, result.GFLOPSBF16, next)
	return nil
}

func pluginDir(folder, backend string) string {
	if folder == "" {
		folder, _ = device.PluginFolder() // The plugin was just installed there.
	}
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	if backend == "cuda" {
		folder = filepath.Join(folder, "nvidia")
	}
	return folder
}

// searched reports whether programs find plugins in the folder without more ado.
func searched(folder string) bool {
	standard := pluginDir("", "xla")
	folder = pluginDir(folder, "xla")
	if list, set := os.LookupEnv(device.PluginPathVariable); set {
		return slices.Contains(filepath.SplitList(list), folder)
	}
	return folder == standard
}
