package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// write puts text into a file of a fresh folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestReadCorpus(t *testing.T) {
	path := write(t, "corpus.jsonl", "\xef\xbb\xbf"+`{"id": "a", "contents": "\"Ada\"\nAda was born."}`+"\r\n\r\n"+
		`{"contents": "", "id": 7, "extra": [1]}`+"\n"+`{"id": "c", "contents": "órgãos ☕"}`)
	passages, err := ReadCorpus(path)
	require.NoError(t, err)
	assert.Equal(t, []Passage{
		{ID: "a", Contents: "\"Ada\"\nAda was born."}, {ID: "7", Contents: ""}, {ID: "c", Contents: "órgãos ☕"},
	}, passages)

	fromFolder, err := ReadCorpus(filepath.Dir(path))
	require.NoError(t, err)
	assert.Equal(t, passages, fromFolder)
}

func TestCorpusFaultNamesFileAndLine(t *testing.T) {
	const good = `{"id": "a", "contents": "x"}` + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"bad line":             {good + "{oops\n", ":2: not a JSON object"},
		"cut line":             {good + `{"id": "b", "contents": "x`, ":2: not a JSON object"},
		"two objects":          {good + `{"id": "b", "contents": "x"} {}`, ":2: not a JSON object"},
		"a list":               {"[\n", ":1: not a JSON object"},
		"a whole list":         {"[1]\n", ":1: a JSON array where an object should be"},
		"null":                 {"null\n", ":1: null where a JSON object should be"},
		"missing id":           {good + "\n" + `{"contents": "x"}`, `:3: no "id"`},
		"null id":              {`{"id": null, "contents": "x"}`, `:1: no "id"`},
		"empty id":             {`{"id": "", "contents": "x"}`, `:1: "id" is empty`},
		"id of another type":   {`{"id": [1], "contents": "x"}`, `:1: "id" is a list, not a string`},
		"missing contents":     {`{"id": "b", "text": "x"}`, `:1: no "contents" (id "b")`},
		"null contents":        {good + `{"id": "b", "contents": null}`, `:2: "contents" is null, not a string (id "b")`},
		"contents of a number": {good + `{"id": "b", "contents": 3}`, `:2: "contents" is a number, not a string`},
		"duplicate id":         {good + `{"id": "b", "contents": ""}` + "\n" + good, `:3: id "a" again, first in line 1`},
		"number equal to id":   {`{"id": 1, "contents": ""}` + "\n" + `{"id": "1", "contents": ""}`, `:2: id "1" again`},
		"not UTF-8":            {good + "{\"id\": \"b\", \"contents\": \"\xff\"}", ":2: not valid UTF-8"},
		"UTF-16":               {"\xff\xfe{\x00", ":1: the file is UTF-16"},
		"gzip":                 {"\x1f\x8b\x08\x00", ":1: the file is packed with gzip; unpack it first"},
		"Parquet":              {"PAR1\x15", ":1: the file is Parquet; want JSON lines here"},
		"over-long line":       {good + strings.Repeat("x", MaxLine+3), ":2: line longer than 16 MiB"},
		"nothing":              {"", " holds no passages"},
		"only blank lines":     {"\n\r\n  \n", " holds no passages"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "corpus.jsonl", c.text)
			passages, err := ReadCorpus(path)
			require.Error(t, err)
			assert.Nil(t, passages)
			assert.Contains(t, err.Error(), path+c.want)
		})
	}
}

func TestLineOfExactlyTheLimitIsRead(t *testing.T) {
	line := `{"id": "b", "contents": "` + strings.Repeat("x", MaxLine-27) + `"}`
	require.Len(t, line, MaxLine)
	for _, end := range []string{"", "\n", "\r\n"} {
		passages, err := ReadCorpus(write(t, "corpus.jsonl", line+end))
		require.NoError(t, err)
		assert.Len(t, passages[0].Contents, MaxLine-27)
	}
}

func TestMissingCorpusIsNamed(t *testing.T) {
	_, err := ReadCorpus(filepath.Join(t.TempDir(), "none.jsonl"))
	assert.ErrorContains(t, err, "none.jsonl")
	path := write(t, "qa.jsonl", "")
	_, err = ReadCorpus(filepath.Dir(path))
	assert.ErrorContains(t, err, "has no corpus.jsonl; it holds: qa.jsonl")
}

func TestSplitContents(t *testing.T) {
	for _, c := range []struct{ contents, title, text string }{
		{"\"Ada Hill\"\nAda Hill was born.\nIn Rome.", "Ada Hill", "Ada Hill was born.\nIn Rome."},
		{"\"John \"Hannibal\" Smith\"\ntext", "John \"Hannibal\" Smith", "text"},
		{"Fossil\ntext", "Fossil", "text"},
		{"\"Uncle\" and more\ntext", "\"Uncle\" and more", "text"},
		{"\"Ada\"\r\ntext", "Ada", "text"},
		{"\"Ada\"", "Ada", ""},
		{"\"\"\ntext", "", "text"},
		{"\"", "", "\""},
		{"one line of text", "", "one line of text"},
		{"", "", ""},
	} {
		p := Passage{Contents: c.contents}
		assert.Equal(t, c.title, p.Title(), "%q", c.contents)
		assert.Equal(t, c.text, p.Text(), "%q", c.contents)
	}
}

// All corpora and question files of the shared data must read, with every gold passage in its corpus.
func TestReadsAllSharedData(t *testing.T) {
	root := testenv.Shared(t, "data")
	passages := map[string]int{
		"xquad_en": 240, "squad": 3075, "hotpotqa": 6710, "2wikimultihopqa": 6119, "musique": 5230, "wiki18_pool": 8308,
		"search_r1_example": 10,
	}
	questions := map[string]int{
		"xquad_en": 953, "squad": 11829, "hotpotqa": 160, "2wikimultihopqa": 800, "musique": 726, "wiki18_pool": 1408,
		"nq_open": 2888, "popqa": 802, "triviaqa": 800, "bamboogle": 100, "multihop_eval_questions": 800,
		"hotpotqa_dev_questions": 3200, "search_r1_example": 50, "gsm8k": 7473,
	}
	corpusIDs := map[string]map[string]bool{}
	for name, want := range passages {
		corpus, err := ReadCorpus(filepath.Join(root, name))
		require.NoError(t, err)
		assert.Len(t, corpus, want, name)
		corpusIDs[name] = map[string]bool{}
		for i, p := range corpus {
			assert.Equal(t, fmt.Sprint(i), p.ID, name)
			assert.NotEmpty(t, p.Title(), "%s %s", name, p.ID)
			assert.NotEmpty(t, p.Text(), "%s %s", name, p.ID)
			corpusIDs[name][p.ID] = true
		}
	}
	for name, want := range questions {
		list, err := ReadQuestions(filepath.Join(root, name), QuestionOptions{})
		require.NoError(t, err)
		assert.Len(t, list, want, name)
		for _, q := range list {
			for _, gold := range q.GoldPassages {
				assert.True(t, corpusIDs[name][gold], "%s %s: %s", name, q.ID, gold)
			}
		}
	}
	test, err := ReadQuestions(filepath.Join(root, "gsm8k"), QuestionOptions{Split: "test"})
	require.NoError(t, err)
	assert.Len(t, test, 1019)
	assert.Equal(t, "gsm8k", test[0].Source)
	assert.Equal(t, "gsm8k_test_0", test[0].ID)
}
