package bm25

import "math"

// A query is primed with the first blocks of the term that can add most, one for primeWindows windows of the corpus and at
// most primeBlocks, if it asks for at most primeHits passages.
const (
	primeWindows = 8
	primeBlocks  = 2
	primeHits    = 20
)

// prime returns a score below that of at least topk passages, or -1 if it finds none, so that a query need not begin with
// nothing to beat. It takes passages of the first term and adds what the others add at least, as far as it is remembered
// which passages hold them: what they add to a passage that holds them once or twice.
func (s *scan) prime(topk int) (float32, error) {
	if len(s.terms) < 2 || topk > primeHits {
		return -1, nil
	}
	x, t, c := s.index, s.terms[0], &s.primer
	if err := c.open(t.list, t.df, x.counts.Passages); err != nil {
		return 0, err
	}
	s.reached = s.reached[:0]
	more, err := c.advance(0)
	for left := min(primeBlocks, x.counts.Passages/(primeWindows*window)); more && err == nil && left > 0; left-- {
		s.primeBlock(topk)
		more, err = c.advance(c.end + 1)
	}
	if err != nil || len(s.reached) < topk {
		return -1, err
	}
	// The same sum in another order may be less by its rounding.
	return math.Nextafter32(float32(s.reached[topk-1]*(1-1e-6)), -1), nil
}

// primeBlock puts the scores that the passages of the unpacked block reach into reached, the topk best in falling order.
func (s *scan) primeBlock(topk int) {
	x, t, b := s.index, s.terms[0], &s.primer.unpacked
	var lengths [blockSize]uint8
	var scores [blockSize]float64
	for i, doc := range b.docs[:b.n] {
		lengths[i] = x.lengths[doc]
		scores[i] = float64(x.part(t.weight, b.freq(i), lengths[i]))
	}
	for _, other := range s.terms[1:] {
		if other.parts == nil {
			continue
		}
		for i, doc := range b.docs[:b.n] {
			scores[i] += float64(other.parts[other.present.of(doc)][lengths[i]])
		}
	}
	best := s.reached
	for _, score := range scores[:b.n] {
		if len(best) < topk {
			best = append(best, -1)
		}
		at := len(best) - 1
		if score <= best[at] {
			continue
		}
		for ; at > 0 && best[at-1] < score; at-- {
			best[at] = best[at-1]
		}
		best[at] = score
	}
	s.reached = best
}
