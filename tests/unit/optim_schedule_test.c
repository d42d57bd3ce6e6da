/* Schedules at chosen steps, spans, and the gradient's norm and clipping. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "engine/optim/optim.h"
#include "engine/optim/schedule.h"
#include <math.h>
#include <string.h>

static struct pool *pool;

static int setup(void **unused) {
    (void)unused;
    return pool_create(&pool) != ERR_NONE;
}

static int teardown(void **unused) {
    (void)unused;
    pool_free(pool);
    return 0;
}

static struct config_variant make(const char *name, const char *yaml) {
    struct config_variant v = {0};
    while (v.index < schedule_variants.count && strcmp(schedule_variants.at(v.index)->name, name)) v.index++;
    assert_true(v.index < schedule_variants.count);
    const struct config_section *section = schedule_variants.at(v.index);
    struct config_errors *e;
    struct node *root;
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(yaml, strlen(yaml), "test.yaml", pool, e, &root));
    v.config = pool_alloc(pool, section->size);
    assert_non_null(v.config);
    if (config_read(section, root, pool, e, v.config) != ERR_NONE)
        fail_msg("%s %s: %s", name, yaml, config_errors_text(e, pool));
    config_errors_free(e);
    return v;
}

static void check(const struct config_variant *v, int64_t step, int64_t steps, double expected) {
    double got = schedule_factor(v, step, steps, 2);
    if (fabs(got - expected) > 1e-12) fail_msg("step %d: %.15g, not %.15g", (int)step, got, expected);
}

/* Ten steps, two an epoch. The figures of cosine, linear and step are torch 1.13's
 * CosineAnnealingLR(T_max=10, eta_min=0.1), LinearLR(1, 0.2, 10) and MultiStepLR([4, 7], 0.1) at
 * lr 1. */
static void shapes(void **unused) {
    (void)unused;
    static const double cosine[] = {1,    0.977975432333, 0.914057647469, 0.814503363532, 0.689057647469,
                                    0.55, 0.410942352531, 0.285496636468, 0.185942352531, 0.122024567667};
    struct config_variant constant_v = make("constant", "{}"), cosine_v = make("cosine", "{min: 0.1}");
    struct config_variant linear_v = make("linear", "{to: 0.2}");
    struct config_variant step_v = make("step", "{at: [2ep, 7st], gamma: 0.1}");
    for (int s = 0; s < 10; s++) {
        check(&constant_v, s, 10, 1);
        assert_true(fabs(schedule_factor(&cosine_v, s, 10, 2) - cosine[s]) < 1e-11);
        check(&linear_v, s, 10, 1 - 0.08 * s);
        check(&step_v, s, 10, s < 4 ? 1 : s < 7 ? 0.1 : 0.01);
    }
    struct config_variant falls = make("exponential", "{to: 0.01}"),
                          grows = make("exponential", "{from: 1e-4, to: 100}");
    for (int s = 0; s <= 10; s++) {
        check(&falls, s, 10, exp(log(0.01) * s / 10));
        assert_true(fabs(schedule_factor(&grows, s, 10, 2) / exp(log(1e-4) + log(1e6) * s / 10) - 1) < 1e-12);
    }
    struct config_variant zero = make("cosine", "{}"), line = make("linear", "{}");
    check(&zero, 10, 10, 0); /* the end, and after it */
    check(&zero, 99, 10, 0);
    check(&line, 12, 10, 0);
}

static void check_list(const struct config_variant *v, const double *expected, int n) {
    for (int s = 0; s < n; s++) {
        double got = schedule_factor(v, s, n, 2);
        if (fabs(got - expected[s]) > 1e-11) fail_msg("step %d of %d: %.12g, not %.12g", s, n, got, expected[s]);
    }
}

/* torch 2.15's CosineAnnealingWarmRestarts(3, 2, 0.1) and (4), and OneCycleLR of 10 steps, of 12 with pct_start 0.25,
 * div_factor 10 and final_div_factor 100, and of 3, in which the rise ends before the first; at lr 1. */
