// Package checkpoint keeps the checkpoints of a run: folders that are either complete or not there.
//
// A checkpoint is written into a temporary folder, described by a manifest with the size and SHA-256 of every file,
// flushed to the disk and then renamed to root/step-000123. A kill or a full disk at any moment leaves the older
// checkpoints as they were, and at most a temporary folder, which Clean removes. Latest trusts nothing: it reads the
// newest checkpoint through and takes the one before if anything is missing, cut or changed.
//
// SHA-256 was chosen over a quicker checksum because the standard library has it and processors have instructions for
// it: about a second for 2 GB, which is less than the time to write them.
//
// What is in a checkpoint is the caller's business. It leaves out locking: one process at a time may write to root.
package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	stepPrefix = "step-"
	// tmpPrefix marks folders that are being written or deleted, oldPrefix a checkpoint that makes way for a new one
	// of the same step.
	tmpPrefix = ".tmp-"
	oldPrefix = ".old-"
)

// Name returns the folder name of a step's checkpoint.
func Name(step int) string { return fmt.Sprintf("%s%06d", stepPrefix, step) }

// stepOf returns the step of a folder name made by Name.
func stepOf(name string) (step int, ok bool) {
	digits, found := strings.CutPrefix(name, stepPrefix)
	step, err := strconv.Atoi(digits)
	return step, found && err == nil && step >= 0 && Name(step) == name
}

// Save writes the checkpoint of a step and returns its folder. write puts the files, in subfolders if it likes, into
// the folder it is given. A checkpoint of the same step is replaced. On any error, of write or of the disk, nothing
// but the older checkpoints remains.
func Save(root string, step int, write func(dir string) error) (dir string, err error) {
	if step < 0 {
		return "", fmt.Errorf("checkpoint: step is %d, must be at least 0", step)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	tmp, err := os.MkdirTemp(root, tmpPrefix+Name(step)+"-")
	if err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("checkpoint: save step %d in %s: %w", step, root, err)
			if left := os.RemoveAll(tmp); left != nil {
				err = errors.Join(err, left)
			}
		}
	}()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := write(tmp); err != nil {
		return "", err
	}
	if err := writeManifest(tmp, step); err != nil {
		return "", err
	}
	dir = filepath.Join(root, Name(step))
	if err := replace(root, tmp, dir); err != nil {
		return "", err
	}
	return dir, nil
}

// replace renames tmp to dir. What was dir waits under another name meanwhile, where Clean finds it again after a kill.
func replace(root, tmp, dir string) error {
	old := filepath.Join(root, oldPrefix+filepath.Base(dir))
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	existed := true
	if err := os.Rename(dir, old); errors.Is(err, os.ErrNotExist) {
		existed = false
	} else if err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if existed {
			err = errors.Join(err, os.Rename(old, dir))
		}
		return err
	}
	if err := syncDir(root); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// Clean removes what a killed process left behind and returns the names of what it removed or put back. Call it once
// when a run starts, before Latest.
func Clean(root string) (cleaned []string, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: clean: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(root, name)
		base, replaced := strings.CutPrefix(name, oldPrefix)
		_, isStep := stepOf(base)
		switch {
		case replaced && isStep:
			err = putBack(path, filepath.Join(root, base))
		case strings.HasPrefix(name, tmpPrefix):
			err = os.RemoveAll(path)
		default:
			continue
		}
		if err != nil {
			return cleaned, fmt.Errorf("checkpoint: clean: %w", err)
		}
		cleaned = append(cleaned, name)
	}
	return cleaned, nil
}

// putBack gives a checkpoint its name again if the new one that it made way for did not arrive, and removes it
// otherwise.
func putBack(old, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return os.Rename(old, dir)
	} else if err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// PassedOver is a checkpoint that cannot be used, and why.
type PassedOver struct {
	Dir string
	Err error
}

// Found is the outcome of Latest.
type Found struct {
	// Dir is the folder of the newest complete checkpoint and Step its step; Dir is "" if there is none.
	Dir  string
	Step int
	// PassedOver are the newer folders that are damaged, newest first. The user must be told of them.
	PassedOver []PassedOver
}

// Latest returns the newest complete checkpoint, having read all its files. No root, or none in it, is no error.
func Latest(root string) (Found, error) {
	steps, err := list(root)
	if err != nil {
		return Found{}, err
	}
	var found Found
	for i := len(steps) - 1; i >= 0; i-- {
		dir := filepath.Join(root, Name(steps[i]))
		if err := Verify(dir); err != nil {
			found.PassedOver = append(found.PassedOver, PassedOver{dir, err})
			continue
		}
		found.Dir, found.Step = dir, steps[i]
		return found, nil
	}
	return found, nil
}

// list returns the steps of the checkpoint folders in root, complete or not, in ascending order.
func list(root string) ([]int, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var steps []int
	for _, entry := range entries {
		if step, ok := stepOf(entry.Name()); ok && entry.IsDir() {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps, nil
}
