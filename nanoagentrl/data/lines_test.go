package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCorpusReaderReadsWhatReadCorpusReads(t *testing.T) {
	var text strings.Builder
	text.WriteString("\xef\xbb\xbf")
	for i := range 50 {
		fmt.Fprintf(&text, `{"id": "%d", "contents": "%s"}`, i, strings.Repeat("é", i))
		text.WriteString([]string{"\n", "\r\n", "\n\n"}[i%3])
	}
	text.WriteString(`{"id": "last", "contents": ""}`)
	path := write(t, "corpus.jsonl", text.String())
	want, err := ReadCorpus(path)
	require.NoError(t, err)
	require.Len(t, want, 51)
	for _, most := range [][2]int{{1, 1 << 20}, {7, 1 << 20}, {1000, 1 << 20}, {1000, 100}} {
		reader, err := OpenCorpus(path)
		require.NoError(t, err)
		var got []Passage
		var raw []byte
		for {
			lines, err := reader.Next(most[0], most[1])
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.LessOrEqual(t, lines.Count, most[0])
			require.EqualValues(t, len(raw), lines.Begin)
			require.Equal(t, bytes.Count(raw, []byte("\n"))+1, lines.First)
			raw = append(raw, lines.Text...)
			require.EqualValues(t, len(raw), lines.End)
			passages, lineOf, err := lines.Passages()
			require.NoError(t, err)
			require.Len(t, lineOf, len(passages))
			got = append(got, passages...)
		}
		assert.Equal(t, want, got)
		assert.Equal(t, text.String(), string(raw))
		require.NoError(t, reader.Close())
	}
}

func TestCorpusReaderGoesOnInTheMiddle(t *testing.T) {
	path := write(t, "corpus.jsonl", "{\"id\": \"a\", \"contents\": \"x\"}\n\n{\"id\": \"b\", \"contents\": \"y\"}\n{oops\n")
	reader, err := OpenCorpus(path)
	require.NoError(t, err)
	defer reader.Close()
	first, err := reader.Next(2, 1<<20)
	require.NoError(t, err)
	again, err := OpenCorpus(path)
	require.NoError(t, err)
	defer again.Close()
	var passed bytes.Buffer
	require.NoError(t, again.SkipTo(first.End, 2, &passed))
	assert.Equal(t, first.Text, passed.Bytes())
	lines, err := again.Next(1, 1<<20)
	require.NoError(t, err)
	passages, lineOf, err := lines.Passages()
	require.NoError(t, err)
	assert.Equal(t, "b", passages[0].ID)
	assert.Equal(t, []int{3}, lineOf)
	lines, err = again.Next(1, 1<<20)
	require.NoError(t, err)
	_, _, err = lines.Passages()
	assert.ErrorContains(t, err, path+":4: not a JSON object")
	require.NoError(t, again.Rewind())
	lines, err = again.Next(1, 1<<20)
	require.NoError(t, err)
	assert.Equal(t, 1, lines.First)
	require.NoError(t, again.Rewind())
	assert.ErrorContains(t, again.SkipTo(1000, 9, io.Discard), path)
}

// Whatever a file holds, it is a corpus, with each id once and all text valid, or an error that names file and line.
func FuzzReadCorpus(f *testing.F) {
	for _, seed := range []string{
		`{"id": "a", "contents": "\"T\"\nx"}` + "\n" + `{"id": 7, "contents": ""}`, "\xef\xbb\xbf{\"id\": \"a\", \"contents\": \"é\"}\r\n\r\n",
		`{"id": "a", "contents": null}`, `{"contents": "x"}`, "{\"id\": \"a\", \"contents\": \"\xff\"}", "[\n", "null", "",
		`{"id": "a", "contents": "x"}` + "\n" + `{"id": "a", "contents": "y"}`, `{"ID": {}, "contents": "\ud800"}`, "\xff\xfe",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		passages, err := readCorpus(newLineReader("corpus.jsonl", bytes.NewReader(text)))
		if err != nil {
			require.Contains(t, err.Error(), "corpus.jsonl")
			require.Nil(t, passages)
			return
		}
		seen := map[string]bool{}
		for _, p := range passages {
			require.NotEmpty(t, p.ID)
			require.False(t, seen[p.ID])
			seen[p.ID] = true
		}
		lines, err := newLineReader("corpus.jsonl", bytes.NewReader(text)).next(len(text)+1, len(text)+1)
		require.NoError(t, err)
		again, _, err := lines.Passages()
		require.NoError(t, err)
		require.Equal(t, passages, again)
	})
}
