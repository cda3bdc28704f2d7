// Command setup_xla installs the XLA plugin, which makes training about twenty times faster than pure Go. It is the
// only command that downloads a plugin.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/install"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit status: 0, 1 if the plugin was installed but does not run here, 2 if it was not installed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("setup_xla", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.SortFlags = false
	flags.SetNormalizeFunc(config.NormalizeFlag)
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsages()) }
	o := install.Options{Log: stdout}
	from := flags.String("from", "auto", "source of the CPU plugin: auto, gomlx or pip")
	flags.StringVar(&o.Wheel, "wheel", "", "install the CPU plugin from this Python wheel")
	cuda := flags.Bool("cuda", false, "install the CUDA plugin instead of the CPU plugin")
	flags.IntVar(&o.CUDAVersion, "cuda_version", 0, "12 or 13 (default: the newest that the NVIDIA driver supports)")
	flags.StringVar(&o.Folder, "folder", "", "plugin folder (default: yours, where programs look by themselves)")
	flags.BoolVar(&o.Force, "force", false, "replace a plugin that is there")
	fail := func(err error) int {
		fmt.Fprintf(stderr, "setup_xla: %v\n", err)
		return 2
	}
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil {
		return fail(fmt.Errorf("%w; see --help", err))
	}
	if flags.NArg() > 0 {
		return fail(fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0)))
	}
	o.From = install.Source(*from)
	if *cuda && (o.Wheel != "" || flags.Changed("from")) {
		return fail(errors.New("--cuda goes with neither --wheel nor --from: they are for the CPU plugin"))
	}
	backend, err := installPlugin(ctx, o, *cuda, stdout)
	if err != nil {
		return fail(err)
	}
	return tryOut(ctx, backend, o.Folder, stdout, stderr)
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
func tryOut(ctx context.Context, backend, folder string, stdout, stderr io.Writer) int {
	const next = "Next: go run ./scripts/train --config configs/quickstart.yaml\n"
	if !device.HasXLA {
		fmt.Fprint(stdout, "This program was built without cgo, so it cannot try the plugin out, and training would run "+
			"on pure Go.\nInstall a C compiler (gcc or clang), and build with CGO_ENABLED=1.\n", next)
		return 0
	}
	if !searched(folder) {
		fmt.Fprintf(stdout, "Programs look elsewhere for plugins. Set: export %s=%s\n", device.PluginPathVariable,
			pluginDir(folder, backend))
		os.Setenv(device.PluginPathVariable, pluginDir(folder, backend))
	}
	result, err := probe.Measure(ctx, backend, 5*time.Minute)
	if err != nil {
		fmt.Fprintf(stderr, "setup_xla: the plugin is installed, but it does not run here: %v\n", err)
		return 1
	}
	fmt.Fprintf(stdout, "Measured: %.0f GFLOPS in f32, %.0f in bf16\n%s", result.GFLOPSF32, result.GFLOPSBF16, next)
	return 0
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
