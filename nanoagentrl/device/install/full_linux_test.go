package install

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A limit on the size of files fails a write in the middle, as a full disk does.
func TestFullDiskLeavesTheOldPlugin(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, plainName), library("old"), 0o644))
	o := options(folder, nil)
	o.Force = true
	o.Wheel, o.pin = fakeWheel(t, library(string(make([]byte, 1<<20))))

	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	small := limit
	small.Cur = 100_000
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small))
	_, _, err := CPU(context.Background(), o)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))

	require.ErrorIs(t, err, syscall.EFBIG)
	assert.ErrorContains(t, err, "1 MB are needed")
	assert.Equal(t, []string{plainName}, visible(t, folder))
	assert.Equal(t, string(library("old")), read(t, folder, plainName))
}
