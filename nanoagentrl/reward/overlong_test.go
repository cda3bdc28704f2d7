package reward

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// The worked example of docs/grpo_math.md: a budget of 20 tokens of which the last 5 are punished.
func TestOverlongPenaltyIsLinearInTheLastTokensOfTheBudget(t *testing.T) {
	o := Overlong{Weight: 1, Limit: 20, Buffer: 5}
	for tokens, want := range map[int]float64{0: 0, 1: 0, 14: 0, 15: 0, 16: 0.2, 18: 0.6, 19: 0.8, 20: 1, 21: 1} {
		assert.InDelta(t, want, o.Share(tokens), 1e-12, tokens)
	}
}

func answered(tokens int, answer string) *episode.Episode {
	e := &episode.Episode{DataSource: "qa", Answers: []string{"Rome"}, Stop: episode.StopAnswer,
		Turns: []episode.Turn{{Text: "<answer>" + answer + "</answer>", Action: episode.ActionAnswer, Content: answer}}}
	e.Append(episode.Prompt, make([]int, 100), nil)
	e.Append(episode.Policy, make([]int, tokens-1), make([]float32, tokens-1))
	e.Append(episode.Environment, make([]int, 100), nil)
	e.Append(episode.Policy, []int{1}, []float32{0})
	return e
}

func TestOverlongPenaltyCountsPolicyTokensOnlyAndIsAPartOfItsOwn(t *testing.T) {
	plain, err := NewScorer(Weights{EM: 1}, false)
	require.NoError(t, err)
	s, err := plain.Penalise(Overlong{Weight: 0.5, Limit: 20, Buffer: 5})
	require.NoError(t, err)
	for _, test := range []struct {
		tokens        int
		answer        string
		reward, share float64
	}{{15, "Rome", 1, 0}, {18, "Rome", 0.7, 0.6}, {20, "Paris", -0.5, 1}} {
		e := answered(test.tokens, test.answer)
		s.ScoreOne(e)
		assert.InDelta(t, test.reward, e.Reward, 1e-12)
		assert.InDelta(t, test.share, e.Parts[PartOverlong], 1e-12)
	}
	e := answered(20, "Rome")
	plain.ScoreOne(e)
	assert.Equal(t, 1.0, e.Reward, "the scorer it was made from is as it was")
	assert.NotContains(t, e.Parts, PartOverlong)
}

func TestPenaltiesThatCannotBeAreRefused(t *testing.T) {
	s, err := NewScorer(DefaultWeights(), false)
	require.NoError(t, err)
	for _, o := range []Overlong{{Weight: -1, Limit: 9, Buffer: 3}, {Weight: math.NaN(), Limit: 9, Buffer: 3},
		{Weight: math.Inf(1), Limit: 9, Buffer: 3}, {Weight: 1, Limit: 9}, {Weight: 1, Limit: 9, Buffer: 10}} {
		_, err := s.Penalise(o)
		assert.ErrorContains(t, err, "overlong_", o)
	}
	_, err = s.Penalise(Overlong{})
	assert.NoError(t, err, "no penalty")
}

func TestAnnealedFormatRewardFadesAndLeavesTheAnswerAlone(t *testing.T) {
	s, err := NewScorer(Weights{EM: 1, Format: 0.2, ValidTurns: 0.4}, false)
	require.NoError(t, err)
	e := answered(3, "Rome")
	for factor, want := range map[float64]float64{1: 1.6, 0.5: 1.3, 0: 1} {
		s.AnnealFormat(factor).ScoreOne(e)
		assert.InDelta(t, want, e.Reward, 1e-12)
		assert.Equal(t, 1.0, e.Parts[PartFormat], "the part is logged as it is")
	}
	s.ScoreOne(e)
	assert.InDelta(t, 1.6, e.Reward, 1e-12, "the scorer it was made from is as it was")
}
