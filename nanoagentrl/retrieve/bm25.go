package retrieve

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"golang.org/x/text/unicode/norm"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
)

// BM25Options are the parameters of BM25.
type BM25Options struct {
	// K1 is at least 0: how much a repeated term adds.
	K1 float64
	// B is between 0 and 1: how far long passages are marked down.
	B float64
	// ComposeAccents puts passages and queries into Unicode's composed form (NFC), so that an accent finds its letter
	// however the two were typed. Lucene does not do it: where a corpus mixes both forms, ranks may differ from it.
	ComposeAccents bool
}

// DefaultBM25 returns Anserini's parameters, k1 0.9 and b 0.4.
func DefaultBM25() BM25Options { return BM25Options{K1: 0.9, B: 0.4} }

// BM25 is an inverted index in memory that ranks passages as Lucene's BM25Similarity does (Robertson and Zaragoza,
// The Probabilistic Relevance Framework, 2009, without the constant factor k1+1):
//
//	score(q, d) = Σ_t∈q count(t) · idf(t) · tf / (tf + k1·(1 - b + b·|d|/avg))
//	idf(t)      = ln(1 + (N - df + 0.5) / (df + 0.5))
//
// Title and text of a passage are indexed alike. As in Lucene, N and avg leave passages without a term out, |d| is
// rounded down to one of 256 lengths (exact up to 40 terms, then to four significant bits), and the parts of a score
// are computed in float32. A term more than 65,535 times in one passage counts as 65,535. A BM25 is not changed after
// it was made, so it is safe for concurrent use.
type BM25 struct {
	passages []data.Passage
	options  BM25Options
	// terms numbers the terms. The postings of term t are docs[starts[t]:starts[t+1]], by ascending passage, and
	// freqs beside them.
	terms  map[string]uint32
	starts []int
	docs   []uint32
	freqs  []uint16
	// most holds for each term the largest tf / (tf + k1·...) of its postings.
	most []float32
	// lengths holds the length of each passage as a Lucene byte; inverse is 1 / (k1·(1 - b + b·|d|/avg)) by the byte.
	lengths  []uint8
	inverse  [256]float32
	nonEmpty int
	average  float32
}

// NewBM25 indexes a corpus. The slice is kept, not copied: about 6 bytes a posting and 1 byte a passage are added to
// it, and about twice that for the time of indexing.
func NewBM25(corpus []data.Passage, options BM25Options) (*BM25, error) {
	switch {
	case len(corpus) == 0:
		return nil, errors.New("retrieve: BM25 needs at least one passage")
	case uint64(len(corpus)) > math.MaxUint32:
		return nil, fmt.Errorf("retrieve: BM25 takes at most %d passages, not %d", uint32(math.MaxUint32), len(corpus))
	case !(options.K1 >= 0) || math.IsInf(options.K1, 0):
		return nil, fmt.Errorf("retrieve: BM25's k1 is %g, but must be at least 0", options.K1)
	case !(options.B >= 0 && options.B <= 1):
		return nil, fmt.Errorf("retrieve: BM25's b is %g, but must be between 0 and 1", options.B)
	}
	index := &BM25{passages: corpus, options: options, terms: map[string]uint32{}, lengths: make([]uint8, len(corpus))}
	lists := index.countTerms()
	index.sortPostings(lists)
	index.boundTerms()
	return index, nil
}

// forward holds the terms of all passages, passage by passage: those of passage d are terms[ends[d-1]:ends[d]].
type forward struct {
	terms []uint32
	freqs []uint16
	ends  []int
}

