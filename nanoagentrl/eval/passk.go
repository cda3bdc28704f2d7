package eval

import "math"

// PassAtK returns the probability that at least one of k samples is right, estimated without bias from n samples of
// which c are right:
//
//	pass@k = 1 - C(n-c, k) / C(n, k)
//
// (Chen et al. 2021, arXiv:2107.03374). ok is false, and there is no estimate, unless 1 <= k <= n and 0 <= c <= n.
func PassAtK(n, c, k int) (value float64, ok bool) {
	none, ok := allFrom(n, n-c, k)
	return 1 - none, ok
}

// PassHatK returns the probability that all of k samples are right, pass^k = C(c, k) / C(n, k) (τ-bench,
// arXiv:2406.12045), from n samples of which c are right. ok is as for PassAtK.
func PassHatK(n, c, k int) (value float64, ok bool) { return allFrom(n, c, k) }

// allFrom returns C(m, k) / C(n, k), the probability that k different ones out of n all belong to a part of m, as a
// product of k factors, so that nothing overflows.
func allFrom(n, m, k int) (value float64, ok bool) {
	if k < 1 || k > n || m < 0 || m > n {
		return math.NaN(), false
	}
	value = 1
	for i := range k {
		value *= float64(max(m-i, 0)) / float64(n-i)
	}
	return value, true
}
