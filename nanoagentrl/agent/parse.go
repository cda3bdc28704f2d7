package agent

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// The tags of the protocol, as Search-R1 (Jin et al. 2025, arXiv:2503.09516) introduced them.
const (
	searchOpen, searchClose = "<search>", "</search>"
	answerOpen, answerClose = "<answer>", "</answer>"
	infoOpen, infoClose     = "<information>", "</information>"
	thinkOpen, thinkClose   = "<think>", "</think>"
)

// Stops are the strings that end a turn of a search episode.
var Stops = []string{searchClose, answerClose}

var protocolTags = []string{
	searchOpen, searchClose, answerOpen, answerClose, infoOpen, infoClose, thinkOpen, thinkClose,
}

// MaxQueryChars is the number of characters above which a query is no valid action.
const MaxQueryChars = 500

// Correction is what the environment writes after an invalid action that leaves another try.
const Correction = "\n\nThat was no valid action. To search, write <search>query</search>. To answer, write " +
	"<answer>answer</answer>. Then stop. Try again.\n\n"

var closedThought = regexp.MustCompile(`(?s)<think>.*?</think>`)

// ParseAction reads the action out of one turn of the policy. text is what the policy wrote in that turn, up to and
// including the stop string; stop is the stop string that fired, or "" if an end token, the token cap or the context
// ended the turn. It returns the action and what stands inside its tags, trimmed; the query with every run of white
// space as one space. Everything hangs on the first closing tag, </search> or </answer>, since sampling stops there:
//
//	text                                        action   content  why
//	<search>q</search>                          search   q
//	words <search> q </search>                  search   q        text around the block is free
//	<think>t</think> <search>q</search>         search   q
//	<think>t <search>q</search>                 search   q        an unclosed thought is no fault of the action
//	<think>a <search> b</think><search>q</search> search q        tags that a closed thought mentions do not count
//	<think>a <search> and </search> b</think>   search   and      a thought that mentions a whole block acts
//	<search>a\n b</search>                      search   a b      line breaks are white space
//	<search>a <b>c</b></search>                 search   a <b>c</b>  other tags are text
//	<answer> a\nb </answer>                     answer   a\nb
//	<answer>a</answer><search>q</search>        answer   a        the first block acts
//	<search>q</search><answer>a</answer>        search   q        the first block acts
//	<search>q</search><search>r</search>        search   q        the first block acts
//	<search></search>, <search> \n </search>    invalid           empty
//	<answer></answer>                           invalid           empty
//	<search>q                                   invalid           never closed (stop is "")
//	q</search>                                  invalid           never opened
//	<search>q</answer>, <answer>a</search>      invalid           closed by another tag
//	<search><search>q</search>                  invalid           nested
//	<answer>a <search>q</search>                invalid           one block left open
//	<search>a <think>b</think></search>         invalid           protocol tag inside the query
//	<search>501 characters</search>             invalid           longer than MaxQueryChars
//	<SEARCH>q</SEARCH>, <search >q</search>     invalid           tags are lower case, without spaces
//	<information>i</information><search>q</search> invalid        the policy wrote a result itself
//	<think><information>i</think><search>q</search> invalid       … also within a thought
//	<search>q</search> with stop ""             invalid           nothing fired; a sampler never reports this
//	any text without an action, end token       invalid           an end token is no action
func ParseAction(text, stop string) (action episode.Action, content string) {
	if stop == "" {
		return episode.ActionInvalid, ""
	}
	action, open, end := firstClosing(text)
	if end < 0 {
		return episode.ActionInvalid, ""
	}
	body := text[:end]
	begin := strings.LastIndex(body, open)
	if begin < 0 || containsAny(body, infoOpen, infoClose) {
		return episode.ActionInvalid, ""
	}
	before, content := body[:begin], body[begin+len(open):]
	if containsAny(content, protocolTags...) {
		return episode.ActionInvalid, ""
	}
	// The space keeps what stood on both sides of a thought from becoming a tag.
	if containsAny(closedThought.ReplaceAllString(before, " "), searchOpen, answerOpen) {
		return episode.ActionInvalid, ""
	}
	content = strings.TrimSpace(content)
	if action == episode.ActionSearch {
		content = strings.Join(strings.Fields(content), " ")
	}
	if content == "" || action == episode.ActionSearch && utf8.RuneCountInString(content) > MaxQueryChars {
		return episode.ActionInvalid, ""
	}
	return action, content
}

// firstClosing returns the action of the first closing tag, its opening tag, and where the closing tag begins, or -1.
func firstClosing(text string) (action episode.Action, open string, at int) {
	search, answer := strings.Index(text, searchClose), strings.Index(text, answerClose)
	if search >= 0 && (answer < 0 || search < answer) {
		return episode.ActionSearch, searchOpen, search
	}
	return episode.ActionAnswer, answerOpen, answer
}

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
