/* What is predicted of plug-ins: a ring in C and one in Python pass the simulated network as the engine's own ring does,
 * rank 0's sums take what port and bytes say, and a plan that does not fit together is refused, by its file. */
#include "tests/harness/harness.h"

#include "lab/check/check.h"
#include "lab/predict/exchange.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PLUGIN(name) ENGINE_BINARY_DIR "/plugins/" name ".so"
static const struct wire port = {50e-6, 8e-9};
static const char ring[] =
    "ENGINE_PLUGIN_VERSION = 3\n"
    "ORDER = 'ring'\n"
    "def all_reduce(r, n):\n"
    "    for word in 'add', 'put':\n"
    "        for s in range(n - 1):\n"
    "            out, come = (r - s + (word == 'put')) % n, (r - s - (word == 'add')) % n\n"
    "            yield {'send': ((r + 1) % n, out, out + 1), word: ((r - 1) % n, come, come + 1)}\n";

static struct exchange opened(int devices, const char *plugin) {
    const struct network_plan p = {.devices = devices, .per_host = 1, .oversubscription = 1, .outside = port};
    struct exchange e;
    assert_int_equal(exchange_open(&p, true, 0, &e), ERR_NONE);
    if (plugin) assert_int_equal(algo_named(plugin, NULL, &e.plugged), ERR_NONE);
    return e;
}

/* Seconds of an all-reduce; *sent: bytes that all ranks have sent by the plug-in. */
static double seconds(int devices, const char *plugin, double bytes, double *sent) {
    struct exchange e = opened(devices, plugin);
    double last = 0;
    if (exchange_all_reduce(&e, plugin ? SCHEME_OWN : SCHEME_ring, bytes) != ERR_NONE) fail_msg("%s", error_message());
    for (int r = 0; r < devices; r++) last = fmax(last, e.at[r]);
    *sent = e.own_bytes;
    exchange_close(&e);
    return last;
}

static const char *written(const char *name, const char *text) {
    static char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(name));
    save_text(path, text);
    return path;
}

static void rings_take_a_rings_time(void **state) {
    const char *own[] = {PLUGIN("wrong_0"), written("ring.py", ring)};
    (void)state;
    for (int n = 2; n <= 16; n++)
        for (int i = 0; i < 2; i++)
            for (int64_t each = 1; each < 1 << 20; each *= 64) {
                double sent, none, bytes = 4.0 * n * (double)each;
                double want = seconds(n, NULL, bytes, &none), got = seconds(n, own[i], bytes, &sent);
                assert_true(fabs(got / want - 1) < 1e-9);
                assert_true(sent == 2 * (n - 1) * bytes && none == 0);
            }
}

/* All bytes pass rank 0's port, in and out, and nothing else takes time. */
static void rank_0_takes_its_ports_time(void **state) {
    (void)state;
    for (int n = 2; n <= 64; n *= 2) {
        double sent, bytes = 4000, want = 2 * port.alpha + 2 * (n - 1) * bytes * port.beta;
        double got = seconds(n, ENGINE_SOURCE_DIR "/examples/plugins/algorithm.py", bytes, &sent);
        assert_true(fabs(got / want - 1) < 1e-9);
        assert_true(sent == 2 * (n - 1) * bytes);
    }
}

/* A ring and rank 0's sums, by their formulas. */
static void check_says_what_it_takes(void **state) {
    const char *own[] = {PLUGIN("wrong_0"), written("ring.py", ring)};
    (void)state;
    for (int n = 2; n <= 16; n *= 2) {
        double latencies, buffers;
        for (int i = 0; i < 2; i++) {
            assert_ok(check_cost(own[i], n, &latencies, &buffers));
            assert_true(fabs(latencies - 2 * (n - 1)) < 1e-9 && fabs(buffers - 2 * (n - 1) / (double)n) < 1e-9);
        }
        assert_ok(check_cost(ENGINE_SOURCE_DIR "/examples/plugins/algorithm.py", n, &latencies, &buffers));
        assert_true(fabs(latencies - 2) < 1e-9 && fabs(buffers - 2 * (n - 1)) < 1e-9);
    }
}

static void what_does_not_fit_is_refused(void **state) {
    static const struct {
        int devices;
        const char *plugin, *words;
    } of[] = {{4, PLUGIN("wrong_3"), "wrong_3.so': of 4 ranks, rank 0 waits for ever"},
              {4, PLUGIN("wrong_2"), "wrong_2.so': of 4 ranks, rank"},
              {4, PLUGIN("wrong_5"), "its plan declares"},
              {300, PLUGIN("wrong_0"), "among 300 ranks"},
              {300, ENGINE_SOURCE_DIR "/examples/plugins/algorithm.py", "algorithm.py' among 300 ranks"}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct exchange e = opened(of[i].devices, of[i].plugin);
        assert_int_not_equal(exchange_all_reduce(&e, SCHEME_OWN, 4000), ERR_NONE);
        if (!strstr(error_message(), of[i].words)) fail_msg("%s: %s", of[i].words, error_message());
        exchange_close(&e);
    }
    struct exchange e = opened(4, NULL);
    assert_int_equal(exchange_all_reduce(&e, SCHEME_OWN, 4000), ERR_CONFIG);
    exchange_close(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_take_a_rings_time),
        cmocka_unit_test(rank_0_takes_its_ports_time),
        cmocka_unit_test(check_says_what_it_takes),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("plug-ins, predicted", tests, NULL, NULL);
}
