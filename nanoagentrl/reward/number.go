package reward

import (
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseNumber reads a text that is a number and nothing else, and returns its exact value:
//
//	"72"  "+72"  "-3"  "−3" (U+2212)  "- 3"    a sign may stand off
//	"1,234,567.50"                             commas between groups of three digits
//	"$70,000"  "-$5"  "$-5"  "€5"              a currency sign is dropped
//	"72."  ".5"                                a bare point at either end
//	"50%"                                      is 50: the answers of GSM8K have no percent signs
//	"1/2"  "1 1/2"                             are 0.5 and 1.5, unless the denominator is 0
//	"1e3"                                      is 1000; exponents beyond 30 are not read
//
// A comma is never a decimal point.
func ParseNumber(text string) (*big.Rat, bool) {
	text = strings.TrimSpace(text)
	value, end := leadingNumber(text, "")
	if value == nil {
		return nil, false
	}
	rest := strings.TrimPrefix(text[end:], ".")
	rest = strings.TrimSpace(rest)
	if rest != "" && rest != "%" {
		return nil, false
	}
	return value, true
}

// LastNumber finds the answer in a worked solution, as GSM8K is scored: the number right after the last "####" that
// has one, else the last number in the text. Numbers are written as in ParseNumber, with these rules for running text:
//
//   - a point or comma that no digit follows is punctuation: "72 clips, altogether." holds 72;
//   - a sign counts only where it cannot be an operator: "5-3" and "5 - 3" end in 3, "= -3" in -3;
//   - letters may touch a number: "5kg" is 5, "P500" is 500;
//   - "7/8/2020" is no fraction, but three numbers.
func LastNumber(text string) (*big.Rat, bool) {
	if value := markedNumber(text); value != nil {
		return value, true
	}
	var last *big.Rat
	lastEnd, lastWhole := -1, false
	for i := 0; i < len(text); {
		if !startsNumber(text, i) {
			i++
			continue
		}
		n := scanNumber(text, i)
		value := n.value
		switch {
		case lastWhole && n.proper && text[lastEnd:i] == " ":
			value = mixed(last, n.value)
		case isNegative(text[:i]):
			value = new(big.Rat).Neg(n.value)
		}
		last, lastEnd, lastWhole = value, n.end, n.whole
		i = n.end
	}
	return last, last != nil
}

// NumberEqual reports whether the answer found in a text (see LastNumber) is exactly the number gold.
func NumberEqual(text, gold string) bool {
	want, ok := ParseNumber(gold)
	if !ok {
		return false
	}
	got, ok := LastNumber(text)
	return ok && got.Cmp(want) == 0
}

// markedNumber returns the number right after the last "####" that one follows, or nil.
func markedNumber(text string) *big.Rat {
	for {
		mark := strings.LastIndex(text, "####")
		if mark < 0 {
			return nil
		}
		// Markdown may set the number in bold.
		if value, _ := leadingNumber(text[mark+len("####"):], " \t\r\n*_\\"); value != nil {
			return value
		}
		text = text[:mark]
	}
}

// leadingNumber reads the number that text starts with, after any of the characters of skip, with its sign and currency
// sign in either order, and returns it and where it ends; nil if there is none.
func leadingNumber(text, skip string) (value *big.Rat, end int) {
	i := len(text) - len(strings.TrimLeft(text, skip))
	negative, signed, priced := false, false, false
	for i < len(text) && !startsNumber(text, i) {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case isSign(r) && !signed:
			signed, negative = true, r != '+'
		case unicode.Is(unicode.Sc, r) && !priced:
			priced = true
		case r == ' ' && (signed || priced):
		default:
			return nil, 0
		}
		i += size
	}
	if i == len(text) {
		return nil, 0
	}
	n := scanNumber(text, i)
	value, end = n.value, n.end
	if next := end + 1; n.whole && end < len(text) && text[end] == ' ' && startsNumber(text, next) {
		if part := scanNumber(text, next); part.proper {
			value, end = mixed(value, part.value), part.end
		}
	}
	if negative {
		value = new(big.Rat).Neg(value)
	}
	return value, end
}

// mixed adds a fraction to a whole number that may be negative: -1 1/2 is -1.5.
func mixed(whole, fraction *big.Rat) *big.Rat {
	if whole.Sign() < 0 {
		return new(big.Rat).Sub(whole, fraction)
	}
	return new(big.Rat).Add(whole, fraction)
}

