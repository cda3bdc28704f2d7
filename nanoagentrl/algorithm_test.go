package nanoagentrl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/grpo"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/learn"
)

// algorithms are the values of the key, each with what a tiny run needs to show the algorithm's parts.
var algorithms = map[string][]string{
	"grpo": nil, "dr_grpo": nil, "rloo": {"inner_epochs=2"}, "reinforce_pp": {"gamma=0.9"}, "reinforce_pp_baseline": nil,
	"ppo":  {"critic_lr=0.05", "inner_epochs=2", "group_size=2"},
	"dapo": {"overlong_buffer=6", "format_anneal_steps=3"},
	"gspo": {"clip_low=0.01", "clip_high=0.01", "inner_epochs=2"},
}

func with(name string) []string { return append([]string{"algorithm=" + name}, algorithms[name]...) }

// requireSameRun is requireSame for metrics that may hold NaN.
func requireSameRun(t *testing.T, want, got outcome) {
	t.Helper()
	require.Equal(t, want.samples, got.samples)
	require.Equal(t, fmt.Sprint(want.metrics), fmt.Sprint(got.metrics))
	require.Equal(t, want.hash, got.hash, "weights")
}

// On pure Go, two and two steps are four steps to the last bit, whatever has to survive: a critic with its moments, the
// further questions of dynamic sampling, the place in the annealing.
func TestEveryAlgorithmTrainsAndResumesExactly(t *testing.T) {
	for name := range algorithms {
		t.Run(name, func(t *testing.T) {
			straight := trained(t, tiny(t, with(name)...))
			require.Contains(t, straight.out, "algorithm: "+name+" (")
			updates := 0.0
			for _, line := range straight.metrics {
				updates += line["train/updates"]
			}
			require.Positive(t, updates, "the test needs weight updates")
			dir := filepath.Join(t.TempDir(), "run")
			trained(t, tinyIn(t, dir, append(with(name), "steps=2")...))
			requireSameRun(t, straight, trained(t, tinyIn(t, dir, with(name)...)))
		})
	}
}

// The dry run of a config drives the parts of its algorithm, also where they do not fit its small episodes.
func TestDryRunOfAlgorithms(t *testing.T) {
	for _, changes := range [][]string{{"algorithm=ppo"}, {"algorithm=dapo", "max_new_tokens=100", "overlong_buffer=90"}} {
		rec := record()
		require.NoError(t, DryRun(t.Context(), tiny(t, append(changes, "minibatches=1")...), Options{Reporter: rec}))
		require.Len(t, rec.stats, drySteps)
	}
}

func TestAlgorithmsDiffer(t *testing.T) {
	hashes := map[string]string{}
	for name := range algorithms {
		o := trained(t, tiny(t, "algorithm="+name, "steps=2", "eval_every=0", "eval_at_start=false", "critic_lr=0.05",
			"inner_epochs=2"))
		require.NotContains(t, hashes, o.hash, "%s trains as %s does", name, hashes[o.hash])
		hashes[o.hash] = name
	}
}

// The config knows, without importing the mathematics, which estimators there are and which need groups.
func TestConfigAndMathematicsAgreeOnTheEstimators(t *testing.T) {
	for _, e := range []grpo.Estimator{grpo.Group, grpo.RLOO, grpo.ReinforcePP, grpo.ReinforcePPBaseline, grpo.GAE} {
		c := tiny(t, "advantage="+string(e))
		require.NoError(t, grpo.Estimator(c.Advantage).Validate())
		c.GroupSize = 1
		require.Equal(t, e.NeedsGroups(), c.Validate() != nil, e)
	}
	for _, key := range []string{"ratio=token", "ratio=sequence", "kl_estimator=k1", "kl_estimator=k2", "kl_estimator=k3"} {
		opts := learnOptions(tiny(t, key))
		require.NoError(t, opts.Ratio.Validate())
		require.NoError(t, opts.Loss.Validate())
	}
}

func TestPPOReportsAndSavesItsCritic(t *testing.T) {
	cfg := tiny(t, "algorithm=ppo", "critic_lr=0.05", "group_size=1", "prompts_per_step=8")
	o := trained(t, cfg)
	require.Contains(t, o.out, "critic   the policy's shape and weights, with a value head; lr 0.05")
	for _, line := range o.metrics {
		if _, step := line["train/em"]; !step {
			continue
		}
		require.Equal(t, 2.0, line["train/critic_updates"], "one for each minibatch")
		require.Positive(t, line["train/critic_grad_norm"])
		require.Contains(t, line, "train/explained_variance")
		require.Equal(t, 0.05, line["train/critic_lr"])
	}
	files := strings.Join(listing(t, cfg.RunDir), " ")
	require.Contains(t, files, "step-000004/critic.safetensors")
	require.Contains(t, files, "step-000004/critic_optimizer.safetensors")
	state, err := checkpoint.ReadState(filepath.Join(cfg.RunDir, "checkpoints", "step-000004"))
	require.NoError(t, err)
	require.Equal(t, 8, state.CriticStep)
	found := false
	for _, s := range o.samples {
		found = found || s.Episode.Advantages != nil
		if s.Episode.Advantages != nil {
			require.Len(t, s.Episode.Advantages, len(s.Episode.IDs))
		}
	}
	require.True(t, found, "advantages differ from token to token")
}

