package tokenizer

import (
	"slices"
	"strings"
	"sync"
)

// pair is two neighbouring tokens of a word, left<<32 | right.
type pair uint64

func makePair(left, right int32) pair { return pair(left)<<32 | pair(uint32(right)) }

// merge is what becomes of a pair: merges of lower rank go first.
type merge struct{ rank, id int32 }

// symbol is a token of the word being merged; prev and next link the symbols that are left, -1 at the ends.
type symbol struct{ id, prev, next int32 }

// candidate is a merge that was possible when it was found: of the symbol at pos with the one after it, which made up
// the given pair then.
type candidate struct {
	merge
	pos  int32
	pair pair
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// merger applies byte-pair merges to one word; its memory is used again for the next. Candidates wait in a binary heap
// and are checked when they come up, so that a word of n bytes takes O(n log n), however long.
type merger struct {
	symbols []symbol
	heap    []candidate
}

var mergers = sync.Pool{New: func() any { return new(merger) }}

// run merges the symbols until no merge applies: always the pair of lowest rank, the leftmost of equals.
func (m *merger) run(merges map[pair]merge) {
	m.heap = m.heap[:0]
	for i := range m.symbols {
		m.offer(merges, int32(i))
	}
	for len(m.heap) > 0 {
		c := m.pop()
		left := &m.symbols[c.pos]
		if left.id < 0 || left.next < 0 || makePair(left.id, m.symbols[left.next].id) != c.pair {
			continue // one of the two was merged away since
		}
		right := &m.symbols[left.next]
		left.id, right.id = c.id, -1
		left.next = right.next
		if left.next >= 0 {
			m.symbols[left.next].prev = c.pos
			m.offer(merges, c.pos)
		}
		if left.prev >= 0 {
			m.offer(merges, left.prev)
		}
	}
}

// offer puts the pair that begins at pos on the heap if it can be merged.
func (m *merger) offer(merges map[pair]merge, pos int32) {
	s := m.symbols[pos]
	if s.next < 0 {
		return
	}
	p := makePair(s.id, m.symbols[s.next].id)
	if to, ok := merges[p]; ok {
		m.push(candidate{to, pos, p})
	}
}

func (m *merger) push(c candidate) {
	h := append(m.heap, c)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = c
	m.heap = h
}

func (m *merger) pop() candidate {
	h := m.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = last
	}
	m.heap = h
	return top
}

// pieceCache remembers the tokens of pieces met before. It is safe for concurrent use and bounded: pieces longer than
// maxCachedPiece bytes stay out, and a full shard is emptied.
type pieceCache struct{ shards [cacheShards]cacheShard }

type cacheShard struct {
	sync.RWMutex
	ids map[string][]int
}

const (
	cacheShards    = 16
	cacheShardSize = 2048
	maxCachedPiece = 64
)

func (c *pieceCache) shard(piece string) *cacheShard {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(piece) {
		hash = (hash ^ uint32(piece[i])) * 16777619
	}
	return &c.shards[hash%cacheShards]
}

func (c *pieceCache) get(piece string) ([]int, bool) {
	if len(piece) > maxCachedPiece {
		return nil, false
	}
	s := c.shard(piece)
	s.RLock()
	defer s.RUnlock()
	ids, ok := s.ids[piece]
	return ids, ok
}

func (c *pieceCache) put(piece string, ids []int) {
	if len(piece) > maxCachedPiece {
		return
	}
	s := c.shard(piece)
	s.Lock()
	defer s.Unlock()
	if s.ids == nil || len(s.ids) >= cacheShardSize {
		s.ids = make(map[string][]int)
	}
	s.ids[strings.Clone(piece)] = slices.Clone(ids)
}
