// Package testenv finds the folders that tests need but the repository does not hold, and skips a test with a reason
// when they are missing.
package testenv

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Root returns the folder of go.mod.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Shared returns the path of a file or folder of the shared test data: below $NANOAGENTRL_SHARED, or ../shared beside
// the repository.
func Shared(t testing.TB, elem ...string) string {
	t.Helper()
	dir := os.Getenv("NANOAGENTRL_SHARED")
	if dir == "" {
		dir = filepath.Join(Root(), "..", "shared")
	}
	return need(t, filepath.Join(append([]string{dir}, elem...)...), "NANOAGENTRL_SHARED")
}

// Model returns the path of a model file or folder below $NANOAGENTRL_MODELS, or the user's cache folder.
func Model(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("NANOAGENTRL_MODELS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("no cache folder for models (%v); set NANOAGENTRL_MODELS", err)
		}
		dir = filepath.Join(cache, "nanoagentrl", "models")
	}
	return need(t, filepath.Join(dir, name), "NANOAGENTRL_MODELS")
}

func need(t testing.TB, path, variable string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: %s is not there; point %s at the folder that holds it", path, variable)
	}
	return path
}
