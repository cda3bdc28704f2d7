package hubcache

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPanicOfTheLibraryBecomesAnError(t *testing.T) {
	err := Guarded(t.Context(), func() error { panic("no repo") })
	require.ErrorContains(t, err, "go-huggingface: no repo")
}

func TestCallThatHangsEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hang := make(chan struct{})
	defer close(hang)
	require.ErrorIs(t, Guarded(ctx, func() error { <-hang; return nil }), context.Canceled)
}

func TestDiscardRemovesTheLinkAndItsTarget(t *testing.T) {
	dir := t.TempDir()
	blob, link := filepath.Join(dir, "blob"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(blob, []byte("half"), 0o644))
	require.NoError(t, os.Symlink(blob, link))
	require.NoError(t, Discard(link))
	assert.NoFileExists(t, blob)
	assert.NoFileExists(t, link)
	require.Error(t, Discard(link))
}
