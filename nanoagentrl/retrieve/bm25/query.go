package bm25

import (
	"cmp"
	"slices"
)

// queryTerm is one distinct term of a query and the place its postings were read up to.
type queryTerm struct {
	text   string
	count  int
	weight float32 // count · idf
	most   float64 // the most the term can add to a score
	cursor
	// once is what the term adds if it stands in a passage once, by the passage's length; only for terms of many passages.
	once     [256]float32
	tabulate bool
	// present has a bit for each passage that holds the term; nil if it is not known.
	present []uint64
	list    []byte // the postings, and what follows
}

// manyPassages is the number from which on a table of 256 scores pays.
const manyPassages = 512

// open finds the distinct terms of a query that the index knows, those that can add most first. The order is that in
// which all scores are summed, so that equal passages get equal scores to the last bit.
func (s *scan) open(x *Index, query string) error {
	s.index, s.terms = x, s.pool[:0]
	place := map[string]*queryTerm{}
	for _, text := range x.options.Terms(query) {
		if t, seen := place[text]; seen {
			if t != nil {
				t.count++
			}
			continue
		}
		place[text] = nil
		found, known, err := x.dictionary.find(text)
		if err != nil {
			return err
		}
		if !known {
			continue
		}
		if len(s.terms) == len(s.pool) {
			s.pool = append(s.pool, new(queryTerm))
		}
		s.terms = s.pool[:len(s.terms)+1]
		t := s.terms[len(s.terms)-1]
		place[text] = t
		t.text, t.count = text, 1
		if err := x.openList(&t.cursor, found); err != nil {
			return err
		}
		t.list = x.postings[found.place:]
		if t.present, err = x.presence(found); err != nil {
			return err
		}
	}
	s.weigh()
	return nil
}

// weigh computes what the terms can add and sorts them by it.
func (s *scan) weigh() {
	x := s.index
	for _, t := range s.terms {
		t.weight = float32(t.count) * x.idf(t.df)
		t.most = t.scale(x.mostOf(&t.cursor))
		if t.tabulate = t.df >= manyPassages; t.tabulate {
			for length := range t.once {
				t.once[length] = x.part(t.weight, 1, uint8(length))
			}
		}
	}
	slices.SortFunc(s.terms, func(a, b *queryTerm) int {
		return cmp.Or(-cmp.Compare(a.most, b.most), cmp.Compare(a.text, b.text))
	})
	s.rest = append(s.rest[:0], make([]float64, len(s.terms)+1)...)
	s.restHere = append(s.restHere[:0], s.rest...)
	for i := len(s.terms) - 1; i >= 0; i-- {
		s.rest[i] = s.rest[i+1] + s.terms[i].most
	}
}

// openList puts a cursor before the postings of a term.
func (x *Index) openList(c *cursor, e entry) error {
	room := uint64(len(x.postings) - slack)
	if e.size > room || e.place > room-e.size || e.df < 1 || e.df > x.counts.Passages {
		return ErrDamaged
	}
	return c.open(x.postings[e.place:], e.df, x.counts.Passages)
}

// mostOf returns the most that a posting of a list can add for weight 1.
func (x *Index) mostOf(c *cursor) float32 {
	if c.impact != nil {
		return x.bound(c.impact)
	}
	most := float32(0)
	for i, doc := range c.unpacked.docs[:c.unpacked.n] {
		most = max(most, x.part(1, c.unpacked.freq(i), x.lengths[doc]))
	}
	return most
}

// scale turns a bound for weight 1 into one for the term; the margin covers the float32 rounding of both.
func (t *queryTerm) scale(bound float32) float64 { return float64(t.weight) * (float64(bound) + 1e-6) }

// within returns the most that the term can add to a passage from begin to end - 1. For a term of which a window holds many
// postings that is as much as it can add anywhere, as a rule, and is not looked up.
func (t *queryTerm) within(x *Index, begin, end uint32) float64 {
	if t.df > x.counts.Passages/(window/blockSize) {
		return t.most
	}
	t.skip(begin)
	if t.table == nil {
		if t.ended() || t.doc() >= end {
			return 0
		}
		return t.most
	}
	most := float32(0)
	for b := t.block; b < t.blocks && (b == t.block || t.last(b-1)+1 < end); b++ {
		most = max(most, x.bound(t.entry(b)[8:]))
	}
	return t.scale(most)
}

// absent reports whether a passage is known not to hold the term.
func (t *queryTerm) absent(doc uint32) bool {
	return t.present != nil && t.present[doc/64]>>(doc%64)&1 == 0
}

// score returns what posting i of the unpacked block adds.
func (t *queryTerm) score(x *Index, i int) float64 {
	freq, length := t.unpacked.freq(i), x.lengths[t.unpacked.docs[i]]
	if freq == 1 && t.tabulate {
		return float64(t.once[length])
	}
	return float64(x.part(t.weight, freq, length))
}
