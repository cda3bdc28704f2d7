package data

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

func TestRowLayouts(t *testing.T) {
	user := func(content string) []tokenizer.Message { return []tokenizer.Message{{Role: "user", Content: content}} }
	for name, c := range map[string]struct {
		row  string
		want Question
	}{
		"own layout": {
			`{"id": "q1", "question": "who?", "golden_answers": ["Ada", "A"], "gold_passage_id": "9",
				"gold_passage_ids": ["9", 5], "type": "bridge", "source": "train"}`,
			Question{ID: "q1", Text: "who?", Answers: []string{"Ada", "A"}, Source: "nq", GoldPassages: []string{"9", "5"},
				Kind: "bridge"},
		},
		"no gold passages": {
			`{"id": 3, "question": "when?", "golden_answers": [1999], "gold_passage_id": null, "gold_passage_ids": []}`,
			Question{ID: "3", Text: "when?", Answers: []string{"1999"}, Source: "nq"},
		},
		"Search-R1": {
			`{"id": "test_1", "question": "who?", "golden_answers": ["Ada"], "data_source": "hotpotqa", "ability": "x",
				"prompt": [{"content": "Answer: who?\n", "role": "user"}],
				"reward_model": {"ground_truth": {"target": ["Ada"]}, "style": "rule"}, "extra_info": {"index": 1}}`,
			Question{ID: "test_1", Text: "who?", Answers: []string{"Ada"}, Source: "hotpotqa",
				Prompt: user("Answer: who?\n")},
		},
		"verl's GSM8K": {
			`{"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "Let us think: how many?"}],
				"reward_model": {"style": "rule", "ground_truth": "72"}, "extra_info": {"question": "how many?"}}`,
			Question{ID: "openai/gsm8k_rows_0", Text: "how many?", Answers: []string{"72"}, Source: "openai/gsm8k",
				Prompt: user("Let us think: how many?")},
		},
		"the prompt as the only question": {
			`{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "who?"}],
				"reward_model": {"ground_truth": {"target": "Ada"}}}`,
			Question{ID: "nq_rows_0", Text: "who?", Answers: []string{"Ada"}, Source: "nq",
				Prompt: []tokenizer.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "who?"}}},
		},
		"GSM8K": {
			`{"question": "how many?", "answer": "48/2 = <<48/2=24>>24 #### no\n#### 1,072 "}`,
			Question{ID: "gsm8k_rows_0", Text: "how many?", Answers: []string{"1,072"}, Source: "gsm8k"},
		},
		"NQ-open": {
			`{"question": "who?", "answer": ["Ada", "Ben"]}`,
			Question{ID: "nq_rows_0", Text: "who?", Answers: []string{"Ada", "Ben"}, Source: "nq"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "nq")
			require.NoError(t, os.Mkdir(folder, 0o755))
			path := filepath.Join(folder, "rows.jsonl")
			line := []byte(c.row)
			for i, b := range line { // one line
				if b == '\n' || b == '\t' {
					line[i] = ' '
				}
			}
			require.NoError(t, os.WriteFile(path, line, 0o644))
			got, err := ReadQuestions(path, QuestionOptions{})
			require.NoError(t, err)
			assert.Equal(t, []Question{c.want}, got)
		})
	}
}

func TestQuestionFaultNamesFileAndLine(t *testing.T) {
	const good = `{"id": "a", "question": "x", "golden_answers": ["y"]}` + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"bad line":            {good + "{oops\n", ":2: not a JSON object"},
		"no question":         {good + `{"golden_answers": ["y"]}`, `:2: no "question"`},
		"blank question":      {`{"question": " ", "golden_answers": ["y"]}`, `:1: no "question"`},
		"question of a list":  {`{"question": ["x"], "golden_answers": ["y"]}`, `:1: "question" is a list, not a string`},
		"no answers":          {`{"question": "x"}`, `:1: no answers: need "golden_answers"`},
		"empty answers":       {`{"question": "x", "golden_answers": []}`, `:1: no answers`},
		"blank answer":        {`{"question": "x", "golden_answers": ["y", " "]}`, `:1: answer 1 is empty`},
		"null answer":         {`{"question": "x", "golden_answers": [null]}`, `:1: "golden_answers[0]" is null`},
		"answers as object":   {`{"question": "x", "golden_answers": {}}`, `:1: "golden_answers" is an object, not a string`},
		"prompt as string":    {`{"question": "x", "golden_answers": ["y"], "prompt": "p"}`, `:1: "prompt" is not a list`},
		"prompt without role": {`{"golden_answers": ["y"], "prompt": [{"content": "p"}]}`, `:1: "prompt"[0] lacks "role"`},
		"no ####":             {`{"question": "x", "answer": "72"}`, `:1: "answer" has no "#### number"`},
		"no number":           {`{"question": "x", "answer": "so\n#### many"}`, `:1: "answer" has "many" after its "####"`},
		"duplicate id":        {good + "\n" + good, `:3: id "a" again, first in line 1`},
		"reward_model":        {`{"question": "x", "reward_model": "y"}`, `:1: "reward_model" is a string, not an object`},
		"source of a number":  {`{"question": "x", "answer": "#### 1", "data_source": 1}`, `:1: "data_source" is a number`},
		"nothing":             {"", ` holds no questions`},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "qa.jsonl", c.text)
			questions, err := ReadQuestions(path, QuestionOptions{})
			require.Error(t, err)
			assert.Nil(t, questions)
			assert.Contains(t, err.Error(), path+c.want)
		})
	}
}

