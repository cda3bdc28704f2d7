package bm25

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// The files that exist only while an index is built: segments, and what has been done.
const (
	journalName  = "build.journal"
	segmentsName = "build.segments"
)

// checkpoint is a line of the journal: what stands in the files after a lot of passages. All numbers count from the start.
type checkpoint struct {
	// End and Lines say how far the corpus is read, SHA256 is its digest up to there.
	End    int64  `json:"end"`
	Lines  int    `json:"lines"`
	SHA256 string `json:"sha256"`

	Passages     int    `json:"passages"`
	PassagesSize int64  `json:"passages_size"`
	PassagesCRC  uint32 `json:"passages_crc32c"`
	SegmentsSize int64  `json:"segments_size"`
	SegmentsCRC  uint32 `json:"segments_crc32c"`
	NonEmpty     int    `json:"non_empty"`
	Tokens       int    `json:"tokens"`
}

// journalHead is the first line of a journal.
type journalHead struct {
	Format   int               `json:"format"`
	Analyzer analysis.Analyzer `json:"analyzer"`
}

// journal is the memory of a build: files that grow lot by lot, and a line for each lot that is on the disk.
type journal struct {
	file, passages, segments *os.File
	head                     journalHead
	// size is the length of the journal's whole lines.
	size int64
	// done are the checkpoints of earlier calls and this one, at is the last of them.
	done []checkpoint
	at   checkpoint
	// digest is that of the corpus as far as it is read.
	digest hash.Hash
}

// openJournal opens the files of a build, which are empty if none is under way with this analysis.
func openJournal(dir string, analyzer analysis.Analyzer) (_ *journal, err error) {
	j := &journal{digest: sha256.New(), head: journalHead{Format: format, Analyzer: analyzer}}
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	for name, file := range map[string]**os.File{journalName: &j.file, passagesName: &j.passages, segmentsName: &j.segments} {
		if *file, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(j.file)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) || !j.take(line) {
			break // What a crash spoilt ends what can be relied on.
		}
		j.size += int64(len(line))
	}
	return j, nil
}

// take reads a line of the journal and reports whether it can be relied on.
func (j *journal) take(line []byte) bool {
	if j.size == 0 {
		var head journalHead
		return json.Unmarshal(line, &head) == nil && head == j.head
	}
	var c checkpoint
	if json.Unmarshal(line, &c) != nil {
		return false
	}
	j.done = append(j.done, c)
	return true
}

// restart empties the files.
func (j *journal) restart() error {
	j.done, j.at, j.size = nil, checkpoint{}, 0
	j.digest.Reset()
	if err := j.cut(); err != nil {
		return err
	}
	return j.writeLine(j.head)
}

// cut makes the files as long as they were at the current checkpoint.
func (j *journal) cut() error {
	for file, size := range map[*os.File]int64{j.file: j.size, j.passages: j.at.PassagesSize, j.segments: j.at.SegmentsSize} {
		if err := file.Truncate(size); err != nil {
			return err
		}
		if _, err := file.Seek(size, io.SeekStart); err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) writeLine(line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(text, '\n')); err != nil {
		return err
	}
	return j.file.Sync()
}

// append writes a lot to the files and then, once they are on the disk, its checkpoint. A lot of n passages stands in the
// file of segments as n as a varint, the lengths of the passages, and the postings.
func (j *journal) append(l *lot, texts []byte) error {
	segment := binary.AppendUvarint(nil, uint64(len(l.passages)))
	segment = append(append(segment, l.segment.lengths...), l.segment.postings...)
	next := j.at
	next.End, next.Lines, next.SHA256 = l.lines.End, l.lines.First+l.lines.Count-1, l.sha256
	next.Passages += len(l.passages)
	next.NonEmpty += l.segment.nonEmpty
	next.Tokens += l.segment.tokens
	for _, target := range []struct {
		file *os.File
		text []byte
		size *int64
		crc  *uint32
	}{{j.passages, texts, &next.PassagesSize, &next.PassagesCRC}, {j.segments, segment, &next.SegmentsSize, &next.SegmentsCRC}} {
		if _, err := target.file.Write(target.text); err != nil {
			return err
		}
		if err := target.file.Sync(); err != nil {
			return err
		}
		*target.size += int64(len(target.text))
		*target.crc = crc32.Update(*target.crc, indexfile.Castagnoli, target.text)
	}
	j.at = next
	j.done = append(j.done, next)
	return j.writeLine(next)
}

// segmentReaders returns a reader of the postings of each lot, the number of its first passage, and all lengths. It
// compares the file's checksum.
func (j *journal) segmentReaders() (postings []io.Reader, bases []int, lengths []uint8, err error) {
	crc := crc32.New(indexfile.Castagnoli)
	begin, base := int64(0), 0
	for _, c := range j.done {
		lot := bufio.NewReader(io.TeeReader(io.NewSectionReader(j.segments, begin, c.SegmentsSize-begin), crc))
		n, err := binary.ReadUvarint(lot)
		if err != nil || int(n) != c.Passages-base {
			return nil, nil, nil, fmt.Errorf("%s: %w", j.segments.Name(), ErrDamaged)
		}
		own := make([]uint8, n)
		if _, err := io.ReadFull(lot, own); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", j.segments.Name(), err)
		}
		size, err := io.Copy(io.Discard, lot)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", j.segments.Name(), err)
		}
		lengths, bases = append(lengths, own...), append(bases, base)
		postings = append(postings, io.NewSectionReader(j.segments, c.SegmentsSize-size, size))
		begin, base = c.SegmentsSize, c.Passages
	}
	if crc.Sum32() != j.at.SegmentsCRC {
		return nil, nil, nil, fmt.Errorf("%s: %w", j.segments.Name(), ErrDamaged)
	}
	return postings, bases, lengths, nil
}

func (j *journal) close() error {
	var failed error
	for _, file := range []**os.File{&j.file, &j.passages, &j.segments} {
		if *file != nil {
			failed = errors.Join(failed, (*file).Close())
			*file = nil
		}
	}
	return failed
}

// empty reports whether there is no passage to go on after.
func (j *journal) empty() bool { return len(j.done) == 0 || j.done[len(j.done)-1].Passages == 0 }

// discard deletes all files.
func (j *journal) discard() error { return errors.Join(j.remove(), os.Remove(j.passages.Name())) }

// remove deletes the files that exist only while an index is built.
func (j *journal) remove() error {
	return errors.Join(os.Remove(j.file.Name()), os.Remove(j.segments.Name()))
}
