package bm25

import (
	"encoding/binary"
	"math/bits"
)

// blockSize is the number of postings that are packed and skipped together, as in Lucene.
const blockSize = 128

// slack is the number of bytes that must follow the packed postings, so that eight of them can be read at any place.
const slack = 8

// A block holds up to blockSize postings: the widths of gaps and frequencies in bits, one byte each, then all gaps less
// one, then all frequencies less one, each group in whole bytes, lowest bits first. The first gap is counted from the
// last passage of the block before, or from -1.

// appendBlock packs postings, blockSize at most. previous is the passage before docs[0], or -1.
func appendBlock(out []byte, docs []uint32, freqs []uint16, previous int64) []byte {
	var gaps, repeats [blockSize]uint32
	var anyGap, anyRepeat uint32
	for i, doc := range docs {
		gaps[i] = uint32(int64(doc) - previous - 1)
		repeats[i] = uint32(freqs[i] - 1)
		anyGap |= gaps[i]
		anyRepeat |= repeats[i]
		previous = int64(doc)
	}
	gapWidth, repeatWidth := bits.Len32(anyGap), bits.Len32(anyRepeat)
	out = append(out, byte(gapWidth), byte(repeatWidth))
	out = appendPacked(out, gaps[:len(docs)], gapWidth)
	return appendPacked(out, repeats[:len(docs)], repeatWidth)
}

// appendPacked appends the lowest width bits of each value.
func appendPacked(out []byte, values []uint32, width int) []byte {
	var pending uint64
	held := 0
	for _, v := range values {
		pending |= uint64(v) << held
		for held += width; held >= 8; held -= 8 {
			out = append(out, byte(pending))
			pending >>= 8
		}
	}
	if held > 0 {
		out = append(out, byte(pending))
	}
	return out
}

func packedBytes(n int, width uint) int { return (n*int(width) + 7) / 8 }

// block is an unpacked block, but for the frequencies, of which few are asked for.
type block struct {
	docs        [blockSize]uint32
	n           int
	repeats     []byte // packed, with slack
	repeatWidth uint
	repeatMask  uint64
}

// unpack reads n postings from the front of data, which goes on behind them by slack bytes at least. It fails on data
// that no index can hold.
func (b *block) unpack(data []byte, n int, previous int64) error {
	if len(data) < 2 || data[0] > 32 || data[1] > 16 {
		return ErrDamaged
	}
	gapWidth, repeatWidth := uint(data[0]), uint(data[1])
	gaps := data[2:]
	size := packedBytes(n, gapWidth)
	if len(gaps) < size+packedBytes(n, repeatWidth)+slack {
		return ErrDamaged
	}
	b.n, b.repeats, b.repeatWidth, b.repeatMask = n, gaps[size:], repeatWidth, 1<<repeatWidth-1
	if b.unpackDocs(gaps, gapWidth, uint64(previous+1)) > 1<<32 {
		return ErrDamaged
	}
	return nil
}

// unpackDocs unpacks the passages, of which the first is doc plus the first gap, and returns one more than the last.
func (b *block) unpackDocs(gaps []byte, width uint, doc uint64) uint64 {
	docs, bit, mask := b.docs[:b.n], uint(0), uint64(1)<<width-1
	together := 1 // the gaps that eight bytes hold, wherever in the first byte they begin
	switch {
	case width <= 8:
		together = 8 // begin with a byte
	case width <= 15:
		together = 4 // begin with half a byte, or with a byte
	}
	for len(docs) >= together {
		packed := binary.LittleEndian.Uint64(gaps[bit>>3:]) >> (bit & 7)
		bit += uint(together) * width
		for i := range docs[:together] {
			doc += packed & mask
			docs[i] = uint32(doc)
			packed >>= width & 63
			doc++
		}
		docs = docs[together:]
	}
	for i := range docs {
		doc += binary.LittleEndian.Uint64(gaps[bit>>3:]) >> (bit & 7) & mask
		docs[i] = uint32(doc)
		bit += width
		doc++
	}
	return doc
}

// freq returns the frequency of posting i.
func (b *block) freq(i int) uint32 {
	bit := uint(i) * b.repeatWidth
	return uint32(binary.LittleEndian.Uint64(b.repeats[bit>>3:])>>(bit&7)&b.repeatMask) + 1
}
