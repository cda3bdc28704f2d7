package report

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// MeanInterval returns the mean of values and half the width of its 95 % confidence interval, t·s/√n with Student's t
// of n-1 degrees of freedom and the sample standard deviation s. With one value half is NaN: nothing is known about the
// spread. No values give NaN for both.
func MeanInterval(values []float64) (mean, half float64) {
	n := float64(len(values))
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	if n == 1 {
		return values[0], math.NaN()
	}
	mean, std := stat.MeanStdDev(values, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975)
	return mean, t * std / math.Sqrt(n)
}
