/* An algorithm: how one collective is made of what a link can do. The algorithms are listed in algos.def, one file
 * each. What an algorithm does not provide is done in the plain way (plain.h). */
#pragma once
#include "engine/base/memory.h"
#include "transport/algo/order.h"
#include "transport/link/link.h"

/* Payload bytes, as an ideal implementation of the algorithm moves them. */
struct traffic {
    _Atomic int64_t sent, received;
};

/* Terms of a sum in their order of addition: one of each of some ranks, or a few of each. Each list is (n). */
struct band {
    int n, me;         /* me: which is this rank's first, -1: it gives none */
    int *rank, *piece; /* whose term, and which of its terms */
    int *leaf;         /* where the term begins */
    uint8_t *adds;     /* leaves_adds */
};
/* The terms of one rank: *first of them, and how many. */
int band_terms(const struct band *b, int rank, int *first);
/* Whether every addition is of two subtrees that have as many terms: a power of two of them. */
bool band_is_even(const struct band *b);

/* The places of the ranks in the order of addition: see group_position. */
struct places {
    int size, hosts;
    int locals;     /* ranks of every host, if each host's are a subtree; else 0 */
    int terms, own; /* of a sum of what lies apart: all subtrees of all ranks; of the first rank */
    bool even;      /* ranks are a power of two, and their runs alike */
    int *rank;      /* (size), that stands at a place */
    int *place;     /* (size), of a rank */
};
struct bands {
    struct band all, given, pieces; /* every rank once; but for the idle ones; and each once a subtree */
    struct band near, far;          /* of places.locals on several hosts: the ranks of this host; those of my local
                                       number on every host */
};
struct tree {
    enum order order;
    int leaves; /* 0: as many as ranks that give */
    int idle;
};
struct placing {
    struct tree tree;
    int rank, size;
    const struct roster *roster; /* NULL: one host */
};
MUST_CHECK enum error places_plan(struct places *p, struct bands *bands, const struct placing *of, struct pool *pool);
/* places.locals, where each host has that number of ranks. */
int places_locals(int leaves, int size, int locals);
/* places.terms. */
int places_terms(int leaves, int ranks);

/* Lists that the calls of one lane use in turn, so that no call allocates. */
struct lane_lists {
    void **at;          /* (size): see collective.at */
    void **slots;       /* (size): what the link shows of ranks that meet, where at[] are copies */
    char **out;         /* (size) */
    const char **in;    /* (terms), of which there is one or more a rank */
    int64_t *part;      /* (size + 1) */
    bool *borrows;      /* (size) */
    struct band turned; /* every rank, from a call's root on */
};
MUST_CHECK enum error lane_lists_create(struct lane_lists *l, int size, int terms, struct pool *pool);

/* One call, on the lane where it runs. */
struct device_mark;
struct collective {
    struct link *link;
    const struct algo_ops *algo; /* NULL: the cheapest */
    const struct terrain *terrain;
    int lane, rank, size;
    enum kind kind;
    struct sum sum; /* order, type, operation, ranks; count: elements of the whole buffer */
    const struct places *places;
    const struct bands *bands;
    const struct band *band; /* the sum's terms */
    int64_t apart;           /* elements between a rank's terms */
    int root;                /* or the peer of send and recv */
    int64_t tag;             /* of a message (mail.c) */
    struct mixing mixing;    /* of a share's call (plugged.c) */
    char *buf;
    const int64_t *part; /* of kinds with parts */
    char *own;           /* dispatch.own */
    const char *send;    /* of all_to_all, and its parts, and of a swap; buf and part are what it receives */
    const int64_t *send_part;
    struct call call;                /* what the peers check */
    bool there;                      /* buf or send lies on this rank's accelerator */
    bool carried;                    /* and all ranks' do, and so it travels */
    const struct device_mark *ready; /* of LANE_COMM: what the buffer waits for; else NULL */
    struct device_mark *end;         /* of LANE_COMM: where the device has done it; else NULL */
    bool under_way;  /* the device has been asked for it, up to 'end', and nobody has waited for that yet */
    uint64_t record; /* recorder_begin's */
    int64_t began;   /* call_clock */
    int64_t label;   /* the caller's own, for the watch */

