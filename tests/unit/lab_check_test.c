/* engine check: the engine's own algorithms, coders and the examples pass it, and each mistake is named: what, at which
 * size, rank and count, what came out and what should. */
#include "tests/harness/harness.h"

#include "lab/check/check.h"
#include "modes/share/compress.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <string.h>

#define PLUGIN(name) ENGINE_BINARY_DIR "/plugins/" name ".so"
extern const struct compress_ops compress_int8, compress_onebit;

/* Only what hangs is to be found by its time: everything else ends by itself, as late as a busy machine lets it. */
enum { HANGS = 3, ENDS = 60 };
static struct check check_of(const char *name) {
    return (struct check){.name = name, .timeout = ENDS, .sizes = 5};
}

static void own_algorithms(void **state) {
    int n;
    const struct algo_ops *const *all = algo_list(&n);
    (void)state;
    for (int i = 0; i < n; i++) {
        struct check c = check_of(all[i]->name);
        if (all[i]->native) continue;
        check_algorithm(&c);
        if (c.wrong) fail_msg("%s: %s", all[i]->name, c.first);
        assert_true(c.passed >= (all[i]->even ? 8 : 10));
    }
}

static void own_coders(void **state) {
    const struct compress_ops *const of[] = {&compress_int8, &compress_onebit};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct check c = check_of("own");
        check_compressor(&c, of[i]->coder, NULL);
        if (c.wrong) fail_msg("coder %d: %s", i, c.first);
        assert_int_equal(c.passed, 4);
    }
}

static void examples(void **state) {
    static const char *const of[] = {PLUGIN("algorithm_0"),
                                     ENGINE_SOURCE_DIR "/examples/plugins/algorithm.py",
                                     ENGINE_SOURCE_DIR "/examples/plugins/compressor.py",
                                     PLUGIN("compressor_0"),
                                     PLUGIN("optimizer_0"),
                                     PLUGIN("wrong_0"),
                                     PLUGIN("wrong_compressor_0"),
                                     PLUGIN("wrong_optimizer_0"),
                                     PLUGIN("share_0"),
                                     PLUGIN("wrong_share_0"),
                                     PLUGIN("wrong_11")}; /* it overlooks failures, which the engine does not */
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct check c = check_of(of[i]);
        if (check_plugin(&c) != ERR_NONE) fail_msg("%s: %s: %s", of[i], error_message(), c.first);
        assert_true(c.passed >= 3);
    }
}

/* wrong_share_0, the mean with a neighbour in turn, against the same in double precision. */
static void mixing_is_measured(void **state) {
    enum { WEIGHTS = 64, N = SHARE_RANKS };
    struct check c = check_of(PLUGIN("wrong_share_0"));
    double first = 0, last = 0;
    (void)state;
    if (check_plugin(&c) != ERR_NONE) fail_msg("%s", c.first);
    for (int64_t i = 0; i < WEIGHTS; i++) {
        double x[N], mean = 0;
        for (int r = 0; r < N; r++) x[r] = (double)check_value(r, i), mean += x[r] / N;
        for (int r = 0; r < N; r++) first = fmax(first, fabs(x[r] - mean));
        for (int meeting = 0; meeting < SHARE_MEETINGS; meeting++)
            for (int r = meeting % 2; r < N + meeting % 2; r += 2) {
                double both = (x[r % N] + x[(r + 1) % N]) / 2;
                x[r % N] = x[(r + 1) % N] = both;
            }
        for (int r = 0; r < N; r++) last = fmax(last, fabs(x[r] - mean));
    }
    assert_true(last / first > 0.01 && fabs(c.left - last / first) < 1e-5);
}

/* share_0, the median: all ranks agree after one meeting, but not on the mean. */
static void a_moved_mean_is_measured(void **state) {
    enum { WEIGHTS = 64, N = SHARE_RANKS };
    struct check c = check_of(PLUGIN("share_0"));
    double first = 0, last = 0;
    (void)state;
    if (check_plugin(&c) != ERR_NONE) fail_msg("%s", c.first);
    for (int64_t i = 0; i < WEIGHTS; i++) {
        double mean = 0, middle[2] = {0};
        for (int r = 0; r < N; r++) mean += (double)check_value(r, i) / N;
        for (int r = 0; r < N; r++) {
            double x = (double)check_value(r, i);
            int below = 0; /* how many come before it, of equal ones those of lower ranks */
            for (int k = 0; k < N; k++) {
                double y = (double)check_value(k, i);
                below += y < x || (!(x < y) && k < r);
            }
            if (below == N / 2 - 1 || below == N / 2) middle[below - N / 2 + 1] = x;
            first = fmax(first, fabs(x - mean));
        }
        last = fmax(last, fabs((middle[0] + middle[1]) / 2 - mean));
    }
    assert_true(last / first > 0.1 && fabs(c.left - last / first) < 1e-5);
}

