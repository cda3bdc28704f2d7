package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

func TestEveryAlgorithmHasAPresetAndValidates(t *testing.T) {
	want := strings.Fields("dapo dr_grpo gspo grpo ppo reinforce_pp reinforce_pp_baseline rloo")
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(algorithms)))
	for _, name := range want {
		c := open(t, valid+"algorithm: "+name+"\n")
		assert.Equal(t, name, c.Algorithm)
		assert.Empty(t, c.Deviations(), name)
		for key, value := range algorithms[name] {
			again := *c
			change, err := again.Set(key, value)
			require.NoError(t, err)
			assert.Empty(t, change, "%s brings %s", name, key)
		}
	}
	assert.Equal(t, open(t, valid), open(t, valid+"algorithm: grpo\n"), "the default")
}

// Both ways to choose an algorithm, and a key set in each of the two places before or after it: the user's value stays.
func TestAlgorithmNeverOverridesWhatTheUserSet(t *testing.T) {
	for _, test := range []struct {
		file      string
		overrides []string
		high      float64
	}{
		{"algorithm: dapo\n", nil, 0.28},
		{"algorithm: dapo\nclip_high: 0.3\n", nil, 0.3},
		{"clip_high: 0.3\nalgorithm: dapo\n", nil, 0.3},
		{"clip_high: 0.2\nalgorithm: dapo\n", nil, 0.2}, // the value that is the default of all others
		{"clip_high: 0.2\n", []string{"algorithm=dapo"}, 0.2},
		{"", []string{"algorithm=dapo"}, 0.28},
		{"", []string{"clip_high=0.2", "algorithm=dapo"}, 0.2},
		{"", []string{"algorithm=dapo", "clip_high=0.2"}, 0.2},
		{"algorithm: gspo\n", []string{"algorithm=dapo"}, 0.28},
		{"algorithm: dapo\n", []string{"algorithm=grpo"}, 0.2},
		{"algorithm: dapo\nclip_high: 0.28\n", []string{"algorithm=grpo"}, 0.28},
		{"algorithm: gspo\nclip_high: 4.0e-4\n", []string{"algorithm=dapo"}, 4e-4},
		{"", []string{"algorithm=gspo", "algorithm=dapo"}, 0.28},
	} {
		c := open(t, valid+test.file, test.overrides...)
		assert.Equal(t, test.high, c.ClipHigh, "%q %v", test.file, test.overrides)
	}
}

func TestSavedConfigOfAnAlgorithmGivesTheSameRun(t *testing.T) {
	c := open(t, valid, "algorithm=dapo", "clip_low=0.1")
	text, err := c.YAML()
	require.NoError(t, err)
	again := open(t, string(text))
	assert.Equal(t, c, again)
}

// Without a file in sight, SetAll on the defaults does what Open does.
func TestSetAllOnDefaultsTakesTheAlgorithmFirst(t *testing.T) {
	c := Default()
	changes, err := c.SetAll([]string{"clip_high=0.2", "gamma=0.5", "algorithm=dapo"})
	require.NoError(t, err)
	assert.Equal(t, 3, c.DynamicSampling)
	assert.Contains(t, changes, "algorithm: grpo -> dapo")
	assert.Equal(t, 0.2, c.ClipHigh)
	_, err = c.Set("algorithm", "grpo")
	require.NoError(t, err)
	assert.Zero(t, c.DynamicSampling, "goes back with the algorithm")
	assert.Equal(t, 0.5, c.Gamma, "no algorithm sets it")
	_, err = c.Set("algorithm", "a2c")
	require.NoError(t, err)
	assert.ErrorContains(t, c.Validate(), `algorithm: got "a2c", want one of grpo, dr_grpo, rloo`)
}

func TestSummaryNamesWhatDiffersFromTheAlgorithm(t *testing.T) {
	summary := open(t, valid, "algorithm=dapo", "clip_high=0.2", "lr=1").Summary()
	assert.Contains(t, summary, "algorithm: dapo (advantage group, ratio token), changed: clip_high: 0.28 -> 0.2\n")
	assert.Contains(t, open(t, valid).Summary(), "algorithm: grpo (advantage group, ratio token)\n")
}

func TestLossMaskOffAndUselessPenaltiesAreSaidAloud(t *testing.T) {
	assert.Empty(t, open(t, valid).Warnings())
	assert.True(t, Default().LossMask, "nobody turns the mask off by accident")
	warnings := open(t, valid, "loss_mask=false", "kl_estimator=k1").Warnings()
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0], "loss_mask is false")
	assert.Contains(t, warnings[1], "kl_estimator k1 in the loss")
	assert.Empty(t, open(t, valid, "kl_estimator=k1", "kl_in=reward").Warnings())
	assert.Empty(t, open(t, valid, "kl_estimator=k1", "kl_coef=0").Warnings())
}

func TestSettingsOfAlgorithmsAreChecked(t *testing.T) {
	for overrides, message := range map[string]string{
		"algorithm=rloo group_size=1":                            "group_size: got 1, want at least 2",
		"algorithm=reinforce_pp_baseline group_size=1":           "group_size: got 1, want at least 2",
		"algorithm=gspo group_size=1":                            "group_size: got 1, want at least 2",
		"algorithm=ppo group_size=0":                             "group_size: got 0, want at least 1",
		"algorithm=ppo group_size=1 dynamic_sampling=2":          "dynamic_sampling: looks for groups whose rewards differ",
		"kl_estimator=k4":                                        `kl_estimator: got "k4", want one of k1, k2, k3`,
		"gamma=1.5":                                              "gamma: got 1.5, want at most 1",
		"overlong_buffer=600":                                    "overlong_buffer: 600 is more than max_new_tokens (512)",
		"format_anneal_steps=9 reward_em=0 reward_format=1":      "format_anneal_steps: would leave nothing to learn from",
		"format_anneal_steps=9 reward_em=0 reward_valid_turns=1": "format_anneal_steps: would leave nothing to learn from",
	} {
		_, _, err := Open(write(t, valid), strings.Fields(overrides))
		assert.ErrorContains(t, err, ": "+message, overrides)
	}
	for _, overrides := range []string{"algorithm=ppo group_size=1", "algorithm=reinforce_pp group_size=1",
		"overlong_buffer=512", "format_anneal_steps=9 reward_format=1"} {
		_, _, err := Open(write(t, valid), strings.Fields(overrides))
		assert.NoError(t, err, overrides)
	}
}

// The table in docs/training.md is the one in the code.
func TestDocumentedPresetsAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "training.md"))
	require.NoError(t, err)
	for name, preset := range algorithms {
		start := strings.Index(string(text), "\n| `"+name+"` | ")
		require.Positive(t, start, name)
		row, _, _ := strings.Cut(string(text)[start+1:], "\n")
		assert.Equal(t, len(preset), strings.Count(row, ": "), "%s\n%s", name, row)
		for key, value := range preset {
			assert.Contains(t, row, "`"+key+": "+value+"`", name)
		}
	}
}
