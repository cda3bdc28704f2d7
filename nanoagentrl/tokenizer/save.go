package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
)

// Save writes the tokenizer as a Hugging Face folder keeps it. See Stored. For model_type qwen2, AutoTokenizer of
// transformers 5 takes only the vocabulary and merges from it and always normalises to NFC.
func (b *BPE) Save(dir string) error {
	return saveFolder(dir, b.files, b.fileJSON, b.settings, b.maxLength)
}

// SaveJSON writes the tokenizer.json: the original bytes for a tokenizer that was read from one, and for one from a
// GGUF file an equivalent that gives the same ids in Python's tokenizers.
func (b *BPE) SaveJSON(path string) error {
	data, ok := b.files[tokenizerJSON]
	if !ok {
		var err error
		if data, err = b.fileJSON(); err != nil {
			return fmt.Errorf("tokenizer: %s: %w", path, err)
		}
	}
	if err := atomicfile.Write(path, data); err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	return nil
}

// saveFolder writes files into dir, with tokenizer.json and tokenizer_config.json made where they are missing.
func saveFolder(dir string, files map[string][]byte, fileJSON func() ([]byte, error), s Settings, maxLength int) error {
	files = maps.Clone(files)
	if files == nil {
		files = map[string][]byte{}
	}
	var err error
	if files[tokenizerJSON] == nil {
		if files[tokenizerJSON], err = fileJSON(); err != nil {
			return fmt.Errorf("tokenizer: %s: %w", dir, err)
		}
	}
	if files[configJSON] == nil {
		if files[configJSON], err = s.configFile(maxLength); err != nil {
			return fmt.Errorf("tokenizer: %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := atomicfile.Write(filepath.Join(dir, name), files[name]); err != nil {
			return fmt.Errorf("tokenizer: %w", err)
		}
	}
	return nil
}

// outFile is a tokenizer.json as we write it.
type outFile struct {
	Version       string          `json:"version"`
	Truncation    any             `json:"truncation"`
	Padding       any             `json:"padding"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         any             `json:"model"`
}

// outVocab writes a vocabulary in the order of its ids; empty tokens are holes.
type outVocab []string

// MarshalJSON implements json.Marshaler.
func (v outVocab) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for id, token := range v {
		if token == "" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		quoted, err := marshalJSON(token, "")
		if err != nil {
			return nil, err
		}
		out = fmt.Appendf(append(out, bytes.TrimSpace(quoted)...), ":%d", id)
	}
	return append(out, '}'), nil
}

// fileJSON returns a tokenizer.json for a tokenizer from a GGUF file. Added tokens stand in the vocabulary too, so that
// they keep their ids wherever they are.
func (b *BPE) fileJSON() ([]byte, error) {
	if b.family == nil {
		return nil, errors.New("the tokenizer was not read from a file")
	}
	out := outFile{
		Version: "1.0", AddedTokens: b.added.tokens,
		PreTokenizer: json.RawMessage(b.family.preTokenizer), Decoder: json.RawMessage(byteLevelStep),
	}
	var err error
	if out.PostProcessor, err = b.postProcessor(); err != nil {
		return nil, err
	}
	out.Model = struct {
		Type                    string   `json:"type"`
		Dropout                 any      `json:"dropout"`
		UnkToken                any      `json:"unk_token"`
		ContinuingSubwordPrefix any      `json:"continuing_subword_prefix"`
		EndOfWordSuffix         any      `json:"end_of_word_suffix"`
		FuseUnk                 bool     `json:"fuse_unk"`
		ByteFallback            bool     `json:"byte_fallback"`
		IgnoreMerges            bool     `json:"ignore_merges"`
		Vocab                   outVocab `json:"vocab"`
		Merges                  []string `json:"merges"`
	}{Type: "BPE", IgnoreMerges: b.family.ignoreMerges, Vocab: b.written, Merges: b.writtenMerges()}
	return marshalIndented(out)
}

// writtenMerges returns the merges by rank, in the form "a b".
func (b *BPE) writtenMerges() []string {
	pairs := slices.SortedFunc(maps.Keys(b.merges), func(p, q pair) int {
		return cmp.Compare(b.merges[p].rank, b.merges[q].rank)
	})
	lines := make([]string, len(pairs))
	for i, p := range pairs {
		lines[i] = b.written[p>>32] + " " + b.written[uint32(p)]
	}
	return lines
}

// postProcessor returns the step that adds a beginning-of-sequence token when Python asks for special tokens, or one
// that adds nothing.
func (b *BPE) postProcessor() ([]byte, error) {
	bos, ok := b.ids[b.settings.BOS]
	if !b.family.addBOS || !ok {
		return []byte(byteLevelStep), nil
	}
	name := b.settings.BOS
	type object = map[string]any
	special := object{"SpecialToken": object{"id": name, "type_id": 0}}
	sequence := func(id string, kind int) object { return object{"Sequence": object{"id": id, "type_id": kind}} }
	return json.Marshal(object{
		"type":   "TemplateProcessing",
		"single": []object{special, sequence("A", 0)},
		"pair": []object{
			special, sequence("A", 0), {"SpecialToken": object{"id": name, "type_id": 1}}, sequence("B", 1),
		},
		"special_tokens": object{name: object{"id": name, "ids": []int{bos}, "tokens": []string{name}}},
	})
}

// marshalIndented returns v as readable JSON.
func marshalIndented(v any) ([]byte, error) { return marshalJSON(v, "  ") }

// marshalJSON returns v as JSON with a newline at the end, and < and > as they are.
func marshalJSON(v any, indent string) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
