package indexfile

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/edsrzf/mmap-go"
)

// Part is a stretch of a file of an index.
type Part struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
}

// Files are the files of an index, mapped into memory.
type Files struct {
	dir   string
	parts map[string]Part
	files map[string]mmap.MMap
	// using is held for reading by whoever looks into the files.
	using  sync.RWMutex
	closed bool
}

// Map maps the files that the parts of an index in dir lie in.
func Map(dir string, parts map[string]Part) (_ *Files, err error) {
	f := &Files{dir: dir, parts: parts, files: map[string]mmap.MMap{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, p := range parts {
		if _, done := f.files[p.File]; done {
			continue
		}
		if filepath.Base(p.File) != p.File {
			return nil, Damaged(filepath.Join(dir, ManifestName), fmt.Errorf("it names the file %q", p.File))
		}
		if err := f.open(p.File); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Files) open(name string) error {
	file, err := os.Open(filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return Damaged(filepath.Join(f.dir, name), errors.New("the file is missing"))
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
		return Damaged(file.Name(), errors.New("the file is empty"))
	}
	f.files[name], err = mmap.Map(file, mmap.RDONLY, 0)
	if err != nil {
		return fmt.Errorf("%s cannot be mapped into memory: %w", file.Name(), err)
	}
	return nil
}

// Part returns the bytes of a part.
func (f *Files) Part(name string) ([]byte, error) {
	p, ok := f.parts[name]
	file := f.files[p.File]
	if !ok || p.Offset < 0 || p.Size < 0 || p.Size > int64(len(file)) || p.Offset > int64(len(file))-p.Size {
		return nil, Damaged(filepath.Join(f.dir, p.File), fmt.Errorf("it is too short for its %s", name))
	}
	return file[p.Offset : p.Offset+p.Size : p.Offset+p.Size], nil
}

// Check compares the checksum of a part.
func (f *Files) Check(ctx context.Context, name string) error {
	rest, err := f.Part(name)
	if err != nil {
		return err
	}
	crc := uint32(0)
	for len(rest) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(rest), 16<<20)
		crc = crc32.Update(crc, Castagnoli, rest[:n])
		rest = rest[n:]
	}
	if p := f.parts[name]; crc != p.CRC32C {
		return Damaged(filepath.Join(f.dir, p.File), fmt.Errorf("the checksum of its %s differs", name))
	}
	return nil
}

// Verify compares the checksums of all parts.
func (f *Files) Verify(ctx context.Context) error {
	if err := f.Hold(); err != nil {
		return err
	}
	defer f.Release()
	for name := range f.parts {
		if err := f.Check(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Hold keeps the files from being closed until Release. The error is ErrClosed if they are.
func (f *Files) Hold() error {
	f.using.RLock()
	if f.closed {
		f.using.RUnlock()
		return ErrClosed
	}
	return nil
}

// Release ends Hold.
func (f *Files) Release() { f.using.RUnlock() }

// Close waits for those who hold the files and unmaps them.
func (f *Files) Close() error {
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
