package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// BestName is the file in root that points at the best checkpoint.
const BestName = "best.json"

const bestFormat = 1

// BestCheckpoint says which checkpoint did best, and at what.
type BestCheckpoint struct {
	Format int `json:"format"`
	// Step is the step of the checkpoint.
	Step int `json:"step"`
	// Metric is the name of the metric and Value its value there.
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
}

// SetBest points at the checkpoint of step as the best by a metric. The pointer is replaced whole or not at all.
func SetBest(root string, step int, metric string, value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("checkpoint: best step %d: %s is %v", step, metric, value)
	}
	if _, err := readManifest(filepath.Join(root, Name(step))); err != nil {
		return fmt.Errorf("checkpoint: best step %d is not saved: %w", step, err)
	}
	return writeJSONAtomic(filepath.Join(root, BestName), BestCheckpoint{bestFormat, step, metric, value})
}

// Best returns the best checkpoint and its folder; ok is false if none was ever set.
func Best(root string) (best BestCheckpoint, dir string, ok bool, err error) {
	path := filepath.Join(root, BestName)
	err = readJSON(path, &best)
	if errors.Is(err, os.ErrNotExist) {
		return BestCheckpoint{}, "", false, nil
	}
	if err != nil {
		return BestCheckpoint{}, "", false, err
	}
	if best.Format != bestFormat {
		return BestCheckpoint{}, "", false, fmt.Errorf("checkpoint: %s: format %d, this program reads %d",
			path, best.Format, bestFormat)
	}
	return best, filepath.Join(root, Name(best.Step)), true, nil
}

// Prune deletes checkpoints and returns the folders it deleted. It keeps the keepLast newest complete ones (at least
// one), those whose step is a multiple of keepEvery (if that is not 0), and the best. Damaged ones do not count towards
// keepLast. Nothing is deleted if the pointer to the best cannot be read, or if no complete checkpoint would remain.
func Prune(root string, keepLast, keepEvery int) (deleted []string, err error) {
	steps, err := list(root)
	if err != nil {
		return nil, err
	}
	best, _, hasBest, err := Best(root)
	if err != nil {
		return nil, fmt.Errorf("%w; mend or delete it, nothing is pruned until then", err)
	}
	kept, complete := map[int]bool{}, 0
	for _, step := range slices.Backward(steps) {
		if complete < max(keepLast, 1) && quickCheck(filepath.Join(root, Name(step))) == nil {
			kept[step] = true
			complete++
		}
	}
	if complete == 0 {
		return nil, nil
	}
	for _, step := range steps {
		if kept[step] || hasBest && step == best.Step || keepEvery > 0 && step%keepEvery == 0 {
			continue
		}
		dir := filepath.Join(root, Name(step))
		if err := remove(root, dir); err != nil {
			return deleted, fmt.Errorf("checkpoint: prune: %w", err)
		}
		deleted = append(deleted, dir)
	}
	return deleted, nil
}

// quickCheck is Verify without reading the files.
func quickCheck(dir string) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	return m.checkSizes(dir)
}

// remove takes a checkpoint's name away before its files, so that a kill in between leaves no damaged checkpoint.
func remove(root, dir string) error {
	tmp, err := os.MkdirTemp(root, tmpPrefix+"delete-")
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(tmp, filepath.Base(dir))); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.RemoveAll(tmp)
}
