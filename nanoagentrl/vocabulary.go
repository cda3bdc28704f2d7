package nanoagentrl

import (
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// tags are the words of the protocol.
var tags = []string{"<think>", "</think>", "<search>", "</search>", "<information>", "</information>", "<answer>",
	"</answer>"}

// vocabularyFor makes the word-level tokenizer of an untrained model: the words of its questions, answers and passages,
// of the prompts, and of what the environment says. Their order is fixed by the texts.
func vocabularyFor(prompter *agent.Prompter, corpus []data.Passage, questions ...[]data.Question) (tokenizer.Stored, error) {
	words := []string{tokenizer.WordUnk, tokenizer.WordPad, tokenizer.WordBOS, tokenizer.WordEOS}
	words = append(words, tags...)
	texts := []string{prompter.System, prompter.User, agent.Correction}
	frame := agent.Observation([]episode.Passage{{Contents: "\"x\"\nx"}, {Contents: "\"x\"\nx"}, {Contents: "\"x\"\nx"}})
	texts = append(texts, frame)
	for _, p := range corpus {
		texts = append(texts, p.Contents, p.Text(), agent.Observation([]episode.Passage{{Contents: p.Contents}}))
	}
	for _, list := range questions {
		for _, q := range list {
			texts = append(texts, q.Text, strings.Join(q.Answers, " "))
		}
	}
	spaced := strings.NewReplacer("<", " <", ">", "> ")
	seen := map[string]bool{}
	for _, text := range texts {
		for _, word := range strings.Fields(spaced.Replace(text)) {
			seen[word] = true
		}
	}
	for _, w := range words {
		delete(seen, w)
	}
	var found []string
	for w := range seen {
		found = append(found, w)
	}
	slices.Sort(found)
	return tokenizer.NewWords(append(words, found...))
}
