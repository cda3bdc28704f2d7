package bm25

import (
	"encoding/binary"
	"sort"
)

// dictionaryStep is the number of terms that share an entry of the dictionary's table.
const dictionaryStep = 16

// dictionary finds the postings of a term. Terms are in the order of their bytes. A group of dictionaryStep terms begins
// with the place of its first postings; each term is the number of bytes that it shares with the one before in the group,
// the number of its other bytes, these, its number of passages and the number of bytes of its postings, all numbers as
// varints. The table holds the place of each group, 4 bytes each.
type dictionary struct {
	table, groups []byte
}

// dictionaryWriter makes a dictionary of terms that are added in order.
type dictionaryWriter struct {
	dictionary
	terms    int
	previous []byte
	place    uint64 // of the next postings
}

func (w *dictionaryWriter) add(term []byte, df, size int) {
	shared := 0
	if w.terms%dictionaryStep == 0 {
		w.table = binary.LittleEndian.AppendUint32(w.table, uint32(len(w.groups)))
		w.groups = binary.AppendUvarint(w.groups, w.place)
	} else {
		for shared < len(term) && shared < len(w.previous) && term[shared] == w.previous[shared] {
			shared++
		}
	}
	w.groups = binary.AppendUvarint(w.groups, uint64(shared))
	w.groups = binary.AppendUvarint(w.groups, uint64(len(term)-shared))
	w.groups = append(w.groups, term[shared:]...)
	w.groups = binary.AppendUvarint(w.groups, uint64(df))
	w.groups = binary.AppendUvarint(w.groups, uint64(size))
	w.previous = append(w.previous[:0], term...)
	w.place += uint64(size)
	w.terms++
}

// scanner reads varints and bytes; after a fault it gives zeros.
type scanner struct {
	data   []byte
	broken bool
}

func (s *scanner) number() uint64 {
	v, size := binary.Uvarint(s.data)
	if size <= 0 {
		s.data, s.broken = nil, true
		return 0
	}
	s.data = s.data[size:]
	return v
}

func (s *scanner) bytes(n uint64) []byte {
	if n > uint64(len(s.data)) {
		s.data, s.broken = nil, true
		return nil
	}
	taken := s.data[:n]
	s.data = s.data[n:]
	return taken
}

// group returns a scanner of a group and the place of its first postings.
func (d *dictionary) group(i int) (s scanner, place uint64) {
	begin, end := binary.LittleEndian.Uint32(d.table[4*i:]), uint32(len(d.groups))
	if 4*(i+1) < len(d.table) {
		end = binary.LittleEndian.Uint32(d.table[4*(i+1):])
	}
	if begin > end || uint64(end) > uint64(len(d.groups)) {
		return scanner{broken: true}, 0
	}
	s.data = d.groups[begin:end]
	place = s.number()
	return s, place
}

// entry is what the dictionary says about a term: the number of its passages, and where its postings are.
type entry struct {
	df          int
	place, size uint64
}

// find returns the entry of a term; ok is false if the index has no such term.
func (d *dictionary) find(term string) (found entry, ok bool, err error) {
	groups := len(d.table) / 4
	var fault bool
	after := sort.Search(groups, func(i int) bool {
		s, _ := d.group(i)
		s.number()
		first := s.bytes(s.number())
		fault = fault || s.broken
		return string(first) > term
	})
	if fault {
		return entry{}, false, ErrDamaged
	}
	if after == 0 {
		return entry{}, false, nil
	}
	s, place := d.group(after - 1)
	var current []byte
	for len(s.data) > 0 {
		shared := s.number()
		if shared > uint64(len(current)) {
			return entry{}, false, ErrDamaged
		}
		current = append(current[:shared], s.bytes(s.number())...)
		e := entry{df: int(s.number()), place: place, size: s.number()}
		if s.broken {
			return entry{}, false, ErrDamaged
		}
		switch {
		case string(current) == term:
			return e, true, nil
		case string(current) > term:
			return entry{}, false, nil
		}
		place += e.size
	}
	return entry{}, false, nil
}
