/* Experiments: which cells and pairs a matrix makes, what each one runs, and that all that is wrong is told at once,
 * at its place. */
#include "tests/harness/harness.h"

#include "lab/experiment/experiment.h"
#include "lab/numbers/statistics.h"

#include <stdio.h>
#include <string.h>

static struct experiment x;
static char *report;

static enum error open_with(const char *text, struct experiment_source more) {
    char path[600];
    snprintf(path, sizeof path, "%s", scratch_path("matrix-test.yaml"));
    save_text(path, text);
    more.path = path;
    return experiment_open(&more, &x, &report);
}

static enum error open_text(const char *text) {
    return open_with(text, (struct experiment_source){0});
}

static const char *setting(int cell, const char *key) {
    for (int i = 0; i < x.cell[cell].nsettings; i++)
        if (!strcmp(x.cell[cell].setting[i].key, key)) return x.cell[cell].setting[i].value;
    return "";
}

static int cell_of(const char *label) {
    for (int i = 0; i < x.ncells; i++)
        if (!strcmp(x.cell[i].label, label)) return i;
    fail_msg("no cell '%s'", label);
    return -1;
}

#define BASE "base: {data: digits, batch: {size: 64, shards: 8}, train: 50st}\n"

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

static void a_matrix_is_cells_and_pairs(void **state) {
    (void)state;
    assert_ok(open_text(BASE "matrix:\n  mode: [dp, ddp]\n  devices: [cpu:1, cpu:2, cpu:4]\n"
                             "  comm.emulate.bandwidth: [1Gbit, off]\n"
                             "exclude: [{devices: cpu:1, comm.emulate.bandwidth: [1Gbit]}]\n"));
    assert_string_equal(x.name, "matrix-test");
    assert_int_equal(x.ncells, 10); /* 12 but for two */
    assert_int_equal(x.npairs, 5);
    assert_int_equal(x.repeats, statistics_least_runs(5 * x.nmeasures, false, 0.95));
    assert_int_equal(x.most, EXPERIMENT_AUTO);
    for (int i = 0; i < x.npairs; i++) {
        const struct experiment_cell *a = &x.cell[x.pair[i].cell[0]], *b = &x.cell[x.pair[i].cell[1]];
        assert_true(a->at[0] == 0 && b->at[0] == 1);
        assert_true(a->at[1] == b->at[1] && a->at[2] == b->at[2]);
        assert_string_not_equal(a->digest, b->digest);
    }
    int cell = cell_of("ddp devices=cpu:4 comm.emulate.bandwidth=1Gbit");
    assert_string_equal(setting(cell, "mode"), "ddp");
    assert_string_equal(setting(cell, "devices"), "cpu:4");
    assert_string_equal(setting(cell, "comm.emulate.bandwidth"), "1Gbit");
    assert_string_equal(setting(cell, "batch.size"), "64");
    assert_string_equal(setting(cell, "checkpoint.every"), "off");
    for (int i = 1; i < x.ncells; i++) /* one number for all */
        assert_string_equal(setting(i, "threads"), setting(0, "threads"));
}

/* What a cell's folder holds is the same configuration once it is read as a file. */
static void what_runs_is_what_was_checked(void **state) {
    (void)state;
    assert_ok(open_text("base: {model: {zoo: mlp, hidden: [8, 4]}, train: 50st}\nmatrix:\n"
                        "  optimizer: [sgd, {name: adam, lr: 0.01}]\n  seed: [1, 2]\n"));
    int cell = cell_of("name=adam lr=0.01 seed=2");
    struct config_errors *e;
    struct node *root;
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(x.cell[cell].config, strlen(x.cell[cell].config), "c", x.pool, e, &root));
    assert_string_equal(node_get(node_get(root, "optimizer"), "lr")->text, "0.01");
    assert_string_equal(node_get(root, "seed")->text, "2");
    assert_string_equal(node_get(node_get(root, "model"), "hidden")->items[1]->text, "4");
    config_errors_free(e);
}

static void weak_scaling_grows_the_batch(void **state) {
    (void)state;
    assert_ok(open_text("base: {batch: 32, train: 50st}\nscaling: weak\nmatrix: {mode: [dp, ddp], "
                        "devices: [cpu:1, cpu:4]}\n"));
    assert_string_equal(setting(cell_of("dp devices=cpu:1"), "batch.size"), "32");
    assert_string_equal(setting(cell_of("ddp devices=cpu:4"), "batch.size"), "128");
}

