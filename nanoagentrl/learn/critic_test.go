package learn

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

var criticAdam = AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}

// The critic of a fixed set of episodes learns what they are worth, and the policy stays where it is.
func TestCriticLearnsToPredictReturns(t *testing.T) {
	s := newSetting(t, testdevice.Open(t, device.Go), "ppo", criticAdam, func(o *Options) {
		o.Loss.KLCoef, o.Advantage.Gamma, o.Advantage.Lambda = 0, 1, 1
	})
	s.critic.clip = 0
	episodes := twoGroups(t, s.policy, 0)
	start := values(t, s.policy)
	step := func() Stats {
		stats, err := s.learner.UpdateAt(t.Context(), episodes, Rates{Critic: 0.02})
		require.NoError(t, err)
		require.Equal(t, 0.02, stats["train/critic_lr"])
		require.Equal(t, 1.0, stats["train/critic_updates"])
		return stats
	}
	first := step()
	var last Stats
	for range 40 {
		last = step()
	}
	// The first token of each group is predicted from the same prompt for all its episodes: what remains is their spread.
	require.Less(t, last["train/value_loss"], first["train/value_loss"]/3)
	require.Greater(t, last["train/explained_variance"], 0.6)
	require.Less(t, first["train/explained_variance"], 0.2)
	require.InDelta(t, last["train/return_mean"], last["train/value_mean"], 0.05)
	require.Equal(t, start, values(t, s.policy), "with learning rate 0")
}

// The clip holds against values from before the step, so it can only bite from the second inner epoch on.
func TestValueClipBitesFromTheSecondInnerEpochOn(t *testing.T) {
	clipped := func(epochs int) float64 {
		s := newSetting(t, testdevice.Open(t, device.Go), "ppo", criticAdam, func(o *Options) { o.InnerEpochs = epochs })
		s.critic.clip = 0.01
		stats, err := s.learner.UpdateAt(t.Context(), twoGroups(t, s.policy, 0), Rates{Critic: 0.05})
		require.NoError(t, err)
		require.Equal(t, float64(epochs), stats["train/critic_updates"])
		return stats["train/value_clip_frac"]
	}
	require.Zero(t, clipped(1))
	require.Greater(t, clipped(2), 0.1)
}

// An episode whose reward is not finite teaches the critic nothing: whatever stands in it, the others teach the same.
func TestCriticLearnsNothingFromNonFiniteRewards(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	after := func(reward float64, tokens ...int) [][]float32 {
		s := newSetting(t, dev, "ppo", rawGradients, func(o *Options) { o.Loss.KLCoef, o.KLInReward = 0, false })
		episodes := twoGroups(t, s.policy, 0)
		episodes[2] = newEpisode(0, 2, reward, prompt(4, 5), wrote(tokens...))
		stats := update(t, s.learner, episodes, 0.05)
		require.Equal(t, 1.0, stats["train/non_finite_rewards"])
		require.Equal(t, 1.0, stats["train/critic_updates"])
		require.Zero(t, stats["train/critic_non_finite_updates"])
		return criticValues(t, s.critic)
	}
	want := after(math.NaN(), 6, 6, 6, 3)
	require.Equal(t, want, after(math.Inf(1), 9, 10, 11, 9))
}

// A critic that was saved and loaded goes on as if it had not been, with its moments and its number of updates, and one
// without them does not.
func TestSavedCriticGoesOnExactly(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	make2 := func() *setting { return newSetting(t, dev, "ppo", criticAdam, nil) }
	step := func(s *setting) Stats {
		stats, err := s.learner.UpdateAt(t.Context(), twoGroups(t, s.policy, 0), Rates{Critic: 0.05})
		require.NoError(t, err)
		return stats
	}
	straight := make2()
	step(straight)
	dir := t.TempDir()
	require.NoError(t, straight.critic.SaveState(dir))
	updates := straight.critic.Step()
	want := step(straight)

	resumed := make2()
	require.NoError(t, resumed.critic.LoadState(dir, updates))
	require.Equal(t, want, step(resumed))
	require.Equal(t, criticValues(t, straight.critic), criticValues(t, resumed.critic))

	cold := make2()
	require.NoError(t, cold.critic.LoadState(dir, updates))
	cold.critic.optimizer = newAdamW(t, cold.policy, criticAdam)
	cold.critic.optimizer.m = append(cold.critic.optimizer.m, nil, nil)
	cold.critic.optimizer.v = append(cold.critic.optimizer.v, nil, nil)
	step(cold)
	require.NotEqual(t, criticValues(t, straight.critic), criticValues(t, cold.critic))

	require.NoError(t, os.Remove(filepath.Join(dir, criticName)))
	require.ErrorContains(t, make2().critic.LoadState(dir, updates), criticName)
}

// A step whose first weight update, of the policy or of the critic, is made is made to its end.
func TestInterruptedStepOfPPOIsDroppedWholeOrFinished(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	run := func(lives int) (policy, critic [][]float32, asked int, err error) {
		s := newSetting(t, dev, "ppo", criticAdam, func(o *Options) { o.Minibatches, o.MicroBatchTokens = 2, 64 })
		ctx := &endingContext{Context: t.Context(), lives: lives}
		_, err = s.learner.Update(ctx, twoGroups(t, s.policy, 0), 0.05)
		return values(t, s.policy), criticValues(t, s.critic), ctx.asked, err
	}
	whole, wholeCritic, asked, err := run(1 << 30)
	require.NoError(t, err)
	require.Greater(t, asked, 4)
	s := newSetting(t, dev, "ppo", criticAdam, nil)
	start, startCritic := values(t, s.policy), criticValues(t, s.critic)
	require.NotEqual(t, startCritic, wholeCritic)
	for lives := range asked {
		policy, critic, _, err := run(lives)
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, start, policy)
			require.Equal(t, startCritic, critic)
			continue
		}
		require.GreaterOrEqual(t, lives, 3, "the scoring pass and the first micro-batch can be interrupted")
		require.Equal(t, whole, policy)
		require.Equal(t, wholeCritic, critic)
	}
}
