package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is looked for in the text before anything else is done to it, as tokenizer.json lists
// them under added_tokens.
type addedToken struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
	// SingleWord: not where a word character stands beside it.
	SingleWord bool `json:"single_word"`
	// LStrip and RStrip: the white space on that side belongs to the token.
	LStrip bool `json:"lstrip"`
	RStrip bool `json:"rstrip"`
	// Normalized: looked for after the text was normalised, not before.
	Normalized bool `json:"normalized"`
	// Special: a control token, which text from outside must not be able to write.
	Special bool `json:"special"`
}

// addedSet finds added tokens in text: at each place the longest, from left to right. Its tokens form a trie.
type addedSet struct {
	tokens []addedToken
	// next maps node<<8|byte to the next node; node 0 is the root.
	next map[int]int
	// token maps a node to 1 + the index in tokens of the token that ends there.
	token map[int]int
	first [256]bool
}

func newAddedSet(tokens []addedToken) *addedSet {
	a := &addedSet{tokens: tokens, next: map[int]int{}, token: map[int]int{}}
	nodes := 1
	for i, t := range tokens {
		node := 0
		for _, b := range []byte(t.Content) {
			next, ok := a.next[node<<8|int(b)]
			if !ok {
				next = nodes
				nodes++
				a.next[node<<8|int(b)] = next
			}
			node = next
		}
		a.token[node] = i + 1
		a.first[t.Content[0]] = true
	}
	return a
}

// longestAt returns the longest token that s[i:] begins with, or nil.
func (a *addedSet) longestAt(s string, i int) *addedToken {
	var found *addedToken
	node := 0
	for ; i < len(s); i++ {
		next, ok := a.next[node<<8|int(s[i])]
		if !ok {
			break
		}
		node = next
		if t := a.token[node]; t > 0 {
			found = &a.tokens[t-1]
		}
	}
	return found
}

// split calls emit for each part of s, from left to right: for stretches of text with a nil token, and for tokens. In
// plain text special tokens are not tokens.
func (a *addedSet) split(s string, plain bool, emit func(text string, token *addedToken)) {
	begin := 0 // of the text not yet emitted
	for i := 0; i < len(s) && len(a.tokens) > 0; {
		if !a.first[s[i]] {
			i++
			continue
		}
		token := a.longestAt(s, i)
		if token == nil {
			i++
			continue
		}
		from, to := i, i+len(token.Content)
		i = to
		if plain && token.Special || token.SingleWord && (endsInWord(s[:from]) || beginsWithWord(s[to:])) {
			continue
		}
		if token.LStrip {
			from = max(begin, len(strings.TrimRightFunc(s[:from], unicode.IsSpace)))
		}
		if token.RStrip {
			to = len(s) - len(strings.TrimLeftFunc(s[to:], unicode.IsSpace))
			i = to
		}
		if begin < from {
			emit(s[begin:from], nil)
		}
		emit(s[from:to], token)
		begin = to
	}
	if begin < len(s) {
		emit(s[begin:], nil)
	}
}

func endsInWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWordRune(r)
}

func beginsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWordRune(r)
}

// isWordRune is \w of Unicode regular expressions (UTS 18, annex C).
func isWordRune(r rune) bool {
	return isLetter(r) || r == 0x200c || r == 0x200d || unicode.In(r, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, numbersSince15)
}
