package reward

import (
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// FormatScore returns 1 if the policy kept to the protocol throughout, else 0. Only what the policy itself wrote is
// looked at: neither the prompt, which shows the tags, nor the passages, which may hold anything.
//
// With the tag protocol, each turn must end in a valid action and the last in an answer that is not blank; <answer>
// and </answer> must stand in all the turns together just once; <think> tags, if any, must be balanced and not nested
// within each turn (a prompt that ends in <think> opens the first); and the policy must not have written <information>
// itself. So an empty answer earns nothing, and neither do many answers.
//
// A single turn without actions (ActionNone) keeps to the format if it gives one answer: one "#### number", or one
// <answer> block that is not blank. A maths answer in tags must hold a number.
func FormatScore(e *episode.Episode) float64 {
	if len(e.Turns) == 0 {
		return 0
	}
	opens, closes := 0, 0
	for i, turn := range e.Turns {
		thinking := i == 0 && strings.HasSuffix(strings.TrimSpace(e.PromptText), "<think>")
		if !balancedThoughts(turn.Text, thinking) || strings.Contains(turn.Text, "<information>") ||
			strings.Contains(turn.Text, "</information>") {
			return 0
		}
		opens += strings.Count(turn.Text, "<answer>")
		closes += strings.Count(turn.Text, "</answer>")
	}
	last := e.Turns[len(e.Turns)-1]
	if len(e.Turns) == 1 && last.Action == episode.ActionNone {
		return oneOrZero(plainFormat(last.Text, IsMath(e.DataSource), opens, closes))
	}
	return oneOrZero(opens == 1 && closes == 1 && validActions(e) && holdsAnswer(last.Content, IsMath(e.DataSource)))
}

// validActions reports whether all turns but the last search and the last answers.
func validActions(e *episode.Episode) bool {
	for i, turn := range e.Turns {
		want := episode.ActionSearch
		if i == len(e.Turns)-1 {
			want = episode.ActionAnswer
		}
		if turn.Action != want {
			return false
		}
	}
	return true
}

// plainFormat judges a turn outside the turn loop.
func plainFormat(text string, math bool, opens, closes int) bool {
	if opens == 0 && closes == 0 {
		return math && strings.Count(text, "####") == 1 && markedNumber(text) != nil
	}
	content, found := taggedAnswer(text)
	return found && opens == 1 && closes == 1 && holdsAnswer(content, math)
}

func holdsAnswer(content string, math bool) bool {
	if math {
		_, ok := LastNumber(content)
		return ok
	}
	return strings.TrimSpace(content) != ""
}

// taggedAnswer returns the content of the last closed <answer> block.
func taggedAnswer(text string) (content string, found bool) {
	end := strings.LastIndex(text, "</answer>")
	if end < 0 {
		return "", false
	}
	begin := strings.LastIndex(text[:end], "<answer>")
	if begin < 0 {
		return "", false
	}
	return text[begin+len("<answer>") : end], true
}

// balancedThoughts reports whether each <think> is closed before the next one opens. open says that the text starts
// inside a thought.
func balancedThoughts(text string, open bool) bool {
	for {
		begin, end := strings.Index(text, "<think>"), strings.Index(text, "</think>")
		switch {
		case begin < 0 && end < 0:
			return !open
		case open && (end < 0 || begin >= 0 && begin < end), !open && (begin < 0 || end >= 0 && end < begin):
			return false
		case open:
			text = text[end+len("</think>"):]
		default:
			text = text[begin+len("<think>"):]
		}
		open = !open
	}
}

func oneOrZero(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// validTurns returns the share of turns that ended in an action; ok is false for an episode in which no actions are
// expected.
func validTurns(e *episode.Episode) (share float64, ok bool) {
	if _, plain := plainText(e); plain || len(e.Turns) == 0 {
		return 0, false
	}
	valid := e.CountActions(episode.ActionSearch) + e.CountActions(episode.ActionAnswer)
	return float64(valid) / float64(len(e.Turns)), true
}