// Groups without signal give way to further questions, in a bounded number of rounds, and the data goes on after them.
func TestDynamicSamplingReplacesGroupsWithoutSignal(t *testing.T) {
	changes := []string{"algorithm=dapo", "dynamic_sampling=2", "group_size=2", "prompts_per_step=4", "reward_format=0.5"}
	cfg := tiny(t, changes...)
	rec := record()
	o, err := train(t, t.Context(), cfg, rec)
	require.NoError(t, err)
	replaced, rounds := 0.0, 0.0
	for _, s := range rec.stats {
		replaced, rounds = replaced+s["train/replaced_groups"], max(rounds, s["train/extra_rounds"])
		require.LessOrEqual(t, s["train/replaced_groups"], 8.0)
		if s["train/extra_rounds"] < 2 {
			require.Equal(t, s["train/replaced_groups"]/(4+s["train/replaced_groups"]), s["train/zero_signal_group_frac"],
				"what is left has a signal")
		}
	}
	require.Positive(t, replaced)
	require.Equal(t, 2.0, rounds)
	r, err := Open(t.Context(), cfg, Options{})
	require.NoError(t, err)
	defer r.Close()
	state := r.Trainer.Cursor.State()
	require.Equal(t, 16+int(replaced), state.Position+state.Epoch*state.Size, "the place in the data")

	plain := record()
	_, err = train(t, t.Context(), tiny(t, append(changes, "dynamic_sampling=0")...), plain)
	require.NoError(t, err)
	signal := func(rec *recorder) (sum float64) {
		for _, s := range rec.stats {
			sum += s["train/trained_tokens"]
		}
		return sum
	}
	require.Greater(t, signal(rec), signal(plain), "more episodes to learn from")
	require.NotContains(t, plain.stats[0], "train/replaced_groups")
	requireFreshSeeds(t, o.samples)
}

// requireFreshSeeds checks that the questions of further rounds have the seeds that follow those of the first four, so
// that no two episodes of a step share one.
func requireFreshSeeds(t *testing.T, samples []sampleLine) {
	t.Helper()
	further := 0
	for _, s := range samples {
		if s.Split != "train" {
			continue
		}
		seeds, number := agent.Seeds(7, "train", s.Step), -1
		for question := range 4 + 2*4 {
			if seeds(question, s.Episode.Sample) == s.Episode.Seed {
				number = question
			}
		}
		require.GreaterOrEqual(t, number, 0)
		if number >= 4 {
			further++
		}
	}
	require.Positive(t, further, "the test needs a sample of a further round")
}

func TestFormatRewardIsAnnealedInTrainingOnly(t *testing.T) {
	cfg := tiny(t, "format_anneal_steps=2", "reward_format=0.2", "reward_valid_turns=0.1", "lr=0")
	o := trained(t, cfg)
	var factors []float64
	for _, line := range o.metrics {
		factor, ok := line["train/format_factor"]
		if !ok {
			want := line["eval/em_tiny"] + 0.2*line["eval/format_tiny"] + 0.1*line["eval/valid_turns_tiny"]
			require.InDelta(t, want, line["eval/reward_tiny"], 1e-9, "evaluations keep the full reward")
			continue
		}
		factors = append(factors, factor)
		want := line["train/em"] + factor*(0.2*line["train/reward_format"]+0.1*line["train/reward_valid_turns"])
		require.InDelta(t, want, line["train/reward_mean"], 1e-9)
	}
	require.Equal(t, []float64{1, 0.5, 0, 0}, factors)
}

func TestOverlongPenaltyIsLoggedByItself(t *testing.T) {
	o := trained(t, tiny(t, "overlong_penalty=0.5", "lr=0")) // a fifth of 12 tokens
	seen := 0.0
	for _, line := range o.metrics {
		if share, ok := line["train/reward_overlong"]; ok {
			seen += share
			require.InDelta(t, line["train/em"]+0.2*line["train/reward_format"]-0.5*share, line["train/reward_mean"], 1e-9)
		}
	}
	require.Positive(t, seen)
}

