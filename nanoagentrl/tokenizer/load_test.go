package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadFolder(t *testing.T) {
	loaded, err := Load(tinyDir)
	require.NoError(t, err)
	b, ok := loaded.(*BPE)
	require.True(t, ok)
	s := b.Settings()
	assert.Equal(t, "<|im_end|>", s.EOS, "an object with its content")
	assert.Equal(t, "<|endoftext|>", s.Pad)
	assert.Empty(t, s.BOS, "null")
	template, err := s.ChatTemplate()
	require.NoError(t, err)
	text, err := template.Render([]Message{{"user", "Hi"}}, true)
	require.NoError(t, err)
	assert.Equal(t, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", text)
	assert.Equal(t, text, b.Decode(b.Encode(text)))
}

func TestSavedFolderIsTheOneThatWasLoaded(t *testing.T) {
	source := t.TempDir()
	for _, name := range []string{tokenizerJSON, configJSON} {
		data, err := os.ReadFile(filepath.Join(tinyDir, name))
		require.NoError(t, err)
		write(t, source, name, string(data))
	}
	write(t, source, specialTokensMap, `{"bos_token": "<|im_start|>", "eos_token": "ignored"}`)
	write(t, source, chatTemplateFile, "from the file{{ eos_token }}")
	loaded, err := Load(source)
	require.NoError(t, err)
	assert.Equal(t, "<|im_start|>", loaded.Settings().BOS)
	assert.Equal(t, "<|im_end|>", loaded.Settings().EOS, "tokenizer_config.json goes first")
	target := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, loaded.Save(target))
	entries, err := os.ReadDir(target)
	require.NoError(t, err)
	assert.Len(t, entries, 4)
	for _, e := range entries {
		want, err := os.ReadFile(filepath.Join(source, e.Name()))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(target, e.Name()))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), e.Name())
	}
	template, err := loaded.Settings().ChatTemplate()
	require.NoError(t, err)
	text, err := template.Render(nil, false)
	require.NoError(t, err)
	assert.Equal(t, "from the file<|im_end|>", text)
}

func TestSaveJSONWritesTheOriginalBytes(t *testing.T) {
	path := filepath.Join(tinyDir, tokenizerJSON)
	b, err := LoadFile(path)
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "copy.json")
	require.NoError(t, b.SaveJSON(copied))
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	got, err := os.ReadFile(copied)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))

	missing := filepath.Join(t.TempDir(), "no", "folder.json")
	assert.ErrorContains(t, b.SaveJSON(missing), "folder.json")
}

func TestFailedSaveLeavesTheOldFile(t *testing.T) {
	b, err := LoadFile(filepath.Join(tinyDir, tokenizerJSON))
	require.NoError(t, err)
	dir := t.TempDir()
	blocked := filepath.Join(dir, tokenizerJSON)
	require.NoError(t, os.MkdirAll(filepath.Join(blocked, "full"), 0o755)) // a file cannot replace this
	assert.ErrorContains(t, b.SaveJSON(blocked), blocked)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "no half-written file is left")
}

func TestChatTemplateSources(t *testing.T) {
	for about, c := range map[string]struct{ config, want, fails string }{
		"none":        {`{}`, "", ErrNoChatTemplate.Error()},
		"null":        {`{"chat_template": null}`, "", ErrNoChatTemplate.Error()},
		"string":      {`{"chat_template": "a"}`, "a", ""},
		"the default": {`{"chat_template": [{"name": "x", "template": "b"}, {"name": "default", "template": "a"}]}`, "a", ""},
		"the only":    {`{"chat_template": [{"name": "x", "template": "a"}]}`, "a", ""},
		"several": {`{"chat_template": [{"name": "rag", "template": "b"}, {"name": "tool_use", "template": "a"}]}`, "",
			"rag, tool_use"},
	} {
		s, err := settingsFrom(map[string][]byte{configJSON: []byte(c.config)})
		require.NoError(t, err, about)
		template, err := s.ChatTemplate()
		if c.fails != "" {
			assert.ErrorContains(t, err, c.fails, about)
			continue
		}
		require.NoError(t, err, about)
		text, err := template.Render(nil, false)
		require.NoError(t, err, about)
		assert.Equal(t, c.want, text, about)
	}
}

