package ablation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// CellName is the file that a run folder gets first: the settings that its run is made with.
const CellName = "cell.json"

// largestHashed is the size, in bytes, up to which a model counts by its content; of a larger one only the name does.
const largestHashed = 64 << 20

// settle fills in the settings that a run must have been made with to count: those that change what it computes and
// what it is measured on, and the content of a small model, since warm starts are made anew under the same name. Steps
// are not among them where a run may simply go on. hashes keeps what was read already.
func (c *Cell) settle(hashes map[string]string) error {
	s := c.Config.Fingerprint()
	s["eval_data"] = strings.Join(c.Config.EvalData, ", ")
	s["max_eval_questions"] = fmt.Sprint(c.Config.MaxEvalQuestions)
	for _, name := range []string{c.Config.Model, c.Config.Reference} {
		hash, known := hashes[name]
		if !known {
			var err error
			if hash, err = hashModel(name); err != nil {
				return fmt.Errorf("model %s: %w", name, err)
			}
			hashes[name] = hash
		}
		if hash != "" {
			s["content of "+name] = hash
		}
	}
	c.settings = s
	return nil
}

// hashModel returns a SHA-256 of the files of a model's folder, or of its file; "" for a large one and for one that is
// not on the disk.
func hashModel(path string) (string, error) {
	var files []string
	size := int64(0)
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		files, size = append(files, name), size+info.Size()
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || size > largestHashed {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(name), len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// cellFile is what stands in CellName.
type cellFile struct {
	Variant  string            `json:"variant"`
	Seed     int               `json:"seed"`
	Settings map[string]string `json:"settings"`
}

// begin makes the run's folder and writes its settings into it.
func (c *Cell) begin() error {
	if err := os.MkdirAll(c.Config.RunDir, 0o755); err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	return writeJSON(filepath.Join(c.Config.RunDir, CellName), cellFile{c.Variant, c.Seed, c.settings})
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.Write(path, append(text, '\n'))
}

func readJSON(path string, value any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("%s: %w; delete the run's folder to make it anew", path, err)
	}
	return nil
}

// Progress is how far a run is.
type Progress struct {
	// Result is that of a run that is complete, else nil.
	Result *Result
	// Step is the last one that was logged.
	Step int
}

// Progress looks into the run's folder. A run that was made with other settings is an error that names them: its
// results must neither count nor be lost.
func (c *Cell) Progress() (p Progress, err error) {
	dir := c.Config.RunDir
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return Progress{}, nil
	}
	if err != nil {
		return Progress{}, err
	}
	var made cellFile
	err = readJSON(filepath.Join(dir, CellName), &made)
	if errors.Is(err, fs.ErrNotExist) {
		return Progress{}, fmt.Errorf("%s holds something that is no run of this grid; move it away", dir)
	}
	if err != nil {
		return Progress{}, err
	}
	if changes := config.Changed(made.Settings, c.settings); len(changes) > 0 {
		return Progress{}, fmt.Errorf("%s was made with other settings:\n  %s\ndelete it, or give another folder with --out",
			dir, strings.Join(changes, "\n  "))
	}
	if p.Step, err = lastStep(dir); err != nil {
		return Progress{}, err
	}
	if p.Step > c.Config.Steps {
		return Progress{}, fmt.Errorf("%s has %d steps already, more than the %d that are wanted; delete it, or give "+
			"another folder with --out", dir, p.Step, c.Config.Steps)
	}
	result, err := readResult(dir)
	if err != nil || result == nil || result.Steps < c.Config.Steps {
		return p, err
	}
	result.Variant, result.Seed = c.Variant, c.Seed
	p.Result = result
	return p, nil
}

// lastStep returns the last step in the metrics of a run folder, 0 if there are none.
func lastStep(dir string) (step int, err error) {
	lines, err := learn.ReadMetrics(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, line := range lines {
		step = max(step, int(line["step"]))
	}
	return step, err
}

// logFile opens the file that receives what a run prints.
func (c *Cell) logFile() (io.WriteCloser, error) {
	return os.OpenFile(c.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}

func (c *Cell) logPath() string { return filepath.Join(c.Config.RunDir, "log.txt") }
