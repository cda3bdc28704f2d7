package reward

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// The right column is what the official Python scorer returns.
func TestNormalizeEqualsTheOfficialScorer(t *testing.T) {
	for text, want := range map[string]string{
		"  The  Cat's\tname, A!":  "cats name",
		"an apple a day":          "apple day",
		"The":                     "",
		"theatre another Anna":    "theatre another anna",
		"the_a b-a":               "thea ba",
		"U.S.A.":                  "usa",
		"1939–1945":               "1939–1945",
		"1939-1945":               "19391945",
		"“the” ’a’":               "“ ” ’ ’",
		"a\u0301 b":               "\u0301 b",
		"a² ½a":                   "a² ½a",
		"ΑΣ ΑΣΑ":                  "ας ασα",
		"İ":                       "i\u0307",
		"a\u00a0b\x1fc\u2003 d":   "b c d",
		"x\u200ba":                "x\u200b",
		"!\"#$%&'()*+,-./:;<=>?@": "",
		"[\\]^_`{|}~":             "",
		"latitude 90° North":      "latitude 90° north",
	} {
		assert.Equal(t, want, Normalize(text), "%q", text)
	}
}

func TestExactMatch(t *testing.T) {
	for _, c := range []struct {
		answer string
		golds  []string
		want   float64
	}{
		{" the Beatles! ", []string{"Stones", "Beatles"}, 1},
		{"Beatle", []string{"Beatles"}, 0},
		{"Beatles", nil, 0},
		{"", []string{"Beatles"}, 0},
		{"The", []string{"the"}, 1},
		{"the", []string{"A"}, 0}, // nothing is left of both, but they are not the same
		{"...", []string{"A"}, 0},
		{"", []string{"The"}, 0},
	} {
		assert.Equal(t, c.want, ExactMatch(c.answer, c.golds), "%q %q", c.answer, c.golds)
	}
}

func TestOnlyASCIIPunctuationIsIgnoredUnlessFolded(t *testing.T) {
	assert.Zero(t, ExactMatch("1939–1945", []string{"1939-1945"}))
	assert.Zero(t, ExactMatch("Beyonce", []string{"Beyoncé"}))
	for answer, gold := range map[string]string{
		"1939–1945": "1939-1945", "Beyonce": "Beyoncé", "Beyonce\u0301": "Beyonc\u00e9", "“Straße”": "strasse",
		"ﬁsh": "fish", "the Ｔｏｋｙｏ": "Tokyo", "Łódź": "łodz",
	} {
		assert.Equal(t, 1.0, ExactMatchFolded(answer, []string{gold}), "%q %q", answer, gold)
		assert.Equal(t, ExactMatchFolded(gold, []string{answer}), ExactMatchFolded(answer, []string{gold}))
	}
	assert.Zero(t, ExactMatchFolded("1939–1946", []string{"1939-1945"}))
}

func TestContainsWholeWordsOnly(t *testing.T) {
	for _, c := range []struct {
		text, gold string
		want       float64
	}{
		{"It was the Beatles.", "Beatles", 1},
		{"Leofric, Earl of Mercia", "earl of the Mercia", 1},
		{"I do not know", "no", 0},
		{"in 1912", "12", 0},
		{"no", "no", 1},
		{"Beatles", "the Beatles band", 0},
		{"", "no", 0},
		{"anything", "the", 0},
	} {
		assert.Equal(t, c.want, Contains(c.text, []string{"zzz", c.gold}), "%q %q", c.text, c.gold)
	}
}

func TestF1(t *testing.T) {
	assert.Equal(t, 1.0, F1("the Earl of Mercia", []string{"earl of mercia"}))
	assert.InDelta(t, 2.0/4, F1("Earl of Mercia", []string{"x", "Mercia"}), 1e-12) // precision 1/3, recall 1
	assert.InDelta(t, 2*2.0/5, F1("b b b", []string{"b b"}), 1e-12)
	assert.Zero(t, F1("x", []string{"y"}))
	assert.Zero(t, F1("", []string{"y"}))
	assert.Zero(t, F1("the", []string{"a"}))
	assert.Equal(t, 1.0, F1("The", []string{"the"}))
}

// The scores that another evaluation gave to real episodes.
func TestTrajectoriesScoreAsTheirSource(t *testing.T) {
	text, err := os.ReadFile(testenv.Shared(t, "data/trajectories/trajectories.jsonl"))
	require.NoError(t, err)
	scored := 0
	for line := range strings.Lines(string(text)) {
		var row struct {
			ID, Pred, Response string
			GoldenAnswers      []string                       `json:"golden_answers"`
			MetricScore        *struct{ EM, Acc, F1 float64 } `json:"metric_score"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		if row.MetricScore == nil {
			continue
		}
		scored++
		assert.Equal(t, row.MetricScore.EM, ExactMatch(row.Pred, row.GoldenAnswers), row.ID)
		assert.InDelta(t, row.MetricScore.F1, F1(row.Pred, row.GoldenAnswers), 1e-9, row.ID)
		assert.Equal(t, row.MetricScore.Acc, Contains(row.Pred, row.GoldenAnswers), row.ID)

		// The same from the response as a single turn: its last answer block is the answer.
		e := &episode.Episode{Answers: row.GoldenAnswers, DataSource: "bamboogle",
			Turns: []episode.Turn{{Text: row.Response, Action: episode.ActionNone}}}
		scorer, err := NewScorer(DefaultWeights(), false)
		require.NoError(t, err)
		scorer.ScoreOne(e)
		assert.Equal(t, row.MetricScore.EM, e.Reward, row.ID)
	}
	assert.Equal(t, 14, scored)
}
