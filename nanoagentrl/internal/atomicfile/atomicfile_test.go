package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteReplacesAFileAndLeavesNothingBeside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	require.NoError(t, Write(path, []byte("one")))
	require.NoError(t, Write(path, []byte("two")))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "two", string(text))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestWriteThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o755)) // a file cannot replace a folder
	require.ErrorContains(t, Write(path, []byte("x")), "writing "+path)
	require.ErrorContains(t, Write(filepath.Join(dir, "none", "b"), nil), "none")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
