package bm25

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// The files of an index. The manifest is written last: a folder without one holds no index.
const (
	manifestName = indexfile.ManifestName
	indexName    = "bm25.index"
	passagesName = "passages.bin"
)

// kind and format say what a manifest describes; format is raised when the layout, or what the analysis makes of a text,
// changes.
const (
	kind   = "bm25"
	format = 1
)

// What indexes of every kind have in common.
type (
	// Corpus tells one corpus from another.
	Corpus = indexfile.Corpus
	// MismatchError says that an index was not made from a corpus, or not in the way that is asked for.
	MismatchError = indexfile.MismatchError
)

// The errors of indexes of every kind.
var (
	ErrNoIndex = indexfile.ErrNoIndex
	ErrDamaged = indexfile.ErrDamaged
	ErrClosed  = indexfile.ErrClosed
)

// Manifest describes the index in a folder.
type Manifest struct {
	Kind     string                    `json:"kind"`
	Format   int                       `json:"format"`
	Corpus   Corpus                    `json:"corpus"`
	Analyzer analysis.Analyzer         `json:"analyzer"`
	Counts   Counts                    `json:"counts"`
	Parts    map[string]indexfile.Part `json:"parts"`
	// CRC32C is that of the manifest as JSON with a zero in this place.
	CRC32C uint32 `json:"crc32c"`
}

// The names of the parts.
const (
	partPostings = "postings"
	partGroups   = "dictionary"
	partTable    = "dictionary_table"
	partLengths  = "lengths"
	partPlaces   = "places"
	partPassages = "passages"
)

// ReadManifest reads the description of the index in a folder. The error is ErrNoIndex if there is none.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w; build one with retriever index --corpus FILE --out %s", dir, ErrNoIndex, dir)
	}
	if err != nil {
		return nil, err
	}
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, indexfile.Damaged(path, err)
	}
	if m.Kind != kind || m.Format != format {
		return nil, fmt.Errorf("%s describes an index of kind %q in format %d; this program reads %s in format %d: build it "+
			"again (retriever index --rebuild)", path, m.Kind, m.Format, kind, format)
	}
	crc, err := m.crc()
	if err != nil {
		return nil, err
	}
	if crc != m.CRC32C {
		return nil, indexfile.Damaged(path, errors.New("its checksum differs"))
	}
	return m, nil
}

func (m *Manifest) crc() (uint32, error) {
	bare := *m
	bare.CRC32C = 0
	text, err := json.Marshal(bare)
	return crc32.Checksum(text, indexfile.Castagnoli), err
}

func (m *Manifest) write(dir string) (err error) {
	if m.CRC32C, err = m.crc(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, manifestName), append(text, '\n'))
}

// Check returns a *MismatchError if the index of the manifest, in dir, was not made from the corpus at path with the given
// analysis. It reads the whole corpus.
func (m *Manifest) Check(ctx context.Context, dir, path string, analyzer analysis.Analyzer) error {
	if m.Analyzer != analyzer {
		return &MismatchError{Dir: dir, Reason: fmt.Sprintf("it was analysed with %+v, not %+v", m.Analyzer, analyzer)}
	}
	return m.Corpus.Check(ctx, dir, path, m.Counts.Passages)
}
