package bm25

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// BuildOptions say how Build makes an index.
type BuildOptions struct {
	analysis.Analyzer
	// Rebuild discards whatever index the folder holds.
	Rebuild bool
	// Progress is called after each lot of passages and while postings are merged, from one goroutine; nil for none.
	Progress func(Progress)
	// Workers is the number of goroutines that analyse; 0 is one for each core, at most 16.
	Workers int
	// lines is the number of lines of a lot; tests make it small.
	lines int
}

// Progress says how far Build has come.
type Progress struct {
	// Passages and Bytes are how much of the corpus is indexed; Total is the size of the corpus in bytes.
	Passages     int
	Bytes, Total int64
	// Resumed is the number of passages that an earlier call had indexed.
	Resumed int
	// Merging says that the whole corpus is indexed and postings are being merged; Terms is the number of those done.
	Merging bool
	Terms   int
}

// lotBytes bounds the text of a lot.
const lotBytes = 32 << 20

// Build makes the index of a corpus file in a folder, on all cores, in memory that hardly grows with the corpus: some
// 100 bytes a passage. An index that is there already and belongs to the corpus is left as it is; another one is a
// *MismatchError unless Rebuild is set. When ctx ends, or the process is killed, the next call goes on from the last lot
// of passages, provided that the corpus up to there is the same.
func Build(ctx context.Context, corpus, dir string, o BuildOptions) (*Manifest, error) {
	corpus, err := data.CorpusPath(corpus)
	if err != nil {
		return nil, err
	}
	if m, err := ReadManifest(dir); err == nil && !o.Rebuild { // Nothing is written: the folder may be read-only.
		return m, m.Check(ctx, dir, corpus, o.Analyzer)
	}
	unlock, err := indexfile.Lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if o.Rebuild {
		for _, name := range []string{manifestName, journalName, segmentsName, passagesName, indexName} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
	}
	m, err := ReadManifest(dir)
	if err == nil {
		return m, m.Check(ctx, dir, corpus, o.Analyzer)
	}
	if !errors.Is(err, ErrNoIndex) {
		return nil, err
	}
	return build(ctx, corpus, dir, o)
}

// ErrNoWords is the fault of a corpus in which nothing can be found.
var ErrNoWords = errors.New("no passage has a word that could be searched for; are all contents empty?")

// builder is an index under construction.
type builder struct {
	o       BuildOptions
	path    string // of the corpus
	dir     string
	corpus  *data.CorpusReader
	total   int64
	journal *journal
	lengths []uint8
	places  []uint64
	// docOf finds a passage by the hash of its id.
	docOf   map[uint64]uint32
	resumed int
}

func build(ctx context.Context, path, dir string, o BuildOptions) (m *Manifest, err error) {
	o.Workers = cmp.Or(o.Workers, min(runtime.GOMAXPROCS(0), 16))
	o.lines = cmp.Or(o.lines, segmentLines)
	b := &builder{o: o, path: path, dir: dir, docOf: map[uint64]uint32{}}
	if b.corpus, err = data.OpenCorpus(path); err != nil {
		return nil, err
	}
	defer b.corpus.Close()
	if b.total, err = b.corpus.Size(); err != nil {
		return nil, err
	}
	if b.journal, err = openJournal(dir, o.Analyzer); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && (b.journal.empty() || b.journal.at.Tokens == 0) {
			err = errors.Join(err, b.journal.discard()) // There is nothing to go on from.
		}
		err = errors.Join(err, b.journal.close())
	}()
	if err := b.resume(ctx); err != nil {
		return nil, err
	}
	if err := b.indexRest(ctx); err != nil {
		return nil, err
	}
	if b.journal.at.Passages == 0 {
		return nil, fmt.Errorf("%s holds no passages", path)
	}
	if b.journal.at.Tokens == 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrNoWords)
	}
	if m, err = b.finish(ctx); err != nil {
		return nil, err
	}
	return m, b.journal.remove()
}

// lot is a run of passages on its way through the workers.
type lot struct {
	lines    *data.Lines
	sha256   string // of the corpus up to its end
	passages []data.Passage
	lineOf   []int
	segment  *segment
	err      error
}

// indexRest indexes what is left of the corpus. Lots are read in order, analysed side by side, and stored in order.
func (b *builder) indexRest(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	places := make(chan struct{}, b.o.Workers)
	lots := make(chan chan *lot, b.o.Workers)
	go func() {
		defer close(lots)
		for {
			lines, err := b.corpus.Next(b.o.lines, lotBytes)
			if errors.Is(err, io.EOF) {
				return
			}
			done := make(chan *lot, 1)
			l := &lot{lines: lines, err: err}
			if err == nil {
				b.journal.digest.Write(lines.Text)
				l.sha256 = indexfile.HexSum(b.journal.digest)
			}
			select {
			case lots <- done:
			case <-ctx.Done():
				return
			}
			if err != nil {
				done <- l
				return
			}
			places <- struct{}{}
			go func() {
				l.analyse(b.o.Analyzer)
				done <- l
				<-places
			}()
		}
	}()
	for done := range lots {
		l := <-done
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("building the index in %s: %w", b.dir, err)
		}
		if l.err != nil {
			return l.err
		}
		if err := b.store(l); err != nil {
			return err
		}
		b.report(Progress{})
	}
	return ctx.Err()
}

func (l *lot) analyse(analyzer analysis.Analyzer) {
	if l.passages, l.lineOf, l.err = l.lines.Passages(); l.err != nil {
		return
	}
	l.lines.Text = nil
	l.segment = index(l.passages, analyzer)
}

// report completes a progress and hands it on.
func (b *builder) report(p Progress) {
	if b.o.Progress != nil {
		p.Passages, p.Bytes, p.Total, p.Resumed = b.journal.at.Passages, b.journal.at.End, b.total, b.resumed
		b.o.Progress(p)
	}
}

// store adds a lot to the files and notes it in the journal.
func (b *builder) store(l *lot) error {
	if uint64(b.journal.at.Passages+len(l.passages)) > math.MaxUint32 {
		return fmt.Errorf("%s: an index takes at most %d passages", b.path, uint32(math.MaxUint32))
	}
	var texts []byte
	place := uint64(b.journal.at.PassagesSize)
	for i, p := range l.passages {
		doc := len(b.places)
		if first, seen := b.docOf[indexfile.HashID(p.ID)]; seen {
			if err := b.checkRepeated(p.ID, first, texts, l.lineOf[i]); err != nil {
				return err
			}
		}
		b.docOf[indexfile.HashID(p.ID)] = uint32(doc)
		b.places = append(b.places, place+uint64(len(texts)))
		texts = indexfile.AppendPassage(texts, p)
	}
	b.lengths = append(b.lengths, l.segment.lengths...)
	return b.journal.append(l, texts)
}
