package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

// CorpusPath returns the file that the name of a corpus stands for: a folder means its corpus.jsonl.
func CorpusPath(path string) (string, error) { return resolve(path, []string{"corpus.jsonl"}) }

// ReadCorpus reads a corpus: JSON Lines of {"id", "contents"}. A folder means its corpus.jsonl. Ids may be numbers.
// A line that is not such an object, a missing or repeated id, contents that are not a string, and a line longer than
// MaxLine end the reading with an error that names file, line and fault; so does a corpus without passages. Blank
// lines are skipped, and contents may be empty.
func ReadCorpus(path string) ([]Passage, error) {
	path, err := CorpusPath(path)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	defer file.Close()
	return readCorpus(newLineReader(path, file))
}

func readCorpus(reader *lineReader) ([]Passage, error) {
	var passages []Passage
	lineOf := map[string]int{}
	err := eachLine(reader, func(line int, text []byte) error {
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
		return nil, fmt.Errorf("data: %s holds no passages", reader.path)
	}
	return passages, nil
}

// CorpusReader reads a corpus too large for memory, some lines at a time. What ReadCorpus says of lines holds here too,
// except that repeated ids are for the caller to find.
type CorpusReader struct {
	file *os.File
	*lineReader
}

// OpenCorpus opens the file of a corpus.
func OpenCorpus(path string) (*CorpusReader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return &CorpusReader{file, newLineReader(path, file)}, nil
}

// Next returns the next lines, undecoded, at most n and about size bytes of them; io.EOF at the end.
func (r *CorpusReader) Next(n, size int) (*Lines, error) { return r.next(n, size) }

// Size returns the size of the file in bytes.
func (r *CorpusReader) Size() (int64, error) {
	info, err := r.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("data: %w", err)
	}
	return info.Size(), nil
}

// SkipTo passes over the file up to a place where Lines once ended, and copies what it passes over to a writer. lines is
// the number of lines up to there. A file that ends before is an error.
func (r *CorpusReader) SkipTo(end int64, lines int, passed io.Writer) error {
	n, err := io.CopyN(passed, r.in, end-r.at)
	r.at, r.line = r.at+n, lines
	if err != nil {
		return fmt.Errorf("data: %s: %w", r.path, err)
	}
	return nil
}

// Rewind goes back to the start of the file.
func (r *CorpusReader) Rewind() error {
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	r.lineReader = newLineReader(r.path, r.file)
	return nil
}

// Close closes the file.
func (r *CorpusReader) Close() error { return r.file.Close() }

// Passages decodes the lines. lineOf holds the number of each passage's line.
func (l *Lines) Passages() (passages []Passage, lineOf []int, err error) {
	err = l.each(func(line int, text []byte) error {
		passage, err := decodePassage(text)
		passages, lineOf = append(passages, passage), append(lineOf, line)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return passages, lineOf, nil
}

func decodePassage(text []byte) (Passage, error) {
	var usual struct {
		ID       string  `json:"id"`
		Contents *string `json:"contents"`
	}
	if json.Unmarshal(text, &usual) == nil && usual.ID != "" && usual.Contents != nil {
		return Passage{ID: usual.ID, Contents: *usual.Contents}, nil
	}
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
