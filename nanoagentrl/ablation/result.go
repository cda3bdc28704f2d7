package ablation

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// ResultName is the file that makes a run complete.
const ResultName = "result.json"

// Result is what a complete run reached.
type Result struct {
	Variant string `json:"variant"`
	Seed    int    `json:"seed"`
	Steps   int    `json:"steps"`
	// Device is where the maths ran.
	Device string `json:"device"`
	// Seconds are those of the training steps alone.
	Seconds float64 `json:"seconds"`
	// Before and After are the measures by their keys: "sampled", "greedy", "shuffled", "blind".
	Before map[string]nanoagentrl.Measured `json:"before"`
	After  map[string]nanoagentrl.Measured `json:"after"`
	// CopiedFrom names the folder of the equal run that this one was taken from, if it was.
	CopiedFrom string `json:"copied_from,omitempty"`
	// Metrics are the lines of the run's metrics file.
	Metrics []map[string]float64 `json:"-"`
}

// finish writes the result of a run that has just been trained, which completes it.
func (c *Cell) finish(device string) (*Result, error) {
	show, err := nanoagentrl.ReadShowcase(c.Config.RunDir)
	if err != nil {
		return nil, err
	}
	metrics, err := learn.ReadMetrics(c.Config.RunDir)
	if err != nil {
		return nil, err
	}
	result := &Result{Variant: c.Variant, Seed: c.Seed, Steps: c.Config.Steps, Device: device, Metrics: metrics,
		Before: measures(c.Config, show.Before), After: measures(c.Config, show.After)}
	for _, line := range metrics {
		if seconds := line["perf/rollout_sec"] + line["perf/train_sec"]; seconds > 0 {
			result.Seconds += seconds
		}
	}
	return result, writeJSON(filepath.Join(c.Config.RunDir, ResultName), result)
}

// measures sorts what a showcase measured by the key of its condition.
func measures(cfg *config.Config, m *nanoagentrl.Moment) map[string]nanoagentrl.Measured {
	all := map[string]nanoagentrl.Measured{}
	for i, condition := range nanoagentrl.Conditions(cfg) {
		if m != nil && i < len(m.Measured) {
			all[keyOf(condition)] = m.Measured[i]
		}
	}
	return all
}

func keyOf(c nanoagentrl.Condition) string {
	switch {
	case c.Temperature > 0:
		return "sampled"
	case c.Shuffled:
		return "shuffled"
	case c.Blind:
		return "blind"
	}
	return "greedy"
}

// readResult reads the result of a run folder; nil if the run is not complete.
func readResult(dir string) (*Result, error) {
	result := &Result{}
	err := readJSON(filepath.Join(dir, ResultName), result)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if result.Metrics, err = learn.ReadMetrics(dir); err != nil {
		return nil, err
	}
	if n := len(result.series("train/reward_mean")); n != result.Steps {
		return nil, fmt.Errorf("%s: the metrics of %d steps are there, of %d that were made; delete the folder to make "+
			"it anew", dir, n, result.Steps)
	}
	return result, nil
}

// series returns a metric of all training steps, NaN where it was not measured.
func (r *Result) series(metric string) (values []float64) {
	for _, line := range r.Metrics {
		if _, step := line["train/reward_mean"]; !step {
			continue
		}
		value, ok := line[metric]
		if !ok {
			value = math.NaN()
		}
		values = append(values, value)
	}
	return values
}

// Results returns the results of all runs that are complete, in the order of Cells, and how many are missing.
func (g *Grid) Results() (results []*Result, missing int, err error) {
	var faults []error
	for _, cell := range g.Cells {
		p, err := cell.Progress()
		switch {
		case err != nil && !cell.Skip:
			faults = append(faults, err)
		case p.Result == nil:
			missing++
		default:
			results = append(results, p.Result)
		}
	}
	return results, missing, errors.Join(faults...)
}

// reuse looks for a complete run of another variant or suite with the same settings and seed, which would give the same
// numbers, and copies what it left. It returns nil if there is none.
func (g *Grid) reuse(cell *Cell) (*Result, error) {
	pattern := filepath.Join(g.root, "*", "*", "seed-"+strconv.Itoa(cell.Seed), ResultName)
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pattern, err)
	}
	slices.Sort(found)
	for _, path := range found {
		dir := filepath.Dir(path)
		var made cellFile
		if readJSON(filepath.Join(dir, CellName), &made) != nil || len(config.Changed(made.Settings, cell.settings)) > 0 {
			continue
		}
		result, err := readResult(dir)
		if err != nil || result == nil || result.Steps != cell.Config.Steps ||
			!sameBackend(cell.Config.Backend, result.Device) {
			continue // whatever is wrong with it is another suite's affair
		}
		return result, cell.copyFrom(dir, result)
	}
	return nil, nil
}

// sameBackend reports whether a run on a device could have come from a choice of backend.
func sameBackend(backend, device string) bool {
	switch backend {
	case "go":
		return strings.HasPrefix(device, "pure Go")
	case "xla":
		return strings.HasPrefix(device, "XLA on the CPU")
	case "cuda":
		return strings.HasPrefix(device, "XLA on CUDA")
	}
	return true
}

// copyFrom makes the run complete with the files of an equal one.
func (c *Cell) copyFrom(dir string, result *Result) error {
	if err := c.begin(); err != nil {
		return err
	}
	for _, name := range []string{learn.MetricsName, nanoagentrl.ShowcaseName, "config.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(c.Config.RunDir, name), text); err != nil {
			return err
		}
	}
	result.Variant, result.Seed = c.Variant, c.Seed
	if result.CopiedFrom == "" {
		result.CopiedFrom = filepath.ToSlash(dir)
	}
	return writeJSON(filepath.Join(c.Config.RunDir, ResultName), result)
}
