/* What a mode is, seen from the trainer: how the ranks' gradients become one update. Implemented in modes/, one file each.
 * The engine calls it and knows none of them. */
#pragma once
#include "engine/base/memory.h"

struct trainer;
struct mode; /* each mode's own */
struct mode_ops {
    const char *name, *summary;
    /* Once a rank: joins the others. From here on the trainer takes its arenas from t->allocator. */
    enum error (*open)(struct trainer *t, struct mode **out);
    /* All ranks leave with rank 0's weights, buffers and (where they step it) optimizer state. */
    enum error (*start)(struct mode *m);
    /* One whole optimizer step, seen from this rank: on return t->values and the header's sums are the same everywhere. */
    enum error (*step)(struct mode *m);
    /* v[0..n) = the sum over ranks, exact where all but one rank hold zero. */
    enum error (*sum)(struct mode *m, double *v, int n);
    /* Rank 0 leaves with the whole optimizer state (ranks that hold parts of it send them). */
    enum error (*collect)(struct mode *m);
    /* This rank stops because of 'reason': the others must not wait for it. Any thread. */
    void (*abort)(struct mode *m, const char *reason);
    void (*note)(struct mode *m, const char *doing, int64_t step);
    /* Payload bytes and busy time of this rank so far. */
    void (*stats)(struct mode *m, int64_t *sent, int64_t *received, int64_t *busy_ns);
    void (*close)(struct mode *m);
};
