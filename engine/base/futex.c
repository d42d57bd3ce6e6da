/* The one place that spells the system call. */
#include "engine/base/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool futex_wait(_Atomic uint32_t *word, uint32_t seen, double seconds) {
    time_t whole = seconds < 0 ? 0 : (time_t)seconds;
    struct timespec t = {.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)};
    return syscall(SYS_futex, word, FUTEX_WAIT, seen, seconds < 0 ? NULL : &t, NULL, 0) == 0 || errno != ETIMEDOUT;
}

void futex_wake(_Atomic uint32_t *word, int most) {
    syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0);
}
