package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/scripts/internal/cli"
)

const baseText = `run_dir: unused
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
max_eval_questions: 3
system_prompt: ""
user_prompt: "{question}"
chat_template: never
prompts_per_step: 2
group_size: 4
max_turns: 2
max_new_tokens: 12
max_turn_tokens: 6
topk: 1
max_obs_tokens: 48
max_context: 192
reward_format: 0.2
kl_coef: 0
steps: 1
lr: 0.01
eval_every: 1
sample_every: 0
save_every: 1
`

// world is a folder with a suite, its base and a document.
type world struct {
	t                      *testing.T
	dir, suite, doc, out   string
	figures, figure, table string
}

func newWorld(t *testing.T, variants ...string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, dir: dir, suite: filepath.Join(dir, "try.yaml"), doc: filepath.Join(dir, "results.md"),
		out: filepath.Join(dir, "out"), figures: filepath.Join(dir, "figures"),
		figure: filepath.Join(dir, "figures", "try.png"),
		table:  filepath.Join(dir, "out", "try", "table.md")}
	if len(variants) == 0 {
		variants = []string{"{name: plain, set: []}", "{name: cold, set: [lr=0.001]}"}
	}
	base := filepath.Join(dir, "base.yaml")
	text := "title: A try\nquestion: Does it matter?\nseeds: 2\nbase: " + base + "\nvariants:\n"
	for _, v := range variants {
		text += "  - " + v + "\n"
	}
	w.write(base, baseText)
	w.write(w.suite, text)
	w.write(w.doc, "<!-- suite:try -->\n<!-- /suite:try -->\n")
	return w
}

func (w *world) write(path, text string) {
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o644))
}

func (w *world) read(path string) string {
	text, err := os.ReadFile(path)
	require.NoError(w.t, err)
	return string(text)
}

// args are those of the world's suite, and more.
func (w *world) args(more ...string) []string {
	return append([]string{"--suite", w.suite, "--out", w.out}, more...)
}

// call runs the command and returns its exit code and what it printed.
func (w *world) call(ctx context.Context, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = command(ctx, args, &o, &e)
	return code, o.String(), e.String()
}

func TestSuiteIsMadeListedAndWrittenIntoTheDocument(t *testing.T) {
	w := newWorld(t)
	code, out, errOut := w.call(t.Context(), w.args("--only", "cold", "--figures", w.figures)...)
	require.Equal(t, cli.OK, code, errOut)
	require.Contains(t, out, "2 of 4 runs are there")
	require.NoFileExists(t, w.figure, "a part of a suite is not published")
	require.Contains(t, w.read(w.table), "| plain | 0 |")

	code, out, errOut = w.call(t.Context(), w.args("--figures", w.figures, "--docs", w.doc, "--parallel", "2")...)
	require.Equal(t, cli.OK, code, errOut)
	require.Contains(t, out, "2 runs to make, 2 complete")
	require.Contains(t, out, "wrote    "+w.figure)
	require.Contains(t, out, w.read(w.table))
	require.FileExists(t, strings.TrimSuffix(w.figure, ".png")+".csv")
	doc := w.read(w.doc)
	require.Contains(t, doc, w.read(w.table))
	require.Contains(t, doc, "go run ./scripts/ablations --suite "+filepath.ToSlash(w.suite)+" --docs "+
		filepath.ToSlash(w.doc)+"\n")

	code, out, _ = w.call(t.Context(), w.args("--list")...)
	require.Equal(t, cli.OK, code)
	require.Contains(t, out, "4 of 4 runs are complete")
	code, out, _ = w.call(t.Context(), w.args("--figures", w.figures, "--docs", w.doc)...)
	require.Equal(t, cli.OK, code)
	require.Contains(t, out, "0 runs to make, 4 complete")
	require.Equal(t, doc, w.read(w.doc), "the same again")
}

func TestDryRunTriesASuiteAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w := newWorld(t)
	code, out, errOut := w.call(t.Context(), "--suite", w.suite, "--dry-run", "--seeds", "1")
	require.Equal(t, cli.OK, code, errOut)
	require.Contains(t, out, "| cold | 1 |")
	require.Contains(t, out, "dry run  passed")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoDirExists(t, "runs")
	require.NoDirExists(t, "figures")
}

func TestFailedRunIsToldByTheExitCodeAndTheRestIsDone(t *testing.T) {
	w := newWorld(t, "{name: plain, set: []}", "{name: broken, set: [model=nowhere/at/all]}")
	code, out, errOut := w.call(t.Context(), w.args("--figures", w.figures, "--docs", w.doc)...)
	require.Equal(t, cli.Failed, code)
	require.Contains(t, errOut, "2 runs failed")
	require.Contains(t, out, "broken seed 1 FAILED")
	require.Contains(t, out, "2 of 4 runs are there")
	require.NoFileExists(t, w.figure)
	require.NotContains(t, w.read(w.doc), "A try")
}

func TestInterruptedCommandSaysHowToGoOn(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, errOut := w.call(ctx, w.args()...)
	require.Equal(t, cli.Interrupted, code)
	require.Contains(t, errOut, "the same command goes on")
}

func TestSettingsOfOnesOwnDoNotReplaceThePublishedFigures(t *testing.T) {
	w := newWorld(t)
	t.Chdir(w.dir)
	for _, args := range [][]string{{"--set", "topk=2"}, {"--seeds", "1", "--out", "one"}} {
		code, out, errOut := w.call(t.Context(), append(w.args(), args...)...)
		require.Equal(t, cli.OK, code, errOut)
		require.Contains(t, out, "table, figure and CSV are in ")
		require.NoDirExists(t, filepath.Join(w.dir, "figures"))
	}
	o, err := parse([]string{"--suite", "s.yaml", "--set", "eval_data=[a b]", "--figures", "f", "--docs", "d.md",
		"--seeds", "2"}, &bytes.Buffer{}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, "go run ./scripts/ablations --suite s.yaml --seeds 2 --set 'eval_data=[a b]' --out runs/ablations "+
		"--figures f --docs d.md", o.line())
}

func TestBadCommandLinesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.write(filepath.Join(w.dir, "empty.md"), "nothing")
	for want, args := range map[string][]string{
		"no suite: give --suite FILE":                 {},
		"none.yaml":                                   {"--suite", "none.yaml"},
		"unexpected argument":                         w.args("x"),
		"unknown flag: --sede":                        w.args("--sede", "1"),
		"--seeds: got 0":                              w.args("--seeds", "0"),
		"--parallel: got 0":                           w.args("--parallel", "0"),
		"--dry_run leaves nothing behind":             w.args("--dry_run"),
		`no variant "warm"`:                           w.args("--only", "warm"),
		"the suite try varies it":                     w.args("--set", "lr=1"),
		"empty.md: want the lines <!-- suite:try -->": w.args("--docs", filepath.Join(w.dir, "empty.md")),
		"with --set give its folder with --figures":   w.args("--docs", w.doc, "--set", "topk=2"),
		"--docs shows the suite with its 2 seeds":     w.args("--docs", w.doc, "--seeds", "1"),
		"learning_rat\"; did you mean lr":             w.args("--set", "learning_rat=1"),
	} {
		code, _, errOut := w.call(t.Context(), args...)
		require.Equal(t, cli.Fault, code, want)
		require.Contains(t, errOut, want)
	}
	require.NoDirExists(t, w.out)
	code, out, _ := w.call(t.Context(), "--help")
	require.Equal(t, cli.OK, code)
	require.Contains(t, out, "--parallel")
}
