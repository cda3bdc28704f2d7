package weights

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plainHalf reads a half-precision number by the definition of IEEE 754.
func plainHalf(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(h>>10&31), float64(h&0x3ff)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestHalfToFloat32OnAllValues(t *testing.T) {
	for h := range 1 << 16 {
		got, want := halfToFloat32(uint16(h)), plainHalf(uint16(h))
		if math.IsNaN(want) {
			require.True(t, math.IsNaN(float64(got)), "%#x", h)
			continue
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(float64(got)), "%#x", h)
		require.Equal(t, uint16(h), float32ToHalf(got), "%#x does not survive the way back", h)
	}
}

func TestFloat32ToHalfRoundsToNearestEven(t *testing.T) {
	// Between neighbours a < b: below the middle to a, above it to b, at the middle to the even one.
	for h := uint16(0); h < 0x7bff; h++ {
		a, b := plainHalf(h), plainHalf(h+1)
		middle := float32((a + b) / 2) // exact: 12 significant bits
		even := h + h&1
		require.Equal(t, even, float32ToHalf(middle), "%#x", h)
		require.Equal(t, h, float32ToHalf(math.Nextafter32(middle, 0)), "%#x", h)
		require.Equal(t, h+1, float32ToHalf(math.Nextafter32(middle, 1e9)), "%#x", h)
		require.Equal(t, even|0x8000, float32ToHalf(-middle), "%#x", h)
	}
	assert.Equal(t, uint16(0x7bff), float32ToHalf(math.Nextafter32(65520, 0)))
	assert.Equal(t, uint16(0x7c00), float32ToHalf(65520))
	assert.Equal(t, uint16(0), float32ToHalf(1e-30))
	assert.Equal(t, uint16(0x7c00), float32ToHalf(float32(math.Inf(1))))
	assert.True(t, math.IsNaN(plainHalf(float32ToHalf(float32(math.NaN())))))
}

func TestFloat32ToBF16RoundsToNearestEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		bits := uint32(rng.Uint64()) & 0xffff0000
		if bits&0x7f800000 == 0x7f800000 {
			continue
		}
		h := uint16(bits >> 16)
		require.Equal(t, h, float32ToBF16(math.Float32frombits(bits)))
		require.Equal(t, h, float32ToBF16(math.Float32frombits(bits|0x7fff)))
		require.Equal(t, h+1, float32ToBF16(math.Float32frombits(bits|0x8001)))
		require.Equal(t, h+h&1, float32ToBF16(math.Float32frombits(bits|0x8000)))
	}
	nan := float32ToBF16(math.Float32frombits(0x7f800001)) // truncated, its bits would be those of infinity
	assert.True(t, math.IsNaN(float64(math.Float32frombits(uint32(nan)<<16))))
}

func TestEncodeRefusesFiniteValuesThatBecomeInfinite(t *testing.T) {
	buffer := make([]byte, 8)
	err := F16.encode(buffer, []float32{1, 70000})
	require.ErrorContains(t, err, "70000 is too large for F16")
	require.ErrorContains(t, BF16.encode(buffer, []float32{math.MaxFloat32}), "too large for BF16")
	require.NoError(t, F16.encode(buffer, []float32{65504, float32(math.Inf(1))}))
}
