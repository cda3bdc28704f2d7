package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKernelAndLibraryAreOfOneVersion(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "go.mod"))
	require.NoError(t, err)
	library := regexp.MustCompile(gonb + ` (v\S+)`).FindSubmatch(text)
	require.NotNil(t, library, "go.mod requires gonbui's module")
	assert.Equal(t, string(library[1]), toolVersion(gonb), "they talk through a pipe")
	assert.NotEmpty(t, toolVersion(goimports))
	assert.Empty(t, toolVersion("example.org/none"))
}

func TestEveryPythonPackageIsPinned(t *testing.T) {
	s := &Setup{Lab: true}
	all := s.packages()
	for _, p := range all {
		assert.Regexp(t, `^[a-z-]+==[0-9.]+$`, p)
	}
	assert.Contains(t, strings.Join(all, " "), "jupyterlab==")
	s.Lab = false
	assert.NotContains(t, strings.Join(s.packages(), " "), "jupyterlab")
	assert.Contains(t, strings.Join(s.packages(), " "), "nbconvert==")
}

func TestDataFolder(t *testing.T) {
	for _, c := range []struct {
		system string
		env    map[string]string
		want   string
	}{
		{"linux", map[string]string{"HOME": "/h"}, "/h/.local/share/jupyter"},
		{"linux", map[string]string{"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d/jupyter"},
		{"darwin", map[string]string{"HOME": "/h"}, "/h/Library/Jupyter"},
		{"linux", map[string]string{"HOME": "/h", "JUPYTER_DATA_DIR": "/j"}, "/j"},
	} {
		got, err := dataFolder(c.system, func(name string) string { return c.env[name] })
		require.NoError(t, err)
		assert.Equal(t, c.want, filepath.ToSlash(got))
	}
	_, err := dataFolder("windows", func(string) string { return "" })
	assert.ErrorContains(t, err, "use WSL")
	_, err = dataFolder("linux", func(string) string { return "" })
	assert.ErrorContains(t, err, "HOME")
}

func TestDescriptionOfTheKernel(t *testing.T) {
	s := &Setup{Folder: filepath.Join(t.TempDir(), "a b"), Data: t.TempDir()}
	assert.ErrorContains(t, s.checkSpec(), "not there")
	require.NoError(t, s.installSpec(t.Context(), nil))
	require.NoError(t, s.checkSpec())
	text, err := os.ReadFile(filepath.Join(s.Data, "kernels", "gonb", "kernel.json"))
	require.NoError(t, err)
	var found spec
	require.NoError(t, json.Unmarshal(text, &found))
	assert.Equal(t, []string{filepath.Join(s.Folder, "bin", "gonb"), "--kernel", "{connection_file}"}, found.Argv)
	folders := filepath.SplitList(found.Env["PATH"])
	assert.Equal(t, filepath.Join(s.Folder, "bin"), folders[0], "goimports is found")
	assert.FileExists(t, filepath.Join(folders[1], "go"))
	assert.Equal(t, "${PATH}", folders[2], "Jupyter puts the rest in")

	other := *s
	other.Folder += "2"
	assert.ErrorContains(t, other.checkSpec(), "another gonb")
	require.NoError(t, os.WriteFile(s.spec(), []byte("{"), 0o644))
	assert.ErrorContains(t, s.checkSpec(), "damaged")
}

func TestNothingIsThere(t *testing.T) {
	s := &Setup{Folder: t.TempDir(), Data: t.TempDir()}
	for _, part := range s.Parts(t.Context()) {
		assert.Error(t, part.Err, part.Name)
	}
	err := s.Execute(t.Context(), "n.ipynb", filepath.Join(t.TempDir(), "o.ipynb"), 1)
	assert.ErrorContains(t, err, "go run ./scripts/setup_notebooks")
}

func TestWrongVersionsAreFound(t *testing.T) {
	s := &Setup{Folder: t.TempDir(), Data: t.TempDir()}
	script := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("there is no shell")
	}
	script(s.bin("gonb"), "echo v0.0.1\n")
	assert.ErrorContains(t, s.checkTools(t.Context()), "gonb is version v0.0.1")
	script(s.bin("gonb"), "echo "+toolVersion(gonb)+"\n")
	assert.ErrorContains(t, s.checkTools(t.Context()), "goimports")
	script(s.venv("python"), "echo nbconvert==1.0\n")
	assert.ErrorContains(t, s.checkPython(t.Context()), "it has nbconvert==1.0")
	script(s.venv("python"), "exit 1\n")
	assert.ErrorContains(t, s.checkPython(t.Context()), "packages are missing")
}

// recorder stands in for the commands of an installation.
func recorder(lines *[]string, fail string) runner {
	return func(_ context.Context, env []string, name string, args ...string) error {
		line := strings.Join(append(append(append([]string(nil), env...), filepath.Base(name)), args...), " ")
		*lines = append(*lines, line)
		if fail != "" && strings.Contains(line, fail) {
			return errors.New("no")
		}
		return nil
	}
}

func TestCommandsOfAnInstallation(t *testing.T) {
	s := &Setup{Folder: t.TempDir(), Python: "python3"}
	var lines []string
	require.NoError(t, s.installTools(t.Context(), recorder(&lines, "")))
	require.NoError(t, s.installPython(t.Context(), recorder(&lines, "")))
	assert.Equal(t, "GOBIN="+filepath.Join(s.Folder, "bin")+" go install -modfile="+filepath.FromSlash(toolsMod)+" tool",
		lines[0])
	assert.Equal(t, "python3 -m venv "+filepath.Join(s.Folder, "venv"), lines[1])
	assert.Contains(t, lines[2], "-m pip install")
	assert.Contains(t, lines[2], "nbconvert==")
	assert.ErrorContains(t, s.installPython(t.Context(), recorder(&lines, "venv")), "python3-venv")
}

func TestLastLines(t *testing.T) {
	assert.Equal(t, "b\nc", lastLines("a\nb\nc\n", 2))
	assert.Equal(t, "a", lastLines("a", 2))
}
