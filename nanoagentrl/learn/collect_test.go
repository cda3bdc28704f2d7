package learn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

// groupsOf makes groups of two episodes with the given rewards, numbered from 0.
func groupsOf(name string, rewards ...[2]float64) (episodes []*episode.Episode) {
	for group, pair := range rewards {
		for sample, r := range pair {
			e := newEpisode(group, sample, r, prompt(4), wrote(5))
			e.QuestionID = name
			episodes = append(episodes, e)
		}
	}
	return episodes
}

func TestGroupsWithoutSignalAreFound(t *testing.T) {
	all := groupsOf("a", [2]float64{1, 0}, [2]float64{1, 1}, [2]float64{0, 0}, [2]float64{0, math.NaN()}, [2]float64{0, 1})
	all[8].Stop = episode.StopRetriever // leaves its group with one episode
	require.Equal(t, []int{1, 2, 3, 4}, flatGroups(all))
	require.Empty(t, flatGroups(all[:2]))
	require.Empty(t, flatGroups(nil))
}

func TestFurtherGroupsTakeThePlacesOfGroupsWithoutSignal(t *testing.T) {
	c := &collected{train: groupsOf("old", [2]float64{1, 1}, [2]float64{1, 0}, [2]float64{0, 0}, [2]float64{0, 0})}
	c.played = c.train
	flat := flatGroups(c.train)
	require.Equal(t, []int{0, 2, 3}, flat)
	more := groupsOf("new", [2]float64{0, 1}, [2]float64{0, 0}, [2]float64{0, 0})
	more = append(more[:2:2], more[4:]...) // the second further question was too long
	c.replace(flat, more)
	require.Equal(t, 2, c.replaced)
	require.Len(t, c.train, 8)
	for i, e := range c.train {
		require.Equal(t, i/2, e.Group)
		require.Equal(t, i%2, e.Sample)
		require.Equal(t, []string{"new", "old", "old", "new"}[e.Group], e.QuestionID)
	}
	require.Equal(t, []int{2, 3}, flatGroups(c.train))
	stats := Stats{"train/zero_signal_group_frac": 0.5}
	c.rounds = 1
	c.addTo(stats)
	require.Equal(t, Stats{"train/zero_signal_group_frac": 4.0 / 6, "train/extra_rounds": 1,
		"train/replaced_groups": 2}, stats)
}

func TestFormatRewardFallsLinearlyToZero(t *testing.T) {
	scorer, err := reward.NewScorer(reward.Weights{EM: 1, Format: 1}, false)
	require.NoError(t, err)
	trainer := &Trainer{Config: config.Default(), Scorer: scorer}
	require.Same(t, scorer, trainer.scorerAt(1), "nothing to anneal")
	trainer.Config.FormatAnnealSteps = 4
	var factors []float64
	for step := 1; step <= 6; step++ {
		factors = append(factors, trainer.formatFactor(step))
	}
	require.Equal(t, []float64{1, 0.75, 0.5, 0.25, 0, 0}, factors)
}
