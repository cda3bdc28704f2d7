package bm25

import (
	"math"
	"math/bits"
)

// freeLengths is the number of lengths that Lucene's SmallFloat keeps as they are.
const freeLengths = 24

// lengthToByte is Lucene's SmallFloat.intToByte4: a length in a byte, exact up to 40, then four significant bits.
func lengthToByte(length int) uint8 {
	if length < freeLengths {
		return uint8(length)
	}
	rest := uint64(min(length, math.MaxInt32) - freeLengths)
	width := bits.Len64(rest)
	if width < 4 {
		return uint8(freeLengths + rest)
	}
	shift := width - 4
	return uint8(freeLengths + (uint64(shift+1)<<3 | rest>>shift&7))
}

// byteToLength is Lucene's SmallFloat.byte4ToInt.
func byteToLength(code uint8) int {
	if code < freeLengths {
		return int(code)
	}
	rest := int(code) - freeLengths
	if rest < 8 {
		return freeLengths + rest
	}
	return freeLengths + (rest&7|8)<<(rest>>3-1)
}
