package nanoagentrl

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// The names on the field's dashboards: whoever compares runs looks for these.
func TestMetricsHaveTheNamesOfTheFieldsDashboards(t *testing.T) {
	cfg := tiny(t)
	rec := record()
	_, err := train(t, t.Context(), cfg, rec)
	require.NoError(t, err)
	var steps, evals []map[string]any
	text, err := os.ReadFile(filepath.Join(cfg.RunDir, "metrics.jsonl"))
	require.NoError(t, err)
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var line map[string]any
		require.NoError(t, decoder.Decode(&line))
		if _, ok := line["train/em"]; ok {
			steps = append(steps, line)
		} else {
			evals = append(evals, line)
		}
	}
	require.Len(t, steps, 4)
	require.Len(t, evals, 3, "at the start, at step 2 and at the end")
	for i, line := range steps {
		require.EqualValues(t, i+1, line["step"])
		for _, name := range []string{"train/reward_mean", "train/reward_std", "train/em", "train/response_len",
			"train/response_len_max", "train/num_searches", "train/invalid_format_rate", "train/kl", "train/entropy",
			"train/clip_frac", "train/grad_norm", "train/zero_signal_group_frac", "train/lr", "train/clipped_ratio",
			"train/reward_em", "train/reward_format", "train/retriever_error_rate", "train/skipped_prompts",
			"train/updates", "perf/rollout_sec", "perf/train_sec", "perf/tokens_per_sec", "perf/mem_gb"} {
			require.Contains(t, line, name)
			require.NotNil(t, line[name], "step %d: %s is not measured", i+1, name)
		}
		require.Positive(t, line["perf/mem_gb"])
		require.LessOrEqual(t, line["train/response_len_max"], 12.0, "no metric from an uncut response")
	}
	for i, line := range evals {
		require.EqualValues(t, 2*i, line["step"])
		for _, name := range []string{"eval/em", "eval/em_tiny", "eval/em_lenient_tiny", "eval/pass_at_k",
			"eval/pass_hat_k", "eval/pass_at_k_tiny", "eval/reward_tiny", "eval/response_len_tiny",
			"eval/num_searches_tiny", "eval/skipped_prompts_tiny", "perf/eval_sec_tiny"} {
			require.Contains(t, line, name)
		}
	}
	searches, gradient := 0.0, 0.0
	for _, s := range rec.stats {
		searches += s["train/num_searches"]
		gradient += s["train/grad_norm"]
	}
	require.Positive(t, searches, "a random model has the habit of searching")
	require.Positive(t, gradient)
}

func TestSampleEpisodesAreWholeEpisodes(t *testing.T) {
	o := trained(t, tiny(t))
	splits := map[string]int{}
	for _, s := range o.samples {
		splits[s.Split]++
		e := s.Episode
		require.NoError(t, agent.Check(e))
		require.NotEmpty(t, e.Question)
		require.NotEmpty(t, e.Stop)
		require.NotEmpty(t, e.Parts)
		require.Equal(t, e.Question, e.PromptText, "the prompt as it was encoded")
		require.NotZero(t, e.Seed)
	}
	require.Equal(t, map[string]int{"train": 8, "tiny": 3}, splits, "two a step, one a split and evaluation")
}

func TestResolvedConfigIsSavedAndPrinted(t *testing.T) {
	cfg := tiny(t, "lr=0.02")
	o := trained(t, cfg)
	saved, err := config.Load(filepath.Join(cfg.RunDir, "config.yaml"))
	require.NoError(t, err)
	require.Equal(t, cfg, saved)
	require.Contains(t, o.out, "2 prompts x 4 samples = 8 episodes a step; 2 weight updates a step, each over 4 episodes")
	require.Contains(t, o.out, "lr 0.02 constant")
	require.Contains(t, o.out, "device   pure Go")
}

func TestSameConfigGivesTheSameRunAndAnotherSeedAnother(t *testing.T) {
	first := trained(t, tiny(t))
	requireSame(t, first, trained(t, tiny(t)))
	require.NotEqual(t, first.hash, trained(t, tiny(t, "seed=8")).hash)
}

// The number of episodes decoded at once, and the size of micro-batches, are for memory: they change nothing but
// rounding.
func TestRolloutBatchDoesNotChangeTheSamples(t *testing.T) {
	ids := func(o outcome) (all [][]int) {
		for _, s := range o.samples {
			all = append(all, s.Episode.IDs)
		}
		return all
	}
	want := trained(t, tiny(t, "steps=1", "eval_every=0", "eval_at_start=false"))
	got := trained(t, tiny(t, "steps=1", "eval_every=0", "eval_at_start=false", "rollout_batch=3"))
	require.Equal(t, ids(want), ids(got))
}