static const struct {
    const char *file, *words, *more;
} mistakes[] = {
    {PLUGIN("wrong_1"), "2 ranks: plug-in '", "adds wrongly: element 0 of 35 is"},
    {PLUGIN("wrong_2"), "values, bits, lanes, 2 ranks: in plug-in", "of 2 exchanges with rank"},
    {PLUGIN("wrong_3"), "has not done its part of all_reduce", "by plug-in wrong_3.so within 3 s"},
    {PLUGIN("wrong_4"), "past the end of the buffer", "2 ranks, 1 elements of i64"},
    {PLUGIN("wrong_5"), "and its plan declares 17 and 35", "of a buffer of 35"},
    {PLUGIN("wrong_6"), "adds wrongly: element 0 of 35 is", "and the sum is 9"},
    {PLUGIN("wrong_7"), "memory, 2 ranks: 64 calls", "about 10"},
    {PLUGIN("wrong_9"), "crashed in all_reduce: signal", "2 ranks"},
    {PLUGIN("wrong_10"), "has been in all_reduce for", "an endless loop"},
    {PLUGIN("wrong_12"), "adds wrongly: element 34 of 35 is", "and the sum is 111"},
    {PLUGIN("wrong_13"), "3 ranks, 3 elements of f32, sum: element", "(added in another order than the tree's)"},
    {PLUGIN("wrong_14"), "exchanges elements 17 to 38 of a buffer of 35", "of 2"},
    {PLUGIN("wrong_compressor_1"), "past the end of the bytes on the wire", "encode of 1 floats"},
    {PLUGIN("wrong_compressor_2"), "float 1 was -9.45", "-9.4375 were sent and 0 are left"},
    {PLUGIN("wrong_compressor_3"), "-1017 were sent", NULL},
    {PLUGIN("wrong_compressor_4"), "what is not finite shows: float 21 is infinite", NULL},
    {PLUGIN("wrong_compressor_5"), "memory of a compressor: 64 calls", "about 10"},
    {PLUGIN("wrong_compressor_6"), "crashed in encode", "rank 0 of 1"},
    {PLUGIN("wrong_compressor_7"), "has been in encode for", NULL},
    {PLUGIN("wrong_compressor_8"), "past the end of the bytes on the wire", NULL},
    {PLUGIN("wrong_compressor_9"), "the same again gives other bytes", NULL},
    {PLUGIN("wrong_share_1"), "all ranks have -1700 as weight 0", "a rank goes on with"},
    {PLUGIN("wrong_share_2"), "past the end of the buffer", "2 ranks, 1 weights, meeting 0"},
    {PLUGIN("wrong_share_3"), "and its plan declares 0 and 1", "of a buffer of 1"},
    {PLUGIN("wrong_share_4"), "meet of rank", "returned 7"},
    {PLUGIN("wrong_share_5"), "memory, 2 ranks: 64 calls", "about 10"},
    {PLUGIN("wrong_share_6"), "meeting 0 again gives other bits on rank", "1 weights"},
    {PLUGIN("wrong_share_7"), "crashed in meet: signal", "2 ranks"},
    {PLUGIN("wrong_share_8"), "sent 1 and received 0 elements of a buffer of 1", "declares 1 and 1"},
    {PLUGIN("wrong_optimizer_1"), "in slices: the weight 0 of 1003 is", "and not"},
    {PLUGIN("wrong_optimizer_2"), "past the end of the weights", NULL},
    {PLUGIN("wrong_optimizer_3"), "step 1 writes into the gradients", NULL},
    {PLUGIN("wrong_optimizer_4"), "the same steps again: the weight 0", NULL},
    {PLUGIN("wrong_optimizer_5"), "memory of an optimizer", NULL},
    {PLUGIN("wrong_optimizer_6"), "has been in step for", NULL},
    {PLUGIN("wrong_optimizer_7"), "crashed in step", NULL},
};

/* Sanitizers find memory by themselves, in words of their own. */
static bool is_memory(const char *words) {
#ifdef ENGINE_SANITIZED
    return strstr(words, "past the end") || strstr(words, "memory") || strstr(words, "crashed");
#else
    (void)words;
    return false;
#endif
}

static void mistakes_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct check c = check_of(mistakes[i].file);
        if (strstr(mistakes[i].words, "has been in") || strstr(mistakes[i].words, "has not done")) c.timeout = HANGS;
        if (is_memory(mistakes[i].words)) continue;
        if (check_plugin(&c) != ERR_RESULT) fail_msg("%s passes: %s", mistakes[i].file, error_message());
        if (!strstr(c.first, mistakes[i].words) || (mistakes[i].more && !strstr(c.first, mistakes[i].more)))
            fail_msg("%s: '%s' is not said, but:\n%s", mistakes[i].file, mistakes[i].words, c.first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_algorithms),
        cmocka_unit_test(own_coders),
        cmocka_unit_test(examples),
        cmocka_unit_test(mixing_is_measured),
        cmocka_unit_test(a_moved_mean_is_measured),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
