package nanoagentrl

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// tinySettings are those of a run of four steps that takes a fraction of a second on pure Go and yet has everything in
// it: searches, rewards that differ, two weight updates a step, a penalty, evaluations and checkpoints.
var tinySettings = []string{
	"backend=go", "model=random", "random_layers=1", "random_hidden=16", "random_heads=2", "random_kv_heads=1",
	"random_intermediate=16", "train_data=tiny", "eval_data=[tiny]", "corpus=tiny", "max_eval_questions=3",
	"system_prompt=", "user_prompt={question}", "chat_template=never", "prompts_per_step=2", "group_size=4",
	"minibatches=2", "max_turns=2", "max_new_tokens=12", "max_turn_tokens=6", "topk=1", "max_obs_tokens=48",
	"max_context=192", "reward_format=0.2", "steps=4", "lr=0.01", "kl_coef=0.01", "eval_every=2", "save_every=2",
	"sample_every=1", "keep_last=2", "seed=7", "figure=none",
}

// tiny returns the config of a tiny run in a folder of its own, with changes.
func tiny(t *testing.T, changes ...string) *config.Config {
	t.Helper()
	return tinyIn(t, filepath.Join(t.TempDir(), "run"), changes...)
}

// tinyIn is tiny with a run folder that may hold a run already.
func tinyIn(t *testing.T, dir string, changes ...string) *config.Config {
	t.Helper()
	c := config.Default()
	_, err := c.SetAll(append(append([]string{"run_dir=" + dir}, tinySettings...), changes...))
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	return c
}

// recorder keeps what a run reports and calls hooks; it writes the lines of a console too.
type recorder struct {
	*learn.Console
	onPhase  func(step int, what string)
	onStep   func(step int)
	onSaved  func(dir string)
	phases   []string
	stats    []learn.Stats
	warnings []string
	saved    []string
	evals    []int
}

func record() *recorder { return &recorder{Console: learn.NewConsole(&bytes.Buffer{}, true)} }

func (r *recorder) Phase(step, steps int, what string) {
	r.Console.Phase(step, steps, what)
	r.phases = append(r.phases, what)
	if r.onPhase != nil {
		r.onPhase(step, what)
	}
}

func (r *recorder) Step(step, steps int, s learn.Stats) {
	r.Console.Step(step, steps, s)
	r.stats = append(r.stats, maps.Clone(s))
	if r.onStep != nil {
		r.onStep(step)
	}
}

func (r *recorder) Warn(_ int, warning string) { r.warnings = append(r.warnings, warning) }
func (r *recorder) Saved(dir string) {
	r.saved = append(r.saved, filepath.Base(dir))
	if r.onSaved != nil {
		r.onSaved(filepath.Base(dir))
	}
}
func (r *recorder) Eval(step int, split string, m map[string]float64) {
	r.Console.Eval(step, split, m)
	r.evals = append(r.evals, step)
}

// outcome is what a run leaves behind.
type outcome struct {
	hash    string
	out     string
	metrics []map[string]float64 // without perf/
	samples []sampleLine
}

type sampleLine struct {
	Step    int              `json:"step"`
	Split   string           `json:"split"`
	Episode *episode.Episode `json:"episode"`
}

// train opens a run and trains it, to its end or to an error.
func train(t *testing.T, ctx context.Context, cfg *config.Config, reporter learn.Reporter) (outcome, error) {
	t.Helper()
	var out bytes.Buffer
	r, err := Open(ctx, cfg, Options{Out: &out, Reporter: reporter})
	require.NoError(t, err)
	defer r.Close()
	failure := r.Train(ctx)
	hash, err := r.Policy.Hash()
	require.NoError(t, err)
	return outcome{hash, out.String(), readMetrics(t, cfg.RunDir), readSamples(t, cfg.RunDir)}, failure
}

// trained is train without errors.
func trained(t *testing.T, cfg *config.Config) outcome {
	t.Helper()
	o, err := train(t, t.Context(), cfg, record())
	require.NoError(t, err)
	return o
}

func readMetrics(t *testing.T, dir string) []map[string]float64 {
	t.Helper()
	lines, err := learn.ReadMetrics(dir)
	if os.IsNotExist(err) || err != nil && strings.Contains(err.Error(), "no such file") {
		return nil
	}
	require.NoError(t, err)
	for _, line := range lines {
		maps.DeleteFunc(line, func(name string, _ float64) bool { return strings.HasPrefix(name, "perf/") })
	}
	return lines
}

func readSamples(t *testing.T, dir string) (samples []sampleLine) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, learn.SamplesName))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		var s sampleLine
		require.NoError(t, json.Unmarshal([]byte(line), &s), line)
		samples = append(samples, s)
	}
	return samples
}

// requireSame compares two outcomes: the same prompts, the same sampled ids, the same metrics, the same weights.
func requireSame(t *testing.T, want, got outcome) {
	t.Helper()
	require.Equal(t, want.samples, got.samples)
	require.Equal(t, want.metrics, got.metrics)
	require.Equal(t, want.hash, got.hash, "weights")
}

// listing names all files below a folder.
func listing(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name))
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	require.NoError(t, err)
	return names
}

func checkpoints(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "checkpoints"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
