package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// layGPUPlugin does to a folder what go-xla's CudaInstall does.
func layGPUPlugin(t *testing.T, folder, text string) {
	t.Helper()
	nvidia := filepath.Join(folder, "nvidia")
	for _, dir := range []string{"bin", "cu13/bin", "cu13/lib"} {
		require.NoError(t, os.MkdirAll(filepath.Join(nvidia, dir), 0o755))
	}
	for name, data := range map[string][]byte{
		"pjrt_c_api_cuda_plugin.so": library(text),
		"cu13/bin/ptxas":            []byte("ptxas"),
		"cu13/lib/libcublas.so.13":  []byte(text),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(nvidia, name), data, 0o755))
	}
	require.NoError(t, os.Symlink(filepath.Join(nvidia, "cu13/bin/ptxas"), filepath.Join(nvidia, "bin/ptxas")))
	link := filepath.Join(folder, "..", "libcublas.so.13")
	require.NoError(t, os.Symlink("./go-xla/nvidia/cu13/lib/libcublas.so.13", link))
}

func TestCUDAIsMovedIntoPlaceWithItsLinks(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "lib", "go-xla")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "nvidia", "leftover"), 0o755))
	driver, asked := "580.65.06", ""
	o := Options{Folder: folder, driver: &driver, viaGoXLAGPU: func(plugin, folder string) error {
		asked = plugin
		layGPUPlugin(t, folder, "one")
		return nil
	}}
	path, already, err := CUDA(context.Background(), o)
	require.NoError(t, err)
	assert.False(t, already)
	assert.Equal(t, "cuda13", asked)
	assert.Equal(t, []string{"nvidia"}, visible(t, folder))
	assert.Equal(t, "one", read(t, path)[64:])
	assert.Equal(t, "ptxas", read(t, folder, "nvidia", "bin", "ptxas"))
	assert.Equal(t, "one", read(t, folder, "..", "libcublas.so.13"))
	assert.NoDirExists(t, filepath.Join(folder, "nvidia", "leftover"))

	o.viaGoXLAGPU = func(string, string) error { return errors.New("must not be called") }
	_, already, err = CUDA(context.Background(), o)
	require.NoError(t, err)
	assert.True(t, already)
}

func TestFailedCUDAInstallLeavesTheOldOne(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "go-xla")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	layGPUPlugin(t, folder, "old")
	driver := "600.1"
	o := Options{Folder: folder, Force: true, driver: &driver, viaGoXLAGPU: func(_, folder string) error {
		layGPUPlugin(t, folder, "half")
		return errors.New("the connection broke")
	}}
	_, _, err := CUDA(context.Background(), o)
	require.ErrorContains(t, err, "the connection broke")
	assert.Equal(t, []string{"nvidia"}, visible(t, folder))
	assert.Equal(t, "old", read(t, folder, cudaPlugin)[64:])
	assert.Equal(t, "old", read(t, folder, "..", "libcublas.so.13"))

	if runtime.GOOS == "linux" {
		o.viaGoXLAGPU = func(string, string) error { return nil } // Nothing there.
		_, _, err = CUDA(context.Background(), o)
		require.ErrorContains(t, err, "cannot be used")
		assert.Equal(t, "old", read(t, folder, cudaPlugin)[64:])
	}
}

func TestCUDAVersionFollowsTheDriver(t *testing.T) {
	for _, c := range []struct {
		driver string
		asked  int
		force  bool
		want   int
		fault  string
	}{
		{driver: "580.65.06", want: 13},
		{driver: "579.9", want: 12},
		{driver: "525.60.13", want: 12},
		{driver: "470.1", fault: "needs 525"},
		{driver: "", fault: "no NVIDIA driver"},
		{driver: "", force: true, want: 13},
		{driver: "", asked: 12, want: 12},
		{driver: "580.1", asked: 11, fault: "want 12 or 13"},
		{driver: "beta", fault: "not a number"},
	} {
		o := Options{driver: &c.driver, CUDAVersion: c.asked, Force: c.force}
		version, err := o.cudaVersion()
		if c.fault != "" {
			assert.ErrorContains(t, err, c.fault)
			continue
		}
		assert.NoError(t, err)
		assert.Equal(t, c.want, version, c)
	}
}
