package grpo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTokenWeights(t *testing.T) {
	lengths := []int{2, 6}
	for _, c := range []struct {
		agg      Aggregation
		constant int
		want     []float64
	}{
		{TokenMean, 0, []float64{1.0 / 8, 1.0 / 8}},
		{SeqMean, 0, []float64{1.0 / 4, 1.0 / 12}},
		{DrGRPO, 10, []float64{1.0 / 20, 1.0 / 20}},
	} {
		weights, err := TokenWeights(lengths, c.agg, c.constant)
		require.NoError(t, err)
		assert.InDeltaSlice(t, c.want, weights, 1e-15, c.agg)
	}
}

func TestDroppedSequencesLeaveTheDenominators(t *testing.T) {
	for _, agg := range []Aggregation{TokenMean, SeqMean, DrGRPO} {
		alone, err := TokenWeights([]int{2, 6}, agg, 10)
		require.NoError(t, err)
		dropped, err := TokenWeights([]int{0, 2, 0, 6, 0}, agg, 10)
		require.NoError(t, err)
		assert.Equal(t, []float64{0, alone[0], 0, alone[1], 0}, dropped, agg)
	}
}

func TestNoPolicyTokensAtAllGiveZeroWeightsNotNaN(t *testing.T) {
	for _, agg := range []Aggregation{TokenMean, SeqMean, DrGRPO} {
		weights, err := TokenWeights([]int{0, 0, 0}, agg, 10)
		require.NoError(t, err)
		assert.Equal(t, []float64{0, 0, 0}, weights, agg)
	}
}

func TestTokenWeightsRefuseBadArguments(t *testing.T) {
	_, err := TokenWeights([]int{1}, "sum", 0)
	assert.ErrorContains(t, err, `"sum"`)
	assert.ErrorContains(t, err, "token_mean, seq_mean or dr_grpo")
	_, err = TokenWeights([]int{1, -1}, SeqMean, 0)
	assert.ErrorContains(t, err, "sequence 1")
	for _, constant := range []int{0, -5} {
		_, err = TokenWeights([]int{1}, DrGRPO, constant)
		assert.ErrorContains(t, err, "positive constant length")
	}
}
