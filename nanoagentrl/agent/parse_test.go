package agent

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

func TestParseActionTable(t *testing.T) {
	const search, answer, invalid = episode.ActionSearch, episode.ActionAnswer, episode.ActionInvalid
	for _, row := range []struct {
		name, text string
		action     episode.Action
		content    string
	}{
		{"plain", "<search>q</search>", search, "q"},
		{"words around", "words <search> q </search>", search, "q"},
		{"thought first", "<think>t</think> <search>q</search>", search, "q"},
		{"thought not closed", "<think>t <search>q</search>", search, "q"},
		{"thought mentions an opening tag", "<think>a <search> b</think><search>q</search>", search, "q"},
		{"thought mentions a block", "<think>a <search> and </search> b</think>", search, "and"},
		{"newline inside", "<search>a\n b</search>", search, "a b"},
		{"other white space inside", "<search>\ta\u00a0\u2029b\r\n</search>", search, "a b"},
		{"other tags inside", "<search>a <b>c</b></search>", search, "a <b>c</b>"},
		{"accents and CJK", "<search>órgãos 東京</search>", search, "órgãos 東京"},
		{"punctuation only", "<search>!!!</search>", search, "!!!"},
		{"answer keeps its lines", "<answer> a\nb </answer>", answer, "a\nb"},
		{"answer before search", "<answer>a</answer><search>q</search>", answer, "a"},
		{"search before answer", "<search>q</search><answer>a</answer>", search, "q"},
		{"two searches", "<search>q</search><search>r</search>", search, "q"},
		{"500 characters", "<search>" + strings.Repeat("é", 500) + "</search>", search, strings.Repeat("é", 500)},
		{"long answer", "<answer>" + strings.Repeat("a", 501) + "</answer>", answer, strings.Repeat("a", 501)},

		{"empty search", "<search></search>", invalid, ""},
		{"blank search", "<search> \n </search>", invalid, ""},
		{"empty answer", "<answer></answer>", invalid, ""},
		{"blank answer", "<answer>\n\u00a0</answer>", invalid, ""},
		{"only closing", "q</search>", invalid, ""},
		{"closed by another tag", "<search>q</answer>", invalid, ""},
		{"answer closed by another tag", "<answer>a</search>", invalid, ""},
		{"nested", "<search><search>q</search>", invalid, ""},
		{"nested answer", "<answer><answer>a</answer>", invalid, ""},
		{"answer left open", "<answer>a <search>q</search>", invalid, ""},
		{"search left open", "<search>q <answer>a</answer>", invalid, ""},
		{"thought inside", "<search>a <think>b</think></search>", invalid, ""},
		{"thought ends inside", "<think>use <search>a</think> b</search>", invalid, ""},
		{"thought hides a tag's middle", "<sea<think>x</think>rch>q</search>", invalid, ""},
		{"information inside", "<answer>a<information>b</answer>", invalid, ""},
		{"501 characters", "<search>" + strings.Repeat("é", 501) + "</search>", invalid, ""},
		{"opening in upper case", "<SEARCH>q</search>", invalid, ""},
		{"opening with a space", "<search >q</search>", invalid, ""},
		{"result written by the policy", "<information>i</information><search>q</search>", invalid, ""},
		{"result opened in a thought", "<think><information>i</think><search>q</search>", invalid, ""},
		{"result only closed", "i</information> <answer>a</answer>", invalid, ""},
		{"fired without any block", "words", invalid, ""},
	} {
		stop := searchClose
		if strings.Contains(row.text, answerClose) {
			stop = answerClose
		}
		action, content := ParseAction(row.text, stop)
		assert.Equal(t, row.action, action, row.name)
		assert.Equal(t, row.content, content, row.name)
	}
}

func TestParseActionWithoutAStopStringIsInvalid(t *testing.T) {
	for _, text := range []string{
		"", "words", "<search>q", "<answer>a", "<SEARCH>q</SEARCH>", "<search>q</search>", "<answer>a</answer>",
		"<|begin_of_query|> q<|end_of_query|>",
	} {
		action, content := ParseAction(text, "")
		assert.Equal(t, episode.ActionInvalid, action, text)
		assert.Empty(t, content, text)
	}
}

// FuzzParseAction checks what must hold for any text.
func FuzzParseAction(f *testing.F) {
	f.Add("<think>t</think><search> q </search>")
	f.Add("<answer>a</answer>")
	f.Fuzz(func(t *testing.T, text string) {
		action, content := ParseAction(text, searchClose)
		if action == episode.ActionInvalid {
			assert.Empty(t, content)
			return
		}
		assert.NotEmpty(t, strings.TrimSpace(content))
		assert.False(t, containsAny(content, protocolTags...))
		assert.Contains(t, []episode.Action{episode.ActionSearch, episode.ActionAnswer}, action)
	})
}

func TestRealTrajectoriesParseToTheirNumberOfSearches(t *testing.T) {
	file, err := os.Open(testenv.Shared(t, "data", "trajectories", "trajectories.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	searches := map[string]int{
		"one_search_right": 1, "one_search_wrong": 1, "two_searches_right": 2, "two_searches_wrong": 2,
		"three_plus_searches": 3, "no_search": 0, "no_answer": 0, "information_without_search": 0, "other_dialect": 0,
	}
	scanner, n := bufio.NewScanner(file), 0
	scanner.Buffer(nil, 1<<20)
	for ; scanner.Scan(); n++ {
		var row struct{ ID, Kind, Response, Pred string }
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &row))
		want, known := searches[row.Kind]
		require.True(t, known, row.Kind)
		if row.ID == "search_r1_10" {
			// Its first </search> closes nothing; the other two <search> stand in the correction message that followed
			// and in the one real search.
			want--
		}
		found, answer := parseTrajectory(row.Response)
		assert.Equal(t, want, found, row.ID)
		if row.Kind != "information_without_search" {
			assert.Equal(t, row.Pred, answer, row.ID)
		} else {
			assert.Empty(t, answer, row.ID)
		}
	}
	require.NoError(t, scanner.Err())
	assert.GreaterOrEqual(t, n, 1)
}

// parseTrajectory cuts a recorded response into turns, as sampling with stop strings would have, leaves out what the
// environment wrote, and returns the number of searches and the answer.
func parseTrajectory(response string) (searches int, answer string) {
	for response != "" {
		turn, stop := response, ""
		if _, _, at := firstClosing(response); at >= 0 {
			stop = response[at : at+len(searchClose)]
			turn = response[:at+len(stop)]
		}
		response = response[len(turn):]
		action, content := ParseAction(turn, stop)
		switch action {
		case episode.ActionAnswer:
			return searches, content
		case episode.ActionSearch:
			searches++
			_, response, _ = strings.Cut(response, infoClose)
		default:
			if rest, ok := strings.CutPrefix(response, "\nMy previous action is invalid."); ok {
				_, response, _ = strings.Cut(rest, "Let me try again.")
			}
		}
	}
	return searches, ""
}