func TestNamedChatTemplatesSurviveSaving(t *testing.T) {
	want := Settings{EOS: "<|im_end|>", ChatTemplates: map[string]string{"default": "a<", "rag": "b"}}
	data, err := want.configFile(0)
	require.NoError(t, err)
	got, err := settingsFrom(map[string][]byte{configJSON: data})
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// "eos differs between config files for Qwen2.5 base/instruct": both ends count, whichever is called eos.
func TestEndIDsOfQwenAreEndOfTextAndEndOfTurn(t *testing.T) {
	b := ggufTokenizer(t, qwenModel)
	assert.Equal(t, []int{151643, 151645}, EndIDs(b))
	assert.Equal(t, []int{0, 2}, EndIDs(ggufTokenizer(t, smolModel)))
}

func TestEndIDsOfTheTinyTokenizer(t *testing.T) {
	loaded, err := Load(tinyDir)
	require.NoError(t, err)
	assert.Equal(t, []int{345, 347}, EndIDs(loaded))
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

// "an unknown pre_tokenizer type is an error, not a silent default", and so is all else that would change ids.
func TestWhatIsNotSupportedIsAnErrorThatNamesIt(t *testing.T) {
	split := func(pattern, behavior string) any {
		return map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": behavior},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		}}
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false}
	kind := func(name string) any { return map[string]any{"type": name} }
	steps := func(list ...any) any { return map[string]any{"type": "Sequence", "pretokenizers": list} }
	for about, c := range map[string]struct {
		member string
		value  any
		want   string
	}{
		"pre-tokenizer":       {"pre_tokenizer", kind("Metaspace"), "ByteLevel"},
		"no pre-tokenizer":    {"pre_tokenizer", nil, "pre_tokenizer is missing"},
		"empty sequence":      {"pre_tokenizer", map[string]any{"type": "Sequence"}, "empty Sequence"},
		"null in a sequence":  {"pre_tokenizer", steps(nil), "null"},
		"step":                {"pre_tokenizer", steps(kind("Punctuation"), byteLevel), `"Punctuation"`},
		"byte level not last": {"pre_tokenizer", steps(byteLevel, kind("Digits")), "last step"},
		"prefix space": {"pre_tokenizer",
			map[string]any{"type": "ByteLevel", "add_prefix_space": true}, "add_prefix_space"},
		"prefix space unsaid": {"pre_tokenizer", kind("ByteLevel"), "add_prefix_space"},
		"pattern":             {"pre_tokenizer", split(`\w+`, "Isolated"), `\\w+`},
		"behavior":            {"pre_tokenizer", split(qwen2Pattern, "MergedWithNext"), `"MergedWithNext"`},
		"normalizer":          {"normalizer", kind("Lowercase"), `"Lowercase"`},
		"normalizer in between": {"normalizer",
			map[string]any{"type": "Sequence", "normalizers": []any{kind("NFC"), kind("Strip")}}, `"Strip"`},
		"decoder":             {"decoder", kind("WordPiece"), `"WordPiece"`},
		"no decoder":          {"decoder", nil, "decoder none"},
		"added id taken":      {"added_tokens", []any{map[string]any{"id": 1, "content": "<x>"}}, `"<x>"`},
		"added id differs":    {"added_tokens", []any{map[string]any{"id": 400, "content": "he"}}, `"he"`},
		"added id impossible": {"added_tokens", []any{map[string]any{"id": -7, "content": "<x>"}}, "-7"},
		"added empty":         {"added_tokens", []any{map[string]any{"id": 400, "content": ""}}, "empty"},
		"model":               {"model", nil, "model is missing"},
		"model type":          {"model", map[string]any{"type": "Unigram", "vocab": []any{}}, `"Unigram"`},
		"model type unsaid":   {"model", map[string]any{"vocab": map[string]any{}}, `model.type is ""`},
		"words": {"model",
			map[string]any{"type": "WordLevel", "vocab": map[string]any{"a": 0}}, `"WordLevel", not BPE`},
	} {
		object := tinyObject(t)
		object[c.member] = c.value
		data, err := json.Marshal(object)
		require.NoError(t, err)
		_, err = FromJSON(data)
		assert.ErrorContains(t, err, c.want, about)
	}
}

func TestModelFieldsThatAreNotSupported(t *testing.T) {
	for about, c := range map[string]struct {
		member string
		value  any
		want   string
	}{
		"byte fallback":     {"byte_fallback", true, "byte_fallback"},
		"dropout":           {"dropout", 0.1, "dropout"},
		"prefix":            {"continuing_subword_prefix", "##", "continuing_subword_prefix"},
		"suffix":            {"end_of_word_suffix", "</w>", "end_of_word_suffix"},
		"empty":             {"vocab", map[string]any{}, "vocab is empty"},
		"same id":           {"vocab", map[string]any{"a": 0, "b": 0}, "same id 0"},
		"negative id":       {"vocab", map[string]any{"a": -1}, "-1"},
		"huge id":           {"vocab", map[string]any{"a": 1 << 40}, "1099511627776"},
		"empty token":       {"vocab", map[string]any{"": 0}, "empty token"},
		"merge of unknowns": {"merges", []any{[]any{"h", "ℵ"}}, `"ℵ"`},
		"merge to unknown":  {"merges", []any{"q q"}, `"qq"`},
		"three parts":       {"merges", []any{[]any{"a", "b", "c"}}, "3 parts"},
		"one part":          {"merges", []any{"ab"}, `"ab"`},
		"two spaces":        {"merges", []any{"a b c"}, `"a b c"`},
		"not a list":        {"merges", 7, "merges"},
		"unknown unknown":   {"unk_token", "<none>", "<none>"},
	} {
		object := tinyObject(t)
		object["model"].(map[string]any)[c.member] = c.value
		data, err := json.Marshal(object)
		require.NoError(t, err)
		_, err = FromJSON(data)
		assert.ErrorContains(t, err, c.want, about)
	}
}

func TestBrokenFilesAreNamed(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join(tinyDir, tokenizerJSON))
	require.NoError(t, err)
	for about, c := range map[string]struct{ content, want string }{
		"cut off":   {string(whole[:len(whole)/2]), "ends too early"},
		"empty":     {"", "ends too early"},
		"not JSON":  {"{\n\"model\": oops}", "line 2"},
		"a list":    {"[]", "cannot unmarshal array"},
		"no model":  {"{}", "model is missing"},
		"null":      {"null", "model is missing"},
		"a pointer": {"version https://git-lfs.github.com/spec/v1\n", "line 1"},
	} {
		dir := t.TempDir()
		write(t, dir, tokenizerJSON, c.content)
		path := filepath.Join(dir, tokenizerJSON)
		_, err := Load(dir)
		assert.ErrorContains(t, err, c.want, about)
		assert.ErrorContains(t, err, path, about)
		_, err = LoadFile(path)
		assert.ErrorContains(t, err, path, about)
		assert.Less(t, len(err.Error()), len(path)+300, about)
	}

	_, err = Load(t.TempDir())
	assert.ErrorContains(t, err, "has no tokenizer.json")
	_, err = LoadFile("no/such/tokenizer.json")
	assert.ErrorContains(t, err, "no/such/tokenizer.json")

	dir := t.TempDir()
	write(t, dir, tokenizerJSON, string(whole))
	write(t, dir, configJSON, `{"eos_token": 7}`)
	_, err = Load(dir)
	assert.ErrorContains(t, err, configJSON)
	assert.ErrorContains(t, err, dir)
}

func TestWordLevelFilesThatAreNotSupported(t *testing.T) {
	w := newTestWords(t)
	data, err := w.fileJSON()
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(data, &object))
	for about, c := range map[string]struct {
		member string
		value  any
		want   string
	}{
		"normalizer":    {"normalizer", map[string]any{"type": "NFC"}, "normalizer"},
		"pre-tokenizer": {"pre_tokenizer", map[string]any{"type": "Whitespace"}, `"Whitespace"`},
		"none":          {"pre_tokenizer", nil, "pre_tokenizer none"},
		"decoder":       {"decoder", map[string]any{"type": "ByteLevel"}, "decoder"},
		"not a word":    {"added_tokens", []any{map[string]any{"id": 99, "content": "<x>"}}, `"<x>"`},
		"flags":         {"added_tokens", []any{map[string]any{"id": 3, "content": "<search>", "lstrip": true}}, "lstrip"},
		"no unknown":    {"model", map[string]any{"type": "WordLevel", "vocab": map[string]any{"a": 0}}, "unknown words"},
		"huge id":       {"model", map[string]any{"type": "WordLevel", "vocab": map[string]any{"a": 1 << 40}}, "impossible"},
		"same id":       {"model", map[string]any{"type": "WordLevel", "vocab": map[string]any{"a": 0, "b": 0}}, "same id"},
	} {
		changed := maps.Clone(object)
		changed[c.member] = c.value
		if strings.HasPrefix(c.want, "impossible") || c.want == "same id" || c.want == "unknown words" {
			changed["added_tokens"] = []any{}
		}
		data, err := json.Marshal(changed)
		require.NoError(t, err)
		_, err = fromFile(data)
		assert.ErrorContains(t, err, c.want, about)
	}
}