static void a_base_may_be_a_file_and_be_changed(void **state) {
    (void)state;
    FILE *f = fopen(scratch_path("base.yaml"), "w");
    fputs("batch: 48\ntrain: 50st\n", f);
    assert_int_equal(fclose(f), 0);
    const char *sets[] = {"seed=9"};
    assert_ok(open_with("base: base.yaml\nmatrix: {mode: [ddp, ddp]}\nrepeats: 7\nname: a b/c\n",
                        (struct experiment_source){.sets = sets, .nsets = 1, .repeats = 9}));
    assert_string_equal(x.name, "a-b-c");
    assert_true(x.repeats == 9 && x.most == 9);
    assert_int_equal(x.ncells, 2);
    assert_string_equal(x.cell[1].label, "ddp#2");
    assert_string_equal(setting(1, "batch.size"), "48");
    assert_string_equal(setting(1, "seed"), "9");
    assert_string_equal(x.cell[0].digest, x.cell[1].digest);
    assert_string_not_equal(x.cell[0].name, x.cell[1].name);
}

static void assert_report(const char *text, const char *const *words) {
    assert_fails(ERR_CONFIG, open_text(text));
    assert_non_null(report);
    for (; *words; words++)
        if (!strstr(report, *words)) fail_msg("'%s' is not in:\n%s", *words, report);
    experiment_close(&x);
}

static void all_that_is_wrong_is_told_at_its_place(void **state) {
    (void)state;
    assert_report("base: 3x\nmatrix:\n  mode: [dp]\n  devices: cpu:1\nmetrics: [steptime]\n"
                  "confidence: 3\nwarmup: 2ep\nfoo: 1\nrepeats: 0\n",
                  (const char *const[]){"yaml:1:7", "yaml:3:9: error: the first axis", "yaml:4:12: error: matrix",
                                        "yaml:5:11: error: no metric", "did you mean 'step_time'", "yaml:6:13",
                                        "yaml:7:9", "yaml:8:1: error: unknown key 'foo'", "yaml:9:10", NULL});
    /* values of the matrix, each once though many cells have it */
    assert_report(BASE "matrix:\n  mode: [dp, ddpp]\n  devices: [cpu:1, cpu:2, 7]\n  nosuch.k: [1]\n",
                  (const char *const[]){"yaml:3:14: error: 'mode'", "yaml:4:27: error: unknown dev",
                                        "error: unknown key 'nosuch'", "3 errors.", NULL});
    assert_report("base: {optimizer: {lr: fast}}\nmatrix: {mode: [dp, ddp]}\n",
                  (const char *const[]){"yaml:1:24: error: 'optimizer.lr'", "1 error.", NULL});
    assert_report("base: nowhere.yaml\nmatrix: {mode: [dp, ddp]}\n",
                  (const char *const[]){"yaml:1:7: error: base: ", "nowhere.yaml", NULL});
    assert_report("name: x\n", (const char *const[]){"there is neither a matrix nor sides", NULL});
    assert_report(BASE "matrix: {mode: [dp, ddp]}\nexclude: [{mode: single}, {device: 1}]\n",
                  (const char *const[]){"yaml:3:18: error: exclude: no such value",
                                        "yaml:3:28: error: exclude: 'device' is not an axis", NULL});
    assert_report(BASE "matrix: {mode: [dp, ddp]}\nrepeats: 3\n",
                  (const char *const[]){"yaml:3:10: error: 3 runs", "at least 5", NULL});
    assert_report(BASE "matrix: {mode: [dp, ddp]}\nwarmup: 50st\n",
                  (const char *const[]){"50 steps, all of them warm-up", NULL});
}

/* What stands for a key in short form keeps its place beside other keys of the same map. */
static void short_forms_are_written_out(void **state) {
    (void)state;
    assert_ok(open_text("base: {train: 50st, batch: 32, optimizer: sgd}\n"
                        "matrix: {batch.shards: [2, 4], optimizer.lr: [0.1]}\n"));
    for (int i = 0; i < x.ncells; i++) {
        assert_non_null(strstr(x.cell[i].config, "size: 32"));
        assert_non_null(strstr(x.cell[i].config, "name: sgd"));
        assert_null(strstr(x.cell[i].config, "\"\""));
    }
    experiment_close(&x);
    assert_ok(open_text("base: {train: 50st, batch: 32}\nsides: {a: {batch.size: 64}, b: {}}\n"));
    assert_non_null(strstr(x.cell[0].config, "size: 64"));
    assert_null(strstr(x.cell[0].config, "32"));
}

static const char sides[] = "sides:\n  dp: {mode: dp}\n  ddp: {mode: ddp}\n"
                            "  int8: {mode: ddp, comm.compress: int8}\n";

