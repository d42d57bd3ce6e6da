/* The plain way: see plain.h. Each collective has a way over readable buffers, which ends when all have read, and a way
 * over pipes, in which a sum needs the same few KB of every rank at once (scratch). */
#include "transport/algo/plain.h"

#include <string.h>

static const struct leg no_leg = {.peer = -1};

/* ---- over buffers that can be read: what of them can be reached, [lo, hi) ---- */

/* Copies elements [from, to) of a peer's buffer, as far as they can be reached. */
static void plain_fetch(struct collective *c, int peer, int64_t from, int64_t to) {
    int64_t lo = collective_within(c, from), hi = collective_within(c, to);
    const char *theirs = element(c, c->at[peer], lo);
    char *mine = element(c, c->buf, lo);
    if (theirs != mine && hi > lo) memcpy(mine, theirs, bytes_of(c, hi - lo));
}

static enum error read_reduce(struct collective *c) {
    collective_count_ideal(c, KIND_REDUCE);
    if (c->rank == c->root) collective_sum(c, c->lo, c->hi, &c->buf, 1);
    return collective_finish(c);
}

static enum error read_broadcast(struct collective *c) {
    collective_count_ideal(c, KIND_BROADCAST);
    if (c->rank != c->root) plain_fetch(c, c->root, c->lo, c->hi);
    return collective_finish(c);
}

static enum error read_reduce_scatter(struct collective *c) {
    const int64_t *own = &c->part[c->rank];
    collective_count_ideal(c, KIND_REDUCE_SCATTER);
    collective_sum(c, collective_within(c, own[0]), collective_within(c, own[1]), &c->buf, 1);
    return collective_finish(c);
}

static enum error read_all_gather(struct collective *c) {
    collective_count_ideal(c, KIND_ALL_GATHER);
    for (int i = 1; i < c->size && c->rank >= c->sum.first; i++) { /* not all from rank 0 at once */
        int r = (c->rank + i) % c->size;
        plain_fetch(c, r, c->part[r], c->part[r + 1]);
    }
    return collective_finish(c);
}

static enum error read_scatter(struct collective *c) {
    collective_count_ideal(c, KIND_SCATTER);
    if (c->rank != c->root) plain_fetch(c, c->root, c->part[c->rank], c->part[c->rank + 1]);
    return collective_finish(c);
}

static enum error read_gather(struct collective *c) {
    collective_count_ideal(c, KIND_GATHER);
    for (int r = 0; c->rank == c->root && r < c->size; r++)
        if (r != c->root) plain_fetch(c, r, c->part[r], c->part[r + 1]);
    return collective_finish(c);
}

/* ---- over pipes ---- */

