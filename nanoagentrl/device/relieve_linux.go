//go:build cgo && linux

package device

/*
#include <features.h>
#ifdef __GLIBC__
#include <malloc.h>
static void give_back(void) { malloc_trim(0); }
#else
static void give_back(void) {}
#endif
*/
import "C"

import (
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
)

// Relieve hands freed memory back to the kernel if the process occupies more than half of the machine's memory, and
// else does nothing. Buffers come and go in many sizes, so a heap that keeps its pages grows holes: with a model that
// hardly fits they would be what makes it not fit, with a small one the pages are better kept. It is meant to be called
// between the phases of a step.
func Relieve() {
	if resident() > totalMemory()/2 {
		debug.FreeOSMemory()
		C.give_back()
	}
}

// totalMemory is the machine's memory in bytes.
var totalMemory = sync.OnceValue(func() uint64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 1 << 62
	}
	return uint64(info.Totalram) * uint64(info.Unit)
})

// resident is the process's resident memory in bytes, 0 if it cannot be read.
func resident() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
