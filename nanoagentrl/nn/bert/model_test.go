package bert

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

func tinyConfig() Config {
	return Config{VocabSize: 50, HiddenSize: 12, IntermediateSize: 20, NumLayers: 2, NumHeads: 3, MaxPositions: 24, TypeVocabSize: 2,
		NormEps: 1e-12}
}

// Rows of different lengths in one batch get the vectors that they get alone, whatever the padding and whatever stands
// in it.
func TestPaddingChangesNothing(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		m := randomModel(t, dev, tinyConfig())
		rows := [][]int32{{1, 7, 9, 2}, {1, 2}, {1, 30, 31, 32, 33, 34, 2}, {5}}
		const width = 16
		ids, lengths := make([]int32, len(rows)*width), make([]int32, len(rows))
		for i := range ids {
			ids[i] = 40 // padding decided by the length, not by the id
		}
		for i, row := range rows {
			lengths[i] = int32(copy(ids[i*width:], row))
		}
		got, err := m.Encode(ids, lengths, width)
		require.NoError(t, err)
		d := m.Config().HiddenSize
		for i, row := range rows {
			want, err := m.Encode(row, []int32{int32(len(row))}, len(row))
			require.NoError(t, err)
			assert.InDeltaSlice(t, want, got[i*d:(i+1)*d], 2e-6, "row %d", i)
			length := 0.0
			for _, v := range want {
				length += float64(v) * float64(v)
			}
			assert.InDelta(t, 1, math.Sqrt(length), 1e-6)
		}
		moved, err := m.Encode([]int32{7, 1, 9, 2}, []int32{4}, 4)
		require.NoError(t, err)
		assert.Greater(t, distance(moved, got[:d]), 1e-3, "places count")
	})
}

func distance(a, b []float32) (sum float64) {
	for i := range a {
		sum += math.Abs(float64(a[i] - b[i]))
	}
	return sum
}

func TestRowsThatDoNotFitAreAnError(t *testing.T) {
	m := randomModel(t, testdevice.Open(t, device.Go), tinyConfig())
	for _, c := range []struct{ ids, rows, width int }{{24, 1, 25}, {25, 1, 25}, {10, 2, 4}, {0, 0, 0}} {
		_, err := m.Encode(make([]int32, c.ids), make([]int32, c.rows), c.width)
		assert.ErrorContains(t, err, "do not make", "%v", c)
	}
}

func TestWeightsThatDoNotFitAreAnError(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	_, err := New(dev, tinyConfig(), func(string, []int) ([]float32, error) { return nil, nil })
	assert.ErrorContains(t, err, "loading embeddings.word_embeddings.weight: it has 0 values, the shape [50 12] asks for 600")
	broken := errors.New("disk on fire")
	_, err = New(dev, tinyConfig(), func(string, []int) ([]float32, error) { return nil, broken })
	assert.ErrorIs(t, err, broken)
	bad := tinyConfig()
	bad.NormEps = 0
	_, err = New(dev, bad, nil)
	assert.ErrorContains(t, err, "layer_norm_eps is 0")
}
