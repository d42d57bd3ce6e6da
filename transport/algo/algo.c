/* The list of algorithms, and what they are made of. */
#include "transport/algo/algo.h"

#include <stdatomic.h>
#include <string.h>

#define ALGO(name) extern const struct algo_ops algo_##name;
#include "transport/algo/algos.def"

static const struct algo_ops *const algos[] = {
#define ALGO(name) &algo_##name,
#include "transport/algo/algos.def"
};

const struct algo_ops *const *algo_list(int *count) {
    *count = (int)(sizeof algos / sizeof *algos);
    return algos;
}

const char *const *algo_names(void) {
    static const char *const names[] = {
#define ALGO(name) #name,
#include "transport/algo/algos.def"
        NULL};
    return names;
}

const struct algo_ops *algo_find(const char *name) {
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++)
        if (!strcmp(algos[i]->name, name)) return algos[i];
    return NULL;
}

bool algo_suits(const struct algo_ops *a, enum order order, const struct places *p, bool several) {
    if (several && !a->several) return false;
    return a->orders[order] && (p->locals || !a->hosts_alike) && (!a->even || p->even);
}

int64_t collective_cut(const struct collective *c, int r) {
    int64_t line = ALIGNMENT / (int64_t)dtype_size(c->sum.type);
    int64_t cut = order_chunk(c->hi - c->lo, c->size, r);
    return r == c->size ? c->hi : c->lo + cut / line * line;
}

/* Only the thread that runs the lane adds; others may read. */
static void traffic_add(_Atomic int64_t *total, int64_t n) {
    int64_t old = atomic_load_explicit(total, memory_order_relaxed);
    atomic_store_explicit(total, old + n, memory_order_relaxed);
}

void collective_count(struct collective *c, int64_t sent, int64_t received) {
    traffic_add(&c->traffic->sent, (int64_t)bytes_of(c, sent));
    traffic_add(&c->traffic->received, (int64_t)bytes_of(c, received));
}

/* The nearest element that can be reached. */
static int64_t collective_within(const struct collective *c, int64_t element) {
    return element < c->lo ? c->lo : element > c->hi ? c->hi : element;
}

struct element_range collective_range(const struct collective *c, enum kind kind, int from, int to) {
    int owner = kind_gathers(kind) ? from : to;
    if (kind == KIND_ALL_TO_ALL) {
        const int64_t *side = from == c->rank ? c->send_part + to : c->part + from;
        return (struct element_range){side[0], side[1]};
    }
    if ((kind_from_root(kind) && from != c->root) || (kind_to_root(kind) && to != c->root))
        return (struct element_range){c->lo, c->lo};
    if (kind == KIND_ALL_GATHER && to != from && to < c->sum.first) return (struct element_range){c->lo, c->lo};
    if (kind == KIND_REDUCE || kind == KIND_BROADCAST) return (struct element_range){c->lo, c->hi};
    if (!c->part) return (struct element_range){collective_cut(c, owner), collective_cut(c, owner + 1)};
    return (struct element_range){collective_within(c, c->part[owner]), collective_within(c, c->part[owner + 1])};
}

void collective_count_ideal(struct collective *c, enum kind kind) {
    const struct element_range part = collective_range(c, KIND_REDUCE_SCATTER, c->rank, c->rank);
    int64_t lo = c->part ? collective_within(c, c->part[0]) : c->lo, all = c->hi - lo, own = part.hi - part.lo;
    int64_t others = all - own, peers = c->size - 1, mine = own_terms(c), theirs = c->band->n - mine;
    bool root = c->rank == c->root, receives = c->rank >= c->sum.first;
    int64_t receivers = c->size - c->sum.first - receives; /* of an all-gather, but for this rank */
    if (kind == KIND_ALL_REDUCE)
        collective_count(c, mine * others + peers * own, theirs * own + others);
    else if (kind == KIND_REDUCE)
        collective_count(c, root ? 0 : mine * all, root ? theirs * all : 0);
    else if (kind == KIND_BROADCAST)
        collective_count(c, root ? peers * all : 0, root ? 0 : all);
    else if (kind == KIND_REDUCE_SCATTER)
        collective_count(c, mine * others, theirs * own);
    else if (kind == KIND_ALL_GATHER)
        collective_count(c, receivers * own, receives ? others : 0);
    else if (kind == KIND_SCATTER)
        collective_count(c, root ? others : 0, root ? 0 : own);
    else if (kind == KIND_GATHER)
        collective_count(c, root ? 0 : own, root ? others : 0);
    else /* all_to_all */
        collective_count(c, c->send_part[c->size] - c->send_part[0] - own, others);
}

