/* engine simulate, on a configuration and on a run. */
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include <math.h>
#include <stdio.h>

static struct program p;
static struct pool *pool;

static double number(const struct json_value *in, const char *key) {
    const struct json_value *v = json_get(in, key);
    if (!v || v->kind != JSON_NUMBER) fail_msg("no number '%s'", key);
    return v->number;
}

static const struct json_value *rows_of(const struct json_value *root, int count) {
    const struct json_value *rows = json_get(root, "rows");
    assert_non_null(rows);
    assert_int_equal(rows->count, count);
    return rows->children;
}

static char run_dir[600];

static int train_once(void **state) {
    (void)state;
    assert_int_equal(pool_create(&pool), ERR_NONE);
    snprintf(run_dir, sizeof run_dir, "%s", scratch_path("simulated"));
    char dir[700];
    snprintf(dir, sizeof dir, "log.dir=%s", run_dir);
    program_run(&p, 60, "run", "--json", "--quiet", "--set", dir, "--set", "train=30st", "--set", "mode=single",
                "--set", "devices=cpu:1", "--set", "threads=1", "--set", "model={zoo: mlp, hidden: [256]}", "--set",
                "batch={size: 64, shards: 8}", "--set", "log.every=1st", NULL);
    return p.code;
}

static int forget(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

/* One device takes what was measured; a server's port has N / 2 times the bytes of a ring's; the formula agrees. */
static void replays_a_run(void **state) {
    (void)state;
    program_run(&p, 20, "simulate", run_dir, "--devices", "1,8,4096", "--mode", "dp,ddp", "--algorithm", "ring",
                "--link", "1Gbit,50us", "--scaling", "weak", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *root = program_json(&p, pool), *m = json_get(root, "measured");
    const struct json_value *r = rows_of(root, 6);
    double alone = number(m, "load_s") + number(m, "forward_s") + number(m, "backward_s") + number(m, "update_s");
    double bytes = number(m, "gradient_bytes");
    assert_true(bytes >= 4 * (784 * 256 + 256 + 2560 + 10) && bytes < 4 * 205000);
    assert_true(alone > 0);
    for (int i = 0; i < 2; i++) assert_true(fabs(number(&r[i], "step_s") / alone - 1) < 1e-6);
    double served = number(&r[2], "step_s") * number(&r[2], "busiest_port_share");
    double ring = number(&r[3], "step_s") * number(&r[3], "busiest_port_share");
    assert_true(fabs(served - 7 * bytes * 8e-9) < 1e-6 * served);
    assert_true(fabs(served / ring - 4) < 1e-3);
    for (int i = 0; i < 6; i++) {
        double step = number(&r[i], "step_s"), exposed = number(&r[i], "comm_exposed_s");
        assert_true(fabs(number(&r[i], "formula_s") / step - 1) < 0.05);
        assert_true(fabs(number(&r[i], "compute_s") + exposed - step) < 1e-6 * step);
        assert_true(number(&r[i], "memory_bytes") > 2 * bytes);
    }
}

static void strong_scaling_shares_the_batch(void **state) {
    (void)state;
    program_run(&p, 20, "simulate", run_dir, "--devices", "1,8", "--mode", "ddp", "--link", "unlimited", "--overlap",
                "off", "--scaling", "strong", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *root = program_json(&p, pool), *m = json_get(root, "measured");
    const struct json_value *r = rows_of(root, 2);
    double divided = number(m, "load_s") + number(m, "forward_s") + number(m, "backward_s");
    assert_true(fabs(number(&r[1], "compute_s") / (divided / 8 + number(m, "update_s")) - 1) < 1e-6);
    program_run(&p, 20, "simulate", run_dir, "--devices", "128", "--scaling", "strong", NULL);
    assert_int_equal(p.code, 64);
    program_assert_says(p.err, "128 devices share a batch of 64 samples");
}

/* Every way and several sizes of buckets: as many rows, each with its law. */
static void every_way_has_a_row(void **state) {
    (void)state;
    program_run(&p, 20, "simulate", run_dir, "--devices", "1,4,16", "--algorithm", "all", "--server", "all",
                "--per-host", "4", "--per-rack", "2", "--oversubscription", "4", "--straggler", "0.1:2", "--buckets",
                "64KB,25MB", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    static const char *const says[] = {
        "server apart",     "sharded server", "star",   "ring", "tree",
        "halving_doubling", "hierarchical",   "direct", "rack", "10 % of devices 2 times slower",
        "Gustafson"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) program_assert_says(p.out, says[i]);
    program_run(&p, 20, "simulate", run_dir, "--devices", "4", "--mode", "ps", "--link", "1Gbit", NULL);
    program_assert_says(p.out, "server 0 out");
    static const char *const on_workers[] = {"ps={servers: 2, place: workers}", "ps={servers: 4, place: workers}"};
    double step[2]; /* on two workers there are two servers */
    for (int i = 0; i < 2; i++) {
        program_run(&p, 20, "simulate", run_dir, "--devices", "2", "--mode", "ps", "--link", "1Gbit", "--set",
                    on_workers[i], "--json", NULL);
        if (p.code != 0) fail_msg("%s", p.err);
        step[i] = number(rows_of(program_json(&p, pool), 1), "step_s");
    }
    assert_true(step[0] == step[1]);
}

/* When gradients were ready: what is known from the layers' work, and what the run has traced. */
static void a_trace_tells_more(void **state) {
    (void)state;
    char dir[700];
    const char *traced = scratch_path("traced");
    snprintf(dir, sizeof dir, "log.dir=%s", traced);
    program_run(&p, 60, "run", "--quiet", "--set", dir, "--set", "train=30st", "--set", "mode=ddp", "--set",
                "devices=cpu:2", "--set", "threads=1", "--set", "model={zoo: mlp, hidden: [256]}", "--set",
                "batch={size: 64, shards: 8}", "--set", "ddp.bucket=64KB", "--set", "log.trace=11..20st", NULL);
    assert_int_equal(p.code, 0);
    program_run(&p, 20, "simulate", traced, "--devices", "2", "--json", NULL);
    const struct json_value *root = program_json(&p, pool);
    assert_true(number(json_get(root, "measured"), "traced_steps") == 20); /* 10 of 2 ranks */
    program_run(&p, 20, "simulate", traced, "--devices", "2", NULL);
    program_assert_says(p.out, "ready as traced");
    program_run(&p, 20, "simulate", run_dir, "--devices", "2", NULL);
    program_assert_says(p.out, "ready by each layer's work");
}

static void a_configuration_is_measured_first(void **state) {
    (void)state;
    program_run(&p, 60, "simulate", "--set", "model={zoo: mlp, hidden: [16]}", "--set", "devices=cpu:2", "--set",
                "threads=1", "--set", "batch=32", "--set", "comm={emulate: {bandwidth: 100Mbit}}", "--devices", "2",
                "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *root = program_json(&p, pool);
    assert_string_equal(json_get(json_get(root, "measured"), "of")->text, "now");
    assert_true(number(json_get(root, "measured"), "traced_steps") == 30);
    assert_true(number(root, "bytes_per_s") == 100e6 / 8);
    rows_of(root, 4);
}

/* What bench comm measures of an emulated port leads back to it. */
static void a_bench_tells_the_port(void **state) {
    (void)state;
    const char *path = scratch_path("bench.json");
    program_run(&p, 60, "bench", "comm", "--ranks", "2", "--link", "thread", "--algorithm", "ring", "--from", "64KB",
                "--to", "1MB", "--emulate", "bandwidth=500Mbit,latency=1ms", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(p.out, f);
    fclose(f);
    program_run(&p, 20, "simulate", run_dir, "--bench", path, "--devices", "2", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *root = program_json(&p, pool);
    double rate = number(root, "bytes_per_s") * 8;
    if (timing_checked() && (rate < 200e6 || rate > 600e6)) fail_msg("500 Mbit/s are taken for %g", rate);
    assert_true(rate > 0 && (number(root, "fit_error") < 0.5 || !timing_checked()));
    program_run(&p, 20, "simulate", run_dir, "--bench", path, "--link", "1Gbit", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 20, "simulate", run_dir, "--bench", "/dev/null", NULL);
    assert_int_equal(p.code, 65);
    path = scratch_path("summary.json");
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"collective\": \"broadcast\"}", f);
    fclose(f);
    program_run(&p, 20, "simulate", run_dir, "--bench", path, NULL);
    assert_int_equal(p.code, 65);
    program_assert_says(p.err, "no times of an all_reduce");
}

/* The network has 784, 256 and 10 numbers, and the cut with the least slowest stage lies before its last two: what passes
 * the port of the first stage are the 256 of each sample, and a few sums. Copies of 2 stages each have half of the micro-batches. */
static void replays_stages(void **state) {
    (void)state;
    program_run(&p, 20, "simulate", run_dir, "--devices", "1,2", "--mode", "pipeline", "--scaling", "strong", "--link",
                "1Gbit,50us", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *root = program_json(&p, pool), *r = rows_of(root, 2);
    double step = number(&r[1], "step_s"), alone = number(&r[0], "step_s");
    assert_true(fabs(number(&r[1], "busiest_port_share") * step - 64 * 256 * 4 / 125e6) < 2e-6);
    assert_true(number(&r[1], "memory_bytes") < number(&r[0], "memory_bytes"));
    assert_true(step > number(&r[1], "compute_s") && fabs(alone - number(&r[0], "formula_s")) < 1e-9);
    program_run(&p, 20, "simulate", run_dir, "--devices", "2,4", "--mode", "pipeline", "--scaling", "strong", "--set",
                "pipeline=2", "--link", "1Gbit,50us", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    r = rows_of(program_json(&p, pool), 2);
    assert_true(fabs(number(&r[0], "step_s") - step) < 1e-9);
    double half = number(&r[1], "compute_s") / number(&r[0], "compute_s"); /* but for the update, which is whole */
    if (half < 0.499 || half > 0.9) fail_msg("%g", half);
    program_run(&p, 20, "simulate", run_dir, "--devices", "3", "--mode", "pipeline", "--set", "pipeline=2", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "3 devices cannot be cut into stages");
    program_run(&p, 20, "simulate", run_dir, "--devices", "16", "--mode", "pipeline", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "16 stages, but model");
}

/* Of a ring whose links are described one by one the slowest one decides: it passes 2 (N - 1) messages of K / N. */
static void links_are_read_from_a_file(void **state) {
    const char *path = scratch_path("links.yaml"), *set = pool_printf(pool, "comm.emulate=%s", path);
    (void)state;
    save_text(path, "bandwidth: 100Mbit\nlatency: 1ms\nlinks: [{ranks: 0, to: 3, bandwidth: 8Mbit}]\n");
    program_run(&p, 20, "simulate", run_dir, "--mode", "ddp", "--algorithm", "ring", "--overlap", "off", "--buckets",
                "100MB", "--set", "mode=dp", "--set", "devices=cpu:4", "--set", set, "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *root = program_json(&p, pool), *m = json_get(root, "measured"), *r = rows_of(root, 1);
    double seconds = 1e-3 + 6 * number(m, "gradient_bytes") / 4 / 1e6;
    assert_true(number(r, "devices") == 4);
    assert_true(fabs(number(r, "comm_exposed_s") / seconds - 1) < 0.01);
    assert_true(fabs(number(r, "formula_s") / number(r, "step_s") - 1) < 0.05);
    program_run(&p, 20, "simulate", run_dir, "--set", "mode=dp", "--set", "devices=cpu:4", "--set", set, "--devices",
                "2", NULL);
    assert_int_equal(p.code, 64);
    program_assert_says(p.err, "comm.emulate.links is about ranks that 2 devices do not have");
    program_run(&p, 20, "simulate", run_dir, "--set", "mode=dp", "--set", "devices=cpu:4", "--set", set, "--per-host",
                "2", NULL);
    assert_int_equal(p.code, 64);
    program_assert_says(p.err, "--per-host and --per-rack are of hosts that are alike");
}

static void says_what_is_wrong(void **state) {
    (void)state;
    static const char *const wrong[][3] = {{"--devices", "0", "--devices is numbers from 1 to 4096"},
                                           {"--devices", "2,,4", "--devices is"},
                                           {"--devices", "5000", "--devices is"},
                                           {"--link", "fast", "--link is RATE"},
                                           {"--link", "1Gbit,50us,3", "--link is RATE"},
                                           {"--mode", "single", "--mode is one or more of dp"},
                                           {"--algorithm", "hypercube", "--algorithm is auto"},
                                           {"--server", "two", "--server is"},
                                           {"--straggler", "2:3", "--straggler is SHARE:FACTOR"},
                                           {"--oversubscription", "0.5", "--oversubscription is"},
                                           {"--buckets", "large", "--buckets is sizes"},
                                           {"--quantile", "2", "--quantile is"},
                                           {"--speed", "1", "unknown option '--speed'"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_run(&p, 10, "simulate", run_dir, wrong[i][0], wrong[i][1], NULL);
        assert_int_equal(p.code, 64);
        program_assert_says(p.err, wrong[i][2]);
    }
    program_run(&p, 10, "simulate", run_dir, "--devices", NULL);
    assert_int_equal(p.code, 64);
    static const char *const unknown[][3] = {
        {"mode=ddp", "comm.compress=fp16", "comm.compress is not simulated\nhint: --set comm.compress=none"},
        {"mode=ps", "comm.compress=int8", "comm.compress is not simulated\nhint: --set comm.compress=none"},
        {"mode=ps", "ps.staleness=1", "ps.staleness is not simulated\nhint: --set ps.staleness=0"},
        {"mode=dp", "dp={server: dedicated, staleness: 2}",
         "dp.staleness is not simulated\nhint: --set dp.staleness=0"}};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        program_run(&p, 10, "simulate", run_dir, "--set", unknown[i][0], "--set", "devices=cpu:2", "--set",
                    "comm.link=auto", "--set", unknown[i][1], NULL);
        assert_int_equal(p.code, 78);
        program_assert_says(p.err, unknown[i][2]);
    }
    program_run(&p, 10, "simulate", scratch_path("nowhere"), NULL);
    assert_int_equal(p.code, 66);
    program_run(&p, 10, "simulate", run_dir, "--devices", "2,3,6", "--algorithm", "all", "--mode", "ddp", NULL);
    assert_int_equal(p.code, 0); /* each on the devices that it is for */
    program_run(&p, 10, "simulate", run_dir, "--devices", "3", "--algorithm", "halving_doubling", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "halving_doubling cannot add among 3 devices");
    program_run(&p, 10, "simulate", run_dir, "--devices", "6", "--per-host", "4", "--algorithm", "hierarchical", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "hierarchical cannot add among 6 devices");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_a_run),
        cmocka_unit_test(strong_scaling_shares_the_batch),
        cmocka_unit_test(every_way_has_a_row),
        cmocka_unit_test(a_trace_tells_more),
        cmocka_unit_test(a_configuration_is_measured_first),
        cmocka_unit_test(a_bench_tells_the_port),
        cmocka_unit_test(replays_stages),
        cmocka_unit_test(links_are_read_from_a_file),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, train_once, forget);
}
