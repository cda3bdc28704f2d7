package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// files is what the tests put into a checkpoint.
func files(step int) map[string]string {
	return map[string]string{
		"model/model.safetensors": strings.Repeat(fmt.Sprintf("weights %d ", step), 100),
		"model/config.json":       `{"layers": 2}`,
		"optimizer.safetensors":   fmt.Sprintf("moments %d", step),
		"empty.txt":               "",
	}
}

func writeFiles(step int) func(dir string) error {
	return func(dir string) error {
		for name, text := range files(step) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// save saves complete checkpoints and returns their root.
func save(t *testing.T, steps ...int) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, step := range steps {
		dir, err := Save(root, step, writeFiles(step))
		require.NoError(t, err)
		require.Equal(t, filepath.Join(root, Name(step)), dir)
	}
	return root
}

// names lists what is in a folder.
func names(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	result := []string{}
	for _, entry := range entries {
		result = append(result, entry.Name())
	}
	return result
}

func latest(t *testing.T, root string) Found {
	t.Helper()
	found, err := Latest(root)
	require.NoError(t, err)
	return found
}

func TestSavedCheckpointIsTheLatest(t *testing.T) {
	root := save(t, 5, 10, 100, 20)
	assert.Equal(t, Found{Dir: filepath.Join(root, "step-000100"), Step: 100}, latest(t, root))
	for name, text := range files(100) {
		got, err := os.ReadFile(filepath.Join(root, "step-000100", name))
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	assert.Equal(t, []string{"step-000005", "step-000010", "step-000020", "step-000100"}, names(t, root))
}

func TestStepsAreComparedAsNumbers(t *testing.T) {
	root := save(t, 999999, 1000000)
	assert.Equal(t, 1000000, latest(t, root).Step)
}

func TestNoCheckpointIsNoError(t *testing.T) {
	assert.Equal(t, Found{}, latest(t, filepath.Join(t.TempDir(), "missing")))
	assert.Equal(t, Found{}, latest(t, t.TempDir()))
}

func TestOtherFilesInRootAreIgnored(t *testing.T) {
	root := save(t, 3)
	for _, name := range []string{"step-9", "step-0000009", "step-x", "step-000009.bak", "metrics"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "step-000008"), nil, 0o644))
	assert.Equal(t, Found{Dir: filepath.Join(root, "step-000003"), Step: 3}, latest(t, root))
}

func TestEachFileTruncatedInTurnIsPassedOverAndSaidSo(t *testing.T) {
	all := []string{ManifestName}
	for name := range files(2) {
		all = append(all, name)
	}
	for _, name := range all {
		root := save(t, 1, 2)
		path := filepath.Join(root, "step-000002", name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		if info.Size() == 0 {
			continue // nothing to cut
		}
		for _, size := range []int64{0, info.Size() / 2, info.Size() - 2} {
			require.NoError(t, os.Truncate(path, size))
			found := latest(t, root)
			assert.Equal(t, 1, found.Step, "%s cut to %d", name, size)
			require.Len(t, found.PassedOver, 1)
			assert.Equal(t, filepath.Join(root, "step-000002"), found.PassedOver[0].Dir)
			assert.ErrorContains(t, found.PassedOver[0].Err, path)
		}
	}
}

func TestMissingChangedOrMovedFilesArePassedOver(t *testing.T) {
	weights := "model/model.safetensors"
	for message, damage := range map[string]func(dir string) error{
		"no such file":            func(dir string) error { return os.Remove(filepath.Join(dir, weights)) },
		"MANIFEST.json: no such":  func(dir string) error { return os.Remove(filepath.Join(dir, ManifestName)) },
		"the content has changed": func(dir string) error { return flip(filepath.Join(dir, weights)) },
		"it was cut or changed":   func(dir string) error { return appendTo(filepath.Join(dir, weights), "x") },
		"data after the end":      func(dir string) error { return appendTo(filepath.Join(dir, ManifestName), "{}") },
		"want 0":                  func(dir string) error { return appendTo(filepath.Join(dir, "empty.txt"), "x") },
		"the folder was renamed":  func(dir string) error { return os.Rename(dir, filepath.Join(dir, "../step-000003")) },
		"format 9":                func(dir string) error { return edit(dir, `"format": 1`, `"format": 9`) },
		"unknown field":           func(dir string) error { return edit(dir, `"step"`, `"stop"`) },
		"lies outside":            func(dir string) error { return edit(dir, `"empty.txt"`, `"../../../etc/passwd"`) },
	} {
		root := save(t, 1, 2)
		require.NoError(t, damage(filepath.Join(root, "step-000002")))
		found := latest(t, root)
		assert.Equal(t, 1, found.Step, message)
		if assert.Len(t, found.PassedOver, 1, message) {
			assert.ErrorContains(t, found.PassedOver[0].Err, message)
		}
	}
}

func flip(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text[len(text)/2] ^= 1
	return os.WriteFile(path, text, 0o644)
}

func appendTo(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(old, text...), 0o644)
}

