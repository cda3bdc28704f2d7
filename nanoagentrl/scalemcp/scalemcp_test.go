package scalemcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// published are the figures of 120 episodes.
var published = Figures{JointSuccess: 1, AverageCost: 2.75, SearchQueries: 240, MaskedRetrievedTokens: 1800,
	OutcomePolicyUpdates: 120, RetrievedTokens: 1800}

func play(t *testing.T, method Method, n int, seed uint64) ([]Task, []*episode.Episode) {
	t.Helper()
	tasks := Tasks(n, seed)
	episodes, err := Play(context.Background(), method, tasks, seed)
	require.NoError(t, err)
	require.Len(t, episodes, n)
	return tasks, episodes
}

func count(t *testing.T, tasks []Task, episodes []*episode.Episode) Figures {
	t.Helper()
	f, err := Count(tasks, episodes)
	require.NoError(t, err)
	return *f
}

func TestPublishedFiguresWhateverTheSeed(t *testing.T) {
	for _, seed := range []uint64{42, 0, 7} {
		f, err := Run(context.Background(), SearchR1, Tasks(120, seed), seed)
		require.NoError(t, err)
		assert.Equal(t, published, *f, "seed %d", seed)
	}
}

func TestFiguresUnderTheirPublishedNames(t *testing.T) {
	text, err := json.Marshal(published)
	require.NoError(t, err)
	assert.Equal(t, `{"joint_success":1.0,"average_cost":2.75,"search_queries":240,"masked_retrieved_tokens":1800,`+
		`"outcome_policy_updates":120}`, string(text))
}

func TestBaselines(t *testing.T) {
	tasks, episodes := play(t, NeverSearch, 120, 42)
	assert.Equal(t, Figures{JointSuccess: 0, AverageCost: 0.75, OutcomePolicyUpdates: 120}, count(t, tasks, episodes))

	tasks, episodes = play(t, RandomTool, 120, 42)
	f := count(t, tasks, episodes)
	assert.Less(t, float64(f.JointSuccess), 0.05, "a plan of two tools is guessed once in 144 times")
	f.JointSuccess = 1
	assert.Equal(t, published, f)
	for i, ep := range episodes {
		answer, _ := ep.FinalAnswer()
		assert.Equal(t, tasks[i].Answer, answer, "the tools are random, not the answer")
	}
}

func TestTasksFollowTheRecipe(t *testing.T) {
	tasks := Tasks(120, 42)
	assert.Equal(t, "ops", tasks[3].Domain)
	assert.Equal(t, 2, tasks[3].Depth)
	assert.Equal(t, []string{"browser:ops", "calendar:ops"}, tasks[3].Plan, "9 and 14 mod 12")
	assert.Equal(t, "shopping", tasks[16].Domain)
	assert.Equal(t, []string{"search:shopping", "mail:shopping", "files:shopping"}, tasks[16].Plan, "48, 53 and 58 mod 12")
	assert.Equal(t, tasks, Tasks(120, 42))
	assert.NotEqual(t, tasks, Tasks(120, 43))
}

func TestContextHas9Plus2DepthWords(t *testing.T) {
	for _, task := range Tasks(120, 1) {
		lengths := []int{}
		for _, p := range task.Context() {
			_, text, _ := strings.Cut(p.Contents, "\n")
			lengths = append(lengths, len(strings.Fields(text)))
		}
		assert.Equal(t, []int{6, 1, 1, 1, 2 * task.Depth}, lengths)
		assert.GreaterOrEqual(t, task.Nonce, 100)
		assert.LessOrEqual(t, task.Nonce, 998)
		assert.Equal(t, label(task.Domain, task.Nonce%17), task.Answer)
		for _, wrong := range task.Distractors {
			assert.False(t, strings.HasPrefix(wrong, task.Domain+"-"))
		}
		var dealt []episode.Passage
		for search := range task.Searches() {
			dealt = append(dealt, task.Part(search)...)
		}
		assert.Equal(t, task.Context(), dealt, "each passage is shown once")
	}
}

