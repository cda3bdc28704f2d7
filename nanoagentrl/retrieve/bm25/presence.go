package bm25

import "sync"

// presences remember, for terms that many passages hold, which do, as one bit a passage. Most look-ups of such a term end
// there, without its postings. They are made when a term is asked for; those of the terms that most passages hold stay.
type presences struct {
	lock  sync.RWMutex
	terms map[uint64]*presence // by the place of the postings
	most  int                  // how many may be remembered
	least int                  // the df that a term must exceed to be remembered
}

type presence struct {
	df   int
	bits []uint64
}

// A term is worth a presence if at least one passage of presenceShare holds it. All together take presenceBytes or, in a
// large index, as much as presenceTerms of them.
const (
	presenceShare = 256
	presenceBytes = 64 << 20
	presenceTerms = 64
)

// prepare sets the bounds for an index of some passages.
func (p *presences) prepare(passages int) {
	p.most = max(presenceTerms, presenceBytes/(passages/8+8))
	p.least = max(manyPassages-1, passages/presenceShare)
	p.terms = map[uint64]*presence{}
}

// presence returns the bits of a term; nil if there are none.
func (x *Index) presence(e entry) ([]uint64, error) {
	p := &x.presences
	p.lock.RLock()
	known, least := p.terms[e.place], p.least
	p.lock.RUnlock()
	if known != nil {
		return known.bits, nil
	}
	if e.df <= least {
		return nil, nil
	}
	bits := make([]uint64, (x.counts.Passages+63)/64)
	c := new(cursor)
	if err := x.openList(c, e); err != nil {
		return nil, err
	}
	more, err := c.advance(0)
	for ; more && err == nil; more, err = c.advance(c.end + 1) {
		for _, doc := range c.unpacked.docs[:c.unpacked.n] {
			bits[doc/64] |= 1 << (doc % 64)
		}
	}
	if err != nil {
		return nil, err
	}
	p.add(e.place, &presence{e.df, bits})
	return bits, nil
}

// add remembers a presence. If they are too many now, that of the smallest df goes, and none as small is made any more.
func (p *presences) add(place uint64, added *presence) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.terms[place] = added
	if len(p.terms) <= p.most {
		return
	}
	rarest := place
	for other, held := range p.terms {
		if held.df < p.terms[rarest].df {
			rarest = other
		}
	}
	p.least = max(p.least, p.terms[rarest].df)
	delete(p.terms, rarest)
}
