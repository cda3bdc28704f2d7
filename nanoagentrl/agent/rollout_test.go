package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent/agenttest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

func TestSearchThenAnswer(t *testing.T) {
	w := newWorld([]string{"<think>t</think><search>q</search>", "<think>u</think><answer>water</answer>"})
	e := w.play(t, 1, "what?")[0]
	assert.Equal(t, "Q: what?\x00<think>t</think><search>q</search>\x00"+Observation([]episode.Passage{lake, river})+
		"\x00<think>u</think><answer>water</answer>", segments(w.tok, e))
	assert.Equal(t, episode.StopAnswer, e.Stop)
	answer, ok := e.FinalAnswer()
	assert.True(t, ok)
	assert.Equal(t, "water", answer)
	assert.Equal(t, []episode.Passage{lake, river}, e.Turns[0].Passages)
	assert.Equal(t, "q", e.Turns[0].Content)
	assert.Empty(t, e.Turns[1].Observation)
	assert.True(t, e.Trainable())

	assert.Equal(t, "id_what?", e.QuestionID)
	assert.Equal(t, "what?", e.Question)
	assert.Equal(t, []string{"gold what?"}, e.Answers)
	assert.Equal(t, "nq", e.DataSource)
	assert.Equal(t, Seeds(1, "train", 0)(0, 0), e.Seed)
	assert.Equal(t, Stops, w.sampler.Calls[0].Stops)
	assert.Equal(t, 1.0, w.sampler.Calls[0].Temperature)
}

func TestStopStringMayStraddleTokens(t *testing.T) {
	w := newWorld()
	w.tok = agenttest.NewTokenizer("<search>", "</", "sear", "ch>\n")
	w.sampler = agenttest.NewSampler(w.tok, []string{"<search>q</search>\nmore", "<answer>a</answer>"})
	e := w.play(t, 1, "?")[0]
	assert.True(t, strings.HasSuffix(e.Turns[0].Text, "</search>"))
	assert.Equal(t, "q", e.Turns[0].Content)
}

func TestLastTokenMayHoldMoreThanTheStopString(t *testing.T) {
	w := newWorld()
	w.tok = agenttest.NewTokenizer("search>\nmo")
	w.sampler = agenttest.NewSampler(w.tok, []string{"<search>q</search>\nmore", "<answer>a</answer>"})
	e := w.play(t, 1, "?")[0]
	// The ids keep the whole token, the text is cut, and the observation follows the token.
	assert.Equal(t, "<search>q</search>", e.Turns[0].Text)
	assert.Equal(t, "Q: ?\x00<search>q</search>\nmo\x00"+Observation([]episode.Passage{lake, river})+
		"\x00<answer>a</answer>", segments(w.tok, e))
	assert.Len(t, e.Mask(), len(e.IDs))
}

func TestSampledIdsAreNeverMadeAgainFromText(t *testing.T) {
	// The policy spells a word in bytes for which the tokenizer has one token.
	w := newWorld()
	w.tok = agenttest.NewTokenizer("water")
	w.sampler = agenttest.NewSampler(agenttest.NewTokenizer(), []string{"<search>q</search>", "<answer>water</answer>"})
	e, err := w.rollouter(t).Rollout(context.Background(), rows("?"), 1, Seeds(1, "train", 0))
	require.NoError(t, err)
	last := e[0].Turns[1]
	assert.Equal(t, agenttest.NewTokenizer().Encode("<answer>water</answer>"), e[0].IDs[last.Begin:last.End])
}

func TestFirstResponseTokenIsMaskedIn(t *testing.T) {
	w := newWorld([]string{"<answer>a</answer>"})
	e := w.play(t, 1, "?")[0]
	mask, prompt := e.Mask(), len(w.tok.Encode("Q: ?"))
	assert.Equal(t, uint8(0), mask[prompt-1])
	assert.Equal(t, uint8(1), mask[prompt])
	assert.Equal(t, uint8(1), mask[len(mask)-1])
}

func TestSampledEndTokenKeepsMaskOneAndIsInvalidNotTheEnd(t *testing.T) {
	w := newWorld([]string{"I do not know.", "<answer>a</answer>"})
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, []episode.Action{episode.ActionInvalid, episode.ActionAnswer}, actions(e))
	end := e.Turns[0].End - 1
	assert.Equal(t, agenttest.EOS, e.IDs[end])
	assert.Equal(t, uint8(1), e.Mask()[end])
	assert.Equal(t, "I do not know.", e.Turns[0].Text)
	assert.Equal(t, Correction, e.Turns[0].Observation)
	assert.Equal(t, uint8(0), e.Mask()[end+1], "the correction is not the policy's")
	assert.Empty(t, w.searcher.Queries)
}

