package bm25

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/analysis"
)

// segment is the index of a run of passages, made to be merged with others. Its postings are, for each term in the order
// of their bytes: the number of bytes of the term, these, the number of its passages, the number of bytes that follow,
// and for each passage the gap to the one before (the first counted from the first passage of the segment) times two,
// plus one if the term stands there once; else the frequency less two follows. All numbers are varints. A term of no
// bytes ends the list.
type segment struct {
	// lengths holds the number of terms of each passage as a Lucene byte.
	lengths []uint8
	// tokens is the number of terms of all passages, nonEmpty the number of passages that have one.
	tokens, nonEmpty int
	postings         []byte
}

// forward holds the distinct terms of passages, passage by passage: those of passage d are terms[ends[d-1]:ends[d]].
type forward struct {
	terms []uint32
	freqs []uint16
	ends  []int
}

// index makes a segment.
func index(passages []data.Passage, analyzer analysis.Analyzer) *segment {
	s := &segment{lengths: make([]uint8, len(passages))}
	lists := forward{ends: make([]int, len(passages))}
	// Words repeat: each is stemmed once. Stop words have no term.
	const stopped = math.MaxUint32
	known, terms := map[string]uint32{}, map[string]uint32{}
	var doc []uint32
	for d, passage := range passages {
		doc = doc[:0]
		analyzer.Tokens(passage.Contents, func(token string) {
			id, seen := known[token]
			if !seen {
				id = stopped
				if term := analyzer.Term(token); term != "" {
					if id, seen = terms[term]; !seen {
						id = uint32(len(terms))
						terms[strings.Clone(term)] = id
					}
				}
				known[strings.Clone(token)] = id
			}
			if id != stopped {
				doc = append(doc, id)
			}
		})
		s.lengths[d] = lengthToByte(len(doc))
		s.tokens += len(doc)
		if len(doc) > 0 {
			s.nonEmpty++
		}
		lists.add(d, doc)
	}
	s.postings = lists.invert(terms)
	return s
}

// add appends the terms of passage d and sorts them.
func (f *forward) add(d int, terms []uint32) {
	slices.Sort(terms)
	for i := 0; i < len(terms); {
		next := i + 1
		for next < len(terms) && terms[next] == terms[i] {
			next++
		}
		f.terms = append(f.terms, terms[i])
		f.freqs = append(f.freqs, uint16(min(next-i, math.MaxUint16)))
		i = next
	}
	f.ends[d] = len(f.terms)
}

// invert returns the postings of a segment.
func (f *forward) invert(terms map[string]uint32) []byte {
	starts := make([]int, len(terms)+1)
	for _, t := range f.terms {
		starts[t+1]++
	}
	for t := range len(terms) {
		starts[t+1] += starts[t]
	}
	docs, freqs := make([]uint32, len(f.terms)), make([]uint16, len(f.terms))
	next := slices.Clone(starts)
	begin := 0
	for d, end := range f.ends {
		for i := begin; i < end; i++ {
			at := next[f.terms[i]]
			next[f.terms[i]]++
			docs[at], freqs[at] = uint32(d), f.freqs[i]
		}
		begin = end
	}
	var out, list []byte
	for _, term := range sortedKeys(terms) {
		begin, end := starts[terms[term]], starts[terms[term]+1]
		list = list[:0]
		previous := uint32(0)
		for i := begin; i < end; i++ {
			gap := uint64(docs[i]-previous) << 1
			previous = docs[i]
			if freqs[i] == 1 {
				list = binary.AppendUvarint(list, gap|1)
			} else {
				list = binary.AppendUvarint(list, gap)
				list = binary.AppendUvarint(list, uint64(freqs[i]-2))
			}
		}
		out = binary.AppendUvarint(out, uint64(len(term)))
		out = append(out, term...)
		out = binary.AppendUvarint(out, uint64(end-begin))
		out = binary.AppendUvarint(out, uint64(len(list)))
		out = append(out, list...)
	}
	return append(out, 0)
}

func sortedKeys(terms map[string]uint32) []string {
	keys := make([]string, 0, len(terms))
	for term := range terms {
		keys = append(keys, term)
	}
	slices.Sort(keys)
	return keys
}
