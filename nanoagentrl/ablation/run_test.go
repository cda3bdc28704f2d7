package ablation

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

func grid(t *testing.T, s *Suite, opts GridOptions) *Grid {
	t.Helper()
	g, err := s.Grid(opts)
	require.NoError(t, err)
	return g
}

// seenRun trains as usual and remembers which runs were made.
type seenRun struct {
	mu    sync.Mutex
	names []string
}

func (s *seenRun) train(ctx context.Context, cell *Cell, report learn.Reporter) (*Result, error) {
	s.mu.Lock()
	s.names = append(s.names, cell.Name())
	s.mu.Unlock()
	return train(ctx, cell, report)
}

// A whole suite with a tiny model on pure Go: runs, results, the second call that has nothing to do, and every file.
func TestTinySuiteFromRunsToDocument(t *testing.T) {
	dir := t.TempDir()
	g := grid(t, load(t, dir, "try"), GridOptions{Out: filepath.Join(dir, "out")})
	var out bytes.Buffer
	seen := &seenRun{}
	outcome, err := g.Run(t.Context(), RunOptions{Parallel: 2, Out: &out, train: seen.train})
	require.NoError(t, err)
	require.Empty(t, outcome.Failures)
	require.Equal(t, 4, outcome.Trained)
	require.Len(t, seen.names, 4)
	require.Contains(t, out.String(), "try 4/4")

	results, missing, err := g.Results()
	require.NoError(t, err)
	require.Zero(t, missing)
	require.Len(t, results, 4)
	for _, r := range results {
		require.Len(t, r.series("train/reward_mean"), 1)
		for _, key := range measureKeys {
			require.Contains(t, r.Before, key)
			require.Contains(t, r.After, key)
		}
		require.Equal(t, 3, r.After["greedy"].Episodes)
		require.Positive(t, r.Seconds)
		require.Contains(t, r.Device, "pure Go")
	}
	outcome, err = g.Run(t.Context(), RunOptions{train: seen.train})
	require.NoError(t, err)
	require.Equal(t, &Outcome{Complete: 4}, outcome)
	require.Len(t, seen.names, 4, "a complete run is not made again")

	require.NoError(t, g.Write(g.Dir, results))
	doc := filepath.Join(dir, "results.md")
	old := "before\n" + openMark("try") + "\nof an earlier run\n" + closeMark("try") + "\nafter\n"
	require.NoError(t, os.WriteFile(doc, []byte(old), 0o644))
	paths, err := g.Publish(results, filepath.Join(dir, "figures"), doc, "the command")
	require.NoError(t, err)
	require.Len(t, paths, 3)
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	for _, want := range []string{"before\n", "\nafter\n", "the command", "figures/try.png", "figures/try.csv", "lr=0.001",
		"3 test questions", Table(g.Suite, results)} {
		require.Contains(t, string(text), want)
	}
	require.NotContains(t, string(text), "of an earlier run")
	for _, path := range []string{filepath.Join(dir, "figures", "try.png"), filepath.Join(g.Dir, FigureName)} {
		image, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(image, []byte("\x89PNG")))
	}
	var list bytes.Buffer
	require.NoError(t, g.List(&list))
	require.Contains(t, list.String(), "4 of 4 runs are complete")
}

