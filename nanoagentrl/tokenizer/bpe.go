package tokenizer

import (
	"fmt"
	"slices"
)

// BPE is a byte-level byte-pair tokenizer, as Qwen2, SmolLM2, GPT-2 and Llama 3 use it. It gives the ids that Hugging
// Face's tokenizers gives with add_special_tokens off, and is safe for concurrent use.
//
// Text that is not UTF-8 is encoded byte by byte, and Bytes gives the same bytes back. A few vocabularies lack tokens
// for single bytes that they never saw (SmolLM2 lacks U+0004 and a few other control characters); such bytes are left
// out, as the original does, unless the model has an unknown token.
type BPE struct {
	// written and bytes hold each token by id: as the vocabulary writes it and what it stands for. Ids without a
	// token have an empty written form.
	written []string
	bytes   []string
	ids     map[string]int
	special map[int]bool

	byteIDs [256]int32 // the token of each single byte, -1 if there is none
	unk     int32      // the token for bytes without a token, -1 for none
	fuseUnk bool
	merges  map[pair]merge
	// whole maps the bytes of each token to it when the model takes a piece that is a token without merging
	// (ignore_merges); otherwise it is nil.
	whole map[string]int32

	normalize  func(string) string
	added      *addedSet // looked for in the text as it is
	normalized *addedSet // looked for in the normalised text
	scanners   []scanner
	cache      pieceCache

	settings  Settings
	files     map[string][]byte // the files it was read from, by name
	family    *family           // for one from a GGUF file, what its tokenizer.json is made of
	maxLength int               // the model's longest text in tokens, 0 if unknown
}

var _ Stored = (*BPE)(nil)

// Encode returns the ids of text. See Tokenizer.
func (b *BPE) Encode(text string) []int { return b.encode(text, false) }

// EncodePlain returns the ids of text from outside, in which special tokens are ordinary characters: none of the ids is
// special. Added tokens that are not special, such as Qwen's <tool_call>, are still found.
func (b *BPE) EncodePlain(text string) []int { return b.encode(text, true) }

func (b *BPE) encode(text string, plain bool) []int {
	ids := make([]int, 0, len(text)/3+1)
	appendPiece := func(piece string) { ids = b.appendPiece(ids, piece) }
	b.added.split(text, plain, func(text string, token *addedToken) {
		if token != nil {
			ids = append(ids, token.ID)
			return
		}
		b.normalized.split(b.normalize(text), plain, func(text string, token *addedToken) {
			if token != nil {
				ids = append(ids, token.ID)
				return
			}
			splitPieces(text, b.scanners, appendPiece)
		})
	})
	return ids
}

// appendPiece appends the ids of one piece of text.
func (b *BPE) appendPiece(ids []int, piece string) []int {
	if id, ok := b.whole[piece]; ok {
		return append(ids, int(id))
	}
	if cached, ok := b.cache.get(piece); ok {
		return append(ids, cached...)
	}
	m := mergers.Get().(*merger)
	defer mergers.Put(m)
	b.load(m, piece)
	m.run(b.merges)
	begin := len(ids)
	for _, s := range m.symbols {
		if s.id >= 0 {
			ids = append(ids, int(s.id))
		}
	}
	b.cache.put(piece, ids[begin:])
	return ids
}

// load sets m's symbols to the single-byte tokens of piece.
func (b *BPE) load(m *merger, piece string) {
	m.symbols = m.symbols[:0]
	unknown := false
	for i := range len(piece) {
		id := b.byteIDs[piece[i]]
		wasUnknown := unknown
		if unknown = id < 0; unknown {
			if id = b.unk; id < 0 || wasUnknown && b.fuseUnk {
				continue
			}
		}
		n := int32(len(m.symbols))
		m.symbols = append(m.symbols, symbol{id: id, prev: n - 1, next: n + 1})
	}
	if n := len(m.symbols); n > 0 {
		m.symbols[n-1].next = -1
	}
}

// Decode returns the text of ids, special tokens included. See Tokenizer.
func (b *BPE) Decode(ids []int) string {
	var raw []byte
	for _, id := range ids {
		if id >= 0 && id < len(b.bytes) {
			raw = append(raw, b.bytes[id]...)
		}
	}
	return lossyText(raw)
}

// Bytes returns the bytes of one token, nil for an id without one. The caller may change them.
func (b *BPE) Bytes(id int) []byte {
	if id < 0 || id >= len(b.bytes) || b.written[id] == "" {
		return nil
	}
	return []byte(b.bytes[id])
}

// VocabSize is one more than the largest id that has a token. Models often have more rows: GGUF files fill up with
// tokens of type "unused", which are none to us.
func (b *BPE) VocabSize() int { return len(b.written) }

// TokenID returns the id of a token as the vocabulary writes it, in the byte-level alphabet ("Ġthe") or, for added
// tokens, as it is ("<|im_end|>").
func (b *BPE) TokenID(token string) (int, bool) {
	id, ok := b.ids[token]
	return id, ok
}

// IsSpecial reports whether id is a special token.
func (b *BPE) IsSpecial(id int) bool { return b.special[id] }

// Settings returns the tokens with a role and the chat templates that came with the tokenizer.
func (b *BPE) Settings() Settings { return b.settings }

