package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// valid is the smallest file that validates.
const valid = "model: random\ntrain_data: tiny\neval_data: [tiny]\ncorpus: tiny\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func open(t *testing.T, text string, overrides ...string) *Config {
	t.Helper()
	c, _, err := Open(write(t, text), overrides)
	require.NoError(t, err)
	return c
}

func TestDefaultsAreThePublishedOnes(t *testing.T) {
	c := open(t, valid)
	assert.Equal(t, 8, c.GroupSize)
	assert.Equal(t, 16, c.PromptsPerStep)
	assert.Equal(t, 0.2, c.ClipLow)
	assert.Equal(t, 0.2, c.ClipHigh)
	assert.Equal(t, 0.001, c.KLCoef)
	assert.Equal(t, 1e-6, c.LR)
	assert.Equal(t, 1.0, c.Temperature)
	assert.Equal(t, 512, c.MaxNewTokens)
	assert.Equal(t, 1.0, c.MaxGradNorm)
	assert.Equal(t, 1e-6, c.AdvEps)
	assert.Equal(t, 4, c.MaxTurns)
	assert.Equal(t, 3, c.TopK)
	assert.Equal(t, 0.9, c.BM25K1)
	assert.Equal(t, 0.4, c.BM25B)
	assert.Equal(t, uint64(0), c.Seed)
}

func TestDefaultNamesNoModelAndNoData(t *testing.T) {
	err := Default().Validate()
	require.Error(t, err)
	for _, key := range []string{"model", "train_data", "corpus", "eval_data"} {
		assert.Regexp(t, "(?m)^"+key+": ", err.Error())
	}
}

func TestUnknownKeyIsAnErrorWithFileLineAndNearestKey(t *testing.T) {
	path := write(t, "model: random\n\nlerning_rate: 1\nlrr: 2\ntrain-data: x\nMaxNewTokens: 3\n")
	_, err := Load(path)
	require.Error(t, err)
	assert.Contains(t, err.Error(), path+`:3: unknown key "lerning_rate"; did you mean lr?`)
	assert.Contains(t, err.Error(), path+`:4: unknown key "lrr"; did you mean lr?`)
	assert.Contains(t, err.Error(), path+`:5: unknown key "train-data"; did you mean train_data?`)
	assert.Contains(t, err.Error(), path+`:6: unknown key "MaxNewTokens"; did you mean max_new_tokens?`)
}

func TestNamesOfOtherTrainersSuggestOurKeys(t *testing.T) {
	for name, key := range otherNames {
		assert.Contains(t, Keys(), key)
		assert.NotContains(t, Keys(), name)
	}
	_, err := Default().Set("num-generations", "8")
	require.EqualError(t, err, `unknown key "num_generations"; did you mean group_size?`)
}

func TestDuplicateKeyIsAnErrorNamingBothLines(t *testing.T) {
	path := write(t, "lr: 1\nseed: 2\nlr: 3\n")
	_, err := Load(path)
	require.EqualError(t, err, path+":3: lr is given twice, first in line 1")
}

func TestWrongTypeNamesKeyGotAndWant(t *testing.T) {
	for line, message := range map[string]string{
		"lr: fast":                    `lr: got the text "fast", want a number`,
		"lr: '1e-6'":                  `lr: got the text "1e-6", want a number`,
		"lr:":                         `lr: got nothing, want a number`,
		"lr: [1]":                     `lr: got the list [1], want a number`,
		"steps: 1.5":                  `steps: got the number 1.5, want a whole number`,
		"steps: 1e3":                  `steps: got the number 1e3, want a whole number`,
		"steps: true":                 `steps: got the truth value true, want a whole number`,
		"steps: 99999999999999999999": `steps: got the number 99999999999999999999, want a whole number`,
		"seed: -1":                    `seed: got the number -1, want a whole number of at least 0`,
		"offline: yes":                `offline: got the text "yes", want true or false`,
		"offline: 1":                  `offline: got the number 1, want true or false`,
		"model: 5":                    `model: got the number 5, want a text in quotes`,
		"model: {a: b}":               `model: got a nested mapping, want a text`,
		"corpus:":                     `corpus: got nothing, want a text ("" for none)`,
		"eval_data: a.jsonl":          `eval_data: got the text "a.jsonl", want a list of texts such as [a, b]`,
		"eval_data: [a, 1]":           `eval_data: got the list [a, 1], want a list of texts such as [a, b]`,
	} {
		path := write(t, "# comment\n"+line+"\n")
		_, err := Load(path)
		assert.EqualError(t, err, path+":2: "+message, line)
	}
}