// isNegative reports whether a number that stands after before has a minus sign of its own.
func isNegative(before string) bool {
	r, size := utf8.DecodeLastRuneInString(before)
	if unicode.Is(unicode.Sc, r) {
		before = strings.TrimSuffix(before[:len(before)-size], `\`) // LaTeX writes \$
		r, size = utf8.DecodeLastRuneInString(before)
	}
	if !isSign(r) || r == '+' {
		return false
	}
	before = before[:len(before)-size]
	r, _ = utf8.DecodeLastRuneInString(before)
	return before == "" || !unicode.In(r, unicode.L, unicode.N) && !isSign(r) && !strings.ContainsRune(")]}%", r)
}

func isSign(r rune) bool { return r == '-' || r == '+' || r == '−' }

func isDigit(text string, i int) bool { return i < len(text) && '0' <= text[i] && text[i] <= '9' }

// startsNumber reports whether a number starts at i: at a digit, or at a point with a digit after it and none before.
func startsNumber(text string, i int) bool {
	return isDigit(text, i) || i < len(text) && text[i] == '.' && isDigit(text, i+1) && (i == 0 || !isDigit(text, i-1))
}

// number is an unsigned number in a text.
type number struct {
	value *big.Rat
	end   int
	// whole: it is written in digits and commas alone. proper: it is a fraction below 1.
	whole, proper bool
}

// scanNumber reads the number that starts at i; see startsNumber.
func scanNumber(text string, i int) number {
	begin := i
	i = skipDigits(text, i)
	for group := i - begin; group >= 1 && group <= 3 && i < len(text) && text[i] == ','; group = 3 {
		next := skipDigits(text, i+1)
		if next-(i+1) != 3 {
			break
		}
		i = next
	}
	whole := i
	if i < len(text) && text[i] == '.' && isDigit(text, i+1) {
		i = skipDigits(text, i+1)
	}
	n := number{end: i, whole: i == whole}
	n.value, _ = new(big.Rat).SetString(strings.ReplaceAll(text[begin:i], ",", ""))
	if power, end := scanExponent(text, i); end > i {
		n.value.Mul(n.value, power)
		n.end, n.whole = end, false
	} else if denominator, end := scanDenominator(text, begin, i); n.whole && end > i {
		n.value.Quo(n.value, denominator)
		n.end, n.whole, n.proper = end, false, n.value.Cmp(big.NewRat(1, 1)) < 0
	}
	return n
}

func skipDigits(text string, i int) int {
	for isDigit(text, i) {
		i++
	}
	return i
}

// scanExponent reads an exponent such as e+06 that starts at i and returns the power of ten and where it ends; i if
// there is none.
func scanExponent(text string, i int) (power *big.Rat, end int) {
	if i == len(text) || text[i]|0x20 != 'e' {
		return nil, i
	}
	digits := i + 1
	if digits < len(text) && (text[digits] == '+' || text[digits] == '-') {
		digits++
	}
	end = skipDigits(text, digits)
	exponent := int64(0)
	for _, digit := range text[digits:end] {
		exponent = min(10*exponent+int64(digit-'0'), 1000)
	}
	if r, _ := utf8.DecodeRuneInString(text[end:]); end == digits || exponent > 30 || unicode.IsLetter(r) {
		return nil, i
	}
	power = new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(exponent), nil))
	if text[i+1] == '-' {
		power.Inv(power)
	}
	return power, end
}

// scanDenominator reads the "/2" of a fraction whose numerator is text[begin:i], and returns the denominator and where
// it ends; i if there is none, or if this is part of a chain such as a date.
func scanDenominator(text string, begin, i int) (denominator *big.Rat, end int) {
	if i == len(text) || text[i] != '/' || begin >= 2 && text[begin-1] == '/' && isDigit(text, begin-2) {
		return nil, i
	}
	end = skipDigits(text, i+1)
	if end == i+1 || strings.HasPrefix(text[end:], "/") && isDigit(text, end+1) ||
		strings.HasPrefix(text[end:], ".") && isDigit(text, end+1) {
		return nil, i
	}
	denominator, _ = new(big.Rat).SetString(text[i+1 : end])
	if denominator.Sign() == 0 {
		return nil, i
	}
	return denominator, end
}
