package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// MaxLine is the longest line of a JSONL file that is read, in bytes.
const MaxLine = 16 << 20

// Lines is a run of whole lines of a file.
type Lines struct {
	path string
	// First is the number of the first line, counted from 1; Count the number of lines; Begin and End are the places of
	// the text in the file, in bytes.
	First, Count int
	Begin, End   int64
	// Text is the lines with their ends; the last one may lack it.
	Text []byte
}

// each calls row with each non-blank line and its number. It takes a byte order mark and CRLF line ends. Every error
// names file and line.
func (l *Lines) each(row func(line int, text []byte) error) error {
	line := l.First - 1
	for text := range bytes.Lines(l.Text) {
		line++
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		if line == 1 {
			var err error
			if text, err = cutByteOrderMark(text); err != nil {
				return lineError(l.path, line, err)
			}
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if !utf8.Valid(text) {
			return lineError(l.path, line, errors.New("not valid UTF-8; convert the file first"))
		}
		if err := row(line, text); err != nil {
			return lineError(l.path, line, err)
		}
	}
	return nil
}

// lineReader cuts a file into runs of lines.
type lineReader struct {
	path string
	in   *bufio.Reader
	line int
	at   int64
}

func newLineReader(path string, in io.Reader) *lineReader {
	return &lineReader{path: path, in: bufio.NewReaderSize(in, 1<<20)}
}

// next returns the next lines, at most n of them and no more than fill some size in bytes; io.EOF at the end.
func (r *lineReader) next(n, size int) (*Lines, error) {
	run := &Lines{path: r.path, First: r.line + 1, Begin: r.at}
	for run.Count < n && len(run.Text) < size {
		begin := len(run.Text)
		var err error
		for err = bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
			var piece []byte
			piece, err = r.in.ReadSlice('\n')
			run.Text = append(run.Text, piece...)
			if tooLong(run.Text[begin:]) {
				return nil, lineError(r.path, r.line+1,
					fmt.Errorf("line longer than %d MiB; is this one JSON object a line?", MaxLine>>20))
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, lineError(r.path, r.line+1, err)
		}
		if len(run.Text) == begin {
			break
		}
		r.line++
		run.Count++
	}
	if run.Count == 0 {
		return nil, io.EOF
	}
	r.at += int64(len(run.Text))
	run.End = r.at
	return run, nil
}

func tooLong(line []byte) bool {
	return len(line) > MaxLine && len(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))) > MaxLine
}

// readLines calls row with each non-blank line of a JSONL file and its number, counted from 1; see Lines.each.
func readLines(path string, row func(line int, text []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer file.Close()
	return eachLine(newLineReader(path, file), row)
}

func eachLine(reader *lineReader, row func(line int, text []byte) error) error {
	for {
		lines, err := reader.next(1024, 1<<20)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := lines.each(row); err != nil {
			return err
		}
	}
}

func cutByteOrderMark(text []byte) ([]byte, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, errors.New("the file is UTF-16; convert it to UTF-8 first")
	}
	for magic, name := range map[string]string{"\x1f\x8b": "gzip", "\x28\xb5\x2f\xfd": "Zstandard", "PK\x03\x04": "ZIP"} {
		if bytes.HasPrefix(text, []byte(magic)) {
			return nil, fmt.Errorf("the file is packed with %s; unpack it first", name)
		}
	}
	if bytes.HasPrefix(text, []byte("PAR1")) {
		return nil, errors.New("the file is Parquet; want JSON lines here")
	}
	return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
}

func lineError(path string, line int, err error) error {
	return fmt.Errorf("data: %s:%d: %w", path, line, err)
}
