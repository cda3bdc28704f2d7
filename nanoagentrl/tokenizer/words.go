package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words is a tokenizer whose tokens are whole words, for tiny models trained from nothing.
//
// Words stand between white space; how much and of which kind does not matter, and a newline is white space like any
// other. Tags, that is vocabulary entries written <so> or </so>, are found without white space around them too, so
// that "<search>who</search>\n" gives the same ids as "<search> who </search>". A word that is not in the vocabulary is
// <unk>. Decode joins the words with single spaces, so that a text of known words with single spaces between comes
// back as it was.
//
// Bytes of a token are its word and one space: Decode is the bytes of all ids, joined, without the space at the end.
// The stop string "</search>" therefore fires on its token, and the space after it is cut off.
//
// Saved, it is a tokenizer.json of type WordLevel that gives the same ids in Python through transformers'
// PreTrainedTokenizerFast. AutoTokenizer of transformers 5 does not look at the file when config.json says model_type
// qwen2; with llama it does.
type Words struct {
	words   []string // by id; holes are empty
	ids     map[string]int
	special map[int]bool
	unk     int
	added   *addedSet

	settings Settings
	files    map[string][]byte
}

var _ Stored = (*Words)(nil)

// The special tokens of a Words tokenizer: unknown words, padding, beginning and end.
const (
	WordUnk = "<unk>"
	WordPad = "<pad>"
	WordBOS = "<bos>"
	WordEOS = "<eos>"
)

const (
	wordLevel       = "WordLevel"
	whitespaceSplit = "WhitespaceSplit"
)

// NewWords returns a tokenizer whose ids are the places in words. WordUnk must be among the words; WordPad, WordBOS and
// WordEOS, where they are, get their roles and are special tokens too.
func NewWords(words []string) (*Words, error) {
	vocab := make(map[string]int, len(words))
	for id, word := range words {
		if other, ok := vocab[word]; ok {
			return nil, fmt.Errorf("tokenizer: word %q stands at %d and %d", word, other, id)
		}
		vocab[word] = id
	}
	settings := Settings{}
	var added []addedToken
	for id, word := range words {
		special := true
		switch word {
		case WordUnk:
			settings.Unk = word
		case WordPad:
			settings.Pad = word
		case WordBOS:
			settings.BOS = word
		case WordEOS:
			settings.EOS = word
		default:
			special = false
		}
		if special || isTag(word) {
			added = append(added, addedToken{ID: id, Content: word, Special: special})
		}
	}
	w, err := newWords(vocab, added, WordUnk)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	w.settings = settings
	return w, nil
}

func isTag(word string) bool {
	return len(word) > 2 && word[0] == '<' && strings.IndexByte(word, '>') == len(word)-1
}

func newWords(vocab map[string]int, added []addedToken, unk string) (*Words, error) {
	w := &Words{ids: vocab, special: map[int]bool{}, added: newAddedSet(added)}
	for word, id := range vocab {
		if word == "" || strings.ContainsFunc(word, unicode.IsSpace) || !utf8.ValidString(word) {
			return nil, fmt.Errorf("word %d is %q; words are not empty and hold no white space", id, word)
		}
		if id < 0 || id > maxTokenID {
			return nil, fmt.Errorf("word %q has the impossible id %d", word, id)
		}
		for len(w.words) <= id {
			w.words = append(w.words, "")
		}
		if other := w.words[id]; other != "" {
			return nil, fmt.Errorf("words %q and %q have the same id %d", other, word, id)
		}
		w.words[id] = word
	}
	for _, t := range added {
		w.special[t.ID] = t.Special
	}
	id, ok := vocab[unk]
	if !ok {
		return nil, fmt.Errorf("the token for unknown words, %q, is not in the vocabulary", unk)
	}
	w.unk = id
	return w, nil
}

// Encode returns the ids of text.
func (w *Words) Encode(text string) []int { return w.encode(text, false) }

// EncodePlain returns the ids of text from outside: special tokens written in it are unknown words. Tags are not
// special and keep their ids.
func (w *Words) EncodePlain(text string) []int { return w.encode(text, true) }

