package bm25

import (
	"context"
	"fmt"

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

// Checksum implements indexfile.Manifest.
func (m *Manifest) Checksum() *uint32 { return &m.CRC32C }

// ReadManifest reads the description of the index in a folder. The error is ErrNoIndex if there is none.
func ReadManifest(dir string) (*Manifest, error) {
	m := new(Manifest)
	if err := indexfile.ReadManifest(dir, indexfile.Head{Kind: kind, Format: format}, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Check returns a *MismatchError if the index of the manifest, in dir, was not made from the corpus at path with the given
// analysis. It reads the whole corpus.
func (m *Manifest) Check(ctx context.Context, dir, path string, analyzer analysis.Analyzer) error {
	if m.Analyzer != analyzer {
		return &MismatchError{Dir: dir, Reason: fmt.Sprintf("it was analysed with %+v, not %+v", m.Analyzer, analyzer)}
	}
	return m.Corpus.Check(ctx, dir, path, m.Counts.Passages)
}
