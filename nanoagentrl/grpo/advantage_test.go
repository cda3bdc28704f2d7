package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var centredOnly = AdvantageOptions{}

func advantages(
	t *testing.T, rewards []float64, groups []int, excluded []bool, opts AdvantageOptions,
) ([]float64, *AdvantageStats) {
	t.Helper()
	adv, stats, err := Advantages(rewards, groups, excluded, opts)
	require.NoError(t, err)
	require.Len(t, adv, len(rewards))
	require.Len(t, stats.NoSignal, len(rewards))
	return adv, stats
}

func TestAdvantagesUseSampleNotPopulationStandardDeviation(t *testing.T) {
	adv, stats := advantages(t, []float64{1, 0, 0, 0}, []int{0, 0, 0, 0}, nil, DefaultAdvantageOptions())
	// std = 0.5; the population's would be 0.433 and give 1.732 and -0.577.
	assert.InDeltaSlice(t, []float64{1.5, -0.5, -0.5, -0.5}, adv, 1e-5)
	assert.InDelta(t, 0.75/(0.5+1e-6), adv[0], 1e-12, "eps is added to the standard deviation")
	assert.Equal(t, &AdvantageStats{Groups: 1, NoSignal: make([]bool, 4)}, stats)
}

func TestAdvantagesOfEightWithThreeRight(t *testing.T) {
	rewards, groups := []float64{1, 1, 1, 0, 0, 0, 0, 0}, make([]int, 8)
	adv, _ := advantages(t, rewards, groups, nil, DefaultAdvantageOptions())
	assert.InDelta(t, 1.2076, adv[0], 5e-5)
	assert.InDelta(t, -0.7246, adv[7], 5e-5)
	adv, _ = advantages(t, rewards, groups, nil, centredOnly)
	assert.InDelta(t, 0.625, adv[0], 1e-12)
	assert.InDelta(t, -0.375, adv[7], 1e-12)
}

func TestAdvantagesGroupByIDNotByPosition(t *testing.T) {
	rewards := []float64{1, 0, 0, 0, 1, 1, 1, 0}
	groups := []int{7, 7, 7, 7, -3, -3, -3, -3}
	want, _ := advantages(t, rewards, groups, nil, DefaultAdvantageOptions())
	assert.InDeltaSlice(t, []float64{1.5, -0.5, -0.5, -0.5, 0.5, 0.5, 0.5, -1.5}, want, 1e-5,
		"normalised within each group, not over the whole batch")

	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		perm := rng.Perm(len(rewards))
		r, g := make([]float64, len(perm)), make([]int, len(perm))
		for to, from := range perm {
			r[to], g[to] = rewards[from], groups[from]
		}
		adv, stats := advantages(t, r, g, nil, DefaultAdvantageOptions())
		assert.Equal(t, 2, stats.Groups)
		for to, from := range perm {
			assert.InDelta(t, want[from], adv[to], 1e-12)
		}
	}
}

func TestSamePromptWithDifferentGroupIDsStaysTwoGroups(t *testing.T) {
	// Two groups of the same question: [1 0] and [1 1]. As one group the last two rows would get +0.5.
	adv, stats := advantages(t, []float64{1, 0, 1, 1}, []int{0, 0, 1, 1}, nil, DefaultAdvantageOptions())
	assert.InDeltaSlice(t, []float64{math.Sqrt2 / 2, -math.Sqrt2 / 2, 0, 0}, adv, 2e-6)
	assert.Equal(t, 2, stats.Groups)
	assert.Equal(t, 1, stats.ZeroSignalGroups)
}

func TestZeroVarianceGroupsGetZeroAndAreCounted(t *testing.T) {
	rewards := []float64{0.1, 0.1, 0.1, 1, 0, 0, 0, 0, 0}
	groups := []int{0, 0, 0, 1, 1, 1, 2, 2, 2}
	for _, opts := range []AdvantageOptions{DefaultAdvantageOptions(), {DivideByStd: true, Eps: 0}, centredOnly} {
		adv, stats := advantages(t, rewards, groups, nil, opts)
		assert.Equal(t, []float64{0, 0, 0}, adv[:3])
		assert.Equal(t, []float64{0, 0, 0}, adv[6:])
		assert.Positive(t, adv[3])
		assert.Equal(t, 3, stats.Groups)
		assert.Equal(t, 2, stats.ZeroSignalGroups)
		assert.Zero(t, stats.SingleGroups)
		assert.InDelta(t, 2.0/3, stats.ZeroSignalFrac(), 1e-15)
		assert.Equal(t, []bool{true, true, true, false, false, false, true, true, true}, stats.NoSignal)
	}
}

