/* What a run's own numbers say of its step on other devices. */
#include "engine/settings/exchange.h"
#include "engine/settings/run_config.h"
#include "tests/harness/harness.h"

#include "lab/predict/measured.h"
#include "modes/share/share.h"

#include <math.h>
#include <string.h>

#define assert_near(got, expected, share) assert_true(fabs((got) - (expected)) <= (share)*fabs((double)(expected)))

/* Two tensors of a million floats, the second ready at the end. */
static struct tensor_info tensors[] = {{.name = "b", .offset = HEADER_FLOATS, .count = 1000000},
                                       {.name = "a", .offset = HEADER_FLOATS + 1000000, .count = 1000000}};
static struct model model = {.nparams = 2, .params = tensors, .arena_floats = HEADER_FLOATS + 2000000};
static double ready[] = {0.5, 1};
static struct measured_step step = {.load = 1e-3,
                                    .forward = 7e-3,
                                    .backward = 16e-3,
                                    .update = 2e-3,
                                    .work = 1,
                                    .batch = 64,
                                    .passes = 8,
                                    .samples = 8,
                                    .model = &model,
                                    .ready = ready,
                                    .activations = 1e6,
                                    .slots = 1};

static struct run_config config_of(const struct share_row *share, int devices) {
    return (struct run_config){
        .sharing = {.share = share,
                    .plan = share->plan,
                    .key = share->keys[0],
                    .every = 1,
                    .cut.first = 1 << 20,
                    .cut.cap = 25 << 20},
        .devices = {.kind = "cpu", .count = devices},
        .batch = {.size = 64, .shards = 8, .accumulate = 1},
        .comm = {.algorithm = "auto", .order = COMM_ORDER_TREE, .emulate.as = {.bandwidth = 125e6}}};
}

static double predicted(const struct run_config *c, int cores) {
    struct simulated s;
    double formula;
    assert_int_equal(measured_predict(&step, c, NULL, cores, &s, &formula), ERR_NONE);
    assert_near(s.step, formula, 0.03);
    return s.step;
}

static void a_shape_shares_the_work(void **state) {
    (void)state;
    static struct step_shape s;
    assert_int_equal(measured_shape(&step, 1, &(struct cutting){1, 25 << 20}, &s), ERR_NONE); /* eight passes */
    assert_int_equal(s.buckets, 2);
    assert_near(s.bytes[0], 4 * (HEADER_FLOATS + 1e6), 1e-9);
    assert_near(s.ready[0], 0.5, 0);
    assert_near(s.ready[1], 1, 0);
    assert_near(s.before, 8e-3 + 14e-3, 1e-9);
    assert_near(s.backward, 2e-3, 1e-9);
    assert_int_equal(measured_shape(&step, 0.125, &(struct cutting){INT64_MAX, INT64_MAX}, &s), ERR_NONE); /* one */
    assert_int_equal(s.buckets, 1);
    assert_near(s.before, 1e-3, 1e-9);
    assert_near(s.backward, 2e-3, 1e-9);
    assert_near(s.update, 2e-3, 0);
}

