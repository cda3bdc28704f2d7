package bm25

import (
	"context"
	"fmt"
	"math"
)

// Search returns the passages that hold at least one term of the query, best first, at most topk; those of equal score
// in the order of the corpus. A term that stands several times in the query counts as often. It fails when ctx ends, on
// a topk below 1, and where it notices that the index is damaged.
func (x *Index) Search(ctx context.Context, query string, topk int) ([]Hit, error) {
	if topk < 1 {
		return nil, fmt.Errorf("topk is %d, but must be at least 1", topk)
	}
	if err := x.hold(); err != nil {
		return nil, err
	}
	defer x.release()
	s := x.scans.Get().(*scan)
	s.best.reset(min(topk, x.counts.Passages))
	if err := s.open(x, query); err != nil {
		return nil, err
	}
	var err error
	if s.best.limit, err = s.prime(s.best.size); err != nil {
		return nil, err
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	hits := s.best.sorted()
	x.scans.Put(s) // After an error there may be scores left in it.
	return hits, nil
}

// scan is the work on one query. It goes through the corpus window by window and adds term by term within each. Once
// topk passages are known, the terms whose bounds together cannot lift a passage over the worst of these ("MaxScore",
// Turtle and Flood 1995) are no longer read through, but looked up for the passages the other terms bring. The bounds
// are those of the blocks in the window (Ding and Suel 2011), so that whole windows may be passed over.
type scan struct {
	index *Index
	terms []*queryTerm // the front of pool, whose memory is used again
	pool  []*queryTerm
	place map[string]*queryTerm // the terms by their text; nil for those that no passage holds
	// rest[i] is the most that the terms from i on can add: to any passage, and to one of the window.
	rest, restHere []float64
	primer         cursor    // of prime
	reached        []float64 // of prime
	best           topHits
	windowScores
}

func (s *scan) run(ctx context.Context) error {
	needed := len(s.terms) // terms[:needed] may lift a passage into the best by themselves
	from := uint32(0)      // passages before it are done with
	for windows := 0; ; windows++ {
		if windows%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for needed > 0 && s.best.cannotBeat(s.rest[needed-1]) {
			needed--
		}
		first, more := s.nextDoc(needed, from)
		if !more {
			return nil
		}
		begin := first &^ (window - 1)
		here := s.neededHere(begin, needed)
		if err := s.scoreWindow(begin, here); err != nil {
			return err
		}
		if begin > math.MaxUint32-window {
			return nil
		}
		from = begin + window
	}
}

// nextDoc returns a passage from the given one on that is not after the first one not yet scored among those of the first
// terms.
func (s *scan) nextDoc(terms int, from uint32) (doc uint32, more bool) {
	doc = math.MaxUint32
	for _, t := range s.terms[:terms] {
		if t.skip(from); !t.ended() {
			doc, more = min(doc, max(from, t.next())), true
		}
	}
	return doc, more
}

// neededHere sets restHere and returns how many of the first terms must be read through in the window.
func (s *scan) neededHere(begin uint32, needed int) int {
	if s.best.limit < 0 {
		copy(s.restHere, s.rest)
		for _, t := range s.terms {
			t.here = t.most
		}
		return needed
	}
	end := begin + window
	if end < begin {
		end = math.MaxUint32
	}
	for i := len(s.terms) - 1; i >= 0; i-- {
		t := s.terms[i]
		t.here = t.within(s.index, begin, end)
		s.restHere[i] = s.restHere[i+1] + t.here
	}
	for needed > 0 && s.best.cannotBeat(s.restHere[needed-1]) {
		needed--
	}
	return needed
}
