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
		shapes := map[[3]int]bool{}
		padded := 0
		for _, b := range batches {
			require.LessOrEqual(t, len(b.rows), b.height)
			require.LessOrEqual(t, b.height*b.width, 1024)
			require.LessOrEqual(t, b.width, 256)
			require.LessOrEqual(t, b.texts(), b.slots)
			for _, row := range b.rows {
				used := 0
				for _, i := range row {
					require.False(t, seen[i])
					seen[i] = true
					used += lengths[i]
				}
				require.LessOrEqual(t, used, b.width)
			}
			shapes[[3]int{b.height, b.width, b.slots}] = true
			padded += b.height * b.width
		}
		require.Len(t, seen, n)
		if n >= 300 {
			assert.Less(t, float64(padded), 1.05*float64(tokens), "%d texts", n)
			assert.LessOrEqual(t, len(shapes), 4, "%d texts", n)
		}
	}
	assert.Equal(t, []batch{{rows: [][]int{{0}}, height: 1, width: 300, slots: 16}}, plan([]int{300}, 256, 100), "one row at least")
	assert.Equal(t, []batch{{rows: [][]int{{1, 0}}, height: 1, width: 16, slots: 16}}, plan([]int{7, 9}, 256, 1024))
}