static void sides_have_names_and_several_keys(void **state) {
    (void)state;
    char text[600];
    snprintf(text, sizeof text, BASE "%s%s", sides, "matrix: {devices: [cpu:2, cpu:4]}\n");
    assert_ok(open_text(text));
    assert_true(x.ncells == 6 && x.npairs == 4 && x.axis[0].named);
    int cell = cell_of("int8 devices=cpu:4");
    assert_string_equal(setting(cell, "mode"), "ddp");
    assert_string_equal(setting(cell, "comm.compress.kind"), "int8");
    assert_string_equal(setting(cell_of("ddp devices=cpu:4"), "comm.compress.kind"), "none");
    for (int i = 0; i < x.npairs; i++) assert_int_equal(x.cell[x.pair[i].cell[0]].at[0], 0);
    experiment_close(&x);
    snprintf(text, sizeof text, BASE "%s%s", sides, "pairs: all\n");
    assert_ok(open_text(text));
    assert_true(x.ncells == 3 && x.npairs == 3);
    experiment_close(&x);
    /* a key of the sides may differ, another may not */
    assert_ok(open_text(BASE "sides: {a: {batch.size: 32}, b: {batch.size: 64, optimizer.lr: 0.2}}\n"));
    experiment_close(&x);
    assert_report(BASE "sides: {a: {}, b: dp}\n",
                  (const char *const[]){"yaml:2:19: error: sides: 'b' needs a map", NULL});
    assert_report(BASE "sides: {a: {mode: dp}}\n", (const char *const[]){"yaml:2:8: error: 'sides' names 2 to", NULL});
    assert_report(BASE "sides: {a: {mode: dp}, b: {mode: ddp}}\nmatrix: {mode: [single]}\n",
                  (const char *const[]){"yaml:3:10: error: 'mode' is already set by sides", NULL});
    assert_report(BASE "sides: {a: {mode: dp}, b: {mod: ddp}}\n", (const char *const[]){"unknown key 'mod'", NULL});
}

static void repeats_may_be_seeds(void **state) {
    (void)state;
    assert_ok(open_text(BASE "matrix: {mode: [dp, ddp]}\nrepeats: {seeds: 8}\nmetrics: [val_loss]\n"));
    assert_true(x.nseeds == 8 && x.repeats == 8 && x.most == 8 && x.seeds[7] == 7);
    experiment_close(&x);
    assert_ok(open_text(BASE "matrix: {mode: [dp, ddp]}\nrepeats: {seeds: [5, 3, 9, 11]}\nmetrics: val_loss\n"));
    assert_true(x.nseeds == 4 && x.seeds[1] == 3);
    assert_string_equal(setting(0, "seed"), "5");
    experiment_close(&x);
    assert_ok(open_text(BASE "matrix: {mode: [dp, ddp]}\nrepeats: {most: 20}\n"));
    assert_true(x.nseeds == 0 && x.repeats == 5 && x.most == 20);
    experiment_close(&x);
    assert_report(BASE "matrix: {mode: [dp, ddp]}\nrepeats: {seeds: [1, 2, 1, 4, 5]}\n",
                  (const char *const[]){"yaml:3:25: error: seed 1 appears twice", NULL});
    assert_report(BASE "matrix: {mode: [dp, ddp]}\nrepeats: {seeds: many}\n",
                  (const char *const[]){"yaml:3:18: error: 'seeds' is a number", NULL});
    assert_report(BASE "matrix: {mode: [dp, ddp]}\nrepeats: {seeds: 3}\n",
                  (const char *const[]){"error: 3 runs of each cell can never answer 3 questions", NULL});
    assert_report(BASE "matrix: {seed: [1, 2]}\nrepeats: {seeds: 8}\n",
                  (const char *const[]){"yaml:3:11: error: sides have a seed", NULL});
    assert_report(BASE "matrix: {mode: [dp, ddp]}\nrepeats: {sees: 8}\n",
                  (const char *const[]){"yaml:3:10: error: 'repeats' is auto", NULL});
}

static void each_metric_knows_what_is_practical(void **state) {
    (void)state;
    assert_ok(open_text(BASE "matrix: {mode: [dp, ddp]}\npractical: 3%\nmetrics: [step_time, val_accuracy]\n"));
    assert_true(x.measure[0].practical == 0.03 && x.measure[1].practical == 0.005);
    experiment_close(&x);
    assert_ok(open_text(BASE "matrix: {mode: [dp, ddp]}\npractical: {val_accuracy: 1pt}\n"
                             "metrics: [step_time, val_accuracy]\n"));
    assert_true(x.measure[0].practical == 0.02 && x.measure[1].practical == 0.01);
    experiment_close(&x);
    assert_report(BASE "matrix: {mode: [dp, ddp]}\npractical: {val_accuracy: 2%, time: 1%}\n"
                       "metrics: [step_time, val_accuracy]\n",
                  (const char *const[]){"yaml:3:27: error: 'val_accuracy' is a share from 0pt to 100pt, not '2%'",
                                        "yaml:3:31: error: practical: 'time' is not one of the metrics", NULL});
}

