/* The choice of "auto": the algorithm whose formula, over the link's own alpha and beta, gives the least time for
 * this many bytes. Formulas, alpha and beta are the same on all ranks, so all choose alike. */
#include "engine/base/text.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdio.h>

/* Pieces in the scratch stay in the cache, but a message of its own for each is dear where it travels far. */
struct terrain terrain_plan(const struct places *p, double alpha, double beta, bool reach, bool near) {
    enum { PIECE = 16 << 10, SCRATCH = 4 << 20 };
    static const double adding = 1.0 / 8e9; /* seconds a byte */
    size_t part = (size_t)(SCRATCH / p->terms);
    if (part >= PIECE) part = reach ? PIECE : part / PIECE * PIECE;
    return (struct terrain){.places = p,
                            .near = near,
                            .alpha = alpha,
                            .beta = beta,
                            .gamma = adding,
                            .part_bytes = part < ALIGNMENT ? ALIGNMENT : part / ALIGNMENT * ALIGNMENT};
}

/* Twice the algorithms are the same formula in other steps and differ in the last bits: the first
 * in the list shall have it. */
static const double clearly = 0.999;

const struct algo_ops *algo_cheapest(const struct terrain *t, enum order order, enum kind kind, bool several,
                                     size_t bytes) {
    int n;
    const struct algo_ops *const *list = algo_list(&n), *best = list[0];
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        if (!list[i]->cost[kind] || !algo_suits(list[i], order, t->places, several)) continue;
        double seconds = list[i]->cost[kind](t, (double)bytes);
        if (seconds >= least * clearly) continue;
        best = list[i];
        least = seconds;
    }
    return best;
}

/* How far one algorithm goes is looked up at powers of two. */
void algo_choices(const struct terrain *t, enum order order, bool several, char out[CHOICES_MAX]) {
    const size_t first = 64, last = (size_t)1 << 30;
    const struct algo_ops *now = algo_cheapest(t, order, KIND_ALL_REDUCE, several, first);
    char size[32];
    int n = 0;
    for (size_t bytes = first; bytes < last; bytes *= 2) {
        const struct algo_ops *next = algo_cheapest(t, order, KIND_ALL_REDUCE, several, bytes * 2);
        if (next != now)
            n += snprintf(out + n, CHOICES_MAX - (size_t)n, "%s up to %s, ", now->name,
                          text_of_bytes((double)bytes, size));
        now = next;
        if (n >= CHOICES_MAX) return;
    }
    n += snprintf(out + n, CHOICES_MAX - (size_t)n, "%s %s: alpha %.3g us", now->name, n ? "above" : "for all sizes",
                  t->alpha * 1e6);
    if (t->beta > 0 && n < CHOICES_MAX) snprintf(out + n, CHOICES_MAX - (size_t)n, ", %.3g GB/s", 1e-9 / t->beta);
}
