package config

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type nested struct {
	Name  string   `yaml:"name"`
	Seed  uint64   `yaml:"seed"`
	Model shape    `yaml:"model"`
	Parts []part   `yaml:"parts"`
	Words []string `yaml:"words"`
}

type shape struct {
	Layers int `yaml:"layers" min:"1"`
}

type part struct {
	Kind   string  `yaml:"kind" oneof:"copy demo"`
	Tokens int     `yaml:"tokens" min:"1"`
	Share  float64 `yaml:"share" above:"0" max:"1"`
}

const nestedText = `
name: x
model: {layers: 3}
parts:
  - {kind: copy, tokens: 10, share: 1}
  - kind: demo
    share: 0.5
    tokens: 7
words: [a, b]
`

func TestDecodeReadsStructsAndLists(t *testing.T) {
	v := nested{Seed: 4}
	require.NoError(t, Decode("f", []byte(nestedText), &v))
	want := nested{"x", 4, shape{3}, []part{{"copy", 10, 1}, {"demo", 7, 0.5}}, []string{"a", "b"}}
	assert.Equal(t, want, v)
	assert.Empty(t, Check(&v))
	require.NoError(t, Decode("f", nil, &v))
	assert.Equal(t, want, v, "an empty file changes nothing")
}

func TestDecodeNamesFileLineAndKeyOfEveryFault(t *testing.T) {
	text := "name: 3\nmodel:\n  layer: 2\nparts:\n  - kind: copy\n    tokens: many\n    kind: demo\nwords: a\n" +
		"seed: -1\n"
	err := Decode("f.yaml", []byte(text), &nested{})
	require.Error(t, err)
	for _, want := range []string{
		"f.yaml:1: name: got the number 3, want a text",
		`f.yaml:3: model: unknown key "layer"; did you mean layers?`,
		`f.yaml:6: parts.1.tokens: got the text "many", want a whole number`,
		"f.yaml:7: parts.1: kind is given twice, first in line 5",
		`f.yaml:8: words: got the text "a", want a list of texts`,
		"f.yaml:9: seed: got the number -1, want a whole number of at least 0",
	} {
		assert.ErrorContains(t, err, want)
	}
	for text, want := range map[string]string{
		"parts: 3":        "f:1: parts: got the number 3, want a list",
		"model: 3":        "f:1: model: got the number 3, want lines of the form key: value",
		"[a]":             "f:1: got the list [a], want lines",
		"a: b\n---\nc: d": "a second YAML document",
		"a: [":            "f: yaml:",
	} {
		assert.ErrorContains(t, Decode("f", []byte(text), &nested{}), want)
	}
}

func TestOverrideReachesEveryLevel(t *testing.T) {
	v := nested{}
	require.NoError(t, Decode("f", []byte(nestedText), &v))
	changes, err := Override(&v, []string{"model.layers=5", "parts.2.tokens=9", "name=7", "words=[c]", "seed=0"})
	require.NoError(t, err)
	assert.Equal(t, []string{"model.layers: 3 -> 5", "parts.2.tokens: 7 -> 9", `name: x -> "7"`,
		"words: [a, b] -> [c]"}, changes)
	assert.Equal(t, nested{"7", 0, shape{5}, []part{{"copy", 10, 1}, {"demo", 9, 0.5}}, []string{"c"}}, v)
	for override, want := range map[string]string{
		"layers":           "want key=value",
		"model.layer=1":    `unknown key "layer"; did you mean layers?`,
		"parts.3.tokens=1": `got "3", want the number of one of 2 elements`,
		"parts.0.tokens=1": `got "0", want the number`,
		"name.x=1":         `nothing stands below the key before "x"`,
		"seed=a":           `got the text "a", want a whole number of at least 0`,
		"seed=":            `got "", want a whole number`,
	} {
		_, err := Override(&v, []string{override})
		assert.ErrorContains(t, err, want, override)
	}
}

func TestCheckNamesTheKeyOfEveryFault(t *testing.T) {
	v := nested{Parts: []part{{"copy", 1, 1}, {"other", 0, 2}}}
	err := errors.Join(Check(&v)...)
	for _, want := range []string{
		"model.layers: got 0, want at least 1", `parts.2.kind: got "other", want one of copy, demo`,
		"parts.2.tokens: got 0, want at least 1", "parts.2.share: got 2, want at most 1",
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "parts.1")
}
