package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/agent/agenttest"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

var (
	lake  = agenttest.Passage("1", "Lake", "A lake is water.")
	river = agenttest.Passage("2", "River", "A river runs.")
)

func TestObservationLayout(t *testing.T) {
	assert.Equal(t, "\n\n<information>Doc 1(Title: \"Lake\") A lake is water.\n"+
		"Doc 2(Title: \"River\") A river runs.</information>\n\n", Observation([]episode.Passage{lake, river}))
	assert.Equal(t, "\n\n<information>No results found.</information>\n\n", Observation(nil))
	assert.Equal(t, "\n\n<information>Doc 1(Title: all title)</information>\n\n",
		Observation([]episode.Passage{{Contents: "all title\n"}}))
	assert.Contains(t, Observation([]episode.Passage{{Contents: "T\na\nb\n"}}), "Doc 1(Title: T) a\nb</information>")
}

func TestObservationIsCutOnWholePassages(t *testing.T) {
	r := &Rollouter{tok: agenttest.NewTokenizer()}
	passages := []episode.Passage{lake, river, lake}
	for n := 1; n <= 3; n++ {
		text := Observation(passages[:n])
		for _, limit := range []int{len(text), len(text) + 5} {
			s, ok := r.fit(passages, limit)
			require.True(t, ok)
			assert.Equal(t, passages[:n], s.passages)
			assert.Equal(t, text, s.text)
			assert.Equal(t, r.tok.EncodePlain(text), s.ids)
		}
	}
}

func TestFirstPassageIsCutAfterAWordWhenItAloneIsTooLong(t *testing.T) {
	r := &Rollouter{tok: agenttest.NewTokenizer()}
	full := len(Observation([]episode.Passage{lake}))
	s, ok := r.fit([]episode.Passage{lake, river}, full-1)
	require.True(t, ok)
	require.Len(t, s.passages, 1)
	assert.Equal(t, "\"Lake\"\nA lake is", s.passages[0].Contents)
	assert.Equal(t, "1", s.passages[0].ID)
	assert.Contains(t, s.text, "A lake is</information>")
	assert.Equal(t, "\"Lake\"\nA lake is water.", lake.Contents, "the search engine's passage is untouched")

	frame := len(Observation([]episode.Passage{{Contents: ""}}))
	s, ok = r.fit([]episode.Passage{lake}, frame+2)
	require.True(t, ok, "no word fits, so characters do")
	assert.Equal(t, `"L`, s.passages[0].Contents)
	_, ok = r.fit([]episode.Passage{lake}, frame)
	assert.False(t, ok)
}

func TestTextWithoutSpacesIsCutAfterACharacter(t *testing.T) {
	r := &Rollouter{tok: agenttest.NewTokenizer()}
	passage := episode.Passage{Contents: strings.Repeat("東京", 100)}
	frame := len(Observation([]episode.Passage{{Contents: ""}}))
	s, ok := r.fit([]episode.Passage{passage}, frame+11)
	require.True(t, ok)
	assert.Equal(t, "東京東", s.passages[0].Contents, "11 bytes hold 3 whole characters")
}

func TestEmptyResultNeedsRoomToo(t *testing.T) {
	r := &Rollouter{tok: agenttest.NewTokenizer()}
	n := len(Observation(nil))
	s, ok := r.fit(nil, n)
	require.True(t, ok)
	assert.Equal(t, Observation(nil), s.text)
	_, ok = r.fit(nil, n-1)
	assert.False(t, ok)
}

func TestRuneAndWordEndsOfBrokenText(t *testing.T) {
	assert.Equal(t, []int{1, 2, 4, 7}, runeEnds("a\xffé\uFFFD"))
	assert.Equal(t, []int{2, 5}, wordEnds("ab cd "))
	assert.Equal(t, []int{1}, wordEnds("x"))
	assert.Empty(t, wordEnds(" \n"))
}
