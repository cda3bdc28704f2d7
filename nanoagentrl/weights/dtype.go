package weights

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DType is the storage type of the values that this package writes, by its name in safetensors headers.
type DType string

// The types that can be written. Rounding is to the nearest value, ties to even, as PyTorch does.
const (
	F32  DType = "F32"
	BF16 DType = "BF16"
	F16  DType = "F16"
)

// size returns the bytes of one value.
func (d DType) size() int {
	if d == F32 {
		return 4
	}
	return 2
}

// torchName returns the name that config.json uses.
func (d DType) torchName() string {
	return map[DType]string{F32: "float32", BF16: "bfloat16", F16: "float16"}[d]
}

// check returns an error unless d is one of the types that can be written.
func (d DType) check() error {
	switch d {
	case F32, BF16, F16:
		return nil
	}
	return fmt.Errorf("cannot write values as %q; the types are %s, %s and %s", string(d), F32, BF16, F16)
}

// encode writes the values of src to dst, which has len(src)*d.size() bytes. A finite value that would become
// infinite is an error.
func (d DType) encode(dst []byte, src []float32) error {
	switch d {
	case F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
		return nil
	case BF16:
		for i, v := range src {
			h := float32ToBF16(v)
			if h&0x7fff == 0x7f80 && !math.IsInf(float64(v), 0) {
				return overflow(v, d)
			}
			binary.LittleEndian.PutUint16(dst[2*i:], h)
		}
		return nil
	}
	for i, v := range src {
		h := float32ToHalf(v)
		if h&0x7fff == 0x7c00 && !math.IsInf(float64(v), 0) {
			return overflow(v, d)
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
	return nil
}

func overflow(v float32, d DType) error {
	return fmt.Errorf("the value %g is too large for %s; save as %s or %s", v, d, F32, BF16)
}

// halfToFloat32 converts an IEEE 754 half-precision number, exactly.
func halfToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	magnitude := uint32(h&0x7fff) << 13
	if h&0x7c00 == 0x7c00 { // infinities and NaN
		return math.Float32frombits(sign | 0x7f800000 | magnitude)
	}
	// The exponent is biased by 15 where float32 expects 127; the product also normalises subnormal numbers.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(magnitude)*0x1p112))
}

// float32ToHalf rounds to the nearest half-precision number, ties to even; from 65520 on that is infinity.
func float32ToHalf(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, abs := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case abs > 0x7f800000: // NaN: keep what fits of the payload, and make it quiet
		return sign | 0x7e00 | uint16(abs>>13)&0x3ff
	case abs >= 0x477ff000: // 65520
		return sign | 0x7c00
	case abs < 0x38800000: // 2^-14: subnormal, in units of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(abs))*0x1p24))
	}
	abs += 0xfff + abs>>13&1
	return sign | uint16(abs>>13-112<<10)
}

// float32ToBF16 rounds to the nearest bfloat16, ties to even.
func float32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = halfToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}
