package warmstart

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recipe.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

const validRecipe = `
task: facts
stages:
  - {name: a, passages: 2, facts: 1, questions: 2, batch: 4, tokens: 100, lr_from: 0.001, copy: 0.5, habits: mixed}
`

func TestCommittedRecipesAreValid(t *testing.T) {
	for _, name := range []string{"warmstart_facts.yaml", "warmstart_sums.yaml"} {
		r, changes, err := Open(filepath.Join("..", "..", "configs", name), []string{"seed=7"})
		require.NoError(t, err)
		assert.Equal(t, []string{"seed: 1 -> 7"}, changes)
		assert.Equal(t, uint64(7), r.Seed)
		text, err := r.YAML()
		require.NoError(t, err)
		again, _, err := Open(write(t, string(text)), nil)
		require.NoError(t, err)
		assert.Equal(t, r, again, "the saved recipe is the same one")
	}
}

func TestRecipeFaultsNameTheKey(t *testing.T) {
	for override, want := range map[string]string{
		"task=chess":              `task: got "chess", want one of facts, sums`,
		"save_dtype=f8":           `save_dtype: got "f8"`,
		"model.hidden=100":        "model.hidden: 100 is not a multiple of 2 x heads (8)",
		"model.head_dim=33":       "model.head_dim: 33 is odd",
		"model.kv_heads=3":        "model.kv_heads: 3 does not divide heads (4)",
		"model.previous_heads=5":  "model.previous_heads: 5 of 4 heads",
		"one_hop.right=0.5":       "one_hop: the shares add up to 1.23, want 1",
		"two_hop.right=0":         "two_hop: the shares add up to 0.85, want 1",
		"sum.slip=0":              "sum: the shares add up to 0.8, want 1",
		"world.people=4000":       "world: world: 4000 people in the train split",
		"stages.1.tokens=0":       "stages.1.tokens: got 0, want at least 1",
		"stages.1.lr_from=0":      "stages.1.lr_from: got 0, want more than 0",
		"stages.1.copy=2":         "stages.1.copy: got 2, want at most 1",
		"stages.1.name=":          "stages.1.name: is empty",
		"stages.1.habits=":        `stages.1.habits: got "", want good or mixed`,
		"stages.1.questions=0":    "stages.1.questions: got 0, want at least 1 for copy sequences",
		"task=sums":               "stages.1.copy: there is nothing to copy in sums",
		"stages.1.lerning_rate=1": `unknown key "lerning_rate"`,
		"stages.2.tokens=1":       `got "2", want the number of one of 1 elements`,
	} {
		_, _, err := Open(write(t, validRecipe), []string{override})
		assert.ErrorContains(t, err, want, override)
	}
	_, _, err := Open(write(t, validRecipe), []string{"stages.1.passages=1", "stages.1.copy_two_hop=0.5"})
	assert.ErrorContains(t, err, "stages.1.copy_two_hop: two hops need 2 passages")
	_, _, err = Open(write(t, "task: facts\n"), nil)
	assert.ErrorContains(t, err, "stages: there are none")
	_, _, err = Open(write(t, "task: sums\nstages: [{name: a, batch: 1, tokens: 1, lr_from: 1, habits: good}]"), nil)
	assert.ErrorContains(t, err, "stages.1.steps: got 0, want at least 1")
	_, _, err = Open(filepath.Join(t.TempDir(), "none.yaml"), nil)
	assert.ErrorContains(t, err, "none.yaml")
	_, _, err = Open(write(t, validRecipe), nil)
	assert.NoError(t, err)
}
