// Package kernel sets up notebooks: the GoNB kernel, Jupyter in a Python environment of its own, and the running of
// notebooks without a browser. Versions are pinned in tools.mod and requirements.txt.
package kernel

import (
	"bytes"
	"context"
	_ "embed" // the pinned versions
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

const (
	// Name is what notebooks call the kernel.
	Name        = "gonb"
	displayName = "Go (gonb)"
	module      = "github.com/nano-agentrl/nano-agentrl"
	gonb        = "github.com/janpfeifer/gonb"
	goimports   = "golang.org/x/tools"
	// toolsMod pins the Go tools, apart from go.mod, which need not hold what only their kernel needs.
	toolsMod = "nanoagentrl/notebook/kernel/tools.mod"
	// firstLab begins the requirements that only JupyterLab needs.
	firstLab = "jupyterlab"
)

//go:embed tools.mod
var tools string

//go:embed requirements.txt
var requirements string

// Setup says where things are.
type Setup struct {
	// Folder receives programs (bin) and the Python environment (venv).
	Folder string
	// Data is Jupyter's data folder, which receives the kernel's description.
	Data string
	// Repository is the root of the repository.
	Repository string
	// Python is the interpreter that makes the environment.
	Python string
	// Lab says that JupyterLab belongs to the environment.
	Lab bool
}

// Default returns the set-up in the user's folders: programs in the cache folder, the kernel where every Jupyter of the
// user finds it. The working directory must be in the repository.
func Default(ctx context.Context) (*Setup, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	data, err := dataFolder(runtime.GOOS, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return nil, fmt.Errorf("kernel: this must run inside of the repository: %w", err)
	}
	return &Setup{Folder: filepath.Join(cache, "nanoagentrl", "jupyter"), Data: data, Repository: root, Python: "python3",
		Lab: true}, nil
}

// dataFolder returns the user's Jupyter data folder, as jupyter_core finds it.
func dataFolder(system string, env func(string) string) (string, error) {
	if dir := env("JUPYTER_DATA_DIR"); dir != "" {
		return dir, nil
	}
	home := env("HOME")
	switch {
	case system == "windows":
		return "", errors.New("GoNB does not run on Windows; use WSL, where it does")
	case home == "":
		return "", errors.New("neither JUPYTER_DATA_DIR nor HOME is set")
	case system == "darwin":
		return filepath.Join(home, "Library", "Jupyter"), nil
	case env("XDG_DATA_HOME") != "":
		return filepath.Join(env("XDG_DATA_HOME"), "jupyter"), nil
	}
	return filepath.Join(home, ".local", "share", "jupyter"), nil
}

func (s *Setup) bin(name string) string { return filepath.Join(s.Folder, "bin", name) }

func (s *Setup) venv(name string) string { return filepath.Join(s.Folder, "venv", "bin", name) }

// Jupyter returns the path of the jupyter command.
func (s *Setup) Jupyter() string { return s.venv("jupyter") }

func (s *Setup) spec() string { return filepath.Join(s.Data, "kernels", Name, "kernel.json") }

// toolVersion returns the version of a module in tools.mod.
func toolVersion(path string) string {
	found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(path) + ` (v\S+)`).FindStringSubmatch(tools)
	if found == nil {
		return ""
	}
	return found[1]
}

// packages returns the pinned Python packages, "name==version".
func (s *Setup) packages() (all []string) {
	for line := range strings.Lines(requirements) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, firstLab) && !s.Lab {
			return all
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// output runs a command in a folder and returns what it printed, trimmed. An error holds what it printed to standard
// error.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