    /* Known once the ranks have met: */
    const struct lane_lists *lists;
    void **at;      /* lists->at: every rank's buffer; used only when in_place or staged */
    int64_t lo, hi; /* of it, what can be reached at at[]: all, but where memory is lent (lent.c) */
    bool in_place;  /* there every rank's buffer can be read and written by all */
    bool staged;    /* at[] are copies, which stand until after the next call: to be read only, and
                      nobody waits for readers */
    char *scratch;  /* size * part_bytes */
    size_t part_bytes;
    struct traffic *traffic;
};

/* The properties on which the cost of an algorithm depends; the same on all ranks. */
struct terrain {
    const struct places *places;
    bool near;                 /* ranks of one host reach each other's memory */
    double alpha, beta, gamma; /* seconds a message, a byte moved, a byte added */
    size_t part_bytes;         /* of scratch for each rank */
};
/* reach: peers reach each other's memory. alpha, beta: the link's; gamma and the scratch are known. */
struct terrain terrain_plan(const struct places *p, double alpha, double beta, bool reach, bool near);

enum { HIERARCHICAL_ONE_SLICE = 32 << 10 }; /* bytes up to which one rank of a host does it alone */
typedef enum error (*collective_fn)(struct collective *c);
struct algo_ops {
    const char *name;
    const char *why;    /* for the banner */
    bool orders[2];     /* enum order that it can add in */
    bool several;       /* adds several terms of a rank */
    bool even;          /* works only where places.even */
    bool small_at_once; /* small all_reduce and reduce may be staged */
    bool hosts_alike;   /* works only on one host or where places.locals is not 0 */
    bool native;        /* works only over links that have collectives of their own */
    uint64_t mark;      /* of a plug-in: what tells it from any other; else 0 */
    /* The ranks have met, size > 1, count > 0. NULL: the plain way. */
    collective_fn run[COLLECTIVES];
    /* Seconds that a call with that number of bytes takes in pipes. NULL: it is never chosen. */
    double (*cost[COLLECTIVES])(const struct terrain *t, double bytes);
};

/* All algorithms; algo_find gives NULL for an unknown name. */
const struct algo_ops *const *algo_list(int *count);
const char *const *algo_names(void); /* of all of them, NULL-terminated */
const struct algo_ops *algo_find(const char *name);
/* The same, or a plug-in by its path, which is opened. digest: that it must have; NULL: any. */
MUST_CHECK enum error algo_named(const char *name, const char *digest, const struct algo_ops **out);
/* Before a group of so many ranks uses it: see plugin_prepare. */
MUST_CHECK enum error algo_prepare(const struct algo_ops *a, int ranks);
/* In whose all-reduce a plug-in's share meets. */
struct plugin;
MUST_CHECK enum error algo_meets(const struct plugin *p, const struct algo_ops **out);
/* What a plug-in's all-reduce of so many floats asks for, rank by rank, though nothing moves: its plan, as those read it who
 * predict times. */
enum { REHEARSAL_RANKS = 256, REHEARSAL_STEPS = 1 << 22 };
struct rehearsed { /* one exchange */
    int to, from;  /* -1: none */
    int64_t sent, received;
    bool adds;
};
struct rehearsal {
    int ranks, n, room;
    int first[REHEARSAL_RANKS + 1]; /* rank r's steps are [first[r], first[r + 1]) */
    struct rehearsed *step;
};
MUST_CHECK enum error algo_rehearse(const struct algo_ops *a, int ranks, int64_t count, struct rehearsal *out);
void rehearsal_free(struct rehearsal *r); /* also where it has failed */
/* Whether it can add in this order where the ranks stand so; several: where a rank gives several terms. */
bool algo_suits(const struct algo_ops *a, enum order order, const struct places *p, bool several);

/* ---- "auto", where bytes travel in pipes (choose.c) ---- */

/* The cheapest of those that can add in this order; of equal ones, the first in the list. */
const struct algo_ops *algo_cheapest(const struct terrain *t, enum order order, enum kind kind, bool several,
                                     size_t bytes);
/* The algorithm for each size of an all_reduce, and the reason: "halving_doubling up to 64 KB, direct above: alpha 45
 * us, 1.2 GB/s". */
enum { CHOICES_MAX = 240 };
void algo_choices(const struct terrain *t, enum order order, bool several, char out[CHOICES_MAX]);

/* ---- move.c ---- */

/* Whether elements move between ranks; of an all_to_all each rank knows that only for itself. */
static inline bool collective_moves(const struct collective *c) {
    return c->kind == KIND_ALL_TO_ALL || ((c->kind < COLLECTIVES || kind_has_peer(c->kind)) && c->sum.count > 0);
}
/* Whether copies of that size may lie in the link's slots, for each rank to sum or read all: all ranks' copies stay
 * in a core's cache. */