func TestOneFlippedMaskBitChangesTheFigures(t *testing.T) {
	tasks, episodes := play(t, SearchR1, 120, 42)
	ep := episodes[2] // three searches
	flip := func(at int, to episode.Source) Figures {
		was := ep.Sources[at]
		ep.Sources[at] = to
		defer func() { ep.Sources[at] = was }()
		require.Error(t, agent.Check(ep), "training would refuse it")
		return count(t, tasks, episodes)
	}
	places, err := retrieved(ep, mustWords(t, tasks))
	require.NoError(t, err)
	require.Len(t, places, 17)
	for _, at := range places {
		require.Equal(t, episode.Environment, ep.Sources[at])
		f := flip(at, episode.Policy)
		assert.Equal(t, 1799, f.MaskedRetrievedTokens)
		assert.Equal(t, 1800, f.RetrievedTokens)
		assert.Equal(t, 119, f.OutcomePolicyUpdates)
	}
	for _, turn := range ep.Turns {
		assert.Equal(t, 119, flip(turn.Begin, episode.Environment).OutcomePolicyUpdates)
		assert.Equal(t, 119, flip(turn.End-1, episode.Environment).OutcomePolicyUpdates)
	}
	assert.Equal(t, 119, flip(0, episode.Policy).OutcomePolicyUpdates, "a token of the prompt")
	assert.Equal(t, published, count(t, tasks, episodes))
}

func mustWords(t *testing.T, tasks []Task) func(string) []int {
	t.Helper()
	tok, err := vocabulary(tasks)
	require.NoError(t, err)
	return tok.EncodePlain
}

func TestEveryWordIsAToken(t *testing.T) {
	tasks, episodes := play(t, SearchR1, 12, 3)
	tok, err := vocabulary(tasks)
	require.NoError(t, err)
	unknown, _ := tok.TokenID("<unk>")
	for _, ep := range episodes {
		assert.NotContains(t, ep.IDs, unknown)
	}
	assert.Equal(t, len(strings.Fields(tok.Decode(episodes[0].IDs))), len(episodes[0].IDs))
}

func TestTheAnswerIsReadAndNotKnown(t *testing.T) {
	tasks, episodes := play(t, SearchR1, 120, 42)
	tok, err := vocabulary(tasks)
	require.NoError(t, err)
	for i, ep := range episodes {
		last := ep.Turns[len(ep.Turns)-1].Begin
		first := slices.Index(ep.Sources, episode.Policy)
		assert.NotContains(t, tok.Decode(ep.IDs[:first]), tasks[i].Answer)
		assert.Contains(t, tok.Decode(ep.IDs[:last]), tasks[i].Answer)
	}
}

func TestWrongPlanOrAnswerIsNoSuccess(t *testing.T) {
	tasks, episodes := play(t, SearchR1, 3, 42)
	tasks[0].Plan = append([]string{"mail:travel"}, tasks[0].Plan[1:]...)
	assert.InDelta(t, 2.0/3, float64(count(t, tasks, episodes).JointSuccess), 1e-12)
	episodes[1].Answers = []string{"travel-17"}
	assert.InDelta(t, 1.0/3, float64(count(t, tasks, episodes).JointSuccess), 1e-12)
}

func TestLostPassageIsAnError(t *testing.T) {
	tasks, episodes := play(t, SearchR1, 3, 42)
	places, err := retrieved(episodes[1], mustWords(t, tasks))
	require.NoError(t, err)
	episodes[1].IDs[places[4]]++
	_, err = Count(tasks, episodes)
	assert.ErrorContains(t, err, "task 1: the words of passage 1-case are not among the tokens after turn 1")
	_, err = Count(tasks[:2], episodes)
	assert.ErrorContains(t, err, "3 episodes of 2 tasks")
}

func TestBadInput(t *testing.T) {
	_, err := Run(context.Background(), "search-r2", Tasks(3, 1), 1)
	assert.ErrorContains(t, err, `unknown method "search-r2"; choose search-r1, never-search or random-tool`)
	_, err = Run(context.Background(), SearchR1, nil, 1)
	assert.ErrorContains(t, err, "at least 1 episode")
}

func TestOtherCasesFindNothing(t *testing.T) {
	s := &searcher{Tasks(3, 1)}
	task := s.tasks[2]
	results := s.Search(context.Background(), []string{
		task.Query(0), query(2, task.Nonce+1, 0), query(2, task.Nonce, 3), query(3, task.Nonce, 0), "weather",
	}, 1)
	assert.Equal(t, task.Part(0)[:1], results[0].Passages)
	for _, r := range results[1:4] {
		assert.Empty(t, r.Passages)
		assert.NoError(t, r.Err)
	}
	assert.Error(t, results[4].Err)
}