// A process that is killed leaves runs without a result: they do not count, and go on where they were saved. The
// numbers are those of runs that nobody killed.
func TestGridGoesOnAfterAKillAndCountsNothingHalfDone(t *testing.T) {
	dir := t.TempDir()
	opts := func(out string) GridOptions {
		return GridOptions{Out: filepath.Join(dir, out), Seeds: 1, Set: []string{"steps=3", "save_every=1"}}
	}
	whole := grid(t, load(t, dir, "try"), opts("whole"))
	_, err := whole.Run(t.Context(), RunOptions{})
	require.NoError(t, err)
	want, _, err := whole.Results()
	require.NoError(t, err)

	g := grid(t, load(t, dir, "try"), opts("killed"))
	killed := errors.New("killed")
	stop := func(ctx context.Context, cell *Cell, report learn.Reporter) (*Result, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if cell.Variant == "cold" {
			report = &stopAfter{report.(*cellReporter), cancel}
		}
		result, err := train(ctx, cell, report)
		if cell.Variant == "plain" { // whole, but killed before the result was written
			require.NoError(t, os.Remove(filepath.Join(cell.Config.RunDir, ResultName)))
			return nil, killed
		}
		return result, err
	}
	outcome, err := g.Run(t.Context(), RunOptions{train: stop})
	require.NoError(t, err)
	require.Len(t, outcome.Failures, 2)
	_, missing, err := g.Results()
	require.NoError(t, err)
	require.Equal(t, 2, missing, "neither run counts")
	var list bytes.Buffer
	require.NoError(t, g.List(&list))
	require.Contains(t, list.String(), "at step 1 of 3")

	var out bytes.Buffer
	_, err = g.Run(t.Context(), RunOptions{Out: &out})
	require.NoError(t, err)
	got, missing, err := g.Results()
	require.NoError(t, err)
	require.Zero(t, missing)
	require.Equal(t, tidy(t, whole, want), tidy(t, g, got))
	for _, cell := range g.Cells {
		log, err := os.ReadFile(cell.logPath())
		require.NoError(t, err)
		require.Contains(t, string(log), "resume   from step", "the run went on")
	}
}

func tidy(t *testing.T, g *Grid, results []*Result) string {
	t.Helper()
	text, err := CSV(g.Suite, results)
	require.NoError(t, err)
	return string(text)
}

// stopAfter cancels a run after its first step.
type stopAfter struct {
	*cellReporter
	cancel context.CancelFunc
}

func (s *stopAfter) Step(step, steps int, stats learn.Stats) {
	s.cellReporter.Step(step, steps, stats)
	s.cancel()
}

func TestOneRunThatFailsLeavesTheOthersAlone(t *testing.T) {
	dir := t.TempDir()
	s := load(t, dir, "try", "lr=0.001", "model="+filepath.ToSlash(filepath.Join(dir, "nowhere")))
	g := grid(t, s, GridOptions{Out: filepath.Join(dir, "out")})
	var out bytes.Buffer
	outcome, err := g.Run(t.Context(), RunOptions{Out: &out})
	require.NoError(t, err)
	require.Equal(t, 2, outcome.Trained)
	require.Len(t, outcome.Failures, 2)
	require.Contains(t, out.String(), "cold seed 1 FAILED")
	require.ErrorContains(t, outcome.Failures[0].Err, "nowhere")
	log, err := os.ReadFile(outcome.Failures[0].Cell.logPath())
	require.NoError(t, err)
	require.Contains(t, string(log), "ended with: ")
	results, missing, err := g.Results()
	require.NoError(t, err)
	require.Equal(t, 2, missing)
	require.Len(t, results, 2)
	require.Contains(t, Table(s, results), "| cold | 0 | – |", "a variant without a run is seen to be missing")
}

// fake completes a run without training it.
func fake(_ context.Context, cell *Cell, report learn.Reporter) (*Result, error) {
	report.Step(1, cell.Config.Steps, learn.Stats{})
	return &Result{Variant: cell.Variant, Seed: cell.Seed, Steps: cell.Config.Steps}, nil
}

func TestPanicOfARunIsAnErrorOfThatRun(t *testing.T) {
	dir := t.TempDir()
	g := grid(t, load(t, dir, "try"), GridOptions{Out: filepath.Join(dir, "out"), Seeds: 1, Only: []string{"plain"}})
	fault := func(ctx context.Context, cell *Cell, _ learn.Reporter) (*Result, error) {
		return train(ctx, cell, panics{})
	}
	outcome, err := g.Run(t.Context(), RunOptions{train: fault})
	require.NoError(t, err)
	require.Len(t, outcome.Failures, 1)
	require.ErrorContains(t, outcome.Failures[0].Err, "panic: ")
	log, err := os.ReadFile(outcome.Failures[0].Cell.logPath())
	require.NoError(t, err)
	require.Contains(t, string(log), "goroutine", "where it happened")
}

// panics is a reporter that panics when it is used.
type panics struct{ learn.Reporter }

func TestInterruptedGridStopsAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	g := grid(t, load(t, dir, "try"), GridOptions{Out: filepath.Join(dir, "out"), Seeds: 3})
	ctx, cancel := context.WithCancel(t.Context())
	var begun atomic.Int64
	stop := func(ctx context.Context, cell *Cell, r learn.Reporter) (*Result, error) {
		if begun.Add(1) == 3 {
			cancel()
			return nil, ctx.Err()
		}
		return fake(ctx, cell, r)
	}
	outcome, err := g.Run(ctx, RunOptions{Parallel: 2, train: stop})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, outcome.Failures, "an interruption is no failure")
	require.Less(t, begun.Load(), int64(6), "no run begins after it")
}

func TestRunsAreMadeInParallelUpToTheLimit(t *testing.T) {
	dir := t.TempDir()
	g := grid(t, load(t, dir, "try"), GridOptions{Out: filepath.Join(dir, "out"), Seeds: 4})
	var now, most atomic.Int64
	meet := make(chan struct{})
	pairs := func(ctx context.Context, cell *Cell, r learn.Reporter) (*Result, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		select { // two that wait for each other
		case meet <- struct{}{}:
		case <-meet:
		}
		now.Add(-1)
		return fake(ctx, cell, r)
	}
	outcome, err := g.Run(t.Context(), RunOptions{Parallel: 2, train: pairs})
	require.NoError(t, err)
	require.Equal(t, 8, outcome.Trained)
	require.EqualValues(t, 2, most.Load())
}

func TestFolderOfOtherSettingsIsRefusedBeforeAnythingRuns(t *testing.T) {
	dir := t.TempDir()
	s := load(t, dir, "try")
	opts := GridOptions{Out: filepath.Join(dir, "out"), Seeds: 1, Only: []string{"plain"}}
	_, err := grid(t, s, opts).Run(t.Context(), RunOptions{})
	require.NoError(t, err)
	never := RunOptions{train: func(context.Context, *Cell, learn.Reporter) (*Result, error) {
		t.Error("a run began")
		return nil, nil
	}}
	for set, want := range map[string]string{"topk=2": "topk: 1 -> 2", "world_seed=9": "world_seed: 1 -> 9",
		"max_eval_questions=2": "max_eval_questions: 3 -> 2"} {
		changed := opts
		changed.Set = []string{set}
		_, err := grid(t, s, changed).Run(t.Context(), never)
		require.ErrorContains(t, err, "was made with other settings")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "--out")
	}
	fewer := opts
	fewer.Set = []string{"steps=0"}
	_, err = grid(t, s, fewer).Run(t.Context(), never)
	require.ErrorContains(t, err, "has 1 steps already, more than the 0")

	require.NoError(t, os.Remove(filepath.Join(dir, "out", "try", "plain", "seed-1", CellName)))
	_, err = grid(t, s, opts).Run(t.Context(), never)
	require.ErrorContains(t, err, "no run of this grid")
}

// A warm start that is made anew under its old name is another start.
func TestModelThatChangedUnderItsNameIsNoticed(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	require.NoError(t, os.MkdirAll(model, 0o755))
	weights := filepath.Join(model, "model.safetensors")
	require.NoError(t, os.WriteFile(weights, []byte("one"), 0o644))
	s := load(t, dir, "try", "temperature=0.9", "model="+filepath.ToSlash(model))
	opts := GridOptions{Out: filepath.Join(dir, "out"), Seeds: 1}
	first := grid(t, s, opts)
	require.NoError(t, first.Cells[0].begin())
	_, err := grid(t, s, opts).Cells[0].Progress()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(weights, []byte("two"), 0o644))
	_, err = grid(t, s, opts).Cells[0].Progress()
	require.ErrorContains(t, err, "content of ")
}

