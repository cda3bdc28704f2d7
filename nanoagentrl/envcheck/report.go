// Package envcheck finds out what a machine has for training: tools, memory, backend and its speed, models and data,
// and what to do about each thing that is missing. Nothing is downloaded or changed.
package envcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/install"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
)

// Report is what was found. Its JSON keys are stable; sizes are in bytes, and an empty text or list means none.
type Report struct {
	// Ready says whether one can train at all, if only the quickstart on pure Go.
	Ready   bool    `json:"ready"`
	Go      Go      `json:"go"`
	CPU     CPU     `json:"cpu"`
	Memory  Memory  `json:"memory"`
	Disk    Disk    `json:"disk"`
	Backend Backend `json:"backend"`
	Plugin  Plugin  `json:"plugin"`
	// NVIDIADriver is the version of the driver that is loaded.
	NVIDIADriver string    `json:"nvidia_driver"`
	Models       ModelList `json:"models"`
	HubCache     ModelList `json:"hub_cache"`
	Data         []DataDir `json:"data"`
	Missing      []Missing `json:"missing"`
	// Next is the command to run next.
	Next string `json:"next"`
}

// Go describes how this program was built, and the C compiler for the next build.
type Go struct {
	Version   string `json:"version"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	Cgo       bool   `json:"cgo"`
	CCompiler string `json:"c_compiler"`
}

// CPU counts cores; UsableCores is less than Cores where a container or GOMAXPROCS limits them.
type CPU struct {
	Cores       int `json:"cores"`
	UsableCores int `json:"usable_cores"`
}

// Memory is the machine's, or the container's where that is less.
type Memory struct {
	TotalBytes     uint64 `json:"total_bytes"`
	AvailableBytes uint64 `json:"available_bytes"`
}

// Disk is the one that the working directory is on, where runs are written.
type Disk struct {
	Folder    string `json:"folder"`
	FreeBytes uint64 `json:"free_bytes"`
}

// Backend is what `backend: auto` picks and how fast it is. If auto cannot be used, it is pure Go, and AutoError says
// why.
type Backend struct {
	Kind       string  `json:"kind"`
	Reason     string  `json:"reason"`
	GFLOPSF32  float64 `json:"gflops_f32"`
	GFLOPSBF16 float64 `json:"gflops_bf16"`
	AutoError  string  `json:"auto_error"`
	Error      string  `json:"error"`
}

// Plugin is the XLA CPU plugin.
type Plugin struct {
	Installed bool   `json:"installed"`
	Path      string `json:"path"`
	Version   string `json:"version"`
	SHA256    string `json:"sha256"`
	Error     string `json:"error"`
}

// Missing is one thing that is missing or wrong, and the way out.
type Missing struct {
	What string `json:"what"`
	Do   string `json:"do"`
}

// Options says where to look. The zero value of a field means the place where the program looks.
type Options struct {
	// WorkDir is the folder of the data and the runs; "" means the working directory.
	WorkDir string
	// Limit bounds the measurement of each backend; 0 means a minute.
	Limit time.Duration

	// For tests.
	pluginFolder, hubFolder, modelFolder string
	measure                              func(ctx context.Context, choice string, limit time.Duration) (probe.Result, error)
	driver                               *string
}

// Collect looks everything up. It takes a few seconds; what cannot be found out is left empty.
func Collect(ctx context.Context, o Options) *Report {
	o = o.withDefaults()
	r := &Report{
		Go: goTools(), CPU: CPU{runtime.NumCPU(), runtime.GOMAXPROCS(0)}, Memory: memory(),
		Disk: freeSpace(o.WorkDir), NVIDIADriver: *o.driver,
	}
	pluginInUse := r.measure(ctx, o)
	r.Plugin = describePlugin(pluginInUse, o.pluginFolder)
	r.Models = ModelList{Folder: o.modelFolder, Found: findModels(o.modelFolder)}
	r.HubCache = ModelList{Folder: o.hubFolder, Found: findHubModels(o.hubFolder)}
	r.Data = findData(o.WorkDir)
	r.Next = "go run ./scripts/train --config configs/quickstart.yaml"
	if r.Backend.AutoError != "" {
		r.Next += " --set backend=go"
	}
	r.Missing = r.missing(o.pluginFolder)
	return r
}

func (o Options) withDefaults() Options {
	if o.WorkDir == "" {
		o.WorkDir = "."
	}
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
	if o.pluginFolder == "" {
		o.pluginFolder, _ = device.PluginFolder() // Without a home folder there is no plugin in it.
	}
	if o.hubFolder == "" {
		o.hubFolder = hubFolder()
	}
	if o.modelFolder == "" {
		o.modelFolder = modelFolder()
	}
	if o.measure == nil {
		o.measure = probe.Measure
	}
	if o.driver == nil {
		version := device.NVIDIADriver()
		o.driver = &version
	}
	return o
}

// measure fills in the backend and whether it can train, and returns the plugin that it uses.
func (r *Report) measure(ctx context.Context, o Options) (plugin string) {
	result, err := o.measure(ctx, "auto", o.Limit)
	if err != nil {
		r.Backend.AutoError = err.Error()
		plugin = result.Plugin
		result, err = o.measure(ctx, "go", o.Limit)
		result.Reason = "auto cannot be used"
	}
	r.Backend.Kind, r.Backend.Reason = string(result.Kind), result.Reason
	r.Backend.GFLOPSF32, r.Backend.GFLOPSBF16 = result.GFLOPSF32, result.GFLOPSBF16
	if err != nil {
		r.Backend.Error = err.Error()
	}
	r.Ready = err == nil
	if result.Plugin != "" {
		plugin = result.Plugin
	}
	return plugin
}

// describePlugin reads the plugin in use, else the one in the user's folder, which may be the one that crashed.
func describePlugin(inUse, folder string) Plugin {
	inspect := func() (*install.Plugin, error) { return install.Inspect(inUse) }
	if inUse == "" {
		inspect = func() (*install.Plugin, error) { return install.Installed(folder) }
	}
	found, err := inspect()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Plugin{}
	case err != nil:
		return Plugin{Error: err.Error()}
	}
	return Plugin{Installed: true, Path: found.Path, Version: found.Version, SHA256: found.SHA256}
}

func goTools() Go {
	g := Go{Version: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cgo: device.HasXLA}
	names := []string{"gcc", "clang", "cc"}
	if chosen := strings.Fields(os.Getenv("CC")); len(chosen) > 0 {
		names = chosen[:1]
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			g.CCompiler = path
			break
		}
	}
	return g
}

func memory() Memory {
	m, err := mem.VirtualMemory()
	if err != nil {
		return Memory{}
	}
	found := Memory{TotalBytes: m.Total, AvailableBytes: m.Available}
	limit, used := readNumber("/sys/fs/cgroup/memory.max"), readNumber("/sys/fs/cgroup/memory.current")
	return found.limitedTo(limit, used)
}

// limitedTo applies a container's limit; 0 means none. What the container uses includes files that the kernel keeps in
// memory and would give back, so the memory available is an under-estimate.
func (m Memory) limitedTo(limit, used uint64) Memory {
	if limit == 0 || limit >= m.TotalBytes {
		return m
	}
	return Memory{TotalBytes: limit, AvailableBytes: min(m.AvailableBytes, limit-min(used, limit))}
}

func readNumber(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // "max" is no limit: 0.
	return n
}

func freeSpace(folder string) Disk {
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	d := Disk{Folder: folder}
	if usage, err := disk.Usage(folder); err == nil {
		d.FreeBytes = usage.Free
	}
	return d
}

// missing lists what keeps the machine from training well.
func (r *Report) missing(pluginFolder string) []Missing {
	const gb = 1_000_000_000
	list := []Missing{}
	add := func(what, do string, args ...any) { list = append(list, Missing{what, fmt.Sprintf(do, args...)}) }
	if r.Backend.Error != "" {
		add("a backend that works", "pure Go failed as well (%s); please report it", r.Backend.Error)
	}
	if r.Backend.AutoError != "" {
		add("the backend that auto picks", "%s; until then train with --set backend=go", r.Backend.AutoError)
	}
	switch {
	case !r.Go.Cgo && r.Go.CCompiler != "":
		add("XLA support in this program", "build it with CGO_ENABLED=1; the C compiler is there")
	case !r.Go.Cgo:
		add("a C compiler", "install gcc or clang: without one only pure Go is built in")
	}
	switch {
	case r.Plugin.Error != "":
		add("a sound XLA plugin", "%s; replace it with `go run ./scripts/setup_xla --force`", r.Plugin.Error)
	case !r.Plugin.Installed && r.Backend.Kind != string(device.CUDA):
		add("the XLA plugin", "go run ./scripts/setup_xla (about twenty times faster than pure Go)")
	case r.Plugin.Installed && r.Backend.Kind == string(device.Go) && r.Go.Cgo && r.Backend.AutoError == "":
		add("the XLA plugin where programs look", "it is in %s, but not used: %s", pluginFolder, r.Backend.Reason)
	}
	if r.NVIDIADriver != "" && r.Backend.Kind != string(device.CUDA) {
		add("the CUDA plugin", "go run ./scripts/setup_xla --cuda (there is an NVIDIA driver, %s)", r.NVIDIADriver)
	}
	if len(r.Models.Found)+len(r.HubCache.Found) == 0 {
		add("a pretrained model", "the quickstart needs none; else name a hub model in the config (train downloads it), or "+
			"put a GGUF file or a Hugging Face folder into %s", r.Models.Folder)
	}
	if !hasData(r.Data) {
		add("training data", "the quickstart needs none; the other files in configs say at their keys where it comes from")
	}
	if r.Memory.TotalBytes != 0 && r.Memory.AvailableBytes < 4*gb {
		add("memory", "only %s are available, and a model of 135M parameters needs about 6 GB: close other programs, or "+
			"lower micro_batch_tokens", size(r.Memory.AvailableBytes))
	}
	if r.Disk.FreeBytes != 0 && r.Disk.FreeBytes < 10*gb {
		add("disk space", "only %s are free in %s, and checkpoints of a 0.5B model take 6 GB each: set run_dir to another "+
			"disk", size(r.Disk.FreeBytes), r.Disk.Folder)
	}
	return list
}
