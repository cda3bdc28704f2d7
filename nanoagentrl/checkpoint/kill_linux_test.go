package checkpoint

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain lets a test start this binary again as a process that saves a checkpoint and comes to harm.
func TestMain(m *testing.M) {
	root := os.Getenv("CHECKPOINT_TEST_ROOT")
	switch os.Getenv("CHECKPOINT_TEST_CHILD") {
	case "":
		os.Exit(m.Run())
	case "full":
		saveOnAFullDisk(root)
	case "kill":
		saveAndKill(root)
	}
}

// saveOnAFullDisk saves a checkpoint that is larger than a file may be.
func saveOnAFullDisk(root string) {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 1000, Max: 1000}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	_, err := Save(root, 2, writeFiles(200000))
	fmt.Println(err)
}

// saveAndKill dies in the middle of a save.
func saveAndKill(root string) {
	_, err := Save(root, 2, func(dir string) error {
		if err := writeFiles(2)(dir); err != nil {
			return err
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
	fmt.Println(err)
}

func child(t *testing.T, kind, root string) (output string, err error) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "CHECKPOINT_TEST_CHILD="+kind, "CHECKPOINT_TEST_ROOT="+root)
	text, err := command.CombinedOutput()
	return string(text), err
}

func TestFullDiskLeavesTheOldCheckpointAndNamesThePath(t *testing.T) {
	root := save(t, 1)
	output, err := child(t, "full", root)
	require.NoError(t, err, output)
	assert.Contains(t, output, "model.safetensors: file too large")
	assert.Contains(t, output, "save step 2 in "+root)
	assert.Equal(t, []string{Name(1)}, names(t, root))
	assert.Equal(t, Found{Dir: filepath.Join(root, Name(1)), Step: 1}, latest(t, root))
}

func TestKillInMidSaveLeavesTheOldCheckpoint(t *testing.T) {
	root := save(t, 1)
	output, err := child(t, "kill", root)
	require.ErrorContains(t, err, "killed", output)
	left := names(t, root)
	require.Len(t, left, 2)
	assert.True(t, strings.HasPrefix(left[0], ".tmp-step-000002-"))
	assert.Equal(t, Found{Dir: filepath.Join(root, Name(1)), Step: 1}, latest(t, root))

	cleaned, err := Clean(root)
	require.NoError(t, err)
	assert.Equal(t, left[:1], cleaned)
	_, err = Save(root, 2, writeFiles(2))
	require.NoError(t, err)
	assert.Equal(t, 2, latest(t, root).Step)
}
