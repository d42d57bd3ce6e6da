/* Tuning: what is tried, what goes on, what is chosen and where that lies; that its errors are told at their places; and, in
 * simulated experiments without a difference, how often one is claimed after both sides were tuned. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "lab/experiment/experiment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct experiment x;
static char *report;

static enum error open_text(const char *text, const struct experiment_search *search) {
    char path[600];
    snprintf(path, sizeof path, "%s", scratch_path("tune-test.yaml"));
    save_text(path, text);
    const struct experiment_source source = {.path = path, .search = search};
    return experiment_open(&source, &x, &report);
}

static int set_up(void **state) {
    (void)state;
    scratch_folder();
    memset(&x, 0, sizeof x);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    experiment_close(&x);
    return 0;
}

#define BASE                                                                                                           \
    "base: {data: digits, batch: {size: 64, shards: 8}, train: 16ep}\nmetrics: [val_accuracy]\nrepeats: {seeds: 6}\n"
#define SIDES "sides: {sgd: {optimizer: sgd}, adamw: {optimizer: adamw}}\n"

/* ---- what is tried ---- */

static const struct tune lr_and_list = {
    .nkeys = 2,
    .key = {{.range = true, .log = true, .low = 1e-4, .high = 1e-1}, {.count = 2, .value = {"0.8", "0.9"}}},
    .budget = 9,
    .nseeds = 1};

static void a_grid_has_what_the_budget_allows(void **state) {
    (void)state;
    struct pool *pool;
    struct tune_try tries[TUNE_TRIES];
    struct tune t = lr_and_list;
    int n;
    assert_ok(pool_create(&pool));
    assert_int_equal(tune_points(&t), 4); /* 4 rates x 2 momenta are 8 runs, 5 x 2 would be 10 */
    assert_ok(tune_first(&t, 0, pool, tries, &n));
    assert_int_equal(n, 8);
    static const char *const rates[] = {"0.0001", "0.001", "0.01", "0.1"};
    for (int i = 0; i < n; i++) {
        assert_string_equal(tries[i].value[0], rates[i / 2]);
        assert_string_equal(tries[i].value[1], i % 2 ? "0.9" : "0.8");
    }
    t.nseeds = 2;
    assert_int_equal(tune_points(&t), 2); /* 4 tries with 2 seeds */
    t.nseeds = 3;
    assert_int_equal(tune_points(&t), 0);
    t.search = TUNE_HALVING, t.nseeds = 1; /* n tries: n/8 + n/16 (from 1/8 to 1/4), ...: 16 tries take 5 runs */
    for (n = 2; n <= TUNE_TRIES && tune_cost(&t, n) <= 9; n++) continue;
    assert_int_equal(tune_points(&t), (n - 1) / 2);
    struct tune whole = {
        .nkeys = 1, .key = {{.range = true, .whole = true, .low = 1, .high = 3}}, .budget = 8, .nseeds = 1};
    assert_ok(tune_first(&whole, 0, pool, tries, &n));
    assert_int_equal(n, 3); /* each once */
    assert_string_equal(tries[2].value[0], "3");
    pool_free(pool);
}

static void draws_are_those_of_the_seed(void **state) {
    (void)state;
    struct pool *pool;
    struct tune_try one[TUNE_TRIES], two[TUNE_TRIES];
    struct tune t = lr_and_list;
    int n, m, same = 0;
    assert_ok(pool_create(&pool));
    t.search = TUNE_RANDOM, t.budget = 12;
    assert_ok(tune_first(&t, 1, pool, one, &n));
    assert_ok(tune_first(&t, 1, pool, two, &m));
    assert_true(n == 12 && m == 12);
    for (int i = 0; i < n; i++) {
        double rate = atof(one[i].value[0]);
        assert_true(tune_same(&t, &one[i], &two[i]) && rate >= 1e-4 && rate <= 1e-1);
        for (int k = 0; k < i; k++) assert_false(tune_same(&t, &one[i], &one[k]));
    }
    assert_ok(tune_first(&t, 2, pool, two, &m));
    for (int i = 0; i < n; i++) same += tune_same(&t, &one[i], &two[i]);
    assert_true(same < n);
    t = (struct tune){
        .nkeys = 1, .key = {{.count = 3, .value = {"a", "b", "c"}}}, .search = TUNE_RANDOM, .budget = 9, .nseeds = 1};
    assert_ok(tune_first(&t, 0, pool, one, &n));
    assert_int_equal(n, 3);
    pool_free(pool);
}

