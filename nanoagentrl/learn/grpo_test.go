package learn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/generate"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// sampled are episodes of a few tokens that the policy sampled after two prompts, all with the same reward.
func sampled(t *testing.T, p *policy.Policy, perGroup int) []*episode.Episode {
	t.Helper()
	var episodes []*episode.Episode
	var seqs []*generate.Sequence
	for group, ids := range [][]int{{4, 5}, {9, 10, 11}} {
		for sample := range perGroup {
			seqs = append(seqs, generate.NewSequence(ids, uint64(100*group+sample)))
			e := newEpisode(group, sample, 1, prompt(ids...))
			episodes = append(episodes, e)
		}
	}
	g := p.Generator(64)
	require.NoError(t, g.Generate(t.Context(), seqs, generate.Options{MaxNew: 4, Temperature: 1}))
	g.Release(seqs)
	for i, s := range seqs {
		episodes[i].Append(episode.Policy, s.NewIDs, s.LogProbs)
	}
	return episodes
}

// exactKL returns KL(policy||reference) at the first tokens of an answer, with the whole distribution over the
// vocabulary: after each prompt, and after each first token weighted with its probability.
func exactKL(t *testing.T, p, reference *policy.Policy, prompts [][]int) float64 {
	t.Helper()
	next := func(p *policy.Policy, prefix []int) []float64 {
		rows := make([]nn.Row, vocabulary)
		for id := range rows {
			rows[id] = nn.Row{IDs: append(append([]int{}, prefix...), id), Mask: append(make([]uint8, len(prefix)), 1)}
		}
		batch, err := nn.NewBatch(rows, 16, false)
		require.NoError(t, err)
		logp, _, err := p.Program.LogProbs(p.Params, batch, 1)
		require.NoError(t, err)
		return float64s(logp)
	}
	total := 0.0
	for _, prefix := range prompts {
		a, b := next(p, prefix), next(reference, prefix)
		for id := range a {
			total += math.Exp(a[id]) * (a[id] - b[id])
			c, d := next(p, append(append([]int{}, prefix...), id)), next(reference, append(append([]int{}, prefix...), id))
			for second := range c {
				total += math.Exp(a[id]) * math.Exp(c[second]) * (c[second] - d[second])
			}
		}
	}
	return total
}

// With β > 0 and no difference in reward, all that an update does is to bring the policy towards the reference.
func TestPenaltyAloneLowersTheKL(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p, reference := tiny(t, dev, 1), tiny(t, dev, 2)
	opts := options()
	opts.Loss.KLCoef, opts.MicroBatchTokens = 0.1, 32*16
	l, o := learner(t, p, reference, rawGradients, opts)
	prompts := [][]int{{4, 5}, {9, 10, 11}}
	episodes := sampled(t, p, 32)
	before := exactKL(t, p, reference, prompts)
	stats := update(t, l, episodes, 0.002)
	require.Equal(t, 1.0, stats["train/zero_signal_group_frac"])
	require.Positive(t, stats["train/grad_norm"])
	require.Positive(t, stats["train/kl"])
	require.Positive(t, stats["train/kl_loss"])
	require.Zero(t, stats["train/policy_loss"])
	require.Equal(t, 1, o.Step())
	require.Less(t, exactKL(t, p, reference, prompts), 0.97*before)
	again := update(t, l, episodes, 0)
	require.Less(t, again["train/kl"], stats["train/kl"], "the estimate on the sampled tokens falls as well")
}

func TestNoSignalAndNoPenaltyChangesNothing(t *testing.T) {
	p := tiny(t, testdevice.Open(t, device.Go), 1)
	l, o := learner(t, p, nil, rawGradients, options())
	before := values(t, p)
	stats := update(t, l, sampled(t, p, 4), 0.1)
	require.Equal(t, before, values(t, p))
	require.Zero(t, o.Step())
	require.Equal(t, 1.0, stats["train/skipped_updates"])
	require.Zero(t, stats["train/updates"])
	require.Equal(t, 1.0, stats["train/zero_signal_group_frac"])
	for _, name := range []string{"train/grad_norm", "train/kl", "train/entropy", "train/ratio_mean"} {
		value, ok := stats[name]
		require.True(t, ok && math.IsNaN(value), "%s was not measured", name)
	}
}

// The policy that is updated first is the one that sampled: nothing is clipped, the loss is 0 for episodes of one
// length, and yet there is a gradient.
func TestFirstUpdateHasRatioOneLossZeroAndAGradient(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := tiny(t, dev, 1)
	episodes := []*episode.Episode{
		newEpisode(0, 0, 1, prompt(4, 5), wrote(6, 7, 8)), newEpisode(0, 1, 0, prompt(4, 5), wrote(9, 9, 3)),
		newEpisode(0, 2, 0, prompt(4, 5), wrote(6, 6, 6)), newEpisode(0, 3, 1, prompt(4, 5), wrote(10, 4, 3)),
	}
	record(t, p, episodes, 0)
	l, _ := learner(t, p, nil, rawGradients, options())
	stats := update(t, l, episodes, 0.05)
	require.InDelta(t, 1, stats["train/ratio_mean"], 1e-6)
	require.InDelta(t, 0, stats["train/policy_loss"], 1e-6)
	require.Zero(t, stats["train/clip_frac"])
	require.Greater(t, stats["train/grad_norm"], 0.05)
}

