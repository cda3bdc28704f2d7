package learn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

// unmasked turns the loss mask off.
func unmasked(o *Options) { o.TrainEnvironment = true }

// With the loss mask off, retrieved tokens are trained like those of the policy: with the advantage of their episode and
// ratio 1 in the first inner step, whatever stands in their place in LogProbs.
func TestLossMaskOffTrainsRetrievedTokensWithRatioOne(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	for _, name := range []string{"grpo", "ppo", "reinforce_pp", "gspo"} {
		s := newSetting(t, dev, name, rawGradients, unmasked)
		episodes := twoGroups(t, s.policy, 0)
		for _, e := range episodes {
			for i, source := range e.Sources {
				if source != episode.Policy {
					e.LogProbs[i] = float32(math.NaN())
				}
			}
		}
		stats := update(t, s.learner, episodes, 0)
		require.Equal(t, 26.0+7, stats["train/trained_tokens"], name)
		require.Equal(t, 7.0, stats["train/trained_environment_tokens"], name)
		require.InDelta(t, 1, stats["train/ratio_mean"], 1e-6, name)
		require.Zero(t, stats["train/clip_frac"], name)
		require.Positive(t, stats["train/grad_norm"], name)
		if name == "grpo" {
			require.Nil(t, episodes[0].Advantages, "all trained tokens have the same")
			require.NotZero(t, episodes[0].Advantage)
		}
		if name == "ppo" {
			require.NotZero(t, episodes[0].Advantages[4], "a retrieved token has an advantage of its own")
			require.Zero(t, episodes[0].Advantages[1], "a prompt's has not")
		}
	}
}

// The gradient with the mask off is that of the same episodes had the policy written the retrieved tokens itself.
func TestLossMaskOffIsAsIfThePolicyHadWrittenEverything(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	for name := range algorithms {
		s := newSetting(t, dev, name, rawGradients, unmasked)
		update(t, s.learner, twoGroups(t, s.policy, 0), 0)
		want := newSetting(t, dev, name, rawGradients, nil)
		rewritten := twoGroups(t, want.policy, 0)
		for _, e := range rewritten {
			for i, source := range e.Sources {
				if source == episode.Environment {
					e.Sources[i] = episode.Policy
				}
			}
		}
		record(t, want.policy, rewritten, 0)
		update(t, want.learner, rewritten, 0)
		requireNear(t, firstMoments(t, want.optimizer), firstMoments(t, s.optimizer), 5e-6, name)
	}
}

func TestLossMaskOnNeverTrainsARetrievedToken(t *testing.T) {
	s := newSetting(t, testdevice.Open(t, device.Go), "grpo", rawGradients, nil)
	episodes := twoGroups(t, s.policy, 0)
	for _, sample := range s.learner.samples(episodes) {
		for _, at := range sample.places {
			require.Equal(t, episode.Policy, sample.ep.Sources[at])
		}
	}
	require.NotContains(t, update(t, s.learner, episodes, 0), "train/trained_environment_tokens")
}
