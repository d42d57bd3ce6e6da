/* Predictions in a comparison: which cell they come from, what they say of the others, and what they leave out. Runs are
 * made up here; the times of a step are those of the formulas. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "lab/compare/compare.h"
#include "lab/predict/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct experiment x;
static struct compared c;
static struct result_step steps[30];

/* One device: 1 ms of loading, 7 of forward, 16 of backward, 2 of update. */
static const double alone_ms = 26;

static struct run_result made(const struct experiment_cell *cell, double ms) {
    int devices = cell->settings.config.devices.count;
    struct run_result r = {
        .dir = "there",
        .mode = cell->settings.config.mode,
        .devices = devices,
        .shards = 8,
        .steps = 30,
        .ranks = devices,
        .processes = 1,
        .p50_ms = 99, /* of all steps: not what is asked */
        .losses = "same",
        .weights = "same",
        .step = steps,
        .nsteps = 30,
        .environment = {
            .time = "", .processor = "", .governor = "", .kernel = "", .host = "", .engine = "", .cores = 64}};
    const double parts[] = {1e-3, 7e-3, 16e-3, 0, 2e-3, 0, 26e-3};
    for (int i = 0; i < RESULT_TIMES; i++) r.time_s[i] = 30 * parts[i];
    r.samples_per_s = (double)cell->settings.config.batch.size / 26e-3;
    for (int i = 0; i < 30; i++) steps[i] = (struct result_step){.step = i + 1, .ms = i < 10 ? 500 : ms, .samples = 64};
    return r;
}

static void open_text(const char *text) {
    char path[600], *report;
    snprintf(path, sizeof path, "%s", scratch_path("predicted.yaml"));
    save_text(path, text);
    enum error err = experiment_open(&(struct experiment_source){.path = path}, &x, &report);
    if (err != ERR_NONE) fail_msg("%s", report ? report : error_message());
    assert_ok(compare_begin(&x, "folder", &c));
}

/* One run of each cell, each with steps of its own. */
static void run_cells(double ms) {
    for (int i = 0; i < x.ncells; i++) {
        struct result_step *own = calloc(30, sizeof *own);
        c.cell[i].run[0] = (struct compared_run){.dir = "run", .result = made(&x.cell[i], ms), .foreign = (double)NAN};
        memcpy(own, steps, sizeof steps);
        c.cell[i].run[0].result.step = own;
        c.cell[i].nruns = 1;
    }
    assert_ok(compare_judge(&c));
    compare_predict(&c);
}

static int cell_of(const char *label) {
    for (int i = 0; i < x.ncells; i++)
        if (!strcmp(x.cell[i].label, label)) return i;
    fail_msg("no cell '%s'", label);
    return -1;
}

static const struct compared_prediction *of(const char *label) {
    return &c.cell[cell_of(label)].predicted;
}

static int set_up(void **state) {
    (void)state;
    scratch_folder();
    memset(&x, 0, sizeof x);
    memset(&c, 0, sizeof c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < x.ncells && c.cell; i++)
        if (c.cell[i].nruns) free(c.cell[i].run[0].result.step);
    experiment_close(&x);
    return 0;
}

#define BASE(batch)                                                                                                    \
    "base: {model: {zoo: mlp, hidden: [1024]}, data: digits, batch: {size: " batch                                     \
    ", shards: 8}, train: 30st, threads: 1}\nwarmup: 10st\n"

static double bytes_of(void) { /* of mlp's gradients; its arena has a header and paddings */
    return 4.0 * (784 * 1024 + 1024 + 1024 * 10 + 10);
}

static void near(double got, double expected, double share) {
    if (!(fabs(got - expected) <= share * fabs(expected))) fail_msg("%g, where %g is expected", got, expected);
}

/* Speed-ups are multiples of the fewest devices, which are 1; another mode's one device does where a mode has none. */
static void speed_ups_begin_at_one(void **state) {
    (void)state;
    open_text(BASE("64") "matrix: {mode: [dp, ddp], devices: [cpu:2, cpu:4]}\n");
    run_cells(alone_ms);
    near(c.cell[cell_of("ddp devices=cpu:2")].speedup, 1, 0);
    near(c.cell[cell_of("ddp devices=cpu:4")].speedup, 1, 0);
    near(c.cell[cell_of("ddp devices=cpu:4")].efficiency, 0.5, 0);
    tear_down(NULL);
    open_text(BASE("64") "matrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\n"
                         "exclude: [{mode: ddp, devices: cpu:1}]\n");
    run_cells(alone_ms);
    near(c.cell[cell_of("ddp devices=cpu:2")].speedup, 1, 0);
    near(c.cell[cell_of("ddp devices=cpu:2")].efficiency, 0.5, 0);
}