func TestAllFaultsOfAFileAreReportedTogether(t *testing.T) {
	_, err := Load(write(t, "lr: fast\nnope: 1\nseed: 1\nseed: 2\n"))
	require.Error(t, err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 3)
}

func TestNumbersInScientificNotationAreNumbers(t *testing.T) {
	// YAML 1.1 readers take 1e-6 for a text.
	assert.Equal(t, 1e-6, open(t, valid+"lr: 1e-6\n").LR)
	assert.Equal(t, 3e5, open(t, valid+"adv_eps: 3.0e+5\n").AdvEps)
	assert.Equal(t, 1.0, open(t, valid+"lr: 1\n").LR)
}

func TestBrokenYAML(t *testing.T) {
	for text, message := range map[string]string{
		"lr: [1":           "did not find expected",
		"- a\n- b\n":       ":1: got the list [a, b], want lines of the form key: value",
		"hello":            `:1: got the text "hello", want lines of the form key: value`,
		"lr: 1\n---\nx: 2": "a second YAML document",
	} {
		path := write(t, text)
		_, err := Load(path)
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), path)
		assert.Contains(t, err.Error(), message)
	}
	_, err := Load(filepath.Join(t.TempDir(), "missing.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Contains(t, err.Error(), "missing.yaml")
}

func TestEmptyFileGivesTheDefaults(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n"} {
		c, err := Load(write(t, text))
		require.NoError(t, err)
		assert.Equal(t, Default(), c)
	}
}

func TestSetFollowsTheTypesOfTheFile(t *testing.T) {
	c := open(t, valid)
	for _, test := range []struct{ key, value, change string }{
		{"lr", "1e-3", "lr: 1e-06 -> 0.001"},
		{"lr", "0.001", ""},
		{"prompts-per-step", "4", "prompts_per_step: 16 -> 4"},
		{"offline", "true", "offline: false -> true"},
		{"eval_data", "[a, b]", "eval_data: [tiny] -> [a, b]"},
		{"model", "2024", `model: random -> "2024"`},
		{"user_prompt", "Q: {question}\n", `user_prompt: default -> "Q: {question}\n"`},
		{"corpus", "", `corpus: tiny -> ""`},
	} {
		change, err := c.Set(test.key, test.value)
		require.NoError(t, err, test.key)
		assert.Equal(t, test.change, change)
	}
	assert.Equal(t, []string{"a", "b"}, c.EvalData)
	assert.Equal(t, "2024", c.Model)
	assert.Equal(t, "Q: {question}\n", c.UserPrompt)
}

func TestSetErrors(t *testing.T) {
	for override, message := range map[string]string{
		"lerning_rate=1": `--set lerning_rate=1: unknown key "lerning_rate"; did you mean lr?`,
		"lr=fast":        `--set lr=fast: lr: got the text "fast", want a number`,
		"lr=":            `--set lr=: lr: got nothing, want a number`,
		"lr":             `--set lr: want key=value`,
		"eval_data=x":    `--set eval_data=x: eval_data: got the text "x", want a list of texts such as [a, b]`,
		"eval_data=[x":   `--set eval_data=[x: eval_data: got "[x", want a list of texts such as [a, b]`,
	} {
		_, _, err := Open(write(t, valid), []string{override})
		require.Error(t, err)
		assert.True(t, strings.HasPrefix(err.Error(), message), err.Error())
	}
}

func TestFailedSetChangesNothing(t *testing.T) {
	c := open(t, valid)
	_, err := c.Set("steps", "1.5")
	require.Error(t, err)
	assert.Equal(t, open(t, valid), c)
}

