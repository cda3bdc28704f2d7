package data

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTinyWorld(t *testing.T) {
	corpus, questions := TinyWorld(1, 24)
	require.Len(t, corpus, 24)
	require.Len(t, questions, 48)
	titles := map[string]bool{}
	for _, p := range corpus {
		titles[p.Title()] = true
	}
	assert.Len(t, titles, 24)
	for i, q := range questions {
		gold := corpus[i/2]
		assert.Equal(t, []string{gold.ID}, q.GoldPassages)
		assert.Contains(t, q.Text, gold.Title())
		assert.Contains(t, gold.Text(), q.Answers[0])
		assert.Equal(t, "tiny_world", q.Source)
	}

	again, _ := TinyWorld(1, 24)
	other, _ := TinyWorld(2, 24)
	assert.Equal(t, corpus, again)
	assert.NotEqual(t, corpus, other)
	most, _ := TinyWorld(1, 1e6)
	assert.Len(t, most, TinyPeople)
	none, _ := TinyWorld(1, -1)
	assert.Empty(t, none)
}

func TestTinyMathSumsAreRight(t *testing.T) {
	questions := TinyMath(1, 60)
	require.Len(t, questions, 60)
	texts := map[string]bool{}
	for _, q := range questions {
		texts[q.Text] = true
		assert.Equal(t, "gsm8k", q.Source)
		var name, thing, verb string
		var have, change int
		_, err := fmt.Sscanf(q.Text, "%s has %d %s and %s %d", &name, &have, &thing, &verb, &change)
		require.NoError(t, err, q.Text)
		if verb == "loses" {
			change = -change
		}
		assert.Equal(t, []string{fmt.Sprint(have + change)}, q.Answers, q.Text)
	}
	assert.Len(t, texts, 60)
	assert.Equal(t, questions, TinyMath(1, 60))
	assert.NotEqual(t, questions, TinyMath(2, 60))
	assert.Len(t, TinyMath(3, 1e9), 5000)
}

func TestTinyVocabularyCoversAllWords(t *testing.T) {
	vocabulary := map[string]bool{}
	for _, word := range TinyVocabulary() {
		assert.False(t, vocabulary[word], "%q twice", word)
		vocabulary[word] = true
	}
	corpus, questions := TinyWorld(5, TinyPeople)
	var texts []string
	for _, p := range corpus {
		texts = append(texts, strings.ReplaceAll(p.Contents, `"`, ` " `))
	}
	for _, q := range append(questions, TinyMath(5, 5000)...) {
		texts = append(append(texts, q.Text), q.Answers...)
	}
	used := map[string]bool{}
	for _, word := range strings.Fields(strings.Join(texts, " ")) {
		assert.True(t, vocabulary[word], "%q is not in the vocabulary", word)
		used[word] = true
	}
	assert.Len(t, used, len(vocabulary), "words that are never used")
}