// With a constant learning rate a run may go on to more steps, and counts again only once it is there.
func TestMoreStepsGoOnFromTheFewer(t *testing.T) {
	dir := t.TempDir()
	s := load(t, dir, "try")
	opts := GridOptions{Out: filepath.Join(dir, "out"), Seeds: 1, Only: []string{"plain"}}
	_, err := grid(t, s, opts).Run(t.Context(), RunOptions{})
	require.NoError(t, err)
	opts.Set = []string{"steps=2"}
	more := grid(t, s, opts)
	_, missing, err := more.Results()
	require.NoError(t, err)
	require.Equal(t, 2, missing)
	outcome, err := more.Run(t.Context(), RunOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, outcome.Trained)
	results, _, err := more.Results()
	require.NoError(t, err)
	require.Equal(t, 2, results[0].Steps)
	require.Len(t, results[0].series("train/em"), 2)
	log, err := os.ReadFile(more.Cells[0].logPath())
	require.NoError(t, err)
	require.Contains(t, string(log), "resume   from step 1")
}

// The base of one suite is a variant of the next: the same settings and seed are trained once.
func TestEqualRunOfAnotherSuiteIsNotMadeAgain(t *testing.T) {
	dir := t.TempDir()
	opts := GridOptions{Out: filepath.Join(dir, "out"), Seeds: 1}
	first := grid(t, load(t, dir, "first"), opts)
	_, err := first.Run(t.Context(), RunOptions{})
	require.NoError(t, err)
	seen := &seenRun{}
	suite := load(t, dir, "second", "name: plain", "name: same", "name: cold, set: [lr=0.001]",
		"name: other, set: [topk=2]")
	second := grid(t, suite, opts)
	var out bytes.Buffer
	outcome, err := second.Run(t.Context(), RunOptions{Out: &out, train: seen.train})
	require.NoError(t, err)
	require.Equal(t, 1, outcome.Copied)
	require.Equal(t, []string{"other seed 1"}, seen.names)
	require.Contains(t, out.String(), "first/plain/seed-1")
	results, missing, err := second.Results()
	require.NoError(t, err)
	require.Zero(t, missing)
	require.Equal(t, "same", results[0].Variant)
	original, _, err := first.Results()
	require.NoError(t, err)
	results[0].Variant = "plain"
	require.Equal(t, tidy(t, first, original[:1]), tidy(t, first, results[:1]))
	show, err := nanoagentrl.ReadShowcase(second.Cells[0].Config.RunDir)
	require.NoError(t, err)
	require.NotNil(t, show.After)

	other := opts
	other.Set = []string{"backend=xla"}
	cell := grid(t, load(t, dir, "third"), other).Cells[0]
	result, err := (&Grid{root: opts.Out}).reuse(cell)
	require.NoError(t, err)
	assert.Nil(t, result, "a run on another backend gives other digits")
}

// What is left of a result must not count.
func TestDamagedResultIsAnErrorThatNamesIt(t *testing.T) {
	dir := t.TempDir()
	g := grid(t, load(t, dir, "try"), GridOptions{Out: filepath.Join(dir, "out"), Seeds: 1, Only: []string{"plain"}})
	_, err := g.Run(t.Context(), RunOptions{})
	require.NoError(t, err)
	run := g.Cells[0].Config.RunDir
	require.NoError(t, os.Truncate(filepath.Join(run, learn.MetricsName), 10))
	_, _, err = g.Results()
	require.ErrorContains(t, err, "the metrics of 0 steps are there, of 1")
	require.NoError(t, os.Truncate(filepath.Join(run, ResultName), 10))
	_, _, err = g.Results()
	require.ErrorContains(t, err, ResultName)
}

// Steps that an earlier process made are neither left to do nor a measure of speed.
func TestTimeLeftCountsOnlyTheWorkOfThisProcess(t *testing.T) {
	dir := t.TempDir()
	g := grid(t, load(t, dir, "try"), GridOptions{Out: dir, Seeds: 1, Set: []string{"steps=10"}})
	b := newBoard(g, g.Cells, RunOptions{Out: &bytes.Buffer{}})
	require.EqualValues(t, 2*(10+measureSteps), b.ahead)
	r := b.reporter(g.Cells[0])
	r.Step(8, 10, learn.Stats{})
	require.EqualValues(t, 1+measureSteps/2, b.worked)
	require.EqualValues(t, 2*(10+measureSteps)-8-measureSteps/2, b.ahead)
	b.drop(g.Cells[0])
	require.EqualValues(t, 10+measureSteps, b.ahead, "the other run")
}