/* The cost of halving by following each try through its parts. */
static double by_each_try(int tries) {
    double cost = 0;
    int halvings = tries >= 8 ? 3 : tries >= 4 ? 2 : tries >= 2 ? 1 : 0, left = tries;
    for (int part = 0; part <= halvings; part++, left = (left + 1) / 2)
        for (int i = 0; i < left; i++) cost += pow(0.5, halvings - part) - (part ? pow(0.5, halvings - part + 1) : 0);
    return cost;
}

static void halving_halves(void **state) {
    (void)state;
    struct tune_part part[TUNE_PARTS];
    struct tune t = {.search = TUNE_HALVING, .nseeds = 2};
    assert_int_equal(tune_parts(TUNE_HALVING, 16, part), 4);
    assert_true(part[0].until == 0.125 && part[1].until == 0.25 && part[2].until == 0.5 && part[3].until == 1);
    assert_true(part[0].tries == 16 && part[1].tries == 8 && part[2].tries == 4 && part[3].tries == 2);
    assert_int_equal(tune_parts(TUNE_HALVING, 1, part), 1);
    assert_int_equal(tune_parts(TUNE_GRID, 16, part), 1);
    for (int n = 1; n <= TUNE_TRIES; n++) assert_true(fabs(tune_cost(&t, n) - 2 * by_each_try(n)) < 1e-12);
    const double cost[] = {3, INFINITY, 1, 2, 1, INFINITY};
    bool in[] = {true, true, true, true, true, true};
    tune_keep(cost, in, 6, 3);
    assert_true(!in[0] && !in[1] && in[2] && in[3] && in[4] && !in[5]);
    assert_int_equal(tune_best(cost, in, 6), 2); /* of equal ones the first */
    tune_keep(cost, in, 6, 1);
    assert_true(in[2] && !in[3] && !in[4]);
    const double none[] = {INFINITY, INFINITY};
    bool both[] = {true, true};
    assert_int_equal(tune_best(none, both, 2), -1);
    tune_keep(none, both, 2, 1);
    assert_true(!both[0] && !both[1]);
}

static void edges_and_what_lies_beyond(void **state) {
    (void)state;
    struct pool *pool;
    struct tune_try one;
    const struct tune_try tries[] = {{{"0.001", "x", "0.1"}}, {{"0.01", "y", "0.3"}}, {{"0.1", "x", "0.2"}}};
    const struct tune t = {.nkeys = 3, .key = {{.range = true, .log = true}, {.count = 2}, {.range = true}}};
    assert_ok(pool_create(&pool));
    assert_int_equal(tune_edge(tries, 3, 0, 0), -1);
    assert_int_equal(tune_edge(tries, 3, 1, 0), 0);
    assert_int_equal(tune_edge(tries, 3, 2, 0), 1);
    assert_int_equal(tune_edge(tries, 3, 0, 1), 0); /* words have no edge */
    assert_int_equal(tune_edge(tries, 3, 1, 2), 1);
    assert_int_equal(tune_edge(tries, 1, 0, 0), 0); /* nor has a single value */
    assert_ok(tune_beyond(&t, tries, 3, 2, 0, 1, pool, &one));
    assert_string_equal(one.value[0], "1");
    assert_string_equal(one.value[1], "x");
    assert_ok(tune_beyond(&t, tries, 3, 0, 0, -1, pool, &one));
    assert_string_equal(one.value[0], "0.0001");
    assert_ok(tune_beyond(&t, tries, 3, 1, 2, 1, pool, &one));
    assert_string_equal(one.value[2], "0.4"); /* a range of differences */
    pool_free(pool);
}

/* ---- the file ---- */

static const char *setting(int cell, const char *key) {
    for (int i = 0; i < x.cell[cell].nsettings; i++)
        if (!strcmp(x.cell[cell].setting[i].key, key)) return x.cell[cell].setting[i].value;
    return "";
}

