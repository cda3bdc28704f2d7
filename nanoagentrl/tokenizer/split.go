package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A scanner cuts text into the pieces that byte-pair merges do not cross. It returns the end of the piece that begins
// at s[i]; i < len(s). The pieces of a text, joined, are the text. Each scanner does by hand what a regular
// expression does in the original, as Go's regexp knows no look-ahead and engines that do are slow.
type scanner func(s string, i int) int

// splitPieces calls emit for each piece of s: the first scanner cuts s, the next cuts each of its pieces, and so on.
func splitPieces(s string, scanners []scanner, emit func(piece string)) {
	if len(scanners) == 0 {
		emit(s)
		return
	}
	for i := 0; i < len(s); {
		end := scanners[0](s, i)
		splitPieces(s[i:end], scanners[1:], emit)
		i = end
	}
}

// class is the kind of a character, as far as pre-tokenizers tell characters apart. A byte that is not UTF-8 is other.
type class uint8

const (
	none    class = iota // the end of the text
	other                // [^\s\p{L}\p{N}]
	letter               // \p{L}
	number               // \p{N}
	space                // \s but for newlines
	newline              // [\r\n]
)

var asciiClass = func() (classes [utf8.RuneSelf]class) {
	for c := range classes {
		classes[c] = classOf(rune(c))
	}
	return classes
}()

func classOf(r rune) class {
	switch {
	case r == '\r' || r == '\n':
		return newline
	case unicode.IsSpace(r):
		return space
	case isLetter(r):
		return letter
	case isNumber(r):
		return number
	}
	return other
}

// classAt returns the class and the width in bytes of the character at s[i]; none and 0 at the end.
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return none, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, width := utf8.DecodeRuneInString(s[i:])
	return classOf(r), width
}

// skip returns the end of the run of characters of class c that begins at s[i], which may be empty.
func skip(s string, i int, c class) int {
	for {
		at, width := classAt(s, i)
		if at != c {
			return i
		}
		i += width
	}
}

// gpt2Piece is GPT-2's pre-tokenizer:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Piece(s string, i int) int {
	if n := contraction(s[i:], false); n > 0 {
		return i + n
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, _ := classAt(s, j); c == letter || c == number || c == other {
		return skip(s, j, c)
	}
	end, _, last := whiteSpace(s, i)
	return leaveLastSpace(s, i, end, last)
}

// qwen2Piece is Qwen2's pre-tokenizer:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func qwen2Piece(s string, i int) int { return cl100kPiece(s, i, 1) }

// llama3Piece is Llama 3's pre-tokenizer, which is Qwen2's with up to three numbers a piece: \p{N}{1,3}.
func llama3Piece(s string, i int) int { return cl100kPiece(s, i, 3) }

func cl100kPiece(s string, i, maxNumbers int) int {
	if n := contraction(s[i:], true); n > 0 {
		return i + n
	}
	c, width := classAt(s, i)
	switch c {
	case letter:
		return skip(s, i, letter)
	case number:
		for n := 0; n < maxNumbers && c == number; n++ {
			i += width
			c, width = classAt(s, i)
		}
		return i
	case space, other:
		if next, _ := classAt(s, i+width); next == letter {
			return skip(s, i+width, letter)
		}
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if c, _ := classAt(s, j); c == other {
		return skip(s, skip(s, j, other), newline)
	}
	end, afterNewline, last := whiteSpace(s, i)
	if afterNewline > 0 {
		return afterNewline
	}
	return leaveLastSpace(s, i, end, last)
}

// whiteSpace looks at the run of white space that begins at s[i]: where it ends, the end of the last newline in it
// (0 if there is none), and where its last character begins.
func whiteSpace(s string, i int) (end, afterNewline, last int) {
	for end = i; ; {
		c, width := classAt(s, end)
		if c != space && c != newline {
			return end, afterNewline, last
		}
		last = end
		end += width
		if c == newline {
			afterNewline = end
		}
	}
}

// leaveLastSpace is \s+(?!\S)|\s+ for the white space s[i:end] whose last character begins at last: all of it at the
// end of the text, else all but the last character, which goes with the next word, unless it is the only one.
func leaveLastSpace(s string, i, end, last int) int {
	if end < len(s) && last > i {
		return last
	}
	return end
}

// contraction returns the length of the English contraction s begins with ('s, 't, 're, 've, 'm, 'll, 'd), or 0. With
// fold, case does not matter; as in the original, the long s (U+017F) is then an s too.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	if fold && strings.HasPrefix(s[1:], "ſ") {
		return 1 + len("ſ")
	}
	lower := func(i int) byte {
		switch {
		case i >= len(s):
			return 0
		case fold && s[i] >= 'A' && s[i] <= 'Z':
			return s[i] + 'a' - 'A'
		}
		return s[i]
	}
	switch lower(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if lower(2) == 'e' {
			return 3
		}
	case 'l':
		if lower(2) == 'l' {
			return 3
		}
	}
	return 0
}

// digitPiece cuts out each number by itself: the pre-tokenizer Digits with individual_digits.
func digitPiece(s string, i int) int {
	if c, width := classAt(s, i); c == number {
		return i + width
	}
	return skipText(s, i)
}

// numberPiece cuts out runs of numbers: the pre-tokenizer Digits without individual_digits.
func numberPiece(s string, i int) int {
	if c, _ := classAt(s, i); c == number {
		return skip(s, i, number)
	}
	return skipText(s, i)
}

// skipText returns the place of the next number at or after s[i], or the end.
func skipText(s string, i int) int {
	for {
		c, width := classAt(s, i)
		if c == number || c == none {
			return i
		}
		i += width
	}
}
