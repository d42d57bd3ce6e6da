/* Formulas of sharing and of scaling, against the textbook's and against planted numbers. */
#include "tests/harness/harness.h"

#include "lab/predict/cost.h"
#include "modes/share/share.h"
#include "transport/algo/algo.h"

#include <math.h>

#define assert_near(got, expected, share) assert_true(fabs((got) - (expected)) <= (share)*fabs((double)(expected)))

static const double alpha = 50e-6, beta = 8e-9; /* 1 Gbit/s, slow enough to hide adding in rings */

static struct ground flat(int devices) {
    return (struct ground){devices, 1, {alpha, beta}, false};
}

/* K bytes among N; adding costs something in the others, so it may be a little more. */
static void formulas_are_the_textbooks(void **state) {
    (void)state;
    const double k = 4e6;
    for (int n = 2; n <= 4096; n *= 2) {
        const struct ground g = flat(n);
        double others = n - 1, steps = log2(n);
        assert_near(cost_share(SCHEME_ring, &g, k), 2 * others * (alpha + k / n * beta), 1e-9);
        assert_near(cost_share(SCHEME_tree, &g, k), 2 * steps * (alpha + k * beta), 1e-9);
        assert_near(cost_share(SCHEME_halving_doubling, &g, k), 2 * steps * alpha + 2 * others / n * k * beta, 1e-9);
        assert_near(cost_share(SCHEME_star, &g, k), 2 * alpha + 2 * others * k * beta, 0.02);
        assert_near(cost_share(SCHEME_STAR_SERIAL, &g, k), 2 * others * (alpha + k * beta), 0.02);
        assert_near(cost_share(SCHEME_STAR_DUPLEX, &g, k), others * (alpha + k * beta), 0.02);
        assert_near(cost_share(SCHEME_SHARDED, &g, k), cost_share(SCHEME_direct, &g, k), 0);
    }
    const struct ground one = flat(1);
    for (int s = 0; s < SCHEMES; s++) assert_true(cost_share((enum scheme)s, &one, k) == 0);
}

/* Where only bytes count, the server's port has N times what a ring's has. */
static void a_server_moves_n_times_the_bytes(void **state) {
    (void)state;
    for (int n = 2; n <= 256; n *= 4) {
        const struct ground g = {n, 1, {0, 1e-6}, false};
        double ratio = cost_share(SCHEME_star, &g, 1e6) / cost_share(SCHEME_ring, &g, 1e6);
        assert_near(ratio, n, 1e-3);
    }
}

static void hierarchical_needs_even_hosts(void **state) {
    (void)state;
    struct ground g = {16, 4, {alpha, beta}, true};
    assert_true(cost_share(SCHEME_hierarchical, &g, 4e6) < cost_share(SCHEME_halving_doubling, &g, 4e6));
    g.devices = 12; /* three on each */
    assert_true(isinf(cost_share(SCHEME_hierarchical, &g, 4e6)));
    g = flat(8);
    assert_true(isinf(cost_share(SCHEME_hierarchical, &g, 4e6)));
}

/* Whatever 'auto' may choose has a name and a formula here; what has none is known to have none. */
static void every_algorithm_is_a_scheme(void **state) {
    (void)state;
    int n;
    const struct ground g = flat(4);
    const struct algo_ops *const *all = algo_list(&n);
    for (int i = 0; i < n; i++) {
        enum scheme s = scheme_find(all[i]->name);
        assert_true(s < SCHEMES);
        assert_string_equal(scheme_name(s), all[i]->name);
        bool formula = all[i]->cost[KIND_ALL_REDUCE] != NULL;
        assert_int_equal(scheme_is_known(s), formula);
        if (!formula) assert_true(isinf(cost_share(s, &g, 1e6)));
    }
    assert_false(scheme_is_known(SCHEME_SHARDED) || scheme_is_known(SCHEMES));
    assert_string_equal(scheme_name(SCHEMES), "auto");
}

static void auto_takes_the_cheapest(void **state) {
    (void)state;
    static const enum scheme tree_order[] = {SCHEME_direct, SCHEME_halving_doubling, SCHEME_star, SCHEME_tree};
    static const enum scheme ring_order[] = {SCHEME_direct, SCHEME_ring, SCHEME_star};
    for (int n = 2; n <= 64; n++)
        for (double k = 64; k < 1e9; k *= 8) {
            const struct ground g = flat(n);
            double least[2] = {INFINITY, INFINITY};
            for (int i = 0; i < 4; i++) least[0] = fmin(least[0], cost_share(tree_order[i], &g, k));
            for (int i = 0; i < 3; i++) least[1] = fmin(least[1], cost_share(ring_order[i], &g, k));
            assert_near(cost_share(cost_cheapest(&g, false, k), &g, k), least[0], 2e-3);
            assert_near(cost_share(cost_cheapest(&g, true, k), &g, k), least[1], 2e-3);
        }
}

static void crossover_is_where_costs_meet(void **state) {
    (void)state;
    for (int n = 4; n <= 256; n *= 2) {
        const struct ground g = flat(n);
        double k = cost_crossover(SCHEME_star, SCHEME_ring, &g);
        assert_true(k > 0 && !isinf(k));
        assert_near(cost_share(SCHEME_star, &g, k), cost_share(SCHEME_ring, &g, k), 1e-6);
        assert_true(cost_share(SCHEME_ring, &g, k / 2) > cost_share(SCHEME_star, &g, k / 2));
        assert_true(cost_share(SCHEME_ring, &g, k * 2) < cost_share(SCHEME_star, &g, k * 2));
    }
    const struct ground two = flat(2); /* a ring of two has the server's messages and half its bytes */
    assert_true(cost_crossover(SCHEME_star, SCHEME_ring, &two) == 0);
    assert_true(isinf(cost_crossover(SCHEME_halving_doubling, SCHEME_star, &two)));
}