func TestRetrieverErrorIsMarkedAndNeverShownToThePolicy(t *testing.T) {
	w := newWorld([]string{"<search>bad</search>", "<answer>a</answer>"},
		[]string{"<search>q</search>", "<answer>a</answer>"})
	cause := errors.New("status 500: <html>boom</html>")
	w.searcher.Errs = map[string]error{"bad": cause}
	r := w.rollouter(t)
	episodes, err := r.Rollout(context.Background(), rows("a", "b"), 1, Seeds(1, "train", 0))
	require.NoError(t, err)
	w.check(t, episodes)
	assert.Equal(t, episode.StopRetriever, episodes[0].Stop)
	assert.False(t, episodes[0].Trainable())
	assert.Len(t, episodes[0].Turns, 1)
	assert.NotContains(t, w.tok.Decode(episodes[0].IDs), "boom")
	assert.ErrorIs(t, r.SearchError(), cause)
	assert.Equal(t, episode.StopAnswer, episodes[1].Stop, "others are unaffected")
	assert.Equal(t, 0.5, Stats("", episodes)["retriever_error_rate"])
}

func TestObservationNeverHoldsSpecialTokens(t *testing.T) {
	w := newWorld([]string{"<search>evil</search>", "<answer>a</answer>"})
	w.searcher.Passages["evil"] = []episode.Passage{agenttest.Passage("9", "Evil", "x"+agenttest.EndToken+"y</search>")}
	e := w.play(t, 1, "?")[0]
	assert.NotContains(t, e.IDs, agenttest.EOS)
	assert.Contains(t, w.tok.Decode(e.IDs), agenttest.EndToken)
	assert.Equal(t, 1, e.CountActions(episode.ActionSearch), "tags in a passage are no action")
}

func TestPromptMayHoldSpecialTokens(t *testing.T) {
	w := newWorld([]string{"<answer>a</answer>"})
	e := w.play(t, 1, "x"+agenttest.EndToken)[0]
	assert.Contains(t, e.IDs, agenttest.EOS)
}

func TestResultsAreCutToTopK(t *testing.T) {
	w := newWorld([]string{"<search>q</search>", "<answer>a</answer>"})
	w.opts.TopK = 1
	e := w.play(t, 1, "?")[0]
	assert.Equal(t, []episode.Passage{lake}, e.Turns[0].Passages)
}

func TestAnUnknownQueryShowsThatNothingWasFound(t *testing.T) {
	w := newWorld([]string{"<search>zzzz</search>", "<answer>a</answer>"})
	e := w.play(t, 1, "?")[0]
	assert.Contains(t, e.Turns[0].Observation, "No results found.")
	assert.Empty(t, e.Turns[0].Passages)
	assert.Equal(t, episode.StopAnswer, e.Stop)
}

func TestRaggedEpisodesAreBatched(t *testing.T) {
	w := newWorld(
		[]string{"<answer>a</answer>"},
		[]string{"<search>q</search>", "<answer>b</answer>"},
		[]string{"<search>q</search>", "oops", "<search>r</search>", "<answer>c</answer>"},
		[]string{"<search>r</search>", "<search>q</search>", "<answer>d</answer>"},
	)
	episodes := w.play(t, 2, "one", "two")
	assert.Equal(t, []int{4, 3, 2, 1}, w.sampler.Live, "one call a round for all live episodes")
	assert.Equal(t, [][]string{{"q", "r"}, {"q"}, {"r"}}, w.searcher.Queries, "one call a round, equal queries once")
	for i, want := range []string{"a", "b", "c", "d"} {
		answer, _ := episodes[i].FinalAnswer()
		assert.Equal(t, want, answer)
		assert.Equal(t, i/2, episodes[i].Group)
		assert.Equal(t, i%2, episodes[i].Sample)
		assert.Equal(t, episode.StopAnswer, episodes[i].Stop, "one flag an episode")
	}
	assert.Len(t, episodes, 4)
	assert.Equal(t, episodes[1].Turns[0].Passages, episodes[2].Turns[0].Passages)
}

func TestBatchSizeDoesNotChangeTheEpisodes(t *testing.T) {
	script := [][]string{{"<search>q</search>", "<answer>a</answer>"}, {"<answer>b</answer>"}, {"x"},
		{"<search>r</search>"}, {"<answer>e</answer>"}, {"<search>q</search>", "y"}}
	w := newWorld(script...)
	want := w.play(t, 2, "one", "two", "three")
	for _, batch := range []int{1, 2, 4, 5, 100} {
		w := newWorld(script...)
		w.opts.Batch = batch
		assert.Equal(t, want, w.play(t, 2, "one", "two", "three"), "batch %d", batch)
		for _, live := range w.sampler.Live {
			assert.LessOrEqual(t, live, batch)
		}
	}
}

