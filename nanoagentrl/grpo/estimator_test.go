package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var everyEstimator = []Estimator{Group, RLOO, ReinforcePP, ReinforcePPBaseline, GAE}

func estimate(t *testing.T, e Estimator, batch []Trajectory, opts AdvantageOptions) *Estimates {
	t.Helper()
	out, err := e.Estimate(batch, opts)
	require.NoError(t, err)
	require.Len(t, out.Advantages, len(batch))
	for i := range batch {
		require.Len(t, out.Advantages[i], len(batch[i].Mask))
		for at, isPolicy := range batch[i].Mask {
			if !isPolicy {
				require.Zero(t, out.Advantages[i][at])
			}
		}
	}
	return out
}

// episodes makes trajectories of one policy token each, with the critic's value 0.
func episodes(rewards []float64, groups []int) (batch []Trajectory) {
	for i, reward := range rewards {
		batch = append(batch, Trajectory{Group: groups[i], Reward: reward, Mask: []bool{true}, Values: []float64{0}})
	}
	return batch
}

// first are the advantages of the first tokens.
func first(e *Estimates) (values []float64) {
	for _, row := range e.Advantages {
		values = append(values, row[0])
	}
	return values
}

func TestRLOOAndGRPOAndCentredOfEightWithThreeRight(t *testing.T) {
	batch := episodes([]float64{1, 1, 1, 0, 0, 0, 0, 0}, make([]int, 8))
	for _, c := range []struct {
		estimator    Estimator
		opts         AdvantageOptions
		right, wrong float64
	}{
		{RLOO, DefaultAdvantageOptions(), 5.0 / 7, -3.0 / 7}, // 0.7143, -0.4286
		{Group, AdvantageOptions{}, 0.625, -0.375},
		{Group, DefaultAdvantageOptions(), 1.2076, -0.7246},
	} {
		adv := first(estimate(t, c.estimator, batch, c.opts))
		assert.InDelta(t, c.right, adv[0], 5e-5, c.estimator)
		assert.InDelta(t, c.wrong, adv[7], 5e-5, c.estimator)
	}
	adv := first(estimate(t, RLOO, episodes([]float64{1, 0, 0, 0}, make([]int, 4)), AdvantageOptions{}))
	assert.InDeltaSlice(t, []float64{1, -1.0 / 3, -1.0 / 3, -1.0 / 3}, adv, 1e-12)
}

// The reward of an episode may be compared with anything but passed on raw: with nothing to compare it is 0.
func TestGroupOfOneNeverPassesTheRawReward(t *testing.T) {
	single := episodes([]float64{5}, []int{3})
	for _, e := range []Estimator{Group, RLOO, ReinforcePPBaseline, ReinforcePP} {
		for _, opts := range []AdvantageOptions{DefaultAdvantageOptions(), {Gamma: 1}} {
			out := estimate(t, e, single, opts)
			assert.Equal(t, []float64{0}, first(out), e)
			assert.True(t, out.Stats.NoSignal[0], e)
			assert.Equal(t, 1, out.Stats.SingleGroups, e)
		}
	}
	out := estimate(t, GAE, single, DefaultAdvantageOptions())
	assert.Equal(t, []float64{0}, first(out), "one token cannot be normalised")
	out = estimate(t, GAE, single, AdvantageOptions{Gamma: 1, Lambda: 1})
	assert.Equal(t, []float64{5}, first(out), "a critic that predicts 0 is surprised by 5")
}

func TestReinforcePPNeedsNoGroups(t *testing.T) {
	out := estimate(t, ReinforcePP, episodes([]float64{1, 0, 0, 0}, []int{0, 1, 2, 3}), DefaultAdvantageOptions())
	assert.InDeltaSlice(t, []float64{1.5, -0.5, -0.5, -0.5}, first(out), 1e-5)
	assert.Equal(t, 4, out.Stats.SingleGroups)
	assert.Equal(t, make([]bool, 4), out.Stats.NoSignal)
}

func TestZeroStdGivesAdvantageZeroForEveryEstimator(t *testing.T) {
	flat := episodes([]float64{0.7, 0.7, 0.7, 0.7}, []int{0, 0, 1, 1})
	for _, e := range everyEstimator {
		for _, eps := range []float64{1e-6, 0} {
			out := estimate(t, e, flat, AdvantageOptions{DivideByStd: true, Eps: eps, Gamma: 1, Lambda: 1})
			assert.Equal(t, []float64{0, 0, 0, 0}, first(out), e)
			assert.Equal(t, 2, out.Stats.ZeroSignalGroups, e)
			assert.Equal(t, e != GAE, out.Stats.NoSignal[0], "%s: a critic has still something to learn", e)
		}
	}
}

