/* The plain way: see plain.h. Each collective has a way over readable buffers, which ends when all
 * have read, and a way over pipes, in which a sum needs the same few KB of every rank at once
 * (scratch). */
#include "transport/algo/plain.h"

#include <string.h>

static const struct leg no_leg = {.peer = -1};

static struct leg leg_to(int peer, char *data, int64_t n) {
    return (struct leg){peer, data, n, false};
}

/* ---- over buffers that can be read ---- */

/* Copies elements [lo, hi) of a peer's buffer. */
static void fetch(struct collective *c, int peer, int64_t lo, int64_t hi) {
    const char *from = element(c, c->at[peer], lo);
    char *to = element(c, c->buf, lo);
    if (from != to && hi > lo) memcpy(to, from, bytes_of(c, hi - lo));
}

static enum error read_reduce(struct collective *c) {
    int64_t n = c->sum.count;
    bool root = c->rank == c->root, giver = gives(c, c->rank);
    collective_count(c, giver && !root ? n : 0, root ? (c->sum.ranks - giver) * n : 0);
    if (root) collective_sum(c, 0, n, &c->buf, 1);
    return collective_finish(c);
}

static enum error read_broadcast(struct collective *c) {
    int64_t n = c->sum.count;
    bool root = c->rank == c->root;
    collective_count(c, root ? (c->size - 1) * n : 0, root ? 0 : n);
    if (!root) fetch(c, c->root, 0, n);
    return collective_finish(c);
}

static int64_t part_size(const struct collective *c, int r) {
    return c->part[r + 1] - c->part[r];
}

static int64_t parts_of_others(const struct collective *c) {
    return c->part[c->size] - c->part[0] - part_size(c, c->rank);
}

static enum error read_reduce_scatter(struct collective *c) {
    collective_count(c, parts_of_others(c), (c->size - 1) * part_size(c, c->rank));
    collective_sum(c, c->part[c->rank], c->part[c->rank + 1], &c->buf, 1);
    return collective_finish(c);
}

static enum error read_all_gather(struct collective *c) {
    collective_count(c, (c->size - 1) * part_size(c, c->rank), parts_of_others(c));
    for (int i = 1; i < c->size; i++) { /* not all from rank 0 at once */
        int r = (c->rank + i) % c->size;
        fetch(c, r, c->part[r], c->part[r + 1]);
    }
    return collective_finish(c);
}

static enum error read_scatter(struct collective *c) {
    bool root = c->rank == c->root;
    collective_count(c, root ? parts_of_others(c) : 0, root ? 0 : part_size(c, c->rank));
    if (!root) fetch(c, c->root, c->part[c->rank], c->part[c->rank + 1]);
    return collective_finish(c);
}

static enum error read_gather(struct collective *c) {
    bool root = c->rank == c->root;
    collective_count(c, root ? 0 : part_size(c, c->rank), root ? parts_of_others(c) : 0);
    for (int r = 0; root && r < c->size; r++)
        if (r != c->root) fetch(c, r, c->part[r], c->part[r + 1]);
    return collective_finish(c);
}

/* ---- over pipes ---- */

