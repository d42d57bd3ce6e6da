#include "lab/predict/port_fit.h"

#include "engine/base/json.h"
#include "lab/numbers/statistics.h"
#include "lab/predict/simulate.h"

#include <math.h>
#include <string.h>

enum { BENCH_MOST = 1 << 22, POINTS_MOST = 1024 };
static const struct json_limits bench_limits = {8, 65536, 4096};

/* Rows of algorithms that a formula stands for: of all but the link's own. */
static int port_take_rows(const struct json_value *series, int devices, struct cost_point *out, int n) {
    const struct json_value *rows = json_member(series, "rows", JSON_ARRAY);
    for (int i = 0; rows && i < rows->count && n < POINTS_MOST; i++) {
        const struct json_value *row = &rows->children[i];
        enum scheme s = scheme_find(json_text(row, "algorithm"));
        double bytes = json_number(row, "bytes"), seconds = json_number(row, "time_s");
        if (s < SCHEMES && bytes > 0 && seconds > 0) out[n++] = (struct cost_point){s, devices, bytes, seconds};
    }
    return n;
}

/* The median relative error of the fit's times of the calls. */
static double port_error_of(const struct wire *w, const struct cost_point *points, int n) {
    double off[POINTS_MOST];
    int known = 0;
    for (int i = 0; i < n; i++) {
        const struct ground g = {points[i].devices, 1, *w, false, 0};
        double seconds = cost_share(points[i].scheme, &g, points[i].bytes);
        if (isfinite(seconds)) off[known++] = fabs(seconds / points[i].seconds - 1);
    }
    return known ? statistics_median(off, known) : (double)NAN;
}

enum error port_fit_read(const char *path, struct wire *out, double *off) {
    struct cost_point points[POINTS_MOST];
    struct pool *pool;
    const struct json_value *root = NULL;
    int n = 0;
    TRY(pool_create(&pool));
    enum error err = json_read(path, BENCH_MOST, bench_limits, pool, &root);
    bool sums = !strcmp(json_text(root, "collective"), "all_reduce");
    const struct json_value *results = sums ? json_member(root, "results", JSON_ARRAY) : NULL;
    double ranks = sums ? json_number(root, "ranks") : 0;
    bool possible = ranks >= 2 && ranks <= SIMULATE_DEVICES;
    for (int i = 0; possible && results && i < results->count; i++)
        n = port_take_rows(&results->children[i], (int)ranks, points, n);
    pool_free(pool);
    if (err != ERR_NONE) return err;
    if (n < 2)
        return FAIL(ERR_DATA,
                    "'%s' has no times of an all_reduce among several ranks\n"
                    "engine bench comm --ranks 4 --link tcp --algorithm all --json > %s",
                    path, path);
    *out = cost_fit(points, n);
    *off = port_error_of(out, points, n);
    return ERR_NONE;
}
