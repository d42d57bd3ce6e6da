/* Subgroups as one rank sees them: who is in them, in which order, that they work beside each other
 * and beside their parent, and within each other. */
#pragma once
#include "tests/conformance/ranks.h"

static inline void split_all(struct rank *r, int color, int key, struct group **out) {
    check_ok(group_split(r->group, color, key, out));
}

/* Every member adds its rank in the parent. */
static inline void check_sum(struct rank *r, struct group *g, enum lane lane, int64_t n, double want) {
    float *v = malloc((size_t)n * sizeof *v);
    struct work *w;
    for (int64_t i = 0; i < n; i++) v[i] = (float)r->index;
    check_ok(group_all_reduce(g, GROUP_ON(lane, &w), v, n, DTYPE_F32, REDOP_SUM));
    check_ok(work_wait(w));
    check(v[0] == (float)want && v[n - 1] == (float)want, "a sum of %g where %g is right", (double)v[0], want);
    free(v);
}

/* Even and odd ranks, the odd ones in reverse order; the last rank is in none. */
static inline void by_color_and_key(struct rank *r) {
    int world = r->of->world, last = world - 1, me = r->index, odd = me % 2;
    struct group *g = NULL;
    int members = 0, before = 0;
    double sum = 0;
    for (int k = 0; k < last; k++) {
        if (k % 2 != odd) continue;
        members++;
        sum += k;
        before += odd ? k > me : k < me;
    }
    split_all(r, me == last ? -1 : odd, odd ? -me : 7, &g);
    check((g != NULL) == (me != last), "in a subgroup");
    if (!g) return;
    check(group_size(g) == members && group_rank(g) == before, "rank %d of %d", group_rank(g), group_size(g));
    check_sum(r, g, LANE_INLINE, 5, sum);
    check_sum(r, g, LANE_COMM, 30001, sum);
    group_close(g);
}

/* Halves, and pairs of one of each half: every rank is in two that overlap. */
static inline void overlapping(struct rank *r) {
    enum { N = 20011, FLIGHTS = 6, GROUPS = 3 };
    int world = r->of->world, half = world / 2, me = r->index, upper = me >= half;
    struct group *halves = NULL, *pairs = NULL;
    struct work *w[GROUPS][FLIGHTS];
    int32_t *v[GROUPS][FLIGHTS];
    split_all(r, upper, 0, &halves);
    split_all(r, me % half, 0, &pairs);
    if (!halves || !pairs) return;
    struct group *of[GROUPS] = {halves, pairs, r->group};
    int want[GROUPS] = {half * (half - 1) / 2 + upper * half * half, me % half * 2 + half, world * (world - 1) / 2};
    for (int k = 0; k < FLIGHTS; k++)
        for (int i = 0; i < GROUPS; i++) {
            int g = (i + me + k) % GROUPS; /* groups know nothing of each other's order */
            v[g][k] = malloc(N * sizeof(int32_t));
            for (int j = 0; j < N; j++) v[g][k][j] = me;
            check_ok(group_all_reduce(of[g], GROUP_COMM(&w[g][k]), v[g][k], k % 2 ? N : 3, DTYPE_I32, REDOP_SUM));
        }
    for (int k = 0; k < FLIGHTS; k++)
        for (int g = 0; g < GROUPS; g++) {
            check_ok(work_wait(w[g][k]));
            check(v[g][k][0] == want[g], "group %d gave %d where %d is right", g, v[g][k][0], want[g]);
            free(v[g][k]);
        }
    group_close(pairs);
    check_sum(r, halves, LANE_INLINE, N, want[0]);
    group_close(halves);
    check_ok(group_barrier(r->group));
}

/* Halves of halves down to one rank, each opened while the outer ones live. */
static inline void nested(struct rank *r) {
    struct group *g[8] = {r->group};
    void *shared;
    int depth = 0;
    while (group_size(g[depth]) > 1) {
        int half = (group_size(g[depth]) + 1) / 2;
        check_ok(group_split(g[depth], group_rank(g[depth]) >= half, 0, &g[depth + 1]));
        if (!g[++depth]) return;
    }
    check_ok(group_alloc(g[depth], 1000, &shared));
    check_sum(r, g[depth], LANE_INLINE, 9, r->index);
    for (; depth > 0; depth--) group_close(g[depth]);
    check_sum(r, r->group, LANE_INLINE, 9, r->of->world * (r->of->world - 1) / 2.0);
}

/* Memory of the subgroup that its members reach, and every collective's other ways. */
static inline void of_its_own(struct rank *r) {
    enum { N = 100000 };
    struct group *g = NULL;
    void *shared;
    split_all(r, r->index % 2, 0, &g);
    if (!g) return;
    check_ok(group_alloc(g, N * sizeof(double), &shared));
    if (*r->wrong) return;
    double *v = shared;
    int64_t part[MAX_WORLD + 1];
    int n = group_size(g), me = group_rank(g);
    for (int k = 0; k <= n; k++) part[k] = (int64_t)N * k / n;
    for (int64_t i = part[me]; i < part[me + 1]; i++) v[i] = (double)i;
    check_ok(group_all_gather(g, GROUP_INLINE, v, part, DTYPE_F64));
    for (int64_t i = 0; i < N; i++) check(v[i] == (double)i, "element %lld", (long long)i);
    check_ok(group_barrier(g));
    group_close(g);
}

static inline void again_and_again(struct rank *r) {
    for (int i = 0; i < 20 && !*r->wrong; i++) {
        struct group *g = NULL;
        split_all(r, (r->index + i) % 2, i, &g);
        if (g) check_ok(group_barrier(g));
        if (g) group_close(g);
    }
}

/* A rank that fails inside a subgroup fails it, and not the parent. */
static inline void failures_stay_inside(struct rank *r) {
    struct group *g = NULL;
    split_all(r, r->index % 2, 0, &g);
    if (!g) return;
    if (r->index % 2) {
        if (r->index == 1) group_abort(g, "enough");
        enum error err = group_barrier(g);
        check(err == ERR_PEER, "error %d", (int)err);
        check(strstr(error_message(), "enough"), "%s", error_message());
    } else {
        check_ok(group_barrier(g));
    }
    check_ok(group_barrier(r->group));
    group_close(g);
    check_ok(group_barrier(r->group));
}
