/* The group: opens and closes it, and turns each public call into a struct collective for the lane
 * it is meant for. */
#include "transport/group.h"
#include "transport/core.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[DTYPES] = {{"f32", 4}, {"f64", 8}, {"i32", 4}, {"i64", 8}, {"u8", 1}};

size_t dtype_size(enum dtype t) {
    return dtypes[t].size;
}

const char *dtype_name(enum dtype t) {
    return dtypes[t].name;
}

/* ---- opening and closing ---- */

static enum error find_link(const char *name, const struct link_ops **out) {
    *out = link_find(name);
    if (!*out) return FAIL(ERR_CONFIG, "no link '%s'", name);
    return ERR_NONE;
}

/* On memory that peers can reach, direct moves a ring's bytes in two steps. */
static enum error find_algo(const char *name, enum order order, const struct algo_ops **out) {
    *out = algo_find(!strcmp(name, "auto") ? "direct" : name);
    if (!*out) return FAIL(ERR_CONFIG, "no algorithm '%s'", name);
    if (!(*out)->orders[order])
        return FAIL(ERR_CONFIG,
                    "algorithm %s cannot add in %s order\n"
                    "comm.order: ring, or comm.algorithm: direct",
                    name, order == ORDER_RING ? "ring" : "tree");
    return ERR_NONE;
}

static enum error check_params(const struct group_params *p) {
    if (p->size < 1 || p->size > RANKS_MAX || p->rank < 0 || p->rank >= p->size)
        return FAIL(ERR_CONFIG, "rank %d of %d\nfrom 1 to %d ranks are possible", p->rank, p->size,
                    RANKS_MAX);
    if (p->idle < 0 || p->idle >= p->size)
        return FAIL(ERR_CONFIG, "%d of %d ranks give nothing", p->idle, p->size);
    if (!(p->timeout > 0) || isinf(p->timeout))
        return FAIL(ERR_CONFIG, "a timeout of %g s", p->timeout);
    return ERR_NONE;
}

static enum error open_lanes(struct group *g) {
    for (int i = 0; i < LANES; i++) {
        void *scratch;
        TRY(memory_alloc((size_t)g->size * PART_BYTES, &scratch));
        g->lanes[i].scratch = scratch;
    }
    return ERR_NONE;
}

/* The first call: everybody is there and wants the same. */
static enum error meet_all(struct group *g) {
    struct collective c = {.kind = KIND_OPEN, .lane = LANE_INLINE};
    return call_run(g, &c, true);
}

enum error group_open(const struct group_params *p, struct group **out) {
    const struct link_ops *ops;
    void *memory;
    enum error err;
    TRY(check_params(p));
    TRY(find_link(p->link, &ops));
    TRY(memory_alloc(sizeof(struct group), &memory));
    struct group *g = memory;
    g->rank = p->rank;
    g->size = p->size;
    g->order = p->order;
    g->idle = p->idle;
    g->finished.group = g;
    snprintf(g->name, sizeof g->name, "rank %d", p->rank);
    struct link_params lp = {.rank = p->rank,
                             .size = p->size,
                             .timeout = p->timeout,
                             .meeting = p->meeting,
                             .user = g,
                             .describe = call_describe,
                             .disagree = call_disagree};
    TRY_GOTO(err, find_algo(p->algorithm, p->order, &g->algo), failed);
    TRY_GOTO(err, open_lanes(g), failed);
    TRY_GOTO(err, ops->open(&lp, &g->link), failed);
    TRY_GOTO(err, meet_all(g), failed);
    *out = g;
    return ERR_NONE;
failed:
    group_close(g);
    return err;
}

void group_close(struct group *g) {
    if (!g) return;
    queue_stop(g);
    if (g->link) g->link->ops->close(g->link);
    for (int i = 0; i < LANES; i++) memory_free(g->lanes[i].scratch);
    memory_free(g);
}

int group_rank(const struct group *g) {
    return g->rank;
}

int group_size(const struct group *g) {
    return g->size;
}

const char *group_choice(const struct group *g, size_t bytes, const char **why) {
    const struct link_ops *ops = g->link->ops;
    if (g->size == 1)
        *why = "one rank has nothing to exchange";
    else if (g->algo->small_at_once && ops->slot && bytes <= ops->slot_bytes)
        *why = "so small that each rank sums all of it after one exchange";
    else
        *why = g->algo->why;
    return g->algo->name;
}

/* ---- memory ---- */

enum error group_alloc(struct group *g, size_t bytes, void **out) {
    struct collective c = {.kind = KIND_ALLOC,
                           .lane = LANE_INLINE,
                           .sum = {.type = DTYPE_U8, .count = (int64_t)bytes}};
    TRY(call_check(g, &c));
    TRY(call_run(g, &c, true));
    return g->link->ops->alloc(g->link, bytes, out);
}

void group_free(struct group *g, void *p) {
    (void)g, (void)p; /* peers may still read it; it goes with the meeting */
}

static enum error allocator_alloc(void *ctx, size_t bytes, void **out) {
    return group_alloc(ctx, bytes, out);
}

static void allocator_free(void *ctx, void *p) {
    group_free(ctx, p);
}

