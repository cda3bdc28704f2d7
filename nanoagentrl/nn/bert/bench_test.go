package bert

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

func randomModel(t testing.TB, dev *device.Device, cfg Config) *Model {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 5))
	m, err := New(dev, cfg, func(_ string, shape []int) ([]float32, error) {
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
	m := randomModel(b, testdevice.Open(b, device.XLA), miniLM())
	for _, shape := range [][2]int{{6, 160}, {32, 160}, {64, 16}} {
		b.Run(fmt.Sprintf("%dx%d", shape[0], shape[1]), func(b *testing.B) {
			ids, lengths := make([]int32, shape[0]*shape[1]), make([]int32, shape[0])
			for i := range ids {
				ids[i] = int32(i*7919) % 30000
			}
			for i := range lengths {
				lengths[i] = int32(shape[1] - i%8)
			}
			start := time.Now()
			_, err := m.Encode(ids, lengths, shape[1])
			require.NoError(b, err)
			first := time.Since(start)
			for b.Loop() {
				_, err := m.Encode(ids, lengths, shape[1])
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(first.Seconds(), "first-s")
		})
	}
}
