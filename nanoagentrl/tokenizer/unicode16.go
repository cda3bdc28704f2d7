package tokenizer

import "unicode"

// Hugging Face's tokenizers know Unicode 16, Go 1.26 knows Unicode 15. These are the letters and numbers in between,
// so that both split every text at the same places.
var (
	lettersSince15 = &unicode.RangeTable{
		R16: []unicode.Range16{{0x1c89, 0x1c8a, 1}, {0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1}},
		R32: []unicode.Range32{
			{0x105c0, 0x105f3, 1}, {0x10d4a, 0x10d65, 1}, {0x10d6f, 0x10d85, 1}, {0x10ec2, 0x10ec4, 1},
			{0x11380, 0x11389, 1}, {0x1138b, 0x1138b, 1}, {0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1},
			{0x113b7, 0x113b7, 1}, {0x113d1, 0x113d1, 1}, {0x113d3, 0x113d3, 1}, {0x11bc0, 0x11be0, 1},
			{0x13460, 0x143fa, 1}, {0x16100, 0x1611d, 1}, {0x16d40, 0x16d6c, 1}, {0x18cff, 0x18cff, 1},
			{0x1e5d0, 0x1e5ed, 1}, {0x1e5f0, 0x1e5f0, 1}, {0x2ebf0, 0x2ee5d, 1},
		},
	}
	numbersSince15 = &unicode.RangeTable{
		R32: []unicode.Range32{
			{0x10d40, 0x10d49, 1}, {0x116d0, 0x116e3, 1}, {0x11bf0, 0x11bf9, 1}, {0x16130, 0x16139, 1},
			{0x16d70, 0x16d79, 1}, {0x1ccf0, 0x1ccf9, 1}, {0x1e5f1, 0x1e5fa, 1},
		},
	}
)

func isLetter(r rune) bool {
	return unicode.IsLetter(r) || r >= 0x1c89 && unicode.Is(lettersSince15, r)
}

func isNumber(r rune) bool {
	return unicode.IsNumber(r) || r >= 0x10d40 && unicode.Is(numbersSince15, r)
}
