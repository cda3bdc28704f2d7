package reward

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// played returns an episode with the given turns, each with the action and content that the agent's parser gives.
func played(source string, golds []string, turns ...episode.Turn) *episode.Episode {
	e := &episode.Episode{DataSource: source, Answers: golds, Turns: turns, Stop: episode.StopAnswer,
		PromptText: "Search in <search>, answer in <answer> and </answer>. For example, <answer> Beijing </answer>."}
	e.Append(episode.Prompt, []int{1}, nil)
	e.Append(episode.Policy, []int{2}, []float32{-1})
	return e
}

func searchTurn(query string) episode.Turn {
	return episode.Turn{
		Text: "<think>t</think> <search>" + query + "</search>", Action: episode.ActionSearch, Content: query,
		Observation: "<information>Doc 1(Title: x) <answer>fake</answer> <think></information>",
	}
}

func answerTurn(answer string) episode.Turn {
	turn := episode.Turn{Text: "<think>t</think><answer>" + answer + "</answer>", Action: episode.ActionInvalid}
	if content := strings.TrimSpace(answer); content != "" {
		turn.Action, turn.Content = episode.ActionAnswer, content
	}
	return turn
}

func plainTurn(text string) episode.Turn {
	return episode.Turn{Text: text, Action: episode.ActionNone}
}

func score(t *testing.T, weights Weights, e *episode.Episode) *episode.Episode {
	t.Helper()
	scorer, err := NewScorer(weights, false)
	require.NoError(t, err)
	scorer.Score([]*episode.Episode{e})
	return e
}

func TestPartsAreKeptOneByOne(t *testing.T) {
	weights := Weights{EM: 1, EMLenient: 0.5, F1: 0.25, Format: 0.125, EMNumber: 100}
	e := score(t, weights, played("nq", []string{"Mercia"}, searchTurn("q"), answerTurn("Earl of Mercia")))
	assert.Equal(t, map[string]float64{PartEM: 0, PartEMLenient: 1, PartF1: 0.5, PartFormat: 1,
		PartValidTurns: 1}, e.Parts)
	assert.InDelta(t, 0.5+0.125+0.125, e.Reward, 1e-12)
	assert.Zero(t, Correct(e))

	e = score(t, weights, played("gsm8k", []string{"72"}, answerTurn("$72")))
	assert.Equal(t, map[string]float64{PartEMNumber: 1, PartEMNumberStrict: 1, PartFormat: 1,
		PartValidTurns: 1}, e.Parts)
	assert.InDelta(t, 100.125, e.Reward, 1e-12)
	assert.Equal(t, 1.0, Correct(e))
}

func TestOneAnswerTagInTheResponseIsEnough(t *testing.T) {
	e := score(t, DefaultWeights(), played("nq", []string{"Beijing"}, answerTurn("Beijing")))
	assert.Equal(t, 1.0, e.Reward)
	assert.Equal(t, 1.0, e.Parts[PartFormat])
}

func TestValidTurnsIsTheShareOfTurnsWithAnAction(t *testing.T) {
	invalid := episode.Turn{Text: "Well.", Action: episode.ActionInvalid}
	e := score(t, Weights{EM: 1, ValidTurns: 0.5}, played("nq", []string{"x"}, searchTurn("q"), invalid, invalid, answerTurn("y")))
	assert.Equal(t, 0.5, e.Parts[PartValidTurns])
	assert.Equal(t, 0.25, e.Reward)
	e = score(t, Weights{EM: 1}, played("nq", []string{"x"}))
	assert.NotContains(t, e.Parts, PartValidTurns, "an episode without turns")
}

func TestAnswerInThePromptOrAPassageEarnsNothing(t *testing.T) {
	for name, turns := range map[string][]episode.Turn{
		"no turn":        nil,
		"only a search":  {searchTurn("q")},
		"invalid":        {{Text: "Beijing", Action: episode.ActionInvalid}},
		"fake by a page": {searchTurn("q"), answerTurn("something")},
	} {
		e := score(t, Weights{EM: 1, EMLenient: 1, F1: 1}, played("nq", []string{"Beijing", "fake"}, turns...))
		assert.Zero(t, e.Reward, name)
		for _, part := range []string{PartEM, PartEMLenient, PartF1} {
			assert.Contains(t, e.Parts, part, name)
		}
	}
}