static void a_search_and_its_comparison(void **state) {
    (void)state;
    const char *text = BASE SIDES "tune: {optimizer.lr: log 1e-3..1e-1, budget: 3 runs}\n";
    struct tune_try tries[TUNE_TRIES];
    int n;
    assert_ok(open_text(text, NULL));
    assert_true(x.ncells == 2 && x.npairs == 1 && x.nseeds == 6 && x.tune.nkeys == 1);
    assert_ok(tune_first(&x.tune, x.seed, x.pool, tries, &n));
    assert_int_equal(n, 3);
    for (int i = 0; i < x.tune.nseeds; i++)
        for (int k = 0; k < x.nseeds; k++) assert_true(x.tune.seeds[i] != x.seeds[k]);
    struct experiment all = x;
    const struct experiment_search search = {.tries = tries, .ntries = n};
    memset(&x, 0, sizeof x);
    assert_ok(open_text(text, &search));
    assert_true(x.ncells == 6 && x.npairs == 0 && x.nseeds == 1 && x.repeats == 1);
    for (int i = 0; i < 6; i++) { /* cell by cell of the comparison its tries */
        assert_string_equal(setting(i, "optimizer.name"), i < 3 ? "sgd" : "adamw");
        assert_string_equal(setting(i, "optimizer.lr"), tries[i % 3].value[0]);
        assert_string_equal(setting(i, "seed"), "1000000");
    }
    assert_string_equal(x.cell[4].label, "adamw optimizer.lr=0.01");
    experiment_close(&x);
    struct tuned_cell chosen[] = {{.chosen = 2}, {.chosen = 0}};
    struct tuned tuned = {.tune = &all.tune, .ntries = n, .cell = chosen};
    memcpy(tuned.tries, tries, sizeof tries);
    const struct experiment_search found = {.tuned = &tuned};
    assert_ok(open_text(text, &found));
    assert_true(x.ncells == 2 && x.npairs == 1 && x.tuned == &tuned);
    assert_string_equal(setting(0, "optimizer.lr"), "0.1");
    assert_string_equal(setting(1, "optimizer.lr"), "0.001");
    const char *best = experiment_cell_file(&x, 0);
    assert_non_null(strstr(best, "lr: 0.1"));
    assert_null(strstr(best, "seed"));
    assert_null(strstr(best, "checkpoint"));
    experiment_close(&x);
    x = all;
}

static void what_is_alone_needs_no_sides(void **state) {
    (void)state;
    const struct experiment_search alone = {.alone = true};
    assert_ok(open_text(
        BASE "tune: {optimizer.lr: [0.1, 0.2], optimizer.momentum: 0..0.9, budget: 8 runs, search: random}\n", &alone));
    assert_true(x.ncells == 1 && x.npairs == 0);
    assert_string_equal(x.cell[0].label, "tune-test");
    experiment_close(&x);
    assert_fails(ERR_CONFIG, open_text(BASE, &alone));
    assert_non_null(strstr(report, "there is no 'tune'"));
}

static void assert_refused(const char *text, const char *words) {
    assert_fails(ERR_CONFIG, open_text(text, NULL));
    assert_non_null(report);
    if (!strstr(report, words)) fail_msg("'%s' is not in:\n%s", words, report);
    experiment_close(&x);
}

static void what_is_wrong_is_told_at_its_place(void **state) {
    (void)state;
#define TUNED BASE SIDES "tune: "
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], optimizer.nosuch: [1, 2]}\n",
                   "yaml:5:52: error: unknown key 'nosuch' in 'optimizer'");
    assert_refused(TUNED "{optimizer.lr: log 1e-4..1e-1}\n", "yaml:5:1: error: 'tune' needs a budget");
    assert_refused(TUNED "{optimizer.lr: log 1e-1..1e-4, budget: 8}\n",
                   "yaml:5:22: error: tune: 'optimizer.lr' needs a range that rises");
    assert_refused(TUNED "{optimizer.lr: log 0..1, budget: 8}\n", "needs a range that rises");
    assert_refused(TUNED "{optimizer.lr: [], budget: 8}\n", "a list of 1 to 32");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2, 0.3], optimizer.weight_decay: [0, 0.1], budget: 5 runs}\n",
                   "5 runs of each side are too few for search: grid");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], budget: 3 runs, seeds: 2}\n", "with 2 seeds of each try");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], budget: soon}\n",
                   "yaml:5:42: error: 'budget' is a number of whole runs");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], seeds: [5]}\n",
                   "yaml:5:41: error: seed 5 is one of the comparison's");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], seeds: [7, 7]}\n", "different seeds");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], search: best}\n", "best");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], search: random}\n", "needs a budget");
    assert_refused(TUNED "{optimizer.lr: [0.1, 0.2], search: halving, widen: true}\n",
                   "'widen' goes with search: grid");
    assert_refused(TUNED "{budget: 8}\n", "'tune' names no key");
    assert_refused(TUNED "{seed: [1, 2]}\n", "a seed is not tuned");
    assert_refused("base: {data: digits}\n" SIDES "tune: {optimizer.lr: [0.1, 0.2]}\n",
                   "yaml:3:1: error: 'tune' chooses by the first of 'metrics'");
    assert_refused(TUNED "3\n", "'tune' is a map of keys");
    assert_refused(BASE "sides: {sgd: {optimizer: sgd}, adam: {optimizer: {name: adam, lr: 0.1}}}\ntune: "
                        "{optimizer.lr: [0.1, 0.2]}\n",
                   "yaml:4:63: error: 'optimizer.lr' is tuned, so that a side cannot set it");
    assert_refused(BASE "sides: {sgd: {optimizer: sgd}, adam: {optimizer: adam}}\nmatrix: {optimizer.lr: [0.1, 0.2]}\n"
                        "tune: {optimizer.lr: [0.1, 0.2]}\n",
                   "'optimizer.lr' is tuned, so that the matrix cannot set it");
    assert_refused("base: {data: digits, train: 20s}\nmetrics: [val_accuracy]\nrepeats: {seeds: 6}\n" SIDES
                   "tune: {optimizer.lr: [0.1, 0.2], search: halving}\n",
                   "halving wants the engine's own runs");
}

