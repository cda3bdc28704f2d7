package indexfile

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// Lock makes the folder of an index and keeps other processes from building there until unlock is called, which removes
// a folder in which nothing was built.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, ".lock"))
	if free, err := lock.TryLock(); err != nil {
		return nil, fmt.Errorf("%s: %w", lock.Path(), err)
	} else if !free {
		return nil, fmt.Errorf("%s: another process is building an index there", dir)
	}
	return func() {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 1 {
			_ = os.RemoveAll(dir) // it holds the lock file alone
		}
		_ = lock.Unlock()
	}, nil
}
