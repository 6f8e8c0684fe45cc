// A wall clock that is FLOODMARK_TEST_AHEAD_S seconds ahead, for scripts/test-at.sh and scripts/make-golden.py (LD_PRELOAD).
// Monotonic clocks are unchanged. The code makes the system call itself: a lookup of the original function would allocate memory,
// and jemalloc reads the clock while it starts.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead_s(void) {
  const char *text = getenv("FLOODMARK_TEST_AHEAD_S");
  return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead_s();
  return (int)result;
}