// Nothing to learn from in a step is no reason to stop the clock: the counter and the questions move on.
func TestStepsWithoutSignalAreCountedAndLoggedAsSkipped(t *testing.T) {
	cfg := tiny(t, "max_new_tokens=1", "reward_format=0", "kl_coef=0", "steps=6", "eval_every=0", "eval_at_start=false")
	rec := record()
	o, err := train(t, t.Context(), cfg, rec)
	require.NoError(t, err)
	r, err := Open(t.Context(), cfg, Options{})
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, 6, r.Trainer.Step())
	require.Equal(t, 12, r.Trainer.Cursor.State().Position)
	require.Zero(t, r.Trainer.Optimizer.Step(), "the optimiser made no step")
	start, err := r.loadModel(t.Context(), config.RandomModel)
	require.NoError(t, err)
	defer start.Free()
	require.Equal(t, start.ID, o.hash)

	questions := map[string]bool{}
	for _, s := range o.samples {
		questions[s.Episode.QuestionID] = true
		require.Equal(t, episode.StopLength, s.Episode.Stop)
	}
	require.Len(t, questions, 12, "no question came twice")
	require.Len(t, rec.stats, 6)
	for _, s := range rec.stats {
		require.Equal(t, 2.0, s["train/skipped_updates"])
		require.Zero(t, s["train/updates"])
		require.Equal(t, 1.0, s["train/zero_signal_group_frac"])
		require.Equal(t, 1.0, s["train/clipped_ratio"])
		require.Zero(t, s["train/reward_mean"])
	}
	require.Len(t, rec.warnings, 1, "after five steps")
	require.Contains(t, rec.warnings[0], "max_new_tokens")
}

func TestEvaluationOfACheckpointGivesWhatTrainingMeasured(t *testing.T) {
	cfg := tiny(t)
	o := trained(t, cfg)
	before := listing(t, cfg.RunDir)
	evaluate := func(checkpoint string) (map[string]float64, string) {
		var out bytes.Buffer
		r, err := Open(t.Context(), cfg, Options{Out: &out, EvalOnly: true, Checkpoint: checkpoint})
		require.NoError(t, err)
		defer r.Close()
		require.Nil(t, r.Trainer)
		require.ErrorContains(t, r.Train(t.Context()), "evaluation only")
		metrics, err := r.Evaluate(t.Context())
		require.NoError(t, err)
		return metrics, out.String()
	}
	for _, line := range o.metrics {
		if _, ok := line["eval/em"]; !ok {
			continue
		}
		name := "base"
		if line["step"] > 0 {
			name = filepath.Join(cfg.RunDir, "checkpoints", map[float64]string{2: "step-000002", 4: "step-000004"}[line["step"]])
		}
		metrics, out := evaluate(name)
		for metric, value := range metrics {
			require.Equal(t, line[metric], value, "%s: %s", name, metric)
		}
		if name != "base" {
			require.Contains(t, out, "eval at step "+map[float64]string{2: "2", 4: "4"}[line["step"]])
		}
	}
	require.Equal(t, before, listing(t, cfg.RunDir), "an evaluation writes nothing")
}

func TestEvaluationOfADamagedOrMissingCheckpointIsAnError(t *testing.T) {
	cfg := tiny(t)
	trained(t, cfg)
	dir := filepath.Join(cfg.RunDir, "checkpoints", "step-000004")
	require.NoError(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 2000))
	_, err := Open(t.Context(), cfg, Options{EvalOnly: true, Checkpoint: dir})
	require.ErrorContains(t, err, "model.safetensors: 2000 bytes")
	_, err = Open(t.Context(), cfg, Options{EvalOnly: true, Checkpoint: filepath.Join(cfg.RunDir, "nowhere")})
	require.ErrorContains(t, err, "checkpoint to evaluate: ")
	require.ErrorContains(t, err, "nowhere")
}

// Every step samples and trains other lengths. Shapes are bucketed, so that a run soon compiles nothing new.
func TestCompilationsOfALongRunAreBoundedByBuckets(t *testing.T) {
	rec := record()
	r, err := Open(t.Context(), tiny(t, "steps=20", "eval_every=0", "eval_at_start=false", "save_every=0", "lr=0.001"),
		Options{Reporter: rec})
	require.NoError(t, err)
	defer r.Close()
	var compiled []int
	rec.onStep = func(int) {
		n, _ := r.Device.Compilations()
		compiled = append(compiled, n)
	}
	require.NoError(t, r.Train(t.Context()))
	require.Len(t, compiled, 20)
	require.LessOrEqual(t, compiled[19], compiled[4]*3/2, "%v", compiled)
	lengths := map[float64]bool{}
	for _, s := range rec.stats {
		lengths[s["train/response_len"]+s["train/obs_len"]] = true
	}
	require.Greater(t, len(lengths), 10, "the steps differ in length")
}
