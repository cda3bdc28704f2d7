// Package atomicfile writes small files that are whole or not there at all.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Sync makes sure that what was written to a file is on the disk.
func Sync(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// Write writes data to a temporary file beside path and renames it when it is complete. On an error, which names path,
// what was there before is left as it was.
func Write(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the error that counts is the first
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
