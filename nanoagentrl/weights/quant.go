package weights

import (
	"encoding/binary"
)

// The block formats of GGUF files. Layouts follow the structs of ggml (ggml-common.h) and the order of operations its
// dequantize_row functions, so that results agree bit for bit; the float32 conversions around products keep the
// compiler from fusing a product and a sum.

// decodeQ80: d float16, 32 signed bytes; value = d*q.
func decodeQ80(dst []float32, src []byte) {
	for ; len(src) >= 34; dst, src = dst[32:], src[34:] {
		d := half(src)
		y, q := dst[:32], src[2:34]
		for i, v := range q {
			y[i] = d * float32(int8(v))
		}
	}
}

// decodeQ40: d float16, 16 bytes of two 4-bit numbers; value = d*(q-8). Low halves come first.
func decodeQ40(dst []float32, src []byte) {
	for ; len(src) >= 18; dst, src = dst[32:], src[18:] {
		d := half(src)
		low, high := dst[:16], dst[16:32]
		for i, v := range src[2:18] {
			low[i] = d * float32(int(v&15)-8)
			high[i] = d * float32(int(v>>4)-8)
		}
	}
}

// decodeQ41: d and m float16, 16 bytes of two 4-bit numbers; value = d*q + m.
func decodeQ41(dst []float32, src []byte) {
	for ; len(src) >= 20; dst, src = dst[32:], src[20:] {
		d, m := half(src), half(src[2:])
		low, high := dst[:16], dst[16:32]
		for i, v := range src[4:20] {
			low[i] = float32(d*float32(v&15)) + m
			high[i] = float32(d*float32(v>>4)) + m
		}
	}
}

// decodeQ50: d float16, 32 fifth bits, 16 bytes of two 4-bit numbers; value = d*(q-16).
func decodeQ50(dst []float32, src []byte) {
	for ; len(src) >= 22; dst, src = dst[32:], src[22:] {
		d, fifth := half(src), binary.LittleEndian.Uint32(src[2:])
		low, high := dst[:16], dst[16:32]
		for i, v := range src[6:22] {
			low[i] = d * float32(int(uint32(v&15)|fifth>>i&1<<4)-16)
			high[i] = d * float32(int(uint32(v>>4)|fifth>>(i+16)&1<<4)-16)
		}
	}
}

// decodeQ51: d and m float16, 32 fifth bits, 16 bytes of two 4-bit numbers; value = d*q + m.
func decodeQ51(dst []float32, src []byte) {
	for ; len(src) >= 24; dst, src = dst[32:], src[24:] {
		d, m, fifth := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
		low, high := dst[:16], dst[16:32]
		for i, v := range src[8:24] {
			low[i] = float32(d*float32(uint32(v&15)|fifth>>i&1<<4)) + m
			high[i] = float32(d*float32(uint32(v>>4)|fifth>>(i+16)&1<<4)) + m
		}
	}
}

// decodeQ4K: d and dmin float16, eight 6-bit scales and minima in 12 bytes, 128 bytes of two 4-bit numbers; value =
// d*scale*q - dmin*min, with a scale for each 32 of the 256 values.
func decodeQ4K(dst []float32, src []byte) {
	for ; len(src) >= 144; dst, src = dst[256:], src[144:] {
		scale, minimum := scalesK(src)
		for j := range 4 {
			d1, m1, d2, m2 := scale[2*j], minimum[2*j], scale[2*j+1], minimum[2*j+1]
			low, high := dst[64*j:64*j+32], dst[64*j+32:64*j+64]
			for i, v := range src[16+32*j : 48+32*j] {
				low[i] = float32(d1*float32(v&15)) - m1
				high[i] = float32(d2*float32(v>>4)) - m2
			}
		}
	}
}

// decodeQ5K is decodeQ4K with a fifth bit for each value, in 32 bytes before the 4-bit numbers: bit k of byte i
// belongs to value 32*k + i.
func decodeQ5K(dst []float32, src []byte) {
	for ; len(src) >= 176; dst, src = dst[256:], src[176:] {
		scale, minimum := scalesK(src)
		fifth := src[16:48]
		for j := range 4 {
			d1, m1, d2, m2 := scale[2*j], minimum[2*j], scale[2*j+1], minimum[2*j+1]
			low, high := dst[64*j:64*j+32], dst[64*j+32:64*j+64]
			for i, v := range src[48+32*j : 80+32*j] {
				bits := fifth[i] >> (2 * j)
				low[i] = float32(d1*float32(v&15|bits&1<<4)) - m1
				high[i] = float32(d2*float32(v>>4|bits>>1&1<<4)) - m2
			}
		}
	}
}

