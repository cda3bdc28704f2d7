package indexfile

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// Stored says what Store has written.
type Stored struct {
	Corpus   Corpus          `json:"corpus"`
	Passages int             `json:"passages"`
	Parts    map[string]Part `json:"parts"`
}

// The files and parts of stored passages.
const (
	PassagesName = "passages.bin"
	PlacesName   = "places.bin"
	PartPassages = "passages"
	PartPlaces   = "places"
)

// Store writes the passages of a corpus into a folder, as Passages reads them. Ids must be unique; errors name file and
// line. progress, if not nil, is told how many passages and bytes of the corpus are written.
func Store(ctx context.Context, corpus, dir string, progress func(passages int, bytes, total int64)) (_ *Stored, err error) {
	in, err := data.OpenCorpus(corpus)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	total, err := in.Size()
	if err != nil {
		return nil, err
	}
	texts, err := createPart(dir, PassagesName)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, texts.close()) }()
	places, err := createPart(dir, PlacesName)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, places.close()) }()
	s := storing{path: corpus, texts: texts, places: places, seen: map[uint64]struct{}{}}
	digest, end := sha256.New(), int64(0)
	for {
		lines, err := in.Next(4096, 8<<20)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		digest.Write(lines.Text)
		end = lines.End
		if err := s.add(lines); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(s.n, end, total)
		}
	}
	if s.n == 0 {
		return nil, fmt.Errorf("%s holds no passages", corpus)
	}
	s.place()
	stored := &Stored{Corpus: Corpus{Name: filepath.Base(corpus), Size: end, SHA256: HexSum(digest)}, Passages: s.n,
		Parts: map[string]Part{}}
	for name, p := range map[string]*partFile{PartPassages: texts, PartPlaces: places} {
		if stored.Parts[name], err = p.finish(); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// storing is a Store under way.
type storing struct {
	path          string
	texts, places *partFile
	n             int
	// seen holds the hashes of the ids.
	seen   map[uint64]struct{}
	buffer []byte
}

func (s *storing) place() {
	_, _ = s.places.Write(binary.LittleEndian.AppendUint64(nil, uint64(s.texts.size))) // An error comes again in finish.
}

func (s *storing) add(lines *data.Lines) error {
	passages, lineOf, err := lines.Passages()
	if err != nil {
		return err
	}
	for i, p := range passages {
		hash := HashID(p.ID)
		if _, twice := s.seen[hash]; twice {
			first, err := LineOfID(s.path, p.ID)
			if err != nil {
				return err
			}
			if first != lineOf[i] { // and not only the same hash
				return fmt.Errorf("%s:%d: id %q again, first in line %d; ids must be unique", s.path, lineOf[i], p.ID, first)
			}
		}
		s.seen[hash] = struct{}{}
		s.place()
		s.buffer = AppendPassage(s.buffer[:0], p)
		if _, err := s.texts.Write(s.buffer); err != nil {
			return err
		}
		s.n++
	}
	return nil
}

// partFile is a file of one part.
type partFile struct {
	file *os.File
	out  *bufio.Writer
	size int64
	crc  uint32
}

func createPart(dir, name string) (*partFile, error) {
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return &partFile{file: file, out: bufio.NewWriterSize(file, 1<<20)}, nil
}

func (p *partFile) Write(text []byte) (int, error) {
	p.crc = crc32.Update(p.crc, Castagnoli, text)
	p.size += int64(len(text))
	return p.out.Write(text)
}

func (p *partFile) finish() (Part, error) {
	if err := errors.Join(p.out.Flush(), p.file.Sync()); err != nil {
		return Part{}, fmt.Errorf("writing %s: %w", p.file.Name(), err)
	}
	return Part{File: filepath.Base(p.file.Name()), Size: p.size, CRC32C: p.crc}, nil
}

func (p *partFile) close() error { return p.file.Close() }
