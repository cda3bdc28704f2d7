package bm25

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// finish merges the segments into the file of the index and writes the manifest.
func (b *builder) finish(ctx context.Context) (*Manifest, error) {
	j := b.journal
	readers, bases, lengths, err := j.segmentReaders()
	if err != nil {
		return nil, err
	}
	b.places = append(b.places, uint64(j.at.PassagesSize))
	m := &Manifest{
		Kind: kind, Format: format, Analyzer: b.o.Analyzer,
		Corpus: Corpus{Name: filepath.Base(b.path), Size: j.at.End, SHA256: j.at.SHA256},
		Counts: Counts{Passages: j.at.Passages, NonEmpty: j.at.NonEmpty, Tokens: j.at.Tokens},
		Parts:  map[string]indexfile.Part{partPassages: {File: passagesName, Size: j.at.PassagesSize, CRC32C: j.at.PassagesCRC}},
	}
	path := filepath.Join(b.dir, indexName)
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	out := &partWriter{out: bufio.NewWriterSize(file, 1<<20), manifest: m}
	merge := merger{lengths: lengths, out: out, progress: func(terms int) { b.report(Progress{Merging: true, Terms: terms}) }}
	err = func() error {
		if err := merge.run(ctx, readers, bases); err != nil {
			return err
		}
		out.end(partPostings)
		places := make([]byte, 0, 8*len(b.places))
		for _, place := range b.places {
			places = binary.LittleEndian.AppendUint64(places, place)
		}
		for _, p := range []struct {
			name string
			text []byte
		}{{partGroups, merge.dictionary.groups}, {partTable, merge.dictionary.table}, {partLengths, lengths}, {partPlaces, places}} {
			if _, err := out.Write(p.text); err != nil {
				return err
			}
			out.end(p.name)
		}
		return errors.Join(out.out.Flush(), file.Sync())
	}()
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	m.Counts.Terms, m.Counts.Postings = merge.dictionary.terms, merge.postings
	return m, indexfile.WriteManifest(b.dir, m)
}

// partWriter writes the parts of a file one after the other and notes them in the manifest.
type partWriter struct {
	out      *bufio.Writer
	manifest *Manifest
	begin    int64
	size     int64
	crc      uint32
}

var _ io.Writer = (*partWriter)(nil)

func (w *partWriter) Write(text []byte) (int, error) {
	w.crc = crc32.Update(w.crc, indexfile.Castagnoli, text)
	w.size += int64(len(text))
	return w.out.Write(text)
}

// end gives what was written since the last end its name.
func (w *partWriter) end(name string) {
	w.manifest.Parts[name] = indexfile.Part{File: indexName, Offset: w.begin, Size: w.size, CRC32C: w.crc}
	w.begin, w.size, w.crc = w.begin+w.size, 0, 0
}
