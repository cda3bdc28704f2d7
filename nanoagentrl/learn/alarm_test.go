package learn

import (
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// healthy are the metrics of a step in which nothing is wrong.
func healthy() Stats {
	return Stats{"train/reward_mean": 0.6, "train/reward_std": 0.4, "train/entropy": 1, "train/kl": 0.02,
		"train/clipped_ratio": 0.05, "train/invalid_format_rate": 0.05, "train/num_searches": 1,
		"train/zero_signal_group_frac": 0.3, "train/non_finite_updates": 0}
}

// run shows an alarm n healthy steps, then m with changes, and returns what it told, by step.
func (a *alarm) run(n, m int, changes Stats) map[int][]finding {
	told := map[int][]finding{}
	for step := 1; step <= n+m; step++ {
		stats := healthy()
		if step > n {
			maps.Copy(stats, changes)
		}
		if news := a.see(step, stats); news != nil {
			told[step] = news
		}
	}
	return told
}

func alarmOf(changes ...string) *alarm {
	cfg := config.Default()
	if _, err := cfg.SetAll(changes); err != nil {
		panic(err)
	}
	return newAlarm(cfg)
}

// A token budget that cuts nearly every episode off once passed unnoticed for a whole run.
func TestFiveStepsOfMostlyClippedEpisodesGiveAWarning(t *testing.T) {
	a := alarmOf()
	var warned []int
	for step, ratio := range []float64{0.9, 0.9, 0.9, 0.9, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.1} {
		stats := healthy()
		stats["train/clipped_ratio"] = ratio
		for _, f := range a.see(step+1, stats) {
			require.Contains(t, f.text, "more than 50 %")
			require.Contains(t, f.text, "max_new_tokens")
			require.False(t, f.collapse)
			warned = append(warned, step)
		}
	}
	require.Equal(t, []int{9, 14}, warned, "exactly half is not too much, and starts the count anew")
}

func TestHealthyAndNoisyRunsRaiseNoAlarm(t *testing.T) {
	require.Empty(t, alarmOf().run(100, 0, nil))
	rng := rand.New(rand.NewPCG(81, 82))
	for range 20 {
		a := alarmOf("prompts_per_step=4")
		for step := 1; step <= 100; step++ {
			stats, solved := healthy(), 0.0
			for range 4 {
				solved += float64(rng.IntN(2)) / 4 // whole questions solved or not: as noisy as it gets
			}
			stats["train/reward_mean"], stats["train/reward_std"] = solved, 0.5
			require.Empty(t, a.see(step, stats))
		}
	}
}

// A run that learned and then lost it: the alarm says so within a window, and names what moved with the reward.
func TestCollapseNamesItsLikelyCause(t *testing.T) {
	for _, c := range []struct {
		cause, remedy string
		changes       Stats
		cfg           []string
	}{
		{"loss_mask is false", "Remove the key", Stats{}, []string{"loss_mask=false"}},
		{"not finite", "Lower lr", Stats{"train/non_finite_updates": 1}, nil},
		{"until max_new_tokens cuts them off", "overlong_penalty", Stats{"train/clipped_ratio": 0.6}, nil},
		{"loses the form", "reward_format", Stats{"train/invalid_format_rate": 0.7}, nil},
		{"no longer searches", "raise kl_coef", Stats{"train/num_searches": 0.1}, nil},
		{"narrowed to a few texts", "clip_high", Stats{"train/entropy": 0.1}, nil},
		{"dissolves into noise", "Lower lr", Stats{"train/entropy": 3}, nil},
		{"far from its reference", "Raise kl_coef", Stats{"train/kl": 2}, nil},
		{"No other metric moved", "samples.jsonl", Stats{}, nil},
		{"No other metric moved", "samples.jsonl", Stats{"train/kl": math.NaN(), "train/entropy": math.NaN()}, nil},
	} {
		changes := maps.Clone(c.changes)
		changes["train/reward_mean"], changes["train/reward_std"] = 0.05, 0.2
		told := alarmOf(c.cfg...).run(20, 8, changes)
		first := 0
		for step := 28; step > 20; step-- {
			if len(told[step]) > 0 && told[step][0].collapse {
				first = step
			}
		}
		require.Greater(t, first, 21, "one bad step is no collapse")
		require.LessOrEqual(t, first, 25, c.cause)
		require.Len(t, told[first], 1, "the symptoms are its causes and are not told beside it")
		text := told[first][0].text
		require.Contains(t, text, "the reward has collapsed: ")
		require.Contains(t, text, "after 0.6 over the 5 up to step 5")
		require.Contains(t, text, c.cause)
		require.Contains(t, text, c.remedy)
		require.NotContains(t, text, "\n")
	}
}

func TestRewardThatFallsALittleOrByChanceIsNoCollapse(t *testing.T) {
	require.Empty(t, alarmOf().run(20, 20, Stats{"train/reward_mean": 0.4}), "two thirds of the best")
	few := alarmOf("prompts_per_step=1")
	require.Empty(t, few.run(20, 20, Stats{"train/reward_mean": 0.3, "train/reward_std": 0.45}),
		"with one question a step this may be chance")
	negative := alarmOf()
	for step := range 30 {
		stats := healthy()
		stats["train/reward_mean"] = -0.1 - 0.02*float64(step)
		require.Empty(t, negative.see(step, stats), "there was nothing to lose")
	}
}

func TestSymptomsAreToldBeforeTheRewardFalls(t *testing.T) {
	for _, c := range []struct {
		name, text string
		changes    Stats
	}{
		{"kl", "has risen from 0.02 to", Stats{"train/kl": 1}},
		{"entropy", "no longer explores", Stats{"train/entropy": 0.05}},
		{"searches", "all but stopped searching", Stats{"train/num_searches": 0.02}},
		{"flat", "too hard for the policy or the reward is too coarse", Stats{"train/zero_signal_group_frac": 0.95}},
		{"not finite", "not finite: lower lr", Stats{"train/non_finite_updates": 1}},
		{"solved", "nothing left to learn", Stats{"train/zero_signal_group_frac": 0.95, "train/reward_mean": 0.98}},
	} {
		told := alarmOf().run(20, 6, c.changes)
		var names []string
		for _, news := range told {
			for _, f := range news {
				require.False(t, f.collapse)
				require.Contains(t, f.text, c.text)
				names = append(names, f.name)
			}
		}
		require.Equal(t, []string{c.name}, names, "told once in six steps")
	}
	told := alarmOf().run(20, 20, Stats{"train/entropy": 0.05, "train/reward_mean": 0.97})
	require.Empty(t, told, "a policy that is always right needs no entropy")
}

func TestWhatLastsIsToldEveryFiveSteps(t *testing.T) {
	told := alarmOf().run(10, 20, Stats{"train/num_searches": 0.01})
	require.Contains(t, told, 15)
	require.Equal(t, []int{15, 20, 25, 30}, sortedKeys(told))
}

func sortedKeys(told map[int][]finding) (steps []int) {
	for step := range 1000 {
		if _, ok := told[step]; ok {
			steps = append(steps, step)
		}
	}
	return steps
}

// An alarm rebuilt from the log knows what the first one knew: it tells the same from then on, NaN included.
func TestAlarmIsRebuiltFromTheLog(t *testing.T) {
	steps := func(step int) Stats {
		stats := healthy()
		if step > 12 {
			stats["train/reward_mean"], stats["train/reward_std"], stats["train/kl"] = 0.01, 0.1, math.NaN()
		}
		return stats
	}
	straight := alarmOf()
	for stop := 1; stop <= 24; stop++ {
		dir := t.TempDir()
		log := openLog(t, dir, 0)
		first := alarmOf()
		for step := 1; step <= stop; step++ {
			first.see(step, steps(step))
			require.NoError(t, log.Metrics(step, steps(step)))
			require.NoError(t, log.Metrics(step, Stats{"eval/em": 0, evalSeconds + "x": 1}))
		}
		resumed := &Trainer{Config: config.Default(), Log: openLog(t, dir, stop)}
		require.NoError(t, resumed.rememberSteps())
		require.Equal(t, first.numbers, resumed.alarm.numbers)
		require.Equal(t, first.told, resumed.alarm.told)
		require.Equal(t, first.see(stop+1, steps(stop+1)), resumed.alarm.see(stop+1, steps(stop+1)), "after %d steps", stop)
		straight.see(stop, steps(stop))
	}
	require.Contains(t, straight.told, "collapse")
}

func TestStepsWithoutEpisodesAreNotCounted(t *testing.T) {
	a := alarmOf()
	require.Empty(t, a.see(1, Stats{"train/updates": 0}))
	require.Empty(t, a.steps)
	require.True(t, math.IsNaN(a.recent(rewardMetric)))
	a.see(2, healthy())
	require.InDelta(t, 0.6, a.recent(rewardMetric), 1e-12, "over the steps there are")
}

func TestEveryFindingSaysWhatToChange(t *testing.T) {
	for _, changes := range []Stats{{"train/kl": 1}, {"train/entropy": 0.01}, {"train/num_searches": 0},
		{"train/zero_signal_group_frac": 1}, {"train/clipped_ratio": 1}, {"train/non_finite_updates": 1}} {
		for _, news := range alarmOf().run(10, 6, changes) {
			for _, f := range news {
				require.Regexp(t, "[Ll]ower lr|[Rr]aise|[Tt]ake", f.text)
				require.False(t, strings.HasSuffix(f.text, " "))
			}
		}
	}
}
