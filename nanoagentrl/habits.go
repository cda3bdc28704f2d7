package nanoagentrl

import (
	"fmt"
	"math"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// An untrained model writes noise: in a run with it nothing would be searched, all rewards would be 0 and no weight
// would move. So a random model gets habits. Its embedding holds a direction for each class of tokens beside the random
// part, and its output matrix reads these directions, so that it writes, seven times out of eight, a token of the class
// that tends to follow the one before: a bigram model of the protocol that knows no answer.

// habit says that the tokens of one class tend to be followed by those of another.
type habit struct {
	after []int
	// then are the classes of tokens that may follow, each as likely as the others.
	then [][]int
}

// habitStrength is the logarithm of how much more likely the habitual classes are than all other tokens together.
const habitStrength = 2.0

// habitsFor returns the habits of a policy that asks and answers by the protocol of a task. asks are the tokens after
// which it has to act.
func habitsFor(task agent.Task, tok tokenizer.Tokenizer, asks []int, corpus []data.Passage, questions []data.Question) []habit {
	word := func(w string) []int {
		if id, ok := tok.TokenID(w); ok {
			return []int{id}
		}
		return nil
	}
	set := newTokenSet(tok)
	answers := set.take(answersOf(questions)...)
	if task == agent.TaskGSM8K {
		return []habit{
			{after: asks, then: [][]int{word("####")}},
			{after: word("####"), then: [][]int{answers}},
			{after: answers, then: [][]int{word(tokenizer.WordEOS)}},
		}
	}
	for _, id := range asks {
		set.seen[id] = true
	}
	var subjects []string
	for _, p := range corpus {
		subjects = append(subjects, p.Title())
	}
	if len(corpus) == 0 { // it lies on a server
		for _, q := range questions {
			subjects = append(subjects, q.Text)
		}
	}
	queries := set.take(subjects...)
	return []habit{
		{after: asks, then: [][]int{word("<search>"), word("<answer>")}},
		{after: word("<search>"), then: [][]int{queries}},
		{after: queries, then: [][]int{queries, word("</search>")}},
		{after: word("<answer>"), then: [][]int{answers}},
		{after: answers, then: [][]int{word("</answer>")}},
	}
}

func answersOf(questions []data.Question) (answers []string) {
	for _, q := range questions {
		answers = append(answers, q.Answers...)
	}
	return answers
}

// tokenSet cuts words into classes that do not overlap.
type tokenSet struct {
	tok  tokenizer.Tokenizer
	seen map[int]bool
}

func newTokenSet(tok tokenizer.Tokenizer) *tokenSet {
	unknown, _ := tok.TokenID(tokenizer.WordUnk)
	return &tokenSet{tok, map[int]bool{unknown: true}}
}

// take returns the tokens of texts that no class has yet, in ascending order.
func (s *tokenSet) take(texts ...string) (ids []int) {
	for _, text := range texts {
		for _, id := range s.tok.EncodePlain(text) {
			if !s.seen[id] {
				s.seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// teach writes habits into a random model with an output matrix of its own, and renews its ID. A model that is narrower
// than the number of habits is left as it is.
func teach(p *policy.Policy, habits []habit) error {
	cfg := p.Program.Config()
	if len(habits) > cfg.HiddenSize {
		return nil
	}
	width := cfg.HiddenSize
	embedding, err := p.Params.Host("model.embed_tokens.weight")
	if err != nil {
		return err
	}
	output, err := p.Params.Host("lm_head.weight")
	if err != nil {
		return err
	}
	size := float32(math.Sqrt(float64(width))) // of a row after the final RMSNorm
	for class, h := range habits {
		for _, id := range h.after {
			embedding[id*width+class] = size
		}
		for _, then := range h.then {
			// exp(logit) adds up to exp(habitStrength) times the number of all tokens, over all that may follow.
			logit := habitStrength + math.Log(float64(cfg.VocabSize)/float64(len(h.then)*max(len(then), 1)))
			for _, id := range then {
				output[id*width+class] = float32(logit) / size
			}
		}
	}
	for i, name := range p.Params.Names() {
		values := map[string][]float32{"model.embed_tokens.weight": embedding, "lm_head.weight": output}[name]
		if values == nil {
			continue
		}
		t, err := device.Upload(p.Program.Device(), values, cfg.VocabSize, width)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := p.Params.Replace(i, t); err != nil {
			return err
		}
	}
	p.ID, err = p.Hash()
	return err
}
