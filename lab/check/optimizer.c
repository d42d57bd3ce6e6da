/* Cases of an optimizer: any cut of a tensor gives the bits of the whole, in any order; gradients are only read; no
 * float is written beyond; the same gives the same again; and a bowl is walked down. */
#include "lab/check/check.h"

#include <math.h>
#include <string.h>

enum { N = 1003 };
struct stepper {
    const struct engine_optimizer *of;
    const struct plugin *plugin;
    double value[ENGINE_PARAMETERS];
};
struct state {
    float *w, *m, *v;
};

static void stepper_step(const struct stepper *s, int64_t t, float lr, float *w, const float *g, float *m, float *v,
                         int64_t n) {
    const struct engine_step how = {.parameter = s->value, .lr = (double)lr, .scale = 0.5f, .matrix = 1, .t = t};
    check_note("step %lld of %lld weights", (long long)t, (long long)n);
    if (s->plugin) plugin_enter(s->plugin, "step");
    s->of->step(&how, w, g, m, v, n);
    if (s->plugin) plugin_leave();
}

static struct state state_make(void) {
    struct state a = {guarded_alloc(N * sizeof(float), "the weights"), guarded_alloc(N * sizeof(float), "m"),
                      guarded_alloc(N * sizeof(float), "v")};
    for (int i = 0; i < N; i++) a.w[i] = check_value(1, i), a.m[i] = a.v[i] = 0;
    return a;
}

static void state_check(const struct state *a) {
    guarded_check(a->w, "the weights");
    guarded_check(a->m, "m");
    guarded_check(a->v, "v");
}

static void states_compare(const struct state *a, const struct state *b, const char *what) {
    static const char *const parts[] = {"the weight", "m", "v"};
    const float *x[] = {a->w, a->m, a->v}, *y[] = {b->w, b->m, b->v};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < N; i++)
            if (memcmp(&x[p][i], &y[p][i], sizeof(float)) != 0)
                check_wrong("%s: %s %d of %d is %.9g and not %.9g", what, parts[p], i, (int)N, (double)y[p][i],
                            (double)x[p][i]);
}

/* Whole against slices from the end to the beginning, so that no state may pass from one weight to another. */
static void stepper_check_cuts(void *user) {
    const struct stepper *s = user;
    static const int edge[] = {0, 1, 18, 500, 501, N};
    struct state whole = state_make(), cut = state_make(), again = state_make();
    float *g = guarded_alloc(N * sizeof *g, "the gradients"), kept[N];
    for (int64_t t = 1; t <= 3; t++) {
        for (int i = 0; i < N; i++) g[i] = check_value((int)t + 2, i);
        memcpy(kept, g, sizeof kept);
        stepper_step(s, t, 0.01f, whole.w, g, whole.m, whole.v, N);
        if (memcmp(kept, g, sizeof kept) != 0) check_wrong("step %lld writes into the gradients", (long long)t);
        for (int i = 4; i >= 0; i--)
            stepper_step(s, t, 0.01f, cut.w + edge[i], g + edge[i], cut.m + edge[i], cut.v + edge[i],
                         edge[i + 1] - edge[i]);
        stepper_step(s, t, 0.01f, again.w, g, again.m, again.v, N);
    }
    state_check(&whole);
    states_compare(&whole, &again, "the same steps again");
    states_compare(&whole, &cut, "in slices");
}

/* The square of the distance to 1, from 3. */
static void stepper_check_downhill(void *user) {
    const struct stepper *s = user;
    struct state a = state_make();
    float *g = guarded_alloc(N * sizeof *g, "the gradients");
    for (int i = 0; i < N; i++) a.w[i] = 3;
    for (int64_t t = 1; t <= 2000; t++) {
        for (int i = 0; i < N; i++) g[i] = 2 * (a.w[i] - 1);
        stepper_step(s, t, 0.01f, a.w, g, a.m, a.v, N);
    }
    for (int i = 0; i < N; i++)
        if (!(fabsf(a.w[i] - 1) < 1))
            check_wrong("2000 steps at a rate of 0.01 towards 1, from 3: weight %d is at %.6g", i, (double)a.w[i]);
}

static void stepper_use_once(void *user) {
    static float w[64], g[64], m[64], v[64];
    stepper_step(user, 1, 0.01f, w, g, m, v, 64);
}

static void stepper_check_memory(void *user) {
    check_leaks(stepper_use_once, user);
}

void check_optimizer(struct check *c, const struct engine_optimizer *of, const struct plugin *plugin) {
    struct stepper s = {.of = of, .plugin = plugin};
    check_standards(plugin, s.value);
    if (!check_case(c, "any cut, the same bits", stepper_check_cuts, &s)) return;
    check_case(c, "downhill", stepper_check_downhill, &s);
    check_case(c, "memory of an optimizer", stepper_check_memory, &s);
}
