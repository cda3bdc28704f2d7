package agent

import (
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// prompt is a question with its encoded prompt.
type prompt struct {
	question data.Question
	group    int
	text     string
	ids      []int
}

// LongPromptError reports a prompt that leaves no room for one full turn.
type LongPromptError struct {
	QuestionID string
	// Tokens is the length of the prompt, Turn that of a full turn, and Context the limit for both.
	Tokens, Turn, Context int
}

// Error implements error.
func (e *LongPromptError) Error() string {
	return fmt.Sprintf("agent: question %s: a prompt of %d tokens and a turn of %d do not fit into max_context (%d); "+
		"raise max_context, shorten the prompt, lower max_turn_tokens or max_new_tokens, or set long_prompt: skip",
		e.QuestionID, e.Tokens, e.Turn, e.Context)
}

// Fit returns the questions whose prompts leave room for one full turn, and what is wrong with the others. It costs one
// encoding of each prompt and lets a data set be cleaned before the first step, whatever Options.SkipLong says.
func (r *Rollouter) Fit(questions []data.Question) (fitting []data.Question, long []*LongPromptError, err error) {
	for i, q := range questions {
		p, tooLong, err := r.encodeOne(q, i)
		if err != nil {
			return nil, nil, err
		}
		if tooLong != nil {
			long = append(long, tooLong)
			continue
		}
		fitting = append(fitting, p.question)
	}
	return fitting, long, nil
}

// encode returns the prompts of the questions and those that are too long; without SkipLong the first of these is an
// error.
func (r *Rollouter) encode(questions []data.Question) (prompts []prompt, long []*LongPromptError, err error) {
	for i, q := range questions {
		p, tooLong, err := r.encodeOne(q, i)
		switch {
		case err != nil:
			return nil, nil, err
		case tooLong == nil:
			prompts = append(prompts, p)
		case r.opts.SkipLong:
			long = append(long, tooLong)
		default:
			return nil, nil, tooLong
		}
	}
	return prompts, long, nil
}

func (r *Rollouter) encodeOne(q data.Question, group int) (prompt, *LongPromptError, error) {
	text, err := r.prompter.Render(q)
	if err != nil {
		return prompt{}, nil, err
	}
	p := prompt{question: q, group: group, text: text, ids: r.tok.Encode(text)}
	if len(p.ids) == 0 {
		return prompt{}, nil, fmt.Errorf("agent: question %s: the prompt is empty", q.ID)
	}
	if turn := r.opts.turnTokens(0); len(p.ids)+turn > r.opts.MaxContext {
		return prompt{}, &LongPromptError{q.ID, len(p.ids), turn, r.opts.MaxContext}, nil
	}
	return p, nil, nil
}

// Check returns an error if the episode's record contradicts itself: tokens, sources and log-probabilities of different
// lengths, or turns that do not cover exactly the policy's tokens.
func Check(e *episode.Episode) error {
	if len(e.IDs) != len(e.Sources) || len(e.IDs) != len(e.LogProbs) {
		return fmt.Errorf("agent: episode of question %s: %d tokens, %d sources, %d log-probabilities",
			e.QuestionID, len(e.IDs), len(e.Sources), len(e.LogProbs))
	}
	at := 0
	for i, turn := range e.Turns {
		if turn.Begin < at || turn.End < turn.Begin || turn.End > len(e.IDs) {
			return fmt.Errorf("agent: episode of question %s: turn %d covers tokens %d to %d of %d, after %d",
				e.QuestionID, i+1, turn.Begin, turn.End, len(e.IDs), at)
		}
		for j := at; j < turn.End; j++ {
			if (e.Sources[j] == episode.Policy) != (j >= turn.Begin) {
				return fmt.Errorf("agent: episode of question %s: token %d is on the wrong side of turn %d",
					e.QuestionID, j, i+1)
			}
		}
		at = turn.End
	}
	for j := at; j < len(e.Sources); j++ {
		if e.Sources[j] == episode.Policy {
			return fmt.Errorf("agent: episode of question %s: policy token %d belongs to no turn", e.QuestionID, j)
		}
	}
	return nil
}
