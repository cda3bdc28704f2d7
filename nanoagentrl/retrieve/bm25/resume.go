package bm25

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

var hashSeed = maphash.MakeSeed()

func hashID(id string) uint64 { return maphash.String(hashSeed, id) }

// resume goes on from the last checkpoint, if corpus and files up to there are as they were; else it starts anew.
func (b *builder) resume(ctx context.Context) error {
	j := b.journal
	if len(j.done) == 0 {
		return j.restart()
	}
	last := j.done[len(j.done)-1]
	err := b.corpus.SkipTo(last.End, last.Lines, j.digest)
	if err == nil && hexSum(j.digest) == last.SHA256 {
		j.at = last
		if err = b.readBack(ctx); err == nil {
			b.resumed = last.Passages
			b.report(Progress{})
			return j.cut()
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// Another corpus, or files that a crash has spoilt.
	b.lengths, b.places = nil, nil
	clear(b.docOf)
	if err := b.corpus.Rewind(); err != nil {
		return err
	}
	return j.restart()
}

// readBack reads what earlier calls have stored: lengths, places and ids.
func (b *builder) readBack(ctx context.Context) (err error) {
	j := b.journal
	if _, _, b.lengths, err = j.segmentReaders(); err != nil {
		return err
	}
	crc := crc32.New(castagnoli)
	stored := io.TeeReader(io.NewSectionReader(j.passages, 0, j.at.PassagesSize), crc)
	in := bufio.NewReaderSize(&patient{ctx, stored}, 1<<20)
	place := int64(0)
	for doc := range j.at.Passages {
		id, size, err := readPassage(in)
		if err != nil {
			return err
		}
		b.docOf[hashID(id)] = uint32(doc)
		b.places = append(b.places, uint64(place))
		place += size
	}
	if place != j.at.PassagesSize || crc.Sum32() != j.at.PassagesCRC {
		return fmt.Errorf("%s: %w", j.passages.Name(), ErrDamaged)
	}
	return nil
}

// readPassage reads a stored passage and returns its id and its size in bytes.
func readPassage(in *bufio.Reader) (id string, size int64, err error) {
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

// checkRepeated returns an error if passage first has the id too, and not only its hash. texts are the passages of the
// lot that are not stored yet; line is the line of the later passage.
func (b *builder) checkRepeated(id string, first uint32, texts []byte, line int) error {
	stored := uint64(b.journal.at.PassagesSize)
	var in io.Reader = io.NewSectionReader(b.journal.passages, int64(b.places[first]), data.MaxLine)
	if place := b.places[first]; place >= stored {
		in = bytes.NewReader(texts[place-stored:])
	}
	other, _, err := readPassage(bufio.NewReader(in))
	if err != nil || other != id {
		return err
	}
	firstLine, err := lineOfID(b.path, id)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s:%d: id %q again, first in line %d; ids must be unique", b.path, line, id, firstLine)
}

// lineOfID returns the number of the first line of a corpus with an id.
func lineOfID(path, id string) (int, error) {
	corpus, err := data.OpenCorpus(path)
	if err != nil {
		return 0, err
	}
	defer corpus.Close()
	for {
		lines, err := corpus.Next(1024, lotBytes)
		if err != nil {
			return 0, err
		}
		passages, lineOf, err := lines.Passages()
		if err != nil {
			return 0, err
		}
		for i, p := range passages {
			if p.ID == id {
				return lineOf[i], nil
			}
		}
	}
}
