package learn

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// The files of a run folder beside its checkpoints.
const (
	MetricsName = "metrics.jsonl"
	SamplesName = "samples.jsonl"
)

// RunLog appends what a run reports to files in its folder: one JSON line of metrics for each step and evaluation, and
// sample episodes.
type RunLog struct{ dir string }

// OpenRunLog returns the log of a run folder. When a run goes on from step, lines of later steps, which a killed
// process had written but not saved, are taken out, so that no step stands in the file twice.
func OpenRunLog(dir string, step int) (*RunLog, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	for _, name := range []string{MetricsName, SamplesName} {
		if err := dropAfter(filepath.Join(dir, name), step); err != nil {
			return nil, fmt.Errorf("run folder: %w", err)
		}
	}
	return &RunLog{dir: dir}, nil
}

// dropAfter removes the lines of a JSONL file whose "step" is above step, and a line that a kill cut short.
func dropAfter(path string, step int) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	var kept strings.Builder
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var at struct {
			Step int `json:"step"`
		}
		if json.Unmarshal(lines.Bytes(), &at) == nil && at.Step <= step {
			kept.Write(lines.Bytes())
			kept.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(kept.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Metrics appends the metrics of a step. Values that JSON cannot hold, NaN and infinities, become null.
func (l *RunLog) Metrics(step int, stats Stats) error {
	line := map[string]any{"step": step}
	for name, value := range stats {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			line[name] = nil
		} else {
			line[name] = value
		}
	}
	return l.append(MetricsName, line)
}

// Sample appends one episode of a step.
func (l *RunLog) Sample(step int, split string, e *episode.Episode) error {
	return l.append(SamplesName, map[string]any{"step": step, "split": split, "episode": e})
}

func (l *RunLog) append(name string, line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	path := filepath.Join(l.dir, name)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// ReadMetrics reads the metrics file of a run folder; null becomes NaN.
func ReadMetrics(dir string) ([]map[string]float64, error) {
	path := filepath.Join(dir, MetricsName)
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer file.Close()
	var all []map[string]float64
	decoder := json.NewDecoder(file)
	for decoder.More() {
		var line map[string]*float64
		if err := decoder.Decode(&line); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(all)+1, err)
		}
		values := map[string]float64{}
		for name, v := range line {
			values[name] = math.NaN()
			if v != nil {
				values[name] = *v
			}
		}
		all = append(all, values)
	}
	return all, nil
}
