//go:build cgo && linux

package device

/*
#include <stdlib.h>
#include <features.h>
#ifdef __GLIBC__
#include <malloc.h>

// XLA's CPU plugin takes the buffers of each call from malloc. By default glibc maps every block above 32 MB afresh
// and unmaps it when it is freed, so each step pays a page fault for every 4 KB it touches: attention over 4 x 512
// tokens took twice as long. Kept in one heap, the pages stay. It has to be set before the first thread has an arena of
// its own, hence a constructor. NANOAGENTRL_MALLOC=system leaves the defaults.
__attribute__((constructor)) static void keep_freed_pages(void) {
	const char *choice = getenv("NANOAGENTRL_MALLOC");
	if (choice && choice[0] == 's') return;
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 0x7fffffff);
	mallopt(M_TOP_PAD, 64 << 20);
}
#endif
*/
import "C"
