package nanoagentrl

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// lockRunDir makes the run folder and keeps other runs out of it until the lock is released. The system releases the
// lock of a process that was killed.
func lockRunDir(dir string) (*flock.Flock, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("run_dir: %s is a file; name a folder", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run_dir %s: %w; name a folder that can be written to", dir, err)
	}
	lock := flock.New(filepath.Join(dir, ".lock"))
	switch held, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("run_dir: locking %s: %w", dir, err)
	case !held:
		return nil, fmt.Errorf("run_dir: another run is training in %s; wait for it, or name another folder", dir)
	}
	return lock, nil
}
