/* Algorithm "halving_doubling": pairs of ranks swap halves of what they hold and add, then pairs of
 * these groups swap quarters, until each holds its part of the sum; the same way back collects the
 * parts.
 *
 * With m places that hold one segment [lo, hi), and h = ceil(m/2), places are numbered from the
 * first of them:
 *     m even:  p and p + h swap: p keeps the lower half of the segment and adds what p + h has of
 *              it, p + h keeps the upper half. That leaves two groups of h places, the first with
 *              the lower half, and each goes on for itself. Later the two swap what has become of
 *              their halves.
 *     m odd:   p takes in the whole segment of p + h while p + h < m. The first h go on; later p
 *              sends p + h what has become of the segment.
 *     m = 1:   the segment is summed.
 *
 * Place p always adds what stood at p + h, and the lower place is the left operand: that is
 * ORDER_TREE, for every number of ranks. Distances are N/2, N/4, ... where textbooks take 1, 2, 4,
 * for that order's sake.
 *
 * For N a power of two: 2 log2 N steps, and each rank sends and receives 2(N-1)/N K bytes: a ring's
 * bytes in fewer steps. An odd m costs steps of a whole segment, so other N pay more; most for odd
 * N, where it comes first. What comes is added as it comes. */
#include "transport/algo/halving.h"

struct span {
    int64_t lo, hi;
};

static struct leg span_leg(const struct collective *c, int peer, struct span s, enum landing how) {
    return (struct leg){peer, element(c, c->buf, s.lo), s.hi - s.lo, how};
}

static enum error go_on(struct collective *c, const struct band *band, int first, int m, struct span s);

static enum error halve(struct collective *c, const struct band *band, int first, int m, struct span s) {
    int64_t line = ALIGNMENT / (int64_t)dtype_size(c->sum.type);
    int64_t half = (s.hi - s.lo) / 2, middle = s.lo + (half + line - 1) / line * line;
    if (middle > s.hi) middle = s.hi;
    int h = m / 2;
    bool low = band->me - first < h;
    int peer = band->rank[low ? band->me + h : band->me - h];
    struct span lower = {s.lo, middle}, upper = {middle, s.hi};
    struct span mine = low ? lower : upper, theirs = low ? upper : lower;
    TRY(collective_exchange(c, span_leg(c, peer, theirs, LAND_COPY),
                            span_leg(c, peer, mine, low ? LAND_RIGHT : LAND_LEFT)));
    TRY(go_on(c, band, low ? first : first + h, h, mine));
    return collective_exchange(c, span_leg(c, peer, mine, LAND_COPY), span_leg(c, peer, theirs, LAND_COPY));
}

static enum error take_in(struct collective *c, const struct band *band, int first, int m, struct span s) {
    int h = (m + 1) / 2, place = band->me - first;
    struct leg none = {.peer = -1};
    if (place >= h) {
        struct leg up = span_leg(c, band->rank[band->me - h], s, LAND_COPY);
        TRY(collective_exchange(c, up, none));
        return collective_exchange(c, none, up);
    }
    if (place + h >= m) return go_on(c, band, first, h, s);
    struct leg down = span_leg(c, band->rank[band->me + h], s, LAND_RIGHT);
    TRY(collective_exchange(c, none, down));
    TRY(go_on(c, band, first, h, s));
    return collective_exchange(c, down, none);
}

/* All-reduce of a segment among the m of the band from the first on. */
static enum error go_on(struct collective *c, const struct band *band, int first, int m, struct span s) {
    if (m > 1) return (m % 2 ? take_in : halve)(c, band, first, m, s);
    sum_complete(&c->sum, s.hi - s.lo, element(c, c->buf, s.lo));
    return ERR_NONE;
}

enum error halving_all_reduce(struct collective *c, const struct band *band, int64_t lo, int64_t hi) {
    return go_on(c, band, 0, band->n, (struct span){lo, hi});
}

static enum error halving_doubling_all_reduce(struct collective *c) {
    const struct band all = collective_band(c);
    return halving_all_reduce(c, &all, 0, c->sum.count);
}

/* ---- what it costs ---- */

double halving_cost(const struct terrain *t, int n, double bytes) {
    double seconds = 0, adding = t->beta > t->gamma ? t->beta : t->gamma;
    for (int m = n; m > 1; m = (m + 1) / 2) {
        if (m % 2 == 0) bytes /= 2;
        seconds += 2 * t->alpha + bytes * (adding + t->beta);
    }
    return seconds;
}

static double cost(const struct terrain *t, double bytes) {
    return halving_cost(t, t->places->size, bytes);
}

const struct algo_ops algo_halving_doubling = {
    .name = "halving_doubling",
    .why = "2 log2 N steps of ever smaller halves",
    .orders = {[ORDER_TREE] = true},
    .run = {[KIND_ALL_REDUCE] = halving_doubling_all_reduce},
    .cost = {[KIND_ALL_REDUCE] = cost},
};
