package dense

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/atomicfile"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// BuildOptions say how Build makes an index.
type BuildOptions struct {
	// Rebuild discards whatever index the folder holds.
	Rebuild bool
	// Progress is called now and then, perhaps from several goroutines; nil for none.
	Progress func(Progress)
	// lot is the number of passages between two checkpoints; tests make it small.
	lot int
}

// Progress says how far Build has come.
type Progress struct {
	// Stored passages are in the folder, Bytes of the Size of the corpus are read. Once that is done, Encoded of Total
	// passages have their vectors; before, Total is 0.
	Stored         int
	Bytes, Size    int64
	Encoded, Total int
	// Resumed is the number of passages that an earlier call had encoded.
	Resumed int
}

// lotPassages is the number of passages that are encoded between two checkpoints: enough to be put together by their
// length, and a minute or two of work on a small machine.
const lotPassages = 4096

// Build makes the index of a corpus file in a folder: it first stores the passages and then encodes them, lot by lot.
// An index that is there already and belongs to corpus and model is left as it is; another one is an
// *indexfile.MismatchError unless Rebuild is set. When ctx ends, or the process is killed, the next call goes on after
// the last lot, provided that corpus and model are the same; the result is the same to the byte on the same device.
func Build(ctx context.Context, corpus, dir string, encoder *embed.Encoder, o BuildOptions) (*Manifest, error) {
	corpus, err := data.CorpusPath(corpus)
	if err != nil {
		return nil, err
	}
	check := func(m *Manifest) (*Manifest, error) {
		if err := m.CheckModel(dir, encoder.Model()); err != nil {
			return nil, err
		}
		return m, m.Check(ctx, dir, corpus)
	}
	if m, err := ReadManifest(dir); err == nil && !o.Rebuild { // Nothing is written: the folder may be read-only.
		return check(m)
	}
	unlock, err := indexfile.Lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if o.Rebuild {
		if err := discard(dir); err != nil {
			return nil, err
		}
	}
	m, err := ReadManifest(dir)
	if err == nil {
		return check(m)
	}
	if !errors.Is(err, indexfile.ErrNoIndex) {
		return nil, err
	}
	if o.lot == 0 {
		o.lot = lotPassages
	}
	b := &builder{o: o, corpus: corpus, dir: dir, encoder: encoder}
	if m, err = b.build(ctx); err != nil {
		return nil, fmt.Errorf("building the index in %s: %w", dir, err)
	}
	return m, nil
}

