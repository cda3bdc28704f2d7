// Package agenttest drives rollouts without a model: a small tokenizer, a policy that follows a script, and a search
// engine that answers from a table.
package agenttest

import (
	"slices"
	"strings"
)

// EOS is the id of the end token "<|end|>" of every Tokenizer.
const EOS = 256

// EndToken is the written form of EOS.
const EndToken = "<|end|>"

// Tokenizer has one token for each byte (ids 0 to 255), the end token, and the pieces it was made with. The longest
// piece that fits is taken.
type Tokenizer struct {
	pieces []string
}

// NewTokenizer returns a tokenizer with the given pieces, whose ids begin at 257.
func NewTokenizer(pieces ...string) *Tokenizer { return &Tokenizer{pieces} }

// Encode implements tokenizer.Tokenizer.
func (t *Tokenizer) Encode(text string) []int {
	var ids []int
	for i, part := range strings.Split(text, EndToken) {
		if i > 0 {
			ids = append(ids, EOS)
		}
		ids = append(ids, t.EncodePlain(part)...)
	}
	return ids
}

// EncodePlain implements tokenizer.Tokenizer.
func (t *Tokenizer) EncodePlain(text string) []int {
	var ids []int
	for len(text) > 0 {
		id, size := int(text[0]), 1
		for i, piece := range t.pieces {
			if len(piece) > size && strings.HasPrefix(text, piece) {
				id, size = EOS+1+i, len(piece)
			}
		}
		ids = append(ids, id)
		text = text[size:]
	}
	return ids
}

// Decode implements tokenizer.Tokenizer.
func (t *Tokenizer) Decode(ids []int) string {
	var text []byte
	for _, id := range ids {
		text = append(text, t.Bytes(id)...)
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// Bytes implements tokenizer.Tokenizer.
func (t *Tokenizer) Bytes(id int) []byte {
	switch {
	case id < 0 || id >= t.VocabSize():
		return nil
	case id < EOS:
		return []byte{byte(id)}
	case id == EOS:
		return []byte(EndToken)
	default:
		return []byte(t.pieces[id-EOS-1])
	}
}

// VocabSize implements tokenizer.Tokenizer.
func (t *Tokenizer) VocabSize() int { return EOS + 1 + len(t.pieces) }

// TokenID implements tokenizer.Tokenizer.
func (t *Tokenizer) TokenID(token string) (int, bool) {
	if token == EndToken {
		return EOS, true
	}
	if i := slices.Index(t.pieces, token); i >= 0 {
		return EOS + 1 + i, true
	}
	if len(token) == 1 {
		return int(token[0]), true
	}
	return 0, false
}

// IsSpecial implements tokenizer.Tokenizer.
func (t *Tokenizer) IsSpecial(id int) bool { return id == EOS }
