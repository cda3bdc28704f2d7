package agent

import (
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// Observation returns what the policy is shown of a search result: a line "Doc 1(Title: …) text" for each passage, as
// in Search-R1. The title is the first line of the contents as it stands there, quotes included; contents of one line
// are all title.
func Observation(passages []episode.Passage) string {
	var out strings.Builder
	out.WriteString("\n\n" + infoOpen)
	if len(passages) == 0 {
		out.WriteString("No results found.")
	}
	for i, passage := range passages {
		title, text, ok := strings.Cut(strings.TrimSpace(passage.Contents), "\n")
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "Doc %d(Title: %s)", i+1, title)
		if ok {
			out.WriteString(" " + strings.TrimSpace(text))
		}
	}
	out.WriteString(infoClose + "\n\n")
	return out.String()
}

// shown is a search result as it fits into an episode.
type shown struct {
	text     string
	ids      []int
	passages []episode.Passage
}

// fit returns the longest observation of at most limit tokens: as many whole passages from the front as fit, or, if not
// even the first does, that one cut after a word (after a character, where a script has no spaces). ok is false if
// there is no room for anything.
func (r *Rollouter) fit(passages []episode.Passage, limit int) (s shown, ok bool) {
	try := func(passages []episode.Passage) bool {
		text := Observation(passages)
		ids := r.tok.EncodePlain(text)
		if len(ids) > limit {
			return false
		}
		s = shown{text, ids, passages}
		return true
	}
	if len(passages) == 0 {
		ok = try(nil)
		return s, ok
	}
	if n := longest(len(passages), func(n int) bool { return try(passages[:n]) }); n > 0 {
		try(passages[:n])
		return s, true
	}
	first := passages[0]
	for _, cuts := range [][]int{wordEnds(first.Contents), runeEnds(first.Contents)} {
		cut := func(n int) []episode.Passage {
			short := first
			short.Contents = first.Contents[:cuts[n-1]]
			return []episode.Passage{short}
		}
		if n := longest(len(cuts), func(n int) bool { return try(cut(n)) }); n > 0 {
			try(cut(n))
			return s, true
		}
	}
	return shown{}, false
}

// longest returns the largest n in 1..most for which fits(n) holds, taking for granted that shorter ones fit as well,
// or 0.
func longest(most int, fits func(n int) bool) int {
	if most > 0 && fits(most) {
		return most
	}
	return sort.Search(most, func(n int) bool { return !fits(n + 1) })
}

// wordEnds returns the byte offsets at which words of text end.
func wordEnds(text string) []int {
	var ends []int
	inWord := false
	for i, c := range text {
		if space := unicode.IsSpace(c); space && inWord {
			ends = append(ends, i)
			inWord = false
		} else if !space {
			inWord = true
		}
	}
	if inWord {
		ends = append(ends, len(text))
	}
	return ends
}

// runeEnds returns the byte offsets at which the characters of text end.
func runeEnds(text string) []int {
	ends := make([]int, 0, utf8.RuneCountInString(text))
	for i, c := range text {
		size := utf8.RuneLen(c)
		if c == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(text[i:])
		}
		ends = append(ends, i+size)
	}
	return ends
}
