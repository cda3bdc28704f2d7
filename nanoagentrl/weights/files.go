package weights

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// pendingFiles are files of one folder that are written under temporary names first, so that an error, such as a full
// disk, leaves all files that were there before as they were.
type pendingFiles struct {
	dir   string
	names []string
}

const temporarySuffix = ".tmp"

// write writes one file under its temporary name and flushes it to disk. An error names the file.
func (p *pendingFiles) write(name string, write func(w io.Writer) error) error {
	path := filepath.Join(p.dir, name)
	file, err := os.Create(path + temporarySuffix)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	p.names = append(p.names, name)
	buffered := bufio.NewWriterSize(file, 1<<20)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// commit gives the files their names, in the order in which they were written.
func (p *pendingFiles) commit() error {
	for len(p.names) > 0 {
		path := filepath.Join(p.dir, p.names[0])
		if err := os.Rename(path+temporarySuffix, path); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		p.names = p.names[1:]
	}
	return syncDir(p.dir)
}

// discard removes what has not been committed; it does nothing after commit.
func (p *pendingFiles) discard() error {
	var errs []error
	for _, name := range p.names {
		errs = append(errs, os.Remove(filepath.Join(p.dir, name)+temporarySuffix))
	}
	p.names = nil
	return errors.Join(errs...)
}

// writeFile writes one file, so that path never names a file that is incomplete, even after a power failure.
func writeFile(path string, write func(w io.Writer) error) error {
	p := pendingFiles{dir: filepath.Dir(path)}
	err := p.write(filepath.Base(path), write)
	if err == nil {
		err = p.commit()
	}
	return errors.Join(err, p.discard())
}

// contents returns a function that writes a file's whole text.
func contents(text []byte) func(w io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
}

// syncDir flushes a folder's entries to disk, where the system can do that.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("flush folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
