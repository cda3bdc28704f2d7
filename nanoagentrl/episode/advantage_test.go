package episode

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func threePieces() *Episode {
	e := &Episode{}
	e.Append(Prompt, []int{1, 2}, nil)
	e.Append(Policy, []int{3, 4}, []float32{-1, -1})
	e.Append(Environment, []int{5}, nil)
	e.Append(Policy, []int{6}, []float32{-1})
	return e
}

var policyTokens = []bool{false, false, true, true, false, true}

func TestAdvantagesOfTokensStandWithTheirTokens(t *testing.T) {
	e := threePieces()
	e.SetAdvantages([]float64{9, 9, 1, 2, 9, 6}, policyTokens)
	assert.Equal(t, []float32{0, 0, 1, 2, 0, 6}, e.Advantages)
	assert.Equal(t, 3.0, e.Advantage, "the mean of the trained tokens")
	assert.Equal(t, []float32{1, 2, 6}, []float32{e.AdvantageAt(2), e.AdvantageAt(3), e.AdvantageAt(5)})

	e.SetAdvantages([]float64{9, 9, -0.1, -0.1, 9, -0.1}, policyTokens)
	assert.Nil(t, e.Advantages)
	assert.Equal(t, -0.1, e.Advantage, "to the last bit")
	assert.Equal(t, float32(-0.1), e.AdvantageAt(3))
	text, err := json.Marshal(e)
	require.NoError(t, err)
	assert.NotContains(t, string(text), `"advantages"`)

	e.SetAdvantages(make([]float64, 6), make([]bool, 6))
	assert.Zero(t, e.Advantage)
}

func TestAdvantagesThatAreNotParallelToTheTokensPanic(t *testing.T) {
	assert.Panics(t, func() { threePieces().SetAdvantages(make([]float64, 5), policyTokens) })
	assert.Panics(t, func() { threePieces().SetAdvantages(make([]float64, 6), policyTokens[:5]) })
}