/* Ports of known alpha and beta: calls that cost what the formulas say lead back to them. */
static void a_fit_finds_the_port(void **state) {
    (void)state;
    static const enum scheme schemes[] = {SCHEME_star, SCHEME_ring, SCHEME_tree, SCHEME_halving_doubling,
                                          SCHEME_direct};
    struct cost_point p[200];
    for (double b = 8e-11; b < 1e-7; b *= 10) {
        int n = 0;
        for (int s = 0; s < 5; s++)
            for (int devices = 2; devices <= 8; devices *= 2)
                for (double k = 1024; k < 1e8; k *= 16) {
                    const struct ground g = {devices, 1, {alpha, b}, false};
                    p[n++] = (struct cost_point){schemes[s], devices, k, cost_share(schemes[s], &g, k)};
                }
        p[n++] = (struct cost_point){SCHEME_hierarchical, 4, 1e6, 1}; /* of one host: no formula */
        struct wire w = cost_fit(p, n);
        assert_near(w.alpha, alpha, 0.01);
        assert_near(w.beta, b, 0.01);
    }
}

/* Two buckets of one message each: 1 ms, on two devices. */
static void a_step_hides_what_it_can(void **state) {
    (void)state;
    const double ready[] = {1e-3, 4e-3}, bytes[] = {125e3, 125e3};
    const struct ground g = {2, 1, {0, 8e-9}, false}; /* a ring of 125 KB: 2 x 0.5 ms */
    struct step_cost c = {.before = 2e-3,
                          .backward = 4e-3,
                          .update = 0.5e-3,
                          .buckets = 2,
                          .ready = ready,
                          .bytes = bytes,
                          .plan = &share_all_reduce.plan,
                          .every = 1};
    assert_near(cost_step(&c, SCHEME_ring, &g), 6e-3 + 2e-3 + 0.5e-3, 1e-9);
    c.overlap = true; /* the first beside backward, the second behind it */
    assert_near(cost_step(&c, SCHEME_ring, &g), 6e-3 + 1e-3 + 0.5e-3, 1e-9);
    c.plan = &share_server.plan; /* gradients 2 x 1 ms, of which one is hidden; weights 2 ms */
    assert_near(cost_step(&c, SCHEME_star, &g), 6e-3 + 1e-3 + 0.5e-3 + 2e-3, 0.02);
    const struct ground one = flat(1);
    assert_near(cost_step(&c, SCHEME_star, &one), 6.5e-3, 1e-9);
    c.overlap = false, c.plan = &share_all_reduce.plan;
    double cheapest = cost_step(&c, SCHEMES, &g);
    static const enum scheme able[] = {SCHEME_direct, SCHEME_halving_doubling, SCHEME_star, SCHEME_tree};
    for (int i = 0; i < 4; i++) assert_true(cheapest <= cost_step(&c, able[i], &g) * 1.002);
}

static void laws_find_the_serial_share(void **state) {
    (void)state;
    static const int n[] = {1, 2, 4, 8, 16};
    double strong[5], weak[5];
    for (double p = 0.1; p < 1; p += 0.2) {
        for (int i = 0; i < 5; i++) {
            strong[i] = 3 * ((1 - p) + p / n[i]);
            weak[i] = 3 * n[i] / (n[i] - (1 - p) * (n[i] - 1));
            if (i) assert_near(scaling_karp_flatt(strong[0] / strong[i], n[i]), 1 - p, 1e-9);
        }
        assert_near(scaling_amdahl(n, strong, 5), p, 1e-9);
        assert_near(scaling_gustafson(n, weak, 5), p, 1e-9);
    }
    assert_true(isnan(scaling_amdahl(n + 2, strong, 1)));
    /* an exchange that grows as (N-1) / N: a line through these times is below zero on one device */
    char text[32];
    const double slower[] = {10.9, 16.2, 18.9}, little_slower[] = {3, 3.1, 3.15};
    assert_true(scaling_amdahl(n + 1, slower, 3) < 0);
    assert_string_equal(scaling_share_text(scaling_amdahl(n + 1, slower, 3), text), "none: slower");
    assert_true(scaling_amdahl(n + 1, little_slower, 3) < 0);
    assert_string_equal(scaling_share_text(0.973, text), "97.3 %");
    assert_string_equal(scaling_share_text(1.5, text), "more than all");
    assert_true(isnan(scaling_gustafson(n + 1, strong, 4)));
}

static void names_lead_back(void **state) {
    (void)state;
    for (int s = 0; s < SCHEMES; s++) assert_int_equal(scheme_find(scheme_name((enum scheme)s)), s);
    assert_int_equal(scheme_find("hypercube"), SCHEMES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_are_the_textbooks),    cmocka_unit_test(a_server_moves_n_times_the_bytes),
        cmocka_unit_test(hierarchical_needs_even_hosts), cmocka_unit_test(every_algorithm_is_a_scheme),
        cmocka_unit_test(auto_takes_the_cheapest),       cmocka_unit_test(crossover_is_where_costs_meet),
        cmocka_unit_test(a_fit_finds_the_port),          cmocka_unit_test(a_step_hides_what_it_can),
        cmocka_unit_test(laws_find_the_serial_share),    cmocka_unit_test(names_lead_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
