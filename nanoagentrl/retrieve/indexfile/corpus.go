// Package indexfile holds what the indexes of a folder have in common, whatever they search by: the description of the
// corpus they were made from, files that are mapped into memory with a checksum for each part, and the texts of the
// passages.
package indexfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/maphash"
	"io"
	"os"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// ManifestName is the file that describes an index. It is written last: a folder without it holds no index.
const ManifestName = "manifest.json"

// Castagnoli is the table of CRC-32C, which processors compute.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The errors of folders and files.
var (
	// ErrNoIndex is the error for a folder without a finished index.
	ErrNoIndex = errors.New("there is no finished index")
	// ErrDamaged is the error for an index whose bytes are not those that were written.
	ErrDamaged = errors.New("the index is damaged")
	// ErrClosed is the error of a search in an index that was closed.
	ErrClosed = errors.New("the index was closed")
)

// Damaged returns an error that says which file is damaged and what to do.
func Damaged(path string, err error) error {
	return fmt.Errorf("%s: %w (%w); build it again (retriever index --rebuild)", path, ErrDamaged, err)
}

// MismatchError says that the index in a folder was not made from a corpus or with a model, or not in the way that is
// asked for.
type MismatchError struct {
	Dir string
	// Of is what the index was not made from; empty for the corpus.
	Of string
	// Reason says in what they differ.
	Reason string
}

// Error names folder, difference and the way out.
func (e *MismatchError) Error() string {
	of := cmp.Or(e.Of, "corpus")
	return fmt.Sprintf("the index in %s does not belong to this %s: %s; give the %s it was made from, another folder, "+
		"or build it again (retriever index --rebuild)", e.Dir, of, e.Reason, of)
}

// Corpus tells one corpus from another.
type Corpus struct {
	// Name is the name of its file, for people to read.
	Name string `json:"name"`
	// Size is the size of the file in bytes, SHA256 its digest in hexadecimal.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Check returns a *MismatchError if an index in dir of so many passages, made from c, was not made from the corpus at
// path. It reads the whole corpus.
func (c Corpus) Check(ctx context.Context, dir, path string, passages int) error {
	mismatch := func(f string, args ...any) error { return &MismatchError{Dir: dir, Reason: fmt.Sprintf(f, args...)} }
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
	if info.Size() != c.Size {
		return mismatch("it was made from %s with %d passages in %d bytes; %s has %d bytes", c.Name, passages, c.Size, path,
			info.Size())
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, &Patient{ctx, file}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if sum := HexSum(digest); sum != c.SHA256 {
		return mismatch("it was made from %s with the SHA-256 %.12s…, %s has %.12s…", c.Name, c.SHA256, path, sum)
	}
	return nil
}

// HexSum returns a digest as it is now, in hexadecimal.
func HexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// Patient reads until its context ends.
type Patient struct {
	Ctx context.Context
	In  io.Reader
}

// Read implements io.Reader.
func (p *Patient) Read(buffer []byte) (int, error) {
	if err := p.Ctx.Err(); err != nil {
		return 0, err
	}
	return p.In.Read(buffer)
}

var hashSeed = maphash.MakeSeed()

// HashID returns a hash of an id, another one in each process.
func HashID(id string) uint64 { return maphash.String(hashSeed, id) }

// LineOfID returns the number of the first line of a corpus with an id; 0 if there is none.
func LineOfID(path, id string) (int, error) {
	corpus, err := data.OpenCorpus(path)
	if err != nil {
		return 0, err
	}
	defer corpus.Close()
	for {
		lines, err := corpus.Next(1024, 1<<20)
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
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
