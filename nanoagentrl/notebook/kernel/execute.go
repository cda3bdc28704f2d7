package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Execute runs a notebook from top to bottom and writes it with its outputs to the file to. Each cell may take as long
// as limit. Cells that do not compile and programs that end badly do not stop it; package ipynb finds them.
func (s *Setup) Execute(ctx context.Context, path, to string, limit time.Duration) error {
	jupyter := s.Jupyter()
	if _, err := os.Stat(jupyter); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kernel: there is no %s; run go run ./scripts/setup_notebooks", jupyter)
	}
	folder, err := filepath.Abs(filepath.Dir(to))
	if err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	cmd := exec.CommandContext(ctx, jupyter, "nbconvert", "--to", "notebook", "--execute", "--allow-errors",
		"--log-level=WARN", fmt.Sprintf("--ExecutePreprocessor.timeout=%d", int(limit.Seconds())),
		"--ExecutePreprocessor.kernel_name="+Name, "--output-dir", folder, "--output", filepath.Base(to), path)
	cmd.Env = append(os.Environ(), "JUPYTER_DATA_DIR="+s.Data)
	cmd.WaitDelay = 10 * time.Second // a kernel that outlives nbconvert keeps its output open
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kernel: %s: %w\n%s", path, err, lastLines(string(text), 25))
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
