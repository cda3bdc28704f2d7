package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Passage is one document of a corpus, in the layout that the Search-R1 retriever serves.
type Passage struct {
	ID string `json:"id"`
	// Contents is the title in double quotes, a newline, and the text.
	Contents string `json:"contents"`
}

// Title returns the title without its quotes; see SplitContents.
func (p Passage) Title() string {
	title, _ := SplitContents(p.Contents)
	return title
}

// Text returns the text without the title; see SplitContents.
func (p Passage) Text() string {
	_, text := SplitContents(p.Contents)
	return text
}

// SplitContents cuts a passage into its title and its text. The title is the first line, without one pair of double
// quotes if it has it (the wiki-18 corpus leaves some titles without). Contents of a single line are a title if they
// are wholly in quotes, else a text without a title.
func SplitContents(contents string) (title, text string) {
	first, rest, found := strings.Cut(contents, "\n")
	first = strings.TrimSuffix(first, "\r")
	quoted := len(first) >= 2 && first[0] == '"' && first[len(first)-1] == '"'
	switch {
	case quoted:
		return first[1 : len(first)-1], rest
	case found:
		return first, rest
	}
	return "", contents
}

// ReadCorpus reads a corpus: JSON Lines of {"id", "contents"}. A folder means its corpus.jsonl. Ids may be numbers.
// A line that is not such an object, a missing or repeated id, contents that are not a string, and a line longer than
// MaxLine end the reading with an error that names file, line and fault; so does a corpus without passages. Blank
// lines are skipped, and contents may be empty.
func ReadCorpus(path string) ([]Passage, error) {
	path, err := resolve(path, []string{"corpus.jsonl"})
	if err != nil {
		return nil, err
	}
	var passages []Passage
	lineOf := map[string]int{}
	err = readLines(path, func(line int, text []byte) error {
		passage, err := decodePassage(text)
		if err != nil {
			return err
		}
		if first, seen := lineOf[passage.ID]; seen {
			return fmt.Errorf("id %q again, first in line %d; ids must be unique", passage.ID, first)
		}
		lineOf[passage.ID] = line
		passages = append(passages, passage)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(passages) == 0 {
		return nil, fmt.Errorf("data: %s holds no passages", path)
	}
	return passages, nil
}

func decodePassage(text []byte) (Passage, error) {
	var row struct {
		ID       json.RawMessage `json:"id"`
		Contents json.RawMessage `json:"contents"`
	}
	if err := decodeObject(text, &row); err != nil {
		return Passage{}, err
	}
	if isNull(row.ID) {
		return Passage{}, errors.New(`no "id"`)
	}
	id, err := oneString(row.ID, "id", true)
	if err != nil {
		return Passage{}, err
	}
	if id == "" {
		return Passage{}, errors.New(`"id" is empty`)
	}
	if len(row.Contents) == 0 {
		return Passage{}, fmt.Errorf(`no "contents" (id %q); a line is {"id": ..., "contents": "\"Title\"\ntext"}`, id)
	}
	contents, err := oneString(row.Contents, "contents", false)
	if err != nil {
		return Passage{}, fmt.Errorf("%w (id %q)", err, id)
	}
	return Passage{ID: id, Contents: contents}, nil
}

// resolve returns path itself if it is a file, and the first of the named files inside if it is a folder.
func resolve(path string, names []string) (string, error) {
	isFolder, held, err := listFolder(path)
	if err != nil || !isFolder {
		return path, err
	}
	for _, name := range names {
		if _, ok := held[name]; ok {
			return filepath.Join(path, name), nil
		}
	}
	return "", fmt.Errorf("data: folder %s has no %s; it holds: %s", path, strings.Join(names, " or "), heldNames(held))
}
