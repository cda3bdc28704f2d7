package anserini_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/java"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/anserini"
)

// variable is where the tests take the jar from: "auto" fetches it once into the user's cache folder (113 MB),
// anything else is its path.
const variable = "NANOAGENTRL_ANSERINI"

// engine returns a real Anserini, or skips the test.
func engine(t *testing.T) *anserini.Engine {
	t.Helper()
	jar := os.Getenv(variable)
	if jar == "" {
		t.Skipf("skipped: this needs a real Anserini; set %s=auto (with Java 21 or newer, and Python), or to the path of its jar", variable)
	}
	if _, err := java.Find(21, 99); err != nil {
		t.Skipf("skipped: %v", err)
	}
	e, err := anserini.Find(t.Context(), jar)
	require.NoError(t, err)
	return e
}

// All questions of two data sets: the first three passages are Anserini's, except where scores tie.
func TestRealAnseriniFindsTheSame(t *testing.T) {
	e := engine(t)
	for _, set := range []string{"wiki18_pool", "hotpotqa"} {
		folder := testenv.Shared(t, "data", set)
		c, err := e.CompareCorpus(t.Context(), folder, texts(t, folder), 3)
		require.NoError(t, err)
		t.Logf("%s: top 3 of %d questions: %d equal, %d differ by ties only, %d differ", set, c.Questions, c.Equal, c.Ties, c.Other)
		for _, d := range c.Differences {
			t.Logf("%s: %+v", set, d)
		}
		assert.GreaterOrEqual(t, float64(c.Equal+c.Ties), 0.99*float64(c.Questions))
		assert.GreaterOrEqual(t, float64(c.Equal), 0.99*float64(c.Questions))
		assert.Less(t, c.Largest, 1e-4, "scores, which Anserini rounds to four decimals")
	}
}

// texts returns the questions of a data set.
func texts(t *testing.T, folder string) (queries []string) {
	t.Helper()
	questions, err := data.ReadQuestions(folder, data.QuestionOptions{})
	require.NoError(t, err)
	for _, q := range questions {
		queries = append(queries, q.Text)
	}
	return queries
}
