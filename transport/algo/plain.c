/* The plain way: see plain.h. Each collective has a way over readable buffers, which ends when all have read, and a way
 * over pipes, in which a sum needs the same few KB of every rank at once (scratch). Which elements go from whom to
 * whom, collective_range says. */
#include "transport/algo/plain.h"

#include <string.h>

static const struct leg no_leg = {.peer = -1};

/* ---- over buffers that can be read ---- */

static void plain_read_part(const struct collective *c, int peer, struct element_range r) {
    const char *theirs = element(c, peer == c->rank ? c->buf : c->at[peer], r.lo);
    char *mine = element(c, c->kind == KIND_SCATTER ? own_place(c) : c->buf, r.lo);
    if (theirs != mine && r.hi > r.lo) memcpy(mine, theirs, bytes_of(c, r.hi - r.lo));
}

static enum error plain_read(struct collective *c, enum kind kind) {
    const struct element_range own = collective_range(c, kind, c->rank, c->rank);
    collective_count_ideal(c, kind);
    if (kind_adds(kind)) collective_sum(c, own.lo, own.hi, (char *[]){own_place(c)}, 1);
    for (int i = 1; i <= c->size && !kind_adds(kind); i++) { /* not all from rank 0 at once */
        int r = (c->rank + i) % c->size;
        plain_read_part(c, r, collective_range(c, kind, r, c->rank));
    }
    return collective_finish(c);
}

/* ---- over pipes ---- */

static int64_t plain_piece(const struct collective *c) {
    return (int64_t)(c->part_bytes / dtype_size(c->sum.type));
}

/* Where a piece of the band's term i is received, to be added. */
static char *plain_scratch(const struct collective *c, int i) {
    return c->scratch + (size_t)i * c->part_bytes;
}

bool band_is_in_reach(const struct collective *c, const struct band *ranks) {
    for (int i = 0; i < ranks->n; i++)
        if (!c->at[ranks->rank[i]]) return false;
    return true;
}

void band_add(struct collective *c, const struct band *band, int64_t lo, int64_t hi) {
    char *out[] = {element(c, own_place(c), lo)};
    struct sum s = c->sum;
    s.terms = band->n, s.adds = band->adds;
    if (band != c->band && s.op == REDOP_AVERAGE) s.op = REDOP_SUM;
    order_sum(&s, lo, hi, c->lists->in, out, 1);
}

/* Sums [lo, hi) of my terms and of what the scratch holds of the others'. */
static void band_sum_scratch(struct collective *c, const struct band *band, int64_t lo, int64_t hi) {
    for (int i = 0; i < band->n; i++)
        c->lists->in[i] = band->rank[i] == c->rank ? term(c, band, i, c->buf, lo) : plain_scratch(c, i);
    band_add(c, band, lo, hi);
}

/* To whom a rank sends in a round, and from whom it receives; -1: nobody. */
struct round {
    int to, by;
};

/* Whether all parts are of ranks that give nothing: then only these and the others have anything for each other. */
static bool parts_are_served(const struct collective *c) {
    return c->sum.first && c->part && c->part[c->sum.first] == c->part[c->size];
}

static int band_rounds(const struct collective *c, const struct band *b) {
    int servers = c->sum.first, others = c->size - servers;
    return !parts_are_served(c) ? b->n - 1 : servers > others ? servers : others;
}

/* In round i each sends to the member i + 1 on in the band's circle and receives from the one as far back; or each server
 * has another one of the others, so that no port waits while there are as many. */
static struct round band_round(const struct collective *c, const struct band *b, int i) {
    int servers = c->sum.first, all = band_rounds(c, b), peer;
    if (!parts_are_served(c)) return (struct round){b->rank[(b->me + i + 1) % b->n], b->rank[(b->me + all - i) % b->n]};
    if (c->rank < servers) {
        peer = servers + (c->rank + all - i) % all;
        if (peer >= c->size) peer = -1;
    } else {
        peer = (c->rank - servers + i) % all;
        if (peer >= servers) peer = -1;
    }
    return (struct round){peer, peer};
}

static int64_t plain_piece_size(struct element_range r, int64_t from, int64_t most) {
    int64_t left = r.hi - r.lo - from;
    return left < 0 ? 0 : left < most ? left : most;
}

