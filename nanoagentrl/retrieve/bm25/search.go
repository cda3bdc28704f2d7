package bm25

import (
	"context"
	"fmt"
	"math"
	"math/bits"
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
	defer x.scans.Put(s)
	s.best.reset(min(topk, x.counts.Passages))
	if err := s.open(x, query); err != nil {
		return nil, err
	}
	var err error
	if s.best.limit, err = s.prime(s.best.size); err != nil {
		return nil, err
	}
	if err := s.run(ctx); err != nil {
		s.scores, s.seen = [window]float64{}, [window / 64]uint64{}
		return nil, err
	}
	return s.best.sorted(), nil
}

// window is the number of passages that are scored together: their scores stay in the first-level cache.
const window = 2048

// scan is the work on one query. It goes through the corpus window by window and adds term by term within each. Once
// topk passages are known, the terms whose bounds together cannot lift a passage over the worst of these ("MaxScore",
// Turtle and Flood 1995) are no longer read through, but looked up for the passages the other terms bring. The bounds
// are those of the blocks in the window (Ding and Suel 2011), so that whole windows may be passed over.
type scan struct {
	index *Index
	terms []*queryTerm // the front of pool, whose memory is used again
	pool  []*queryTerm
	// rest[i] is the most that the terms from i on can add: to any passage, and to one of the window.
	rest, restHere []float64
	primer         cursor    // of prime
	reached        []float64 // of prime
	best           topHits
	scores         [window]float64
	seen           [window / 64]uint64
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
		return needed
	}
	end := begin + window
	if end < begin {
		end = math.MaxUint32
	}
	for i := len(s.terms) - 1; i >= 0; i-- {
		s.restHere[i] = s.restHere[i+1] + s.terms[i].within(s.index, begin, end)
	}
	for needed > 0 && s.best.cannotBeat(s.restHere[needed-1]) {
		needed--
	}
	return needed
}

// scoreWindow scores the passages of the window that starts at begin and hold one of the first terms.
func (s *scan) scoreWindow(begin uint32, read int) error {
	if read == 1 {
		return s.scoreOne(begin)
	}
	for _, t := range s.terms[:read] {
		if err := s.add(t, begin); err != nil {
			return err
		}
	}
	if read == 0 {
		return nil
	}
	return s.collect(begin, read)
}

// scoreOne is scoreWindow for the first term alone.
func (s *scan) scoreOne(begin uint32) error {
	t := s.terms[0]
	more, err := t.advance(begin)
	for ; more && err == nil; more, err = t.advance(t.end + 1) {
		b := &t.unpacked
		for k := t.at; k < b.n; k++ {
			doc := b.docs[k]
			if doc-begin >= window {
				t.at = k
				return nil
			}
			if err := s.complete(doc, t.score(s.index, k), 1); err != nil {
				return err
			}
		}
	}
	return err
}

// add adds one term to the scores of the window that starts at begin.
func (s *scan) add(t *queryTerm, begin uint32) error {
	more, err := t.advance(begin)
	for ; more && err == nil; more, err = t.advance(t.end + 1) {
		b := &t.unpacked
		for k := t.at; k < b.n; k++ {
			i := b.docs[k] - begin
			if i >= window {
				t.at = k
				return nil
			}
			s.scores[i] += t.score(s.index, k)
			s.seen[i/64] |= 1 << (i % 64)
		}
	}
	return err
}

// collect completes the scores of the passages seen in the window, keeps the best, and clears the window.
func (s *scan) collect(begin uint32, read int) error {
	for word := range s.seen {
		for set := s.seen[word]; set != 0; set &= set - 1 {
			i := word*64 + bits.TrailingZeros64(set)
			score := s.scores[i]
			s.scores[i] = 0
			if err := s.complete(begin+uint32(i), score, read); err != nil {
				return err
			}
		}
		s.seen[word] = 0
	}
	return nil
}

// complete adds what the terms from read on add to a passage, as long as that may lift it into the best. Passages must be
// completed in ascending order.
func (s *scan) complete(doc uint32, score float64, read int) error {
	k := read
	if k < len(s.terms) && s.terms[k].absent(doc) {
		k++ // As a rule, and then the first comparison is the last.
	}
	for ; k < len(s.terms); k++ {
		if s.best.cannotBeat(score + s.restHere[k]) {
			return nil
		}
		t := s.terms[k]
		if t.absent(doc) {
			continue
		}
		more, err := t.advance(doc)
		if err != nil {
			return err
		}
		if more && t.doc() == doc {
			score += t.score(s.index, t.at)
		}
	}
	s.best.add(Hit{Doc: doc, Score: float32(score)})
	return nil
}
