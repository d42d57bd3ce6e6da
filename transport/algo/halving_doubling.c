/* Algorithm "halving_doubling": pairs of ranks swap halves of what they hold and add, then pairs of these pairs swap
 * quarters, until each holds its part of the sum; the same way back collects the parts.
 *
 * Neighbours first, as ORDER_TREE adds: in step d = 1, 2, 4, ... place p and place p ^ d hold one segment of the sums
 * of d places each. The lower place keeps the lower half of the segment and adds what the other has of it, as its right
 * operand; the higher keeps the upper half. Later the two swap what has become of their halves. So N is a power of two.
 *
 * 2 log2 N steps, and each rank sends and receives 2(N-1)/N K bytes: a ring's bytes in fewer steps. What comes is added
 * as it comes. */
#include "transport/algo/plain.h"

static struct leg halving_leg(const struct collective *c, int peer, struct element_range s, enum landing how) {
    return (struct leg){peer, element(c, c->buf, s.lo), s.hi - s.lo, how};
}

/* Groups of d have summed the segment; the rest of the all-reduce. */
static enum error halving_go_on(struct collective *c, const struct band *band, int d, struct element_range s) {
    if (d == band->n) {
        sum_complete(&c->sum, s.hi - s.lo, element(c, c->buf, s.lo));
        return ERR_NONE;
    }
    int64_t line = ALIGNMENT / (int64_t)dtype_size(c->sum.type);
    int64_t half = (s.hi - s.lo) / 2, middle = s.lo + (half + line - 1) / line * line;
    if (middle > s.hi) middle = s.hi;
    bool low = !(band->me & d);
    int peer = band->rank[band->me ^ d];
    struct element_range lower = {s.lo, middle}, upper = {middle, s.hi};
    struct element_range mine = low ? lower : upper, theirs = low ? upper : lower;
    TRY(collective_exchange(c, halving_leg(c, peer, theirs, LAND_COPY),
                            halving_leg(c, peer, mine, low ? LAND_RIGHT : LAND_LEFT)));
    TRY(halving_go_on(c, band, 2 * d, mine));
    return collective_exchange(c, halving_leg(c, peer, mine, LAND_COPY), halving_leg(c, peer, theirs, LAND_COPY));
}

enum error halving_all_reduce(struct collective *c, const struct band *band, int64_t lo, int64_t hi) {
    return halving_go_on(c, band, 1, (struct element_range){lo, hi});
}

static enum error halving_doubling_all_reduce(struct collective *c) {
    return halving_all_reduce(c, c->band, 0, c->sum.count);
}

/* ---- what it costs ---- */

double halving_cost(const struct terrain *t, int n, double bytes) {
    double seconds = 0, adding = t->beta > t->gamma ? t->beta : t->gamma;
    for (int d = 1; d < n; d *= 2) {
        bytes /= 2;
        seconds += 2 * t->alpha + bytes * (adding + t->beta);
    }
    return seconds;
}

static double halving_doubling_cost(const struct terrain *t, double bytes) {
    return halving_cost(t, t->places->size, bytes);
}

const struct algo_ops algo_halving_doubling = {
    .name = "halving_doubling",
    .why = "2 log2 N steps of ever smaller halves",
    .orders = {[ORDER_TREE] = true},
    .even = true,
    .run = {[KIND_ALL_REDUCE] = halving_doubling_all_reduce},
    .cost = {[KIND_ALL_REDUCE] = halving_doubling_cost},
};