// bpeSpec is all that newBPE needs to know, from whichever file.
type bpeSpec struct {
	vocab        map[string]int
	merges       [][]string
	added        []addedToken
	unkToken     string
	fuseUnk      bool
	ignoreMerges bool
	normalize    func(string) string
	scanners     []scanner
}

// newBPE builds the tables of a tokenizer and checks that they fit together.
func newBPE(spec bpeSpec) (*BPE, error) {
	b := &BPE{
		ids: make(map[string]int, len(spec.vocab)), special: map[int]bool{}, fuseUnk: spec.fuseUnk,
		normalize: spec.normalize, scanners: spec.scanners,
	}
	if b.normalize == nil {
		b.normalize = func(s string) string { return s }
	}
	if err := b.addVocab(spec); err != nil {
		return nil, err
	}
	if err := b.addAdded(spec.added); err != nil {
		return nil, err
	}
	b.indexBytes(spec)
	if spec.unkToken != "" {
		id, ok := spec.vocab[spec.unkToken]
		if !ok {
			return nil, fmt.Errorf("model.unk_token %q is not in the vocabulary", spec.unkToken)
		}
		b.unk = int32(id)
	}
	return b, b.addMerges(spec)
}

// maxTokenID bounds ids, so that a broken file cannot ask for all memory.
const maxTokenID = 1 << 22

func (b *BPE) addVocab(spec bpeSpec) error {
	size := 0
	for token, id := range spec.vocab {
		if id < 0 || id > maxTokenID {
			return fmt.Errorf("token %q has the impossible id %d", token, id)
		}
		size = max(size, id+1)
	}
	for _, t := range spec.added {
		if t.ID < 0 || t.ID > maxTokenID {
			return fmt.Errorf("added token %q has the impossible id %d", t.Content, t.ID)
		}
		size = max(size, t.ID+1)
	}
	b.written, b.bytes = make([]string, size), make([]string, size)
	for token, id := range spec.vocab {
		if token == "" {
			return fmt.Errorf("the vocabulary has an empty token, id %d", id)
		}
		if b.written[id] != "" {
			return fmt.Errorf("tokens %q and %q have the same id %d", b.written[id], token, id)
		}
		b.written[id], b.ids[token] = token, id
		var ok bool
		if b.bytes[id], ok = byteLevelBytes(token); !ok {
			b.bytes[id] = token
		}
	}
	return nil
}

func (b *BPE) addAdded(added []addedToken) error {
	var before, after []addedToken
	for _, t := range added {
		if t.Content == "" {
			return fmt.Errorf("added token %d is empty", t.ID)
		}
		if id, ok := b.ids[t.Content]; ok && id != t.ID {
			return fmt.Errorf("added token %q has id %d, but %d in the vocabulary", t.Content, t.ID, id)
		}
		if other := b.written[t.ID]; other != "" && other != t.Content {
			return fmt.Errorf("added token %q has the id %d of %q", t.Content, t.ID, other)
		}
		b.written[t.ID], b.bytes[t.ID], b.ids[t.Content] = t.Content, t.Content, t.ID
		if t.Special {
			b.special[t.ID] = true
		}
		if t.Normalized {
			t.Content = b.normalize(t.Content)
			after = append(after, t)
		} else {
			before = append(before, t)
		}
	}
	b.added, b.normalized = newAddedSet(before), newAddedSet(after)
	return nil
}

// indexBytes fills byteIDs and whole.
func (b *BPE) indexBytes(spec bpeSpec) {
	b.unk = -1
	for value, r := range byteRunes {
		b.byteIDs[value] = -1
		if id, ok := spec.vocab[string(r)]; ok {
			b.byteIDs[value] = int32(id)
		}
	}
	if !spec.ignoreMerges {
		return
	}
	b.whole = make(map[string]int32, len(spec.vocab))
	for token, id := range spec.vocab {
		// A special token in plain text must not be found here either.
		if bytes, ok := byteLevelBytes(token); ok && !b.special[id] {
			b.whole[bytes] = int32(id)
		}
	}
}

func (b *BPE) addMerges(spec bpeSpec) error {
	b.merges = make(map[pair]merge, len(spec.merges))
	for rank, parts := range spec.merges {
		var ids [3]int
		for i, token := range []string{parts[0], parts[1], parts[0] + parts[1]} {
			id, ok := spec.vocab[token]
			if !ok {
				return fmt.Errorf("merge %d (%q + %q): token %q is not in the vocabulary", rank, parts[0], parts[1], token)
			}
			ids[i] = id
		}
		b.merges[makePair(int32(ids[0]), int32(ids[1]))] = merge{rank: int32(rank), id: int32(ids[2])}
	}
	return nil
}

// FromJSON reads the contents of a tokenizer.json that holds a byte-level BPE model. Anything in it that would change
// the ids and is not supported is an error that names it. Its truncation, padding and post_processor, which may add a
// beginning-of-sequence token, are not applied.
func FromJSON(data []byte) (*BPE, error) {
	file, err := parseTokenizerFile(data)
	if err != nil {
		return nil, err
	}
	b, err := file.newBPE()
	if err != nil {
		return nil, err
	}
	b.files = map[string][]byte{tokenizerJSON: slices.Clone(data)}
	return b, nil
}
