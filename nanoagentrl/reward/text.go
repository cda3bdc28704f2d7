// Package reward scores episodes: exact match and its lenient relatives for question answering, number equality for
// grade-school maths, and a format part. Every part is kept by its name; the reward is their weighted sum.
package reward

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

// Normalize is the answer normalisation of the official SQuAD scorer (Rajpurkar et al. 2016), which Search-R1 and most
// others use: lower case, no ASCII punctuation, no articles (a, an, the), single spaces. Only ASCII punctuation goes:
// "1939–1945" with a dash is not "1939-1945" with a hyphen. Words are bounded as by Python's \b.
func Normalize(text string) string {
	text = cases.Lower(language.Und).String(text) // as Python does, final sigma included
	text = strings.Map(func(r rune) rune {
		if isASCIIPunctuation(r) {
			return -1
		}
		return r
	}, text)
	return strings.Join(strings.FieldsFunc(cutArticles(text), isPythonSpace), " ")
}

// NormalizeFolded is Normalize after Unicode folding: compatibility forms, accents and letter case are levelled (NFKD,
// marks dropped, full case folding), and punctuation of all scripts goes, so that dashes, curly quotes and accents make
// no difference. Scores by it are not comparable with published ones.
func NormalizeFolded(text string) string {
	text = cases.Fold().String(norm.NFKD.String(text))
	text = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.M, unicode.P) {
			return -1
		}
		return r
	}, text)
	return Normalize(norm.NFKC.String(text))
}

func isASCIIPunctuation(r rune) bool {
	return r < utf8.RuneSelf && (unicode.IsPunct(r) || unicode.IsSymbol(r))
}

// cutArticles puts a space in the place of each word a, an or the.
func cutArticles(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		word := len(text)
		if i := strings.IndexFunc(text, func(r rune) bool { return !isWordRune(r) }); i >= 0 {
			word = i
		}
		switch text[:word] {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(text[:word])
		}
		gap := len(text)
		if i := strings.IndexFunc(text[word:], isWordRune); i >= 0 {
			gap = word + i
		}
		out.WriteString(text[word:gap])
		text = text[gap:]
	}
	return out.String()
}

// isWordRune is Python's \w, underscore aside, which is punctuation and gone by now.
func isWordRune(r rune) bool { return unicode.In(r, unicode.L, unicode.N) }

// isPythonSpace is Python's str.isspace, which knows four control characters more than Unicode.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || '\x1c' <= r && r <= '\x1f' }

// ExactMatch returns 1 if the answer equals one of the gold answers after Normalize, else 0. An answer of which nothing
// is left, such as "the" or "...", matches only a gold answer with the same lower-cased text.
func ExactMatch(answer string, golds []string) float64 { return exactMatch(answer, golds, Normalize) }

// ExactMatchFolded is ExactMatch after NormalizeFolded.
func ExactMatchFolded(answer string, golds []string) float64 {
	return exactMatch(answer, golds, NormalizeFolded)
}

func exactMatch(answer string, golds []string, normalize func(string) string) float64 {
	got := normalize(answer)
	for _, gold := range golds {
		if want := normalize(gold); got == want && (want != "" || bare(answer) == bare(gold)) {
			return 1
		}
	}
	return 0
}

func bare(text string) string { return strings.ToLower(strings.TrimSpace(text)) }

// Contains returns 1 if the words of one of the gold answers stand in the text one after the other, both after
// Normalize, else 0. Search-R1's sub-EM takes any substring instead, which finds "no" in "know" and "12" in "1912";
// so Contains gives slightly lower figures. A gold answer of which nothing is left is never contained.
func Contains(text string, golds []string) float64 {
	padded := " " + Normalize(text) + " "
	for _, gold := range golds {
		if want := Normalize(gold); want != "" && strings.Contains(padded, " "+want+" ") {
			return 1
		}
	}
	return 0
}

// F1 returns the best harmonic mean, over the gold answers, of precision and recall of the answer's words after
// Normalize, words counted as often as they occur (the SQuAD scorer). If nothing is left of either, it is ExactMatch.
func F1(answer string, golds []string) float64 {
	best := ExactMatch(answer, golds)
	got := strings.Fields(Normalize(answer))
	for _, gold := range golds {
		want := strings.Fields(Normalize(gold))
		left := map[string]int{}
		for _, word := range want {
			left[word]++
		}
		common := 0
		for _, word := range got {
			if left[word] > 0 {
				left[word]--
				common++
			}
		}
		if common > 0 {
			best = max(best, 2*float64(common)/float64(len(got)+len(want)))
		}
	}
	return best
}
