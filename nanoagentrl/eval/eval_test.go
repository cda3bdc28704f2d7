package eval

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent/agenttest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/reward"
)

func scorer(t *testing.T) *reward.Scorer {
	t.Helper()
	s, err := reward.NewScorer(reward.DefaultWeights(), false)
	require.NoError(t, err)
	return s
}

// answered is an episode that ended with an answer to a question whose gold answer is "yes".
func answered(group, sample int, answer string) *episode.Episode {
	e := &episode.Episode{Group: group, Sample: sample, Answers: []string{"yes"}, DataSource: "nq",
		Stop: episode.StopAnswer}
	e.Append(episode.Prompt, []int{1, 2}, nil)
	text := "<answer>" + answer + "</answer>"
	e.Turns = []episode.Turn{{Action: episode.ActionAnswer, Text: text, Content: answer, Begin: 2, End: 5}}
	e.Append(episode.Policy, []int{1, 2, 3}, make([]float32, 3))
	return e
}

func TestMetricsOfKnownEpisodes(t *testing.T) {
	invalid := answered(2, 1, "no")
	invalid.Turns[0].Action, invalid.Stop = episode.ActionInvalid, episode.StopLength
	episodes := []*episode.Episode{
		answered(0, 0, "yes"), answered(0, 1, "Yes!"), // both right
		answered(1, 0, "yes"), answered(1, 1, "no"),
		answered(2, 0, "oh yes"), invalid, // right only leniently
	}
	scorer(t).Score(episodes)
	m := Metrics("nq", episodes)
	for name, want := range map[string]float64{
		"eval/em_nq": 0.5, "eval/em_lenient_nq": 4.0 / 6, "eval/reward_nq": 0.5, "eval/pass_at_k_nq": 2.0 / 3,
		"eval/pass_hat_k_nq": 1.0 / 3, "eval/response_len_nq": 3, "eval/invalid_format_rate_nq": 1.0 / 6,
		"eval/clipped_ratio_nq": 1.0 / 6, "eval/f1_nq": (3 + 2.0/3) / 6, "eval/format_nq": 5.0 / 6,
	} {
		require.InDelta(t, want, m[name], 1e-12, name)
	}
	require.Empty(t, Metrics("nq", nil))
}

func TestStrictAndLenientAreReportedSideBySide(t *testing.T) {
	require.Equal(t, "nq: EM 10.0 %, lenient 40.0 %, F1 25.0 %, searches 1.50, invalid 5.0 %, 33 tokens",
		Line("nq", map[string]float64{"eval/em_nq": 0.1, "eval/em_lenient_nq": 0.4, "eval/f1_nq": 0.25,
			"eval/num_searches_nq": 1.5, "eval/invalid_format_rate_nq": 0.05, "eval/response_len_nq": 33}))
	require.Equal(t, "gsm8k: EM 20.0 %, in #### form 10.0 %, searches 0.00, invalid 0.0 %, 0 tokens, "+
		"SEARCH FAILED in 50.0 % of the episodes, 3 questions left out (prompt too long)",
		Line("gsm8k", map[string]float64{"eval/em_gsm8k": 0.2, "eval/em_number_strict_gsm8k": 0.1,
			"eval/retriever_error_rate_gsm8k": 0.5, "eval/skipped_prompts_gsm8k": 3}))
}

func TestMeanIsOverSplitsNotOverEpisodes(t *testing.T) {
	splits := []Split{{Name: "a"}, {Name: "b"}, {Name: "not played"}}
	m := Mean(map[string]float64{"eval/em_a": 0.2, "eval/em_b": 0.6, "eval/pass_at_k_a": 1, "eval/pass_at_k_b": 0.5},
		splits)
	require.InDelta(t, 0.4, m["eval/em"], 1e-12)
	require.InDelta(t, 0.75, m["eval/pass_at_k"], 1e-12)
	require.NotContains(t, Mean(map[string]float64{}, splits), "eval/em")
}

// world plays scripted episodes: every question is answered at once with the number of its turn of the script.
func world(t *testing.T, script func(episode, turn int) string, limit int, searcher *agenttest.Searcher) *Evaluator {
	t.Helper()
	tok := agenttest.NewTokenizer()
	prompter, err := agent.NewPrompter(agent.TaskSearch, "", "{question}", false, nil)
	require.NoError(t, err)
	sampler := agenttest.NewSampler(tok)
	sampler.Script = script
	rollouter, err := agent.New(tok, sampler, searcher, prompter, agent.Options{Task: agent.TaskSearch, Temperature: 1,
		MaxTurns: 2, MaxNewTokens: 60, TopK: 1, MaxObsTokens: 200, MaxContext: limit, SkipLong: true})
	require.NoError(t, err)
	return &Evaluator{Rollouter: rollouter, Scorer: scorer(t), Seed: 5, Samples: 2}
}