func TestEmptyAnswerEarnsNothing(t *testing.T) {
	all := Weights{EM: 1, EMLenient: 1, F1: 1, EMNumber: 1, EMNumberStrict: 1, Format: 1}
	for _, golds := range [][]string{{"Beijing"}, {"the"}, {"..."}} {
		assert.Zero(t, score(t, all, played("nq", golds, answerTurn(""))).Reward)
		assert.Zero(t, score(t, all, played("nq", golds, answerTurn(" \n"))).Reward)
		assert.Zero(t, score(t, all, played("nq", golds, plainTurn("<answer></answer>"))).Reward)
		// Even if a parser should let it through.
		blank := answerTurn("")
		blank.Action = episode.ActionAnswer
		assert.Zero(t, score(t, all, played("nq", golds, blank)).Reward)
		assert.Zero(t, score(t, all, played("gsm8k", []string{"0"}, blank)).Reward)
	}
}

func TestManyAnswerTagsGetNoBonus(t *testing.T) {
	weights := Weights{EM: 1, Format: 1}
	for _, tags := range []int{2, 10, 11} {
		text := strings.Repeat("<answer>Paris</answer>", tags-1) + "<answer>Beijing</answer>"
		e := score(t, weights, played("nq", []string{"Beijing"}, plainTurn(text)))
		assert.Zero(t, e.Parts[PartFormat], "%d tags", tags)
		assert.Equal(t, 1.0, e.Reward, "one of the answers counts, not all")
		e = score(t, weights, played("nq", []string{"Paris"}, plainTurn(text)))
		assert.Zero(t, e.Reward)
	}
}

func TestRetrieverErrorIsScoredButNotTrained(t *testing.T) {
	e := played("nq", []string{"Beijing"}, searchTurn("q"))
	e.Stop = episode.StopRetriever
	score(t, DefaultWeights(), e)
	assert.Equal(t, map[string]float64{PartEM: 0, PartEMLenient: 0, PartF1: 0, PartFormat: 0,
		PartValidTurns: 1}, e.Parts)
	assert.Zero(t, e.Reward)
	assert.False(t, e.Trainable())
	assert.True(t, played("nq", nil, answerTurn("x")).Trainable())
}

func TestFoldedMatchIsReportedApart(t *testing.T) {
	scorer, err := NewScorer(DefaultWeights(), true)
	require.NoError(t, err)
	e := played("nq", []string{"1939-1945"}, answerTurn("1939–1945"))
	scorer.ScoreOne(e)
	assert.Zero(t, e.Parts[PartEM])
	assert.Equal(t, 1.0, e.Parts[PartEMFolded])
	assert.Zero(t, e.Reward)

	none := played("nq", []string{"x"})
	scorer.ScoreOne(none)
	assert.Contains(t, none.Parts, PartEMFolded)
	assert.NotContains(t, score(t, DefaultWeights(), played("nq", nil)).Parts, PartEMFolded)
}

func TestMathsAnswerMayStandInTagsOrAfterTheMark(t *testing.T) {
	for _, c := range []struct {
		name           string
		turn           episode.Turn
		number, strict float64
	}{
		{"mark", plainTurn("48 + 24 = 72\n#### 72"), 1, 1},
		{"mark, wrong", plainTurn("72, no\n#### 71"), 0, 0},
		{"last number", plainTurn("48 + 24 = 72 clips, altogether."), 1, 0},
		{"last number, wrong", plainTurn("72 of 100"), 0, 0},
		{"tags", answerTurn("72 clips"), 1, 1},
		{"mark in tags", answerTurn("#### 72"), 1, 1},
		{"tags, wrong", answerTurn("71"), 0, 0},
		{"tags in plain text", plainTurn("<answer>72</answer> of 100"), 1, 1},
		{"tags without a number", plainTurn("72 <answer>many</answer>"), 0, 0},
		{"mark before tags", plainTurn("#### 72 <answer>71</answer>"), 1, 1},
		{"no answer in the tag protocol", searchTurn("72"), 0, 0},
		{"invalid in the tag protocol", episode.Turn{Text: "#### 72", Action: episode.ActionInvalid}, 0, 0},
	} {
		e := score(t, Weights{EMNumber: 1}, played("openai/gsm8k", []string{"72"}, c.turn))
		assert.Equal(t, c.number, e.Parts[PartEMNumber], c.name)
		assert.Equal(t, c.strict, e.Parts[PartEMNumberStrict], c.name)
		assert.Equal(t, c.number, e.Reward, c.name)
	}
}

