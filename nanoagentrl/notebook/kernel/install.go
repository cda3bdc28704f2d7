package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// runner runs a command in the repository, with additions to the environment; what it prints is shown.
type runner func(ctx context.Context, env []string, name string, args ...string) error

// Install installs the parts that are not there and says what it does on out. Then it builds the project's packages, so
// that the first cell need not wait for the compiler.
func (s *Setup) Install(ctx context.Context, out io.Writer) error {
	run := func(ctx context.Context, env []string, name string, args ...string) error {
		fmt.Fprintf(out, "    %s\n", strings.Join(append(append(env[:len(env):len(env)], name), args...), " "))
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = s.Repository, append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		return nil
	}
	for _, part := range s.Parts(ctx) {
		if part.Err == nil {
			fmt.Fprintf(out, "Already there: %s, in %s\n", part.Name, part.Where)
			continue
		}
		fmt.Fprintf(out, "Installing: %s, into %s (%v)\n", part.Name, part.Where, part.Err)
		if err := part.install(ctx, run); err != nil {
			return fmt.Errorf("kernel: %s: %w", part.Name, err)
		}
	}
	for _, part := range s.Parts(ctx) {
		if part.Err != nil {
			return fmt.Errorf("kernel: %s was installed, but: %w", part.Name, part.Err)
		}
	}
	fmt.Fprintln(out, "Building the project, for the first cell")
	if err := run(ctx, nil, "go", "build", "./nanoagentrl/..."); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	return nil
}

func (s *Setup) installTools(ctx context.Context, run runner) error {
	return run(ctx, []string{"GOBIN=" + filepath.Clean(s.bin(""))}, "go", "install",
		"-modfile="+filepath.FromSlash(toolsMod), "tool")
}

func (s *Setup) installPython(ctx context.Context, run runner) error {
	if _, err := os.Stat(s.venv("python")); err != nil {
		if err := run(ctx, nil, s.Python, "-m", "venv", filepath.Join(s.Folder, "venv")); err != nil {
			return fmt.Errorf("%w; Debian and Ubuntu have venv in the package python3-venv", err)
		}
	}
	return run(ctx, nil, s.venv("python"), append([]string{"-m", "pip", "install", "--quiet",
		"--disable-pip-version-check"}, s.packages()...)...)
}

// installSpec writes the description of the kernel. GoNB calls go and goimports by name, so their folders come first on
// the PATH of the kernel.
func (s *Setup) installSpec(context.Context, runner) error {
	command, err := exec.LookPath("go")
	if err != nil {
		return errors.New("there is no go on the PATH")
	}
	path := strings.Join([]string{filepath.Clean(s.bin("")), filepath.Dir(command), "${PATH}"},
		string(filepath.ListSeparator))
	text, err := json.MarshalIndent(spec{
		Argv: []string{s.bin("gonb"), "--kernel", "{connection_file}"}, DisplayName: displayName, Language: "go",
		InterruptMode: "message", Env: map[string]string{"PATH": path},
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.spec()), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.spec(), append(text, '\n'), 0o644)
}
