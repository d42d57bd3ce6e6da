/* ddp.bucket from one message a parameter to one for all: the same bits in every mode, however many
 * there are. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 150 }; /* of two parameters each: more than a group has works at a time */
static struct program control, other;
static char many[LAYERS * 24 + 64];

static void run(struct program *p, const char *model, const char *mode, const char *devices, const char *const *more) {
    char set[3][sizeof many + 16];
    snprintf(set[0], sizeof set[0], "model=%s", model);
    snprintf(set[1], sizeof set[1], "mode=%s", mode);
    snprintf(set[2], sizeof set[2], "devices=%s", devices);
    program_train_start(p,
                        SETS("data={set: digits, train: 200, val: 32}", "batch={size: 32, shards: 4}", "train=2ep",
                             "threads=1", "checkpoint=off", "eval=end",
                             "optimizer={name: sgd, lr: 0.05, momentum: 0.5}", set[0], set[1], set[2]),
                        more);
    program_train_end(p);
}

static void assert_same(const char *what) {
    if (other.code) fail_msg("%s: exit code %d\n%s", what, other.code, other.err);
    program_assert_same(&control, &other, what);
}

static int setup(void **state) {
    (void)state;
    size_t n = (size_t)snprintf(many, sizeof many, "{layers: [flatten, {linear: 8}, relu");
    for (int i = 2; i < LAYERS; i++) n += (size_t)snprintf(many + n, sizeof many - n, ", {linear: 8}");
    snprintf(many + n, sizeof many - n, ", {linear: 10}]}");
    return 0;
}

static void one_message_a_parameter(void **state) {
    (void)state;
    static const struct {
        const char *mode, *more[4], *says;
    } ways[] = {
        {"ddp", {"ddp.bucket=0"}, ", 300 buckets, overlap on"},
        {"ddp", {"ddp.bucket=0", "ddp.overlap=false"}, ", 300 buckets, overlap off"},
        {"ddp", {"ddp.bucket={first: flat, cap: 0}"}, NULL},
        {"ddp", {"ddp.bucket=0", "comm.link=tcp"}, ", 300 buckets"},
        {"ddp", {"ddp.bucket=flat"}, ", 1 bucket, overlap on"},
        {"ddp", {"ddp.bucket=0", "optimizer.shard=true"}, "optimizer state in 4 slices"},
        {"dp", {"ddp.bucket=0", "dp.overlap=on"}, ", 300 buckets, overlap on"},
        {"dp", {"ddp.bucket=flat"}, ", 1 bucket"},
        {"dp", {"ddp.bucket=0", "dp.overlap=on", "dp.server=sharded"}, "sharded server"},
    };
    run(&control, many, "single", "cpu:1", SETS("seed=0"));
    assert_int_equal(control.code, 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        run(&other, many, ways[i].mode, "cpu:4", ways[i].more);
        if (!ways[i].says) {
            assert_int_equal(other.code, 78);
            assert_non_null(strstr(other.err, "'ddp.bucket.first' must be a size"));
            continue;
        }
        assert_same(ways[i].more[0]);
        if (!strstr(other.err, ways[i].says)) fail_msg("no '%s':\n%s", ways[i].says, other.err);
    }
}

/* Packets cannot be sent before all are packed, so here there is a limit. */
static void compressed(void **state) {
    (void)state;
    run(&other, many, "ddp", "cpu:2", SETS("ddp.bucket=0", "comm.compress=int8"));
    assert_int_equal(other.code, 78);
    assert_non_null(strstr(other.err, "300 buckets; at most 255 can be compressed"));
    run(&other, "mlp", "ddp", "cpu:2", SETS("ddp.bucket=0", "comm.compress=int8"));
    assert_int_equal(other.code, 0);
}

/* What a run has resolved can be read again. */
static void read_again(void **state) {
    (void)state;
    static const char *const caps[] = {"ddp.bucket=0", "ddp.bucket=flat", "ddp.bucket=4KB"};
    static const int buckets[] = {6, 1, 3};
    for (int i = 0; i < 3; i++) {
        char path[600], says[64], dir[600];
        run(&control, "{zoo: mlp, hidden: [128, 64]}", "ddp", "cpu:2", SETS(caps[i]));
        assert_int_equal(control.code, 0);
        snprintf(says, sizeof says, ", %d bucket%s, overlap", buckets[i], i == 1 ? "" : "s");
        if (!strstr(control.err, says)) fail_msg("no '%s':\n%s", says, control.err);
        snprintf(path, sizeof path, "%s/resolved.yaml", program_string(&control, "run_dir"));
        snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("again-"), i);
        program_run(&other, 60, "run", path, "--json", "--set", dir, NULL);
        assert_same(caps[i]);
        assert_non_null(strstr(other.err, says));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message_a_parameter),
        cmocka_unit_test(compressed),
        cmocka_unit_test(read_again),
    };
    return cmocka_run_group_tests_name("buckets", tests, setup, NULL);
}
