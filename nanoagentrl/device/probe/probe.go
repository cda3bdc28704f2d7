// Package probe measures a device in a child process. A plugin that ends its process, as XLA's do on an unknown flag,
// or that hangs, then takes down only the child.
//
// The child is the same program: a command that measures must call Serve first in its main, and a package's tests in
// TestMain.
package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gomlx/gomlx/pkg/core/dtypes"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

const (
	// variable holds, in the child, the backend to measure.
	variable = "NANOAGENTRL_PROBE"
	// mark begins the child's lines on standard output, where backends and plugins may write as well.
	mark = "nanoagentrl-probe: "
)

// Result says what a backend is and how fast. A rate that was not measured is 0.
type Result struct {
	// Kind is what was opened: cuda, xla or go.
	Kind device.Kind `json:"kind"`
	// Reason says why.
	Reason string `json:"reason"`
	// Plugin is the file of the XLA plugin in use, or "".
	Plugin string `json:"plugin"`
	// GFLOPSF32 is the rate of a large matrix product in f32, in 10^9 floating-point operations per second.
	GFLOPSF32 float64 `json:"gflops_f32"`
	// GFLOPSBF16 is the same in bf16; it is not measured on pure Go.
	GFLOPSBF16 float64 `json:"gflops_bf16"`
	// Error is what went wrong after the backend was opened, or before.
	Error string `json:"error"`
}

// Serve measures and ends the process if Measure started it; else it returns at once.
func Serve() {
	choice, child := os.LookupEnv(variable)
	if !child {
		return
	}
	serve(choice, os.Stdout)
	os.Exit(0)
}

// serve writes what is known after each stage, so that a crash in one does not lose those before it.
func serve(choice string, out io.Writer) {
	var r Result
	say := func() {
		line, _ := json.Marshal(r) // Numbers and texts only: it cannot fail.
		fmt.Fprintf(out, "%s%s\n", mark, line)
	}
	dev, err := device.Open(choice)
	if err != nil {
		r.Error = err.Error()
		say()
		return
	}
	r.Kind, r.Reason = dev.Kind, dev.Reason
	if dev.Kind == device.XLA {
		r.Plugin, _ = device.PluginPath()
	}
	say()
	size := map[device.Kind]int{device.Go: 512, device.XLA: 1024, device.CUDA: 4096}[dev.Kind]
	if r.GFLOPSF32, err = dev.MeasureGFLOPS(dtypes.Float32, size); err == nil && dev.Kind != device.Go {
		say()
		r.GFLOPSBF16, err = dev.MeasureGFLOPS(dtypes.BFloat16, size)
	}
	if err != nil {
		r.Error = err.Error()
	}
	say()
}

// Measure opens the backend that choice names, as device.Open does, in a child process and measures it. What the child
// found before it failed is returned beside the error. The error says how a plugin crashed and what may help.
func Measure(ctx context.Context, choice string, limit time.Duration) (Result, error) {
	program, err := os.Executable()
	if err != nil {
		return Result{}, fmt.Errorf("measuring %s: %w", choice, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), variable+"="+choice)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	runErr := cmd.Run()
	r, found := lastResult(stdout.String())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return r, fmt.Errorf("backend %s: no answer within %v; it was stopped", choice, limit)
	case ctx.Err() != nil:
		return r, ctx.Err()
	case runErr != nil:
		return r, fmt.Errorf("backend %s: it crashed (%w): %s", choice, runErr, lastWords(stderr.String()))
	case !found:
		return r, fmt.Errorf("backend %s: the child process said nothing; does this program's main call probe.Serve?",
			choice)
	case r.Error != "":
		return r, errors.New(r.Error)
	}
	return r, nil
}

func lastResult(stdout string) (r Result, found bool) {
	for line := range strings.Lines(stdout) {
		if _, text, ok := strings.Cut(line, mark); ok && json.Unmarshal([]byte(text), &r) == nil {
			found = true
		}
	}
	return r, found
}

// lastWords picks from what a crashed child wrote the line that says why: a fatal log line of XLA ("F0000 00:00:0.0 1
// file.cc:1] text"), the head of a Go panic or signal dump, or the last line.
func lastWords(stderr string) string {
	words := "it left no message"
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if len(line) > 5 && line[0] == 'F' && line[1] >= '0' && line[1] <= '9' {
			_, text, ok := strings.Cut(line, "] ")
			if !ok {
				text = line
			}
			words = text
			break
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG") {
			words = line
			break
		}
		if line != "" {
			words = line
		}
	}
	const limit = 300
	if len(words) > limit {
		words = strings.ToValidUTF8(words[:limit], "") + "..."
	}
	if strings.Contains(words, "XLA_FLAGS") {
		words += " (correct or unset XLA_FLAGS)"
	}
	return words
}
