package weights

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plainValue computes value i of a quantised block from the description of the format, one value at a time.
func plainValue(kind string, b []byte, i int) float64 {
	f16 := func(at int) float64 { return plainHalf(binary.LittleEndian.Uint16(b[at:])) }
	nibble := func(at, half int) int { return int(b[at]) >> (4 * half) & 15 }
	bit := func(at, n int) int { return int(b[at+n/8]) >> (n % 8) & 1 }
	switch kind {
	case "Q8_0":
		return f16(0) * float64(int8(b[2+i]))
	case "Q4_0":
		return f16(0) * float64(nibble(2+i%16, i/16)-8)
	case "Q4_1":
		return f16(0)*float64(nibble(4+i%16, i/16)) + f16(2)
	case "Q5_0":
		return f16(0) * float64(nibble(6+i%16, i/16)+16*bit(2, i)-16)
	case "Q5_1":
		return f16(0)*float64(nibble(8+i%16, i/16)+16*bit(4, i)) + f16(2)
	case "Q4_K":
		scale, minimum := plainScaleK(b, i/32)
		return f16(0)*scale*float64(nibble(16+32*(i/64)+i%32, i/32%2)) - f16(2)*minimum
	case "Q5_K":
		scale, minimum := plainScaleK(b, i/32)
		q := nibble(48+32*(i/64)+i%32, i/32%2) + 16*(int(b[16+i%32])>>(i/32)&1)
		return f16(0)*scale*float64(q) - f16(2)*minimum
	case "Q6_K":
		n, quarter, l := i/128, i%128/32, i%32
		q := nibble(64*n+32*(quarter%2)+l, quarter/2) + 16*(int(b[128+32*n+l])>>(2*quarter)&3)
		return f16(208) * float64(int8(b[192+i/16])) * float64(q-32)
	}
	panic(kind)
}

// plainScaleK is get_scale_min_k4 of llama.cpp.
func plainScaleK(b []byte, j int) (scale, minimum float64) {
	q := b[4:16]
	if j < 4 {
		return float64(q[j] & 63), float64(q[j+4] & 63)
	}
	return float64(q[j+4]&0xF | (q[j-4]>>6)<<4), float64(q[j+4]>>4 | (q[j]>>6)<<4)
}

// randomBlocks returns blocks of pseudo-random bytes (a linear congruential generator, so that another language can
// repeat them) whose half-precision fields, at the given offsets, are finite.
func randomBlocks(n, blockBytes int, halves ...int) []byte {
	out := make([]byte, n*blockBytes)
	state := uint32(1)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = byte(state >> 24)
	}
	for b := range n {
		for _, at := range halves {
			out[b*blockBytes+at+1] &= 0xbf
		}
	}
	return out
}

// quantCases holds, for each type, the offsets of its half-precision fields and the CRC-32 of what Python's gguf 0.19
// (dequantize, as little-endian float32) makes of 64 random blocks.
var quantCases = map[string]struct {
	halves []int
	crc    uint32
}{
	"Q4_0": {[]int{0}, 0x7d1d8045}, "Q4_1": {[]int{0, 2}, 0x1f41ab5}, "Q5_0": {[]int{0}, 0x26e8c7a4},
	"Q5_1": {[]int{0, 2}, 0x3af3f215}, "Q8_0": {[]int{0}, 0xabfae7ee}, "Q4_K": {[]int{0, 2}, 0x3511b976},
	"Q5_K": {[]int{0, 2}, 0x298de9c1}, "Q6_K": {[]int{208}, 0x65bf1b35},
}

