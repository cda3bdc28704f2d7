package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// tokenizerFile is the part of a tokenizer.json that decides about ids and text.
type tokenizerFile struct {
	AddedTokens  []addedToken `json:"added_tokens"`
	Normalizer   *component   `json:"normalizer"`
	PreTokenizer *component   `json:"pre_tokenizer"`
	Decoder      *component   `json:"decoder"`
	Model        *modelPart   `json:"model"`

	PostProcessor *postProcessor `json:"post_processor"`
	Truncation    *truncation    `json:"truncation"`
}

// modelPart is the model of a tokenizer.json, BPE, WordLevel or WordPiece.
type modelPart struct {
	Type                    string         `json:"type"`
	Vocab                   map[string]int `json:"vocab"`
	Merges                  mergeList      `json:"merges"`
	UnkToken                string         `json:"unk_token"`
	FuseUnk                 bool           `json:"fuse_unk"`
	ByteFallback            bool           `json:"byte_fallback"`
	IgnoreMerges            bool           `json:"ignore_merges"`
	Dropout                 float64        `json:"dropout"`
	ContinuingSubwordPrefix string         `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string         `json:"end_of_word_suffix"`
	MaxInputCharsPerWord    int            `json:"max_input_chars_per_word"`
}

// UnmarshalJSON looks at the type first: the vocabularies of other models have other shapes.
func (m *modelPart) UnmarshalJSON(data []byte) error {
	var kind struct {
		Type   string          `json:"type"`
		Merges json.RawMessage `json:"merges"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return err
	}
	if kind.Type == "" && kind.Merges != nil {
		kind.Type = "BPE" // files of the first versions name no type
	}
	if kind.Type != "BPE" && kind.Type != wordLevel && kind.Type != wordPiece {
		return fmt.Errorf("model.type is %q; supported are BPE, WordLevel and WordPiece", kind.Type)
	}
	type plain modelPart
	if err := json.Unmarshal(data, (*plain)(m)); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	m.Type = kind.Type
	return nil
}

// mergeList reads merges in both written forms, "a b" and ["a", "b"].
type mergeList [][]string

// UnmarshalJSON implements json.Unmarshaler.
func (l *mergeList) UnmarshalJSON(data []byte) error {
	if inner := bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimSpace(data), []byte("[")), " \t\r\n"); inner[0] == '"' {
		var lines []string
		if err := json.Unmarshal(data, &lines); err != nil {
			return err
		}
		merges, err := splitMerges(lines)
		*l = merges
		return err
	}
	if err := json.Unmarshal(data, (*[][]string)(l)); err != nil {
		return err
	}
	for i, m := range *l {
		if len(m) != 2 {
			return fmt.Errorf("merge %d has %d parts, must have 2", i, len(m))
		}
	}
	return nil
}

// splitMerges splits merges written "a b".
func splitMerges(lines []string) (mergeList, error) {
	merges := make(mergeList, 0, len(lines))
	for i, line := range lines {
		if i == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, fmt.Errorf("merge %d is %q, must be two tokens with one space between", i, line)
		}
		merges = append(merges, []string{left, right})
	}
	return merges, nil
}

// component is a normalizer, pre-tokenizer or decoder: its type, and every field that one of the supported types has.
// Pointers tell a missing field from false.
type component struct {
	Type string `json:"type"`

	Normalizers   []*component `json:"normalizers"`
	PreTokenizers []*component `json:"pretokenizers"`
	Decoders      []*component `json:"decoders"`

	Pattern          map[string]string `json:"pattern"`
	Behavior         string            `json:"behavior"`
	Invert           bool              `json:"invert"`
	IndividualDigits bool              `json:"individual_digits"`
	AddPrefixSpace   *bool             `json:"add_prefix_space"`
	UseRegex         *bool             `json:"use_regex"`

	CleanText          bool  `json:"clean_text"`
	HandleChineseChars bool  `json:"handle_chinese_chars"`
	StripAccents       *bool `json:"strip_accents"`
	Lowercase          bool  `json:"lowercase"`
}

// newBPE checks a tokenizer.json of type BPE and returns its tokenizer.
func (f *tokenizerFile) newBPE() (*BPE, error) {
	spec, err := f.bpeSpec()
	if err != nil {
		return nil, err
	}
	return newBPE(spec)
}

func (f *tokenizerFile) bpeSpec() (spec bpeSpec, err error) {
	m := f.Model
	switch {
	case m.Type != "BPE":
		return spec, fmt.Errorf("model.type is %q, not BPE", m.Type)
	case len(m.Vocab) == 0:
		return spec, errors.New("model.vocab is empty")
	case m.ByteFallback:
		return spec, errors.New("model.byte_fallback is true (a SentencePiece model); only byte-level BPE is supported")
	case m.Dropout != 0:
		return spec, fmt.Errorf("model.dropout is %g; random merges are not supported, set it to null", m.Dropout)
	case m.ContinuingSubwordPrefix != "":
		return spec, fmt.Errorf("model.continuing_subword_prefix is %q; not supported", m.ContinuingSubwordPrefix)
	case m.EndOfWordSuffix != "":
		return spec, fmt.Errorf("model.end_of_word_suffix is %q; not supported", m.EndOfWordSuffix)
	}
	spec = bpeSpec{
		vocab: m.Vocab, merges: m.Merges, added: f.AddedTokens, unkToken: m.UnkToken, fuseUnk: m.FuseUnk,
		ignoreMerges: m.IgnoreMerges,
	}
	if spec.normalize, err = f.Normalizer.normalizer(); err != nil {
		return spec, err
	}
	if spec.scanners, err = f.PreTokenizer.byteLevelScanners(); err != nil {
		return spec, err
	}
	return spec, f.Decoder.checkByteLevel()
}

