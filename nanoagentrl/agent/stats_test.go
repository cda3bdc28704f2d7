package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

func TestStatsOfKnownEpisodes(t *testing.T) {
	played := func(stop episode.StopReason, policy, env int, actions ...episode.Action) *episode.Episode {
		e := &episode.Episode{Stop: stop}
		e.Append(episode.Prompt, []int{1, 2, 3}, nil)
		for range policy {
			e.Append(episode.Policy, []int{4}, []float32{-1})
		}
		for range env {
			e.Append(episode.Environment, []int{5}, nil)
		}
		for _, action := range actions {
			e.Turns = append(e.Turns, episode.Turn{Action: action})
		}
		return e
	}
	const search, answer, invalid = episode.ActionSearch, episode.ActionAnswer, episode.ActionInvalid
	stats := Stats("train/", []*episode.Episode{
		played(episode.StopAnswer, 10, 20, search, search, answer),
		played(episode.StopTurns, 20, 0, invalid, invalid),
		played(episode.StopLength, 30, 4, invalid),
		played(episode.StopRetriever, 40, 0, search),
		played(episode.StopContext, 0, 0),
		played(episode.StopEOS, 20, 0, episode.ActionNone),
		played(episode.StopAnswer, 20, 4, answer),
		played(episode.StopAnswer, 20, 4, invalid, answer),
	})
	assert.Equal(t, map[string]float64{
		"train/response_len": 20, "train/response_len_max": 40, "train/obs_len": 4, "train/num_turns": 11.0 / 8,
		"train/num_searches": 3.0 / 8, "train/invalid_format_rate": 3.0 / 8, "train/answer_rate": 4.0 / 8,
		"train/clipped_ratio": 1.0 / 8, "train/context_full_rate": 1.0 / 8, "train/out_of_turns_rate": 1.0 / 8,
		"train/retriever_error_rate": 1.0 / 8, "train/retriever_errors": 1,
	}, stats)
	assert.Empty(t, Stats("train/", nil))
}