/* 8 MB through ports of 125 MB/s take 64 ms. */
static void modes_take_what_they_send(void **state) {
    (void)state;
    struct run_config c = config_of(&share_none, 1);
    assert_near(predicted(&c, 0), 26e-3, 1e-9);
    c = config_of(&share_server, 8);
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 + 2 * 7 * 64e-3, 0.02);
    c = config_of(&share_slices, 8);
    c.sharing.cut = (struct cutting){INT64_MAX, INT64_MAX};
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 / 8 + 2 * 7.0 / 8 * 64e-3, 0.02);
    c = config_of(&share_all_reduce, 8);
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 + 2 * 7.0 / 8 * 64e-3, 0.02);
    double moving = 2 * 7 * 8e6 * 8e-11 / 2; /* by the two cores */
    assert_near(predicted(&c, 2), 4 * (3e-3 + 2e-3) + 2 * 7.0 / 8 * 64e-3 + moving, 0.02);
    assert_true(predicted(&c, 2) > 4 * (3e-3 + 2e-3) + 2 * 7.0 / 8 * 64e-3 + moving * 0.9);
    assert_near(predicted(&c, 16), predicted(&c, 0), 1e-12); /* two cores for each device */
    c.sharing.plan = share_slices.plan;
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 / 8 + 2 * 7.0 / 8 * 64e-3, 0.02);
    c.sharing.plan = share_all_reduce.plan;
    c = config_of(&share_average, 8);
    c.sharing.every = 4;
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 + 2 * 7.0 / 8 * 64e-3 / 4, 0.02);
    c.sharing.plan = share_neighbour.plan; /* K out and K in, at once */
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 + 64e-3 / 4, 0.02);
    c = config_of(&share_adasum, 8); /* three swaps of all */
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 + 3 * 64e-3, 0.02);
    c = config_of(&share_adasum, 6); /* two of four ranks, and once there and back of the others */
    assert_near(predicted(&c, 0), 3e-3 + 2e-3 + 4 * 64e-3, 0.02);
    c = config_of(&share_all_reduce, 8);
    c.comm.algorithm = "tree";
    assert_near(predicted(&c, 0), 5e-3 + 2 * 3 * 64e-3, 0.02);
    c.sharing.overlap = true; /* the first half is ready half a backward earlier */
    assert_near(predicted(&c, 0), 5e-3 - 1e-3 + 2 * 3 * 64e-3, 0.02);
}

static void memory_counts_what_a_device_has(void **state) {
    (void)state;
    double arena = 4.0 * (HEADER_FLOATS + 2000000);
    assert_near(measured_memory(&step, 0.125, 1), 3 * arena + 1e6, 1e-9);
    assert_near(measured_memory(&step, 0.125, 0.125), 2.125 * arena + 1e6, 1e-9);
    assert_near(measured_memory(&step, 1, 1), 6 * arena + 1e6, 1e-9); /* sums of 8, 4, 2 and 1 */
    assert_near(measured_memory(&step, 0.0625, 1), 3 * arena + 5e5, 1e-9);
}

static void refuses_what_it_does_not_know(void **state) {
    (void)state;
    struct simulated s;
    double formula;
    struct run_config c = config_of(&share_all_reduce, 2);
    c.sync_batchnorm = true;
    assert_int_equal(measured_predict(&step, &c, NULL, 0, &s, &formula), ERR_CONFIG);
    assert_non_null(strstr(error_hint(), "sync_batchnorm=false"));
    c = config_of(&share_stale, 2);
    assert_int_equal(measured_predict(&step, &c, NULL, 0, &s, &formula), ERR_CONFIG);
    assert_non_null(strstr(error_hint(), "dp.staleness=0"));
    c = config_of(&share_average, 2);
    c.ddp.sync.state = SYNC_AVERAGE;
    assert_int_equal(measured_predict(&step, &c, NULL, 0, &s, &formula), ERR_CONFIG);
    assert_non_null(strstr(error_hint(), "ddp.sync.state=local"));
    for (int i = 0; i < TUNABLES; i++) { /* nobody knows what a run will choose */
        static const char *const without[TUNABLES] = {"ddp.bucket.cap=25MB", "comm.algorithm=auto"};
        c = config_of(&share_all_reduce, 2);
        c.sharing.tunes[i] = true;
        assert_int_equal(measured_predict(&step, &c, NULL, 0, &s, &formula), ERR_CONFIG);
        assert_non_null(strstr(error_hint(), without[i]));
    }
    c = config_of(&share_all_reduce, 2);
    c.comm.emulate.as.bandwidth = 0;
    assert_int_equal(measured_predict(&step, &c, NULL, 0, &s, &formula), ERR_CONFIG);
    const struct wire port = {0, 8e-9};
    assert_int_equal(measured_predict(&step, &c, &port, 0, &s, &formula), ERR_NONE);
    struct run_result none = {.dir = "x"};
    struct measured_step m;
    assert_int_equal(measured_read(&(struct measured_ask){&none, &c, &model, NULL, 0, 0.5}, NULL, &m), ERR_DATA);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_shares_the_work),
        cmocka_unit_test(modes_take_what_they_send),
        cmocka_unit_test(memory_counts_what_a_device_has),
        cmocka_unit_test(refuses_what_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