/* Strong scaling: compute is shared, one device's update is not; bytes go through 2 MB/s. */
static void cells_follow_from_the_fewest_devices(void **state) {
    (void)state;
    open_text(BASE("64") "matrix:\n  mode: [dp, ddp]\n  devices: [cpu:1, cpu:4]\n"
                         "  comm.emulate.bandwidth: [16Mbit, off]\n"
                         "exclude: [{devices: cpu:1, comm.emulate.bandwidth: 16Mbit}]\n");
    run_cells(alone_ms);
    const double wire = bytes_of() / 2e6;
    int first = cell_of("dp devices=cpu:1 comm.emulate.bandwidth=off");
    assert_int_equal(c.cell[first].predicted.from, first);
    assert_non_null(c.cell[first].predicted.why);
    const struct compared_prediction *p = of("ddp devices=cpu:1 comm.emulate.bandwidth=off");
    assert_int_equal(p->from, first);
    assert_null(p->why);
    assert_string_equal(p->port, "");
    near(p->step, 26e-3, 1e-6);
    assert_true(fabs(p->residual) < 1e-6);
    p = of("dp devices=cpu:4 comm.emulate.bandwidth=16Mbit");
    near(p->step, 24e-3 / 4 + 2e-3 + 2 * 3 * wire, 0.02);
    near(p->formula, p->step, 0.02);
    near(p->residual, p->step * 1e3 / alone_ms - 1, 1e-9);
    assert_string_equal(p->port, "emulated 16Mbit");
    near(of("ddp devices=cpu:4 comm.emulate.bandwidth=16Mbit")->step, 24e-3 / 4 + 2e-3 + 2 * 3.0 / 4 * wire, 0.03);
    p = of("dp devices=cpu:4 comm.emulate.bandwidth=off");
    assert_non_null(strstr(p->why, "neither emulated"));
    assert_true(isnan(p->step) && p->from == first);
    assert_int_equal(c.model.cells, 3);
    assert_int_equal(c.model.sources, 1);
    assert_int_equal(c.model.silent, 2);
    assert_int_equal(c.model.worst_cell, cell_of("dp devices=cpu:4 comm.emulate.bandwidth=16Mbit"));
    assert_non_null(strstr(compare_model(&c), "3 step times predicted from the step of 'dp "));
    assert_non_null(strstr(compare_model(&c), "too long at worst"));
    assert_non_null(strstr(compare_model(&c), "not predicted: 2 (links are neither emulated "));
}

/* Weak scaling: every device computes what the one did. */
static void a_batch_that_grows_is_more_work(void **state) {
    (void)state;
    open_text(BASE("64") "scaling: weak\nmatrix:\n  mode: [dp, ddp]\n  devices: [cpu:1, cpu:8]\n"
                         "  comm.emulate: [{bandwidth: 16Mbit, latency: 1ms}]\n");
    run_cells(alone_ms);
    const double wire = bytes_of() / 2e6;
    const struct compared_prediction *p = of("ddp devices=cpu:8 comm.emulate=bandwidth=16Mbit latency=1ms");
    near(p->step, 26e-3 + 2 * 7.0 / 8 * wire + 6e-3, 0.03);
    assert_string_equal(p->port, "emulated 16Mbit, 1ms");
}

/* Another network, another source; what is not known is not made up. */
static void other_work_has_another_source(void **state) {
    (void)state;
    open_text(BASE("64") "matrix:\n  mode: [single, ddp]\n  model.hidden: [[16], [32]]\n"
                         "  devices: [cpu:2, cpu:1]\n  comm.emulate.bandwidth: [1Gbit]\n"
                         "exclude: [{mode: single, devices: cpu:2}]\n");
    run_cells(alone_ms);
    for (int i = 0; i < x.ncells; i++) {
        const struct compared_prediction *p = &c.cell[i].predicted;
        assert_int_equal(x.cell[p->from].at[1], x.cell[i].at[1]);
        assert_int_equal(x.cell[p->from].settings.config.devices.count, 1);
        assert_string_equal(x.cell[p->from].settings.config.mode, "single");
    }
    assert_int_equal(c.model.sources, 2);
    assert_non_null(strstr(compare_model(&c), "the cells of the fewest devices"));
}

static void what_is_not_simulated_says_why(void **state) {
    (void)state;
    open_text(BASE("64") "matrix:\n  comm.compress: [int8, none]\n  mode: [ddp]\n"
                         "  devices: [cpu:2, cpu:4]\n  comm.emulate.bandwidth: [1Gbit]\n");
    run_cells(alone_ms);
    const char *small = "none mode=ddp devices=cpu:2 comm.emulate.bandwidth=1Gbit";
    assert_int_equal(of(small)->from, cell_of(small));
    assert_null(of("none mode=ddp devices=cpu:4 comm.emulate.bandwidth=1Gbit")->why);
    const struct compared_prediction *p = of("int8 mode=ddp devices=cpu:4 comm.emulate.bandwidth=1Gbit");
    assert_non_null(strstr(p->why, "comm.compress"));
    assert_null(strchr(p->why, '\n'));
    assert_int_equal(c.model.silent, 2);
    assert_non_null(strstr(compare_model(&c), "not predicted: 2 (comm.compress is not simulated)"));
    c.cell[cell_of("int8 mode=ddp devices=cpu:2 comm.emulate.bandwidth=1Gbit")].predicted.why =
        "ddp.sync is not simulated";
    assert_non_null(strstr(compare_model(&c), " are not simulated)"));
    assert_non_null(strstr(compare_model(&c), "comm.compress"));
}

