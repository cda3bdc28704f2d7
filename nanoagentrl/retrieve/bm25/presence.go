package bm25

import "sync"

// presences remember, for terms that many passages hold, how often each does: not, once, or more often, as two bits a
// passage, and what the term adds to a score. Most look-ups of such a term end there, without its postings. They are made
// when a term is asked for; those of the terms that most passages hold stay.
type presences struct {
	lock  sync.RWMutex
	terms map[string]*presence
	most  int // how many may be remembered
	least int // the df that a term must exceed to be remembered
}

type presence struct {
	entry
	times []uint64 // in whole windows
	// once is the most that the term adds to a passage that holds it once.
	once float32
	// parts is what the term adds to a passage if it stands in the query once: 0 for one that does not hold it.
	parts scoreTable
}

// What two bits of times say of a passage. Other bits are not set.
const (
	absent = iota
	once
	repeated

	passagesWord = 32 // the number of passages in a word
)

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
	p.most = max(presenceTerms, presenceBytes/(passages/4+4*256*(tabulated+1)))
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
	windows := (x.counts.Passages + window - 1) / window
	made := &presence{entry: e, times: make([]uint64, windows*(window/passagesWord))}
	weight := x.idf(e.df)
	for freq := 1; freq <= tabulated; freq++ {
		for length := range made.parts[freq] {
			made.parts[freq][length] = x.part(weight, uint32(freq), uint8(length))
		}
	}
	c := new(cursor)
	if err := x.openList(c, e); err != nil {
		return nil, err
	}
	more, err := c.advance(0)
	for ; more && err == nil; more, err = c.advance(c.end + 1) {
		for i, doc := range c.unpacked.docs[:c.unpacked.n] {
			code := uint64(repeated)
			if c.unpacked.freq(i) == 1 {
				code = once
				made.once = max(made.once, made.parts[1][x.lengths[doc]])
			}
			made.times[doc/passagesWord] |= code << (2 * (doc % passagesWord))
		}
	}
	if err != nil {
		return nil, err
	}
	x.presences.add(term, made)
	return made, nil
}

// of returns absent, once or repeated.
func (p *presence) of(doc uint32) uint64 {
	return p.times[doc/passagesWord] >> (2 * (doc % passagesWord)) & 3
}

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
