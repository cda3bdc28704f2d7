package dense

import (
	"encoding/binary"

	"github.com/x448/float16"
)

// Vectors are stored as little-endian float16. Values of vectors of length 1 are rounded by at most 2^-12 of
// themselves, so that a cosine changes in its fourth digit after the point at most.

// appendHalf appends the values of vectors as float16.
func appendHalf(out []byte, values []float32) []byte {
	for _, v := range values {
		out = binary.LittleEndian.AppendUint16(out, float16.Fromfloat32(v).Bits())
	}
	return out
}

// halves holds the value of every float16.
var halves = func() *[1 << 16]float32 {
	table := new([1 << 16]float32)
	for bits := range table {
		table[bits] = float16.Frombits(uint16(bits)).Float32()
	}
	return table
}()

// fromHalf reads len(out) values.
func fromHalf(out []float32, stored []byte) {
	stored = stored[:2*len(out)]
	for i := range out {
		out[i] = halves[binary.LittleEndian.Uint16(stored[2*i:])]
	}
}