// discard removes the files of an index, finished or not, of this kind or another.
func discard(dir string) error {
	for _, name := range []string{indexfile.ManifestName, storedName, journalName, vectorsName, indexfile.PassagesName,
		indexfile.PlacesName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// builder is an index under construction.
type builder struct {
	o           BuildOptions
	corpus, dir string
	encoder     *embed.Encoder
}

// begun is what a folder notes of a build once the passages are stored.
type begun struct {
	indexfile.Stored
	Model embed.Model `json:"model"`
	Lot   int         `json:"lot"`
}

func (b *builder) build(ctx context.Context) (*Manifest, error) {
	s, err := b.resume(ctx)
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = b.store(ctx); err != nil {
			return nil, err
		}
	}
	vectors, err := b.encode(ctx, s)
	if err != nil {
		return nil, err
	}
	m := &Manifest{Head: indexfile.Head{Kind: Kind, Format: format}, Corpus: s.Corpus, Model: s.Model, Passages: s.Passages,
		Parts: s.Parts}
	m.Parts[partVectors] = vectors
	if err := indexfile.WriteManifest(b.dir, m); err != nil {
		return nil, err
	}
	return m, errors.Join(os.Remove(filepath.Join(b.dir, journalName)), os.Remove(filepath.Join(b.dir, storedName)))
}

// resume returns what an earlier call has stored, nil if there is nothing or it is of another corpus or model.
func (b *builder) resume(ctx context.Context) (*begun, error) {
	text, err := os.ReadFile(filepath.Join(b.dir, storedName))
	s := new(begun)
	if err != nil || json.Unmarshal(text, s) != nil || s.Model != b.encoder.Model() || s.Lot != b.o.lot {
		return nil, nil
	}
	if s.Corpus.Check(ctx, b.dir, b.corpus, s.Passages) != nil {
		return nil, ctx.Err()
	}
	return s, nil
}

func (b *builder) store(ctx context.Context) (*begun, error) {
	if err := discard(b.dir); err != nil {
		return nil, err
	}
	stored, err := indexfile.Store(ctx, b.corpus, b.dir, func(passages int, bytes, size int64) {
		b.report(Progress{Stored: passages, Bytes: bytes, Size: size})
	})
	if err != nil {
		return nil, err
	}
	s := &begun{Stored: *stored, Model: b.encoder.Model(), Lot: b.o.lot}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return s, atomicfile.Write(filepath.Join(b.dir, storedName), text)
}

func (b *builder) report(p Progress) {
	if b.o.Progress != nil {
		b.o.Progress(p)
	}
}

// checkpoint is a line of the journal: the number of passages whose vectors are on the disk, and the checksum of these.
type checkpoint struct {
	Passages int    `json:"passages"`
	CRC32C   uint32 `json:"crc32c"`
}

// encode writes the vectors that are missing and returns where they lie.
func (b *builder) encode(ctx context.Context, s *begun) (part indexfile.Part, err error) {
	files, err := indexfile.Map(b.dir, s.Parts)
	if err != nil {
		return part, err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	if err := files.Verify(ctx); err != nil {
		return part, err
	}
	stored := new(indexfile.Passages)
	if stored.Places, err = files.Part(indexfile.PartPlaces); err != nil {
		return part, err
	}
	if stored.Texts, err = files.Part(indexfile.PartPassages); err != nil {
		return part, err
	}
	j, err := openJournal(ctx, b.dir, 2*b.encoder.Dim())
	if err != nil {
		return part, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	p := Progress{Stored: s.Passages, Bytes: s.Corpus.Size, Size: s.Corpus.Size, Total: s.Passages, Resumed: j.at.Passages}
	for j.at.Passages < s.Passages {
		begin := j.at.Passages
		lot := make([]data.Passage, min(b.o.lot, s.Passages-begin))
		for i := range lot {
			if lot[i], err = stored.Passage(begin + i); err != nil {
				return part, err
			}
		}
		vectors, err := encodeLot(ctx, b.encoder, lot, func(done int) {
			q := p
			q.Encoded = begin + done
			b.report(q)
		})
		if err != nil {
			return part, err
		}
		if err := j.append(vectors, len(lot)); err != nil {
			return part, err
		}
	}
	p.Encoded = s.Passages
	b.report(p)
	return indexfile.Part{File: vectorsName, Size: int64(s.Passages) * int64(2*b.encoder.Dim()), CRC32C: j.at.CRC32C}, nil
}

// journal is the memory of a build: the vectors, and a line for each lot of them that is on the disk.
type journal struct {
	lines, vectors *os.File
	at             checkpoint
}

// openJournal opens the files of a build and cuts them where the last whole lot ends. width is the size of a vector in
// bytes.
func openJournal(ctx context.Context, dir string, width int) (_ *journal, err error) {
	j := new(journal)
	defer func() {
		if err != nil {
			err = errors.Join(err, j.close())
		}
	}()
	for name, file := range map[string]**os.File{journalName: &j.lines, vectorsName: &j.vectors} {
		if *file, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
			return nil, err
		}
	}
	size, crc, read := int64(0), crc32.New(indexfile.Castagnoli), 0
	vectors := bufio.NewReaderSize(&indexfile.Patient{Ctx: ctx, In: j.vectors}, 1<<20)
	in := bufio.NewReader(j.lines)
	for {
		line, err := in.ReadBytes('\n')
		var c checkpoint
		if err != nil || json.Unmarshal(line, &c) != nil || c.Passages <= read {
			break // the end, or what a crash has left
		}
		_, err = io.CopyN(crc, vectors, int64(c.Passages-read)*int64(width))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil || crc.Sum32() != c.CRC32C {
			break
		}
		read, j.at, size = c.Passages, c, size+int64(len(line))
	}
	for file, end := range map[*os.File]int64{j.lines: size, j.vectors: int64(j.at.Passages) * int64(width)} {
		if err := file.Truncate(end); err != nil {
			return nil, err
		}
		if _, err := file.Seek(end, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// append writes the vectors of some passages and then, once they are on the disk, a line.
func (j *journal) append(vectors []byte, passages int) error {
	if _, err := j.vectors.Write(vectors); err != nil {
		return err
	}
	if err := j.vectors.Sync(); err != nil {
		return err
	}
	next := checkpoint{j.at.Passages + passages, crc32.Update(j.at.CRC32C, indexfile.Castagnoli, vectors)}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if _, err := j.lines.Write(append(text, '\n')); err != nil {
		return err
	}
	j.at = next
	return j.lines.Sync()
}

func (j *journal) close() error {
	var failed error
	for _, file := range []*os.File{j.lines, j.vectors} {
		if file != nil {
			failed = errors.Join(failed, file.Close())
		}
	}
	return failed
}