// countTerms analyses the corpus and sets terms and everything about lengths.
func (x *BM25) countTerms() forward {
	lists := forward{ends: make([]int, len(x.passages))}
	// Tokens repeat: each is stemmed once. Stop words have no term.
	const stopped = math.MaxUint32
	known := map[string]uint32{}
	var doc []uint32
	total := 0
	for d, passage := range x.passages {
		doc = doc[:0]
		tokenize(x.compose(passage.Contents), func(token string) {
			id, seen := known[token]
			if !seen {
				id = stopped
				if term := termOf(token); term != "" {
					id = x.termID(term)
				}
				known[token] = id
			}
			if id != stopped {
				doc = append(doc, id)
			}
		})
		x.lengths[d] = lengthToByte(len(doc))
		total += len(doc)
		if len(doc) > 0 {
			x.nonEmpty++
		}
		slices.Sort(doc)
		for i := 0; i < len(doc); {
			next := i + 1
			for next < len(doc) && doc[next] == doc[i] {
				next++
			}
			lists.terms = append(lists.terms, doc[i])
			lists.freqs = append(lists.freqs, uint16(min(next-i, math.MaxUint16)))
			i = next
		}
		lists.ends[d] = len(lists.terms)
	}
	x.average = 1 // of nothing; no posting will read it
	if x.nonEmpty > 0 {
		x.average = float32(float64(total) / float64(x.nonEmpty))
	}
	k1, b := float32(x.options.K1), float32(x.options.B)
	for code := range x.inverse {
		x.inverse[code] = 1 / (k1 * ((1 - b) + b*float32(byteToLength(uint8(code)))/x.average))
	}
	return lists
}

func (x *BM25) compose(text string) string {
	if x.options.ComposeAccents {
		return norm.NFC.String(text)
	}
	return text
}

func (x *BM25) termID(term string) uint32 {
	id, seen := x.terms[term]
	if !seen {
		id = uint32(len(x.terms))
		x.terms[term] = id
	}
	return id
}

// sortPostings turns the lists of the passages into lists of the terms.
func (x *BM25) sortPostings(lists forward) {
	x.starts = make([]int, len(x.terms)+1)
	for _, t := range lists.terms {
		x.starts[t+1]++
	}
	for t := range len(x.terms) {
		x.starts[t+1] += x.starts[t]
	}
	x.docs = make([]uint32, len(lists.terms))
	x.freqs = make([]uint16, len(lists.terms))
	next := slices.Clone(x.starts)
	begin := 0
	for d, end := range lists.ends {
		for i := begin; i < end; i++ {
			t := lists.terms[i]
			x.docs[next[t]] = uint32(d)
			x.freqs[next[t]] = lists.freqs[i]
			next[t]++
		}
		begin = end
	}
}

func (x *BM25) boundTerms() {
	x.most = make([]float32, len(x.terms))
	for t := range x.most {
		for p := x.starts[t]; p < x.starts[t+1]; p++ {
			x.most[t] = max(x.most[t], x.part(1, p))
		}
	}
}

// part returns what posting p adds to its passage's score for a term of the given weight, count·idf. The form is
// Lucene's, which never falls with a higher frequency, whatever the rounding.
func (x *BM25) part(weight float32, p int) float32 {
	return weight - weight/(1+float32(x.freqs[p])*x.inverse[x.lengths[x.docs[p]]])
}

// idf returns the inverse document frequency of a term.
func (x *BM25) idf(term uint32) float32 {
	df := float64(x.starts[term+1] - x.starts[term])
	return float32(math.Log(1 + (float64(x.nonEmpty)-df+0.5)/(df+0.5)))
}

// BM25Stats say how large an index is.
type BM25Stats struct {
	Passages, Terms, Postings int
	// Bytes is the memory of the postings and the lengths; the corpus itself and the words of the terms come on top.
	Bytes int64
}

// Stats returns the size of the index.
func (x *BM25) Stats() BM25Stats {
	bytes := 8*len(x.starts) + 4*len(x.most) + 6*len(x.docs) + len(x.lengths)
	return BM25Stats{Passages: len(x.passages), Terms: len(x.terms), Postings: len(x.docs), Bytes: int64(bytes)}
}

// freeLengths is the number of lengths that Lucene's SmallFloat keeps as they are.
const freeLengths = 24

// lengthToByte is Lucene's SmallFloat.intToByte4: a length in a byte, exact up to 40, then four significant bits.
func lengthToByte(length int) uint8 {
	if length < freeLengths {
		return uint8(length)
	}
	rest := uint64(min(length, math.MaxInt32) - freeLengths)
	width := bits.Len64(rest)
	if width < 4 {
		return uint8(freeLengths + rest)
	}
	shift := width - 4
	return uint8(freeLengths + (uint64(shift+1)<<3 | rest>>shift&7))
}

// byteToLength is Lucene's SmallFloat.byte4ToInt.
func byteToLength(code uint8) int {
	if code < freeLengths {
		return int(code)
	}
	rest := int(code) - freeLengths
	if rest < 8 {
		return freeLengths + rest
	}
	return freeLengths + (rest&7|8)<<(rest>>3-1)
}