func TestFlagDefaultsNeverOverrideTheFile(t *testing.T) {
	path := write(t, valid+"run_dir: from_file\nlr: 1\n")
	for _, test := range []struct {
		args    []string
		runDir  string
		lr      float64
		changes []string
	}{
		{nil, "from_file", 1, nil},
		{[]string{"--set", "lr=2"}, "from_file", 2, []string{"lr: 1 -> 2"}},
		{[]string{"--run-dir", "d"}, "d", 1, []string{"run_dir: from_file -> d"}},
		{[]string{"--data_dir", "sets"}, "from_file", 1, []string{`data_dir: "" -> sets`}},
		{[]string{"--run_dir=d", "--set=lr=2"}, "d", 2, []string{"lr: 1 -> 2", "run_dir: from_file -> d"}},
	} {
		set := pflag.NewFlagSet("train", pflag.ContinueOnError)
		flags := AddFlags(set)
		require.NoError(t, set.Parse(append([]string{"--config", path}, test.args...)))
		c, changes, err := flags.Open()
		require.NoError(t, err)
		assert.Equal(t, test.runDir, c.RunDir)
		assert.Equal(t, test.lr, c.LR)
		assert.Equal(t, test.changes, changes)
	}
}

func TestSetFlagKeepsCommas(t *testing.T) {
	set := pflag.NewFlagSet("train", pflag.ContinueOnError)
	flags := AddFlags(set)
	require.NoError(t, set.Parse([]string{"--config", write(t, valid), "--set", "system_prompt=Yes, please, do.",
		"--set", "eval_data=[tiny]"}))
	c, _, err := flags.Open()
	require.NoError(t, err)
	assert.Equal(t, "Yes, please, do.", c.SystemPrompt)
}

func TestNoConfigSaysHowToGiveOne(t *testing.T) {
	set := pflag.NewFlagSet("train", pflag.ContinueOnError)
	flags := AddFlags(set)
	require.NoError(t, set.Parse(nil))
	_, _, err := flags.Open()
	require.ErrorContains(t, err, "--config")
}

func TestShippedConfigsLoad(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(testenv.Root(), "configs", "*.yaml"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 9)
	runDirs := map[string]bool{}
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "warmstart_") {
			continue // a recipe of scripts/warmstart
		}
		c, changes, err := Open(path, nil)
		require.NoError(t, err)
		assert.Empty(t, changes)
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		assert.Equal(t, "runs/"+name, c.RunDir, "each config has a folder of its own")
		assert.False(t, runDirs[c.RunDir])
		runDirs[c.RunDir] = true
		assert.Equal(t, strings.HasPrefix(name, "gsm8k") || name == "quickstart_math", c.Task == "gsm8k", name)
	}
}

// A value that passes for one of its type and is out of range is blamed on what gave it.
func TestFaultsNameWhereTheValueCameFrom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.yaml")
	text := "run_dir: r\nmodel: random\ntrain_data: tiny\ncorpus: tiny\neval_data: [tiny]\n\ntopk: 0\nlr: -1\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	_, _, err := Open(path, []string{"group-size=1", "lr=-2"})
	require.ErrorContains(t, err, path+":7: topk: got 0, want at least 1\n")
	require.ErrorContains(t, err, "--set lr=-2: lr: got -2, want at least 0\n")
	require.ErrorContains(t, err, "--set group-size=1: group_size: got 1, want at least 2")
	require.Equal(t, 2, strings.Count(err.Error(), "\n"))
	require.NoError(t, os.WriteFile(path, []byte("run_dir: r\nmodel: random\n"), 0o644))
	_, _, err = Open(path, nil)
	require.ErrorContains(t, err, path+": train_data: ")
}

// The figure that a file names is that of its own run; a run elsewhere does not draw over it.
func TestRunElsewhereDrawsNoFigureUnlessAsked(t *testing.T) {
	path := write(t, valid+"figure: f.png\n")
	open := func(args ...string) string {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f := AddFlags(flags)
		require.NoError(t, flags.Parse(append([]string{"--config", path}, args...)))
		c, _, err := f.Open()
		require.NoError(t, err)
		return c.Figure
	}
	assert.Equal(t, "f.png", open())
	assert.Empty(t, open("--run_dir", "other"))
	assert.Equal(t, "g.png", open("--run_dir", "other", "--set", "figure=g.png"))
	_, _, err := Open(path, []string{"figure=x.foo"})
	assert.ErrorContains(t, err, "--set figure=x.foo: figure: got \"x.foo\", want a file that ends in .png or .svg")
}