func questions(n int) (list []data.Question) {
	for i := range n {
		list = append(list, data.Question{ID: fmt.Sprint("q", i), Text: fmt.Sprint("question ", i),
			Answers: []string{fmt.Sprint(i)}, Source: "nq"})
	}
	return list
}

// A split that is cut into chunks is played with the same seeds, groups and order as in one go.
func TestChunksDoNotChangeSeedsOrGroups(t *testing.T) {
	n := 2*Chunk + 5
	e := world(t, func(episode, _ int) string { return fmt.Sprintf("<answer>%d</answer>", episode/2) }, 1000,
		&agenttest.Searcher{})
	var seen []int
	episodes, metrics, err := e.Run(t.Context(), Split{"dev", questions(n)}, func(done, total int) {
		require.Equal(t, n, total)
		seen = append(seen, done)
	})
	require.NoError(t, err)
	require.Equal(t, []int{0, Chunk, 2 * Chunk}, seen)
	require.Len(t, episodes, 2*n)
	seeds := agent.Seeds(5, "eval/dev", 0)
	for i, ep := range episodes {
		require.Equal(t, i/2, ep.Group)
		require.Equal(t, fmt.Sprint("q", i/2), ep.QuestionID)
		require.Equal(t, seeds(i/2, i%2), ep.Seed)
	}
	require.Equal(t, 1.0, metrics["eval/em_dev"])
	require.Equal(t, 1.0, metrics["eval/pass_hat_k_dev"])
}

func TestQuestionsLeftOutAreCountedForTheirSplit(t *testing.T) {
	e := world(t, func(int, int) string { return "<answer>0</answer>" }, 100, &agenttest.Searcher{})
	list := questions(3)
	list[1].Text = fmt.Sprintf("%0100d", 0)
	for range 2 { // not added up over evaluations
		episodes, metrics, err := e.Run(t.Context(), Split{"dev", list}, nil)
		require.NoError(t, err)
		require.Len(t, episodes, 4)
		require.Equal(t, 2, episodes[2].Group, "the group is the question's place, with a gap")
		require.Equal(t, 1.0, metrics["eval/skipped_prompts_dev"])
	}
}

func TestEvaluationWithoutAWorkingSearchEngineIsAnErrorNotAScoreOfZero(t *testing.T) {
	down := errors.New("connection refused")
	searcher := &agenttest.Searcher{Errs: map[string]error{"x": down}}
	all := world(t, func(int, int) string { return "<search>x</search>" }, 1000, searcher)
	_, _, err := all.Run(t.Context(), Split{"dev", questions(2)}, nil)
	require.ErrorIs(t, err, down)
	require.ErrorContains(t, err, "evaluating dev: every search failed")

	some := world(t, func(episode, _ int) string {
		return []string{"<search>x</search>", "<answer>0</answer>"}[episode%2]
	}, 1000, searcher)
	_, metrics, err := some.Run(t.Context(), Split{"dev", questions(2)}, nil)
	require.NoError(t, err)
	require.Equal(t, 0.5, metrics["eval/retriever_error_rate_dev"])
	require.Equal(t, 0.25, metrics["eval/em_dev"], "a failed search counts as wrong")
}

func TestCancelledEvaluationGivesNoMetrics(t *testing.T) {
	e := world(t, func(int, int) string { return "" }, 1000, &agenttest.Searcher{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, metrics, err := e.Run(ctx, Split{"dev", questions(2)}, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "evaluating dev")
	require.Nil(t, metrics)
}

// Names lists what Run gives, so that a best_metric can be checked before the first step.
func TestNamesAreThoseOfAnEvaluation(t *testing.T) {
	e := world(t, func(episode, _ int) string { return "<answer>0</answer>" }, 1000, &agenttest.Searcher{})
	splits := []Split{{"dev", questions(2)}}
	_, metrics, err := e.Run(t.Context(), splits[0], nil)
	require.NoError(t, err)
	var got []string
	for name := range Mean(metrics, splits) {
		got = append(got, name)
	}
	require.ElementsMatch(t, Names(e.Scorer, splits), got)
	maths := []data.Question{{Source: "openai/gsm8k"}}
	require.Contains(t, Names(e.Scorer, []Split{{"gsm8k", maths}}), "eval/em_number_strict_gsm8k")
	require.NotContains(t, Names(e.Scorer, []Split{{"gsm8k", maths}}), "eval/f1_gsm8k")
}
