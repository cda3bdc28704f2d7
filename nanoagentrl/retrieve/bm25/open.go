package bm25

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/edsrzf/mmap-go"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// mapped holds the files of an index that are mapped into memory.
type mapped struct {
	dir      string
	manifest *Manifest
	files    map[string]mmap.MMap
	// using is held for reading by whoever looks into the files.
	using  sync.RWMutex
	closed bool
}

// Open opens the index in a folder. Only the parts of it that a search touches are read from the disk, so it takes
// milliseconds; the dictionary and the places of the passages are checked, Verify checks the rest. K1 and B are those of
// options, the analysis is that of the index. Close it when it is no longer used.
func Open(dir string, options Options) (_ *Index, err error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	files := &mapped{dir: dir, manifest: m, files: map[string]mmap.MMap{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, files.close())
		}
	}()
	for _, name := range []string{indexName, passagesName} {
		if err := files.open(name); err != nil {
			return nil, err
		}
	}
	options.Analyzer = m.Analyzer
	x := &Index{options: options, counts: m.Counts, files: files}
	var places []byte
	for name, target := range map[string]*[]byte{partPostings: &x.postings, partGroups: &x.dictionary.groups,
		partTable: &x.dictionary.table, partLengths: &x.lengths, partPlaces: &places} {
		if *target, err = files.part(name); err != nil {
			return nil, err
		}
		if name != partPostings {
			if err := files.check(context.Background(), name); err != nil {
				return nil, err
			}
		}
	}
	texts, err := files.part(partPassages)
	if err != nil {
		return nil, err
	}
	n := m.Counts.Passages
	if n < 1 || len(x.postings) < slack || len(x.lengths) != n || len(places) != 8*(n+1) ||
		len(x.dictionary.table) != 4*((m.Counts.Terms+dictionaryStep-1)/dictionaryStep) {
		return nil, damaged(dir, fmt.Errorf("its parts are not those of %d passages and %d terms", n, m.Counts.Terms))
	}
	x.passages = &onDisk{places: places, texts: texts}
	x.prepare()
	return x, nil
}

func (f *mapped) open(name string) error {
	file, err := os.Open(filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return damaged(filepath.Join(f.dir, name), errors.New("the file is missing"))
	}
	if err != nil {
		return err
	}
	defer file.Close() // the mapping stays
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return damaged(file.Name(), errors.New("the file is empty"))
	}
	f.files[name], err = mmap.Map(file, mmap.RDONLY, 0)
	if err != nil {
		return fmt.Errorf("%s cannot be mapped into memory: %w", file.Name(), err)
	}
	return nil
}

// part returns a part of the index.
func (f *mapped) part(name string) ([]byte, error) {
	p, ok := f.manifest.Parts[name]
	file := f.files[p.File]
	if !ok || p.Offset < 0 || p.Size < 0 || p.Offset+p.Size > int64(len(file)) {
		return nil, damaged(filepath.Join(f.dir, p.File), fmt.Errorf("it is too short for its %s", name))
	}
	return file[p.Offset : p.Offset+p.Size : p.Offset+p.Size], nil
}

// check compares the checksum of a part.
func (f *mapped) check(ctx context.Context, name string) error {
	rest, err := f.part(name)
	if err != nil {
		return err
	}
	crc := uint32(0)
	for len(rest) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(rest), 16<<20)
		crc = crc32.Update(crc, castagnoli, rest[:n])
		rest = rest[n:]
	}
	if p := f.manifest.Parts[name]; crc != p.CRC32C {
		return damaged(filepath.Join(f.dir, p.File), fmt.Errorf("the checksum of its %s differs", name))
	}
	return nil
}

func (f *mapped) close() error {
	f.using.Lock()
	defer f.using.Unlock()
	f.closed = true
	var failed error
	for name, file := range f.files {
		failed = errors.Join(failed, file.Unmap())
		delete(f.files, name)
	}
	return failed
}

// ErrClosed is the error of a search in an index that was closed.
var ErrClosed = errors.New("the index was closed")

// hold keeps the files from being closed until release.
func (x *Index) hold() error {
	if x.files == nil {
		return nil
	}
	x.files.using.RLock()
	if x.files.closed {
		x.files.using.RUnlock()
		return ErrClosed
	}
	return nil
}

func (x *Index) release() {
	if x.files != nil {
		x.files.using.RUnlock()
	}
}

// Verify reads the whole index and compares its checksums. An index in memory has none.
func (x *Index) Verify(ctx context.Context) error {
	if x.files == nil {
		return nil
	}
	if err := x.hold(); err != nil {
		return err
	}
	defer x.release()
	for name := range x.files.manifest.Parts {
		if err := x.files.check(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Manifest returns the description of an index in a folder; nil for one in memory.
func (x *Index) Manifest() *Manifest {
	if x.files == nil {
		return nil
	}
	return x.files.manifest
}

// Close waits for searches under way and unmaps the files.
func (x *Index) Close() error {
	if x.files == nil {
		return nil
	}
	return x.files.close()
}

// onDisk is the store of passages of an index in a folder: for each passage its id and its contents, each after the number
// of its bytes as a varint. places holds the place of each, and the end of the last, 8 bytes each.
type onDisk struct{ places, texts []byte }

func (s *onDisk) size() int64 { return int64(len(s.places) + len(s.texts)) }

func (s *onDisk) passage(doc int) (data.Passage, error) {
	begin, end := binary.LittleEndian.Uint64(s.places[8*doc:]), binary.LittleEndian.Uint64(s.places[8*doc+8:])
	if begin > end || end > uint64(len(s.texts)) {
		return data.Passage{}, ErrDamaged
	}
	in := scanner{data: s.texts[begin:end]}
	id := in.bytes(in.number())
	contents := in.bytes(in.number())
	if in.broken || len(in.data) > 0 {
		return data.Passage{}, ErrDamaged
	}
	return data.Passage{ID: string(id), Contents: string(contents)}, nil
}

func appendPassage(out []byte, p data.Passage) []byte {
	out = binary.AppendUvarint(out, uint64(len(p.ID)))
	out = append(out, p.ID...)
	out = binary.AppendUvarint(out, uint64(len(p.Contents)))
	return append(out, p.Contents...)
}