static void cycles(void **unused) {
    (void)unused;
    static const double longer[] = {1,    0.775, 0.325,          1, 0.939711431703, 0.775,
                                    0.55, 0.325, 0.160288568297, 1, 0.98466662183,  0.939711431703};
    static const double equal[] = {1,   0.853553390593, 0.5, 0.146446609407, 1, 0.853553390593,
                                   0.5, 0.146446609407, 1,   0.853553390593};
    static const double ten[] = {
        0.04, 0.52, 1, 0.950484632013, 0.81174565395, 0.611262021936, 0.388741978064, 0.18825834605, 0.0495193679865,
        4e-06};
    static const double twelve[] = {0.1,
                                    0.55,
                                    1,
                                    0.969876464083,
                                    0.883139199338,
                                    0.75025,
                                    0.587237264745,
                                    0.413762735255,
                                    0.25075,
                                    0.117860800662,
                                    0.0311235359174,
                                    0.001};
    static const double three[] = {0.994415435451, 0.462637102667, 4e-06};
    struct config_variant restarts = make("restarts", "{every: 3st, times: 2, min: 0.1}");
    struct config_variant same = make("restarts", "{every: 2ep}"), one = make("one_cycle", "{}");
    struct config_variant other = make("one_cycle", "{rise: 0.25, begin: 10, fall: 100}");
    check_list(&restarts, longer, 12);
    check_list(&same, equal, 10);
    check_list(&one, ten, 10);
    check_list(&other, twelve, 12);
    check_list(&one, three, 3);
    check(&one, 99, 10, 4e-6); /* after the end */
    check(&one, 0, 1, 4e-6);
    struct config_variant rises = make("one_cycle", "{rise: 1}"), falls = make("one_cycle", "{rise: 0}");
    check(&rises, 9, 10, 1);
    check(&falls, 9, 10, 4e-6);
    struct config_variant edge = make("one_cycle", "{rise: 0.1, for: 5ep}"); /* the rise ends at step 0 */
    check(&edge, 0, 99, 1);
    check(&edge, 9, 99, 4e-6);
    struct config_variant warm = make("restarts", "{every: 3st, times: 2, min: 0.1, warmup: 2st}");
    check(&warm, 0, 20, 0.5);
    check(&warm, 1, 20, 1);
    for (int s = 0; s < 12; s++) assert_true(fabs(schedule_factor(&warm, s + 2, 20, 2) - longer[s]) < 1e-11);
    assert_true(schedule_needs_end(&one) && !schedule_needs_end(&edge) && !schedule_needs_end(&restarts));
}

static void warm_up(void **unused) {
    (void)unused;
    struct config_variant constant = make("constant", "{warmup: 4st}");
    check(&constant, 0, 10, 0.25);
    check(&constant, 2, 10, 0.75);
    check(&constant, 3, 10, 1);
    check(&constant, 9, 10, 1);
    struct config_variant cosine = make("cosine", "{warmup: 2ep, min: 0}");
    check(&cosine, 0, 12, 0.25);
    check(&cosine, 4, 12, 1);
    check(&cosine, 8, 12, 0.5); /* half of the eight steps after warm-up */
    struct config_variant linear = make("linear", "{warmup: 2st, to: 0.5}");
    check(&linear, 1, 10, 1);
    check(&linear, 6, 10, 0.75);
    struct config_variant step = make("step", "{at: [3st], gamma: 0.5, warmup: 4st}");
    check(&step, 2, 10, 0.75);
    check(&step, 3, 10, 0.5); /* milestones do not move */
    struct config_variant longer = make("cosine", "{warmup: 20st}");
    check(&longer, 9, 10, 0.5); /* training ends during warm-up */
    struct config_variant none = make("linear", "{warmup: off}"), zero = make("linear", "{warmup: 0st}");
    check(&none, 0, 10, 1);
    check(&zero, 0, 10, 1);
}

