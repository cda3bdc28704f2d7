package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

func TestSearchInTheLastTurnIsNotRun(t *testing.T) {
	w := newWorld([]string{"<search>q</search>", "<search>r</search>", "<answer>late</answer>"})
	w.opts.MaxTurns = 2
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, episode.StopTurns, e.Stop)
	assert.Equal(t, [][]string{{"q"}}, w.searcher.Queries)
	assert.Equal(t, []episode.Action{episode.ActionSearch, episode.ActionSearch}, actions(e))
	assert.Empty(t, e.Turns[1].Observation)
	assert.Len(t, w.sampler.Calls, 2)
	assert.True(t, e.Trainable())
}

func TestAPolicyThatAlwaysSearchesStopsAtMaxTurns(t *testing.T) {
	for name, text := range map[string]string{
		"search": "<search>q</search>", "invalid": "<search></search>", "end token": "", "fake": "<information>x</answer>",
	} {
		w := newWorld()
		w.sampler.Script = func(int, int) string { return text }
		w.opts.MaxContext, w.opts.MaxNewTokens, w.opts.MaxTurns = 100000, 10000, 7
		for _, e := range w.play(t, 2, "a", "b") {
			assert.Equal(t, episode.StopTurns, e.Stop, name)
			assert.Len(t, e.Turns, 7, name)
		}
		assert.Len(t, w.sampler.Calls, 7, name)
	}
}

func TestInvalidActionInTheLastTurnGetsNoCorrection(t *testing.T) {
	w := newWorld([]string{"x"})
	w.opts.MaxTurns = 1
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, episode.StopTurns, e.Stop)
	assert.Empty(t, e.Turns[0].Observation)
}

func TestThreeTurnsOf100BelowATurnCapOf128AllReachTheEpisode(t *testing.T) {
	pad := func(block string) string { return strings.Repeat("x", 100-len(block)) + block }
	w := newWorld([]string{pad("<search>q</search>"), pad("<search>r</search>"), pad("<answer>a</answer>")})
	w.opts.MaxTurnTokens = 128
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, episode.StopAnswer, e.Stop)
	assert.Equal(t, 300, e.CountTokens(episode.Policy))
}

func TestATurnCutByItsCapIsInvalidAndTheEpisodeGoesOn(t *testing.T) {
	w := newWorld([]string{strings.Repeat("x", 1000), "<answer>a</answer>"})
	w.opts.MaxTurnTokens = 50
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, []episode.Action{episode.ActionInvalid, episode.ActionAnswer}, actions(e))
	assert.Equal(t, 50, e.Turns[0].End-e.Turns[0].Begin)
	assert.Equal(t, Correction, e.Turns[0].Observation)
}

func TestTotalBudgetEndsTheEpisode(t *testing.T) {
	w := newWorld([]string{"<search>q</search>", strings.Repeat("x", 1000)})
	w.opts.MaxNewTokens = 60
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, episode.StopLength, e.Stop)
	assert.Equal(t, 60, e.CountTokens(episode.Policy), "the second turn gets what the first left")
	assert.Equal(t, 1.0, Stats("", []*episode.Episode{e})["clipped_ratio"])
}

func TestBudgetThatEndsExactlyWithAnAction(t *testing.T) {
	w := newWorld([]string{"<answer>a</answer>"}, []string{"<search>q</search>"})
	w.opts.MaxNewTokens = len("<answer>a</answer>")
	episodes := w.play(t, 1, "a", "b")
	assert.Equal(t, episode.StopAnswer, episodes[0].Stop)
	assert.Equal(t, episode.StopLength, episodes[1].Stop, "no token is left to use the result")
	assert.Empty(t, w.searcher.Queries)
}

