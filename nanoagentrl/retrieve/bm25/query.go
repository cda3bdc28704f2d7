package bm25

import (
	"cmp"
	"slices"
	"strings"
)

// queryTerm is one distinct term of a query and the place its postings were read up to.
type queryTerm struct {
	text   string
	count  int
	weight float32 // count · idf
	most   float64 // the most the term can add to a score
	here   float64 // the most it can add in the current window
	cursor
	present *presence   // nil if it is not known which passages hold the term
	parts   *scoreTable // what the term adds; nil if it has no presence or stands in the query more than once
	list    []byte      // the postings, and what follows
	// boundBlock is the number of the block of which bound is the bound for weight 1, or -1.
	boundBlock int
	bound      float32
}

// open finds the distinct terms of a query that the index knows, those that can add most first. The order is that in
// which all scores are summed, so that equal passages get equal scores to the last bit.
func (s *scan) open(x *Index, query string) error {
	s.index, s.terms = x, s.pool[:0]
	if s.place == nil {
		s.place = map[string]*queryTerm{}
	}
	clear(s.place)
	for _, text := range x.options.Terms(query) {
		if t, seen := s.place[text]; seen {
			if t != nil {
				t.count++
			}
			continue
		}
		t, err := s.openTerm(text)
		if err != nil {
			return err
		}
		s.place[text] = t
	}
	s.weigh()
	return nil
}

// openTerm adds a term to those of the query and returns it; nil if no passage holds it.
func (s *scan) openTerm(text string) (*queryTerm, error) {
	x := s.index
	present := x.presences.known(text)
	var found entry
	if present != nil {
		found = present.entry
	} else {
		var known bool
		var err error
		if found, known, err = x.dictionary.find(text); err != nil || !known {
			return nil, err
		}
		if x.presences.worthy(found.df) {
			if present, err = x.presence(strings.Clone(text), found); err != nil {
				return nil, err
			}
		}
	}
	if len(s.terms) == len(s.pool) {
		s.pool = append(s.pool, new(queryTerm))
	}
	s.terms = s.pool[:len(s.terms)+1]
	t := s.terms[len(s.terms)-1]
	if err := x.openList(&t.cursor, found); err != nil {
		return nil, err
	}
	t.text, t.count, t.present, t.list, t.boundBlock = text, 1, present, x.postings[found.place:], -1
	return t, nil
}

// weigh computes what the terms can add and sorts them by it.
func (s *scan) weigh() {
	x := s.index
	for _, t := range s.terms {
		t.weight = float32(t.count) * x.idf(t.df)
		t.most = t.scale(x.mostOf(&t.cursor))
		t.parts = nil
		if t.present != nil && t.count == 1 {
			t.parts = &t.present.parts
		}
	}
	slices.SortFunc(s.terms, func(a, b *queryTerm) int {
		return cmp.Or(-cmp.Compare(a.most, b.most), cmp.Compare(a.text, b.text))
	})
	s.rest = slices.Grow(s.rest[:0], len(s.terms)+1)[:len(s.terms)+1]
	s.restHere = slices.Grow(s.restHere[:0], len(s.terms)+1)[:len(s.terms)+1]
	s.rest[len(s.terms)], s.restHere[len(s.terms)] = 0, 0
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
		if b != t.boundBlock {
			t.boundBlock, t.bound = b, x.bound(t.entry(b)[8:])
		}
		most = max(most, t.bound)
	}
	return t.scale(most)
}

// look returns what the term adds to a passage, where that is known without its postings.
func (t *queryTerm) look(x *Index, doc uint32) (adds float64, known bool) {
	if t.present == nil {
		return 0, false
	}
	switch times := t.present.of(doc); {
	case times == absent:
		return 0, true
	case times == once && t.parts != nil:
		return float64(t.parts[1][x.lengths[doc]]), true
	}
	return 0, false
}

// score returns what posting i of the unpacked block adds.
func (t *queryTerm) score(x *Index, i int) float64 {
	freq, length := t.unpacked.freq(i), x.lengths[t.unpacked.docs[i]]
	if t.parts != nil && freq <= tabulated {
		return float64(t.parts[freq][length])
	}
	return float64(x.part(t.weight, freq, length))
}
