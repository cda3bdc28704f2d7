package warmstart

import (
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// matrix is a list of rows.
type matrix [][]float64

func zeros(rows, cols int) matrix {
	m := make(matrix, rows)
	for i := range m {
		m[i] = make([]float64, cols)
	}
	return m
}

// directions draws rows of length 1, at right angles to one another as far as the columns allow: row i to the last rows
// of its run of cols.
func directions(rng *rand.Rand, rows, cols int) matrix {
	m := zeros(rows, cols)
	for i, row := range m {
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		for range 2 { // the second pass removes what rounding left
			for _, other := range m[i-i%cols : i] {
				floats.AddScaled(row, -floats.Dot(row, other), other)
			}
		}
		floats.Scale(1/floats.Norm(row, 2), row)
	}
	return m
}

// add adds the product a·b.
func (m matrix) add(a, b matrix) {
	for i, row := range m {
		for k, x := range a[i] {
			floats.AddScaled(row, x, b[k])
		}
	}
}

func (m matrix) times(scale float64) matrix {
	out := zeros(len(m), len(m[0]))
	for i, row := range m {
		floats.AddScaled(out[i], scale, row)
	}
	return out
}

// into writes the rows one after the other.
func (m matrix) into(values []float32) {
	for i, row := range m {
		for j, x := range row {
			values[i*len(row)+j] = float32(x)
		}
	}
}
