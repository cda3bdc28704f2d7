package tokenizer

import "unicode/utf8"

// Stream turns token ids into text one by one, for output as it is sampled. It never splits a character: bytes that may
// yet become one are held back until the next ids complete them. The texts of Next and Flush, joined, are the text of
// all ids: what Decode gives, except that Words leaves the space after the last word in.
type Stream struct {
	tokenizer Tokenizer
	held      []byte
}

// NewStream returns a stream over the ids of t.
func NewStream(t Tokenizer) *Stream { return &Stream{tokenizer: t} }

// Next takes one id and returns the text that is now certain, which may be empty.
func (s *Stream) Next(id int) string {
	text, rest := appendText(nil, append(s.held, s.tokenizer.Bytes(id)...))
	s.held = append(s.held[:0], rest...)
	return string(text)
}

// Flush returns what is held back as one U+FFFD, or nothing, and makes the stream ready for another text.
func (s *Stream) Flush() string {
	if len(s.held) == 0 {
		return ""
	}
	s.held = s.held[:0]
	return string(utf8.RuneError)
}

// lossyText returns raw as text, with U+FFFD for what is not UTF-8.
func lossyText(raw []byte) string {
	text, rest := appendText(make([]byte, 0, len(raw)), raw)
	if len(rest) > 0 {
		text = utf8.AppendRune(text, utf8.RuneError)
	}
	return string(text)
}
