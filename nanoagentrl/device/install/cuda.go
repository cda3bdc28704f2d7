package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cudaPlugin is the path of the CUDA plugin below the plugin folder, where its libraries are beside it.
var cudaPlugin = filepath.Join("nvidia", "pjrt_c_api_cuda_plugin.so")

// CUDA installs the CUDA plugin and NVIDIA's libraries (about 5 GB) through go-xla, which checks them against the
// checksums of the package index. It returns the plugin's path, and whether it was there already.
func CUDA(ctx context.Context, o Options) (path string, already bool, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return "", false, err
	}
	path = filepath.Join(o.Folder, cudaPlugin)
	if _, err := checkPlugin(path); err == nil && !o.Force {
		return path, true, nil
	}
	version, err := o.cudaVersion()
	if err != nil {
		return "", false, err
	}
	work, release, err := workspace(o.Folder)
	if err != nil {
		return "", false, err
	}
	defer release()
	o.say("fetching the CUDA %d plugin and NVIDIA's libraries with go-xla's installer: some gigabytes", version)
	made := filepath.Join(work, "go-xla")
	err = withoutWaiting(ctx, func() error { return o.viaGoXLAGPU(fmt.Sprintf("cuda%d", version), made) })
	if err != nil {
		return "", false, interrupted(ctx, fmt.Errorf("go-xla's installer: %w", err))
	}
	if _, err := checkPlugin(filepath.Join(made, cudaPlugin)); err != nil {
		return "", false, fmt.Errorf("the plugin that was fetched cannot be used: %w", err)
	}
	if err := swapCUDA(o.Folder, work, made); err != nil {
		return "", false, fmt.Errorf("plugin folder %s: %w", o.Folder, err)
	}
	return path, false, nil
}

// cudaVersion is the newest major version of CUDA that the driver supports: 13 needs driver 580, 12 needs 525.
func (o *Options) cudaVersion() (int, error) {
	switch o.CUDAVersion {
	case 0:
	case 12, 13:
		return o.CUDAVersion, nil
	default:
		return 0, fmt.Errorf("CUDA version %d: want 12 or 13", o.CUDAVersion)
	}
	if *o.driver == "" {
		if o.Force {
			return 13, nil
		}
		return 0, errors.New("there is no NVIDIA driver on this machine, so the CUDA plugin would be of no use; " +
			"--force installs it all the same")
	}
	major, _, _ := strings.Cut(*o.driver, ".")
	number, err := strconv.Atoi(major)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the NVIDIA driver's version %q is not a number; choose with --cuda_version", *o.driver)
	case number >= 580:
		return 13, nil
	case number >= 525:
		return 12, nil
	}
	return 0, fmt.Errorf("the NVIDIA driver is version %s, and CUDA 12 needs 525 or newer; update the driver", *o.driver)
}

// swapCUDA puts the folder nvidia that go-xla made into the plugin folder in place of the one there, which comes back
// if that fails. go-xla made two kinds of links for the place where it worked: from bin/ptxas, with the full path, and
// from the folder above the plugin folder to some of the libraries. Both are made to fit.
func swapCUDA(folder, work, made string) error {
	fresh := filepath.Join(made, "nvidia")
	if err := relativeLink(filepath.Join(fresh, "bin", "ptxas"), fresh); err != nil {
		return err
	}
	current, old := filepath.Join(folder, "nvidia"), filepath.Join(work, "old")
	if err := os.Rename(current, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, current); err != nil {
		_ = os.Rename(old, current)
		return err
	}
	if filepath.Base(folder) != "go-xla" {
		return nil // The links' targets begin with that name.
	}
	links, _ := filepath.Glob(filepath.Join(work, "lib*.so*")) // A good pattern.
	for _, link := range links {
		if err := os.Rename(link, filepath.Join(filepath.Dir(folder), filepath.Base(link))); err != nil {
			return err
		}
	}
	return nil
}

// relativeLink rewrites a link with a full path below root as one that survives a move of root.
func relativeLink(link, root string) error {
	target, err := os.Readlink(link)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !strings.HasPrefix(target, root+string(filepath.Separator)) {
		return nil
	}
	relative, err := filepath.Rel(filepath.Dir(link), target)
	if err != nil {
		return err
	}
	if err := os.Remove(link); err != nil {
		return err
	}
	return os.Symlink(relative, link)
}
