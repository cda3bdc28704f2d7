package bm25

import "slices"

// Hit is a passage that was found.
type Hit struct {
	// Doc is the number of the passage in the corpus, counted from 0.
	Doc   uint32
	Score float32
}

// worse reports whether a ranks after b: by score, and at equal scores by the order of the corpus.
func (a Hit) worse(b Hit) bool {
	return a.Score < b.Score || a.Score == b.Score && a.Doc > b.Doc
}

// topHits keeps the best hits, size at most, in a heap whose root is the worst of them.
type topHits struct {
	size int
	heap []Hit
	// limit is a score that is too low to enter: that of the worst if there are size of them, and at least the one that was
	// given at the start.
	limit float32
}

func (h *topHits) reset(size int) { h.size, h.heap, h.limit = size, h.heap[:0], -1 }

func (h *topHits) full() bool { return len(h.heap) == h.size }

// cannotBeat reports whether a passage of at most the given score, later in the corpus than all before, is sure not to
// enter.
func (h *topHits) cannotBeat(score float64) bool { return float32(score) <= h.limit }

func (h *topHits) add(x Hit) {
	switch {
	case !h.full():
		h.heap = append(h.heap, x)
		h.rise()
	case h.heap[0].worse(x):
		h.heap[0] = x
		h.sink()
	}
	if h.full() {
		h.limit = max(h.limit, h.heap[0].Score)
	}
}

// rise puts the last hit into its place.
func (h *topHits) rise() {
	for i := len(h.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.heap[i].worse(h.heap[parent]) {
			return
		}
		h.heap[i], h.heap[parent] = h.heap[parent], h.heap[i]
		i = parent
	}
}

// sink puts the first hit into its place.
func (h *topHits) sink() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.heap); child++ {
			if h.heap[child].worse(h.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.heap[i], h.heap[least] = h.heap[least], h.heap[i]
		i = least
	}
}

// sorted returns the hits, best first, in a slice of their own.
func (h *topHits) sorted() []Hit {
	hits := append([]Hit{}, h.heap...)
	slices.SortFunc(hits, func(a, b Hit) int {
		if b.worse(a) {
			return -1
		}
		return 1
	})
	return hits
}