struct allocator group_allocator(struct group *g) {
    return (struct allocator){.alloc = allocator_alloc, .free = allocator_free, .ctx = g};
}

/* ---- calls ---- */

static enum error start(struct group *g, enum lane lane, struct collective *c, struct work **out) {
    c->lane = (int)lane;
    c->sum.order = g->order;
    c->sum.ranks = g->size - c->sum.first;
    if (lane != LANE_INLINE && (lane != LANE_COMM || !out))
        return group_fail(g, ERR_BUG, "lane %d, or no place for its work", (int)lane);
    TRY(call_check(g, c));
    if (lane == LANE_COMM) return queue_submit(g, c, out);
    TRY(call_run(g, c, true));
    atomic_fetch_add_explicit(&g->lanes[LANE_INLINE].collectives, 1, memory_order_relaxed);
    if (out) *out = &g->finished;
    return ERR_NONE;
}

enum error group_all_reduce(struct group *g, enum lane lane, void *buf, int64_t count, enum dtype t,
                            enum redop op, struct work **out) {
    struct collective c = {
        .kind = KIND_ALL_REDUCE, .buf = buf, .sum = {.count = count, .type = t, .op = op}};
    return start(g, lane, &c, out);
}

enum error group_reduce(struct group *g, enum lane lane, void *buf, int64_t count, enum dtype t,
                        enum redop op, int root, struct work **out) {
    struct collective c = {.kind = KIND_REDUCE,
                           .buf = buf,
                           .sum = {.count = count, .type = t, .op = op, .first = g->idle},
                           .root = root};
    return start(g, lane, &c, out);
}

enum error group_broadcast(struct group *g, enum lane lane, void *buf, int64_t count, enum dtype t,
                           int root, struct work **out) {
    struct collective c = {
        .kind = KIND_BROADCAST, .buf = buf, .sum = {.count = count, .type = t}, .root = root};
    return start(g, lane, &c, out);
}

static struct collective parted(const struct group *g, enum kind kind, void *buf,
                                const int64_t *part, enum dtype t, int root) {
    return (struct collective){.kind = kind,
                               .buf = buf,
                               .part = part,
                               .sum = {.count = part[g->size], .type = t},
                               .root = root};
}

enum error group_reduce_scatter(struct group *g, enum lane lane, void *buf, const int64_t *part,
                                enum dtype t, enum redop op, struct work **out) {
    struct collective c = parted(g, KIND_REDUCE_SCATTER, buf, part, t, 0);
    c.sum.op = op;
    return start(g, lane, &c, out);
}

enum error group_all_gather(struct group *g, enum lane lane, void *buf, const int64_t *part,
                            enum dtype t, struct work **out) {
    struct collective c = parted(g, KIND_ALL_GATHER, buf, part, t, 0);
    return start(g, lane, &c, out);
}

enum error group_scatter(struct group *g, enum lane lane, void *buf, const int64_t *part,
                         enum dtype t, int root, struct work **out) {
    struct collective c = parted(g, KIND_SCATTER, buf, part, t, root);
    return start(g, lane, &c, out);
}

enum error group_gather(struct group *g, enum lane lane, void *buf, const int64_t *part,
                        enum dtype t, int root, struct work **out) {
    struct collective c = parted(g, KIND_GATHER, buf, part, t, root);
    return start(g, lane, &c, out);
}

enum error group_send(struct group *g, enum lane lane, const void *buf, int64_t count, enum dtype t,
                      int peer, struct work **out) {
    struct collective c = {.kind = KIND_SEND,
                           .buf = (char *)(uintptr_t)buf, /* read only */
                           .sum = {.count = count, .type = t},
                           .root = peer};
    return start(g, lane, &c, out);
}

enum error group_recv(struct group *g, enum lane lane, void *buf, int64_t count, enum dtype t,
                      int peer, struct work **out) {
    struct collective c = {
        .kind = KIND_RECV, .buf = buf, .sum = {.count = count, .type = t}, .root = peer};
    return start(g, lane, &c, out);
}

enum error group_barrier(struct group *g) {
    struct collective c = {.kind = KIND_BARRIER};
    return start(g, LANE_INLINE, &c, NULL);
}

/* ---- what others see of this rank ---- */

void group_abort(struct group *g, const char *reason) {
    enum error err = group_fail(g, ERR_PEER, "rank %d: %s", g->rank, reason);
    (void)err; /* the next call tells */
}

void group_note(struct group *g, const char *doing, int64_t step) {
    g->link->ops->note(g->link, doing, step);
}

void group_get_stats(const struct group *g, struct group_stats *out) {
    *out = (struct group_stats){0};
    for (int i = 0; i < LANES; i++) {
        const struct lane_state *l = &g->lanes[i];
        out->sent += atomic_load_explicit(&l->traffic.sent, memory_order_relaxed);
        out->received += atomic_load_explicit(&l->traffic.received, memory_order_relaxed);
        out->collectives += atomic_load_explicit(&l->collectives, memory_order_relaxed);
        out->busy_ns += atomic_load_explicit(&l->busy_ns, memory_order_relaxed);
    }
}