/* The piece of what goes from one rank to another that begins 'skip' elements into it. */
static struct leg plain_leg(const struct collective *c, enum kind kind, int from, int to, int64_t skip, int64_t most) {
    if (from < 0 || to < 0 || !collective_flows(c, kind, from, to)) return no_leg;
    struct element_range r = collective_range(c, kind, from, to);
    int64_t n = plain_piece_size(r, skip, most);
    bool mine = from == c->rank;
    char *data = element(c, mine && kind == KIND_ALL_TO_ALL ? c->send : c->buf, r.lo + skip);
    return n ? (struct leg){mine ? to : from, data, n, LAND_COPY} : no_leg;
}

/* My terms of a piece of another's part, for a third's of mine, which the scratch takes. */
static enum error band_swap_terms(struct collective *c, const struct band *terms, struct leg out, struct leg in) {
    int first, mine = out.peer < 0 ? 0 : band_terms(terms, c->rank, &first);
    int theirs = in.peer < 0 ? 0 : band_terms(terms, in.peer, &first);
    char *buf = out.data;
    for (int k = 0; k < mine || k < theirs; k++) {
        if (k < mine) out.data = buf + bytes_of(c, k * c->apart);
        if (k < theirs) in.data = plain_scratch(c, first + k);
        TRY(collective_exchange(c, k < mine ? out : no_leg, k < theirs ? in : no_leg));
    }
    return ERR_NONE;
}

enum error band_sum(struct collective *c, enum kind kind, const struct band *ranks, const struct band *terms) {
    const struct element_range own = collective_range(c, kind, c->rank, c->rank);
    int64_t longest = 0, piece = plain_piece(c);
    for (int i = 0; i < ranks->n; i++) {
        struct element_range r = collective_range(c, kind, c->rank, ranks->rank[i]);
        if (r.hi - r.lo > longest) longest = r.hi - r.lo;
    }
    for (int64_t from = 0; from < longest; from += piece) {
        int64_t n = plain_piece_size(own, from, piece), lo = own.lo + from;
        for (int i = 0; i < band_rounds(c, ranks); i++) {
            struct round with = band_round(c, ranks, i);
            TRY(band_swap_terms(c, terms, plain_leg(c, kind, c->rank, with.to, from, piece),
                                plain_leg(c, kind, with.by, c->rank, from, piece)));
        }
        if (n) band_sum_scratch(c, terms, lo, lo + n);
    }
    return ERR_NONE;
}

/* Parts travel whole; a broadcast in pieces, so that all receive it at once. */
enum error band_spread(struct collective *c, enum kind kind, const struct band *ranks) {
    bool whole = kind != KIND_BROADCAST;
    int64_t most = whole ? INT64_MAX : plain_piece(c), n = whole ? 1 : c->sum.count;
    for (int64_t from = 0; from < n; from = whole ? n : from + most)
        for (int i = 0; i < band_rounds(c, ranks); i++) {
            struct round with = band_round(c, ranks, i);
            struct leg out = plain_leg(c, kind, c->rank, with.to, from, most);
            struct leg in = plain_leg(c, kind, with.by, c->rank, from, most);
            if (out.peer >= 0 || in.peer >= 0) TRY(collective_exchange(c, out, in));
        }
    return ERR_NONE;
}

/* What a rank receives in an all_to_all is its own affair, so there is nothing that others could read in place. */
enum error plain_move(struct collective *c, enum kind kind) {
    bool to_all = kind == KIND_ALL_TO_ALL;
    if (to_all && part_size(c, c->rank))
        memcpy(element(c, c->buf, c->part[c->rank]), element(c, c->send, c->send_part[c->rank]),
               bytes_of(c, part_size(c, c->rank)));
    if (!to_all && (c->in_place || c->staged)) return plain_read(c, kind);
    if (kind == KIND_SCATTER) plain_read_part(c, c->rank, collective_range(c, kind, c->rank, c->rank));
    return kind_adds(kind) ? band_sum(c, kind, &c->bands->all, c->band) : band_spread(c, kind, &c->bands->all);
}

/* ---- what the pipes cost ---- */

/* The needy rank's port is the bottleneck; what comes is added after it has come. */
double plain_reduce_cost(const struct terrain *t, double bytes) {
    return t->alpha + (t->places->terms - t->places->own) * bytes * (t->beta + t->gamma);
}

double plain_broadcast_cost(const struct terrain *t, double bytes) {
    return t->alpha + (t->places->size - 1) * bytes * t->beta;
}
