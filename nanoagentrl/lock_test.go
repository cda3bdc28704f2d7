package nanoagentrl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTwoRunsInOneFolderAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, err := lockRunDir(dir)
	require.NoError(t, err)
	_, err = lockRunDir(dir)
	require.ErrorContains(t, err, "another run is training in "+dir)
	require.NoError(t, first.Unlock())
	again, err := lockRunDir(dir)
	require.NoError(t, err)
	assert.NoError(t, again.Unlock())
}

func TestRunFolderThatIsAFileIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := lockRunDir(file)
	require.ErrorContains(t, err, file+" is a file; name a folder")
}
