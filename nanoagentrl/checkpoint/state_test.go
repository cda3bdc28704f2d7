package checkpoint

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

func state(c *config.Config) RunState {
	return RunState{
		Step: 7, OptimizerStep: 13, Cursor: Cursor{Epoch: 1, Position: 5}, Seed: math.MaxUint64,
		ConfigHash: c.Hash(), Config: c.Fingerprint(), Reference: "sha256:abc",
		Best: &BestCheckpoint{Format: 1, Step: 6, Metric: "eval/em", Value: 0.3},
	}
}

func TestStateRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := state(config.Default())
	require.NoError(t, WriteState(dir, want))
	got, err := ReadState(dir)
	require.NoError(t, err)
	want.Format = 1
	assert.Equal(t, want, got)
}

func TestStateIsReadStrictly(t *testing.T) {
	for message, change := range map[string][2]string{
		"format 2, this program reads 1": {`"format": 1`, `"format": 2`},
		`unknown field "stepp"`:          {`"step"`, `"stepp"`},
		"negative counter":               {`"step": 7`, `"step": -7`},
		"cannot unmarshal":               {`"step": 7`, `"step": "7"`},
		"config_hash is missing":         {`"config_hash": "` + config.Default().Hash() + `"`, `"config_hash": ""`},
		"unexpected EOF":                 {"\n}\n", ""},
		"data after the end":             {"\n}\n", "\n}\n}"},
	} {
		dir := t.TempDir()
		require.NoError(t, WriteState(dir, state(config.Default())))
		path := filepath.Join(dir, StateName)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), change[0])
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), change[0], change[1], 1)), 0o644))
		_, err = ReadState(dir)
		require.Error(t, err, message)
		assert.ErrorContains(t, err, message)
		assert.ErrorContains(t, err, path)
	}
	_, err := ReadState(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWriteStateRefusesAnImpossibleState(t *testing.T) {
	s := state(config.Default())
	s.Step = -1
	require.ErrorContains(t, WriteState(t.TempDir(), s), "negative counter")
}

func TestResumeWithAnotherConfigOrReferenceIsRefused(t *testing.T) {
	c := config.Default()
	s := state(c)
	require.NoError(t, s.CheckResume(c, "sha256:abc"))

	c.EvalEvery, c.KeepLast, c.Steps = 1, 9, 1000
	require.NoError(t, s.CheckResume(c, "sha256:abc"), "keys that do not change the result are free")

	c.LR, c.GroupSize = 1e-3, 4
	err := s.CheckResume(c, "sha256:abc")
	require.Error(t, err)
	assert.ErrorContains(t, err, "step 7")
	assert.ErrorContains(t, err, "  group_size: 8 -> 4\n  lr: 1e-06 -> 0.001\n")
	assert.NotContains(t, err.Error(), "eval_every")

	require.ErrorContains(t, s.CheckResume(config.Default(), "sha256:def"),
		`reference model "sha256:abc", now it is "sha256:def"`)

	s.ConfigHash = "0"
	require.ErrorContains(t, s.CheckResume(config.Default(), "sha256:abc"), "do not match their own hash")
}
