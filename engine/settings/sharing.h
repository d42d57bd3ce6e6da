/* How the ranks of a run share gradients: plain data, decided once from the configuration by the row of its mode. All
 * code that depends on the mode reads this; no code compares a mode's name. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum place_kind { /* where the ranks are */
                  PLACE_ALONE,
                  PLACE_THREADS,
                  PLACE_PROCESSES
};
enum share_kind { /* how gradients become an update: a file of modes/share/ each */
                  SHARE_NONE,
                  SHARE_SERVER,     /* one rank adds, updates, and sends weights back */
                  SHARE_ALL_REDUCE, /* every rank has the sums, and makes the same update */
                  SHARE_SLICES,     /* every rank updates a slice of the arena, and all gather the weights */
                  SHARE_AVERAGE,    /* ranks step alone, and average their weights now and then */
                  SHARE_STALE       /* a server that updates by each gradient, and does not wait for all */
};
struct sharing {
    enum place_kind place;
    enum share_kind share;
    bool compressed;    /* gradients travel in fewer bytes; else as they are */
    const char *title;  /* of the server, for people; "": there is none */
    int servers;        /* ranks that compute nothing, the first of the group: 0 or 1 */
    bool on_host;       /* these have no device, but the host's memory */
    bool overlap;       /* buckets leave while backward still computes the layers before them */
    bool brought;       /* samples come through rank 0's port; else each rank loads its own */
    bool rescues;       /* run.elastic: after a loss rank 0 saves the last step that has ended, which it holds whole */
    bool in_one;        /* there is one bucket, whatever the configuration says */
    int64_t first, cap; /* of buckets, in bytes; INT64_MAX: all are one */
    int64_t every;      /* SHARE_AVERAGE: steps between two meetings; else 1 */
};
/* The first rank holds the only optimizer. */
static inline bool sharing_has_server(const struct sharing *s) {
    return s->share == SHARE_SERVER || s->share == SHARE_STALE;
}
