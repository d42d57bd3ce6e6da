/* What of a difference in accuracy is the validation set's: sides are measured on the same samples, and those on which
 * they differ say how much another draw of the set would move the difference (McNemar's idea). */
#include "lab/compare/compare.h"
#include "lab/compare/right.h"

#include <math.h>

/* The files of both runs; false: one left none, or they were measured on other samples. */
static bool set_read_both(const struct compared *c, const struct compared_run *a, const struct compared_run *b,
                          struct right out[2]) {
    struct right_counts n;
    for (int side = 0; side < 2; side++) {
        const char *dir = (side ? b : a)->dir;
        if (*c->folder) dir = pool_printf(c->pool, "%s/%s", c->folder, dir);
        if (!dir || right_read(dir, c->pool, &out[side]) != ERR_NONE) return false;
    }
    return right_compare(&out[0], &out[1], &n) == ERR_NONE;
}

/* The runs of a repeat, one of each side. */
struct set_duel {
    struct right side[2];
};

static int read_duels(const struct compared *c, const struct compared_pair *p, struct set_duel out[STATISTICS_RUNS]) {
    const struct compared_cell *a = &c->cell[p->cell[0]], *b = &c->cell[p->cell[1]];
    int run[STATISTICS_RUNS][2], n = compare_together(c, p, run);
    for (int i = 0; i < n; i++)
        if (!set_read_both(c, &a->run[run[i][0]], &b->run[run[i][1]], out[i].side)) return 0;
    return n;
}

/* The variance of the mean of (b - a) over n duels' same samples. */
static double variance_of_samples(const struct set_duel *duel, int n) {
    int64_t samples = duel->side[0].samples;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < samples; i++) {
        double difference = 0;
        for (int k = 0; k < n; k++) difference += duel[k].side[1].is[i] - duel[k].side[0].is[i];
        difference /= n;
        sum += difference, squares += difference * difference;
    }
    double mean = sum / (double)samples;
    return (squares / (double)samples - mean * mean) / (double)samples;
}

/* Twice the share of coins that fall as unevenly as first and second, at most 1: McNemar's exact p. */
static double set_coins_uneven(int64_t first, int64_t second) {
    int64_t n = first + second, least = first < second ? first : second;
    double sum = 0;
    for (int64_t k = 0; k <= least; k++)
        sum += exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) - (double)n * log(2));
    return fmin(1, 2 * sum);
}

static const char *set_words_of_two(const struct compared *c, const struct compared_pair *p,
                                    const struct set_duel *duel) {
    struct right_counts n;
    const char *b = c->x->axis[0].label[c->x->cell[p->cell[1]].at[0]];
    if (right_compare(&duel->side[0], &duel->side[1], &n) != ERR_NONE) return NULL;
    return pool_printf(
        c->pool,
        "of %lld validation samples A alone has %lld right, %s alone %lld: between these two trained networks "
        "that is p = %.3g (McNemar, exact); only several seeds can compare two ways to train",
        (long long)n.samples, (long long)n.first, b, (long long)n.second, set_coins_uneven(n.first, n.second));
}

/* The interval of two groups has more in it than the difference's variance. */
static const char *set_advice(const struct compared_answer *a, double share) {
    if (!a->statistics.paired) return "";
    return share < 0.25 ? ": more of them (data.val) would hardly narrow its interval"
                        : ": more of them (data.val) would narrow its interval";
}

static const char *words_of_set(const struct compared *c, const struct compared_pair *p, struct compared_answer *a) {
    struct set_duel duel[STATISTICS_RUNS];
    const char *b = c->x->cell[p->cell[1]].label, *what = c->x->nseeds ? "seeds" : "runs";
    double alone = 0;
    bool same = true;
    int n = read_duels(c, p, duel);
    if (n == 0 || (n > 1 && !c->x->nseeds && !compare_is_tested(a))) return NULL;
    for (int k = 0; k < n; k++) {
        same &= duel[k].side[0].data == duel->side[0].data && duel[k].side[0].samples == duel->side[0].samples;
        alone += variance_of_samples(&duel[k], 1) / n;
    }
    if (same) a->statistics.error = sqrt(variance_of_samples(duel, n));
    if (n == 1) return *c->folder ? NULL : set_words_of_two(c, p, duel);
    if (same)
        return pool_printf(
            c->pool,
            "all %s are measured on the same %lld validation samples: another draw of them would change the "
            "difference of '%s' by about ±%.2f pt (95 %%), not included in the interval above",
            what, (long long)duel->side[0].samples, b, 196 * a->statistics.error);
    double spread = a->noise.pairs * a->noise.pairs, share = fmin(1, spread > 0 ? alone / spread : 1);
    return pool_printf(c->pool,
                       "each seed draws its own %lld validation samples, and these make about %.0f %% of the variance "
                       "of the difference of '%s' over seeds%s",
                       (long long)duel->side[0].samples, 100 * share, b, set_advice(a, share));
}

void compare_set(struct compared *c, const struct compared_pair *p, int measure) {
    struct compared_answer *a = &p->answer[measure];
    if (measure_is_accuracy(&c->x->measure[measure]) && a->judged && !a->equal) a->of_set = words_of_set(c, p, a);
}