func TestLogProbsOfTheGeneratorGiveRatioOne(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := tiny(t, dev, 1)
	opts := options()
	opts.MicroBatchTokens = 16 * 16
	l, _ := learner(t, p, nil, rawGradients, opts)
	episodes := sampled(t, p, 8)
	for i, e := range episodes {
		e.Reward = float64(i % 2)
	}
	stats := update(t, l, episodes, 0)
	require.InDelta(t, 1, stats["train/ratio_mean"], 1e-5)
	require.Zero(t, stats["train/clip_frac"])
}

func TestSecondInnerEpochSeesTheMovedPolicy(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	run := func(epochs int) (Stats, [][]float32) {
		p := tiny(t, dev, 1)
		opts := options()
		opts.InnerEpochs = epochs
		l, _ := learner(t, p, nil, AdamWOptions{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}, opts)
		stats := update(t, l, twoGroups(t, p, 0), 0.02)
		return stats, values(t, p)
	}
	one, afterOne := run(1)
	two, afterTwo := run(2)
	require.InDelta(t, 1, one["train/ratio_mean"], 1e-6)
	require.Equal(t, 2.0, two["train/updates"])
	second := 2*two["train/ratio_mean"] - one["train/ratio_mean"] // the mean is over both
	require.Greater(t, math.Abs(second-1), 1e-3)
	require.NotEqual(t, afterOne, afterTwo)
}

// A prompt of which all episodes were thrown away, or that has no token of the policy at all, gives no NaN.
func TestStepWithoutPolicyTokensIsSkippedWithoutNaNInTheWeights(t *testing.T) {
	p := tiny(t, testdevice.Open(t, device.Go), 1)
	opts := options()
	opts.Loss.KLCoef = 0.1
	l, o := learner(t, p, tiny(t, p.Program.Device(), 2), rawGradients, opts)
	before := values(t, p)
	for _, episodes := range [][]*episode.Episode{
		nil,
		{newEpisode(0, 0, 1, prompt(4, 5)), newEpisode(0, 1, 0, prompt(4, 5), env(6, 7))},
	} {
		stats := update(t, l, episodes, 0.1)
		require.Zero(t, stats["train/updates"])
		require.Zero(t, stats["train/trained_tokens"])
	}
	require.Equal(t, before, values(t, p))
	require.Zero(t, o.Step())
}

func TestNonFiniteGradientIsSkippedAndCounted(t *testing.T) {
	p := tiny(t, testdevice.Open(t, device.Go), 1)
	opts := options()
	opts.Minibatches = 2
	l, o := learner(t, p, nil, rawGradients, opts)
	episodes := twoGroups(t, p, 0)
	episodes[0].LogProbs[2] = float32(math.NaN()) // a policy token of the first group
	stats := update(t, l, episodes, 0.05)
	require.Equal(t, 1.0, stats["train/non_finite_updates"])
	require.Equal(t, 1.0, stats["train/updates"], "the other minibatch is not affected")
	require.Equal(t, 1, o.Step())
	for _, tensor := range values(t, p) {
		for _, v := range tensor {
			require.False(t, math.IsNaN(float64(v)))
		}
	}
}

func TestNonFiniteRewardIsCountedAndHarmsNobody(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	p := tiny(t, dev, 1)
	l, _ := learner(t, p, nil, rawGradients, options())
	episodes := twoGroups(t, p, 0)
	episodes[1].Reward = math.NaN()
	stats := update(t, l, episodes, 0.05)
	require.Equal(t, 1.0, stats["train/non_finite_rewards"])
	require.Equal(t, 1.0, stats["train/updates"])
	require.Zero(t, episodes[1].Advantage)
	require.Positive(t, episodes[0].Advantage)
}

// All turns of a merged trajectory reach the loss: 3 turns of 100 policy tokens are 300.
func TestAllTurnsOfALongEpisodeReachTheLoss(t *testing.T) {
	p := tiny(t, testdevice.Open(t, device.Go), 1)
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 4 + i%8
	}
	long := newEpisode(0, 0, 1, prompt(4, 5), wrote(hundred...), env(6, 7), wrote(hundred...), env(8), wrote(hundred...))
	episodes := []*episode.Episode{long, newEpisode(0, 1, 0, prompt(4, 5), wrote(3))}
	record(t, p, episodes, 0)
	opts := options()
	l, o := learner(t, p, nil, rawGradients, opts)
	require.Equal(t, 301.0, update(t, l, episodes, 0)["train/trained_tokens"])

	hand := &byHand{t: t, episodes: episodes, weights: []float64{1.0 / 301, 1.0 / 301},
		advantages: []float64{math.Sqrt(0.5), -math.Sqrt(0.5)}, loss: opts.Loss}
	requireNear(t, hand.gradient(p), firstMoments(t, o), 2e-6, "merged trajectory")
}
