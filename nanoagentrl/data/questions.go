package data

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// QuestionOptions say which questions ReadQuestions reads, and how rows that do not say it themselves are named.
type QuestionOptions struct {
	// Split picks the file when the path is a folder: "train" reads train.jsonl, "test" test.jsonl, and so on, or
	// the same with .parquet. Without a split, and for "train" in a folder without such a file, it is qa.jsonl; a
	// folder that has neither gives its rows.jsonl or, without a split, its train.jsonl. Another split never falls
	// back: it would be training data under the name of a test.
	Split string
	// Source names the data set of rows without a data_source; empty means "gsm8k" for rows in the GSM8K layout and
	// the name of the file's folder for all others.
	Source string
}

// ReadQuestions reads questions from a JSON Lines or parquet file, or from a folder (see QuestionOptions.Split). Each
// row is taken by what it holds:
//
//   - {"id", "question", "golden_answers", "gold_passage_ids", "type"}, only question and answers being required;
//   - the rows of Search-R1 and verl: "data_source", "prompt" (kept as Question.Prompt), and
//     "reward_model"."ground_truth" with the answers, as a "target" list or by itself;
//   - GSM8K: {"question", "answer"}, the answer being the number after the last "####";
//   - NQ-open: {"question", "answer": [...]}.
//
// Numbers stand for strings where an id or an answer should be. A row without an id gets source_file_row, its row
// counted from 0. A row without a question or an answer, or with an id that was there before, ends the reading with an
// error that names file, line (or parquet row) and fault.
func ReadQuestions(path string, opts QuestionOptions) ([]Question, error) {
	path, err := resolve(path, questionFiles(opts.Split))
	if err != nil {
		return nil, err
	}
	parquet, err := isParquet(path)
	if err != nil {
		return nil, err
	}
	reader := &questionReader{path: path, source: opts.Source, unit: "line", placeOf: map[string]int{}}
	read := readLines
	if parquet {
		reader.unit, read = "row", readParquet
	}
	if err := read(path, reader.add); err != nil {
		return nil, err
	}
	if len(reader.questions) == 0 {
		return nil, fmt.Errorf("data: %s holds no questions", path)
	}
	return reader.questions, nil
}

func questionFiles(split string) []string {
	var stems []string
	switch split {
	case "":
		stems = []string{"qa", "rows", "train"}
	case "train":
		stems = []string{"train", "qa", "rows"}
	default:
		stems = []string{split}
	}
	var names []string
	for _, stem := range stems {
		names = append(names, stem+".jsonl", stem+".parquet")
	}
	return names
}

type questionReader struct {
	path, source string
	unit         string // what the places in the file are called
	questions    []Question
	placeOf      map[string]int // by id
}

// add decodes one row and gives it what it does not say itself: a source and an id.
func (r *questionReader) add(place int, text []byte) error {
	question, layout, err := decodeQuestion(text)
	if err != nil {
		return err
	}
	if question.Source == "" {
		question.Source = r.defaultSource(layout)
	}
	if question.ID == "" {
		stem := strings.TrimSuffix(filepath.Base(r.path), filepath.Ext(r.path))
		question.ID = fmt.Sprintf("%s_%s_%d", question.Source, stem, len(r.questions))
	}
	if first, seen := r.placeOf[question.ID]; seen {
		return fmt.Errorf("id %q again, first in %s %d; ids must be unique", question.ID, r.unit, first)
	}
	r.placeOf[question.ID] = place
	r.questions = append(r.questions, question)
	return nil
}

func (r *questionReader) defaultSource(layout rowLayout) string {
	switch {
	case r.source != "":
		return r.source
	case layout == layoutGSM8K:
		return "gsm8k"
	}
	if absolute, err := filepath.Abs(r.path); err == nil {
		return filepath.Base(filepath.Dir(absolute))
	}
	return filepath.Base(filepath.Dir(r.path))
}

// listFolder reports whether path is a folder, and the names of the files in it.
func listFolder(path string) (isFolder bool, names map[string]struct{}, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, nil, fmt.Errorf("data: %w", err)
	}
	if !info.IsDir() {
		return false, nil, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return true, nil, fmt.Errorf("data: %w", err)
	}
	names = map[string]struct{}{}
	for _, entry := range entries {
		if !entry.IsDir() {
			names[entry.Name()] = struct{}{}
		}
	}
	return true, names, nil
}

func heldNames(names map[string]struct{}) string {
	if len(names) == 0 {
		return "no files"
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
