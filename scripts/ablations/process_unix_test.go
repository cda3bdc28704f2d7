//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

// childArgs is the environment variable that makes this test binary the command itself.
const childArgs = "NANOAGENTRL_TEST_ABLATIONS_ARGS"

func TestMain(m *testing.M) {
	text := os.Getenv(childArgs)
	if text == "" {
		os.Exit(m.Run())
	}
	var args []string
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		panic(err)
	}
	os.Args = append([]string{"ablations"}, args...)
	main()
}

// start runs the command as a process of its own and returns its output.
func (w *world) start(args ...string) (*exec.Cmd, *bufio.Scanner) {
	text, err := json.Marshal(args)
	require.NoError(w.t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childArgs+"="+string(text))
	out, err := child.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, child.Start())
	return child, bufio.NewScanner(out)
}

// waitFor waits until a file has a number of lines.
func (w *world) waitFor(path string, lines int) {
	require.Eventually(w.t, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Count(string(text), "\n") >= lines
	}, 20*time.Second, 2*time.Millisecond, path)
}

// Killed in the midst of the second run: the first is not made again, the second goes on, and the numbers are those of
// a suite that nobody killed.
func TestKilledSuiteGoesOnToTheSameNumbers(t *testing.T) {
	w := newWorld(t)
	w.write(filepath.Join(w.dir, "base.yaml"), strings.Replace(baseText, "steps: 1", "steps: 20", 1))
	args := w.args("--seeds", "1", "--parallel", "1", "--figures", w.figures)
	child, _ := w.start(args...)
	w.waitFor(filepath.Join(w.out, "try", "cold", "seed-1", "metrics.jsonl"), 8)
	require.NoError(t, child.Process.Signal(syscall.SIGKILL))
	_ = child.Wait()
	require.FileExists(t, filepath.Join(w.out, "try", "plain", "seed-1", "result.json"))
	require.NoFileExists(t, filepath.Join(w.out, "try", "cold", "seed-1", "result.json"))

	code, out, errOut := w.call(t.Context(), args...)
	require.Equal(t, cli.OK, code, errOut)
	require.Contains(t, out, "1 run to make, 1 complete")
	require.Contains(t, w.read(filepath.Join(w.out, "try", "cold", "seed-1", "log.txt")), "resume   from step")
	after := w.read(filepath.Join(w.figures, "try.csv"))

	whole := newWorld(t)
	whole.write(filepath.Join(whole.dir, "base.yaml"), strings.Replace(baseText, "steps: 1", "steps: 20", 1))
	code, _, errOut = whole.call(t.Context(), whole.args("--seeds", "1", "--figures", whole.figures)...)
	require.Equal(t, cli.OK, code, errOut)
	require.Equal(t, whole.read(filepath.Join(whole.figures, "try.csv")), after)
}

func TestInterruptSavesAndEndsWith130(t *testing.T) {
	w := newWorld(t)
	w.write(filepath.Join(w.dir, "base.yaml"), strings.Replace(baseText, "steps: 1", "steps: 5000", 1))
	child, _ := w.start(w.args("--parallel", "2")...)
	w.waitFor(filepath.Join(w.out, "try", "plain", "seed-1", "metrics.jsonl"), 2)
	require.NoError(t, child.Process.Signal(os.Interrupt))
	err := child.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, cli.Interrupted, exit.ExitCode())
	_, out, _ := w.call(t.Context(), w.args("--list")...)
	require.Contains(t, out, "of 5000", "what was done is kept")
	require.Contains(t, out, "0 of 4 runs are complete")
}
