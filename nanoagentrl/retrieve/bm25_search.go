package retrieve

import (
	"context"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

var _ Searcher = (*BM25)(nil)

// Search implements Searcher. Only passages that hold at least one term of the query are found. A term that stands
// several times in a query counts as often. The queries are spread over all cores; once the context ends, the rest
// of them fail with its error.
func (x *BM25) Search(ctx context.Context, queries []string, topk int) []Result {
	results := make([]Result, len(queries))
	if err := checkTopK(topk); err != nil {
		failAll(results, &Error{Kind: KindRequest, Err: err})
		return results
	}
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(queries) {
				return
			}
			if err := ctx.Err(); err != nil {
				results[i].Err = &Error{Kind: KindCanceled, Err: err}
				continue
			}
			results[i] = x.searchOne(ctx, queries[i], topk)
		}
	}
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(queries)) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
	return results
}

func (x *BM25) searchOne(ctx context.Context, query string, topk int) Result {
	s := &scan{index: x, terms: x.queryTerms(query), best: topHits{size: min(topk, len(x.passages))}}
	if err := s.run(ctx); err != nil {
		return Result{Err: &Error{Kind: KindCanceled, Err: err}}
	}
	hits := s.best.sorted()
	passages := make([]episode.Passage, len(hits))
	for i, hit := range hits {
		p := x.passages[hit.doc]
		passages[i] = episode.Passage{ID: p.ID, Contents: p.Contents, Score: float64(hit.score)}
	}
	return Result{Passages: passages}
}

// queryTerm is one distinct term of a query and the place its postings were read up to.
type queryTerm struct {
	text   string
	id     uint32
	count  int
	weight float32 // count · idf
	bound  float64 // the most the term can add to a score
	at     int     // the next posting to read
	end    int
}

// queryTerms returns the distinct terms of a query that the index knows, those that can add most first. The order is
// that in which all scores are summed, so that equal passages get equal scores to the last bit.
func (x *BM25) queryTerms(query string) []queryTerm {
	var terms []queryTerm
	place := map[uint32]int{}
	for _, text := range Analyze(x.compose(query)) {
		id, known := x.terms[text]
		if !known {
			continue
		}
		if i, seen := place[id]; seen {
			terms[i].count++
			continue
		}
		place[id] = len(terms)
		terms = append(terms, queryTerm{text: text, id: id, count: 1, at: x.starts[id], end: x.starts[id+1]})
	}
	for i := range terms {
		t := &terms[i]
		t.weight = float32(t.count) * x.idf(t.id)
		// The bound was taken for weight 1; the margin covers the float32 rounding of both.
		t.bound = float64(t.weight) * (float64(x.most[t.id]) + 1e-6)
	}
	slices.SortStableFunc(terms, func(a, b queryTerm) int {
		switch {
		case a.bound > b.bound:
			return -1
		case a.bound < b.bound:
			return 1
		}
		return int(int64(a.id) - int64(b.id))
	})
	return terms
}

// window is the number of passages that are scored together: their scores stay in the first-level cache.
const window = 2048

// scan is the work on one query. It goes through the corpus window by window and adds term by term within each. Once
// topk passages are known, the terms whose bounds together cannot lift a passage over the worst of these ("MaxScore",
// Turtle and Flood 1995) are no longer read through, but looked up for the passages the other terms bring.
type scan struct {
	index  *BM25
	terms  []queryTerm
	best   topHits
	scores [window]float64
	seen   [window / 64]uint64
}

func (s *scan) run(ctx context.Context) error {
	// rest[i] is the most that the terms from i on can add.
	rest := make([]float64, len(s.terms)+1)
	for i := len(s.terms) - 1; i >= 0; i-- {
		rest[i] = rest[i+1] + s.terms[i].bound
	}
	needed := len(s.terms) // terms[:needed] are read through
	for windows := 0; ; windows++ {
		if windows%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for needed > 0 && s.best.cannotBeat(rest[needed-1]) {
			needed--
		}
		first, more := s.nextDoc(needed)
		if !more {
			return nil
		}
		begin := first &^ (window - 1)
		for i := range s.terms[:needed] {
			s.add(&s.terms[i], begin)
		}
		s.collect(begin, needed, rest)
	}
}