func TestFullContextEndsTheEpisodeWithThePromptIntact(t *testing.T) {
	prompt, search := len("Q: ?"), len("<search>q</search>")
	for name, test := range map[string]struct {
		first          string
		context, turns int
		observed       bool
	}{
		"no room for the result":      {"<search>q</search>", prompt + search + 20, 1, false},
		"exactly after the search":    {"<search>q</search>", prompt + search, 1, false},
		"one token after the search":  {"<search>q</search>", prompt + search + 1, 1, false},
		"no room for the correction":  {"xxxx", prompt + 5 + len(Correction), 1, false},
		"just room for a correction":  {"xxxx", prompt + 5 + len(Correction) + 1, 2, true},
		"after a result that was cut": {"<search>q</search>", prompt + search + 70, 2, true},
	} {
		w := newWorld([]string{test.first, strings.Repeat("x", 500)})
		w.opts.MaxContext, w.opts.MaxTurnTokens = test.context, search
		e := w.play(t, 1, "?")[0]
		assert.Equal(t, episode.StopContext, e.Stop, name)
		assert.Equal(t, w.tok.Encode("Q: ?"), e.IDs[:prompt], name)
		assert.Len(t, e.Turns, test.turns, name)
		assert.Equal(t, test.observed, e.Turns[0].Observation != "", name)
		if test.observed {
			assert.Len(t, e.IDs, test.context, "%s: the rest of the context is the policy's", name)
		}
	}
}

func TestResultIsCutToWhatTheContextHolds(t *testing.T) {
	w := newWorld([]string{"<search>q</search>", "<answer>a</answer>"})
	room := len(Observation([]episode.Passage{lake}))
	w.opts.MaxTurnTokens = 18
	w.opts.MaxContext = len("Q: ?") + 18 + room + 18
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, []episode.Passage{lake}, e.Turns[0].Passages)
	assert.Equal(t, episode.StopAnswer, e.Stop, "an answer that ends with the last token of the context counts")
	assert.Len(t, e.IDs, w.opts.MaxContext)
}

func TestOverlongPromptIsAnErrorOrACountedSkip(t *testing.T) {
	long := strings.Repeat("long ", 100)
	w := newWorld([]string{"<answer>a</answer>"}, []string{"<answer>b</answer>"})
	w.opts.MaxContext, w.opts.MaxNewTokens = 200, 100

	_, err := w.rollouter(t).Rollout(context.Background(), rows("a", long), 1, Seeds(1, "train", 0))
	var tooLong *LongPromptError
	require.ErrorAs(t, err, &tooLong)
	assert.Equal(t, LongPromptError{"id_" + long, 503, 100, 200}, *tooLong)
	assert.ErrorContains(t, err, "a prompt of 503 tokens and a turn of 100 do not fit into max_context (200)")
	assert.Empty(t, w.sampler.Calls, "nothing was sampled")

	w.opts.SkipLong = true
	r := w.rollouter(t)
	episodes, err := r.Rollout(context.Background(), rows(long, "a", long, "b"), 2, Seeds(1, "train", 0))
	require.NoError(t, err)
	require.Len(t, episodes, 4)
	assert.Equal(t, 2, r.Skipped())
	for i, e := range episodes {
		assert.Equal(t, 1+2*(i/2), e.Group)
		assert.Equal(t, i%2, e.Sample)
		assert.Equal(t, Seeds(1, "train", 0)(e.Group, e.Sample), e.Seed, "a skip does not move the others' seeds")
	}
	none, err := r.Rollout(context.Background(), rows(long), 2, Seeds(1, "train", 0))
	require.NoError(t, err)
	assert.Empty(t, none)
	assert.Equal(t, 3, r.Skipped())

	fitting, problems, err := r.Fit(rows(long, "a"))
	require.NoError(t, err)
	assert.Equal(t, rows("a"), fitting)
	require.Len(t, problems, 1)
	assert.Equal(t, 3, r.Skipped(), "Fit does not count")
}

func TestPromptThatJustFits(t *testing.T) {
	w := newWorld([]string{"<answer>a</answer>"})
	w.opts.MaxNewTokens = 100
	w.opts.MaxContext = len("Q: ?") + 100
	assert.Equal(t, episode.StopAnswer, w.play(t, 1, "?")[0].Stop)
	w.opts.MaxContext--
	_, err := w.rollouter(t).Rollout(context.Background(), rows("?"), 1, Seeds(1, "train", 0))
	require.ErrorContains(t, err, "do not fit")
}
