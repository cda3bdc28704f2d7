package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/install"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device/probe"
)

func TestMain(m *testing.M) {
	probe.Serve()
	os.Exit(m.Run())
}

func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelpShowsExamplesAndEveryFlag(t *testing.T) {
	code, stdout, stderr := command("--help")
	assert.Equal(t, 0, code)
	assert.Empty(t, stderr)
	for _, text := range []string{"setup_xla --from pip", "--wheel", "--cuda", "--cuda_version", "--folder", "--force"} {
		assert.Contains(t, stdout, text)
	}
}

func TestBadInputIsOneLineAndStatusTwo(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--bad"}, "unknown flag: --bad; see --help"},
		{[]string{"cuda"}, `unexpected argument "cuda"`},
		{[]string{"--from", "ftp", "--folder", t.TempDir()}, `source "ftp" is unknown`},
		{[]string{"--cuda", "--from", "pip"}, "--cuda goes with neither"},
		{[]string{"--cuda", "--cuda-version=11", "--folder", t.TempDir()}, "want 12 or 13"},
	} {
		code, _, stderr := command(c.args...)
		assert.Equal(t, 2, code, c.args)
		assert.Contains(t, stderr, c.want)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

func TestPluginThatDoesNotRunStaysInstalled(t *testing.T) {
	program, err := os.Executable() // A library's form, but no plugin.
	require.NoError(t, err)
	folder := t.TempDir()
	name := filepath.Join(folder, "pjrt_c_api_cpu_plugin.so")
	require.NoError(t, os.Symlink(program, name))
	t.Setenv(device.PluginPathVariable, folder)
	code, stdout, stderr := command("--folder", folder)
	assert.Contains(t, stdout, "Already installed: an unknown build")
	if device.HasXLA {
		assert.Equal(t, 1, code)
		assert.Contains(t, stderr, "the plugin is installed, but it does not run here")
	} else {
		assert.Equal(t, 0, code)
		assert.Contains(t, stdout, "CGO_ENABLED=1")
	}
	plugin, err := install.Installed(folder)
	require.NoError(t, err)
	assert.Equal(t, name, plugin.Path)
}

func TestSearchedFolders(t *testing.T) {
	standard, err := device.PluginFolder()
	require.NoError(t, err)
	if _, set := os.LookupEnv(device.PluginPathVariable); set {
		t.Setenv(device.PluginPathVariable, "") // Puts the value back after the test.
		os.Unsetenv(device.PluginPathVariable)
	}
	assert.True(t, searched(""))
	assert.True(t, searched(standard))
	assert.False(t, searched(t.TempDir()))
	t.Setenv(device.PluginPathVariable, "/a"+string(filepath.ListSeparator)+"/b")
	assert.False(t, searched(""))
	assert.True(t, searched("/b"))
}
