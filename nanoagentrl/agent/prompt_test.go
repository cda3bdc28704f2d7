package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

func TestDefaultPromptsNameTheProtocol(t *testing.T) {
	p, err := NewPrompter(TaskSearch, DefaultText, DefaultText, false, nil)
	require.NoError(t, err)
	text, err := p.Render(data.Question{Text: "Who?"})
	require.NoError(t, err)
	for _, tag := range protocolTags {
		assert.Contains(t, text, tag)
	}
	assert.True(t, strings.HasSuffix(text, "Question: Who?\n"), text)

	p, err = NewPrompter(TaskGSM8K, DefaultText, DefaultText, false, nil)
	require.NoError(t, err)
	text, err = p.Render(data.Question{Text: "1+1?"})
	require.NoError(t, err)
	assert.Contains(t, text, "####")
	assert.NotContains(t, text, "<search>")
	assert.True(t, strings.HasSuffix(text, "Problem: 1+1?\n"), text)
}

func TestPromptTextsAreReplaceable(t *testing.T) {
	p, err := NewPrompter(TaskSearch, "", "Q {question} Q", false, nil)
	require.NoError(t, err)
	text, err := p.Render(data.Question{Text: "{question}?"})
	require.NoError(t, err)
	assert.Equal(t, "Q {question}? Q", text)

	p.System = "S"
	text, err = p.Render(data.Question{Text: "x"})
	require.NoError(t, err)
	assert.Equal(t, "S\n\nQ x Q", text)

	_, err = NewPrompter(TaskSearch, "", "no question", false, nil)
	require.ErrorContains(t, err, "{question}")
}

func TestRowPromptIsUsedAsItStands(t *testing.T) {
	var got []tokenizer.Message
	template := func(messages []tokenizer.Message, generation bool) (string, error) {
		got = messages
		assert.True(t, generation)
		return "rendered", nil
	}
	p, err := NewPrompter(TaskSearch, DefaultText, "unused", true, template)
	require.NoError(t, err)
	row := []tokenizer.Message{{Role: "user", Content: " {question} as it stands\n"}}
	text, err := p.Render(data.Question{ID: "1", Text: "x", Prompt: row})
	require.NoError(t, err)
	assert.Equal(t, "rendered", text)
	assert.Equal(t, row, got)

	_, err = p.Render(data.Question{ID: "nq_7", Text: "x"})
	require.ErrorContains(t, err, "nq_7 has no prompt in its row")
}

func TestTemplateErrorNamesTheQuestion(t *testing.T) {
	cause := errors.New("no such role")
	p := &Prompter{User: "{question}", Template: func([]tokenizer.Message, bool) (string, error) { return "", cause }}
	_, err := p.Render(data.Question{ID: "nq_7"})
	require.ErrorIs(t, err, cause)
	assert.ErrorContains(t, err, "nq_7")
}
