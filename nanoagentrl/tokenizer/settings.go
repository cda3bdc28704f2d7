package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrNoChatTemplate says that a tokenizer came without a chat template, as those of base models do.
var ErrNoChatTemplate = errors.New("the tokenizer has no chat template")

// Settings are what stands beside a tokenizer's vocabulary, in tokenizer_config.json or GGUF metadata: the tokens with
// a role, as they are written, "" for none, and the chat templates.
type Settings struct {
	BOS, EOS, Pad, Unk string
	// ChatTemplates holds Jinja sources by name; a model's only one is named "default".
	ChatTemplates map[string]string
}

const defaultTemplate = "default"

// ChatTemplate parses the template named "default", or the only one. Without any the error is ErrNoChatTemplate.
func (s Settings) ChatTemplate() (*ChatTemplate, error) {
	source, ok := s.ChatTemplates[defaultTemplate]
	names := slices.Sorted(maps.Keys(s.ChatTemplates))
	switch {
	case ok:
	case len(names) == 0:
		return nil, ErrNoChatTemplate
	case len(names) > 1:
		return nil, fmt.Errorf("none of the chat templates (%s) is named %q; parse one of them with NewChatTemplate",
			strings.Join(names, ", "), defaultTemplate)
	default:
		source = s.ChatTemplates[names[0]]
	}
	return NewChatTemplate(source, s)
}

// roles names the roles as tokenizer_config.json and chat templates do.
func (s *Settings) roles() map[string]*string {
	return map[string]*string{"bos_token": &s.BOS, "eos_token": &s.EOS, "pad_token": &s.Pad, "unk_token": &s.Unk}
}

// endTokens are the names under which the supported model families end a text or a turn. Base and instruct models of a
// family share a vocabulary and differ in which of them they call eos.
var endTokens = []string{"<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"}

// EndIDs returns, in ascending order, the ids that end generation as far as the tokenizer knows: its eos token and the
// special tokens by which its family ends a text or a turn, such as 151643 and 151645 for Qwen2.5. A
// generation_config.json may name more.
func EndIDs(t Stored) []int {
	found := map[int]bool{}
	if id, ok := t.TokenID(t.Settings().EOS); ok {
		found[id] = true
	}
	for _, name := range endTokens {
		if id, ok := t.TokenID(name); ok && t.IsSpecial(id) {
			found[id] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// roleToken reads a token of tokenizer_config.json: a string, or an object with its content.
type roleToken string

// UnmarshalJSON implements json.Unmarshaler.
func (t *roleToken) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		return json.Unmarshal(data, (*string)(t))
	}
	var object struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(data, &object)
	*t = roleToken(object.Content)
	return err
}

// templateSources reads the chat_template of tokenizer_config.json: a string, or a list of named ones.
type templateSources map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (t *templateSources) UnmarshalJSON(data []byte) error {
	*t = templateSources{}
	if data[0] != '[' {
		var source *string
		err := json.Unmarshal(data, &source)
		if source != nil {
			(*t)[defaultTemplate] = *source
		}
		return err
	}
	var list []namedTemplate
	err := json.Unmarshal(data, &list)
	for _, item := range list {
		(*t)[item.Name] = item.Template
	}
	return err
}

type namedTemplate struct {
	Name     string `json:"name"`
	Template string `json:"template"`
}

// The files of a tokenizer in a Hugging Face folder.
const (
	tokenizerJSON    = "tokenizer.json"
	configJSON       = "tokenizer_config.json"
	specialTokensMap = "special_tokens_map.json"
	chatTemplateFile = "chat_template.jinja"
)

// settingsFrom reads the settings in the files of a Hugging Face folder, by name. tokenizer_config.json goes before
// special_tokens_map.json, chat_template.jinja before tokenizer_config.json.
func settingsFrom(files map[string][]byte) (Settings, error) {
	var s Settings
	for _, name := range []string{configJSON, specialTokensMap} {
		data, ok := files[name]
		if !ok {
			continue
		}
		var config struct {
			BOS          roleToken       `json:"bos_token"`
			EOS          roleToken       `json:"eos_token"`
			Pad          roleToken       `json:"pad_token"`
			Unk          roleToken       `json:"unk_token"`
			ChatTemplate templateSources `json:"chat_template"`
		}
		if err := json.Unmarshal(data, &config); err != nil {
			return s, fmt.Errorf("%s: %w", name, jsonError(data, err))
		}
		for role, token := range map[*string]roleToken{
			&s.BOS: config.BOS, &s.EOS: config.EOS, &s.Pad: config.Pad, &s.Unk: config.Unk,
		} {
			if *role == "" {
				*role = string(token)
			}
		}
		if name == configJSON {
			s.ChatTemplates = config.ChatTemplate
		}
	}
	if source, ok := files[chatTemplateFile]; ok {
		if s.ChatTemplates == nil {
			s.ChatTemplates = map[string]string{}
		}
		s.ChatTemplates[defaultTemplate] = string(source)
	}
	return s, nil
}

// configFile returns a tokenizer_config.json that says the same as s. maxLength is the longest text in tokens, 0 if
// unknown.
func (s Settings) configFile(maxLength int) ([]byte, error) {
	config := map[string]any{
		// The class that takes tokenizer.json as it is, whatever the model.
		"tokenizer_class":              "PreTrainedTokenizerFast",
		"clean_up_tokenization_spaces": false,
	}
	for name, token := range s.roles() {
		if *token != "" {
			config[name] = *token
		}
	}
	if maxLength > 0 {
		config["model_max_length"] = maxLength
	}
	if source, ok := s.ChatTemplates[defaultTemplate]; ok && len(s.ChatTemplates) == 1 {
		config["chat_template"] = source
	} else if len(s.ChatTemplates) > 0 {
		var list []namedTemplate
		for _, name := range slices.Sorted(maps.Keys(s.ChatTemplates)) {
			list = append(list, namedTemplate{name, s.ChatTemplates[name]})
		}
		config["chat_template"] = list
	}
	return marshalIndented(config)
}