// decodeQ6K: 128 bytes of two 4-bit numbers, 64 bytes of four upper 2-bit numbers, 16 signed scales, d float16; value
// = d*scale*(q-32), with a scale for each 16 of the 256 values.
func decodeQ6K(dst []float32, src []byte) {
	for ; len(src) >= 210; dst, src = dst[256:], src[210:] {
		d := half(src[208:])
		var scale [16]float32
		for i := range scale {
			scale[i] = d * float32(int8(src[192+i]))
		}
		for n := range 2 {
			y := dst[128*n : 128*n+128]
			ql, qh, s := src[64*n:64*n+64], src[128+32*n:160+32*n], scale[8*n:8*n+8]
			for i, top := range qh {
				k := i / 16
				a, b := ql[i], ql[i+32]
				y[i] = s[k] * float32(int(a&15|top&3<<4)-32)
				y[i+32] = s[k+2] * float32(int(b&15|top>>2&3<<4)-32)
				y[i+64] = s[k+4] * float32(int(a>>4|top>>4&3<<4)-32)
				y[i+96] = s[k+6] * float32(int(b>>4|top>>6<<4)-32)
			}
		}
	}
}

// scalesK unpacks the eight scales and minima at the head of a Q4_K or Q5_K block and multiplies them by d and dmin.
// The first four of each are the low six bits of bytes 0-3 and 4-7; the last four have their low four bits in bytes
// 8-11 and their upper two in the top of bytes 0-7.
func scalesK(src []byte) (scale, minimum [8]float32) {
	d, dmin, packed := half(src), half(src[2:]), src[4:16]
	for i := range 4 {
		scale[i] = d * float32(packed[i]&63)
		minimum[i] = dmin * float32(packed[i+4]&63)
		scale[i+4] = d * float32(packed[i+8]&15|packed[i]>>6<<4)
		minimum[i+4] = dmin * float32(packed[i+8]>>4|packed[i+4]>>6<<4)
	}
	return scale, minimum
}

func half(src []byte) float32 { return halfToFloat32(binary.LittleEndian.Uint16(src)) }

// ggmlTypes maps the type numbers of GGUF files to codecs. Types without a decoder are listed to be named in errors.
var ggmlTypes = map[uint32]*codec{
	0:  {"F32", 1, 4, decodeF32},
	1:  {"F16", 1, 2, decodeF16},
	2:  {"Q4_0", 32, 18, decodeQ40},
	3:  {"Q4_1", 32, 20, decodeQ41},
	6:  {"Q5_0", 32, 22, decodeQ50},
	7:  {"Q5_1", 32, 24, decodeQ51},
	8:  {"Q8_0", 32, 34, decodeQ80},
	9:  {name: "Q8_1"},
	10: {name: "Q2_K"},
	11: {name: "Q3_K"},
	12: {"Q4_K", 256, 144, decodeQ4K},
	13: {"Q5_K", 256, 176, decodeQ5K},
	14: {"Q6_K", 256, 210, decodeQ6K},
	15: {name: "Q8_K"},
	16: {name: "IQ2_XXS"},
	17: {name: "IQ2_XS"},
	18: {name: "IQ3_XXS"},
	19: {name: "IQ1_S"},
	20: {name: "IQ4_NL"},
	21: {name: "IQ3_S"},
	22: {name: "IQ2_S"},
	23: {name: "IQ4_XS"},
	24: {name: "I8"},
	25: {name: "I16"},
	26: {name: "I32"},
	27: {name: "I64"},
	28: {"F64", 1, 8, decodeF64},
	29: {name: "IQ1_M"},
	30: {"BF16", 1, 2, decodeBF16},
	34: {name: "TQ1_0"},
	35: {name: "TQ2_0"},
	39: {name: "MXFP4"},
	40: {name: "NVFP4"},
}