func edit(dir, from, to string) error {
	path := filepath.Join(dir, ManifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), from) {
		return fmt.Errorf("no %s in %s", from, text)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644)
}

func TestAllDamagedGivesNoneAndNamesEach(t *testing.T) {
	root := save(t, 1, 2)
	require.NoError(t, os.Remove(filepath.Join(root, "step-000001", ManifestName)))
	require.NoError(t, os.Remove(filepath.Join(root, "step-000002", ManifestName)))
	found := latest(t, root)
	assert.Empty(t, found.Dir)
	require.Len(t, found.PassedOver, 2)
	assert.Contains(t, found.PassedOver[0].Dir, "step-000002", "newest first")
}

func TestFailedSaveLeavesTheOldOnesAndNothingElse(t *testing.T) {
	cause := errors.New("no space left on device")
	for name, write := range map[string]func(dir string) error{
		"at once": func(string) error { return cause },
		"half-way": func(dir string) error {
			if err := writeFiles(2)(dir); err != nil {
				return err
			}
			return &os.PathError{Op: "write", Path: filepath.Join(dir, "optimizer.safetensors"), Err: cause}
		},
	} {
		root := save(t, 1)
		_, err := Save(root, 2, write)
		require.ErrorIs(t, err, cause, name)
		assert.ErrorContains(t, err, "step 2 in "+root)
		if name == "half-way" {
			assert.ErrorContains(t, err, "optimizer.safetensors")
		}
		assert.Equal(t, []string{"step-000001"}, names(t, root), name)
		assert.Equal(t, 1, latest(t, root).Step)
	}
}

func TestFailedReplacementLeavesTheOldOneOfTheSameStep(t *testing.T) {
	root := save(t, 1)
	_, err := Save(root, 1, func(string) error { return errors.New("no") })
	require.Error(t, err)
	assert.Equal(t, Found{Dir: filepath.Join(root, Name(1)), Step: 1}, latest(t, root))
}

func TestSaveRefuses(t *testing.T) {
	for message, write := range map[string]func(dir string) error{
		"no file was written":   func(string) error { return nil },
		"not a regular file":    func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "link")) },
		"this name is reserved": func(dir string) error { return os.WriteFile(filepath.Join(dir, ManifestName), nil, 0o644) },
	} {
		root := t.TempDir()
		_, err := Save(root, 1, write)
		require.ErrorContains(t, err, message)
		assert.Empty(t, names(t, root))
	}
	_, err := Save(t.TempDir(), -1, writeFiles(1))
	require.ErrorContains(t, err, "step is -1")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err = Save(file, 1, writeFiles(1))
	require.ErrorContains(t, err, file)
}

func TestSavingAStepAgainReplacesIt(t *testing.T) {
	root := save(t, 1, 2)
	require.NoError(t, os.Truncate(filepath.Join(root, Name(2), "optimizer.safetensors"), 1))
	_, err := Save(root, 2, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "new"), []byte("new"), 0o644)
	})
	require.NoError(t, err)
	assert.Equal(t, Found{Dir: filepath.Join(root, Name(2)), Step: 2}, latest(t, root))
	assert.Equal(t, []string{ManifestName, "new"}, names(t, filepath.Join(root, Name(2))))
	assert.Equal(t, []string{Name(1), Name(2)}, names(t, root))
}

func TestCleanRemovesLeftoversOfAKill(t *testing.T) {
	root := save(t, 1)
	require.NoError(t, writeFiles(2)(filepath.Join(root, ".tmp-step-000002-123")))
	require.NoError(t, os.WriteFile(filepath.Join(root, ".tmp-best.json"), []byte("{"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(root, "notes"), 0o755))
	cleaned, err := Clean(root)
	require.NoError(t, err)
	assert.Equal(t, []string{".tmp-best.json", ".tmp-step-000002-123"}, cleaned)
	assert.Equal(t, []string{"notes", "step-000001"}, names(t, root))

	cleaned, err = Clean(filepath.Join(root, "missing"))
	require.NoError(t, err)
	assert.Empty(t, cleaned)
}

func TestCleanPutsBackACheckpointWhoseReplacementNeverArrived(t *testing.T) {
	root := save(t, 1, 2)
	require.NoError(t, os.Rename(filepath.Join(root, Name(2)), filepath.Join(root, ".old-"+Name(2))))
	assert.Equal(t, 1, latest(t, root).Step)
	_, err := Clean(root)
	require.NoError(t, err)
	assert.Equal(t, 2, latest(t, root).Step)

	// The replacement did arrive: the old one goes.
	require.NoError(t, writeFiles(9)(filepath.Join(root, ".old-"+Name(2))))
	_, err = Clean(root)
	require.NoError(t, err)
	assert.Equal(t, []string{Name(1), Name(2)}, names(t, root))
	assert.Empty(t, latest(t, root).PassedOver)
}