/* What 'engine bench comm' says of a link, of 100 us and 1 GB/s; of dp's it was not asked. */
static void a_measured_link_is_a_port(void **state) {
    (void)state;
    char folder[600], path[800];
    open_text(BASE("64") "model_fit: true\nmatrix:\n  mode: [dp, ddp]\n  devices: [cpu:1, cpu:4]\n");
    snprintf(folder, sizeof folder, "%s", scratch_path("fitted"));
    c.folder = folder;
    int cell = cell_of("ddp devices=cpu:4");
    snprintf(path, sizeof path, "%s/fit", folder);
    assert_ok(file_make_folders(path));
    snprintf(path, sizeof path, "%s/fit/shm-auto-4-%.8s.json", folder, x.cell[cell].digest);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"collective\":\"all_reduce\",\"ranks\":4,\"results\":[{\"rows\":[");
    for (double bytes = 4096; bytes < 2e7; bytes *= 8) {
        const struct ground g = {4, 1, {100e-6, 1e-9}, false};
        fprintf(f, "%s{\"algorithm\":\"direct\",\"bytes\":%.0f,\"time_s\":%.9g}", bytes > 4096 ? "," : "", bytes,
                cost_share(SCHEME_direct, &g, bytes));
    }
    fprintf(f, "]}]}");
    assert_int_equal(fclose(f), 0);
    run_cells(alone_ms);
    const struct compared_prediction *p = &c.cell[cell].predicted;
    const struct ground g = {4, 1, {100e-6, 1e-9}, false};
    assert_null(p->why);
    near(p->step, 24e-3 / 4 + 2e-3 + cost_share(SCHEME_direct, &g, bytes_of()), 0.05);
    assert_true(p->fit_error < 0.01);
    assert_non_null(strstr(p->port, "shm, 4 ranks: fitted 100 us, 1 GB/s"));
    assert_non_null(strstr(of("dp devices=cpu:4")->why, "not measured"));
}

/* Interrupted before the source has run: the next one on the fewest devices is it; with none, nothing is predicted. */
static void runs_that_are_missing_predict_nothing(void **state) {
    (void)state;
    open_text(BASE("64") "matrix:\n  mode: [dp, ddp]\n  devices: [cpu:1, cpu:2]\n"
                         "  comm.emulate.bandwidth: [1Gbit]\n");
    assert_ok(compare_judge(&c));
    compare_predict(&c);
    assert_int_equal(c.model.cells, 0);
    assert_non_null(strstr(compare_model(&c), "no step time is predicted"));
    int ran = cell_of("ddp devices=cpu:2 comm.emulate.bandwidth=1Gbit");
    c.cell[ran].run[0] =
        (struct compared_run){.dir = "run", .result = made(&x.cell[ran], alone_ms), .foreign = (double)NAN};
    c.cell[ran].run[0].result.step = malloc(sizeof steps);
    memcpy(c.cell[ran].run[0].result.step, steps, sizeof steps);
    c.cell[ran].nruns = 1;
    assert_ok(compare_judge(&c));
    compare_predict(&c);
    assert_int_equal(c.model.cells, 3);
    assert_true(isnan(c.model.median) && isnan(c.cell[0].predicted.residual));
    assert_true(c.cell[0].predicted.from == ran && c.cell[0].predicted.step > 0);
}

/* The same in the files: a member of each cell, a column, a line. */
static void results_hold_the_predictions(void **state) {
    (void)state;
    char *text = NULL;
    size_t n = 0;
    open_text(BASE("64") "matrix:\n  mode: [dp, ddp]\n  devices: [cpu:1, cpu:4]\n"
                         "  comm.emulate.bandwidth: [16Mbit]\n");
    run_cells(alone_ms);
    struct json j = {0};
    assert_ok(compare_json(&c, &j));
    assert_non_null(strstr(j.text, "\"predicted\":{\"reference\":true"));
    assert_non_null(strstr(j.text, "\"port\":\"emulated 16Mbit\",\"from\":\"dp devices=cpu:1 "));
    assert_non_null(strstr(j.text, "\"worst_cell\":\"dp devices=cpu:4"));
    json_fini(&j);
    FILE *f = open_memstream(&text, &n);
    compare_csv(&c, f);
    compare_table(&c, f);
    compare_markdown(&c, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, ",predicted_step_time,losses_sha256"));
    assert_non_null(strstr(text, "predicted A / B ms"));
    assert_non_null(strstr(text, "measured / 26"));
    assert_non_null(strstr(text, "\n- model: 3 step times predicted"));
    free(text);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(speed_ups_begin_at_one),
        T(cells_follow_from_the_fewest_devices),
        T(a_batch_that_grows_is_more_work),
        T(other_work_has_another_source),
        T(what_is_not_simulated_says_why),
        T(a_measured_link_is_a_port),
        T(runs_that_are_missing_predict_nothing),
        T(results_hold_the_predictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