// A group whose rewards are all equal has advantage 0 also where advantages are scaled over the batch, and whatever the
// lengths of the others: the mean of the batch is not 0 here.
func TestReinforcePPBaselineLeavesZeroSignalGroupsAtZero(t *testing.T) {
	batch := []Trajectory{
		{Group: 0, Reward: 1, Mask: []bool{true}}, {Group: 0, Reward: 0, Mask: []bool{true, true, true}},
		{Group: 1, Reward: 0, Mask: []bool{true}}, {Group: 1, Reward: 0, Mask: []bool{true}},
	}
	out := estimate(t, ReinforcePPBaseline, batch, DefaultAdvantageOptions())
	// Tokens: 0.5, -0.5 x 3, 0, 0; mean -1/6, squares 5/6.
	std := math.Sqrt(5.0/6/5) + 1e-6
	assert.InDelta(t, (0.5+1.0/6)/std, out.Advantages[0][0], 1e-9)
	assert.InDelta(t, (-0.5+1.0/6)/std, out.Advantages[1][2], 1e-9)
	assert.Equal(t, []float64{0}, out.Advantages[2])
	assert.Equal(t, []float64{0}, out.Advantages[3])
	assert.Equal(t, []bool{false, false, true, true}, out.Stats.NoSignal)
}

// The worked example of docs/grpo_math.md.
func TestReinforcePPBaselineScalesOverTheBatch(t *testing.T) {
	batch := episodes([]float64{1, 0, 0, 0, 1, 1, 1, 1}, []int{0, 0, 0, 0, 1, 1, 1, 1})
	adv := first(estimate(t, ReinforcePPBaseline, batch, DefaultAdvantageOptions()))
	assert.InDeltaSlice(t, []float64{2.2913, -0.7638, -0.7638, -0.7638, 0, 0, 0, 0}, adv, 1e-4)
	adv = first(estimate(t, ReinforcePPBaseline, batch, AdvantageOptions{Gamma: 1}))
	assert.InDeltaSlice(t, []float64{0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0}, adv, 1e-12)
}

// The worked example of docs/grpo_math.md: the right answer has two tokens, the wrong one six.
func TestReinforcePPNormalisesOverTheTokensOfTheBatch(t *testing.T) {
	batch := []Trajectory{
		{Group: 0, Reward: 1, Mask: []bool{false, true, true}},
		{Group: 1, Reward: 0, Mask: []bool{true, true, true, false, true, true, true}},
	}
	out := estimate(t, ReinforcePP, batch, DefaultAdvantageOptions())
	assert.InDeltaSlice(t, []float64{0, 1.6202, 1.6202}, out.Advantages[0], 1e-4)
	assert.InDeltaSlice(t, []float64{-.5401, -.5401, -.5401, 0, -.5401, -.5401, -.5401}, out.Advantages[1], 1e-4)
	out = estimate(t, ReinforcePP, batch, AdvantageOptions{Gamma: 1})
	assert.InDelta(t, 0.75, out.Advantages[0][1], 1e-12, "the mean is taken off in any case")
}

func TestOneNaNRewardHarmsNobodyUnderAnyEstimator(t *testing.T) {
	with := episodes([]float64{1, nan, 0, 0}, make([]int, 4))
	without := episodes([]float64{1, 0, 0}, make([]int, 3))
	for _, e := range everyEstimator {
		for _, bad := range []float64{nan, inf, -inf} {
			with[1].Reward = bad
			out := estimate(t, e, with, DefaultAdvantageOptions())
			want := first(estimate(t, e, without, DefaultAdvantageOptions()))
			assert.Equal(t, []float64{want[0], 0, want[1], want[2]}, first(out), e)
			assert.Equal(t, 1, out.Stats.NonFinite, e)
			assert.Equal(t, []bool{false, true, false, false}, out.Stats.NoSignal, e)
			if e == GAE {
				assert.Equal(t, []float64{0}, out.Returns[1], "nothing for the critic to learn")
			}
		}
	}
}

