package nanoagentrl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The splits of one world share a corpus, in which every question finds its passages.
func TestFactsWorldIsReachedByName(t *testing.T) {
	cfg := tiny(t, "train_data=facts:train", "eval_data=[facts:val,facts:test]", "corpus=facts", "world_people=30",
		"world_eval_people=10", "world_hops=mixed", "max_eval_questions=5", "max_obs_tokens=96", "steps=1",
		"best_metric=", "shuffle_passages=true")
	r, err := Open(t.Context(), cfg, Options{})
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, r.Splits, 2)
	require.Equal(t, "facts_val", r.Splits[0].Name)
	require.Equal(t, "facts_test", r.Splits[1].Name)
	passages := map[string]string{}
	for _, p := range r.corpus {
		passages[p.ID] = p.Text()
	}
	require.NotEmpty(t, r.questions)
	for i, split := range r.Splits {
		require.Len(t, split.Questions, 5)
		for _, q := range split.Questions {
			require.True(t, strings.HasPrefix(q.ID, []string{"facts_val_", "facts_test_"}[i]), q.ID)
			require.Contains(t, passages[q.GoldPassages[len(q.GoldPassages)-1]], q.Answers[0])
		}
	}
	require.NoError(t, r.Train(t.Context()))
}

func TestSumsWorldIsReachedByName(t *testing.T) {
	cfg := tiny(t, "task=gsm8k", "corpus=", "train_data=sums:train", "eval_data=[sums:test]", "world_sums=40",
		"world_eval_sums=10", "world_steps=2", "steps=1")
	r, err := Open(t.Context(), cfg, Options{})
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, r.questions, 40)
	require.Equal(t, "sums_test", r.Splits[0].Name)
	require.Equal(t, "sums_test_0", r.Splits[0].Questions[0].ID)
	require.NoError(t, r.Train(t.Context()))
}

func TestImpossibleWorldIsFoundBeforeAnythingIsWritten(t *testing.T) {
	cfg := tiny(t, "task=gsm8k", "corpus=", "train_data=sums:train", "eval_data=[sums:test]", "world_sums=100000",
		"world_steps=1")
	_, err := Open(t.Context(), cfg, Options{})
	require.ErrorContains(t, err, "different train problems of 1 steps")
	require.Empty(t, listing(t, cfg.RunDir))
}