/* ---- simulated truth ---- */

enum { EXPERIMENTS = 2000, SEEDS = 8 };
struct world {
    enum tune_search search;
    int tries, tune_seeds;
    double sharp;    /* how much a tenth part of the best rate costs, in deviations between seeds */
    double better;   /* how much the second side is, everywhere */
    double together; /* the share of a seed's luck that all its runs have in common */
};

/* The loss of a rate, without luck: a parabola over its logarithm, whose bottom lies between the tries. */
static double world_loss(const struct world *w, const struct tune_try *try) {
    double off = log10(atof(try->value[0])) + 2.37;
    return w->sharp * off * off;
}

/* Of a seed: what it does to all runs, and to this one. Of a part of a training everything is half as far apart. */
static double world_luck(const struct world *w, uint64_t experiment, uint64_t seed, uint64_t run) {
    const struct rng_key key = rng_key(experiment, RNG_TEST);
    return sqrt(w->together) * (double)rng_normal(key, seed, 0) +
           sqrt(1 - w->together) * (double)rng_normal(key, seed, 1 + run);
}

/* What was chosen, and how far each try was behind it when both were measured last, as at the end of the training. */
struct choice {
    int at;
    double shift[TUNE_TRIES], grown[TUNE_TRIES];
};

static struct choice world_tune(const struct world *w, const struct tune *t, const struct tune_try *tries, int n,
                                uint64_t experiment, int side) {
    struct tune_part part[TUNE_PARTS];
    struct choice c = {0};
    bool in[TUNE_TRIES];
    double score[TUNE_PARTS][TUNE_TRIES];
    int parts = tune_parts(w->search, n, part), last[TUNE_TRIES] = {0};
    for (int i = 0; i < n; i++) in[i] = true;
    for (int p = 0; p < parts; p++) {
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int s = 0; s < t->nseeds; s++)
                sum += world_luck(w, experiment, 100 + (uint64_t)s, (uint64_t)((p * 2 + side) * TUNE_TRIES + i));
            score[p][i] =
                in[i] ? world_loss(w, &tries[i]) * part[p].until - side * w->better + sum / t->nseeds : INFINITY;
            if (in[i]) last[i] = p;
        }
        c.at = tune_best(score[p], in, n);
        if (p + 1 < parts) tune_keep(score[p], in, n, part[p + 1].tries);
    }
    for (int i = 0; i < n; i++) {
        c.grown[i] = 1 / part[last[i]].until;
        c.shift[i] = (score[last[i]][i] - score[last[i]][c.at]) * c.grown[i];
    }
    return c;
}

