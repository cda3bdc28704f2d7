// Package dense searches by meaning: passages and queries are vectors of a sentence encoder, and the passages with the
// largest products are found, exactly, by comparing all of them (Karpukhin and others, arXiv:2004.04906). Vectors are
// kept as float16, in memory or in a folder that is mapped into memory.
package dense

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// Kind is the kind of index that a manifest of this package describes.
const Kind = "dense"

// format is raised when the layout changes, or the vector that a text gets.
const format = 1

// The file and part of the vectors, one after the other in the order of the passages, and the files of a build under
// way.
const (
	vectorsName = "vectors.f16"
	partVectors = "vectors"
	storedName  = "build.passages.json"
	journalName = "build.journal"
)

// Manifest describes the index in a folder.
type Manifest struct {
	indexfile.Head
	Corpus   indexfile.Corpus          `json:"corpus"`
	Model    embed.Model               `json:"model"`
	Passages int                       `json:"passages"`
	Parts    map[string]indexfile.Part `json:"parts"`
	// CRC32C is that of the manifest as JSON with a zero in this place.
	CRC32C uint32 `json:"crc32c"`
}

// Checksum implements indexfile.Manifest.
func (m *Manifest) Checksum() *uint32 { return &m.CRC32C }

// ReadManifest reads the description of the index in a folder. The error is indexfile.ErrNoIndex if there is none.
func ReadManifest(dir string) (*Manifest, error) {
	m := new(Manifest)
	if err := indexfile.ReadManifest(dir, indexfile.Head{Kind: Kind, Format: format}, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Check returns an *indexfile.MismatchError if the index of the manifest, in dir, was not made from the corpus at path.
// It reads the whole corpus.
func (m *Manifest) Check(ctx context.Context, dir, path string) error {
	return m.Corpus.Check(ctx, dir, path, m.Passages)
}

// CheckModel returns an *indexfile.MismatchError if the vectors of the index of the manifest, in dir, were not made
// with a model as it would be used now. Only the prefix of queries may be another one.
func (m *Manifest) CheckModel(dir string, model embed.Model) error {
	made := m.Model
	mismatch := func(f string, args ...any) error {
		return &indexfile.MismatchError{Dir: dir, Of: "model", Reason: fmt.Sprintf(f, args...)}
	}
	switch {
	case made.SHA256 != model.SHA256:
		return mismatch("its vectors were made with %s, SHA-256 %.12s…, not with %s, %.12s…", made.Name, made.SHA256,
			model.Name, model.SHA256)
	case made.Dim != model.Dim:
		return mismatch("its vectors have %d values, those of %s %d", made.Dim, model.Name, model.Dim)
	case made.MaxTokens != model.MaxTokens:
		return mismatch("its passages were cut off at %d tokens, not %d", made.MaxTokens, model.MaxTokens)
	case made.DType != model.DType:
		return mismatch("its vectors were made in %s, those of queries would be in %s", cmp.Or(made.DType, "f32"),
			cmp.Or(model.DType, "f32"))
	case made.PassagePrefix != model.PassagePrefix:
		return mismatch("its passages had the prefix %q, not %q", made.PassagePrefix, model.PassagePrefix)
	}
	return nil
}
