package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

// tinyFile is a config of a run that takes a fraction of a second.
const tinyFile = `
backend: go
model: random
random_layers: 1
random_hidden: 16
random_heads: 2
random_kv_heads: 1
random_intermediate: 16
train_data: tiny
eval_data: [tiny]
corpus: tiny
max_eval_questions: 2
system_prompt: ""
user_prompt: "{question}"
chat_template: never
prompts_per_step: 1
group_size: 2
max_turns: 2
max_new_tokens: 8
max_obs_tokens: 48
max_context: 128
reward_format: 0.5
steps: 2
lr: 0.25
eval_every: 2
save_every: 1
figure: none
`

// world is a folder with a config file and room for a run.
type world struct {
	t         *testing.T
	dir       string
	path, run string
}

func newWorld(t *testing.T, lines ...string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t, dir, filepath.Join(dir, "tiny.yaml"), filepath.Join(dir, "run")}
	w.write("tiny.yaml", "run_dir: "+w.run+tinyFile+strings.Join(lines, "\n")+"\n")
	return w
}

// set replaces settings of the config file, given as lines of YAML.
func (w *world) set(lines string) {
	w.t.Helper()
	text, err := os.ReadFile(w.path)
	require.NoError(w.t, err)
	kept := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range strings.Split(lines, "\n") {
		key, _, _ := strings.Cut(line, ":")
		kept = slices.DeleteFunc(kept, func(old string) bool { return strings.HasPrefix(old, key+":") })
	}
	w.write("tiny.yaml", strings.Join(append(kept, lines), "\n")+"\n")
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// train runs the command on the world's config.
func (w *world) train(args ...string) (code int, out, errOut string) {
	w.t.Helper()
	return call(w.t, append([]string{"--config", w.path}, args...)...)
}

func call(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = command(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

// refused runs the command, which must end with code 2 and one clear line that holds all of want, and leave nothing in
// the run folder.
func (w *world) refused(args []string, want ...string) {
	w.t.Helper()
	code, _, errOut := w.train(args...)
	require.Equal(w.t, cli.Fault, code, errOut)
	requireClear(w.t, errOut, want...)
	require.NotContains(w.t, strings.TrimSuffix(errOut, "\n"), "\n", "one line")
	w.requireNoFiles()
}

// requireClear checks that an error comes from us, is no stack trace and names what it must.
func requireClear(t *testing.T, errOut string, want ...string) {
	t.Helper()
	require.True(t, strings.HasPrefix(errOut, "train: ") && strings.HasSuffix(errOut, "\n"), errOut)
	require.NotContains(t, errOut, "goroutine ")
	require.NotContains(t, errOut, "panic")
	for _, w := range want {
		require.Contains(t, errOut, w)
	}
}

// requireNoFiles checks that there is no file in the run folder.
func (w *world) requireNoFiles() {
	w.t.Helper()
	require.Empty(w.t, w.files())
}

// files lists the files of the run folder.
func (w *world) files() (names []string) {
	w.t.Helper()
	_ = filepath.WalkDir(w.run, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(w.run, path)
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	return names
}

func TestTrainEvaluateAndResumeFromTheCommandLine(t *testing.T) {
	w := newWorld(t)
	code, out, errOut := w.train()
	require.Zero(t, code, errOut)
	require.Empty(t, errOut)
	require.Contains(t, out, "step 2/2  reward ")
	require.Contains(t, out, "done     2 steps; metrics, samples and checkpoints are in "+w.run)
	require.Contains(t, w.files(), "checkpoints/step-000002/model.safetensors")

	code, out, errOut = w.train("--set", "steps=3")
	require.Zero(t, code, errOut)
	require.Contains(t, out, "set      steps: 2 -> 3\n", "overrides are echoed")
	require.Contains(t, out, "resume   from step 2, ")
	require.NotContains(t, out, "step 2/3")
	require.Contains(t, out, "step 3/3")

	code, out, errOut = w.train("--set", "steps=3")
	require.Zero(t, code, errOut)
	require.Contains(t, out, "this run is complete, all 3 steps are done; for more, add --set steps=N")

	before := w.files()
	code, out, errOut = w.train("--eval_only")
	require.Zero(t, code, errOut)
	require.Contains(t, out, "eval at step 0  tiny: EM ")
	code, out, errOut = w.train("--eval-only", "--ckpt", filepath.Join(w.run, "checkpoints", "step-000003"))
	require.Zero(t, code, errOut)
	require.Contains(t, out, "eval at step 3  tiny: EM ")
	require.Equal(t, before, w.files())
}

func TestDryRunFlagRunsWithoutTouchingTheRunFolder(t *testing.T) {
	w := newWorld(t)
	t.Setenv("TMPDIR", t.TempDir())
	for _, flag := range []string{"--dry_run", "--dry-run"} {
		code, out, errOut := w.train(flag)
		require.Zero(t, code, errOut)
		require.Contains(t, out, "dry run  passed: rollout, reward, update, evaluation, checkpoint, resume (same weights)")
		w.requireNoFiles()
	}
}

func TestHelpNamesEveryFlagAndIsNoError(t *testing.T) {
	code, out, errOut := call(t, "--help")
	require.Zero(t, code)
	require.Empty(t, errOut)
	for _, flag := range []string{"--config", "--run_dir", "--set", "--dry_run", "--eval_only", "--ckpt"} {
		require.Contains(t, out, "      "+flag, flag)
	}
	require.Contains(t, out, "go run ./scripts/train --config configs/quickstart.yaml")
}

func TestRunDirFlagWinsOverTheFile(t *testing.T) {
	w := newWorld(t)
	w.run = filepath.Join(w.dir, "elsewhere")
	for _, flag := range []string{"--run_dir", "--run-dir"} {
		require.NoError(t, os.RemoveAll(w.run))
		code, _, errOut := w.train(flag, w.run)
		require.Zero(t, code, errOut)
		saved, err := config.Load(filepath.Join(w.run, "config.yaml"))
		require.NoError(t, err)
		require.Equal(t, w.run, saved.RunDir)
		require.Equal(t, 0.25, saved.LR, "no flag's default overrides the file")
	}
}

func TestBadCommandLinesAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ args, want string }{
		{"--dry_run --eval_only", "--dry_run and --eval_only exclude each other"},
		{"--ckpt base", "--ckpt only goes with --eval_only"},
		{"steps=3", `unexpected argument "steps=3"; settings are changed with --set key=value`},
		{"--stepz 3", "unknown flag: --stepz"},
		{"--set steps", "--set steps: want key=value"},
		{"--set stepz=3", `--set stepz=3: unknown key "stepz"; did you mean steps?`},
		{"--set steps=many", "steps: got the text \"many\", want a whole number"},
	} {
		w.refused(strings.Fields(test.args), test.want)
	}
}

func TestUnknownKeyEndsWithCodeTwoAndNamesTheNearest(t *testing.T) {
	w := newWorld(t, "lerning_rate: 1")
	line := strings.Count(tinyFile, "\n") + 1
	w.refused(nil, fmt.Sprintf("%s:%d: unknown key \"lerning_rate\"; did you mean lr?", w.path, line))
}

func TestConfigThatIsNotThereIsNamed(t *testing.T) {
	code, _, errOut := call(t, "--config", "no/such.yaml")
	require.Equal(t, cli.Fault, code)
	requireClear(t, errOut, "no/such.yaml", "no such file")
	code, _, errOut = call(t)
	require.Equal(t, cli.Fault, code)
	requireClear(t, errOut, "no config: give --config FILE")
}

// A run that lost what its log says it had learned ends with a code of its own if the config asks for that.
func TestCollapsedRunEndsWithCodeThree(t *testing.T) {
	w := newWorld(t, "stop_on_collapse: true")
	w.set("steps: 5\nlr: 0\neval_every: 0\nsave_every: 0\nprompts_per_step: 4")
	code, _, errOut := w.train()
	require.Zero(t, code, errOut)
	path := filepath.Join(w.run, learn.MetricsName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	good := regexp.MustCompile(`"train/reward_mean":[^,}]*`).ReplaceAllString(string(text), `"train/reward_mean":9`)
	require.NoError(t, os.WriteFile(path, []byte(good), 0o644))
	code, out, errOut := w.train("--set", "steps=100")
	require.Equal(t, exitCollapsed, code, errOut)
	requireClear(t, errOut, "train: stopped because the reward collapsed at step ")
	require.Contains(t, out, "the reward has collapsed: ")
	require.Contains(t, out, "saved "+w.run)
	require.NotContains(t, out, "step 20/100")
}

func TestInterruptedCommandSaysHowToGoOn(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	require.Equal(t, cli.Interrupted, command(ctx, []string{"--config", w.path}, &out, &errOut))
	require.Equal(t, "train: interrupted; no step was done yet; the same command starts again\n", errOut.String())
}