/* ---- who stands where ---- */

static enum error band_create(struct band *b, int most, struct pool *pool) {
    int *lists = pool_alloc(pool, (size_t)most * (3 * sizeof *lists + 1));
    if (!lists) return ERR_MEMORY;
    *b = (struct band){.rank = lists, .piece = lists + most, .leaf = lists + 2 * most};
    b->adds = (uint8_t *)(lists + 3 * most);
    return ERR_NONE;
}

static void band_append(struct band *b, int rank, int piece, int leaf) {
    b->rank[b->n] = rank, b->piece[b->n] = piece, b->leaf[b->n] = leaf;
    b->n++;
}

/* When all are appended. */
static void band_close(struct band *b, int me) {
    int first;
    leaves_adds(b->leaf, b->n, b->adds);
    b->me = band_terms(b, me, &first) ? first : -1;
}

int band_terms(const struct band *b, int rank, int *first) {
    int count = 0;
    *first = -1;
    for (int i = 0; i < b->n; i++)
        if (b->rank[i] == rank && count++ == 0) *first = i;
    return count;
}

bool band_is_even(const struct band *b) {
    for (int i = 0; i < b->n; i++)
        if (b->adds[i] != __builtin_ctz((unsigned)i + 1)) return false;
    return is_power_of_two(b->n);
}

/* Hosts one after another, and each host's ranks in theirs. */
static void places_stand(struct places *p, const struct roster *roster) {
    int n = 0;
    for (int h = 0; h < (roster ? p->hosts : 1); h++)
        for (int r = 0; r < p->size; r++) {
            if (roster && roster->of[r].host != h) continue;
            p->place[r] = n;
            p->rank[n++] = r;
        }
}

int places_locals(int leaves, int size, int locals) {
    for (int i = 0; i < size && locals < size; i += locals) {
        int from = leaves_cut(leaves, size, i), to = leaves_cut(leaves, size, i + locals);
        if (leaves_subtree(from, to) != to - from) return 0;
    }
    return locals;
}

int places_terms(int leaves, int ranks) {
    int terms = 0;
    for (int r = 0; r < ranks; r++)
        terms += leaves_subtrees(leaves_cut(leaves, ranks, r), leaves_cut(leaves, ranks, r + 1));
    return terms;
}

/* The roster numbers each host's ranks from 0. */
static bool places_hosts_are_equal(const struct places *p, const struct roster *roster) {
    int each = p->size / p->hosts;
    for (int r = 0; r < p->size; r++)
        if (roster->of[r].local >= each) return false;
    return true;
}

static void band_append_pieces(struct band *b, int rank, int from, int to) {
    for (int piece = 0; from < to; from += leaves_subtree(from, to)) band_append(b, rank, piece++, from);
}

static enum error bands_plan_hosts(const struct places *p, struct bands *bands, int rank, struct pool *pool) {
    int local = p->place[rank] % p->locals, first = p->place[rank] - local;
    TRY(band_create(&bands->near, p->locals, pool));
    TRY(band_create(&bands->far, p->hosts, pool));
    for (int i = first; i < first + p->locals; i++) band_append(&bands->near, p->rank[i], 0, bands->all.leaf[i]);
    for (int i = local; i < p->size; i += p->locals)
        band_append(&bands->far, p->rank[i], 0, bands->all.leaf[i - local]);
    band_close(&bands->near, rank);
    band_close(&bands->far, rank);
    return ERR_NONE;
}

