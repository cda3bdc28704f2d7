package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// feed gives a matcher the pieces one by one and returns how many it took until a stop string was complete, or -1.
func feed(m *StopMatcher, pieces ...string) int {
	for i, piece := range pieces {
		if m.Feed([]byte(piece)) {
			return i + 1
		}
	}
	return -1
}

// "stop strings needed token alignment": the text ends exactly at the stop string.
func TestStopStringMayStraddleTokens(t *testing.T) {
	m := NewStopMatcher([]string{"</search>", "</answer>"})
	assert.Equal(t, 4, feed(m, "<search> q ", "</", "sear", "ch>\n", "more"))
	assert.Equal(t, "<search> q </search>", m.Text())
	assert.Equal(t, "</search>", m.Stop())
}

// "the last token may hold more than the stop string": the text is cut, the token's ids are the caller's to keep.
func TestLastTokenMayHoldMoreThanTheStopString(t *testing.T) {
	m := NewStopMatcher([]string{".."})
	assert.Equal(t, 2, feed(m, "wait", "..."))
	assert.Equal(t, "wait..", m.Text())
	assert.Equal(t, "..", m.Stop())
}

// "which stop string fired was lost".
func TestStopNamesTheStringThatFired(t *testing.T) {
	for _, c := range []struct {
		about, text, stop, cut string
		stops                  []string
	}{
		{"the first to end, not the first in the list", "x</answer></search>", "</answer>", "x</answer>",
			[]string{"</search>", "</answer>"}},
		{"the one that ends first, though it begins later", "abcdef", "cd", "abcd", []string{"abcdef", "cd"}},
		{"of two that end together the longer", "a stop", "a stop", "a stop", []string{"stop", "a stop", "p!"}},
		{"of two that end together the longer, listed first", "a stop", "a stop", "a stop", []string{"a stop", "stop"}},
		{"a prefix ends first", "</search>", "</s", "</s", []string{"</search>", "</s"}},
		{"characters of several bytes", "né日本", "日", "né日", []string{"日"}},
		{"repeated beginnings", "<</search>", "</search>", "<</search>", []string{"</search>"}},
	} {
		whole, bytewise := NewStopMatcher(c.stops), NewStopMatcher(c.stops)
		require.Equal(t, 1, feed(whole, c.text), c.about)
		for i := range len(c.text) {
			bytewise.Feed([]byte{c.text[i]})
		}
		for _, m := range []*StopMatcher{whole, bytewise} {
			assert.Equal(t, c.stop, m.Stop(), c.about)
			assert.Equal(t, c.cut, m.Text(), c.about)
		}
	}
}

func TestWithoutAStopStringTextIsWhole(t *testing.T) {
	for _, stops := range [][]string{nil, {""}, {"</search>"}} {
		m := NewStopMatcher(stops)
		assert.Equal(t, -1, feed(m, "a </sea", "rch", " b", "\xff"))
		assert.Empty(t, m.Stop())
		assert.Equal(t, "a </search b\ufffd", m.Text())
	}
}

func TestNothingIsTakenAfterTheStop(t *testing.T) {
	m := NewStopMatcher([]string{"!"})
	require.Equal(t, 1, feed(m, "a!b"))
	assert.True(t, m.Feed([]byte("c!")))
	assert.Equal(t, "a!", m.Text())
	m.Reset()
	assert.Empty(t, m.Stop())
	assert.Empty(t, m.Text())
	assert.Equal(t, -1, feed(m, "b"))
	assert.Equal(t, 1, feed(m, "c!"))
	assert.Equal(t, "bc!", m.Text())
}

// However a text is cut into tokens, the matcher finds what a search of the whole text after each byte finds.
func TestStopMatcherAgreesWithASearchOfTheWholeText(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 14))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab<"[random.IntN(3)]
		}
		return string(b)
	}
	fired := 0
	for range 3000 {
		stops := make([]string, 1+random.IntN(3))
		for i := range stops {
			stops[i] = letters(1 + random.IntN(5))
		}
		text := letters(random.IntN(12))
		wantStop, wantText := "", text
		for end := 0; end <= len(text) && wantStop == ""; end++ {
			for _, s := range stops {
				if strings.HasSuffix(text[:end], s) && len(s) > len(wantStop) {
					wantStop, wantText = s, text[:end]
				}
			}
		}
		m := NewStopMatcher(stops)
		for rest := text; rest != ""; {
			n := 1 + random.IntN(len(rest))
			m.Feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		require.Equal(t, wantStop, m.Stop(), "%q in %q", stops, text)
		require.Equal(t, wantText, m.Text(), "%q in %q", stops, text)
		if wantStop != "" {
			fired++
		}
	}
	assert.Greater(t, fired, 1000)
}

// Each stop string fires on a real tokenizer's own tokens, wherever they cut it.
func TestStopStringsOfATokenizer(t *testing.T) {
	b := tinyNamed(t, "qwen2")
	const text = "think. <search> who wrote it </search>\n<information>"
	m := NewStopMatcher([]string{"</search>", "</answer>"})
	taken := 0
	for _, id := range b.Encode(text) {
		taken++
		if m.Feed(b.Bytes(id)) {
			break
		}
	}
	assert.Equal(t, "think. <search> who wrote it </search>", m.Text())
	assert.Less(t, taken, len(b.Encode(text)))
}
