package bert

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

func randomModel(t testing.TB, dev *device.Device, cfg Config) *Model {
	return randomModelOf(t, dev, cfg, dtypes.Float32)
}

func randomModelOf(t testing.TB, dev *device.Device, cfg Config, dtype dtypes.DType) *Model {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 5))
	m, err := New(dev, cfg, dtype, func(_ string, shape []int) ([]float32, error) {
		size := 1
		for _, d := range shape {
			size *= d
		}
		values := make([]float32, size)
		for i := range values {
			values[i] = float32(rng.NormFloat64() * 0.05)
		}
		return values, nil
	})
	require.NoError(t, err)
	t.Cleanup(m.Free)
	return m
}

func miniLM() Config {
	return Config{VocabSize: 30522, HiddenSize: 384, IntermediateSize: 1536, NumLayers: 6, NumHeads: 12, MaxPositions: 512,
		TypeVocabSize: 2, NormEps: 1e-12}
}

// BenchmarkMiniLM encodes rows of random ids with an encoder of MiniLM's shape.
func BenchmarkMiniLM(b *testing.B) {
	for _, dtype := range []dtypes.DType{dtypes.Float32, dtypes.BFloat16} {
		m := randomModelOf(b, testdevice.Open(b, device.XLA), miniLM(), dtype)
		for _, shape := range [][2]int{{4, 256}, {8, 128}, {64, 16}} {
			b.Run(fmt.Sprintf("%s/%dx%d", dtype, shape[0], shape[1]), func(b *testing.B) {
				p := NewPack(shape[0], shape[1], 16)
				for row := range shape[0] {
					ids := make([]int32, shape[1]-row%8)
					for i := range ids {
						ids[i] = int32((row+i)*7919) % 30000
					}
					p.Put(row%16, row, 0, ids)
				}
				start := time.Now()
				_, err := m.Encode(p)
				require.NoError(b, err)
				first := time.Since(start)
				for b.Loop() {
					_, err := m.Encode(p)
					require.NoError(b, err)
				}
				b.ReportMetric(float64(b.N*len(p.IDs))/b.Elapsed().Seconds(), "tokens/s")
				b.ReportMetric(first.Seconds(), "first-s")
			})
		}
	}
}
