package agent

import (
	"fmt"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// DefaultText stands for the task's own text where a prompt is configured.
const DefaultText = "default"

// placeholder is replaced by the question in the user text.
const placeholder = "{question}"

const searchSystem = `You answer questions. You may look things up with a search engine before you answer.`

const searchUser = `Answer the question at the end, step by step, with these tags:
- Reason between <think> and </think>, at the start and again after each search result.
- If you are missing a fact, search for it: <search>your query</search>. Then stop writing; the passages found are ` +
	`given to you between <information> and </information>. Never write that block yourself. You may search again ` +
	`with another query.
- As soon as you know the answer, give it between <answer> and </answer>: only the answer itself, in a few words, ` +
	`as in <answer>Lake Victoria</answer>.

Question: {question}
`

const gsm8kSystem = `You solve maths word problems with care.`

const gsm8kUser = `Solve the problem. Show your calculation step by step. Then write, on a last line of its own, ` +
	`four hash signs and the result as a plain number, as in:
#### 42

Problem: {question}
`

// DefaultPrompts returns the system and user texts of a task.
func DefaultPrompts(task Task) (system, user string) {
	if task == TaskGSM8K {
		return gsm8kSystem, gsm8kUser
	}
	return searchSystem, searchUser
}

// Template renders messages as the model was trained to read them; with addGenerationPrompt the text ends where the
// assistant begins to write.
type Template func(messages []tokenizer.Message, addGenerationPrompt bool) (string, error)

// Prompter turns a question into the text that an episode begins with.
type Prompter struct {
	// System is the system text; empty sends none.
	System string
	// User is the user text, in which {question} is replaced by the question.
	User string
	// FromRow takes the messages of the data row as they stand; System and User are then not used.
	FromRow bool
	// Template is the model's chat template. If nil, the texts are joined by a blank line, with nothing after the
	// last.
	Template Template
}

// NewPrompter returns a Prompter with the given texts, where DefaultText stands for the task's own.
func NewPrompter(task Task, system, user string, fromRow bool, template Template) (*Prompter, error) {
	defaultSystem, defaultUser := DefaultPrompts(task)
	if system == DefaultText {
		system = defaultSystem
	}
	if user == DefaultText {
		user = defaultUser
	}
	if !fromRow && !strings.Contains(user, placeholder) {
		return nil, fmt.Errorf("agent: user_prompt has no %s", placeholder)
	}
	return &Prompter{System: system, User: user, FromRow: fromRow, Template: template}, nil
}

// Messages returns the messages of a question's prompt.
func (p *Prompter) Messages(q data.Question) ([]tokenizer.Message, error) {
	if p.FromRow {
		if len(q.Prompt) == 0 {
			return nil, fmt.Errorf("agent: question %s has no prompt in its row; use prompt_source: config", q.ID)
		}
		return q.Prompt, nil
	}
	var messages []tokenizer.Message
	if p.System != "" {
		messages = append(messages, tokenizer.Message{Role: "system", Content: p.System})
	}
	user := strings.ReplaceAll(p.User, placeholder, q.Text)
	return append(messages, tokenizer.Message{Role: "user", Content: user}), nil
}

// Render returns the text that an episode about q begins with.
func (p *Prompter) Render(q data.Question) (string, error) {
	messages, err := p.Messages(q)
	if err != nil {
		return "", err
	}
	if p.Template != nil {
		text, err := p.Template(messages, true)
		if err != nil {
			return "", fmt.Errorf("agent: chat template for question %s: %w", q.ID, err)
		}
		return text, nil
	}
	contents := make([]string, len(messages))
	for i, message := range messages {
		contents[i] = message.Content
	}
	return strings.Join(contents, "\n\n"), nil
}
