/* The cores that threads may use: a rank may be bound to some cores, and the threads that serve it must not be. */
#include "engine/train/internal.h"

#include <pthread.h>
#include <unistd.h>

static cpu_set_t whole;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Reads the cores of the main thread, before any rank is bound. */
static void read_whole(void) {
    if (sched_getaffinity(getpid(), sizeof whole, &whole) != 0) CPU_ZERO(&whole);
}

void affinity_note(void) {
    pthread_once(&once, read_whole);
}

void affinity_free(cpu_set_t *bound) {
    affinity_note();
    if (sched_getaffinity(0, sizeof *bound, bound) != 0) CPU_ZERO(bound);
    if (CPU_COUNT(&whole) > 0) sched_setaffinity(0, sizeof whole, &whole);
}

void affinity_restore(const cpu_set_t *bound) {
    if (CPU_COUNT(bound) > 0) sched_setaffinity(0, sizeof *bound, bound);
}
