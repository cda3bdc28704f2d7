package tokenizer

import (
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// testdata/chat.json holds chats, chat templates and what transformers 5.24 renders them to, with the bos token
// "<BOS>", the eos token "<EOS>" and the clock at testClock. The templates are those of SmolLM2-135M-Instruct,
// Qwen2.5-Coder-0.5B-Instruct and Llama-3-8B-Instruct, and a few made for what other models' templates do.
type chatFile struct {
	Chats     map[string][]Message `json:"chats"`
	Templates []struct {
		Name       string `json:"name"`
		Source     string `json:"source"`
		Renderings []struct {
			Chat                string `json:"chat"`
			AddGenerationPrompt bool   `json:"add_generation_prompt"`
			Text                string `json:"text"`
			Error               string `json:"error"`
		} `json:"renderings"`
	} `json:"templates"`
}

func readChats(t testing.TB) chatFile {
	t.Helper()
	data, err := os.ReadFile("testdata/chat.json")
	require.NoError(t, err)
	var file chatFile
	require.NoError(t, json.Unmarshal(data, &file))
	return file
}

func testClock() time.Time { return time.Date(2025, 3, 7, 14, 5, 9, 0, time.UTC) }

func TestTemplatesRenderAsInTransformers(t *testing.T) {
	file := readChats(t)
	for _, template := range file.Templates {
		t.Run(template.Name, func(t *testing.T) {
			parsed, err := NewChatTemplate(template.Source, Settings{BOS: "<BOS>", EOS: "<EOS>"})
			require.NoError(t, err)
			parsed.Now = testClock
			require.NotEmpty(t, template.Renderings)
			for _, r := range template.Renderings {
				text, err := parsed.Render(file.Chats[r.Chat], r.AddGenerationPrompt)
				if r.Error != "" {
					assert.ErrorContains(t, err, r.Error, r.Chat)
					continue
				}
				require.NoError(t, err, r.Chat)
				assert.Equal(t, r.Text, text, "%s, %v", r.Chat, r.AddGenerationPrompt)
			}
		})
	}
}

// The rendered chats of the shared parity files, through the models' own templates.
func TestChatsOfTheParityFiles(t *testing.T) {
	for _, c := range []struct {
		model, file, name string
		messages          []Message
	}{
		{smolModel, "smollm2_parity.json", "chat", []Message{{"user", "What is 17 + 25? Answer with a number."}}},
		{smolModel, "smollm2_parity.json", "chat_search", []Message{
			{"system", "Answer the question. You may call <search> query </search>; results come back between " +
				"<information> and </information>. Give the final answer inside <answer> and </answer>."},
			{"user", "Who wrote the novel on which the 1982 film Blade Runner is based?"},
			{"assistant", "<search> Blade Runner novel author </search>"},
			{"user", "<information>Doc 1: Blade Runner is a 1982 film based on Philip K. Dick's 1968 novel Do Androids " +
				"Dream of Electric Sheep?</information>"},
		}},
		{qwenModel, "qwen25_coder_parity.json", "chat", []Message{{"user", "A baker makes 12 trays of 8 rolls and sells " +
			"70 of them. How many rolls are left? Finish with #### and the number."}}},
		{qwenModel, "qwen25_coder_parity.json", "chat_system", []Message{
			{"system", "Answer the question. Write a search between <search> and </search>; results come between " +
				"<information> and </information>. Put the final answer between <answer> and </answer>."},
			{"user", "Which river flows through the birthplace of the composer of The Magic Flute?"},
		}},
	} {
		data, err := os.ReadFile(testenv.Shared(t, "vectors", c.file))
		require.NoError(t, err)
		var parity struct {
			Cases map[string]struct {
				Text string `json:"text"`
				IDs  []int  `json:"ids"`
			} `json:"cases"`
		}
		require.NoError(t, json.Unmarshal(data, &parity))
		want := parity.Cases[c.name]
		require.NotEmpty(t, want.IDs, c.name)
		b := ggufTokenizer(t, c.model)
		template, err := b.Settings().ChatTemplate()
		require.NoError(t, err)
		text, err := template.Render(c.messages, true)
		require.NoError(t, err)
		assert.Equal(t, want.Text, text)
		assert.Equal(t, want.IDs, b.Encode(text))
	}
}

// "length check passed while ids differed from the chat template (two tool results in a row)": the ids are those of
// transformers' apply_chat_template.
func TestTwoToolResultsInARowByTheirIDs(t *testing.T) {
	b := ggufTokenizer(t, qwenModel)
	template, err := b.Settings().ChatTemplate()
	require.NoError(t, err)
	text, err := template.Render(readChats(t).Chats["two tool results in a row"], true)
	require.NoError(t, err)
	assert.Equal(t, []int{
		151644, 8948, 198, 2610, 525, 1207, 16948, 11, 3465, 553, 54364, 14817, 13, 1446, 525, 264, 10950, 17847, 13, 151645,
		198, 151644, 872, 198, 84, 151645, 198, 151644, 77091, 198, 6659, 151645, 198, 151644, 872, 198, 27, 14172, 9655, 397,
		81, 16, 198, 522, 14172, 9655, 397, 27, 14172, 9655, 397, 81, 17, 198, 522, 14172, 9655, 29, 151645, 198, 151644, 872,
		198, 87, 151645, 198, 151644, 77091, 198,
	}, b.Encode(text))
}

func TestTemplateErrors(t *testing.T) {
	for about, c := range map[string]struct{ source, want string }{
		"unclosed tag":       {"a\n{% if true", "line 2: {% without %}"},
		"unclosed comment":   {"{# a", "{# without #}"},
		"unclosed raw":       {"{% raw %}a", "without {% endraw %}"},
		"unclosed block":     {"\n\n{% if true %}a", "Unexpected EOF"},
		"line of an error":   {"a\n\n  {%- if true %}\n{{ 1 + }}{% endif %}", "Line: 4"},
		"unknown statement":  {"{% frob %}", "frob"},
		"inline conditional": {"{{ 'a' + ('b' if true else 'c') }}", "Unbalanced parenthesis"},
		"files":              {`{% include "/etc/hostname" %}`, "include"},
		"other templates":    {`{% extends "/etc/hostname" %}`, "extends"},
	} {
		_, err := NewChatTemplate(c.source, Settings{})
		assert.ErrorContains(t, err, c.want, about)
		assert.ErrorContains(t, err, "chat template", about)
	}
	for about, c := range map[string]struct{ source, want string }{
		"refused":          {"{{ raise_exception('no system role here') }}", "refuses the chat: no system role here"},
		"unknown filter":   {"{{ 'a' | frob }}", "frob"},
		"unknown method":   {"{{ 'a'.frob() }}", "frob"},
		"a panic of gonja": {"{{ 'a' % 2 }}{{ 1 % 0 }}", "divide by zero"},
		"unknown option":   {"{{ 'a' | tojson(sort_keys=true) }}", "sort_keys"},
	} {
		template, err := NewChatTemplate(c.source, Settings{})
		require.NoError(t, err, about)
		_, err = template.Render([]Message{{"user", "x"}}, true)
		assert.ErrorContains(t, err, c.want, about)
		assert.ErrorContains(t, err, "chat template", about)
	}
}

func TestTemplateDoesNotReadTheMessagesAsTemplates(t *testing.T) {
	const source = "{{ messages[0].content }}|{{ messages[-1]['content'] }}|{{ messages[-2] }}"
	template, err := NewChatTemplate(source, Settings{})
	require.NoError(t, err)
	text, err := template.Render([]Message{{"user", "{{ 1 + 1 }}{% if %}<b>&"}}, false)
	require.NoError(t, err)
	assert.Equal(t, "{{ 1 + 1 }}{% if %}<b>&|{{ 1 + 1 }}{% if %}<b>&|", text)
}

func TestTemplateOptionsOfStrftime(t *testing.T) {
	want := "07 Mar 2025 14:05:09 Friday Fri 066 7 PM 02 25 % %Q 2025-03-07 3"
	assert.Equal(t, want, strftime(testClock(), "%d %b %Y %H:%M:%S %A %a %j %-d %p %I %y %% %Q %F %-m"))
	template, err := NewChatTemplate("{{ strftime_now('%Y') }}", Settings{})
	require.NoError(t, err)
	text, err := template.Render(nil, false)
	require.NoError(t, err)
	assert.Regexp(t, `^2\d\d\d$`, text)
}

func TestTemplateIsSafeForConcurrentUse(t *testing.T) {
	file := readChats(t)
	template, err := NewChatTemplate(file.Templates[1].Source, Settings{})
	require.NoError(t, err)
	want := map[string]string{}
	for name, chat := range file.Chats {
		want[name], err = template.Render(chat, true)
		require.NoError(t, err)
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for name, chat := range file.Chats {
				text, err := template.Render(chat, true)
				assert.NoError(t, err)
				assert.Equal(t, want[name], text)
			}
		})
	}
	wait.Wait()
}
