package learn

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
)

// The files of a run folder beside its checkpoints.
const (
	MetricsName = "metrics.jsonl"
	SamplesName = "samples.jsonl"
)

// evalSeconds begins the name of a metric that every evaluation of a split has.
const evalSeconds = "perf/eval_sec_"

// RunLog appends what a run reports to files in its folder: one JSON line of metrics for each step and one for each
// evaluation, and sample episodes.
type RunLog struct {
	dir       string
	evaluated int
}

// OpenRunLog returns the log of a run folder. When a run goes on from step, lines of later steps, which a killed
// process had written but not saved, are taken out, so that no step stands in the file twice. Step 0 is a new run, which
// starts with empty files.
func OpenRunLog(dir string, step int) (*RunLog, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	log := &RunLog{dir: dir, evaluated: -1}
	for _, name := range []string{MetricsName, SamplesName} {
		if err := dropAfter(filepath.Join(dir, name), step); err != nil {
			return nil, fmt.Errorf("run folder: %w", err)
		}
	}
	lines, err := ReadMetrics(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, line := range lines {
		log.note(int(line["step"]), line)
	}
	return log, nil
}

// note remembers the step of a line of metrics if it is one of an evaluation.
func (l *RunLog) note(step int, stats map[string]float64) {
	for name := range stats {
		if strings.HasPrefix(name, evalSeconds) {
			l.evaluated = step
			return
		}
	}
}

// Evaluated returns the step of the last evaluation that was logged, or -1 if there is none.
func (l *RunLog) Evaluated() int { return l.evaluated }

// Sync makes sure that all lines are on the disk. A checkpoint is written after it: lines that a power cut takes belong
// to steps that are made again.
func (l *RunLog) Sync() error {
	for _, name := range []string{MetricsName, SamplesName} {
		if err := atomicfile.Sync(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("run folder: %w", err)
		}
	}
	return nil
}

// Missing returns how many of the first n training steps have no line of metrics.
func (l *RunLog) Missing(n int) (missing int, err error) {
	steps, err := l.steps()
	if err != nil {
		return 0, err
	}
	there := map[int]bool{}
	for _, s := range steps {
		there[int(s["step"])] = true
	}
	for step := 1; step <= n; step++ {
		if !there[step] {
			missing++
		}
	}
	return missing, nil
}

// steps returns the metrics of all training steps that are in the log.
func (l *RunLog) steps() (steps []Stats, err error) {
	lines, err := ReadMetrics(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, line := range lines {
		if _, ok := line[rewardMetric]; ok {
			steps = append(steps, line)
		}
	}
	return steps, err
}

// dropAfter removes the lines of a JSONL file whose "step" is above step, all lines if step is 0, and a line that a kill
// cut short. A file with nothing to remove is not touched.
func dropAfter(path string, step int) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		var at struct {
			Step int `json:"step"`
		}
		whole := bytes.HasSuffix(line, []byte("\n"))
		if whole && step > 0 && json.Unmarshal(line, &at) == nil && at.Step <= step {
			kept.Write(line)
		}
	}
	if kept.Len() == len(text) {
		return nil
	}
	return atomicfile.Write(path, kept.Bytes())
}

// Metrics appends the metrics of a step, or of an evaluation. Values that JSON cannot hold, NaN and infinities, become
// null.
func (l *RunLog) Metrics(step int, stats Stats) error {
	line := map[string]any{"step": step}
	for name, value := range stats {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			line[name] = nil
		} else {
			line[name] = value
		}
	}
	if err := l.append(MetricsName, line); err != nil {
		return err
	}
	l.note(step, stats)
	return nil
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
	before, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		if _, err = file.Write(append(text, '\n')); err != nil {
			_ = file.Truncate(before) // A full disk leaves no half line; if even this fails, OpenRunLog removes it.
		}
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	return nil
}

// ReadMetrics reads the metrics file of a run folder, which may be of a run that is under way: null becomes NaN, and a
// last line that is not whole is left out.
func ReadMetrics(dir string) ([]map[string]float64, error) {
	path := filepath.Join(dir, MetricsName)
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer file.Close()
	var all []map[string]float64
	for reader := bufio.NewReader(file); ; {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		var line map[string]*float64
		if err := json.Unmarshal(text, &line); err != nil {
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
}
