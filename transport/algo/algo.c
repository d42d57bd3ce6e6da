/* The list of algorithms, and what they are made of. */
#include "transport/algo/algo.h"

#include <stdatomic.h>
#include <string.h>

#define ALGO(name) extern const struct algo_ops algo_##name;
#include "transport/algo/algos.def"
#undef ALGO

static const struct algo_ops *const algos[] = {
#define ALGO(name) &algo_##name,
#include "transport/algo/algos.def"
#undef ALGO
};

const struct algo_ops *const *algo_list(int *count) {
    *count = (int)(sizeof algos / sizeof *algos);
    return algos;
}

const struct algo_ops *algo_find(const char *name) {
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++)
        if (!strcmp(algos[i]->name, name)) return algos[i];
    return NULL;
}

int64_t collective_cut(const struct collective *c, int r) {
    int64_t line = ALIGNMENT / (int64_t)dtype_size(c->sum.type);
    int64_t cut = order_chunk(c->sum.count, c->size, r);
    return r == c->size ? c->sum.count : cut / line * line;
}

/* Only the thread that runs the lane adds; others may read. */
static void add_to(_Atomic int64_t *total, int64_t n) {
    int64_t old = atomic_load_explicit(total, memory_order_relaxed);
    atomic_store_explicit(total, old + n, memory_order_relaxed);
}

void collective_count(struct collective *c, int64_t sent, int64_t received) {
    add_to(&c->traffic->sent, (int64_t)bytes_of(c, sent));
    add_to(&c->traffic->received, (int64_t)bytes_of(c, received));
}

struct adding {
    const struct sum *sum;
    char *to;
};

static void sink_add(void *ctx, size_t offset, const void *data, size_t n) {
    struct adding *a = ctx;
    char *to = a->to + offset;
    combine(a->sum->type, a->sum->op, (int64_t)(n / dtype_size(a->sum->type)), to, data, to);
}

enum error collective_exchange(struct collective *c, struct leg out, struct leg in) {
    struct adding adding = {&c->sum, in.data};
    struct outgoing o = {out.peer, out.data, bytes_of(c, out.elements)};
    struct incoming i = {in.peer, bytes_of(c, in.elements), in.add ? sink_add : sink_copy,
                         in.add ? (void *)&adding : (void *)in.data};
    collective_count(c, out.peer < 0 ? 0 : out.elements, in.peer < 0 ? 0 : in.elements);
    return c->link->ops->exchange(c->link, c->lane, &c->call, out.peer < 0 ? NULL : &o,
                                  in.peer < 0 ? NULL : &i);
}

void collective_sum(const struct collective *c, int64_t lo, int64_t hi, char *const *to, int n) {
    const char *in[RANKS_MAX];
    char *out[RANKS_MAX];
    for (int r = 0; r < c->sum.ranks; r++) in[r] = element(c, c->at[c->sum.first + r], lo);
    for (int i = 0; i < n; i++) out[i] = element(c, to[i], lo);
    order_sum(&c->sum, lo, hi, in, out, n);
}

enum error collective_finish(struct collective *c) {
    return c->staged ? ERR_NONE : c->link->ops->sync(c->link, c->lane);
}