static enum error bands_create(struct bands *b, int size, int givers, int terms, struct pool *pool) {
    *b = (struct bands){0};
    TRY(band_create(&b->all, size, pool));
    TRY(band_create(&b->given, givers, pool));
    return band_create(&b->pieces, terms, pool);
}

enum error places_plan(struct places *p, struct bands *bands, const struct placing *of, struct pool *pool) {
    const struct tree tree = of->tree;
    const struct roster *roster = of->roster;
    int rank = of->rank, size = of->size;
    bool ring = tree.order == ORDER_RING; /* whose neighbours are those by number */
    int givers = size - tree.idle, leaves = ring || tree.leaves < givers ? givers : tree.leaves;
    *p = (struct places){.size = size, .hosts = roster ? roster->hosts : 1, .terms = places_terms(leaves, givers)};
    TRY_MEMORY(p->rank = pool_alloc(pool, 2 * (size_t)size * sizeof *p->rank));
    p->place = p->rank + size;
    p->own = tree.idle ? 0 : leaves_subtrees(0, leaves_cut(leaves, givers, 1));
    TRY(bands_create(bands, size, givers, p->terms, pool));
    places_stand(p, ring ? NULL : roster);
    for (int i = 0; i < size; i++) band_append(&bands->all, p->rank[i], 0, tree.idle ? i : leaves_cut(leaves, size, i));
    for (int i = 0; i < givers; i++) { /* where some give nothing, the others stand as numbered */
        int r = tree.idle ? tree.idle + i : p->rank[i], from = leaves_cut(leaves, givers, i);
        band_append(&bands->given, r, 0, from);
        band_append_pieces(&bands->pieces, r, from, leaves_cut(leaves, givers, i + 1));
    }
    band_close(&bands->all, rank);
    band_close(&bands->given, rank);
    band_close(&bands->pieces, rank);
    p->even = band_is_even(&bands->all);
    if (p->hosts == 1)
        p->locals = size;
    else if (!ring && !tree.idle && places_hosts_are_equal(p, roster))
        p->locals = places_locals(leaves, size, size / p->hosts);
    return p->hosts > 1 && p->locals ? bands_plan_hosts(p, bands, rank, pool) : ERR_NONE;
}

enum error lane_lists_create(struct lane_lists *l, int size, int terms, struct pool *pool) {
    size_t n = (size_t)size;
    void **lists = pool_alloc(pool, (3 * n + (size_t)terms) * sizeof *lists);
    l->part = pool_alloc(pool, (n + 1) * sizeof *l->part);
    l->borrows = pool_alloc(pool, n * sizeof *l->borrows);
    if (!lists || !l->part || !l->borrows) return ERR_MEMORY;
    l->at = lists, l->slots = lists + n;
    l->out = (char **)(void *)(lists + 2 * n);
    l->in = (const char **)(void *)(lists + 3 * n);
    TRY(band_create(&l->turned, size, pool));
    for (int i = 0; i < size; i++) band_append(&l->turned, i, 0, i);
    return ERR_NONE;
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
    const struct band *b = c->band;
    const char **in = c->lists->in;
    char **out = c->lists->out;
    for (int i = 0; i < b->n; i++) in[i] = term(c, b, i, c->at[b->rank[i]], lo);
    for (int i = 0; i < n; i++) out[i] = element(c, to[i], lo);
    order_sum(&c->sum, lo, hi, in, out, n);
}

enum error collective_finish(struct collective *c) {
    return c->staged ? ERR_NONE : c->link->ops->sync(c->link, c->lane);
}
