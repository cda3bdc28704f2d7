package nanoagentrl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// A random model acts: most turns are a search or an answer, some are not.
func TestRandomModelHasTheHabitsOfItsTask(t *testing.T) {
	for task, actions := range map[string][]string{"search": {"train/num_searches", "train/answer_rate"},
		"gsm8k": {"train/answer_rate"}} {
		rec := record()
		_, err := train(t, t.Context(), tiny(t, "task="+task, "steps=3", "lr=0", "prompts_per_step=8"), rec)
		require.NoError(t, err)
		spread := 0.0
		for _, s := range rec.stats {
			for _, name := range actions {
				require.Greater(t, s[name], 0.2, "%s: %s", task, name)
			}
			require.Less(t, s["train/em"], 0.5, "it knows no answers")
			spread += s["train/reward_std"]
		}
		require.Positive(t, spread, "%s: rewards differ", task)
	}
}

// A model too narrow for habits is still a model.
func TestNarrowRandomModelHasNoHabits(t *testing.T) {
	rec := record()
	_, err := train(t, t.Context(), tiny(t, "random_hidden=4", "random_heads=2", "random_kv_heads=1", "steps=1"), rec)
	require.NoError(t, err)
	require.Less(t, rec.stats[0]["train/answer_rate"], 0.2)
}

func TestClassesOfHabitsDoNotOverlap(t *testing.T) {
	corpus, questions := data.TinyWorld(1, 48)
	prompter, err := agent.NewPrompter(agent.TaskSearch, "default", "default", false, nil)
	require.NoError(t, err)
	tok, err := vocabularyFor(prompter, corpus, questions)
	require.NoError(t, err)
	asks, err := lastTokens(prompter, tok, questions)
	require.NoError(t, err)
	seen := map[int]int{}
	for i, h := range habitsFor(agent.TaskSearch, tok, asks, corpus, questions) {
		require.NotEmpty(t, h.after)
		for _, id := range h.after {
			first, twice := seen[id]
			require.False(t, twice, "%q is in classes %d and %d", tok.Bytes(id), first, i)
			seen[id] = i
		}
		for _, then := range h.then {
			require.NotEmpty(t, then)
		}
	}
}

func TestVocabularyOfARandomModelHoldsAllItReadsAndWrites(t *testing.T) {
	corpus, questions := data.TinyWorld(1, 48)
	prompter, err := agent.NewPrompter(agent.TaskSearch, "default", "default", false, nil)
	require.NoError(t, err)
	tok, err := vocabularyFor(prompter, corpus, questions)
	require.NoError(t, err)
	unknown, ok := tok.TokenID(tokenizer.WordUnk)
	require.True(t, ok)
	for _, q := range questions {
		text, err := prompter.Render(q)
		require.NoError(t, err)
		require.NotContains(t, tok.Encode(text), unknown, text)
		require.NotContains(t, tok.EncodePlain("<answer> "+q.Answers[0]+" </answer>"), unknown)
	}
	require.NotContains(t, tok.EncodePlain(agent.Correction), unknown)
	again, err := vocabularyFor(prompter, corpus, questions)
	require.NoError(t, err)
	require.Equal(t, tok.Encode(agent.Correction), again.Encode(agent.Correction), "the order is fixed")
}