func TestSplitPicksTheFile(t *testing.T) {
	row := func(answer string) []byte { return []byte(`{"question": "x", "golden_answers": ["` + answer + `"]}`) }
	folder := filepath.Join(t.TempDir(), "set")
	require.NoError(t, os.Mkdir(folder, 0o755))
	put := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(folder, name), row(name), 0o644)) }
	read := func(split string) (string, error) {
		questions, err := ReadQuestions(folder, QuestionOptions{Split: split})
		if err != nil {
			return "", err
		}
		assert.Equal(t, "set", questions[0].Source)
		return questions[0].Answers[0], nil
	}

	_, err := read("")
	assert.ErrorContains(t, err, "it holds: no files")
	put("rows.jsonl")
	put("qa.jsonl")
	put("corpus.jsonl")
	for _, split := range []string{"", "train"} {
		got, err := read(split)
		require.NoError(t, err)
		assert.Equal(t, "qa.jsonl", got)
	}
	// A test split must not fall back to the training questions.
	_, err = read("test")
	assert.ErrorContains(t, err, "has no test.jsonl or test.parquet; it holds: corpus.jsonl, qa.jsonl, rows.jsonl")
	put("train.jsonl")
	put("test.jsonl")
	for split, want := range map[string]string{"": "qa.jsonl", "train": "train.jsonl", "test": "test.jsonl"} {
		got, err := read(split)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestSourceOption(t *testing.T) {
	path := write(t, "qa.jsonl", `{"question": "x", "answer": "#### 1"}
		{"question": "x", "golden_answers": ["y"], "data_source": "nq"}`)
	questions, err := ReadQuestions(path, QuestionOptions{Source: "mine"})
	require.NoError(t, err)
	assert.Equal(t, "mine", questions[0].Source)
	assert.Equal(t, "nq", questions[1].Source, "the row's own source wins")
}

// parquetRow is a Search-R1 row as pyarrow writes it.
type parquetRow struct {
	ID            string   `parquet:"id,optional"`
	Question      string   `parquet:"question,optional"`
	GoldenAnswers []string `parquet:"golden_answers,list"`
	DataSource    string   `parquet:"data_source,optional"`
	Prompt        []struct {
		Content string `parquet:"content,optional"`
		Role    string `parquet:"role,optional"`
	} `parquet:"prompt,list"`
	RewardModel struct {
		GroundTruth struct {
			Target []string `parquet:"target,list"`
		} `parquet:"ground_truth,optional"`
	} `parquet:"reward_model,optional"`
}

func writeParquet(t *testing.T, rows ...parquetRow) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.parquet")
	require.NoError(t, parquet.WriteFile(path, rows))
	return path
}

func sampleRow(id string) parquetRow {
	row := parquetRow{ID: id, Question: "who?", DataSource: "nq", GoldenAnswers: []string{"Ada", "latitude 90° North"}}
	row.Prompt = append(row.Prompt, struct {
		Content string `parquet:"content,optional"`
		Role    string `parquet:"role,optional"`
	}{"Answer: who?", "user"})
	row.RewardModel.GroundTruth.Target = row.GoldenAnswers
	return row
}

func TestReadParquet(t *testing.T) {
	folder := filepath.Dir(writeParquet(t, sampleRow("a"), sampleRow("b")))
	questions, err := ReadQuestions(folder, QuestionOptions{Split: "train"})
	require.NoError(t, err)
	want := Question{ID: "a", Text: "who?", Answers: []string{"Ada", "latitude 90° North"}, Source: "nq",
		Prompt: []tokenizer.Message{{Role: "user", Content: "Answer: who?"}}}
	require.Len(t, questions, 2)
	assert.Equal(t, want, questions[0])
	assert.Equal(t, "b", questions[1].ID)
}

func TestParquetFaultNamesFileAndRow(t *testing.T) {
	path := writeParquet(t, sampleRow("a"), sampleRow("a"))
	_, err := ReadQuestions(path, QuestionOptions{})
	assert.ErrorContains(t, err, path+`: row 2: id "a" again, first in row 1`)

	_, err = ReadQuestions(write(t, "qa.parquet", "not parquet at all"), QuestionOptions{})
	assert.ErrorContains(t, err, "qa.parquet is not a whole parquet file")
}

func TestBrokenParquetIsAnErrorNotAPanic(t *testing.T) {
	path := writeParquet(t, sampleRow("a"), sampleRow("b"), sampleRow("c"))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := 0; cut < len(whole); cut += 7 {
		_, err := ReadQuestions(write(t, "cut.parquet", string(whole[:cut])), QuestionOptions{})
		assert.ErrorContains(t, err, "cut.parquet", "cut at %d", cut)
	}
	for at := 4; at < len(whole)-8; at += 5 { // a flipped byte may go unnoticed, but must not end the program
		broken := append([]byte(nil), whole...)
		broken[at] ^= 0xff
		questions, err := ReadQuestions(write(t, "broken.parquet", string(broken)), QuestionOptions{})
		assert.True(t, err != nil || len(questions) == 3, "byte %d", at)
	}
}

func TestParquetReadsEqualToJSONL(t *testing.T) {
	fromLines, err := ReadQuestions(testenv.Shared(t, "data/search_r1_example/rows.jsonl"), QuestionOptions{})
	require.NoError(t, err)
	fromParquet, err := ReadQuestions(testenv.Shared(t, "data/search_r1_example/rows.parquet"), QuestionOptions{})
	require.NoError(t, err)
	require.Len(t, fromLines, 50)
	assert.Equal(t, fromLines, fromParquet)
	assert.Equal(t, "nq", fromLines[0].Source)
	assert.Contains(t, fromLines[0].Prompt[0].Content, fromLines[0].Text)
}