func TestRewardsThatDifferByRoundingAreEqual(t *testing.T) {
	a, b, c := 0.1, 0.2, 0.3
	require.NotEqual(t, a+b, c)
	adv, stats := advantages(t, []float64{a + b, c, c, 1e6 + 1e-6, 1e6}, []int{0, 0, 0, 1, 1}, nil,
		AdvantageOptions{DivideByStd: true})
	assert.Equal(t, make([]float64, 5), adv)
	assert.Equal(t, 2, stats.ZeroSignalGroups)

	adv, _ = advantages(t, []float64{1e-6, 0}, []int{0, 0}, nil, AdvantageOptions{DivideByStd: true})
	assert.InDelta(t, math.Sqrt2/2, adv[0], 1e-9, "a small but real difference stays")
}

func TestOneNaNRewardDoesNotPoisonItsGroup(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		adv, stats := advantages(t, []float64{1, bad, 0, 0, 1, 0}, []int{0, 0, 0, 0, 1, 1}, nil,
			DefaultAdvantageOptions())
		// The other three: mean 1/3, sample standard deviation 0.577.
		assert.InDeltaSlice(t, []float64{1.1547, 0, -0.57735, -0.57735, 0.70711, -0.70711}, adv, 1e-5)
		assert.Equal(t, 1, stats.NonFinite)
		assert.Zero(t, stats.ZeroSignalGroups)
		assert.Equal(t, []bool{false, true, false, false, false, false}, stats.NoSignal)
	}
}

func TestGroupOfOneGetsZeroNotItsRawReward(t *testing.T) {
	for _, opts := range []AdvantageOptions{DefaultAdvantageOptions(), centredOnly} {
		adv, stats := advantages(t, []float64{1, 1, 1, math.NaN(), math.NaN()}, []int{0, 1, 2, 2, 3}, nil, opts)
		assert.Equal(t, make([]float64, 5), adv, "also with one finite member, or none")
		assert.Equal(t, 4, stats.Groups)
		assert.Equal(t, 4, stats.SingleGroups)
		assert.Equal(t, 4, stats.ZeroSignalGroups)
		assert.Equal(t, 2, stats.NonFinite)
		assert.Equal(t, 1.0, stats.ZeroSignalFrac())
	}
}

func TestExcludedEpisodesLeaveTheirGroup(t *testing.T) {
	rewards := []float64{1, 0, 0, 0, math.NaN(), 5}
	groups := []int{0, 0, 0, 0, 0, 9}
	excluded := []bool{false, false, false, true, true, true}
	adv, stats := advantages(t, rewards, groups, excluded, DefaultAdvantageOptions())
	assert.InDeltaSlice(t, []float64{1.1547, -0.57735, -0.57735, 0, 0, 0}, adv, 1e-5)
	assert.Equal(t, &AdvantageStats{Groups: 1, Excluded: 3, NoSignal: excluded}, stats,
		"a group of excluded rows is no group, and an excluded NaN is not counted as one")
}

func TestRewardAtTheGroupMeanStillHasSignal(t *testing.T) {
	adv, stats := advantages(t, []float64{0, 0.5, 1}, []int{0, 0, 0}, nil, DefaultAdvantageOptions())
	assert.InDelta(t, 0, adv[1], 1e-15)
	assert.Equal(t, []bool{false, false, false}, stats.NoSignal)
}

func TestAdvantagesOfNothing(t *testing.T) {
	adv, stats := advantages(t, nil, nil, nil, DefaultAdvantageOptions())
	assert.Empty(t, adv)
	assert.Zero(t, stats.ZeroSignalFrac())
}

func TestAdvantagesOfEachGroupSumToZeroAndHaveUnitSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		n := 2 + rng.IntN(15)
		rewards := make([]float64, n)
		for i := range rewards {
			rewards[i] = rng.NormFloat64()*3 + 100
		}
		adv, _ := advantages(t, rewards, make([]int, n), nil, AdvantageOptions{DivideByStd: true})
		var sum, squares float64
		for _, a := range adv {
			sum += a
			squares += a * a
		}
		assert.InDelta(t, 0, sum, 1e-9)
		assert.InDelta(t, 1, squares/float64(n-1), 1e-9)
	}
}

func TestAdvantagesRefuseBadArguments(t *testing.T) {
	_, _, err := Advantages([]float64{1, 0}, []int{0}, nil, DefaultAdvantageOptions())
	assert.ErrorContains(t, err, "2 rewards, 1 group ids")
	_, _, err = Advantages([]float64{1, 0}, []int{0, 0}, []bool{true}, DefaultAdvantageOptions())
	assert.ErrorContains(t, err, "1 exclusion marks")
	for _, eps := range []float64{-1e-6, math.NaN(), math.Inf(1)} {
		_, _, err = Advantages([]float64{1, 0}, []int{0, 0}, nil, AdvantageOptions{Eps: eps})
		assert.ErrorContains(t, err, "adv_eps")
	}
}
