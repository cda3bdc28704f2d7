package nanoagentrl

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
)

// interruptAt trains until what is about to be done in a step, interrupts there as Ctrl-C does, and returns what was
// reported until then.
func interruptAt(t *testing.T, dir string, step int, what string, changes ...string) *recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec := record()
	rec.onPhase = func(at int, phase string) {
		if at == step && strings.HasPrefix(phase, what) {
			cancel()
		}
	}
	_, err := train(t, ctx, tinyIn(t, dir, changes...), rec)
	require.ErrorIs(t, err, context.Canceled)
	return rec
}

func TestFourStepsEqualTwoAndTwo(t *testing.T) {
	straight := trained(t, tiny(t))
	dir := filepath.Join(t.TempDir(), "run")
	half := trained(t, tinyIn(t, dir, "steps=2"))
	require.NotEqual(t, straight.hash, half.hash)
	resumed := trained(t, tinyIn(t, dir)) // steps raised to 4
	require.Contains(t, resumed.out, "resume   from step 2, "+dir)
	requireSame(t, straight, resumed)
	require.Len(t, straight.samples, 11)
}

func TestFourStepsEqualOneAndThreeWithEveryOptimizerSetting(t *testing.T) {
	settings := []string{"inner_epochs=2", "weight_decay=0.1", "loss_agg=dr_grpo", "warmup_steps=3", "adam_beta2=0.9",
		"eval_every=0", "eval_at_start=false", "save_every=1", "prompts_per_step=4", "max_train_questions=10"}
	straight := trained(t, tiny(t, settings...))
	dir := filepath.Join(t.TempDir(), "run")
	trained(t, tinyIn(t, dir, append(settings, "steps=1")...))
	requireSame(t, straight, trained(t, tinyIn(t, dir, settings...))) // 16 of 10 questions: into the next epoch
}

func TestInterruptionInARolloutSavesTheLastWholeStep(t *testing.T) {
	straight := trained(t, tiny(t, "save_every=100"))
	dir := filepath.Join(t.TempDir(), "run")
	rec := interruptAt(t, dir, 4, "rolling out", "save_every=100")
	require.Equal(t, []string{"step-000002", "step-000003"}, rec.saved, "the best so far, and the last")
	requireSame(t, straight, trained(t, tinyIn(t, dir, "save_every=100")))
}

func TestInterruptionBeforeTheFirstStepLeavesNoCheckpoint(t *testing.T) {
	straight := trained(t, tiny(t))
	dir := filepath.Join(t.TempDir(), "run")
	rec := interruptAt(t, dir, 1, "training")
	require.Empty(t, rec.saved)
	require.Empty(t, checkpoints(t, dir))
	requireSame(t, straight, trained(t, tinyIn(t, dir)))
}

// Ctrl-C between two weight updates of a step must not save half a step. The context of the run ends when the learner
// asks for the second time.
func TestInterruptionBetweenTheUpdatesOfAStepFinishesIt(t *testing.T) {
	straight := trained(t, tiny(t, "save_every=100"))
	dir := filepath.Join(t.TempDir(), "run")
	cfg := tinyIn(t, dir, "save_every=100")
	ctx := &endingContext{Context: t.Context()}
	rec := record()
	rec.onPhase = func(step int, what string) {
		if step == 3 && what == "training" {
			ctx.left = 1
		}
	}
	_, err := train(t, ctx, cfg, rec)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, rec.stats, 3)
	require.Equal(t, 2.0, rec.stats[2]["train/updates"])
	require.Contains(t, checkpoints(t, dir), "step-000003")
	requireSame(t, straight, trained(t, cfg))
}

// endingContext ends after Err has been asked left more times; 0 never ends it.
type endingContext struct {
	context.Context
	left  int
	ended bool
}

func (c *endingContext) Err() error {
	if c.ended {
		return context.Canceled
	}
	if c.left > 0 {
		c.left--
		c.ended = c.left == 0
	}
	return nil
}

// The evaluation of a step whose checkpoint is there, but which was interrupted before its evaluation, must not be lost.
func TestInterruptedEvaluationIsMadeOnResume(t *testing.T) {
	for _, step := range []int{2, 4} {
		straight := trained(t, tiny(t))
		dir := filepath.Join(t.TempDir(), "run")
		rec := interruptAt(t, dir, step, "evaluating")
		require.NotContains(t, rec.evals, step)
		require.Contains(t, checkpoints(t, dir), checkpoint.Name(step))

		rec = record()
		o, err := train(t, t.Context(), tinyIn(t, dir), rec)
		require.NoError(t, err)
		require.Equal(t, step, rec.evals[0])
		requireSame(t, straight, o)
		want, err := checkpoint.ReadState(filepath.Join(dir, "checkpoints", "step-000004"))
		require.NoError(t, err)
		best, _, ok, err := checkpoint.Best(filepath.Join(dir, "checkpoints"))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, best.Step, want.Best.Step)
	}
}

