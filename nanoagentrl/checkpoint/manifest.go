package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// ManifestName is the file that makes a folder a complete checkpoint.
const ManifestName = "MANIFEST.json"

const manifestFormat = 1

// manifest lists the files of a checkpoint.
type manifest struct {
	Format int            `json:"format"`
	Step   int            `json:"step"`
	Files  []manifestFile `json:"files"`
}

// manifestFile is one file: its path below the checkpoint, with slashes, its size in bytes and its SHA-256.
type manifestFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// writeManifest describes all files of dir, and flushes them, their folders and the manifest to the disk.
func writeManifest(dir string, step int) error {
	m := manifest{Format: manifestFormat, Step: step, Files: []manifestFile{}}
	var folders []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			folders = append(folders, path)
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", path)
		case relative == ManifestName:
			return fmt.Errorf("%s: this name is reserved", path)
		}
		size, sum, err := hashAndSync(path)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, manifestFile{filepath.ToSlash(relative), size, sum})
		return nil
	})
	if err != nil {
		return err
	}
	if len(m.Files) == 0 {
		return errors.New("no file was written")
	}
	if err := writeJSON(filepath.Join(dir, ManifestName), m); err != nil {
		return err
	}
	slices.Reverse(folders) // children first
	for _, folder := range folders {
		if err := syncDir(folder); err != nil {
			return err
		}
	}
	return nil
}

// Verify reads a checkpoint through and returns an error that says what is missing, cut or changed. Files that the
// manifest does not name are ignored.
func Verify(dir string) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	if err := m.checkSizes(dir); err != nil {
		return err
	}
	for _, file := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(file.Path))
		_, sum, err := hash(path)
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		if sum != file.SHA256 {
			return fmt.Errorf("checkpoint: %s: the content has changed: SHA-256 %s, want %s", path, sum, file.SHA256)
		}
	}
	return nil
}

// readManifest reads the manifest of a checkpoint folder.
func readManifest(dir string) (*manifest, error) {
	path := filepath.Join(dir, ManifestName)
	var m manifest
	if err := readJSON(path, &m); err != nil {
		return nil, err
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("checkpoint: %s: format %d, this program reads %d", path, m.Format, manifestFormat)
	}
	if step, ok := stepOf(filepath.Base(dir)); ok && step != m.Step {
		return nil, fmt.Errorf("checkpoint: %s: is of step %d; the folder was renamed", path, m.Step)
	}
	for _, file := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(file.Path)) {
			return nil, fmt.Errorf("checkpoint: %s: %q lies outside the checkpoint", path, file.Path)
		}
	}
	if len(m.Files) == 0 {
		return nil, fmt.Errorf("checkpoint: %s: lists no files", path)
	}
	return &m, nil
}

// checkSizes finds missing and cut files without reading them.
func (m *manifest) checkSizes(dir string) error {
	for _, file := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(file.Path))
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		if !info.Mode().IsRegular() || info.Size() != file.Size {
			return fmt.Errorf("checkpoint: %s: %d bytes, want %d; it was cut or changed", path, info.Size(), file.Size)
		}
	}
	return nil
}

// hash returns the size and the SHA-256 of a file.
func hash(path string) (size int64, sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	return hashFile(file)
}

// hashAndSync is hash, and flushes the file to the disk.
func hashAndSync(path string) (size int64, sum string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0) // some systems flush only what is open for writing
	if err != nil {
		return 0, "", err
	}
	size, sum, err = hashFile(file)
	return size, sum, errors.Join(err, file.Sync(), file.Close())
}

func hashFile(file *os.File) (size int64, sum string, err error) {
	h := sha256.New()
	size, err = io.Copy(h, file)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// syncDir flushes the names in a folder to the disk; Windows has no such call.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// writeJSON writes a value, indented, and flushes it to the disk.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// writeJSONAtomic is writeJSON for a file that others may read meanwhile: it is replaced whole or not at all.
func writeJSONAtomic(path string, value any) error {
	dir := filepath.Dir(path)
	tmp := filepath.Join(dir, tmpPrefix+filepath.Base(path))
	err := writeJSON(tmp, value)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return syncDir(dir)
}

// readJSON reads one value strictly: unknown fields and anything after the value are errors.
func readJSON(path string, value any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("checkpoint: %s: data after the end", path)
	}
	return nil
}
