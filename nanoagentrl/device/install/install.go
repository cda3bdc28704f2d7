// Package install puts XLA's plugins into the user's plugin folder, where package device finds them: the CPU plugin
// from the releases of go-xla or from a pinned Python wheel, and the CUDA plugin through go-xla.
//
// A plugin is complete under a temporary name, and checked, before its own name leads to it: an interrupt, a full disk
// or a wrong checksum leaves what was there before. Package install needs no cgo.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"github.com/gofrs/flock"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Source says where the CPU plugin comes from.
type Source string

// The sources of the CPU plugin. Auto tries GoMLX, then Pip.
const (
	Auto  Source = "auto"
	GoMLX Source = "gomlx" // the release that go-xla, gomlx's library for XLA, was tested with
	Pip   Source = "pip"   // a pinned Python wheel, through the user's pip; linux/amd64 only
)

// Options says what to install and where.
type Options struct {
	// Folder is the plugin folder; "" means device.PluginFolder().
	Folder string
	// From is the source of the CPU plugin; "" means Auto.
	From Source
	// Wheel is the pinned wheel as a local file; with it nothing is downloaded and From is not looked at.
	Wheel string
	// Force installs even if there is a plugin, and the CUDA plugin even where there is no NVIDIA driver.
	Force bool
	// CUDAVersion is 12 or 13; 0 chooses the newest that the NVIDIA driver supports.
	CUDAVersion int
	// Log takes one line for each stage; nil drops them.
	Log io.Writer

	// For tests.
	pin         *wheel
	platform    string
	viaGoXLA    func(folder string) error
	viaPip      func(ctx context.Context, folder string) error
	viaGoXLAGPU func(plugin, folder string) error
	driver      *string
}

func (o Options) withDefaults() (Options, error) {
	if o.Folder == "" {
		folder, err := device.PluginFolder()
		if err != nil {
			return o, err
		}
		o.Folder = folder
	}
	folder, err := filepath.Abs(o.Folder)
	if err != nil {
		return o, fmt.Errorf("plugin folder: %w", err)
	}
	o.Folder = folder
	if o.From == "" {
		o.From = Auto
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.pin == nil {
		o.pin = &cpuWheel
	}
	if o.platform == "" {
		o.platform = runtime.GOOS + "/" + runtime.GOARCH
	}
	if o.viaGoXLA == nil {
		useCache := !o.Force // go-xla knows no checksum: a damaged file in its cache would stay.
		o.viaGoXLA = func(folder string) error { return goXLA(folder, useCache) }
	}
	if o.viaPip == nil {
		o.viaPip = func(ctx context.Context, folder string) error { return pip(ctx, o.pin.requirement(), folder) }
	}
	if o.viaGoXLAGPU == nil {
		o.viaGoXLAGPU = goXLACUDA
	}
	if o.driver == nil {
		version := device.NVIDIADriver()
		o.driver = &version
	}
	return o, nil
}

func (o *Options) say(format string, args ...any) { fmt.Fprintf(o.Log, "  "+format+"\n", args...) }

// CPU installs the CPU plugin, unless one is there and Force is not set; then it says so with already. A plugin of
// which only one of its two names is there gets the other.
func CPU(ctx context.Context, o Options) (plugin *Plugin, already bool, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, false, err
	}
	switch o.From {
	case Auto, GoMLX, Pip:
	default:
		return nil, false, fmt.Errorf("source %q is unknown; choose auto, gomlx or pip", o.From)
	}
	if _, both := existing(o.Folder); both && !o.Force {
		plugin, err := Installed(o.Folder)
		return plugin, true, err
	}
	work, release, err := workspace(o.Folder)
	if err != nil {
		return nil, false, err
	}
	defer release()
	if name, _ := existing(o.Folder); name != "" && !o.Force {
		if err := linkNames(o.Folder, name); err != nil {
			return nil, false, fmt.Errorf("plugin folder %s: %w", o.Folder, err)
		}
		plugin, err := Installed(o.Folder)
		return plugin, true, err
	}
	file, name, err := o.obtain(ctx, work)
	if err != nil {
		return nil, false, interrupted(ctx, err)
	}
	if _, err := checkPlugin(file); err != nil {
		return nil, false, fmt.Errorf("the plugin that was fetched cannot be used: %w", err)
	}
	if err := place(o.Folder, file, name); err != nil {
		return nil, false, fmt.Errorf("plugin folder %s: %w", o.Folder, err)
	}
	plugin, err = Installed(o.Folder)
	return plugin, false, err
}

// obtain fetches the plugin into the folder work and returns its file and the name that it is to have.
func (o *Options) obtain(ctx context.Context, work string) (file, name string, err error) {
	switch {
	case o.Wheel != "":
		return o.fromWheel(ctx, o.Wheel, work)
	case o.From == GoMLX:
		return o.fromGoXLA(ctx, work)
	case o.From == Pip:
		return o.fromPip(ctx, work)
	}
	file, name, err = o.fromGoXLA(ctx, work)
	if err == nil || ctx.Err() != nil {
		return file, name, err
	}
	o.say("that did not work: %v", cause(err))
	return o.fromPip(ctx, work)
}

// cause drops the addresses from an error of the network.
func cause(err error) error {
	var network *url.Error
	if errors.As(err, &network) {
		return network.Err
	}
	return err
}

func (o *Options) onWheelPlatform() error {
	if o.platform == "linux/amd64" {
		return nil
	}
	return fmt.Errorf("the Python wheel is made for linux/amd64 and this is %s: here only `--from gomlx` can install "+
		"the plugin, with network access; without it the program runs on pure Go", o.platform)
}

func (o *Options) fromWheel(ctx context.Context, path, work string) (file, name string, err error) {
	if err := o.onWheelPlatform(); err != nil {
		return "", "", err
	}
	file, err = o.pin.extract(ctx, path, work)
	return file, o.pin.fileName(), err
}

// workspace makes a temporary folder inside the plugin folder, on the same disk, and sees that no other process has
// one. release removes it.
func workspace(folder string) (work string, release func(), err error) {
	const prefix = ".setup_xla-"
	cannot := func(err error) error {
		return fmt.Errorf("plugin folder %s cannot be written: %w; choose another with --folder DIR, and set %s=DIR "+
			"whenever you run the program", folder, err, device.PluginPathVariable)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", nil, cannot(err)
	}
	lock := flock.New(filepath.Join(folder, ".setup_xla.lock"))
	locked, err := lock.TryLock()
	if err != nil {
		return "", nil, cannot(err)
	}
	if !locked {
		return "", nil, fmt.Errorf("another process is installing into %s; wait for it to end", folder)
	}
	stale, _ := filepath.Glob(filepath.Join(folder, prefix+"*")) // The pattern is well formed.
	for _, dir := range stale {
		_ = os.RemoveAll(dir) // Left by a process that was killed; what cannot be removed does no harm.
	}
	work, err = os.MkdirTemp(folder, prefix)
	if err != nil {
		_ = lock.Unlock()
		return "", nil, cannot(err)
	}
	return work, func() {
		_ = os.RemoveAll(work)
		_ = lock.Unlock()
	}, nil
}

// interrupted makes one plain error of whatever came of an interrupt.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted; nothing was changed")
	}
	return err
}
