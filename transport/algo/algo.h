/* An algorithm: how one collective is made of what a link can do. The algorithms are listed in
 * algos.def, one file each. What an algorithm does not provide is done in the plain way (plain.h).
 */
#pragma once
#include "transport/algo/order.h"
#include "transport/link/link.h"

/*  kind            in words           */
#define KINDS_OF_CALL(X)                                                                           \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(REDUCE, "reduce")                                                                            \
    X(BROADCAST, "broadcast")                                                                      \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(SCATTER, "scatter")                                                                          \
    X(GATHER, "gather")                                                                            \
    X(SEND, "send")                                                                                \
    X(RECV, "recv")                                                                                \
    X(BARRIER, "barrier")                                                                          \
    X(ALLOC, "alloc")                                                                              \
    X(OPEN, "open")
enum kind {
#define X(name, text) KIND_##name,
    KINDS_OF_CALL(X)
#undef X
        KINDS,
    COLLECTIVES = KIND_SEND /* the kinds before it move data among all ranks */
};

/* Payload bytes, as an ideal implementation of the algorithm moves them. */
struct traffic {
    _Atomic int64_t sent, received;
};

enum { PART_BYTES = 16 << 10 }; /* of scratch for each rank */

/* One call, on the lane where it runs. */
struct collective {
    struct link *link;
    int lane, rank, size;
    enum kind kind;
    struct sum sum; /* order, type, operation, ranks; count: elements of the whole buffer */
    int root;       /* or the peer of send and recv */
    char *buf;
    const int64_t *part; /* of kinds with parts */
    struct call call;    /* what the peers check */

    /* Known once the ranks have met: */
    void **at;     /* every rank's buffer; used only when in_place or staged */
    bool in_place; /* every rank's buffer can be read and written by all */
    bool staged;   /* at[] are copies, which stand until after the next call: to be read only, and
                      nobody waits for readers */
    char *scratch; /* size * PART_BYTES */
    struct traffic *traffic;
};

typedef enum error (*collective_fn)(struct collective *c);
struct algo_ops {
    const char *name;
    const char *why;    /* for the banner */
    bool orders[2];     /* enum order that it can add in */
    bool small_at_once; /* small all_reduce and reduce may be staged */
    /* The ranks have met, size > 1, count > 0. NULL: the plain way. */
    collective_fn run[COLLECTIVES];
};

/* All algorithms; algo_find gives NULL for an unknown name. */
const struct algo_ops *const *algo_list(int *count);
const struct algo_ops *algo_find(const char *name);

/* ---- for those who write one ---- */

/* Rank r's part of a count that nobody has cut, on whole cache lines where that is possible:
 * [cut(r), cut(r + 1)). */
int64_t collective_cut(const struct collective *c, int r);
static inline size_t bytes_of(const struct collective *c, int64_t elements) {
    return (size_t)elements * dtype_size(c->sum.type);
}
static inline char *element(const struct collective *c, const void *base, int64_t i) {
    return (char *)(uintptr_t)base + bytes_of(c, i);
}
/* Whether rank r's elements are part of the sum; sum.ranks ranks do. */
static inline bool gives(const struct collective *c, int r) {
    return r >= c->sum.first;
}
void collective_count(struct collective *c, int64_t sent, int64_t received);
/* link exchange of elements, counted. What comes is copied to 'in', or added to it: in = received
 * op in. peer < 0: none. */
struct leg {
    int peer;
    char *data;
    int64_t elements;
    bool add;
};
MUST_CHECK enum error collective_exchange(struct collective *c, struct leg out, struct leg in);
/* The sum of elements [lo, hi) of all at[], written there in each of the buffers to[0..n). */
void collective_sum(const struct collective *c, int64_t lo, int64_t hi, char *const *to, int n);
/* Nobody reads or writes another's buffer any more. */
MUST_CHECK enum error collective_finish(struct collective *c);