static int64_t piece_of(const struct collective *c) {
    return PART_BYTES / (int64_t)dtype_size(c->sum.type);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Rank r's elements [lo, ...) of the next sum are received into its share of the scratch. */
static char *scratch_of(const struct collective *c, int r) {
    return c->scratch + (size_t)r * PART_BYTES;
}

/* Sums [lo, hi) of my buffer and of what the scratch holds of the others'. */
static void scratch_sum(struct collective *c, int64_t lo, int64_t hi) {
    char *out[] = {element(c, c->buf, lo)};
    const char *in[RANKS_MAX];
    for (int i = 0; i < c->sum.ranks; i++) {
        int r = c->sum.first + i;
        in[i] = r == c->rank ? out[0] : scratch_of(c, r);
    }
    order_sum(&c->sum, lo, hi, in, out, 1);
}

static enum error pipe_reduce(struct collective *c) {
    int64_t n = c->sum.count, piece = piece_of(c);
    if (c->rank != c->root && !gives(c, c->rank)) return ERR_NONE;
    for (int64_t lo = 0; lo < n; lo += piece) {
        int64_t hi = least(lo + piece, n);
        if (c->rank != c->root) {
            TRY(collective_exchange(c, leg_to(c->root, element(c, c->buf, lo), hi - lo), no_leg));
            continue;
        }
        for (int r = c->sum.first; r < c->size; r++)
            if (r != c->root)
                TRY(collective_exchange(c, no_leg, leg_to(r, scratch_of(c, r), hi - lo)));
        scratch_sum(c, lo, hi);
    }
    return ERR_NONE;
}

static enum error pipe_broadcast(struct collective *c) {
    int64_t n = c->sum.count, piece = piece_of(c);
    for (int64_t lo = 0; lo < n; lo += piece) {
        char *data = element(c, c->buf, lo);
        int64_t some = least(piece, n - lo);
        if (c->rank != c->root) {
            TRY(collective_exchange(c, no_leg, leg_to(c->root, data, some)));
            continue;
        }
        for (int i = 1; i < c->size; i++)
            TRY(collective_exchange(c, leg_to((c->root + i) % c->size, data, some), no_leg));
    }
    return ERR_NONE;
}

/* The piece of rank r's part that begins 'from' elements into it; perhaps nothing. */
static struct leg part_leg(const struct collective *c, int peer, int r, int64_t from) {
    int64_t left = part_size(c, r) - from;
    if (left <= 0) return (struct leg){peer, c->buf, 0, false};
    return leg_to(peer, element(c, c->buf, c->part[r] + from), least(left, piece_of(c)));
}

/* In round i everybody sends to the rank i places on and receives from the one i places back. */
static enum error pipe_reduce_scatter(struct collective *c) {
    int64_t longest = 0;
    for (int r = 0; r < c->size; r++)
        if (part_size(c, r) > longest) longest = part_size(c, r);
    for (int64_t from = 0; from < longest; from += piece_of(c)) {
        struct leg own = part_leg(c, c->rank, c->rank, from);
        for (int i = 1; i < c->size; i++) {
            int to = (c->rank + i) % c->size, by = (c->rank - i + c->size) % c->size;
            TRY(collective_exchange(c, part_leg(c, to, to, from),
                                    leg_to(by, scratch_of(c, by), own.elements)));
        }
        int64_t lo = c->part[c->rank] + from;
        if (own.elements) scratch_sum(c, lo, lo + own.elements);
    }
    return ERR_NONE;
}

static struct leg whole_part(const struct collective *c, int peer, int r) {
    return leg_to(peer, element(c, c->buf, c->part[r]), part_size(c, r));
}

static enum error pipe_all_gather(struct collective *c) {
    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, by = (c->rank - i + c->size) % c->size;
        TRY(collective_exchange(c, whole_part(c, to, c->rank), whole_part(c, by, by)));
    }
    return ERR_NONE;
}

static enum error pipe_scatter(struct collective *c) {
    if (c->rank != c->root) return collective_exchange(c, no_leg, whole_part(c, c->root, c->rank));
    for (int r = 0; r < c->size; r++)
        if (r != c->root) TRY(collective_exchange(c, whole_part(c, r, r), no_leg));
    return ERR_NONE;
}

static enum error pipe_gather(struct collective *c) {
    if (c->rank != c->root) return collective_exchange(c, whole_part(c, c->root, c->rank), no_leg);
    for (int r = 0; r < c->size; r++)
        if (r != c->root) TRY(collective_exchange(c, no_leg, whole_part(c, r, r)));
    return ERR_NONE;
}

/* ---- both ---- */

#define EITHER_WAY(name)                                                                           \
    static enum error plain_##name(struct collective *c) {                                         \
        return c->in_place || c->staged ? read_##name(c) : pipe_##name(c);                         \
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
};
