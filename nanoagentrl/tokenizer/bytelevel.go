package tokenizer

import (
	"unicode/utf8"
)

// byteRunes is GPT-2's byte-level alphabet: the printable character by which a vocabulary writes each byte. runeBytes
// is its inverse.
var byteRunes, runeBytes = byteAlphabet()

func byteAlphabet() (runes [256]rune, bytes map[rune]byte) {
	bytes = make(map[rune]byte, 256)
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if printable := b > ' ' && b < 0x7f || b > 0xa0 && b != 0xad; !printable {
			r = next
			next++
		}
		runes[b] = r
		bytes[r] = byte(b)
	}
	return runes, bytes
}

// byteLevelBytes returns the bytes that a token of a byte-level vocabulary stands for; ok is false when it holds a
// character outside the alphabet, as only added tokens do.
func byteLevelBytes(token string) (bytes string, ok bool) {
	buf := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := runeBytes[r]
		if !ok {
			return "", false
		}
		buf = append(buf, b)
	}
	return string(buf), true
}

// appendText appends the text of b to dst. Each maximal stretch of bytes that begins a character but does not
// complete it, and each byte that cannot begin one, becomes one U+FFFD, as in Python, Rust and the Unicode standard
// (Go's own conversions count differently). It returns the bytes at the end of b that may yet become a character.
func appendText(dst, b []byte) (text, rest []byte) {
	for len(b) > 0 {
		if r, size := utf8.DecodeRune(b); r != utf8.RuneError || size > 1 {
			dst = append(dst, b[:size]...)
			b = b[size:]
			continue
		}
		size := truncatedRune(b)
		if size == len(b) && !utf8.FullRune(b) {
			return dst, b
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		b = b[size:]
	}
	return dst, nil
}

// truncatedRune returns the length, at least 1, of the longest start of b that is a proper start of some character.
// b must not begin with a whole character.
func truncatedRune(b []byte) int {
	size := 1
	for size < len(b) && size < utf8.UTFMax && !utf8.FullRune(b[:size]) {
		size++
	}
	// b[:size] is full, so its last byte is the one that broke the character, unless b ended first.
	if size > 1 && utf8.FullRune(b[:size]) {
		size--
	}
	return size
}
