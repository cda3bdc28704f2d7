//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFileSizeSignal makes a write beyond the limit on file sizes (ulimit -f) an error, as on a full disk, instead of
// the end of the program.
func ignoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
