//go:build !unix

package learn

import "runtime"

// PeakMemoryGB returns the memory that Go has taken from the system, in 10^9 bytes.
func PeakMemoryGB() float64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.Sys) / 1e9
}