// Nobody can train on retrieved passages without being told, before the run and in every line of its metrics.
func TestLossMaskOffIsSaidAloud(t *testing.T) {
	rec := record()
	cfg := tiny(t, "loss_mask=false", "steps=2")
	o, err := train(t, t.Context(), cfg, rec)
	require.NoError(t, err)
	require.Contains(t, o.out, "WARNING  loss_mask is false: ")
	require.NotEmpty(t, rec.warnings)
	require.Contains(t, rec.warnings[0], "loss_mask is false")
	trainedTokens := 0.0
	for _, s := range rec.stats {
		require.Contains(t, s, "train/trained_environment_tokens")
		trainedTokens += s["train/trained_environment_tokens"]
	}
	require.Positive(t, trainedTokens)

	rec = record()
	o, err = train(t, t.Context(), tiny(t, "steps=2"), rec)
	require.NoError(t, err)
	require.NotContains(t, o.out, "WARNING")
	require.Empty(t, rec.warnings)
	require.NotContains(t, rec.stats[0], "train/trained_environment_tokens")
}

// rewriteRewards makes the log of a run say that its steps had other rewards.
func rewriteRewards(t *testing.T, dir string, reward func(step int) float64) {
	t.Helper()
	path := filepath.Join(dir, learn.MetricsName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out bytes.Buffer
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var values map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &values))
		values["train/reward_mean"], values["train/reward_std"] = reward(int(values["step"].(float64))), 0.01
		line, err := json.Marshal(values)
		require.NoError(t, err)
		out.Write(append(line, '\n'))
	}
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
}

// A run whose log shows a good start and two bad steps is resumed: with the third bad one it has collapsed, which only an
// alarm that remembers the steps before can know. It ends with the step saved and an error that commands can tell.
func TestCollapsedRunStopsWithItsLastStepSaved(t *testing.T) {
	settings := []string{"eval_every=0", "eval_at_start=false", "save_every=100", "lr=0", "stop_on_collapse=true",
		"prompts_per_step=4"}
	dir := filepath.Join(t.TempDir(), "run")
	trained(t, tinyIn(t, dir, append(settings, "steps=9")...))
	rewriteRewards(t, dir, func(step int) float64 {
		if step > 7 {
			return 0
		}
		return 3
	})
	rec := record()
	_, err := train(t, t.Context(), tinyIn(t, dir, append(settings, "steps=30")...), rec)
	require.ErrorIs(t, err, learn.ErrCollapsed)
	require.ErrorContains(t, err, "at step 10 (the reward has collapsed: ")
	require.ErrorContains(t, err, checkpoint.BestName)
	require.Contains(t, checkpoints(t, dir), "step-000010")
	require.Len(t, rec.stats, 1)
	require.Contains(t, rec.warnings[0], "the reward has collapsed")

	rec = record()
	_, err = train(t, t.Context(), tinyIn(t, dir, append(settings, "steps=12", "stop_on_collapse=false")...), rec)
	require.NoError(t, err, "it may be gone on with")
	require.Len(t, rec.stats, 2)
}

// Without evaluations the best checkpoint is the one with the best training reward over the steps before it.
func TestBestCheckpointWithoutEvaluationsIsByTrainingReward(t *testing.T) {
	settings := []string{"eval_every=0", "eval_at_start=false", "save_every=2", "keep_last=1", "lr=0", "seed=3"}
	cfg := tiny(t, append(settings, "steps=14")...)
	o := trained(t, cfg)
	var rewards []float64
	for _, line := range o.metrics {
		rewards = append(rewards, line["train/reward_mean"])
	}
	bestStep, bestValue := 0, math.Inf(-1)
	for step := 2; step <= 14; step += 2 {
		sum := 0.0
		recent := rewards[max(0, step-5):step]
		for _, r := range recent {
			sum += r
		}
		if mean := sum / float64(len(recent)); mean > bestValue {
			bestStep, bestValue = step, mean
		}
	}
	require.Less(t, bestStep, 14, "the test needs a best step that is not the last")
	best, _, ok, err := checkpoint.Best(filepath.Join(cfg.RunDir, "checkpoints"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, checkpoint.BestCheckpoint{Format: best.Format, Step: bestStep, Metric: "train/reward_mean",
		Value: bestValue}, best)
	require.ElementsMatch(t, []string{checkpoint.BestName, checkpoint.Name(bestStep), "step-000014"}, checkpoints(t, cfg.RunDir))

	dir := filepath.Join(t.TempDir(), "run")
	trained(t, tinyIn(t, dir, append(settings, "steps=5")...))
	trained(t, tinyIn(t, dir, append(settings, "steps=14")...))
	resumed, _, _, err := checkpoint.Best(filepath.Join(dir, "checkpoints"))
	require.NoError(t, err)
	require.Equal(t, best, resumed)
	none := tiny(t, append(settings, "steps=2", "best_metric=")...)
	trained(t, none)
	require.NotContains(t, checkpoints(t, none.RunDir), checkpoint.BestName)
}