// Saved and killed before best.json and the log of the evaluation were written.
func TestKillBetweenCheckpointAndItsEvaluationIsMadeGood(t *testing.T) {
	cfg := tiny(t, "steps=2") // its only evaluation with a checkpoint is the best
	straight := trained(t, cfg)
	root := filepath.Join(cfg.RunDir, "checkpoints")
	best, _, _, err := checkpoint.Best(root)
	require.NoError(t, err)
	require.Equal(t, 2, best.Step)
	require.NoError(t, os.Remove(filepath.Join(root, checkpoint.BestName)))
	for _, name := range []string{"metrics.jsonl", "samples.jsonl"} {
		path := filepath.Join(cfg.RunDir, name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := bytes.SplitAfter(text, []byte("\n"))
		require.NoError(t, os.WriteFile(path, bytes.Join(lines[:len(lines)-2], nil), 0o644)) // the last is empty
	}
	requireSame(t, straight, trained(t, cfg))
	again, _, ok, err := checkpoint.Best(root)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, best, again)
}

func TestLastStepIsAlwaysSaved(t *testing.T) {
	cfg := tiny(t, "save_every=100", "steps=3", "eval_every=0", "eval_at_start=false")
	o := trained(t, cfg)
	require.Equal(t, []string{checkpoint.BestName, "step-000003"}, checkpoints(t, cfg.RunDir))
	lines := len(o.metrics)
	rec := record()
	again, err := train(t, t.Context(), cfg, rec)
	require.NoError(t, err)
	require.Len(t, again.metrics, lines, "a finished run has nothing more to do")
	require.Empty(t, rec.phases)
	require.Equal(t, o.hash, again.hash)
}

func TestBestCheckpointIsKeptAndBestJSONPointsAtIt(t *testing.T) {
	const metric = "eval/reward_tiny"
	cfg := tiny(t, "steps=8", "eval_every=1", "save_every=1", "keep_last=1", "best_metric="+metric, "lr=0.05", "seed=3",
		"eval_temperature=1", "eval_samples=2")
	o := trained(t, cfg)
	bestStep, bestValue := 0.0, math.Inf(-1)
	for _, line := range o.metrics {
		if value, ok := line[metric]; ok && line["step"] > 0 && value > bestValue {
			bestStep, bestValue = line["step"], value
		}
	}
	require.Less(t, bestStep, 8.0, "the test needs a best step that is not the last")
	root := filepath.Join(cfg.RunDir, "checkpoints")
	best, dir, ok, err := checkpoint.Best(root)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, bestStep, best.Step)
	require.Equal(t, bestValue, best.Value)
	require.Equal(t, metric, best.Metric)
	require.NoError(t, checkpoint.Verify(dir))
	require.ElementsMatch(t, []string{checkpoint.BestName, checkpoint.Name(best.Step), "step-000008"},
		checkpoints(t, cfg.RunDir))
}

func TestOfEqualEvaluationsTheEarliestIsTheBest(t *testing.T) {
	cfg := tiny(t, "lr=0")
	trained(t, cfg)
	best, _, ok, err := checkpoint.Best(filepath.Join(cfg.RunDir, "checkpoints"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 2, best.Step)
}

func TestResumeWithAnotherLearningRateIsRefusedAndChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	trained(t, tinyIn(t, dir, "steps=2"))
	before := listing(t, dir)
	metrics, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	_, err = Open(t.Context(), tinyIn(t, dir, "lr=0.5", "clip_low=0.1", "keep_last=1"), Options{})
	require.ErrorContains(t, err, "step 2 was made with other settings")
	require.ErrorContains(t, err, "clip_low: 0.2 -> 0.1\n  lr: 0.01 -> 0.5\n")
	require.NotContains(t, err.Error(), "keep_last", "which changes nothing that is computed")
	require.Equal(t, before, listing(t, dir))
	after, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	require.Equal(t, metrics, after)
}

