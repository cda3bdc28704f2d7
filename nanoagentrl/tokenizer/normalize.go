package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns s in Unicode normalization form C. Bytes that are not UTF-8 stay as they are.
//
// golang.org/x/text keeps to the stream-safe format, which puts a U+034F into runs of more than 30 combining marks;
// the reference does not, so a text with a long run is normalised here.
func nfc(s string) string {
	marks, ascii := 0, true
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			marks = 0
			i++
			continue
		}
		ascii = false
		properties := norm.NFC.PropertiesString(s[i:])
		if marks++; properties.CCC() == 0 {
			marks = 0
		}
		// A character may stand for several marks, so stay well below 30.
		if marks > 8 {
			return nfcUnbounded(s)
		}
		i += max(1, properties.Size())
	}
	if ascii {
		return s
	}
	return norm.NFC.String(s)
}

// mark is one character of a decomposed text, with its canonical combining class.
type mark struct {
	text string
	ccc  uint8
}

// nfcUnbounded is nfc by the book: decompose, sort each run of marks by combining class, compose.
func nfcUnbounded(s string) string {
	var chars []mark
	for i := 0; i < len(s); {
		_, width := utf8.DecodeRuneInString(s[i:])
		decomposed := norm.NFD.String(s[i : i+width])
		for j := 0; j < len(decomposed); {
			_, size := utf8.DecodeRuneInString(decomposed[j:])
			text := decomposed[j : j+size]
			chars = append(chars, mark{text, norm.NFD.PropertiesString(text).CCC()})
			j += size
		}
		i += width
	}
	for i := 0; i < len(chars); {
		j := i
		for j < len(chars) && chars[j].ccc > 0 {
			j++
		}
		slices.SortStableFunc(chars[i:j], func(a, b mark) int { return int(a.ccc) - int(b.ccc) })
		i = j + 1
	}
	return compose(chars)
}

// compose joins each character with the last starter before it where a composed character exists and no mark of the
// same or a higher class stands between them (The Unicode Standard, section 3.11).
func compose(chars []mark) string {
	starter, kept := -1, chars[:0]
	for _, c := range chars {
		if starter >= 0 {
			last := kept[len(kept)-1]
			blocked := len(kept)-1 > starter && (last.ccc == 0 || last.ccc >= c.ccc)
			if pair := norm.NFC.String(kept[starter].text + c.text); !blocked && utf8.RuneCountInString(pair) == 1 {
				kept[starter].text = pair
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(kept)
		}
		kept = append(kept, c)
	}
	out := make([]byte, 0, len(kept)*2)
	for _, c := range kept {
		out = append(out, c.text...)
	}
	return string(out)
}
