package tokenizer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unicode"
	"unicode/utf8"
)

// WordPiece is the tokenizer of BERT and of the encoders made from it: text is cleaned and cut into words, and a word
// into the longest pieces of the vocabulary from left to right (Wu and others, arXiv:1609.08144; Devlin and others,
// arXiv:1810.04805). Pieces inside a word are written with a prefix, "##". A word that cannot be cut, or that is longer
// than the file allows, is one unknown token. It is safe for concurrent use.
//
// It only encodes. Special tokens written in a text ("[SEP]") become their own ids, as in Hugging Face's tokenizers.
type WordPiece struct {
	// first and inner find the id of a piece at the start of a word, and inside one, there without the prefix.
	first, inner map[string]int32
	// longest is the number of bytes of the longest piece.
	longest  int
	maxChars int
	unknown  int32
	rules    bertRules
	added    *addedSet
	// before and after are the special tokens around a text.
	before, after []int32
	size          int
}

const (
	wordPiece = "WordPiece"
	// defaultMaxChars is that of Hugging Face's tokenizers, in characters of a word.
	defaultMaxChars = 100
)

// LoadWordPiece reads the tokenizer.json of a folder, which must be a WordPiece with BERT's normalizer and
// pre-tokenizer.
func LoadWordPiece(dir string) (*WordPiece, error) {
	path := filepath.Join(dir, tokenizerJSON)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %s has no %s; models that only have a vocab.txt must be saved once with a fast "+
			"tokenizer of transformers", dir, tokenizerJSON)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	w, err := ParseWordPiece(text)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", path, err)
	}
	return w, nil
}

// ParseWordPiece reads the text of a tokenizer.json; see LoadWordPiece.
func ParseWordPiece(text []byte) (*WordPiece, error) {
	file, err := parseTokenizerFile(text)
	if err != nil {
		return nil, err
	}
	return file.wordPiece()
}

// wordPiece checks a tokenizer.json of type WordPiece and returns its tokenizer.
func (f *tokenizerFile) wordPiece() (*WordPiece, error) {
	m := f.Model
	switch {
	case m.Type != wordPiece:
		return nil, fmt.Errorf("model.type is %q, not %s; encoders that can be used here are BERT's kind, such as "+
			"all-MiniLM-L6-v2 and e5-small-v2", m.Type, wordPiece)
	case len(m.Vocab) == 0:
		return nil, errors.New("model.vocab is empty")
	case m.ContinuingSubwordPrefix == "":
		return nil, errors.New("model.continuing_subword_prefix is empty; WordPiece needs one, usually ##")
	case m.MaxInputCharsPerWord < 0:
		return nil, fmt.Errorf("model.max_input_chars_per_word is %d", m.MaxInputCharsPerWord)
	case f.PreTokenizer == nil || f.PreTokenizer.Type != "BertPreTokenizer":
		return nil, fmt.Errorf("pre_tokenizer %s is not supported with %s; supported is BertPreTokenizer",
			f.PreTokenizer.name(), wordPiece)
	case f.Truncation != nil && f.Truncation.Direction == "Left":
		return nil, errors.New("truncation.direction is Left; only Right is supported")
	}
	w := &WordPiece{first: map[string]int32{}, inner: map[string]int32{}, maxChars: m.MaxInputCharsPerWord}
	if w.maxChars == 0 {
		w.maxChars = defaultMaxChars
	}
	if err := w.addVocabulary(m.Vocab, m.ContinuingSubwordPrefix); err != nil {
		return nil, err
	}
	unknown, ok := m.Vocab[m.UnkToken]
	if !ok {
		return nil, fmt.Errorf("the token for unknown words, %q, is not in the vocabulary", m.UnkToken)
	}
	w.unknown = int32(unknown)
	for _, t := range f.AddedTokens {
		if t.Content == "" || t.ID < 0 || t.ID > maxTokenID {
			return nil, fmt.Errorf("added token %q has the id %d", t.Content, t.ID)
		}
		if t.Normalized {
			return nil, fmt.Errorf("added token %q is looked for after normalisation, which is not supported with %s",
				t.Content, wordPiece)
		}
		w.size = max(w.size, t.ID+1)
	}
	w.added = newAddedSet(f.AddedTokens)
	var err error
	if w.rules, err = f.Normalizer.bertRules(); err != nil {
		return nil, err
	}
	w.before, w.after, err = f.PostProcessor.around()
	return w, err
}

// addVocabulary sorts the pieces by where in a word they may stand.
func (w *WordPiece) addVocabulary(vocab map[string]int, prefix string) error {
	pieces := make(map[int]string, len(vocab))
	for piece, id := range vocab {
		if id < 0 || id > maxTokenID {
			return fmt.Errorf("piece %q has the impossible id %d", piece, id)
		}
		if other, twice := pieces[id]; twice {
			return fmt.Errorf("pieces %q and %q have the same id %d", min(piece, other), max(piece, other), id)
		}
		pieces[id] = piece
		w.first[piece] = int32(id)
		if len(piece) > len(prefix) && piece[:len(prefix)] == prefix {
			w.inner[piece[len(prefix):]] = int32(id)
		}
		w.longest, w.size = max(w.longest, len(piece)), max(w.size, id+1)
	}
	return nil
}

