package bm25

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// resume goes on from the last checkpoint, if corpus and files up to there are as they were; else it starts anew.
func (b *builder) resume(ctx context.Context) error {
	j := b.journal
	if len(j.done) == 0 {
		return j.restart()
	}
	last := j.done[len(j.done)-1]
	err := b.corpus.SkipTo(last.End, last.Lines, j.digest)
	if err == nil && indexfile.HexSum(j.digest) == last.SHA256 {
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
	crc := crc32.New(indexfile.Castagnoli)
	stored := io.TeeReader(io.NewSectionReader(j.passages, 0, j.at.PassagesSize), crc)
	in := bufio.NewReaderSize(&indexfile.Patient{Ctx: ctx, In: stored}, 1<<20)
	place := int64(0)
	for doc := range j.at.Passages {
		id, size, err := indexfile.ReadPassageID(in)
		if err != nil {
			return err
		}
		b.docOf[indexfile.HashID(id)] = uint32(doc)
		b.places = append(b.places, uint64(place))
		place += size
	}
	if place != j.at.PassagesSize || crc.Sum32() != j.at.PassagesCRC {
		return fmt.Errorf("%s: %w", j.passages.Name(), ErrDamaged)
	}
	return nil
}

// checkRepeated returns an error if passage first has the id too, and not only its hash. texts are the passages of the
// lot that are not stored yet; line is the line of the later passage.
func (b *builder) checkRepeated(id string, first uint32, texts []byte, line int) error {
	stored := uint64(b.journal.at.PassagesSize)
	var in io.Reader = io.NewSectionReader(b.journal.passages, int64(b.places[first]), data.MaxLine)
	if place := b.places[first]; place >= stored {
		in = bytes.NewReader(texts[place-stored:])
	}
	other, _, err := indexfile.ReadPassageID(bufio.NewReader(in))
	if err != nil || other != id {
		return err
	}
	firstLine, err := indexfile.LineOfID(b.path, id)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s:%d: id %q again, first in line %d; ids must be unique", b.path, line, id, firstLine)
}
