package bm25

import (
	"context"
	"errors"
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

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
	files, err := indexfile.Map(dir, m.Parts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, files.Close())
		}
	}()
	options.Analyzer = m.Analyzer
	x := &Index{options: options, counts: m.Counts, manifest: m, files: files}
	var places []byte
	for name, target := range map[string]*[]byte{partPostings: &x.postings, partGroups: &x.dictionary.groups,
		partTable: &x.dictionary.table, partLengths: &x.lengths, partPlaces: &places} {
		if *target, err = files.Part(name); err != nil {
			return nil, err
		}
		if name != partPostings {
			if err := files.Check(context.Background(), name); err != nil {
				return nil, err
			}
		}
	}
	texts, err := files.Part(partPassages)
	if err != nil {
		return nil, err
	}
	n := m.Counts.Passages
	if n < 1 || len(x.postings) < slack || len(x.lengths) != n || len(places) != 8*(n+1) ||
		len(x.dictionary.table) != 4*((m.Counts.Terms+dictionaryStep-1)/dictionaryStep) {
		return nil, indexfile.Damaged(dir, fmt.Errorf("its parts are not those of %d passages and %d terms", n, m.Counts.Terms))
	}
	x.passages = &onDisk{indexfile.Passages{Places: places, Texts: texts}}
	x.prepare()
	return x, nil
}

// hold keeps the files from being closed until release.
func (x *Index) hold() error {
	if x.files == nil {
		return nil
	}
	return x.files.Hold()
}

func (x *Index) release() {
	if x.files != nil {
		x.files.Release()
	}
}

// Verify reads the whole index and compares its checksums. An index in memory has none.
func (x *Index) Verify(ctx context.Context) error {
	if x.files == nil {
		return nil
	}
	return x.files.Verify(ctx)
}

// Manifest returns the description of an index in a folder; nil for one in memory.
func (x *Index) Manifest() *Manifest { return x.manifest }

// Close waits for searches under way and unmaps the files.
func (x *Index) Close() error {
	if x.files == nil {
		return nil
	}
	return x.files.Close()
}

// onDisk is the store of passages of an index in a folder.
type onDisk struct{ indexfile.Passages }

func (s *onDisk) size() int64 { return s.Bytes() }

func (s *onDisk) passage(doc int) (data.Passage, error) { return s.Passage(doc) }
