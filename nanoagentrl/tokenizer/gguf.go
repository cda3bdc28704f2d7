package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Token types of GGUF files.
const (
	ggufNormal      = 1
	ggufUnknown     = 2
	ggufControl     = 3
	ggufUserDefined = 4
	ggufUnused      = 5
)

// family is a kind of byte-level BPE that GGUF files know only by name: how it cuts text, and the same as
// tokenizer.json says it.
type family struct {
	scanners     []scanner
	ignoreMerges bool
	addBOS       bool // where the file does not say
	preTokenizer string
}

const (
	byteLevelStep      = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
	plainByteLevelStep = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}`
)

var families = map[string]family{
	"gpt-2": {scanners: []scanner{gpt2Piece}, preTokenizer: byteLevelStep},
	"smollm": {
		scanners:     []scanner{digitPiece, gpt2Piece},
		preTokenizer: sequenceOf(`{"type":"Digits","individual_digits":true}`, byteLevelStep),
	},
	"qwen2": {
		scanners:     []scanner{qwen2Piece},
		preTokenizer: sequenceOf(splitStep(qwen2Pattern), plainByteLevelStep),
	},
	"llama-bpe": {
		scanners: []scanner{llama3Piece}, ignoreMerges: true, addBOS: true,
		preTokenizer: sequenceOf(splitStep(llama3Pattern), plainByteLevelStep),
	},
}

func sequenceOf(steps ...string) string {
	return `{"type":"Sequence","pretokenizers":[` + strings.Join(steps, ",") + `]}`
}

func splitStep(pattern string) string {
	quoted, _ := json.Marshal(pattern) // a string always can be
	return `{"type":"Split","pattern":{"Regex":` + string(quoted) + `},"behavior":"Isolated","invert":false}`
}

// FromGGUF reads a byte-level BPE tokenizer from the metadata of a GGUF file (keys tokenizer.ggml.* and
// tokenizer.chat_template). The pre-tokenizers qwen2, smollm, gpt-2 and llama-bpe (also written llama3 and llama-v3)
// are supported. GGUF files name no normaliser, so text is taken as it is, as llama.cpp does; Qwen2's own
// tokenizer.json brings text to NFC first, which changes the ids of decomposed characters only. Tokens of type "unused"
// fill holes in the vocabulary and are left out; VocabSize does not count those at the end.
func FromGGUF(meta map[string]any) (*BPE, error) {
	b, err := fromGGUF(ggufMeta(meta))
	if err != nil {
		return nil, fmt.Errorf("tokenizer: GGUF metadata: %w", err)
	}
	return b, nil
}

func fromGGUF(meta ggufMeta) (*BPE, error) {
	if model, err := meta.text("tokenizer.ggml.model"); err != nil {
		return nil, err
	} else if model != "gpt2" {
		return nil, fmt.Errorf("tokenizer.ggml.model is %q; only byte-level BPE (\"gpt2\") is supported", model)
	}
	pre, err := meta.text("tokenizer.ggml.pre")
	if err != nil {
		return nil, err
	}
	if pre == "llama3" || pre == "llama-v3" {
		pre = "llama-bpe"
	}
	fam, ok := families[pre]
	if !ok {
		return nil, fmt.Errorf("tokenizer.ggml.pre is %q; supported are gpt-2, llama-bpe, qwen2 and smollm", pre)
	}
	spec, err := meta.spec(fam)
	if err != nil {
		return nil, err
	}
	b, err := newBPE(spec)
	if err != nil {
		return nil, err
	}
	if b.settings, err = meta.settings(b); err != nil {
		return nil, err
	}
	if add, ok := meta["tokenizer.ggml.add_bos_token"].(bool); ok {
		fam.addBOS = add
	}
	b.family = &fam
	arch, _ := meta["general.architecture"].(string)
	b.maxLength, _ = wholeNumber(meta[arch+".context_length"])
	return b, nil
}

// ggufMeta is the metadata of a GGUF file.
type ggufMeta map[string]any

func (m ggufMeta) text(key string) (string, error) {
	value, ok := m[key]
	if !ok {
		return "", fmt.Errorf("%s is missing", key)
	}
	text, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("%s is a %T, must be a string", key, value)
	}
	return text, nil
}

// spec returns the vocabulary, merges and added tokens.
func (m ggufMeta) spec(fam family) (bpeSpec, error) {
	spec := bpeSpec{vocab: map[string]int{}, ignoreMerges: fam.ignoreMerges, scanners: fam.scanners}
	tokens, err := m.texts("tokenizer.ggml.tokens")
	if err != nil {
		return spec, err
	}
	types, err := m.numbers("tokenizer.ggml.token_type")
	if err != nil {
		return spec, err
	}
	if len(types) != len(tokens) {
		return spec, fmt.Errorf("tokenizer.ggml.token_type has %d entries for %d tokens", len(types), len(tokens))
	}
	for id, token := range tokens {
		switch kind := types[id]; kind {
		case ggufUnused:
			continue
		case ggufNormal:
		case ggufControl, ggufUnknown, ggufUserDefined:
			spec.added = append(spec.added, addedToken{ID: id, Content: token, Special: kind != ggufUserDefined})
		default:
			return spec, fmt.Errorf("tokenizer.ggml.token_type of token %d (%q) is %d; not supported", id, token, kind)
		}
		if other, ok := spec.vocab[token]; ok {
			return spec, fmt.Errorf("tokenizer.ggml.tokens: %q stands at %d and %d", token, other, id)
		}
		spec.vocab[token] = id
	}
	merges, err := m.texts("tokenizer.ggml.merges")
	if err != nil {
		return spec, err
	}
	spec.merges, err = splitMerges(merges)
	return spec, err
}

// settings returns the tokens with a role and the chat templates.
func (m ggufMeta) settings(b *BPE) (Settings, error) {
	s := Settings{ChatTemplates: map[string]string{}}
	for key, role := range map[string]*string{
		"bos": &s.BOS, "eos": &s.EOS, "padding": &s.Pad, "unknown": &s.Unk,
	} {
		key = "tokenizer.ggml." + key + "_token_id"
		value, ok := m[key]
		if !ok {
			continue
		}
		id, ok := wholeNumber(value)
		if !ok || id < 0 || id >= len(b.written) || b.written[id] == "" {
			return s, fmt.Errorf("%s is %v, which is no token", key, value)
		}
		*role = b.written[id]
	}
	const template = "tokenizer.chat_template"
	for key, value := range m {
		source, ok := value.(string)
		switch name, named := strings.CutPrefix(key, template+"."); {
		case !ok:
		case key == template:
			s.ChatTemplates[defaultTemplate] = source
		case named:
			s.ChatTemplates[name] = source
		}
	}
	return s, nil
}

func (m ggufMeta) texts(key string) ([]string, error) {
	switch list := m[key].(type) {
	case nil:
		return nil, fmt.Errorf("%s is missing", key)
	case []string:
		return list, nil
	case []any:
		texts := make([]string, len(list))
		for i, item := range list {
			text, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("%s[%d] is a %T, must be a string", key, i, item)
			}
			texts[i] = text
		}
		return texts, nil
	}
	return nil, fmt.Errorf("%s is a %T, must be an array of strings", key, m[key])
}

func (m ggufMeta) numbers(key string) ([]int, error) {
	var numbers []int
	var err error
	switch list := m[key].(type) {
	case nil:
		return nil, fmt.Errorf("%s is missing", key)
	case []int32:
		numbers, err = wholeNumbers(list)
	case []uint32:
		numbers, err = wholeNumbers(list)
	case []int64:
		numbers, err = wholeNumbers(list)
	case []int:
		numbers, err = wholeNumbers(list)
	case []any:
		numbers, err = wholeNumbers(list)
	default:
		err = errors.New("must be an array of whole numbers")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is a %T: %w", key, m[key], err)
	}
	return numbers, nil
}

func wholeNumbers[T any](list []T) ([]int, error) {
	numbers := make([]int, len(list))
	for i, item := range list {
		n, ok := wholeNumber(item)
		if !ok {
			return nil, fmt.Errorf("entry %d is %v, must be a whole number", i, item)
		}
		numbers[i] = n
	}
	return numbers, nil
}

// wholeNumber converts any of the number types that metadata may come in.
func wholeNumber(value any) (n int, ok bool) {
	switch v := value.(type) {
	case int:
		return v, true
	case int8:
		return int(v), true
	case int16:
		return int(v), true
	case int32:
		return int(v), true
	case int64:
		return int(v), true
	case uint8:
		return int(v), true
	case uint16:
		return int(v), true
	case uint32:
		return int(v), true
	case uint64:
		return int(v), v <= math.MaxInt
	}
	return 0, false
}
