package embed

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlanHoldsEachTextOnceInFewShapes(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{0, 1, 5, 300, 6000} {
		lengths := make([]int, n)
		tokens := 0
		for i := range lengths {
			lengths[i] = 2 + random.IntN(255)
			tokens += lengths[i]
		}
		batches := plan(lengths, 256, 1024)
		seen := map[int]bool{}
		shapes := map[[2]int]bool{}
		padded := 0
		for _, b := range batches {
			require.LessOrEqual(t, len(b.texts), b.rows)
			require.LessOrEqual(t, b.rows*b.width, 1024)
			require.LessOrEqual(t, b.width, 256)
			for _, i := range b.texts {
				require.False(t, seen[i])
				seen[i] = true
				require.LessOrEqual(t, lengths[i], b.width)
			}
			shapes[[2]int{b.rows, b.width}] = true
			padded += b.rows * b.width
		}
		require.Len(t, seen, n)
		if n >= 300 {
			assert.Less(t, float64(padded), 1.25*float64(tokens), "%d texts", n)
			assert.LessOrEqual(t, len(shapes), 24, "%d texts", n)
		}
	}
	assert.Equal(t, []batch{{texts: []int{0}, rows: 1, width: 300}}, plan([]int{300}, 256, 100), "one row at least")
}