// A reference that broke at one token, or a critic, spoils one episode and not the batch.
func TestOneNaNPenaltyOrValueHarmsNobody(t *testing.T) {
	for _, e := range everyEstimator {
		batch := episodes([]float64{1, 0, 0, 0}, make([]int, 4))
		for i := range batch {
			batch[i].Penalty = []float64{0}
		}
		batch[1].Penalty[0] = nan
		out := estimate(t, e, batch, DefaultAdvantageOptions())
		assert.Equal(t, 1, out.Stats.NonFinite, e)
		assert.Zero(t, out.Advantages[1][0], e)
		assert.Positive(t, out.Advantages[0][0], e)
	}
	batch := episodes([]float64{1, 0, 0, 0}, make([]int, 4))
	batch[1].Values[0] = nan
	out := estimate(t, GAE, batch, DefaultAdvantageOptions())
	assert.Equal(t, 1, out.Stats.NonFinite)
	assert.Equal(t, []float64{0}, out.Advantages[1])
	assert.Positive(t, out.Advantages[0][0])
}

func TestExcludedEpisodesAreAsIfTheyWereNotThere(t *testing.T) {
	batch := episodes([]float64{1, 17, 0, 0.5}, make([]int, 4))
	batch[1].Excluded = true
	for _, e := range everyEstimator {
		out := estimate(t, e, batch, DefaultAdvantageOptions())
		want := first(estimate(t, e, episodes([]float64{1, 0, 0.5}, make([]int, 3)), DefaultAdvantageOptions()))
		assert.Equal(t, []float64{want[0], 0, want[1], want[2]}, first(out), e)
		assert.Equal(t, 1, out.Stats.Excluded, e)
		assert.Zero(t, out.Stats.NonFinite, e)
	}
}

// Returns at policy tokens are [0.5, 1], as if the tool's token between them were not there.
func TestReinforcePPReturnIsNotResetAtToolTokens(t *testing.T) {
	mask := []bool{true, false, true}
	assert.Equal(t, []float64{0.5, 0, 1}, Returns([]float64{0, 0, 1}, mask, 0.5))
	assert.Equal(t, []float64{0.5, 0, 1}, Returns([]float64{0, nan, 1}, mask, 0.5), "its reward is not read")
	assert.Equal(t, []float64{0.5, 1}, Returns([]float64{0, 1}, []bool{true, true}, 0.5))
	// Through the estimator: two policy tokens with the tool's in between, and in another batch without.
	with := estimate(t, ReinforcePP, []Trajectory{{Reward: 1, Mask: mask}}, AdvantageOptions{Gamma: 0.5})
	without := estimate(t, ReinforcePP, []Trajectory{{Reward: 1, Mask: []bool{true, true}}}, AdvantageOptions{Gamma: 0.5})
	assert.Equal(t, without.Advantages[0][0], with.Advantages[0][0])
	assert.Equal(t, without.Advantages[0][1], with.Advantages[0][2])
	assert.InDelta(t, -0.25, with.Advantages[0][0], 1e-12)
}

// The worked example of docs/grpo_math.md: what the critic thinks of a tool's token does not matter, and no time passes.
func TestGAEGoesAcrossToolTokens(t *testing.T) {
	mask := []bool{true, false, true}
	for _, filler := range []float64{0, 7, nan, inf} {
		adv, returns := GeneralisedAdvantages([]float64{0, filler, 1}, []float64{0.5, filler, 0.6}, mask, 0.9, 0.5)
		assert.InDeltaSlice(t, []float64{0.22, 0, 0.4}, adv, 1e-12)
		assert.InDeltaSlice(t, []float64{0.72, 0, 1}, returns, 1e-12)
	}
	adv, returns := GeneralisedAdvantages([]float64{0, 1}, []float64{0.5, 0.6}, []bool{true, true}, 0.9, 0.5)
	assert.InDeltaSlice(t, []float64{0.22, 0.4}, adv, 1e-12, "the same without the tool")
	assert.InDeltaSlice(t, []float64{0.72, 1}, returns, 1e-12)
	adv, returns = GeneralisedAdvantages([]float64{0, 0, 1}, []float64{0.5, 0, 0.6}, mask, 1, 1)
	assert.InDeltaSlice(t, []float64{0.5, 0, 0.4}, adv, 1e-12, "gamma = lambda = 1: the reward less the value")
	assert.InDeltaSlice(t, []float64{1, 0, 1}, returns, 1e-12)
}

