package indexfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
)

// Head is the beginning of every manifest: what kind of index it describes, and in which format.
type Head struct {
	Kind   string `json:"kind"`
	Format int    `json:"format"`
}

// KindOf returns the kind of the index in a folder. The error is ErrNoIndex if there is none.
func KindOf(dir string) (string, error) {
	var head Head
	_, err := readManifest(dir, &head)
	return head.Kind, err
}

// Manifest is a manifest as a struct that JSON can hold. Checksum points to the field with the CRC-32C of the manifest
// as JSON with a zero in this place.
type Manifest interface{ Checksum() *uint32 }

func readManifest(dir string, into any) (path string, err error) {
	path = filepath.Join(dir, ManifestName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, fmt.Errorf("%s: %w; build one with retriever index --kind bm25|dense|hybrid --corpus FILE --out DIR", dir, ErrNoIndex)
	}
	if err != nil {
		return path, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return path, Damaged(path, err)
	}
	return path, nil
}

// ReadManifest reads the description of the index in a folder, which must be of the given kind and format. The error is
// ErrNoIndex if there is none.
func ReadManifest(dir string, want Head, m Manifest) error {
	var head Head
	path, err := readManifest(dir, &head)
	if err != nil {
		return err
	}
	if head.Kind != want.Kind {
		return fmt.Errorf("%s describes an index of kind %q; %s was asked for: search it with --kind %s (retriever_kind in a config), "+
			"or name another folder", path, head.Kind, want.Kind, head.Kind)
	}
	if head != want {
		return fmt.Errorf("%s describes an index of kind %q in format %d; this program reads %s in format %d here: name another folder, or "+
			"build it again (retriever index --kind %s --rebuild)", path, head.Kind, head.Format, want.Kind, want.Format, want.Kind)
	}
	if _, err := readManifest(dir, m); err != nil {
		return err
	}
	crc, err := checksum(m)
	if err != nil {
		return err
	}
	if crc != *m.Checksum() {
		return Damaged(path, errors.New("its checksum differs"))
	}
	return nil
}

// WriteManifest completes a manifest with its checksum and writes it.
func WriteManifest(dir string, m Manifest) error {
	crc, err := checksum(m)
	if err != nil {
		return err
	}
	*m.Checksum() = crc
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, ManifestName), append(text, '\n'))
}

func checksum(m Manifest) (uint32, error) {
	stored := *m.Checksum()
	*m.Checksum() = 0
	text, err := json.Marshal(m)
	*m.Checksum() = stored
	return crc32.Checksum(text, Castagnoli), err
}