/* What is best at 1 is compared by its difference, an error by its ratio, and any metric may be a goal. */
static void metrics_of_values_and_text_are_compared(void **state) {
    (void)state;
    assert_ok(open_text(BASE "matrix: {mode: [dp, ddp]}\n"
                             "metrics: [val_r2, val_rmse, val_bits_per_byte, {time_to: {val.r2: 0.9}}]\n"));
    assert_true(x.measure[0].scale == SCALE_DIFFERENCE && x.measure[0].more_is_better);
    assert_true(x.measure[1].scale == SCALE_RATIO && !x.measure[1].more_is_better);
    assert_true(x.measure[2].about == ABOUT_TRAINING && x.measure[2].scale == SCALE_RATIO);
    assert_string_equal(x.measure[3].name, "time_to:val.r2:0.9");
    struct run_result run = {.nsteps = 3, .nvals = 3};
    struct result_step step[] = {{.step = 1, .ms = 1000}, {.step = 2, .ms = 2000}, {.step = 3, .ms = 4000}};
    struct result_val val[] = {{.step = 1, .r2 = (double)NAN}, {.step = 2, .r2 = 0.95}, {.step = 3, .r2 = 0.5}};
    run.step = step, run.val = val, run.val_r2 = 0.5;
    assert_true(measure_of(&x.measure[0], &run, 0) == 0.5);
    assert_true(measure_of(&x.measure[3], &run, 0) == 3);
    run.time_s[PHASE_COMM] = 3, run.time_s[RESULT_COMM_HIDDEN] = 5, run.time_s[RESULT_TOTAL] = 12;
    assert_true(measure_of(measure_find("computing", 9), &run, 0) == 0.75);
    experiment_close(&x);
}

static void unfair_pairs_are_refused(void **state) {
    (void)state;
    assert_report(
        "base: {train: 50st}\nmatrix:\n  devices: [cpu:1, cpu:9]\n  mode: [dp, ddp]\n",
        (const char *const[]){"yaml:3:20", "not a fair comparison: batch.shards is '8' and '16'", "1 error.", NULL});
    /* what the axis itself changes is the question */
    assert_ok(open_text("base: {train: 50st, mode: dp, devices: cpu:2, dp: {server: dedicated}}\n"
                        "matrix: {dp.staleness: [0, 4, unbounded]}\n"));
    experiment_close(&x);
    assert_ok(open_text("base: {train: 50st}\nmatrix: {optimizer.lr: [0.1, 0.2]}\n"));
}

/* What is planted has to be the same; a slow device computes the same numbers, a mistake does not. */
#define CELL(settings, n) (&(const struct experiment_cell){.setting = (settings), .nsettings = (n)})
static void planted_settings_are_guarded(void **state) {
    (void)state;
    static struct result_setting none[] = {{"inject.mistake", "none"}, {"inject.slow.by", "0%"}},
                                 some[] = {{"inject.mistake", "no_set_epoch"}, {"inject.slow.by", "50%"}};
    struct setting_difference d[4];
    assert_int_equal(settings_differ(CELL(none, 2), CELL(some, 2), NULL, d, 4), 2);
    assert_true(d[0].guarded && d[0].computes);
    assert_true(d[1].guarded && !d[1].computes);
}

static void the_algorithm_of_convolutions_is_guarded(void **state) {
    (void)state;
    static struct result_setting with[] = {{"winograd", "true"}}, without[] = {{"winograd", "false"}};
    struct setting_difference d[2];
    assert_int_equal(settings_differ(CELL(with, 1), CELL(without, 1), NULL, d, 2), 1);
    assert_true(d[0].guarded && d[0].computes);
}