/* How often a difference is claimed in that many experiments; naive: as if the choice were certain. */
static double world_claims(const struct world *w, bool naive, double *right) {
    struct pool *pool;
    struct tune t = {.nkeys = 1,
                     .key = {{.range = true, .log = true, .low = 1e-4, .high = 1}},
                     .search = w->search,
                     .budget = 1000,
                     .nseeds = w->tune_seeds};
    int claims = 0, good = 0;
    assert_ok(pool_create(&pool));
    for (uint64_t e = 0; e < EXPERIMENTS; e++) {
        struct tune_try tries[TUNE_TRIES];
        int n;
        t.budget = w->search == TUNE_HALVING ? 100 : w->tries * t.nseeds;
        if (w->search == TUNE_HALVING)
            while (tune_cost(&t, w->tries) < t.budget) t.budget--;
        if (e == 0 || w->search == TUNE_RANDOM) assert_ok(tune_first(&t, e, pool, tries, &n));
        struct choice c[2];
        double v[2][SEEDS], missed = 0;
        for (int side = 0; side < 2; side++) {
            c[side] = world_tune(w, &t, tries, n, e, side);
            for (int k = 0; k < SEEDS; k++)
                v[side][k] = world_loss(w, &tries[c[side].at]) - side * w->better +
                             world_luck(w, e, (uint64_t)k, 1000 + (uint64_t)side);
        }
        struct comparison s = statistics_compare(v[0], SEEDS, v[1], SEEDS, SCALE_DIFFERENCE, true, 0.95);
        double apart = statistics_spread(v[0], SEEDS, v[1], SEEDS, SCALE_DIFFERENCE, true) / sqrt(t.nseeds);
        for (int side = 0; side < 2; side++) {
            double noise[TUNE_TRIES];
            for (int i = 0; i < n; i++) noise[i] = apart * c[side].grown[i];
            missed += statistics_missed(c[side].shift, noise, n, c[side].at);
        }
        if (!naive) s.choice = sqrt(missed);
        enum verdict verdict = statistics_verdict(&s, 0.95, 1e-9);
        claims += verdict == VERDICT_FASTER || verdict == VERDICT_SLOWER;
        good += verdict == VERDICT_FASTER;
    }
    pool_free(pool);
    if (right) *right = (double)good / EXPERIMENTS;
    return (double)claims / EXPERIMENTS;
}

/* Two sides that are the same, each with its own luck, each at what it found to be its best. */
static void tuned_sides_that_are_equal_are_not_told_apart(void **state) {
    (void)state;
    static const double sharp[] = {0, 0.3, 1, 2, 4, 8, 16, 40};
    double most = 0, naive = 0;
    for (int search = TUNE_GRID; search <= TUNE_HALVING; search++)
        for (size_t i = 0; i < sizeof sharp / sizeof *sharp; i++)
            for (int seeds = 1; seeds <= 3; seeds += 2)
                for (int together = 0; together < 2; together++) {
                    const struct world w = {(enum tune_search)search, 9, seeds, sharp[i], 0, together * 0.6};
                    double claims = world_claims(&w, false, NULL);
                    print_message("%s, sharp %g, %d seeds, %g together: %.1f %%\n", tune_searches[search], sharp[i],
                                  seeds, w.together, 100 * claims);
                    most = fmax(most, claims);
                    if (!together) naive = fmax(naive, world_claims(&w, true, NULL));
                }
    print_message("at most %.1f %%; without the error of the choice %.1f %%\n", 100 * most, 100 * naive);
    assert_true(most <= 0.05);
    assert_true(naive > 0.05); /* so that the test could fail */
}

/* A side that is better everywhere is found, and never taken for the worse one. */
static void a_better_side_is_found(void **state) {
    (void)state;
    double right;
    const struct world w = {TUNE_GRID, 9, 3, 4, 3, 0};
    double claims = world_claims(&w, false, &right);
    print_message("better by 3: %.1f %%\n", 100 * right);
    assert_true(right > 0.8 && claims - right < 0.005);
}

/* The mean square of what a choice of two misses, by adding up the normal density. */
static void what_a_choice_misses(void **state) {
    (void)state;
    static const double gaps[] = {0, 0.5, 1, 3};
    for (int i = 0; i < 4; i++) {
        const double noise[] = {0, 0.7}, shift[] = {1, 1 + gaps[i]};
        double sum = 0, step = 1e-4;
        for (double z = -8; z < 8; z += step) {
            double better = fmax(0, noise[1] * z - gaps[i]);
            sum += better * better * exp(-z * z / 2) / sqrt(2 * M_PI) * step;
        }
        assert_true(fabs(statistics_missed(shift, noise, 2, 0) - sum) < 1e-5);
    }
    const double shift[] = {1, INFINITY, 1.2}, none[3] = {0}, some[] = {0, 1, 0};
    assert_true(statistics_missed(shift, some, 3, 0) == 0 && statistics_missed(shift, none, 3, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grid_has_what_the_budget_allows),
        cmocka_unit_test(draws_are_those_of_the_seed),
        cmocka_unit_test(halving_halves),
        cmocka_unit_test(edges_and_what_lies_beyond),
        cmocka_unit_test_setup_teardown(a_search_and_its_comparison, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_alone_needs_no_sides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_told_at_its_place, set_up, tear_down),
        cmocka_unit_test(what_a_choice_misses),
        cmocka_unit_test(tuned_sides_that_are_equal_are_not_told_apart),
        cmocka_unit_test(a_better_side_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
