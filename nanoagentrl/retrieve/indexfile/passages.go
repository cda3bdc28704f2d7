package indexfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// Passages are stored passages: for each its id and its contents, each after the number of its bytes as a varint.
// Places holds the place of each, and the end of the last, 8 bytes each.
type Passages struct{ Places, Texts []byte }

// Bytes returns what they take.
func (s *Passages) Bytes() int64 { return int64(len(s.Places) + len(s.Texts)) }

// Passage decodes passage doc, whose place must be among Places.
func (s *Passages) Passage(doc int) (data.Passage, error) {
	begin, end := binary.LittleEndian.Uint64(s.Places[8*doc:]), binary.LittleEndian.Uint64(s.Places[8*doc+8:])
	if begin > end || end > uint64(len(s.Texts)) {
		return data.Passage{}, ErrDamaged
	}
	text := s.Texts[begin:end]
	id, text, ok := cutText(text)
	contents, text, good := cutText(text)
	if !ok || !good || len(text) > 0 {
		return data.Passage{}, ErrDamaged
	}
	return data.Passage{ID: string(id), Contents: string(contents)}, nil
}

// cutText takes a text with its length off the front.
func cutText(in []byte) (text, rest []byte, ok bool) {
	size, n := binary.Uvarint(in)
	if n <= 0 || size > uint64(len(in)-n) {
		return nil, nil, false
	}
	return in[n : n+int(size)], in[n+int(size):], true
}

// AppendPassage stores a passage behind others.
func AppendPassage(out []byte, p data.Passage) []byte {
	out = binary.AppendUvarint(out, uint64(len(p.ID)))
	out = append(out, p.ID...)
	out = binary.AppendUvarint(out, uint64(len(p.Contents)))
	return append(out, p.Contents...)
}

// ReadPassageID reads a stored passage and returns its id and its size in bytes.
func ReadPassageID(in *bufio.Reader) (id string, size int64, err error) {
	n, err := binary.ReadUvarint(in)
	if err != nil || n > data.MaxLine {
		return "", 0, errors.Join(err, ErrDamaged)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(in, text); err != nil {
		return "", 0, err
	}
	m, err := binary.ReadUvarint(in)
	if err != nil || m > data.MaxLine {
		return "", 0, errors.Join(err, ErrDamaged)
	}
	if _, err := in.Discard(int(m)); err != nil {
		return "", 0, err
	}
	head := len(binary.AppendUvarint(nil, n)) + len(binary.AppendUvarint(nil, m))
	return string(text), int64(head) + int64(n+m), nil
}
