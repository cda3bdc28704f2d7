package bm25

import (
	"encoding/binary"
	"math"
	"sort"
)

// The postings of a term are one block, or, if they are more than blockSize, the impact of all of them, a table with an
// entry for each block, and the blocks. An entry is the last passage of the block (4 bytes), its place behind the table
// (4 bytes), and its impact.
const entrySize = 8 + 2*impactPairs

// appendList packs the postings of a term. lengths holds the length of each passage as a byte.
func appendList(out []byte, docs []uint32, freqs []uint16, lengths []uint8) []byte {
	if len(docs) <= blockSize {
		return appendBlock(out, docs, freqs, -1)
	}
	blocks := (len(docs) + blockSize - 1) / blockSize
	head := len(out)
	out = append(out, make([]byte, 2*impactPairs+blocks*entrySize)...)
	data := len(out)
	var whole impact
	previous := int64(-1)
	for b := range blocks {
		begin, end := b*blockSize, min((b+1)*blockSize, len(docs))
		own := impactOf(docs[begin:end], freqs[begin:end], lengths)
		whole = whole.join(own)
		entry := out[head+2*impactPairs+b*entrySize:]
		binary.LittleEndian.PutUint32(entry, docs[end-1])
		binary.LittleEndian.PutUint32(entry[4:], uint32(len(out)-data))
		copy(entry[8:entrySize], own[:])
		out = appendBlock(out, docs[begin:end], freqs[begin:end], previous)
		previous = int64(docs[end-1])
	}
	copy(out[head:], whole[:])
	return out
}

// cursor walks through the postings of a term by ascending passage. Blocks are unpacked when one of their postings is
// asked for.
type cursor struct {
	df     int
	passes uint32 // the number of passages of the index
	impact []byte // of all; nil for a single block
	table  []byte // nil for a single block
	data   []byte // the blocks
	// block is the current one, end its last passage; when no posting is left, block is blocks and end the largest number.
	block, blocks int
	end           uint32
	// loaded is the number of the block that was unpacked, or -1; at is the current posting of it.
	loaded, at int
	unpacked   block
}

// open makes the cursor stand before the postings of a list, which begins data.
func (c *cursor) open(data []byte, df int, passages int) error {
	c.df, c.passes, c.block, c.loaded, c.at = df, uint32(passages), 0, -1, 0
	c.blocks = (df + blockSize - 1) / blockSize
	c.impact, c.table, c.data = nil, nil, data
	if c.blocks == 1 {
		return c.load()
	}
	head := 2*impactPairs + c.blocks*entrySize
	if df < 1 || len(data) < head {
		return ErrDamaged
	}
	c.impact, c.table, c.data = data[:2*impactPairs], data[2*impactPairs:head], data[head:]
	c.end = c.last(0)
	return nil
}

func (c *cursor) entry(block int) []byte { return c.table[block*entrySize : (block+1)*entrySize] }

// last returns the last passage of a block of a list with a table.
func (c *cursor) last(block int) uint32 { return binary.LittleEndian.Uint32(c.entry(block)) }

// doc and freq are those of the current posting of an unpacked block.
func (c *cursor) doc() uint32  { return c.unpacked.docs[c.at] }
func (c *cursor) freq() uint32 { return c.unpacked.freq(c.at) }

// ended reports whether no posting is left.
func (c *cursor) ended() bool { return c.block >= c.blocks }

// next returns the current passage, or one before it if its block is not unpacked. The cursor must not have ended.
func (c *cursor) next() uint32 {
	switch {
	case c.loaded == c.block:
		return c.doc()
	case c.block == 0:
		return 0
	}
	return c.last(c.block-1) + 1
}

// skip goes to the block that holds the first passage from doc on, without unpacking it.
func (c *cursor) skip(doc uint32) {
	if doc > c.end {
		c.skipBlocks(doc)
	}
}

func (c *cursor) skipBlocks(doc uint32) {
	if c.table == nil {
		c.block, c.end = 1, math.MaxUint32
		return
	}
	step := 1
	for c.block+step < c.blocks && c.last(c.block+step) < doc {
		c.block += step
		step *= 2
	}
	ahead := min(step, c.blocks-c.block)
	c.block += 1 + sort.Search(ahead-1, func(i int) bool { return c.last(c.block+1+i) >= doc })
	c.end = math.MaxUint32
	if !c.ended() {
		c.end = c.last(c.block)
	}
}

// advance goes to the first passage from doc on and reports whether there is one.
func (c *cursor) advance(doc uint32) (bool, error) {
	c.skip(doc)
	if c.ended() {
		return false, nil
	}
	return true, c.settle(doc)
}

// settle goes to the first passage from doc on, which the current block holds. As a rule it is a few postings away.
func (c *cursor) settle(doc uint32) error {
	if doc > c.end {
		return ErrDamaged // The table is not in order.
	}
	if c.loaded != c.block {
		if err := c.load(); err != nil {
			return err
		}
	}
	at, docs := c.at, &c.unpacked.docs
	for docs[at] < doc { // It ends with the last of the block.
		at++
	}
	c.at = at
	return nil
}

// load unpacks the current block.
func (c *cursor) load() error {
	previous, data := int64(-1), c.data
	if c.table != nil {
		if c.block > 0 {
			previous = int64(c.last(c.block - 1))
		}
		begin := binary.LittleEndian.Uint32(c.entry(c.block)[4:])
		if int64(begin) > int64(len(data)) {
			return ErrDamaged
		}
		data = data[begin:]
	}
	n := min(blockSize, c.df-c.block*blockSize)
	if err := c.unpacked.unpack(data, n, previous); err != nil {
		return err
	}
	last := c.unpacked.docs[n-1]
	if last >= c.passes || c.table != nil && last != c.end {
		return ErrDamaged
	}
	c.loaded, c.at, c.end = c.block, 0, last
	return nil
}
