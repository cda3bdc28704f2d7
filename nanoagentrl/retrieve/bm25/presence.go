package bm25

import "sync"

// presences remember, for terms that many passages hold, which do, and which more than once, as one bit a passage each, and
// what the term adds to a score. Most look-ups of such a term end there, without its postings. They are made when a term is
// asked for; those of the terms that most passages hold stay.
type presences struct {
	lock  sync.RWMutex
	terms map[string]*presence
	most  int // how many may be remembered
	least int // the df that a term must exceed to be remembered
}

type presence struct {
	entry
	bits []uint64 // in whole windows
	// repeated has the bits of the passages that hold the term more than once.
	repeated []uint64
	// parts is what the term adds to a passage if it stands in the query once: 0 for one that does not hold it.
	parts scoreTable
}

// scoreTable holds what a term adds to a score, by frequency and length as a byte, for the usual frequencies.
type scoreTable [tabulated + 1][256]float32

const tabulated = 4

// A term is worth a presence if at least one passage of presenceShare holds it, and presencePassages do. All together take
// presenceBytes or, in a large index, as much as presenceTerms of them.
const (
	presenceShare    = 256
	presencePassages = 512
	presenceBytes    = 64 << 20
	presenceTerms    = 64
)

// prepare sets the bounds for an index of some passages.
func (p *presences) prepare(passages int) {
	p.most = max(presenceTerms, presenceBytes/(2*passages/8+4*256*(tabulated+1)))
	p.least = max(presencePassages-1, passages/presenceShare)
	p.terms = map[string]*presence{}
}

// known returns the presence of a term; nil if there is none.
func (p *presences) known(term string) *presence {
	p.lock.RLock()
	defer p.lock.RUnlock()
	return p.terms[term]
}

// worthy reports whether a term of some df is worth a presence.
func (p *presences) worthy(df int) bool {
	p.lock.RLock()
	defer p.lock.RUnlock()
	return df > p.least
}

// presence makes the presence of a term.
func (x *Index) presence(term string, e entry) (*presence, error) {
	words := (x.counts.Passages + window - 1) / window * (window / 64)
	made := &presence{entry: e, bits: make([]uint64, words), repeated: make([]uint64, words)}
	c := new(cursor)
	if err := x.openList(c, e); err != nil {
		return nil, err
	}
	more, err := c.advance(0)
	for ; more && err == nil; more, err = c.advance(c.end + 1) {
		for i, doc := range c.unpacked.docs[:c.unpacked.n] {
			made.bits[doc/64] |= 1 << (doc % 64)
			if c.unpacked.freq(i) > 1 {
				made.repeated[doc/64] |= 1 << (doc % 64)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	weight := x.idf(e.df)
	for freq := 1; freq <= tabulated; freq++ {
		for length := range made.parts[freq] {
			made.parts[freq][length] = x.part(weight, uint32(freq), uint8(length))
		}
	}
	x.presences.add(term, made)
	return made, nil
}

// holds returns 1 for a passage that holds the term, else 0.
func (p *presence) holds(doc uint32) uint64 { return p.bits[doc/64] >> (doc % 64) & 1 }

// repeats reports whether a passage holds the term more than once.
func (p *presence) repeats(doc uint32) bool { return p.repeated[doc/64]>>(doc%64)&1 == 1 }

// add remembers a presence. If they are too many now, that of the smallest df goes, and none as small is made any more.
func (p *presences) add(term string, added *presence) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.terms[term] = added
	if len(p.terms) <= p.most {
		return
	}
	rarest := term
	for other, held := range p.terms {
		if held.df < p.terms[rarest].df {
			rarest = other
		}
	}
	p.least = max(p.least, p.terms[rarest].df)
	delete(p.terms, rarest)
}
