/* The label before the bytes of every message: the call to which the message belongs. By it ranks that are out of
 * step notice before a byte is misread. */
#pragma once
#include "transport/link/link.h"

struct label {
    struct call call;
    uint64_t bytes;
    int64_t stamp;
};

/* Whether it stands before what this rank expects. The detail of a call is compared where ranks meet. */
static inline bool label_fits(const struct label *l, const struct call *mine, size_t bytes) {
    const struct call *c = &l->call;
    return c->what == mine->what && c->count == mine->count && c->sequence == mine->sequence && l->bytes == bytes;
}

static inline bool same_call(const struct call *a, const struct call *b) {
    return a->what == b->what && a->count == b->count && a->detail == b->detail && a->sequence == b->sequence;
}