// nextDoc returns the first passage not yet scored among those of the first terms.
func (s *scan) nextDoc(terms int) (doc uint32, more bool) {
	doc = math.MaxUint32
	for i := range s.terms[:terms] {
		if t := &s.terms[i]; t.at < t.end {
			doc, more = min(doc, s.index.docs[t.at]), true
		}
	}
	return doc, more
}

// add adds one term to the scores of the window that starts at begin.
func (s *scan) add(t *queryTerm, begin uint32) {
	t.at = s.index.advance(t.at, t.end, begin)
	for ; t.at < t.end; t.at++ {
		i := s.index.docs[t.at] - begin
		if i >= window {
			return
		}
		s.scores[i] += float64(s.index.part(t.weight, t.at))
		s.seen[i/64] |= 1 << (i % 64)
	}
}

// collect completes the scores of the passages seen in the window, keeps the best, and clears the window.
func (s *scan) collect(begin uint32, needed int, rest []float64) {
	for word := range s.seen {
		for set := s.seen[word]; set != 0; set &= set - 1 {
			i := word*64 + bits.TrailingZeros64(set)
			doc, score := begin+uint32(i), s.scores[i]
			s.scores[i] = 0
			possible := true
			for k := needed; k < len(s.terms) && possible; k++ {
				if possible = !s.best.cannotBeat(score + rest[k]); possible {
					score += s.lookUp(&s.terms[k], doc)
				}
			}
			if possible {
				s.best.add(hit{doc: doc, score: float32(score)})
			}
		}
		s.seen[word] = 0
	}
}

// lookUp returns what a term adds to one passage. Passages must be asked for in ascending order.
func (s *scan) lookUp(t *queryTerm, doc uint32) float64 {
	t.at = s.index.advance(t.at, t.end, doc)
	if t.at == t.end || s.index.docs[t.at] != doc {
		return 0
	}
	return float64(s.index.part(t.weight, t.at))
}

// advance returns the first posting from at on whose passage is doc or later, in steps that double.
func (x *BM25) advance(at, end int, doc uint32) int {
	if at == end || x.docs[at] >= doc {
		return at
	}
	step := 1
	for at+step < end && x.docs[at+step] < doc {
		at += step
		step *= 2
	}
	found, _ := slices.BinarySearch(x.docs[at:min(at+step, end)], doc)
	return at + found
}

// hit is a scored passage.
type hit struct {
	doc   uint32
	score float32
}

// worse reports whether a ranks after b: by score, and at equal scores by the order of the corpus.
func (a hit) worse(b hit) bool {
	return a.score < b.score || a.score == b.score && a.doc > b.doc
}

// topHits keeps the best hits, size at most, in a heap whose root is the worst of them.
type topHits struct {
	size int
	heap []hit
}

// cannotBeat reports whether a passage of at most the given score, later in the corpus than all before, is sure not to
// enter.
func (h *topHits) cannotBeat(score float64) bool {
	return len(h.heap) == h.size && float32(score) <= h.heap[0].score
}

func (h *topHits) add(x hit) {
	if len(h.heap) < h.size {
		h.heap = append(h.heap, x)
		for i := len(h.heap) - 1; i > 0; {
			parent := (i - 1) / 2
			if !h.heap[i].worse(h.heap[parent]) {
				return
			}
			h.heap[i], h.heap[parent] = h.heap[parent], h.heap[i]
			i = parent
		}
		return
	}
	if !h.heap[0].worse(x) {
		return
	}
	h.heap[0] = x
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

// sorted returns the hits, best first, and leaves the heap unusable.
func (h *topHits) sorted() []hit {
	slices.SortFunc(h.heap, func(a, b hit) int {
		if b.worse(a) {
			return -1
		}
		return 1
	})
	return h.heap
}
