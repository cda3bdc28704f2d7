package bm25

import "math"

// A query is primed with the first blocks of the term that can add most, one for primeWindows windows of the corpus and at
// most primeBlocks, if it asks for at most primeHits passages.
const (
	primeWindows = 8
	primeBlocks  = 8
	primeHits    = 20
)

// prime returns a score below that of at least topk passages, or -1 if it finds none, so that a query need not begin with
// nothing to beat. It takes passages of the first term and adds what the others add at least, as far as it is remembered
// which passages hold them: what they add to a passage that holds them once.
func (s *scan) prime(topk int) (float32, error) {
	if len(s.terms) < 2 || topk > primeHits {
		return -1, nil
	}
	x, t, c := s.index, s.terms[0], &s.primer
	if err := c.open(t.list, t.df, x.counts.Passages); err != nil {
		return 0, err
	}
	best := s.reached[:0] // the topk best, in falling order
	more, err := c.advance(0)
	for left := min(primeBlocks, x.counts.Passages/(primeWindows*window)); more && err == nil && left > 0; left-- {
		for i, doc := range c.unpacked.docs[:c.unpacked.n] {
			length := x.lengths[doc]
			score := float64(x.part(t.weight, c.unpacked.freq(i), length))
			for _, other := range s.terms[1:] {
				if other.present != nil && !other.absent(doc) {
					score += float64(other.once[length])
				}
			}
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
		more, err = c.advance(c.end + 1)
	}
	s.reached = best
	if err != nil || len(best) < topk {
		return -1, err
	}
	// The same sum in another order may be less by its rounding.
	return math.Nextafter32(float32(best[topk-1]*(1-1e-6)), -1), nil
}