static void gates_are_read(void **state) {
    (void)state;
    static const char *const good[] = {
        "ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:2",
        "B.throughput<A.throughput@devices==cpu:1",
        "ddp.val_accuracy <= 0.5",
        "A.step_time >= 3.5 @ devices > cpu:1, devices != cpu:9",
        "ddp.time_to:val.accuracy:0.9 > 2 * dp.time",
        "B.val_accuracy < A.val_accuracy - 0.02",
        "ddp[devices=cpu:2].step_time > 0.5 * ddp[devices=cpu:1].step_time",
        "B.losses != A.losses @ devices == cpu:2",
        "B.verdict == slower",
        "ddp.time_to:val.accuracy:0.9.low < -0.5",
        "ddp.efficiency < 0.5",
    };
    static const struct {
        const char *text, *told;
    } bad[] = {
        {"ddp.step_time > 1 * dp.step_time @ devices > cpu:2", "can never fail"},
        {"ddp.steptime > 1", "SIDE.METRIC is wanted, not 'ddp.steptime'"},
        {"single.step_time > 1", "the first axis has no value 'single'"},
        {"ddp.step_time", "one of > >="},
        {"ddp[devices=cpu:3].step_time > 1", "'devices' has no value 'cpu:3'"},
        {"ddp[colour=red].step_time > 1", "no axis 'colour'"},
        {"ddp[devices].step_time > 1", "'devices' is wanted as AXIS=VALUE"},
        {"ddp[devices=cpu:1].x.step_time > 1", "a metric is wanted after 'ddp[devices=cpu:1]'"},
        {"ddp.step_time > 2 * ddp.predicted", "cannot use predictions"},
        {"ddp.step_time > dp.step_time + much", "a number is expected at 'much'"},
        {"ddp.step_time > 1 @ colour == red", "no axis 'colour'"},
        {"ddp.step_time > 1 and more", "not understood: 'and more'"},
        {"3 > 2", "SIDE.METRIC is wanted first"},
        {"", "a quantity is expected"},
        {"ddp.step_time > 1 @ devices ==", "a value is expected"},
    };
    const char *text = BASE "matrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\n"
                            "metrics: [step_time, {time_to: {val.accuracy: 0.9}}]\n";
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        enum error err = open_with(text, (struct experiment_source){.gates = &good[i], .ngates = 1});
        if (err != ERR_NONE) fail_msg("%s: %s", good[i], report ? report : error_message());
        experiment_close(&x);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(ERR_CONFIG, open_with(text, (struct experiment_source){.gates = &bad[i].text, .ngates = 1}));
        if (!strstr(report, bad[i].told)) fail_msg("'%s' is not in:\n%s", bad[i].told, report);
        experiment_close(&x);
    }
}

/* Whatever byte is another, and wherever the text ends: read or refused, never more. */
static void experiments_may_be_anything(void **state) {
    (void)state;
    static const char text[] =
        BASE "matrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\nexclude: [{devices: cpu:1}]\n"
             "metrics: [step_time, {time_to: {val.loss: 1}}]\nfail_if: ['B.time > 2 * A.time']\n";
    static const char odd[] = "{}[]:#'\"*-x\n";
    char copy[sizeof text];
    int refused = 0;
    for (size_t at = 0; at + 1 < sizeof text; at += 5) {
        memcpy(copy, text, sizeof text);
        copy[at] = odd[at % (sizeof odd - 1)];
        if (at % 3 == 0) copy[at + 1] = '\0';
        refused += open_text(copy) != ERR_NONE;
        experiment_close(&x);
    }
    assert_true(refused > 10);
}

/* The experiments that the README and a lab begin with have runs enough for their questions. */
static void examples_have_enough_runs(void **state) {
    (void)state;
    static const char *const names[] = {"examples/ps-vs-ring.yaml", "examples/labs/03-ps-vs-ring/ps-vs-ring.yaml"};
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", ENGINE_SOURCE_DIR, names[i]);
        experiment_close(&x);
        if (experiment_open(&(struct experiment_source){.path = path}, &x, &report) != ERR_NONE) fail_msg("%s", report);
        assert_int_equal(x.repeats, x.most);
        assert_null(experiment_too_few(&x, x.repeats));
        assert_non_null(experiment_too_few(&x, x.repeats - 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_matrix_is_cells_and_pairs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_runs_is_what_was_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(weak_scaling_grows_the_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_base_may_be_a_file_and_be_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_that_is_wrong_is_told_at_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_forms_are_written_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sides_have_names_and_several_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(repeats_may_be_seeds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_metric_knows_what_is_practical, set_up, tear_down),
        cmocka_unit_test_setup_teardown(metrics_of_values_and_text_are_compared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unfair_pairs_are_refused, set_up, tear_down),
        cmocka_unit_test(planted_settings_are_guarded),
        cmocka_unit_test(the_algorithm_of_convolutions_is_guarded),
        cmocka_unit_test_setup_teardown(gates_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(examples_have_enough_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(experiments_may_be_anything, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
