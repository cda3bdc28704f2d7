package bm25

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
)

// The files of an index. The manifest is written last: a folder without one holds no index.
const (
	manifestName = "manifest.json"
	indexName    = "bm25.index"
	passagesName = "passages.bin"
)

// kind and format say what a manifest describes; format is raised when the layout, or what the analysis makes of a text,
// changes.
const (
	kind   = "bm25"
	format = 1
)

// castagnoli is the table of CRC-32C, which processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Corpus tells one corpus from another.
type Corpus struct {
	// Name is the name of its file, for people to read.
	Name string `json:"name"`
	// Size is the size of the file in bytes, SHA256 its digest in hexadecimal.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// part is a stretch of a file of the index.
type part struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
}

// Manifest describes the index in a folder.
type Manifest struct {
	Kind     string            `json:"kind"`
	Format   int               `json:"format"`
	Corpus   Corpus            `json:"corpus"`
	Analyzer analysis.Analyzer `json:"analyzer"`
	Counts   Counts            `json:"counts"`
	Parts    map[string]part   `json:"parts"`
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

// ErrNoIndex is the error for a folder without a finished index.
var ErrNoIndex = errors.New("there is no finished index")

// MismatchError says that the index in a folder was not made from a corpus, or not in the way that is asked for.
type MismatchError struct {
	Dir string
	// Reason says in what they differ.
	Reason string
}

// Error names folder, difference and the way out.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("the index in %s does not belong to this corpus: %s; give the corpus it was made from, another folder, "+
		"or build it again (retriever index --rebuild)", e.Dir, e.Reason)
}

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
		return nil, damaged(path, err)
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
		return nil, damaged(path, errors.New("its checksum differs"))
	}
	return m, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("%s: %w (%w); build it again (retriever index --rebuild)", path, ErrDamaged, err)
}

func (m *Manifest) crc() (uint32, error) {
	bare := *m
	bare.CRC32C = 0
	text, err := json.Marshal(bare)
	return crc32.Checksum(text, castagnoli), err
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
	mismatch := func(f string, args ...any) error { return &MismatchError{Dir: dir, Reason: fmt.Sprintf(f, args...)} }
	if m.Analyzer != analyzer {
		return mismatch("it was analysed with %+v, not %+v", m.Analyzer, analyzer)
	}
	path, err := data.CorpusPath(path)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != m.Corpus.Size {
		return mismatch("it was made from %s with %d passages in %d bytes; %s has %d bytes", m.Corpus.Name,
			m.Counts.Passages, m.Corpus.Size, path, info.Size())
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, &patient{ctx, file}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if sum := hexSum(digest); sum != m.Corpus.SHA256 {
		return mismatch("it was made from %s with the SHA-256 %.12s…, %s has %.12s…", m.Corpus.Name, m.Corpus.SHA256, path, sum)
	}
	return nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// patient reads until its context ends.
type patient struct {
	ctx context.Context
	in  io.Reader
}

func (p *patient) Read(buffer []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.in.Read(buffer)
}