func (w *Words) encode(text string, plain bool) []int {
	ids := make([]int, 0, len(text)/5+1)
	w.added.split(text, plain, func(text string, token *addedToken) {
		if token != nil {
			ids = append(ids, token.ID)
			return
		}
		for word := range strings.FieldsFuncSeq(text, unicode.IsSpace) {
			id, ok := w.ids[word]
			if !ok || w.special[id] {
				id = w.unk
			}
			ids = append(ids, id)
		}
	})
	return ids
}

// Decode returns the words of ids with single spaces between them. Unknown ids are left out.
func (w *Words) Decode(ids []int) string {
	var text []byte
	for _, id := range ids {
		text = append(text, w.Bytes(id)...)
	}
	return string(bytes.TrimSuffix(text, []byte{' '}))
}

// Bytes returns the word of id and one space; nil for an unknown id.
func (w *Words) Bytes(id int) []byte {
	if id < 0 || id >= len(w.words) || w.words[id] == "" {
		return nil
	}
	return []byte(w.words[id] + " ")
}

// VocabSize is one more than the largest id.
func (w *Words) VocabSize() int { return len(w.words) }

// TokenID returns the id of a word.
func (w *Words) TokenID(word string) (int, bool) {
	id, ok := w.ids[word]
	return id, ok
}

// IsSpecial reports whether id is one of the special tokens.
func (w *Words) IsSpecial(id int) bool { return w.special[id] }

// Settings returns the tokens with a role.
func (w *Words) Settings() Settings { return w.settings }

// LoadWords reads the tokenizer.json of a Words tokenizer, without the settings beside it. See Load.
func LoadWords(path string) (*Words, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	file, err := parseTokenizerFile(data)
	if err == nil {
		var w *Words
		if w, err = file.words(); err == nil {
			w.files = map[string][]byte{tokenizerJSON: data}
			return w, nil
		}
	}
	return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
}

// words checks a tokenizer.json of type WordLevel and returns its tokenizer.
func (f *tokenizerFile) words() (*Words, error) {
	switch {
	case f.Model.Type != wordLevel:
		return nil, fmt.Errorf("model.type is %q, not %s", f.Model.Type, wordLevel)
	case f.Normalizer != nil:
		return nil, fmt.Errorf("normalizer %s is not supported with %s", f.Normalizer.name(), wordLevel)
	case f.PreTokenizer == nil || f.PreTokenizer.Type != whitespaceSplit:
		return nil, fmt.Errorf("pre_tokenizer %s is not supported with %s; supported is %s",
			f.PreTokenizer.name(), wordLevel, whitespaceSplit)
	case f.Decoder != nil:
		return nil, fmt.Errorf("decoder %s is not supported with %s", f.Decoder.name(), wordLevel)
	}
	for _, t := range f.AddedTokens {
		if id, ok := f.Model.Vocab[t.Content]; !ok || id != t.ID {
			return nil, fmt.Errorf("added token %q, id %d, does not stand in the vocabulary under this id", t.Content, t.ID)
		}
		if t.SingleWord || t.LStrip || t.RStrip || t.Normalized {
			return nil, errors.New("added tokens with single_word, lstrip, rstrip or normalized are not supported with " +
				wordLevel)
		}
	}
	return newWords(f.Model.Vocab, f.AddedTokens, f.Model.UnkToken)
}

// Save writes the tokenizer as a Hugging Face folder keeps it. See Stored.
func (w *Words) Save(dir string) error { return saveFolder(dir, w.files, w.fileJSON, w.settings, 0) }

func (w *Words) fileJSON() ([]byte, error) {
	return marshalIndented(outFile{
		Version: "1.0", AddedTokens: w.added.tokens,
		PreTokenizer: json.RawMessage(`{"type":"` + whitespaceSplit + `"}`),
		Model: struct {
			Type     string   `json:"type"`
			Vocab    outVocab `json:"vocab"`
			UnkToken string   `json:"unk_token"`
		}{wordLevel, w.words, w.words[w.unk]},
	})
}
