package checkpoint

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPruneKeepsLastEveryAndBest(t *testing.T) {
	for _, test := range []struct {
		last, every, best int
		kept              []int
	}{
		{1, 0, -1, []int{6}},
		{0, 0, -1, []int{6}},
		{2, 0, -1, []int{5, 6}},
		{2, 0, 1, []int{1, 5, 6}},
		{1, 2, 3, []int{2, 3, 4, 6}},
		{1, 0, 6, []int{6}},
		{100, 0, -1, []int{1, 2, 3, 4, 5, 6}},
	} {
		root := save(t, 1, 2, 3, 4, 5, 6)
		if test.best >= 0 {
			require.NoError(t, SetBest(root, test.best, "eval/em", 0.5))
		}
		deleted, err := Prune(root, test.last, test.every)
		require.NoError(t, err)
		steps, err := list(root)
		require.NoError(t, err)
		assert.Equal(t, test.kept, steps)
		assert.Len(t, deleted, 6-len(test.kept))
		entries := len(test.kept)
		if test.best >= 0 {
			entries++
		}
		assert.Len(t, names(t, root), entries, "nothing temporary stays")
	}
}

func TestPruneDoesNotCountDamagedCheckpointsAsTheLast(t *testing.T) {
	root := save(t, 1, 2, 3)
	require.NoError(t, os.Truncate(filepath.Join(root, Name(3), "optimizer.safetensors"), 1))
	deleted, err := Prune(root, 1, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(root, Name(1)), filepath.Join(root, Name(3))}, deleted)
	assert.Equal(t, 2, latest(t, root).Step)
}

func TestPruneDeletesNothingWhenNoCheckpointIsComplete(t *testing.T) {
	root := save(t, 1, 2)
	for _, step := range []int{1, 2} {
		require.NoError(t, os.Remove(filepath.Join(root, Name(step), "optimizer.safetensors")))
	}
	deleted, err := Prune(root, 1, 0)
	require.NoError(t, err)
	assert.Empty(t, deleted)
}

func TestPruneDeletesNothingWhenTheBestIsUnreadable(t *testing.T) {
	root := save(t, 1, 2, 3)
	require.NoError(t, os.WriteFile(filepath.Join(root, BestName), []byte(`{"format": 1, "st`), 0o644))
	_, err := Prune(root, 1, 0)
	require.ErrorContains(t, err, BestName)
	assert.Len(t, names(t, root), 4)
}

func TestPruneOfAMissingRoot(t *testing.T) {
	deleted, err := Prune(filepath.Join(t.TempDir(), "missing"), 1, 0)
	require.NoError(t, err)
	assert.Empty(t, deleted)
}

func TestBestPointer(t *testing.T) {
	root := save(t, 1, 2)
	_, _, ok, err := Best(root)
	require.NoError(t, err)
	assert.False(t, ok)

	require.NoError(t, SetBest(root, 1, "eval/em", 0.25))
	require.NoError(t, SetBest(root, 2, "eval/em", 0.5))
	best, dir, ok, err := Best(root)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, BestCheckpoint{1, 2, "eval/em", 0.5}, best)
	assert.Equal(t, filepath.Join(root, Name(2)), dir)
	assert.Len(t, names(t, root), 3, "no temporary file stays")

	require.ErrorContains(t, SetBest(root, 3, "eval/em", 0.9), "best step 3 is not saved")
	require.ErrorContains(t, SetBest(root, 1, "eval/em", math.NaN()), "NaN")
	best, _, _, err = Best(root)
	require.NoError(t, err)
	assert.Equal(t, 2, best.Step, "a failed SetBest changes nothing")

	require.NoError(t, os.WriteFile(filepath.Join(root, BestName),
		[]byte(`{"format": 2, "step": 1, "metric": "m", "value": 1}`), 0o644))
	_, _, _, err = Best(root)
	require.ErrorContains(t, err, "format 2")
}
