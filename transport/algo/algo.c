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

bool algo_suits(const struct algo_ops *a, enum order order, const struct places *p) {
    return a->orders[order] && (p->locals || !a->hosts_alike);
}

int64_t collective_cut(const struct collective *c, int r) {
    int64_t line = ALIGNMENT / (int64_t)dtype_size(c->sum.type);
    int64_t cut = order_chunk(c->hi - c->lo, c->size, r);
    return r == c->size ? c->hi : c->lo + cut / line * line;
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

/* ---- who stands where ---- */

static bool power_of_two(int n) {
    return n > 0 && (n & (n - 1)) == 0;
}

/* How many ranks every host has; 0 when hosts differ. */
static int equal_locals(int size, const struct roster *roster) {
    int count[RANKS_MAX] = {0};
    for (int r = 0; r < size; r++) count[roster->of[r].host]++;
    for (int h = 0; h < roster->hosts; h++)
        if (count[h] != count[0]) return 0;
    return count[0];
}

void places_plan(struct places *p, enum order order, int size, const struct roster *roster) {
    *p = (struct places){.size = size, .hosts = roster ? roster->hosts : 1, .locals = size};
    if (p->hosts > 1) p->locals = order == ORDER_TREE ? equal_locals(size, roster) : 0;
    if (p->hosts > 1 && !power_of_two(p->locals)) p->locals = 0;
    for (int r = 0; r < size; r++) {
        bool cyclic = p->hosts > 1 && p->locals;
        p->place[r] = cyclic ? roster->of[r].local * p->hosts + roster->of[r].host : r;
        p->rank[p->place[r]] = r;
    }
}

struct band collective_band(const struct collective *c) {
    struct band band = {.n = c->sum.ranks, .me = -1};
    for (int i = 0; i < band.n; i++) { /* where some give nothing, the others stand as numbered */
        band.rank[i] = c->sum.first ? c->sum.first + i : c->places->rank[i];
        if (band.rank[i] == c->rank) band.me = i;
    }
    return band;
}

/* ---- messages ---- */

struct adding {
    const struct sum *sum;
    char *to;
    bool left; /* what comes is the left operand */
};

static void sink_add(void *ctx, size_t offset, const void *data, size_t n) {
    struct adding *a = ctx;
    char *to = a->to + offset;
    combine(a->sum->type, a->sum->op, (int64_t)(n / dtype_size(a->sum->type)), to, a->left ? data : to,
            a->left ? to : data);
}

enum error collective_exchange(struct collective *c, struct leg out, struct leg in) {
    bool add = in.landing != LAND_COPY;
    struct adding adding = {&c->sum, in.data, in.landing == LAND_LEFT};
    struct outgoing o = {.peer = out.peer, .data = out.data, .bytes = bytes_of(c, out.elements)};
    struct incoming i = {.peer = in.peer,
                         .bytes = bytes_of(c, in.elements),
                         .sink = add ? sink_add : sink_copy,
                         .ctx = add ? (void *)&adding : (void *)in.data};
    collective_count(c, out.peer < 0 ? 0 : out.elements, in.peer < 0 ? 0 : in.elements);
    return c->link->ops->exchange(c->link, c->lane, &c->call, out.peer < 0 ? NULL : &o, in.peer < 0 ? NULL : &i);
}

enum error collective_send(struct collective *c, int peer, char *data, int64_t elements) {
    return collective_exchange(c, (struct leg){peer, data, elements, LAND_COPY}, (struct leg){.peer = -1});
}

enum error collective_receive(struct collective *c, int peer, char *data, int64_t elements, enum landing landing) {
    return collective_exchange(c, (struct leg){.peer = -1}, (struct leg){peer, data, elements, landing});
}

/* ---- memory that can be read ---- */

void collective_sum(const struct collective *c, int64_t lo, int64_t hi, char *const *to, int n) {
    const struct band band = collective_band(c);
    const char *in[RANKS_MAX];
    char *out[RANKS_MAX];
    for (int i = 0; i < band.n; i++) in[i] = element(c, c->at[band.rank[i]], lo);
    for (int i = 0; i < n; i++) out[i] = element(c, to[i], lo);
    order_sum(&c->sum, lo, hi, in, out, n);
}

enum error collective_finish(struct collective *c) {
    return c->staged ? ERR_NONE : c->link->ops->sync(c->link, c->lane);
}
