package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPassAtKTable(t *testing.T) {
	for _, test := range []struct {
		n, c, k int
		want    float64
	}{
		{4, 0, 4, 0}, {4, 1, 4, 1}, {4, 1, 2, 0.5}, {5, 2, 3, 0.9}, {200, 1, 1, 0.005}, {1, 1, 1, 1}, {1, 0, 1, 0},
		{10000, 10000, 5000, 1}, {10000, 1, 5000, 0.5}, {10000, 0, 9999, 0},
	} {
		got, ok := PassAtK(test.n, test.c, test.k)
		require.True(t, ok)
		require.InDelta(t, test.want, got, 1e-9, "pass@%d of %d/%d", test.k, test.c, test.n)
	}
}

func TestPassHatKTable(t *testing.T) {
	for _, test := range []struct {
		n, c, k int
		want    float64
	}{
		{4, 3, 2, 0.5}, {8, 5, 3, 0.178571}, {12, 9, 4, 0.254545}, {8, 2, 3, 0}, {8, 8, 8, 1}, {5, 2, 1, 0.4},
		{10000, 9999, 5000, 0.5},
	} {
		got, ok := PassHatK(test.n, test.c, test.k)
		require.True(t, ok)
		require.InDelta(t, test.want, got, 1e-6, "pass^%d of %d/%d", test.k, test.c, test.n)
	}
}

func TestMoreThanThereAreSamplesIsNotAvailable(t *testing.T) {
	for _, test := range [][3]int{{4, 2, 5}, {4, 2, 0}, {4, 5, 2}, {4, -1, 2}, {0, 0, 1}} {
		for _, pass := range []func(n, c, k int) (float64, bool){PassAtK, PassHatK} {
			value, ok := pass(test[0], test[1], test[2])
			require.False(t, ok, test)
			require.True(t, math.IsNaN(value), "never a number that could be plotted")
		}
	}
}