static inline bool link_stages(const struct link *l, int size, size_t bytes) {
    enum { RANKS = 64 };
    return l->ops->slot && bytes <= l->slot_bytes && bytes * (size_t)size <= RANKS * l->slot_bytes;
}
/* The way of a call over the host's memory, where c->buf lies: meets the ranks, and runs the algorithm. */
MUST_CHECK enum error collective_move(struct collective *c);

/* ---- for those who write one ---- */

/* Rank r's part of [lo, hi), which nobody has cut, on whole cache lines where that is possible:
 * [cut(r), cut(r + 1)). */
int64_t collective_cut(const struct collective *c, int r);
static inline size_t bytes_of(const struct collective *c, int64_t elements) {
    return (size_t)elements * dtype_size(c->sum.type);
}
static inline char *element(const struct collective *c, const void *base, int64_t i) {
    return (char *)(uintptr_t)base + bytes_of(c, i);
}
static inline int64_t part_size(const struct collective *c, int r) {
    return c->part[r + 1] - c->part[r];
}
/* Where element 0 would lie, if all the rest lay beside what goes to this rank's own part. */
static inline char *own_place(const struct collective *c) {
    return c->own ? (char *)((uintptr_t)c->own - bytes_of(c, c->part[c->rank])) : c->buf;
}
/* Of a gather or scatter: whether this rank has nothing but its own part. buf is then own_place. */
static inline bool has_only_own(const struct collective *c) {
    return c->own && kind_has_root(c->kind) && c->rank != c->root;
}
/* What peers may find in reach. */
static inline void *shown_buf(const struct collective *c) {
    return has_only_own(c) ? NULL : c->buf;
}
/* Whether a rank gives more than one term. */
static inline bool is_several(const struct collective *c) {
    return c->band->n > c->sum.ranks;
}
/* Element i of term t of the band, in its rank's buffer. */
static inline char *term(const struct collective *c, const struct band *b, int t, const void *base, int64_t i) {
    return element(c, base, b->piece[t] * c->apart + i);
}
/* How many terms this rank gives. */
static inline int own_terms(const struct collective *c) {
    int first;
    return band_terms(c->band, c->rank, &first);
}
void collective_count(struct collective *c, int64_t sent, int64_t received);
struct element_range { /* [lo, hi) */
    int64_t lo, hi;
};
/* Whether a call of the kind moves data from one rank to another. */
static inline bool collective_flows(const struct collective *c, enum kind kind, int from, int to) {
    return from != to && (!kind_from_root(kind) || from == c->root) && (!kind_to_root(kind) || to == c->root);
}
/* The elements that 'to' needs of what 'from' holds, and of a sum also of its own, as far as they can be reached; of an
 * all_to_all those that this rank sends, or receives. The parts of a buffer without parts are its cuts. */
struct element_range collective_range(const struct collective *c, enum kind kind, int from, int to);
/* Counts what an ideal exchange of the kind moves of [lo, hi), where the bytes travel in no messages of ours. */
void collective_count_ideal(struct collective *c, enum kind kind);
/* link exchange of elements, counted. peer < 0: none. */
enum landing {
    LAND_COPY,  /* what comes is copied */
    LAND_LEFT,  /* data = received op data */
    LAND_RIGHT, /* data = data op received */
};
struct leg {
    int peer;
    char *data;
    int64_t elements;
    enum landing landing; /* of what comes */
};
MUST_CHECK enum error collective_exchange(struct collective *c, struct leg out, struct leg in);
MUST_CHECK enum error collective_send(struct collective *c, int peer, char *data, int64_t elements);
MUST_CHECK enum error collective_receive(struct collective *c, int peer, char *data, int64_t elements,
                                         enum landing landing);
/* The sum of elements [lo, hi) of all at[], written there in each of the buffers to[0..n). */
void collective_sum(const struct collective *c, int64_t lo, int64_t hi, char *const *to, int n);
/* Nobody reads or writes another's buffer any more. */
MUST_CHECK enum error collective_finish(struct collective *c);

/* ---- lent.c ---- */

/* Lays a copy of what will be read of this rank's buffer in its slot. */
void collective_stage(struct collective *c);

/* Meets the peers and runs the algorithm, or where it is NULL the plain way, in lent memory where a rank's buffer is
 * out of reach. The link lends, and either works in place. */
MUST_CHECK enum error collective_lent(struct collective *c, collective_fn own);
