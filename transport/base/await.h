/* A wait for something that is no call. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { GROUP_WORDS = 160 };
/* Something that ranks which share their memory bring about without a call, each looking for itself. */
struct group_wait {
    bool (*over)(void *user);
    /* Whether somebody is late; then since when (ns, of clock_ns), and "rank 2 has not come within", which the seconds
     * follow. */
    bool (*late)(void *user, int64_t *since, char words[GROUP_WORDS]);
    void *user;
};
