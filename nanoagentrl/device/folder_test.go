package device

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPluginFolderIsInTheHomeFolder(t *testing.T) {
	t.Setenv("HOME", filepath.FromSlash("/somewhere"))
	t.Setenv("USERPROFILE", filepath.FromSlash("/somewhere"))
	folder, err := PluginFolder()
	require.NoError(t, err)
	assert.Contains(t, filepath.ToSlash(folder), "/somewhere/")
	assert.Equal(t, "go-xla", filepath.Base(folder))
}

func TestCUDAToolsAreLookedForBesideThePlugin(t *testing.T) {
	plugin := filepath.FromSlash("/h/.local/lib/go-xla/nvidia/pjrt_c_api_cuda_plugin.so")
	want := "--xla_gpu_cuda_data_dir=" + filepath.FromSlash("/h/.local/lib/go-xla/nvidia")
	assert.Equal(t, want, cudaFlags("", plugin))
	assert.Equal(t, "--xla_a=1 "+want, cudaFlags("--xla_a=1", plugin))
	assert.Equal(t, "--xla_gpu_cuda_data_dir=/mine", cudaFlags("--xla_gpu_cuda_data_dir=/mine", plugin))
}

func TestDriverVersion(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023\nGCC version:  gcc 11.4", "535.104.05"},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", "580.65.06"},
		{"GCC version: 11.4.0", ""},
		{"", ""},
	} {
		assert.Equal(t, c.want, parseDriver(c.text), c.text)
	}
}
