//go:build unix

package learn

import (
	"runtime"
	"syscall"
)

// PeakMemoryGB returns the largest resident memory of the process so far, in 10^9 bytes.
func PeakMemoryGB() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	unit := 1024.0
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		unit = 1
	}
	return float64(usage.Maxrss) * unit / 1e9
}