// GAE against its definition as a sum over later errors, written out for policy tokens alone.
func TestGAEEqualsTheSumOfDiscountedErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for range 20 {
		n := 1 + rng.IntN(12)
		rewards, values, mask := make([]float64, n), make([]float64, n), make([]bool, n)
		var at []int
		for t := range n {
			rewards[t], values[t], mask[t] = rng.NormFloat64(), rng.NormFloat64(), rng.Float64() < 0.6
			if mask[t] {
				at = append(at, t)
			}
		}
		gamma, lambda := rng.Float64(), rng.Float64()
		adv, _ := GeneralisedAdvantages(rewards, values, mask, gamma, lambda)
		for i, t0 := range at {
			want := 0.0
			for j := i; j < len(at); j++ {
				next := 0.0
				if j+1 < len(at) {
					next = values[at[j+1]]
				}
				want += math.Pow(gamma*lambda, float64(j-i)) * (rewards[at[j]] + gamma*next - values[at[j]])
			}
			assert.InDelta(t, want, adv[t0], 1e-12)
		}
	}
}

func TestPPONormalisesAdvantagesButNotReturns(t *testing.T) {
	batch := []Trajectory{
		{Reward: 1, Mask: []bool{true, false, true}, Values: []float64{0.5, 9, 0.6}},
		{Reward: 0, Mask: []bool{true}, Values: []float64{0.2}},
	}
	opts := DefaultAdvantageOptions()
	out := estimate(t, GAE, batch, opts)
	raw := []float64{0.5, 0.4, -0.2}
	b := newBaseline(raw)
	assert.InDelta(t, (0.5-b.mean)/(b.std+1e-6), out.Advantages[0][0], 1e-12)
	assert.InDelta(t, (0.4-b.mean)/(b.std+1e-6), out.Advantages[0][2], 1e-12)
	assert.InDelta(t, (-0.2-b.mean)/(b.std+1e-6), out.Advantages[1][0], 1e-12)
	assert.InDeltaSlice(t, []float64{1, 0, 1}, out.Returns[0], 1e-12)
	opts.DivideByStd = false
	out = estimate(t, GAE, batch, opts)
	assert.InDeltaSlice(t, []float64{0.5, 0, 0.4}, out.Advantages[0], 1e-12, "the critic is the baseline")
}

// What stands at tokens of the environment, and how many there are, changes nothing.
func TestEnvironmentTokensAddNothingToAnyAdvantage(t *testing.T) {
	mask := []bool{false, true, true, false, false, true, false}
	compact := []bool{true, true, true}
	for _, e := range everyEstimator {
		make2 := func(mask []bool, filler float64) []Trajectory {
			var batch []Trajectory
			for i, reward := range []float64{1, 0.25, 0} {
				tr := Trajectory{Reward: reward, Mask: mask}
				n := 0
				for _, isPolicy := range mask {
					penalty, value := filler, filler
					if isPolicy {
						n++
						penalty, value = 0.01*float64(i*n), 0.1*float64(n+i)
					}
					tr.Penalty, tr.Values = append(tr.Penalty, penalty), append(tr.Values, value)
				}
				batch = append(batch, tr)
			}
			return batch
		}
		opts := AdvantageOptions{DivideByStd: true, Eps: 1e-6, Gamma: 0.9, Lambda: 0.8}
		want := estimate(t, e, make2(compact, 0), opts)
		for _, filler := range []float64{0, 1e9, nan, -inf} {
			got := estimate(t, e, make2(mask, filler), opts)
			for i := range got.Advantages {
				assert.Equal(t, want.Advantages[i], []float64{got.Advantages[i][1], got.Advantages[i][2], got.Advantages[i][5]},
					"%s filler %v", e, filler)
			}
			assert.Equal(t, want.Stats, got.Stats, e)
		}
	}
}

