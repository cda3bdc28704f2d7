package bert

import (
	"errors"
	"math"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testdevice"
)

func tinyConfig() Config {
	return Config{VocabSize: 50, HiddenSize: 12, IntermediateSize: 20, NumLayers: 2, NumHeads: 3, MaxPositions: 24, TypeVocabSize: 2,
		NormEps: 1e-12}
}

// Texts that share a row, and rows a batch, get the vectors that they get alone, whatever stands in the padding.
func TestTextsOfARowDoNotSeeEachOther(t *testing.T) {
	testdevice.Each(t, func(t *testing.T, dev *device.Device) {
		m := randomModel(t, dev, tinyConfig())
		texts := [][]int32{{1, 7, 9, 2}, {1, 2}, {1, 30, 31, 32, 33, 34, 2}, {5}}
		p := NewPack(3, 8, 6)
		for i := range p.IDs {
			p.IDs[i] = 40 // padding is told by the text, not by the id
		}
		p.Put(0, 0, 0, texts[0])
		p.Put(1, 0, 4, texts[1])
		p.Put(3, 0, 7, texts[3])
		p.Put(2, 1, 1, texts[2])
		got, err := m.Encode(p)
		require.NoError(t, err)
		d := m.Config().HiddenSize
		require.Len(t, got, 6*d)
		for i, text := range texts {
			want := alone(t, m, text)
			assert.InDeltaSlice(t, want, got[i*d:(i+1)*d], 2e-6, "text %d", i)
			length := 0.0
			for _, v := range want {
				length += float64(v) * float64(v)
			}
			assert.InDelta(t, 1, math.Sqrt(length), 1e-6)
		}
		assert.Equal(t, make([]float32, 2*d), got[4*d:], "slots without a text")
		assert.Greater(t, distance(alone(t, m, []int32{7, 1, 9, 2}), got[:d]), 1e-3, "places count")
	})
}

// alone returns the vector of a text in a row of its own.
func alone(t *testing.T, m *Model, ids []int32) []float32 {
	t.Helper()
	p := NewPack(1, len(ids), 1)
	p.Put(0, 0, 0, ids)
	vector, err := m.Encode(p)
	require.NoError(t, err)
	return vector
}

func distance(a, b []float32) (sum float64) {
	for i := range a {
		sum += math.Abs(float64(a[i] - b[i]))
	}
	return sum
}

func TestPackThatDoesNotFitIsAnError(t *testing.T) {
	m := randomModel(t, testdevice.Open(t, device.Go), tinyConfig())
	for _, c := range []struct {
		p    *Pack
		want string
	}{
		{NewPack(0, 4, 1), "do not make rows"}, {NewPack(2, 4, 0), "do not make rows"},
		{&Pack{IDs: make([]int32, 4), Places: make([]int32, 4), Texts: make([]int32, 3), Width: 4, Slots: 1}, "3 texts do not make"},
		{&Pack{IDs: make([]int32, 4), Places: make([]int32, 4), Texts: make([]int32, 4), Width: 3, Slots: 1}, "rows of 3 tokens"},
		{&Pack{IDs: make([]int32, 1), Places: []int32{24}, Texts: make([]int32, 1), Width: 1, Slots: 1}, "the model has 24"},
	} {
		_, err := m.Encode(c.p)
		assert.ErrorContains(t, err, c.want)
	}
}

func TestWeightsThatDoNotFitAreAnError(t *testing.T) {
	dev := testdevice.Open(t, device.Go)
	_, err := New(dev, tinyConfig(), dtypes.Float32, func(string, []int) ([]float32, error) { return nil, nil })
	assert.ErrorContains(t, err, "loading embeddings.word_embeddings.weight: it has 0 values, the shape [50 12] asks for 600")
	broken := errors.New("disk on fire")
	_, err = New(dev, tinyConfig(), dtypes.Float32, func(string, []int) ([]float32, error) { return nil, broken })
	assert.ErrorIs(t, err, broken)
	bad := tinyConfig()
	bad.NormEps = 0
	_, err = New(dev, bad, dtypes.Float32, nil)
	assert.ErrorContains(t, err, "layer_norm_eps is 0")
}
