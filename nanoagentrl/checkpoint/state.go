package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// StateName is the file of a checkpoint that holds the RunState.
const StateName = "run_state.json"

const stateFormat = 1

// Cursor is a place in the stream of training questions.
type Cursor struct {
	// Epoch counts the passes over the questions that are over; Position counts the questions drawn since.
	Epoch    int `json:"epoch"`
	Position int `json:"position"`
	// Size is the number of questions, by which other data is noticed; 0 means unknown.
	Size int `json:"size"`
}

// RunState is what a run must remember beside weights and optimiser moments so that it goes on as if it had never been
// interrupted. There is no state of a random generator: every draw depends on Seed, the step and its place in the step.
type RunState struct {
	// Format is set by WriteState.
	Format int `json:"format"`
	// Step counts the training steps done, OptimizerStep the weight updates (Adam's t); steps without a trainable group
	// count only in Step.
	Step          int `json:"step"`
	OptimizerStep int `json:"optimizer_step"`
	// CriticStep counts the weight updates of a critic, if there is one.
	CriticStep int `json:"critic_step,omitempty"`
	// Cursor is where the next step draws its questions.
	Cursor Cursor `json:"cursor"`
	// Seed is the run's seed.
	Seed uint64 `json:"seed"`
	// ConfigHash and Config are the config's Hash and Fingerprint.
	ConfigHash string            `json:"config_hash"`
	Config     map[string]string `json:"config"`
	// Reference identifies the weights of the frozen reference, such as their SHA-256; empty if there is none.
	Reference string `json:"reference"`
	// Best is the best evaluation so far, that of this step included; nil if there was none. A kill between Save and
	// SetBest leaves BestName one behind; a run that resumes sets it again from here.
	Best *BestCheckpoint `json:"best"`
}

// WriteState writes the state into a checkpoint's folder, normally the one that Save gives to its callback.
func WriteState(dir string, state RunState) error {
	state.Format = stateFormat
	if err := state.check(); err != nil {
		return fmt.Errorf("checkpoint: write %s: %w", StateName, err)
	}
	return writeJSON(filepath.Join(dir, StateName), state)
}

// ReadState reads the state of a checkpoint. Unknown fields, another format version and impossible values are errors.
func ReadState(dir string) (RunState, error) {
	path := filepath.Join(dir, StateName)
	var state RunState
	if err := readJSON(path, &state); err != nil {
		return RunState{}, err
	}
	if err := state.check(); err != nil {
		return RunState{}, fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	return state, nil
}

func (s *RunState) check() error {
	switch {
	case s.Format != stateFormat:
		return fmt.Errorf("format %d, this program reads %d", s.Format, stateFormat)
	case s.Step < 0 || s.OptimizerStep < 0 || s.CriticStep < 0 || s.Cursor.Epoch < 0 || s.Cursor.Position < 0 || s.Cursor.Size < 0:
		return fmt.Errorf("negative counter: step %d, optimizer_step %d, epoch %d, position %d",
			s.Step, s.OptimizerStep, s.Cursor.Epoch, s.Cursor.Position)
	case s.ConfigHash == "":
		return errors.New("config_hash is missing")
	}
	return nil
}

// CheckResume returns an error if a run with config c, and with the given reference, must not go on from this state. It
// lists the settings that differ.
func (s *RunState) CheckResume(c *config.Config, reference string) error {
	if s.ConfigHash != c.Hash() {
		changes := config.Changed(s.Config, c.Fingerprint())
		if len(changes) == 0 {
			changes = []string{"(the recorded settings do not match their own hash)"}
		}
		return fmt.Errorf("checkpoint: step %d was made with other settings, so the run cannot go on from it:\n  %s\n"+
			"restore them, or start a new run with another run_dir", s.Step, strings.Join(changes, "\n  "))
	}
	if s.Reference != reference {
		return fmt.Errorf("checkpoint: step %d was made with reference model %q, now it is %q; restore it, or start a "+
			"new run with another run_dir", s.Step, s.Reference, reference)
	}
	return nil
}