/* A length of its own takes the place of training's, and the rate stays where it has come to. */
static void lengths(void **unused) {
    (void)unused;
    struct config_variant whole = make("cosine", "{min: 0.1, warmup: 2st}");
    struct config_variant own = make("cosine", "{min: 0.1, warmup: 2st, for: 5ep}");
    for (int s = 0; s < 10; s++) check(&own, s, SPAN_ENDLESS, schedule_factor(&whole, s, 10, 2));
    check(&own, 10, SPAN_ENDLESS, 0.1);
    check(&own, 1000, SPAN_ENDLESS, 0.1);
    struct config_variant linear = make("linear", "{to: 0.5, for: 4st}"), constant = make("constant", "{}");
    check(&linear, 2, 3, 0.75);
    check(&linear, 4, 100, 0.5);
    assert_true(schedule_needs_end(&whole) && !schedule_needs_end(&own));
    assert_false(schedule_needs_end(&linear) || schedule_needs_end(&constant));
}

static void spans(void **unused) {
    (void)unused;
    assert_int_equal(span_steps((struct config_span){7, SPAN_STEPS}, 100), 7);
    assert_int_equal(span_steps((struct config_span){2, SPAN_EPOCHS}, 100), 200);
    assert_int_equal(span_steps((struct config_span){0.5, SPAN_EPOCHS}, 7), 4);
    assert_int_equal(span_steps((struct config_span){0.01, SPAN_EPOCHS}, 7), 1);
    assert_int_equal(span_steps((struct config_span){0, SPAN_EPOCHS}, 7), 0);
    assert_int_equal(span_steps((struct config_span){5, SPAN_OFF}, 7), -1);
    assert_int_equal(span_steps((struct config_span){1e300, SPAN_EPOCHS}, 7), SPAN_ENDLESS);
    assert_int_equal(span_steps((struct config_span){60, SPAN_SECONDS}, 7), SPAN_ENDLESS);
}

/* ---- clipping ---- */

enum { BLOCKS = 5, N = 4 * NORM_BLOCK + 1001 };

static void norm_by_blocks(void **unused) {
    (void)unused;
    static float g[N];
    struct rng_key key = rng_key(3, RNG_TEST);
    double sum = 0;
    for (int i = 0; i < N; i++) {
        g[i] = rng_normal(key, 0, (uint64_t)i);
        sum += (double)g[i] * g[i];
    }
    double whole[BLOCKS], parts[BLOCKS];
    squares_partials(g, 0, N, whole);
    memset(parts, 0xff, sizeof parts);
    squares_partials(g, 3 * NORM_BLOCK, N, parts); /* three ranks, in any order */
    squares_partials(g, 0, NORM_BLOCK, parts);
    squares_partials(g, NORM_BLOCK, 3 * NORM_BLOCK, parts);
    squares_partials(g, NORM_BLOCK, NORM_BLOCK, parts); /* and one with nothing */
    assert_memory_equal(whole, parts, sizeof whole);
    double norm;
    (void)clip_scale(whole, BLOCKS, 1, &norm);
    assert_true(fabs(norm - sqrt(sum)) < 1e-10 * norm);
}

static void clipping(void **unused) {
    (void)unused;
    const float g[] = {3, 4, 12};
    double partial[1], norm;
    squares_partials(g, 0, 3, partial);
    /* torch 1.13: clip_grad_norm_([3, 4, 12], 1) gives 13 and 0.230769217 for the first */
    float scale = clip_scale(partial, 1, 1, &norm);
    assert_true(norm == 13);
    assert_true(fabsf(3 * scale - 0.230769217f) < 2e-8f);
    assert_true(clip_scale(partial, 1, 13.1, &norm) == 1);
    const float zero[] = {0, 0}, bad[] = {1, NAN}, huge[] = {3e38f, 3e38f};
    squares_partials(zero, 0, 2, partial);
    assert_true(clip_scale(partial, 1, 1, &norm) == 1 && norm == 0);
    squares_partials(huge, 0, 2, partial); /* squares that a float cannot hold */
    assert_true(clip_scale(partial, 1, 1, &norm) > 0 && isfinite(norm));
    squares_partials(bad, 0, 2, partial);
    (void)clip_scale(partial, 1, 1, &norm);
    assert_true(isnan(norm));
    assert_true(clip_scale(partial, 0, 1, &norm) == 1 && norm == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),         cmocka_unit_test(cycles), cmocka_unit_test(warm_up),
        cmocka_unit_test(lengths),        cmocka_unit_test(spans),  cmocka_unit_test(clipping),
        cmocka_unit_test(norm_by_blocks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