static int64_t piece_of(const struct collective *c) {
    return (int64_t)(c->part_bytes / dtype_size(c->sum.type));
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Where a piece of the band's term i is received, to be added. */
static char *scratch_of(const struct collective *c, int i) {
    return c->scratch + (size_t)i * c->part_bytes;
}

/* Sums [lo, hi) of my terms and of what the scratch holds of the others'. A band that is not all
 * who give makes only a part of the sum, which is not divided yet. */
static void scratch_sum(struct collective *c, const struct band *band, int64_t lo, int64_t hi) {
    char *out[] = {element(c, c->buf, lo)};
    const char **in = c->lists->in;
    struct sum s = c->sum;
    s.terms = band->n, s.adds = band->adds;
    if (band != c->band && s.op == REDOP_AVERAGE) s.op = REDOP_SUM;
    for (int i = 0; i < band->n; i++)
        in[i] = band->rank[i] == c->rank ? term(c, band, i, c->buf, lo) : scratch_of(c, i);
    order_sum(&s, lo, hi, in, out, 1);
}

static enum error pipe_reduce(struct collective *c) {
    const struct band *b = c->band;
    int64_t n = c->sum.count, piece = piece_of(c);
    bool root = c->rank == c->root;
    for (int64_t lo = 0; lo < n; lo += piece) {
        int64_t hi = least(lo + piece, n);
        for (int i = 0; i < b->n; i++) {
            bool mine = b->rank[i] == c->rank;
            if (root && !mine) TRY(collective_receive(c, b->rank[i], scratch_of(c, i), hi - lo, LAND_COPY));
            if (!root && mine) TRY(collective_send(c, c->root, term(c, b, i, c->buf, lo), hi - lo));
        }
        if (root) scratch_sum(c, b, lo, hi);
    }
    return ERR_NONE;
}

static enum error pipe_broadcast(struct collective *c) {
    int64_t n = c->sum.count, piece = piece_of(c);
    for (int64_t lo = 0; lo < n; lo += piece) {
        char *data = element(c, c->buf, lo);
        int64_t some = least(piece, n - lo);
        if (c->rank != c->root) {
            TRY(collective_receive(c, c->root, data, some, LAND_COPY));
            continue;
        }
        for (int i = 1; i < c->size; i++) TRY(collective_send(c, (c->root + i) % c->size, data, some));
    }
    return ERR_NONE;
}

/* To whom a rank sends in a round, and from whom it receives; -1: nobody. */
struct round {
    int to, by;
};

/* Whether all parts are of ranks that give nothing: then only these and the others have anything for each other. */
static bool all_is_served(const struct collective *c) {
    return c->sum.first && c->part[c->sum.first] == c->part[c->size];
}

static int rounds_of(const struct collective *c, const struct band *band) {
    int servers = c->sum.first, others = c->size - servers;
    return !all_is_served(c) ? band->n - 1 : servers > others ? servers : others;
}

/* In round i each sends to the member i + 1 on and receives from the one as far back; or each server has another one of
 * the others, so that no port waits while there are as many. */
static struct round round_of(const struct collective *c, const struct band *band, int i) {
    int servers = c->sum.first, all = rounds_of(c, band), peer;
    if (!all_is_served(c))
        return (struct round){band->rank[(band->me + i + 1) % band->n], band->rank[(band->me + all - i) % band->n]};
    if (c->rank < servers) {
        peer = servers + (c->rank + all - i) % all;
        if (peer >= c->size) peer = -1;
    } else {
        peer = (c->rank - servers + i) % all;
        if (peer >= servers) peer = -1;
    }
    return (struct round){peer, peer};
}

/* A leg without elements, of a rank that has no part, is no message. */
static enum error swap_legs(struct collective *c, struct leg out, struct leg in) {
    if (!out.elements && !in.elements) return ERR_NONE;
    return collective_exchange(c, out.elements ? out : no_leg, in.elements ? in : no_leg);
}

/* The piece of rank r's part that begins 'from' elements into it, for r; perhaps nothing. */
static struct leg part_leg(const struct collective *c, int r, int64_t from) {
    if (r < 0) return no_leg;
    int64_t left = part_size(c, r) - from;
    if (left <= 0) return (struct leg){r, c->buf, 0, LAND_COPY};
    return (struct leg){r, element(c, c->buf, c->part[r] + from), least(left, piece_of(c)), LAND_COPY};
}

/* This rank's terms of a piece of another's part, for that of mine of a third's. */
static enum error swap_terms(struct collective *c, const struct band *terms, struct leg out, int by, int64_t elements) {
    int to_first, by_first = 0, mine = band_terms(terms, c->rank, &to_first);
    int theirs = by < 0 ? 0 : band_terms(terms, by, &by_first);
    char *buf = out.data;
    for (int k = 0; k < mine || k < theirs; k++) {
        struct leg in = {by, k < theirs ? scratch_of(c, by_first + k) : NULL, elements, LAND_COPY};
        if (k < mine) out.data = buf + bytes_of(c, k * c->apart);
        TRY(swap_legs(c, k < mine ? out : no_leg, k < theirs ? in : no_leg));
    }
    return ERR_NONE;
}

enum error band_reduce_scatter(struct collective *c, const struct band *ranks, const struct band *terms) {
    int64_t longest = 0;
    for (int i = 0; i < ranks->n; i++)
        if (part_size(c, ranks->rank[i]) > longest) longest = part_size(c, ranks->rank[i]);
    for (int64_t from = 0; from < longest; from += piece_of(c)) {
        int64_t own = part_leg(c, c->rank, from).elements, lo = c->part[c->rank] + from;
        for (int i = 0; i < rounds_of(c, ranks); i++) {
            struct round with = round_of(c, ranks, i);
            TRY(swap_terms(c, terms, part_leg(c, with.to, from), with.by, own));
        }
        if (own) scratch_sum(c, terms, lo, lo + own);
    }
    return ERR_NONE;
}

/* Rank r's whole part, to or from a peer. */
static struct leg whole_part(const struct collective *c, int peer, int r) {
    return (struct leg){peer, element(c, c->buf, c->part[r]), part_size(c, r), LAND_COPY};
}

enum error band_all_gather(struct collective *c, const struct band *ranks) {
    for (int i = 0; i < rounds_of(c, ranks); i++) {
        struct round with = round_of(c, ranks, i);
        struct leg out = with.to < c->sum.first ? no_leg : whole_part(c, with.to, c->rank);
        TRY(swap_legs(c, out, with.by < 0 || c->rank < c->sum.first ? no_leg : whole_part(c, with.by, with.by)));
    }
    return ERR_NONE;
}

static enum error pipe_reduce_scatter(struct collective *c) {
    return band_reduce_scatter(c, &c->bands->all, c->band);
}

static enum error pipe_all_gather(struct collective *c) {
    return band_all_gather(c, &c->bands->all);
}

static enum error pipe_scatter(struct collective *c) {
    if (c->rank != c->root) return collective_exchange(c, no_leg, whole_part(c, c->root, c->rank));
    for (int i = 1; i < c->size; i++) {
        int r = (c->root + i) % c->size;
        TRY(collective_exchange(c, whole_part(c, r, r), no_leg));
    }
    return ERR_NONE;
}

static enum error pipe_gather(struct collective *c) {
    if (c->rank != c->root) return collective_exchange(c, whole_part(c, c->root, c->rank), no_leg);
    for (int i = 1; i < c->size; i++) {
        int r = (c->root + i) % c->size;
        TRY(collective_exchange(c, no_leg, whole_part(c, r, r)));
    }
    return ERR_NONE;
}

/* What a rank receives is its own affair, so there is nothing that others could read in place. */
static enum error plain_all_to_all(struct collective *c) {
    const int64_t *to = c->send_part, *from = c->part;
    const char *own = element(c, c->send, to[c->rank]);
    if (part_size(c, c->rank)) memcpy(element(c, c->buf, from[c->rank]), own, bytes_of(c, part_size(c, c->rank)));
    for (int i = 1; i < c->size; i++) {
        int r = (c->rank + i) % c->size, by = (c->rank - i + c->size) % c->size;
        struct leg out = {r, element(c, c->send, to[r]), to[r + 1] - to[r], LAND_COPY};
        TRY(collective_exchange(c, out, whole_part(c, by, by)));
    }
    return ERR_NONE;
}

/* ---- both ---- */

#define EITHER_WAY(name)                                                                                               \
    static enum error plain_##name(struct collective *c) {                                                             \
        return c->in_place || c->staged ? read_##name(c) : pipe_##name(c);                                             \
    }
EITHER_WAY(reduce)
EITHER_WAY(broadcast)
EITHER_WAY(reduce_scatter)
EITHER_WAY(all_gather)
EITHER_WAY(scatter)
EITHER_WAY(gather)

const collective_fn plain_run[COLLECTIVES] = {
    [KIND_REDUCE] = plain_reduce,
    [KIND_BROADCAST] = plain_broadcast,
    [KIND_REDUCE_SCATTER] = plain_reduce_scatter,
    [KIND_ALL_GATHER] = plain_all_gather,
    [KIND_SCATTER] = plain_scatter,
    [KIND_GATHER] = plain_gather,
    [KIND_ALL_TO_ALL] = plain_all_to_all,
};

/* ---- what the pipes cost ---- */

/* The needy rank's port is the bottleneck; what comes is added after it has come. */
double plain_reduce_cost(const struct terrain *t, double bytes) {
    return t->alpha + (t->places->terms - t->places->own) * bytes * (t->beta + t->gamma);
}

double plain_broadcast_cost(const struct terrain *t, double bytes) {
    return t->alpha + (t->places->size - 1) * bytes * t->beta;
}
