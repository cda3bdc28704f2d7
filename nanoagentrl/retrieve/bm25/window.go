package bm25

import (
	"math"
	"math/bits"
)

// window is the number of passages that are scored together: their scores stay in the first-level cache.
const window = 4096

// windowScores are the scores of the passages of a window. Which passages are found is hard to foresee, so that the loops
// over them do without branches on it.
type windowScores struct {
	ready bool
	// scores is untouched for passages that were not found. Adding to it gives the sum as from 0.
	scores [window]float64
	// found holds the passages found, in no order, and kept those of them that may be among the best.
	found, kept [window + 1]uint16
	keptScores  [window + 1]float64
	keptBits    windowBits
}

// windowBits has a bit for each passage of a window, windowTimes two, as presence has.
type (
	windowBits  [window / 64]uint64
	windowTimes [window / passagesWord]uint64
)

var (
	untouched = math.Copysign(0, -1)
	unknown   windowTimes
)

// prepare clears the scores before the first window.
func (s *windowScores) prepare() {
	if s.ready {
		return
	}
	for i := range s.scores {
		s.scores[i] = untouched
	}
	s.ready = true
}

// scoreWindow scores the passages of the window that starts at begin and hold one of the first terms.
func (s *scan) scoreWindow(begin uint32, read int) error {
	s.prepare()
	found := 0
	var err error
	for _, t := range s.terms[:read] {
		if found, err = s.add(t, begin, found); err != nil {
			return err
		}
	}
	if found == 0 {
		return nil
	}
	return s.completeAll(begin, read, s.keep(begin, read, found))
}

// add adds one term to the scores of the window that starts at begin, and to those found.
func (s *scan) add(t *queryTerm, begin uint32, found int) (int, error) {
	more, err := t.advance(begin)
	for ; more && err == nil; more, err = t.advance(t.end + 1) {
		at, n := t.at, t.unpacked.n
		if t.end-begin >= window {
			for n = at; t.unpacked.docs[n]-begin < window; {
				n++
			}
		}
		found = s.addPostings(t, begin, found, at, n)
		if t.at = n; n < t.unpacked.n {
			return found, nil
		}
		t.at--
	}
	return found, err
}

// addPostings adds the postings from at to end - 1 of the unpacked block, which are of the window.
func (s *scan) addPostings(t *queryTerm, begin uint32, found, at, end int) int {
	x, b := s.index, &t.unpacked
	for k := at; k < end; k++ {
		doc, freq := b.docs[k], b.freq(k)
		var part float32
		if t.parts != nil && freq <= tabulated {
			part = t.parts[freq][x.lengths[doc]]
		} else {
			part = x.part(t.weight, freq, x.lengths[doc])
		}
		i := (doc - begin) % window
		score := s.scores[i]
		s.found[found] = uint16(i)
		found += int(math.Float64bits(score) >> 63)
		s.scores[i] = score + float64(part)
	}
	return found
}

// ahead is what is known of a term that was not read: which passages of the window hold it, and the most that it can add,
// by absent, once and repeated.
type ahead struct {
	times *windowTimes
	most  [4]float64
}

// ahead looks at term k, or at none behind the last.
func (s *scan) ahead(k int, begin uint32) ahead {
	if k >= len(s.terms) {
		return ahead{times: &unknown}
	}
	t := s.terms[k]
	if t.present == nil {
		return ahead{&unknown, [4]float64{t.here, t.here, t.here, t.here}}
	}
	a := ahead{times: (*windowTimes)(t.present.times[begin/passagesWord:])}
	a.most[once], a.most[repeated] = t.here, t.here
	if t.parts != nil {
		a.most[once] = min(t.here, float64(t.present.once))
	}
	return a
}

// keep clears the scores of the passages found, and keeps those that may be lifted into the best: it returns how many.
// To a score it adds what the next three terms can add to a passage that holds them as often, and what the others can add.
func (s *scan) keep(begin uint32, read, found int) int {
	rest := s.restHere[min(read+3, len(s.terms))]
	a, b, c := s.ahead(read, begin), s.ahead(read+1, begin), s.ahead(read+2, begin)
	kept, least := 0, float64(s.best.limit)-rest
	for _, i := range s.found[:found] {
		i %= window
		word, bit := i/passagesWord, 2*(i%passagesWord)
		score := s.scores[i]
		s.scores[i] = untouched
		s.kept[kept], s.keptScores[kept] = i, score
		if score+a.most[a.times[word]>>bit&3]+b.most[b.times[word]>>bit&3]+c.most[c.times[word]>>bit&3] > least {
			kept++
		}
	}
	return kept
}

// completeAll completes the scores of those kept by ascending passage and offers them to the best.
func (s *scan) completeAll(begin uint32, read, kept int) error {
	for k, i := range s.kept[:kept] {
		s.keptBits[i/64] |= 1 << (i % 64)
		s.scores[i] = s.keptScores[k]
	}
	if kept == 0 {
		return nil
	}
	for word := range s.keptBits {
		for set := s.keptBits[word]; set != 0; set &= set - 1 {
			i := word*64 + bits.TrailingZeros64(set)
			score := s.scores[i]
			s.scores[i] = untouched
			if err := s.complete(begin+uint32(i), score, read); err != nil {
				return err
			}
		}
		s.keptBits[word] = 0
	}
	return nil
}

// complete adds what the terms from read on add to a passage, as long as that may lift it into the best. Passages must be
// completed in ascending order.
func (s *scan) complete(doc uint32, score float64, read int) error {
	for k := read; k < len(s.terms); k++ {
		if s.best.cannotBeat(score + s.restHere[k]) {
			return nil
		}
		t := s.terms[k]
		if adds, known := t.look(s.index, doc); known {
			score += adds
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
