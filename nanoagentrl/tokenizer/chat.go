package tokenizer

import (
	"errors"
	"fmt"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// ChatTemplate renders a chat as the text a model was trained on, from the Jinja template that came with the model.
// It is safe for concurrent use.
//
// White space is trimmed as transformers does it (trim_blocks and lstrip_blocks on, one trailing newline of the
// template dropped), by our own pass over the source. Templates see messages, add_generation_prompt, bos_token,
// eos_token, pad_token, unk_token, raise_exception, strftime_now and the tojson filter of transformers; tools and
// documents are undefined, and no template can read a file.
//
// The rest is the work of gonja, which differs from Python's Jinja in corners. A conditional inside brackets, as in
// {{ 'a' + ('b' if c else 'd') }}, is a parse error. Undefined values and None are the same: both print as nothing, are
// none and not defined, and looking into them is no error. An empty dict is true. A filter after "in" applies to the
// answer: write 'a' in (b|lower). A single index into a string counts bytes. items() sorts by key.
type ChatTemplate struct {
	// Now is the clock behind strftime_now, which some templates print as today's date. A run that must give the
	// same prompts tomorrow sets it to a fixed time; nil means time.Now.
	Now func() time.Time

	template *exec.Template
	tokens   map[string]any
}

// NewChatTemplate parses a Jinja chat template. The settings give the text of bos_token and its like.
func NewChatTemplate(source string, settings Settings) (_ *ChatTemplate, err error) {
	defer recoverTemplate(&err)
	const name = "/chat_template"
	trimmed, err := trimTemplate(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	loader, err := loaders.NewMemoryLoader(map[string]string{name: trimmed})
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	cfg := config.New()
	cfg.KeepTrailingNewline = true
	template, err := exec.NewTemplate(name, cfg, loader, chatEnvironment())
	if err != nil {
		// gonja puts the whole source in front of the reason; the reason alone is what helps.
		if reason := errors.Unwrap(err); reason != nil {
			err = reason
		}
		return nil, fmt.Errorf("chat template: %w", err)
	}
	t := &ChatTemplate{template: template, tokens: map[string]any{}}
	for key, token := range settings.roles() {
		if *token != "" {
			t.tokens[key] = *token
		}
	}
	return t, nil
}

// Render returns the text of a chat. With addGenerationPrompt it ends with the opening of the assistant's turn. A
// template that refuses the chat through raise_exception gives an error with the template's own words.
func (t *ChatTemplate) Render(messages []Message, addGenerationPrompt bool) (text string, err error) {
	defer recoverTemplate(&err)
	list := make(pythonList[*exec.Dict], len(messages))
	for i, m := range messages {
		dict := exec.NewDict()
		dict.Pairs = []*exec.Pair{
			{Key: exec.AsValue("role"), Value: exec.AsValue(m.Role)},
			{Key: exec.AsValue("content"), Value: exec.AsValue(m.Content)},
		}
		list[i] = dict
	}
	now := t.Now
	if now == nil {
		now = time.Now
	}
	variables := map[string]any{
		"messages":              list,
		"add_generation_prompt": addGenerationPrompt,
		"raise_exception":       raiseException,
		"strftime_now":          func(format string) string { return strftime(now(), format) },
	}
	for key, token := range t.tokens {
		variables[key] = token
	}
	text, err = t.template.ExecuteToString(exec.NewContext(variables))
	if refused, ok := errors.AsType[*refusedChatError](err); ok {
		return "", refused
	}
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	return text, nil
}

// refusedChatError is what a template raises.
type refusedChatError struct{ message string }

func (e *refusedChatError) Error() string { return "chat template refuses the chat: " + e.message }

func raiseException(message string) (string, error) { return "", &refusedChatError{message} }

// recoverTemplate turns a panic of the template library into an error.
func recoverTemplate(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("chat template: the template library failed: %v", r)
	}
}