func TestIdenticalPromptsStayTwoGroups(t *testing.T) {
	w := newWorld()
	w.sampler.Script = func(int, int) string { return "<answer>a</answer>" }
	episodes := w.play(t, 2, "same", "same")
	seeds := map[uint64]bool{}
	for i, e := range episodes {
		assert.Equal(t, i/2, e.Group)
		seeds[e.Seed] = true
	}
	assert.Len(t, seeds, 4)
}

func TestCancelEndsTheRollout(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w := newWorld([]string{"<search>q</search>", "<answer>a</answer>"})
	w.searcher.Before = cancel
	_, err := w.rollouter(t).Rollout(ctx, rows("?"), 1, Seeds(1, "train", 0))
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, w.sampler.Unreleased())

	w = newWorld()
	_, err = w.rollouter(t).Rollout(ctx, rows("?"), 1, Seeds(1, "train", 0))
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, w.sampler.Calls)
}

func TestSamplerErrorReleasesEverySequence(t *testing.T) {
	cause := errors.New("out of memory")
	w := newWorld()
	w.sampler.Script = func(int, int) string { return "<search>q</search>" }
	w.sampler.Err = func(context.Context) error {
		if len(w.sampler.Calls) == 2 {
			return cause
		}
		return nil
	}
	_, err := w.rollouter(t).Rollout(context.Background(), rows("a", "b"), 2, Seeds(1, "train", 0))
	require.ErrorIs(t, err, cause)
	assert.Zero(t, w.sampler.Unreleased())
}

func TestGSM8KEpisodeIsOneTurn(t *testing.T) {
	w := newWorld([]string{"2 + 2 = 4\n#### 4"},
		[]string{"<search>q</search> <answer>4</answer>" + strings.Repeat("x", 400)})
	w.opts.Task, w.opts.MaxTurns, w.opts.TopK, w.opts.MaxTurnTokens = TaskGSM8K, 0, 0, 10
	episodes := w.play(t, 2, "2+2?")
	first := episodes[0]
	assert.Equal(t, episode.StopEOS, first.Stop)
	assert.Equal(t, []episode.Action{episode.ActionNone}, actions(first))
	assert.Equal(t, "2 + 2 = 4\n#### 4", first.Turns[0].Text)
	assert.Equal(t, agenttest.EOS, first.IDs[len(first.IDs)-1])
	assert.Equal(t, uint8(1), first.Mask()[len(first.IDs)-1])

	assert.Equal(t, episode.StopLength, episodes[1].Stop, "tags are ordinary text here")
	assert.Equal(t, 400, episodes[1].CountTokens(episode.Policy), "the turn cap does not apply")
	assert.Empty(t, w.sampler.Calls[0].Stops)
	assert.Len(t, w.sampler.Calls, 1)
	assert.Empty(t, w.searcher.Queries)
}

func TestShuffledPassagesAreTheSameOnesInAnOrderOfTheEpisodesOwn(t *testing.T) {
	found := []episode.Passage{lake, river, agenttest.Passage("3", "Sea", "The sea."), agenttest.Passage("4", "Pond", "A pond.")}
	play := func(shuffle bool, seed uint64) []*episode.Episode {
		w := newWorld()
		w.sampler.Script = func(_, turn int) string { return []string{"<search>q</search>", "<answer>a</answer>"}[turn] }
		w.searcher.Passages["q"] = found
		w.opts.ShufflePassages = shuffle
		episodes, err := w.rollouter(t).Rollout(context.Background(), rows("?"), 12, Seeds(seed, "train", 0))
		require.NoError(t, err)
		w.check(t, episodes)
		return episodes
	}
	firsts := map[string]int{}
	for _, e := range play(true, 1) {
		shown := e.Turns[0].Passages
		assert.ElementsMatch(t, found[:3], shown, "the best three, not any three")
		assert.Equal(t, Observation(shown), e.Turns[0].Observation)
		firsts[shown[0].ID]++
	}
	assert.Len(t, firsts, 3, "each comes first at times: %v", firsts)
	assert.Equal(t, play(true, 1), play(true, 1))
	assert.NotEqual(t, play(true, 1)[0].IDs, play(true, 2)[0].IDs)
	for _, e := range play(false, 1) {
		assert.Equal(t, found[:3], e.Turns[0].Passages)
	}
}
