// Package bm25 is an inverted index that ranks passages as Lucene's BM25Similarity does, in memory or in a folder that is
// mapped into memory. docs/retrieval.md describes the format.
package bm25

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/indexfile"
)

// Options are the parameters of BM25, and of the analysis of text.
type Options struct {
	// K1 is at least 0: how much a repeated term adds.
	K1 float64
	// B is between 0 and 1: how far long passages are marked down.
	B float64
	// Analyzer is that of passages and queries. An index in a folder has its own.
	analysis.Analyzer
}

// Default returns Anserini's parameters, k1 0.9 and b 0.4, and its analysis.
func Default() Options { return Options{K1: 0.9, B: 0.4} }

func (o Options) validate() error {
	switch {
	case !(o.K1 >= 0) || math.IsInf(o.K1, 0):
		return fmt.Errorf("BM25's k1 is %g, but must be at least 0", o.K1)
	case !(o.B >= 0 && o.B <= 1):
		return fmt.Errorf("BM25's b is %g, but must be between 0 and 1", o.B)
	}
	return nil
}

// Index is an inverted index that ranks passages as Lucene's BM25Similarity does (Robertson and Zaragoza, The
// Probabilistic Relevance Framework, 2009, without the constant factor k1+1):
//
//	score(q, d) = Σ_t∈q count(t) · idf(t) · tf / (tf + k1·(1 - b + b·|d|/avg))
//	idf(t)      = ln(1 + (N - df + 0.5) / (df + 0.5))
//
// Title and text of a passage are indexed alike. As in Lucene, N and avg leave passages without a term out, |d| is
// rounded down to one of 256 lengths (exact up to 40 terms, then to four significant bits), and the parts of a score
// are computed in float32. A term more than 65,535 times in one passage counts as 65,535. An Index is not changed after
// it was made, so it is safe for concurrent use; Close waits for searches under way.
type Index struct {
	options  Options
	passages store
	counts   Counts
	average  float32

	dictionary dictionary
	postings   []byte
	// lengths holds the number of terms of each passage as a Lucene byte.
	lengths []uint8
	// inverse is 1 / (k1·(1 - b + b·|d|/avg)) by the byte; saturation holds the part of a score for weight 1, by
	// frequency and byte, for the usual frequencies.
	inverse    [256]float32
	saturation [16][256]float32

	presences presences
	scans     sync.Pool
	// manifest and files are nil in memory.
	manifest *Manifest
	files    *indexfile.Files
}

// store holds the passages of an index.
type store interface {
	passage(doc int) (data.Passage, error)
	// size returns the bytes that the store takes on disk; 0 in memory.
	size() int64
}

// inMemory is a store of passages that somebody holds anyway.
type inMemory []data.Passage

func (s inMemory) passage(doc int) (data.Passage, error) { return s[doc], nil }
func (s inMemory) size() int64                           { return 0 }

// Counts say how much there is in an index.
type Counts struct {
	Passages int `json:"passages"`
	// NonEmpty is the number of passages with at least one term, Tokens the number of terms of all passages, each
	// counted as often as it stands there.
	NonEmpty int `json:"non_empty"`
	Tokens   int `json:"tokens"`
	Terms    int `json:"terms"`
	Postings int `json:"postings"`
}

// segmentLines is the number of passages that are indexed at once.
const segmentLines = 32768

// New indexes a corpus in memory, on all cores. The slice is kept, not copied; about 1.5 bytes a posting are added to it.
func New(corpus []data.Passage, options Options) (*Index, error) {
	if len(corpus) == 0 {
		return nil, errors.New("BM25 needs at least one passage")
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	if uint64(len(corpus)) > math.MaxUint32 {
		return nil, fmt.Errorf("BM25 takes at most %d passages, not %d", uint32(math.MaxUint32), len(corpus))
	}
	x := &Index{options: options, passages: inMemory(corpus), lengths: make([]uint8, 0, len(corpus))}
	var readers []io.Reader
	var bases []int
	for i, s := range indexAll(corpus, options.Analyzer) {
		x.lengths = append(x.lengths, s.lengths...)
		x.counts.NonEmpty += s.nonEmpty
		x.counts.Tokens += s.tokens
		readers, bases = append(readers, bytes.NewReader(s.postings)), append(bases, i*segmentLines)
	}
	var postings bytes.Buffer
	m := merger{lengths: x.lengths, out: &postings}
	if err := m.run(context.Background(), readers, bases); err != nil {
		return nil, err
	}
	x.postings, x.dictionary = postings.Bytes(), m.dictionary.dictionary
	x.counts.Passages, x.counts.Terms, x.counts.Postings = len(corpus), m.dictionary.terms, m.postings
	x.prepare()
	return x, nil
}

// indexAll makes the segments of a corpus.
func indexAll(corpus []data.Passage, analyzer analysis.Analyzer) []*segment {
	segments := make([]*segment, (len(corpus)+segmentLines-1)/segmentLines)
	var group sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range segments {
		places <- struct{}{}
		group.Go(func() {
			segments[i] = index(corpus[i*segmentLines:min((i+1)*segmentLines, len(corpus))], analyzer)
			<-places
		})
	}
	group.Wait()
	return segments
}

// prepare computes what depends on k1, b and the mean length.
func (x *Index) prepare() {
	x.average = 1 // of nothing; no posting will read it
	if x.counts.NonEmpty > 0 {
		x.average = float32(float64(x.counts.Tokens) / float64(x.counts.NonEmpty))
	}
	k1, b := float32(x.options.K1), float32(x.options.B)
	for code := range x.inverse {
		x.inverse[code] = 1 / (k1 * ((1 - b) + b*float32(byteToLength(uint8(code)))/x.average))
	}
	for freq := range x.saturation {
		for code := range x.inverse {
			if freq > 0 {
				x.saturation[freq][code] = x.part(1, uint32(freq), uint8(code))
			}
		}
	}
	x.presences.prepare(x.counts.Passages)
	x.scans.New = func() any { return new(scan) }
}

// part returns what a term adds to a passage's score: weight is count·idf, length the passage's as a byte. The form is
// Lucene's, which never falls with a higher frequency, whatever the rounding.
func (x *Index) part(weight float32, freq uint32, length uint8) float32 {
	return weight - weight/(1+float32(freq)*x.inverse[length])
}

// idf returns the inverse document frequency of a term that df passages hold.
func (x *Index) idf(df int) float32 {
	n := float64(df)
	return float32(math.Log(1 + (float64(x.counts.NonEmpty)-n+0.5)/(n+0.5)))
}

// Len returns the number of passages.
func (x *Index) Len() int { return x.counts.Passages }

// Counts returns how much there is in the index.
func (x *Index) Counts() Counts { return x.counts }

// Options returns the parameters of the index.
func (x *Index) Options() Options { return x.options }

// Bytes returns the size of postings, dictionary and lengths in bytes, and that of the stored passages, which is 0 where
// they are held by whoever made the index.
func (x *Index) Bytes() (index, passages int64) {
	n := len(x.postings) + len(x.dictionary.groups) + len(x.dictionary.table) + len(x.lengths)
	return int64(n), x.passages.size()
}

// Passage returns passage doc, counted from 0 in the order of the corpus.
func (x *Index) Passage(doc int) (data.Passage, error) {
	if doc < 0 || doc >= x.counts.Passages {
		return data.Passage{}, fmt.Errorf("there is no passage %d among %d", doc, x.counts.Passages)
	}
	if err := x.hold(); err != nil {
		return data.Passage{}, err
	}
	defer x.release()
	return x.passages.passage(doc)
}