// A KL penalty in the reward: per token where there are returns, in sum where an episode is compared as a whole.
func TestKLInTheRewardIsTakenOffPolicyTokensOnly(t *testing.T) {
	mask := []bool{true, false, true}
	penalty, err := K1.Penalties([]float64{-1, nan, -2}, []float64{-2, 5, -4}, mask, 0.1)
	require.NoError(t, err)
	assert.InDeltaSlice(t, []float64{0.1, 0, 0.2}, penalty, 1e-12)
	tr := Trajectory{Reward: 1, Mask: mask, Penalty: penalty, Values: []float64{0, 0, 0}}
	assert.InDelta(t, 0.7, tr.total(), 1e-12)
	assert.InDeltaSlice(t, []float64{0.7, 0, 0.8}, Returns(tr.tokenRewards(), mask, 1), 1e-12)
	tr.Penalty = []float64{0.1, 1e9, 0.2}
	assert.InDelta(t, 0.7, tr.total(), 1e-12)
	assert.InDeltaSlice(t, []float64{0.7, 0, 0.8}, Returns(tr.tokenRewards(), mask, 1), 1e-12)

	other := Trajectory{Reward: 1, Mask: []bool{true}, Values: []float64{0}}
	batch := []Trajectory{tr, other}
	out := estimate(t, RLOO, batch, AdvantageOptions{})
	assert.InDelta(t, -0.3, out.Advantages[0][0], 1e-12)
	assert.InDelta(t, 0.3, out.Advantages[1][0], 1e-12)
	assert.Equal(t, 1, out.Stats.ZeroSignalGroups, "by the rewards alone the group has no signal")
	assert.Equal(t, []bool{false, false}, out.Stats.NoSignal, "but the penalty is one")
	out = estimate(t, GAE, batch, AdvantageOptions{Gamma: 1, Lambda: 1})
	assert.InDeltaSlice(t, []float64{0.7, 0, 0.8}, out.Advantages[0], 1e-12)
}

func TestPenaltiesHaveTheSignThatPullsBack(t *testing.T) {
	for _, e := range []KLEstimator{K1, K2, K3, ""} {
		at := func(d float64) float64 {
			p, err := e.Penalties([]float64{0}, []float64{d}, []bool{true}, 2)
			require.NoError(t, err)
			return p[0]
		}
		assert.Positive(t, at(-math.Ln2), "%q: a token that the reference finds less likely costs reward", e)
		assert.Zero(t, at(0), e)
	}
	_, err := K1.Penalties([]float64{0}, []float64{0, 1}, []bool{true}, 1)
	assert.ErrorContains(t, err, "1 old and 2 reference")
	_, err = KLEstimator("k4").Penalties(nil, nil, nil, 1)
	assert.ErrorContains(t, err, "choose k1, k2 or k3")
}

func TestEstimatorsShareNoGroupsByPosition(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	rewards, groups := []float64{1, 0, 0, 0, 1, 1, 1, 0}, []int{7, 7, 7, 7, -3, -3, -3, -3}
	for _, e := range everyEstimator {
		want := first(estimate(t, e, episodes(rewards, groups), DefaultAdvantageOptions()))
		for range 5 {
			perm := rng.Perm(len(rewards))
			r, g := make([]float64, len(perm)), make([]int, len(perm))
			for to, from := range perm {
				r[to], g[to] = rewards[from], groups[from]
			}
			for to, a := range first(estimate(t, e, episodes(r, g), DefaultAdvantageOptions())) {
				assert.InDelta(t, want[perm[to]], a, 1e-12, e)
			}
		}
	}
}

func TestEstimateRefusesBadArguments(t *testing.T) {
	batch := episodes([]float64{1, 0}, []int{0, 0})
	_, err := Estimator("a2c").Estimate(batch, DefaultAdvantageOptions())
	assert.ErrorContains(t, err, "choose group, rloo, reinforce_pp, reinforce_pp_baseline or gae")
	for want, opts := range map[string]AdvantageOptions{"gamma": {Gamma: 1.1}, "gae_lambda": {Lambda: -1}, "adv_eps": {Eps: -1}} {
		_, err = Group.Estimate(batch, opts)
		assert.ErrorContains(t, err, want)
	}
	batch[1].Values = nil
	_, err = GAE.Estimate(batch, DefaultAdvantageOptions())
	assert.ErrorContains(t, err, "needs the critic's value of each of 1 tokens, got 0")
	_, err = RLOO.Estimate(batch, DefaultAdvantageOptions())
	assert.NoError(t, err, "others need no critic")
	batch[0].Penalty = []float64{1, 2}
	_, err = RLOO.Estimate(batch, DefaultAdvantageOptions())
	assert.ErrorContains(t, err, "2 penalties for 1 tokens")
}

func TestBatchWithoutPolicyTokensHasNoNaN(t *testing.T) {
	batch := []Trajectory{
		{Reward: 1, Mask: []bool{false, false}, Values: []float64{nan, nan}, Excluded: true},
		{Reward: 0, Mask: []bool{false}, Values: []float64{nan}, Excluded: true},
	}
	for _, e := range everyEstimator {
		for _, some := range [][]Trajectory{batch, nil} {
			out := estimate(t, e, some, DefaultAdvantageOptions())
			for _, row := range out.Advantages {
				assert.Equal(t, make([]float64, len(row)), row)
			}
			assert.Zero(t, out.Stats.ZeroSignalFrac())
		}
	}
}
