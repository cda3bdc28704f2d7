package nn

import (
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

// smolConfig is the shape of SmolLM2-135M.
func smolConfig() Config {
	return Config{ModelType: "llama", VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30,
		NumHeads: 9, NumKVHeads: 3, HeadDim: 64, MaxPositions: 8192, RopeTheta: 100000, NormEps: 1e-5,
		TieEmbeddings: true, BOS: -1, Pad: -1}
}

func benchModel(b *testing.B, dtype dtypes.DType) (*Program, *Params) {
	dev := testdevice.Open(b, device.XLA)
	cfg := smolConfig()
	params, err := RandomParams(dev, cfg, dtype, 1, 0.02)
	require.NoError(b, err)
	b.Cleanup(params.Free)
	return NewProgram(dev, cfg), params
}

func benchBatch(b *testing.B, rows, width int) *Batch {
	rng := rand.New(rand.NewPCG(1, 2))
	list := make([]Row, rows)
	for i := range list {
		list[i] = Row{IDs: make([]int, width), Mask: make([]uint8, width)}
		for t := range width {
			list[i].IDs[t] = 20 + rng.IntN(49000)
			if t > 0 {
				list[i].Mask[t] = 1
			}
		}
	}
	batch, err := NewBatch(list, 0, false)
	require.NoError(b, err)
	return batch
}

var benchTypes = []dtypes.DType{dtypes.Float32, dtypes.BFloat16}

// BenchmarkScore scores 8 rows of 512 tokens with a model of SmolLM2-135M's shape.
func BenchmarkScore(b *testing.B) {
	for _, dtype := range benchTypes {
		b.Run(dtype.String(), func(b *testing.B) {
			program, params := benchModel(b, dtype)
			batch := benchBatch(b, 8, 512)
			run := func() {
				_, _, err := program.LogProbs(params, batch, 1)
				require.NoError(b, err)
			}
			run()
			for b.Loop() {
				run()
			}
			b.ReportMetric(float64(b.N*8*512)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkBackward runs forward and backward over 4 rows of 512 tokens with a model of SmolLM2-135M's shape.
func BenchmarkBackward(b *testing.B) {
	for _, dtype := range benchTypes {
		b.Run(dtype.String(), func(b *testing.B) {
			program, params := benchModel(b, dtype)
			batch := benchBatch(b, 4, 512)
			weights := make([]float32, batch.Wanted)
			for i := range weights {
				weights[i] = 1 / float32(len(weights))
			}
			grads := NewGradients(program.Config())
			run := func() {
				_, err := program.Backward(params, batch, 1, NegativeLogLikelihood(weights), grads)
				require.NoError(b, err)
				grads.Free()
			}
			run()
			for b.Loop() {
				run()
			}
			b.ReportMetric(float64(b.N*4*512)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