func TestQuantisedTypesAgainstPlainReferenceAndPython(t *testing.T) {
	tested := 0
	for _, c := range ggmlTypes {
		if c.decode == nil || c.blockValues == 1 {
			continue
		}
		tested++
		t.Run(c.name, func(t *testing.T) {
			want, ok := quantCases[c.name]
			require.True(t, ok, "no reference")
			src := randomBlocks(64, c.blockBytes, want.halves...)
			got := make([]float32, 64*c.blockValues)
			c.decode(got, src)
			for i, v := range got {
				block := src[i/c.blockValues*c.blockBytes:][:c.blockBytes]
				plain := plainValue(c.name, block, i%c.blockValues)
				largest := math.Max(math.Abs(plain), 2) // the minimum may cancel the product
				require.InDelta(t, plain, float64(v), 1e-6*largest*64, "value %d", i)
			}
			assert.Equal(t, want.crc, crc32.ChecksumIEEE(floatBytes(got)), "differs from Python's gguf in some bit")
		})
	}
	assert.Equal(t, len(quantCases), tested)
}

func TestQuantisedBlocksMadeByHand(t *testing.T) {
	const one, two = "\x00\x3c", "\x00\x40" // 1 and 2 as half precision
	fill := func(n int, b byte) string {
		out := make([]byte, n)
		for i := range out {
			out[i] = b
		}
		return string(out)
	}
	for _, c := range []struct {
		kind  uint32
		block string
		at    map[int]float32 // some values by index
	}{
		{2, two + "\x0f\xf0" + fill(14, 0x88), map[int]float32{0: 14, 16: -16, 1: -16, 17: 14, 2: 0, 31: 0}},
		{3, two + one + "\x0f\xf0" + fill(14, 0), map[int]float32{0: 31, 16: 1, 1: 1, 17: 31, 2: 1}},
		{6, two + "\x01\x00\x00\x80" + fill(16, 0x21), map[int]float32{0: 2, 1: -30, 16: -28, 31: 4}},
		{7, two + one + "\x01\x00\x00\x80" + fill(16, 0x21), map[int]float32{0: 35, 1: 3, 16: 5, 31: 37}},
		{8, two + "\x80\x7f" + fill(30, 0xff), map[int]float32{0: -256, 1: 254, 2: -2}},
		// Scale 0 is 3 and minimum 0 is 5; scale 4 is 0x25 and minimum 4 is 0x1a, spread over two bytes each.
		{12, one + two + "\x83\x00\x00\x00\x45\x00\x00\x00\xa5\x00\x00\x00" + fill(128, 0x21),
			map[int]float32{0: 3 - 10, 32: 0, 128: 0x25 - 2*0x1a, 255: 0}},
		{13, one + two + "\x83\x00\x00\x00\x45\x00\x00\x00\xa5\x00\x00\x00" + fill(32, 0x10) + fill(128, 0x21),
			map[int]float32{0: 3 - 10, 128: 17*0x25 - 2*0x1a, 160: 0}},
		{14, fill(128, 0x21) + fill(64, 0xe4) + "\x01\xff" + fill(14, 0x02) + two,
			map[int]float32{0: 2 * (1 - 32), 16: -2 * (1 - 32), 32: 4 * (0x11 - 32), 64: 4 * (0x22 - 32), 96: 4 * (0x32 - 32)}},
	} {
		codec := ggmlTypes[c.kind]
		require.Len(t, c.block, codec.blockBytes, codec.name)
		got := make([]float32, codec.blockValues)
		codec.decode(got, []byte(c.block))
		for i, want := range c.at {
			assert.Equal(t, want, got[i], "%s value %d", codec.name, i)
		}
	}
}

func TestDecodingInChunksEqualsDecodingAtOnce(t *testing.T) {
	for _, kind := range []uint32{8, 14} { // 34 and 210 bytes: chunks end in the middle of a page
		c := ggmlTypes[kind]
		blocks := 2*chunkBytes/c.blockBytes + 17
		src := randomBlocks(blocks, c.blockBytes, quantCases[c.name].halves...)
		want := make([]float32, blocks*c.blockValues)
		c.decode(want, src)
		got, err := c.read(readerAt("head"+string(src)), 4, len(want))
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = c.read(readerAt(string(src)), 4, len(want))
		require.ErrorContains(t, err, "unexpected EOF")
	}
}
