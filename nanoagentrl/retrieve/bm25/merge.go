package bm25

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// merger puts the postings of segments together, term by term.
type merger struct {
	lengths []uint8 // of all passages
	out     io.Writer
	// progress is called now and then with the number of terms done; nil for none.
	progress func(terms int)

	dictionary dictionaryWriter
	postings   int
	docs       []uint32
	freqs      []uint16
	term, list []byte
}

// run merges segments, given as readers of their postings and the numbers of their first passages, both in the order of
// the passages. It writes the packed postings to out and leaves the dictionary in m.
func (m *merger) run(ctx context.Context, segments []io.Reader, bases []int) error {
	var queue mergeQueue
	for i, reader := range segments {
		r := &segmentReader{in: bufio.NewReaderSize(reader, 64<<10), number: i, base: uint32(bases[i])}
		more, err := r.nextTerm()
		if err != nil {
			return err
		}
		if more {
			queue = append(queue, r)
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		if m.dictionary.terms%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if m.progress != nil {
				m.progress(m.dictionary.terms)
			}
		}
		if err := m.mergeTerm(&queue); err != nil {
			return err
		}
	}
	if len(m.dictionary.groups) > math.MaxUint32 {
		return fmt.Errorf("the dictionary of %d terms takes more than 4 GiB; split the corpus", m.dictionary.terms)
	}
	_, err := m.out.Write(make([]byte, slack))
	return err
}

// mergeTerm writes the postings of the first term of the queue.
func (m *merger) mergeTerm(queue *mergeQueue) error {
	m.term = append(m.term[:0], (*queue)[0].term...)
	term := m.term
	m.docs, m.freqs = m.docs[:0], m.freqs[:0]
	for len(*queue) > 0 && bytes.Equal((*queue)[0].term, term) {
		r := (*queue)[0]
		var err error
		if m.docs, m.freqs, err = r.read(m.docs, m.freqs); err != nil {
			return err
		}
		more, err := r.nextTerm()
		if err != nil {
			return err
		}
		if more {
			heap.Fix(queue, 0)
		} else {
			heap.Pop(queue)
		}
	}
	m.list = appendList(m.list[:0], m.docs, m.freqs, m.lengths)
	m.dictionary.add(term, len(m.docs), len(m.list))
	m.postings += len(m.docs)
	_, err := m.out.Write(m.list)
	return err
}

// segmentReader reads the postings of one segment.
type segmentReader struct {
	in     *bufio.Reader
	number int
	base   uint32
	term   []byte
	list   []byte // of the current term
	df     uint64
}

// nextTerm reads the next term and its postings; more is false at the end.
func (r *segmentReader) nextTerm() (more bool, err error) {
	number := func() uint64 {
		var v uint64
		if err == nil {
			v, err = binary.ReadUvarint(r.in)
		}
		return v
	}
	fill := func(buffer []byte, n uint64) []byte {
		if err != nil || n > math.MaxUint32 {
			err = cmp.Or(err, ErrDamaged)
			return nil
		}
		if uint64(cap(buffer)) < n {
			buffer = make([]byte, n)
		}
		buffer = buffer[:n]
		_, err = io.ReadFull(r.in, buffer)
		return buffer
	}
	size := number()
	if err == nil && size == 0 {
		return false, nil
	}
	r.term = fill(r.term, size)
	r.df = number()
	r.list = fill(r.list, number())
	if err != nil {
		return false, fmt.Errorf("segment %d: %w", r.number, err)
	}
	return true, nil
}

// read appends the postings of the current term.
func (r *segmentReader) read(docs []uint32, freqs []uint16) ([]uint32, []uint16, error) {
	s := scanner{data: r.list}
	doc := r.base
	for range r.df {
		v := s.number()
		freq := uint64(1)
		if v&1 == 0 {
			freq = s.number() + 2
		}
		doc += uint32(v >> 1)
		docs, freqs = append(docs, doc), append(freqs, uint16(freq))
	}
	if s.broken || len(s.data) > 0 {
		return nil, nil, fmt.Errorf("segment %d: %w", r.number, ErrDamaged)
	}
	return docs, freqs, nil
}

// mergeQueue is a heap of segments by their current term, then by their number.
type mergeQueue []*segmentReader

func (q mergeQueue) Len() int { return len(q) }
func (q mergeQueue) Less(i, j int) bool {
	c := bytes.Compare(q[i].term, q[j].term)
	return c < 0 || c == 0 && q[i].number < q[j].number
}
func (q mergeQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *mergeQueue) Push(x any)   { *q = append(*q, x.(*segmentReader)) }
func (q *mergeQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