// normalizer returns the function a normalizer stands for; nil means none.
func (c *component) normalizer() (func(string) string, error) {
	switch {
	case c == nil:
		return nil, nil
	case c.Type == "NFC":
		return nfc, nil
	case c.Type == "Sequence":
		var all func(string) string
		for _, part := range c.Normalizers {
			f, err := part.normalizer()
			if err != nil {
				return nil, err
			}
			if f != nil {
				all = f // NFC is the only one there is, and twice is once
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("normalizer %q is not supported; supported are none, NFC and a Sequence of these", c.Type)
}

// splitPatterns maps the regular expressions of Split pre-tokenizers to the scanners that do the same.
var splitPatterns = map[string]scanner{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: gpt2Piece,
	qwen2Pattern:  qwen2Piece,
	llama3Pattern: llama3Piece,
}

const (
	qwen2Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
		`\s*[\r\n]+|\s+(?!\S)|\s+`
)

// byteLevelScanners returns the scanners of a pre-tokenizer that ends in ByteLevel.
func (c *component) byteLevelScanners() ([]scanner, error) {
	if c == nil {
		return nil, errors.New("pre_tokenizer is missing; only byte-level BPE is supported")
	}
	parts := []*component{c}
	if c.Type == "Sequence" {
		parts = c.PreTokenizers
	}
	var scanners []scanner
	for i, part := range parts {
		if part == nil {
			return nil, fmt.Errorf("pre_tokenizer: step %d is null", i)
		}
		if last := i == len(parts)-1; last != (part.Type == "ByteLevel") {
			return nil, errors.New("pre_tokenizer: exactly the last step must be ByteLevel; only byte-level BPE is supported")
		}
		s, err := part.scanner()
		if err != nil {
			return nil, err
		}
		if s != nil {
			scanners = append(scanners, s)
		}
	}
	if len(parts) == 0 {
		return nil, errors.New("pre_tokenizer is an empty Sequence; only byte-level BPE is supported")
	}
	return scanners, nil
}

// scanner returns the scanner of one step of a pre-tokenizer, nil if it does not cut.
func (c *component) scanner() (scanner, error) {
	switch c.Type {
	case "ByteLevel":
		if c.AddPrefixSpace == nil || *c.AddPrefixSpace {
			return nil, errors.New("pre_tokenizer ByteLevel: add_prefix_space true is not supported")
		}
		if c.UseRegex != nil && !*c.UseRegex {
			return nil, nil
		}
		return gpt2Piece, nil
	case "Digits":
		if c.IndividualDigits {
			return digitPiece, nil
		}
		return numberPiece, nil
	case "Split":
		s, ok := splitPatterns[c.Pattern["Regex"]]
		if !ok {
			return nil, fmt.Errorf("pre_tokenizer Split: the pattern %q is not supported; "+
				"supported are those of GPT-2, Qwen2 and Llama 3", c.Pattern)
		}
		// The patterns match every character, so that these two come to the same.
		if c.Behavior == "Isolated" && !c.Invert || c.Behavior == "Removed" && c.Invert {
			return s, nil
		}
		return nil, fmt.Errorf("pre_tokenizer Split: behavior %q with invert %v is not supported", c.Behavior, c.Invert)
	}
	return nil, fmt.Errorf("pre_tokenizer %q is not supported; "+
		"supported are ByteLevel, Digits, Split and a Sequence of these", c.Type)
}

// checkByteLevel checks that a decoder is ByteLevel.
func (c *component) checkByteLevel() error {
	if c != nil && c.Type == "Sequence" && len(c.Decoders) == 1 {
		c = c.Decoders[0]
	}
	if c == nil || c.Type != "ByteLevel" {
		return fmt.Errorf("decoder %s is not supported; only byte-level BPE is supported", c.name())
	}
	return nil
}

func (c *component) name() string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%q", c.Type)
}

// jsonError says where in data a JSON error is.
func jsonError(data []byte, err error) error {
	offset := int64(-1)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	if offset < 0 {
		return err
	}
	if offset >= int64(len(data)) {
		return fmt.Errorf("the JSON ends too early, at byte %d: the file is cut off (%w)", len(data), err)
	}
	return fmt.Errorf("line %d, byte %d: not JSON: %w", 1+bytes.Count(data[:offset], []byte("\n")), offset, err)
}