func TestResumeWithAnotherReferenceIsRefused(t *testing.T) {
	base := tiny(t, "steps=2")
	trained(t, base)
	step := func(n string) string { return filepath.Join(base.RunDir, "checkpoints", n) }
	other := filepath.Join(t.TempDir(), "reference")
	require.NoError(t, os.CopyFS(other, os.DirFS(step("step-000002"))))
	dir := filepath.Join(t.TempDir(), "run")
	trained(t, tinyIn(t, dir, "steps=2", "reference="+other))
	weights, err := os.ReadFile(filepath.Join(other, "model.safetensors"))
	require.NoError(t, err)
	weights[len(weights)-1] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(other, "model.safetensors"), weights, 0o644))
	_, err = Open(t.Context(), tinyIn(t, dir, "reference="+other), Options{})
	require.ErrorContains(t, err, "was made with reference model")
}

func TestTruncatedNewestCheckpointFallsBackToTheOneBefore(t *testing.T) {
	whole := tiny(t)
	straight := trained(t, whole)
	for _, name := range []string{"model.safetensors", "optimizer.safetensors", "run_state.json", "config.json",
		checkpoint.ManifestName} {
		dir := filepath.Join(t.TempDir(), "run")
		require.NoError(t, os.CopyFS(dir, os.DirFS(whole.RunDir)))
		path := filepath.Join(dir, "checkpoints", "step-000004", name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()/2))
		o := trained(t, tinyIn(t, dir))
		require.Contains(t, o.out, "resume   passed over "+filepath.Dir(path))
		require.Contains(t, o.out, "resume   from step 2, ")
		requireSame(t, straight, o)
	}
}

func TestRunWithoutAWholeCheckpointStartsAnewAndSaysSo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	straight := trained(t, tinyIn(t, dir, "keep_last=1", "best_metric="))
	require.Equal(t, []string{"step-000004"}, checkpoints(t, dir))
	require.NoError(t, os.Truncate(filepath.Join(dir, "checkpoints", "step-000004", "model.safetensors"), 10))
	o := trained(t, tinyIn(t, dir, "keep_last=1", "best_metric="))
	require.Contains(t, o.out, "resume   passed over ")
	require.Contains(t, o.out, "is whole: the run starts anew")
	requireSame(t, straight, o)
}

// block makes the next checkpoint fail: a file stands where its folder should be.
func block(t *testing.T, dir string) {
	root := filepath.Join(dir, "checkpoints")
	require.NoError(t, os.RemoveAll(root))
	require.NoError(t, os.WriteFile(root, nil, 0o644))
}

func TestFailedSaveIsReportedOnceAndNotTriedAgain(t *testing.T) {
	cfg := tiny(t)
	rec := record()
	saves := 0
	rec.onPhase = func(_ int, what string) {
		if what == "saving" {
			saves++
			block(t, cfg.RunDir)
		}
	}
	_, err := train(t, t.Context(), cfg, rec)
	require.ErrorContains(t, err, "checkpoints: not a directory")
	require.NotContains(t, err.Error(), "\n")
	require.Equal(t, 1, saves)
}

// An interruption after which nothing could be saved is a fault, not an interruption that the same command makes good.
func TestInterruptionWithAFailedSaveIsAFault(t *testing.T) {
	cfg := tiny(t, "save_every=100", "eval_every=0", "eval_at_start=false")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec := record()
	rec.onPhase = func(step int, what string) {
		if step == 2 && what == "rolling out" {
			block(t, cfg.RunDir)
			cancel()
		}
	}
	_, err := train(t, ctx, cfg, rec)
	require.ErrorContains(t, err, "checkpoints: not a directory")
	require.ErrorContains(t, err, "the run had ended with: ")
	require.NotErrorIs(t, err, context.Canceled)
}

// An error in the midst of the weight updates of a step leaves weights between two steps: they must not become a
// checkpoint of the step before, and the run must not go on with them.
func TestHalfUpdatedWeightsAreNeverSaved(t *testing.T) {
	cfg := tiny(t, "save_every=100", "eval_every=0", "eval_at_start=false")
	rec := record()
	r, err := Open(t.Context(), cfg, Options{Reporter: rec})
	require.NoError(t, err)
	defer r.Close()
	rec.onPhase = func(step int, what string) {
		if step == 3 && what == "training" {
			r.optimizer.Free() // its next update finds the moments gone
		}
	}
	err = r.Train(t.Context())
	require.ErrorContains(t, err, "the weights are halfway through step 3 and were not saved")
	require.Empty(t, checkpoints(t, cfg.RunDir))
	require.ErrorContains(t, r.Train(t.Context()), "this run cannot go on: step 3 ended in the midst of its weight updates")
}