// VocabSize is one more than the largest id.
func (w *WordPiece) VocabSize() int { return w.size }

// Around returns the number of special tokens that Encode puts around a text.
func (w *WordPiece) Around() int { return len(w.before) + len(w.after) }

// Encode returns the ids of a text with the special tokens of the post-processor around them, [CLS] and [SEP]. With a
// limit above 0 the end of a longer text is cut off, so that the special tokens fit too; a limit below their number is
// an error of the caller and cuts them as well.
func (w *WordPiece) Encode(text string, limit int) []int32 {
	room := -1
	if limit > 0 {
		room = max(0, limit-w.Around())
	}
	cut := cutter{w: w, ids: slices.Clone(w.before), room: room}
	w.added.split(text, false, func(part string, token *addedToken) {
		if token == nil {
			cut.text(part)
			return
		}
		cut.emit(int32(token.ID))
	})
	ids := append(cut.ids, w.after...)
	if limit > 0 && len(ids) > limit {
		ids = ids[:limit]
	}
	return ids
}

// cutter cuts one text.
type cutter struct {
	w   *WordPiece
	ids []int32
	// room is the number of tokens that may still come; below 0 there is no bound.
	room int
	// word holds the bytes of the word under way, chars counts its characters.
	word  []byte
	chars int
	// scratch holds a decomposed character.
	scratch []byte
}

func (c *cutter) emit(id int32) {
	if c.room == 0 {
		return
	}
	c.room--
	c.ids = append(c.ids, id)
}

// text cuts a stretch without special tokens.
func (c *cutter) text(s string) {
	for i := 0; i < len(s) && c.room != 0; {
		if b := s[i]; b < utf8.RuneSelf {
			i++
			c.ascii(b)
			continue
		}
		r, width := utf8.DecodeRuneInString(s[i:])
		i += width
		c.scratch = c.w.rules.apply(c, r, c.scratch)
	}
	c.flush()
}

// The classes of ASCII characters for the rules of BERT.
const (
	bertWord = iota
	bertSpace
	bertPunct
	bertControl
)

var bertClass = func() (class [utf8.RuneSelf]uint8) {
	for b := range class {
		r := rune(b)
		switch {
		case isBertPunct(r):
			class[b] = bertPunct
		case unicode.IsSpace(r):
			class[b] = bertSpace
		case unicode.IsControl(r):
			class[b] = bertControl
		}
	}
	// Vertical tab and form feed are control characters first.
	class['\v'], class['\f'] = bertControl, bertControl
	return class
}()

// ascii takes the next character of a text.
func (c *cutter) ascii(b byte) {
	class := bertClass[b]
	if class == bertControl {
		if c.w.rules.clean {
			return
		}
		class = bertWord
		if b == '\v' || b == '\f' {
			class = bertSpace
		}
	}
	switch class {
	case bertSpace:
		c.flush()
	case bertPunct:
		c.punct(rune(b))
	default:
		if c.w.rules.lower && 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		c.word = append(c.word, b)
		c.chars++
	}
}

// char takes a character that is normalised.
func (c *cutter) char(r rune) {
	switch {
	case unicode.IsSpace(r):
		c.flush()
	case isBertPunct(r):
		c.punct(r)
	default:
		c.word = utf8.AppendRune(c.word, r)
		c.chars++
	}
}

// punct ends the word under way; the character is a word of its own.
func (c *cutter) punct(r rune) {
	c.flush()
	c.word, c.chars = utf8.AppendRune(c.word, r), 1
	c.flush()
}

// flush ends the word under way and emits its pieces.
func (c *cutter) flush() {
	if len(c.word) == 0 {
		return
	}
	word, w := c.word, c.w
	long := c.chars > w.maxChars
	c.word, c.chars = c.word[:0], 0
	if c.room == 0 {
		return
	}
	start, room := len(c.ids), c.room
	pieces := w.first
	for len(word) > 0 && !long {
		end := min(len(word), w.longest)
		id, found := int32(0), false
		for ; end > 0; end-- {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			if id, found = pieces[string(word[:end])]; found {
				break
			}
		}
		if !found {
			long = true
			break
		}
		// Beyond the room too: whether the word is known shows only at its end.
		c.ids = append(c.ids, id)
		word, pieces = word[end:], w.inner
	}
	if long {
		c.ids = append(c.ids[:start], w.unknown)
	}
	if room > 0 {
		c.ids = c.ids[:min(len(c.ids), start+room)]
		c.room = room - (len(c.ids) - start)
	}
}