func TestDataSourceDecidesTheReward(t *testing.T) {
	for source, math := range map[string]bool{
		"gsm8k": true, "openai/gsm8k": true, "GSM8K": true, "gsm8k_socratic": true, "nq": false, "": false, "gsm8k/nq": false,
	} {
		assert.Equal(t, math, IsMath(source), source)
		e := score(t, DefaultWeights(), played(source, []string{"1,000"}, answerTurn("about $1000.00")))
		assert.Equal(t, oneOrZero(math), e.Reward, source)
	}
}

func TestFormatOfEachTurn(t *testing.T) {
	turn := func(text string, action episode.Action) episode.Turn {
		return episode.Turn{Text: text, Action: action, Content: "x"}
	}
	answer := func(text string) episode.Turn { return turn(text, episode.ActionAnswer) }
	find := func(text string) episode.Turn { return turn(text, episode.ActionSearch) }
	for _, c := range []struct {
		name  string
		turns []episode.Turn
		want  float64
	}{
		{"answer", []episode.Turn{answer("<answer>x</answer>")}, 1},
		{"searches and answer", []episode.Turn{searchTurn("a"), searchTurn("b"), answerTurn("x")}, 1},
		{"thought without tags", []episode.Turn{answer("so: <answer>x</answer>")}, 1},
		{"two thoughts", []episode.Turn{answer("<think>a</think><think>b</think><answer>x</answer>")}, 1},
		{"no turn", nil, 0},
		{"no answer", []episode.Turn{searchTurn("a")}, 0},
		{"one invalid turn", []episode.Turn{turn("hm", episode.ActionInvalid), answerTurn("x")}, 0},
		{"answer before the end", []episode.Turn{answerTurn("x"), searchTurn("a")}, 0},
		{"unclosed thought", []episode.Turn{answer("<think>a <answer>x</answer>")}, 0},
		{"unopened thought", []episode.Turn{answer("a</think><answer>x</answer>")}, 0},
		{"nested thought", []episode.Turn{answer("<think><think>a</think></think><answer>x</answer>")}, 0},
		{"thought closed first", []episode.Turn{answer("</think>a<think><answer>x</answer>")}, 0},
		{"thought over turns", []episode.Turn{find("<think><search>x</search>"), answer("</think><answer>x</answer>")}, 0},
		{"an answer tag in a search", []episode.Turn{find("<answer> <search>x</search>"), answerTurn("x")}, 0},
		{"a passage of its own", []episode.Turn{answer("<information>x</information><answer>x</answer>")}, 0},
		{"a plain turn after a search", []episode.Turn{searchTurn("a"), plainTurn("<answer>x</answer>")}, 0},
	} {
		assert.Equal(t, c.want, FormatScore(played("nq", nil, c.turns...)), c.name)
	}
	opened := played("nq", nil, answer("a</think><answer>x</answer>"))
	opened.PromptText += "\n<think>\n"
	assert.Equal(t, 1.0, FormatScore(opened), "the prompt opened the thought")
	opened.Turns[0].Text = "<answer>x</answer>"
	assert.Zero(t, FormatScore(opened))
}

func TestFormatOfMathsWithoutTags(t *testing.T) {
	for text, want := range map[string]float64{
		"48 + 24 = 72\n#### 72": 1, "#### 72.": 1, "72": 0, "#### many": 0, "#### 71\n#### 72": 0, "": 0,
		"<answer>72</answer>": 1, "<answer>many</answer>": 0, "<answer>72": 0,
	} {
		assert.Equal(t, want, FormatScore(played("gsm8k", nil, plainTurn(text))), "%q", text)
	}
	assert.Zero(t, FormatScore(played("nq", nil, plainTurn("#### 72"))), "no format of question answering")
}

func TestScoringAgainStartsAfresh(t *testing.T) {
	e := score(t, DefaultWeights(), played("nq", []string{"x"}, answerTurn("x")))
	e.Parts["stale"] = math.NaN()
	e.Reward = math.NaN()
	score(t, DefaultWeights(), e)
	assert.Equal(t, 1.0, e.Reward)
	assert.NotContains(t, e.Parts, "stale")
}

func TestWeightsMustBeUsable(t *testing.T) {
	for _, weights := range []Weights{{}, {EM: math.NaN()}, {EM: 1, Format: math.Inf(-1)}} {
		_, err := NewScorer(weights, false)
		assert.Error(t, err, "%+v", weights)
	}
	e := score(t, Weights{EM: -1}, played("nq", []string{"x"}, answerTurn("x")))
	assert.Equal(t, -1.0, e.Reward, "a penalty is a weight")
}
