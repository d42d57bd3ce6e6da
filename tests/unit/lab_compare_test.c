/* Runs that are there, held against each other: what is refused, and where losses begin to differ. The directories
 * are written here, as a run would write them. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/save/checkpoint.h"
#include "lab/compare/compare.h"
#include "lab/experiment/quantity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct made { /* a run */
    const char *name, *mode, *lr, *losses;
    double loss[30], ms;
};

static FILE *open_in(const char *run, const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", scratch_path(run), name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    return f;
}

static void make(const struct made *m) {
    assert_ok(file_make_folders(scratch_path(m->name)));
    FILE *f = open_in(m->name, "summary.json");
    fprintf(f,
            "{\"mode\":\"%s\",\"devices\":2,\"shards\":2,\"steps\":30,\"epochs\":1,\"train\":{\"loss\":"
            "1},\"val\":{\"loss\":1,\"accuracy\":null},\"step_ms\":{\"p50\":2,\"p95\":3},"
            "\"samples_per_s\":9,\"time_s\":{\"load\":0,\"forward\":1,\"backward\":1,"
            "\"comm_exposed\":0.3,\"comm_hidden\":0,\"update\":0,\"total\":2},\"bytes\":{\"sent\":[1,"
            "2],\"received\":[2,1]},\"peak_rss_bytes\":[5],\"optimizer_bytes\":[0,0],"
            "\"weights_sha256\":\"w\",\"losses_sha256\":\"%s\"}\n",
            m->mode, m->losses);
    assert_int_equal(fclose(f), 0);
    f = open_in(m->name, "resolved.yaml");
    fprintf(f, "name: %s\nmode: %s\nbatch: {size: 8}\noptimizer: {name: sgd, lr: %s}\nlog: {dir: %s}\n", m->name,
            m->mode, m->lr, m->name);
    assert_int_equal(fclose(f), 0);
    f = open_in(m->name, "metrics.jsonl");
    for (int i = 0; i < 30; i++)
        fprintf(f, "{\"step\":%d,\"epoch\":0,\"loss\":%.9g,\"accuracy\":0,\"samples\":8,\"ms\":%g}\n", i + 1,
                m->loss[i], i < 10 ? 100 : m->ms);
    assert_int_equal(fclose(f), 0);
}

static struct made a, b;
static struct experiment x;
static struct compared c;

static int set_up(void **state) {
    (void)state;
    scratch_folder();
    a = (struct made){.name = "a", .mode = "dp", .lr = "0.1", .losses = "same", .ms = 4};
    for (int i = 0; i < 30; i++) a.loss[i] = 3.0 - i * 0.1;
    b = a;
    b.name = "b", b.mode = "ddp", b.ms = 2;
    return 0;
}

static enum error two(const char *axis) {
    static char dirs[2][600];
    snprintf(dirs[0], sizeof dirs[0], "%s", scratch_path("a"));
    snprintf(dirs[1], sizeof dirs[1], "%s", scratch_path("b"));
    make(&a);
    make(&b);
    return compare_finished((const char *const[]){dirs[0], dirs[1]}, 2, axis, &x, &c);
}

static int tear_down(void **state) {
    (void)state;
    experiment_close(&x);
    return 0;
}

static void two_runs_are_told_apart_but_not_judged(void **state) {
    (void)state;
    assert_ok(two(NULL));
    const struct compared_pair *p = &c.pair[0];
    assert_true(p->answer[0].judged && fabs(p->answer[0].statistics.estimate - 2) < 1e-12);
    assert_int_equal(p->answer[0].verdict, VERDICT_UNTESTED);
    assert_true(p->held && p->same_losses && p->same_weights);
    assert_int_equal(p->ndiffers, 1);
    assert_string_equal(p->differs[0].key, "mode");
    assert_string_equal(compare_bits(&c, p), "yes");
    assert_true(c.cell[0].median[1] == 2000); /* samples a second, warm-up left out */
    assert_true(c.cell[0].median[2] == 10);   /* 0.3 s of 30 steps */
}

static void the_first_step_that_differs_is_named(void **state) {
    (void)state;
    b.losses = "other", b.loss[6] = 2.5, b.loss[20] = 9;
    assert_ok(two(NULL));
    const struct compared_pair *p = &c.pair[0];
    assert_false(p->same_losses);
    assert_int_equal(p->step, 7);
    assert_true(fabs(p->loss[0] - 2.4) < 1e-8 && p->loss[1] == 2.5);
    assert_null(p->tensor);
    assert_non_null(strstr(compare_bits(&c, p), "no: step 7"));
    assert_non_null(strstr(compare_bits(&c, p), "beside 2.5"));
    experiment_close(&x);
    b = a, b.name = "b", b.losses = "other"; /* not in what was written down */
    assert_ok(two(NULL));
    assert_int_equal(c.pair[0].step, 0);
    assert_non_null(strstr(compare_bits(&c, &c.pair[0]), "in all steps"));
}

static void other_trainings_are_refused(void **state) {
    (void)state;
    b.lr = "0.2";
    assert_fails(ERR_CONFIG, two(NULL));
    assert_non_null(strstr(error_message(), "optimizer.lr is '0.1' beside '0.2'"));
    experiment_close(&x);
    assert_fails(ERR_CONFIG, two("batch"));
    experiment_close(&x);
    assert_ok(two("optimizer.lr"));
    assert_false(c.pair[0].comparable);
    assert_string_equal(compare_bits(&c, &c.pair[0]), "-");
}

/* A gate that a comparison fails, or cannot answer, is an error. */
static void gates_are_judged(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool passed, judged;
    } gates[] = {{"B.step_time > 1.05 * A.step_time", true, true},
                 {"A.step_time > 1.05 * B.step_time", false, true},
                 {"A.step_time > 3.9", false, true},
                 {"A.step_time >= 4.1", true, true},
                 {"B.throughput < 2 * A.throughput", true, true},
                 {"B.throughput <= 2 * A.throughput", false, true},
                 {"A.val_accuracy < 0.9", true, false}};
    enum { GATES = sizeof gates / sizeof *gates };
    assert_ok(two(NULL));
    for (int i = 0; i < GATES; i++) {
        x.ngates = 1, x.gate[0].text = gates[i].text;
        assert_ok(compare_judge(&c));
        if (c.gate[0].passed != gates[i].passed || c.gate[0].judged != gates[i].judged)
            fail_msg("%s: passed %d, judged %d", gates[i].text, c.gate[0].passed, c.gate[0].judged);
        assert_int_equal(compare_gates(&c) == ERR_NONE, gates[i].passed && gates[i].judged);
    }
}

/* ---- runs and trainings ---- */

enum { RUNS = 8 };
/* Both sides with as many runs as weights, whose weights are letters of 'weights' and whose numbers follow from the weights; the
 * first measure is 'name'. */
static void several(const char *name, const char *weights[2], const double accuracy[2]) {
    static char letters[2][RUNS][2];
    assert_ok(two("optimizer.lr"));
    struct run_result made[2] = {c.cell[0].run[0].result, c.cell[1].run[0].result};
    const int runs = (int)strlen(weights[0]);
    x.repeats = x.most = runs, x.measure[0] = *measure_find(name, (int)strlen(name)), x.nmeasures = 1;
    x.axis[0].label[0] = "0.1", x.axis[0].label[1] = "0.2";
    x.ngates = 2; /* room for the tests that have some */
    assert_ok(compare_begin(&x, "folder", &c));
    x.ngates = 0;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < runs; i++) {
            c.cell[side].run[i].repeat = i;
            struct run_result *r = &c.cell[side].run[i].result;
            letters[side][i][0] = weights[side][i];
            *r = made[side];
            r->weights = letters[side][i];
            r->val_accuracy = accuracy[side] + 1e-3 * (weights[side][i] - 'a');
            r->step = pool_alloc(x.pool, (size_t)r->nsteps * sizeof *r->step);
            for (int64_t k = 0; k < r->nsteps; k++) r->step[k] = made[side].step[k], r->step[k].ms += 0.01 * i;
        }
    for (int side = 0; side < 2; side++) c.cell[side].nruns = runs;
}

static void with_seeds(const char *name, const char *weights[2], const double accuracy[2]) {
    several(name, weights, accuracy);
    x.nseeds = x.repeats;
    for (int i = 0; i < x.nseeds; i++) x.seeds[i] = i;
}

static const char *table_of(const struct compared *of) {
    static char text[8192];
    FILE *f = fmemopen(text, sizeof text, "w");
    compare_table(of, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

/* Four runs of one seed are one training: no p, no interval and no verdict come of them, and a gate that asks for the
 * verdict does not pass. */
static void copies_of_a_training_are_one(void **state) {
    (void)state;
    several("val_accuracy", (const char *[]){"aaaa", "bbbb"}, (double[]){0.6, 0.7});
    x.ngates = 2, x.gate[0].text = "B.verdict == worse", x.gate[1].text = "B.verdict != better";
    assert_ok(compare_judge(&c));
    const struct compared_answer *p = &c.pair[0].answer[0];
    assert_true(p->judged && p->samples[0] == 1 && p->samples[1] == 1);
    assert_int_equal(p->verdict, VERDICT_UNTESTED);
    assert_true(isnan(p->statistics.low));
    assert_true(isnan(c.cell[0].spread));
    const char *text = table_of(&c);
    assert_null(strstr(text, "pt ["));
    assert_null(strstr(text, "0.029"));
    assert_null(strstr(text, "0 |"));
    assert_non_null(strstr(text, "+10.10 pt  "));
    assert_non_null(strstr(text, "untested"));
    assert_non_null(strstr(text, "no verdict on val_accuracy: runs that end in the same weights"));
    assert_non_null(strstr(text, "here 4 runs as 1"));
    assert_non_null(strstr(text, "repeats: {seeds: 8}"));
    for (int i = 0; i < 2; i++) {
        assert_false(c.gate[i].judged);
        assert_non_null(strstr(c.gate[i].words, "not judged, since a pair has no verdict"));
    }
    assert_fails(ERR_RESULT, compare_gates(&c));
    struct json j = {0};
    assert_ok(compare_json(&c, &j));
    assert_non_null(strstr(j.text, "\"samples\":[1,1],\"low\":null,\"high\":null,\"p\":null"));
    assert_non_null(strstr(j.text, "\"verdict\":\"untested\""));
    assert_non_null(strstr(j.text, "\"untested\":\"no verdict on val_accuracy"));
    json_fini(&j);
}

/* Where nothing makes the runs equal, each is a training of its own; three of them are too few. */
static void other_weights_are_other_trainings(void **state) {
    (void)state;
    several("val_accuracy", (const char *[]){"abcd", "efgh"}, (double[]){0.6, 0.7});
    assert_ok(compare_judge(&c));
    const struct compared_answer *p = &c.pair[0].answer[0];
    assert_true(p->samples[0] == 4 && p->samples[1] == 4 && p->verdict == VERDICT_FASTER);
    assert_string_equal(compare_verdict(&c, &c.pair[0], 0), "better");
    assert_string_equal(compare_untested(&c), "");
    experiment_close(&x);
    several("val_accuracy", (const char *[]){"aaab", "cccd"}, (double[]){0.6, 0.7});
    assert_ok(compare_judge(&c));
    p = &c.pair[0].answer[0];
    assert_true(p->samples[0] == 2 && p->samples[1] == 2 && p->verdict == VERDICT_UNTESTED);
    assert_true(fabs(c.cell[0].median[0] - 0.6005) < 1e-9); /* of two trainings, not of four runs */
    assert_non_null(strstr(compare_untested(&c), "4 runs as 2"));
}

/* Runs of one seed that end when their time is over end at different steps of the same training. */
static void trainings_for_a_time_are_copies(void **state) {
    (void)state;
    several("val_accuracy", (const char *[]){"abcd", "efgh"}, (double[]){0.6, 0.7});
    for (int i = 0; i < 2; i++) x.cell[i].settings.config.train.length.unit = SPAN_SECONDS;
    assert_ok(compare_judge(&c));
    assert_true(c.pair[0].answer[0].samples[0] == 1 && c.pair[0].answer[0].verdict == VERDICT_UNTESTED);
    experiment_close(&x);
    with_seeds("val_accuracy", (const char *[]){"abcd", "efgh"}, (double[]){0.6, 0.7});
    for (int i = 0; i < 2; i++) x.cell[i].settings.config.train.length.unit = SPAN_SECONDS;
    assert_ok(compare_judge(&c));
    assert_int_equal(c.pair[0].answer[0].samples[0], 4);
}

/* Times are measured anew by each run, whatever it learns; the time to a target is both. */
static void copies_are_no_copies_of_times(void **state) {
    (void)state;
    several("step_time", (const char *[]){"aaaa", "aaaa"}, (double[]){0.6, 0.6});
    assert_ok(compare_judge(&c));
    assert_true(c.pair[0].answer[0].samples[0] == 4 && c.pair[0].answer[0].verdict == VERDICT_FASTER);
    experiment_close(&x);
    for (int i = 0; i < 2; i++) {
        several("time", (const char *[]){"aaaa", i ? "bbbb" : "aaaa"}, (double[]){0.6, 0.6});
        x.measure[0] = (struct measure){"time_to",          "s",         ABOUT_BOTH,       MEASURE_TIME_TO,
                                        .of = "train.loss", .target = 2, .practical = 0.02};
        assert_ok(compare_judge(&c));
        assert_int_equal(c.pair[0].answer[0].samples[0], i ? 1 : 4);
        assert_int_equal(c.pair[0].answer[0].verdict, i ? VERDICT_UNTESTED : VERDICT_SAME);
        experiment_close(&x);
    }
    several("time", (const char *[]){"aaaa", "bbbb"}, (double[]){0.6, 0.6});
    x.cell[1].settings.config.train.until_metric = "val.accuracy"; /* ends when it has learned */
    assert_ok(compare_judge(&c));
    assert_int_equal(c.pair[0].answer[0].samples[0], 1);
}

/* ---- seeds ---- */

/* Side B is better by 1, 2, 3... thousandths, so by 4.5 in the middle of all averages; p is 2 of 2^8 signs. */
static void seeds_are_pairs(void **state) {
    (void)state;
    with_seeds("val_accuracy", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.6});
    for (int i = 0; i < 8; i++)
        c.cell[1].run[i].result.val_accuracy = c.cell[0].run[i].result.val_accuracy + 1e-3 * (i + 1);
    assert_ok(compare_judge(&c));
    const struct compared_answer *got = &c.pair[0].answer[0];
    assert_true(got->statistics.paired && got->samples[0] == 8 && got->statistics.scale == SCALE_DIFFERENCE);
    assert_true(fabs(got->statistics.estimate - 4.5e-3) < 1e-9 && fabs(got->statistics.p - 2.0 / 256) < 1e-15);
    assert_int_equal(got->verdict, VERDICT_FASTER);
    assert_string_equal(compare_verdict(&c, &c.pair[0], 0), "better");
    assert_non_null(strstr(compare_effect(&c, &c.pair[0], 0), "+0.45 pt [+0."));
    assert_string_equal(compare_doubt(&c, &c.pair[0], 0),
                        "the error of the validation set is not known"); /* no files */
    experiment_close(&x);
    /* a run that is missing takes its partner with it, and the others keep theirs */
    with_seeds("val_accuracy", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.7});
    for (int i = 3; i < 7; i++) c.cell[1].run[i] = c.cell[1].run[i + 1];
    c.cell[1].nruns = 7;
    assert_ok(compare_judge(&c));
    assert_int_equal(c.pair[0].answer[0].samples[0], 7);
    assert_true(fabs(c.pair[0].answer[0].statistics.estimate - 0.108) < 1e-9);
}

/* So many questions with one measure, of which seeds make a difference of points, but the sides hardly any. */
static void ask(int questions) {
    static const double thousandths[RUNS] = {0, -2, 2, -2, 0, -2, 2, 2};
    with_seeds("val_accuracy", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.6});
    struct compared_run *runs[2] = {c.cell[0].run, c.cell[1].run};
    x.nmeasures = questions;
    for (int m = 1; m < questions; m++) x.measure[m] = x.measure[0];
    for (int m = 0; m < questions; m++) x.measure[m].practical = 0.01;
    assert_ok(compare_begin(&x, "folder", &c));
    for (int side = 0; side < 2; side++) c.cell[side].run = runs[side], c.cell[side].nruns = RUNS;
    for (int i = 0; i < RUNS; i++) {
        runs[0][i].result.val_accuracy = 0.6 + 0.02 * i;
        runs[1][i].result.val_accuracy = 0.6 + 0.02 * i + 1e-3 * thousandths[i];
    }
    assert_ok(compare_judge(&c));
}

static bool is_noted(const char *words) {
    bool any = false;
    for (int i = 0; i < c.nnotes; i++) any |= strstr(c.note[i], words) != NULL;
    return any;
}

/* 2 * 6 / 2^8 is less than 5 %, 2 * 7 / 2^8 is more, and 2 * 7 / 2^9 is less again. */
static void too_few_pairs_are_groups_and_said_to_be(void **state) {
    (void)state;
    ask(6);
    assert_true(c.pair[0].answer[0].statistics.paired && !is_noted("too few"));
    assert_int_equal(c.pair[0].answer[0].verdict, VERDICT_SAME);
    experiment_close(&x);
    ask(7);
    const struct compared_answer *got = &c.pair[0].answer[0];
    assert_true(!got->statistics.paired && got->pairs == 8 && got->verdict == VERDICT_INCONCLUSIVE);
    /* of 28 pairs of the differences 13 lie 4 thousandths or 0 apart, ...: 2 zeros, 3 twos, 3 less */
    const double mean = (2 * 6 * 2 + 3 * 3 * 4) / 28.0 * 1e-3, normal = sqrt(acos(-1)) / 2;
    assert_true(fabs(got->noise.pairs - mean * normal) < 1e-9);
    assert_true(got->noise.groups > 10 * got->noise.pairs);
    assert_int_equal(got->needed, 9); /* which are pairs again */
    assert_true(is_noted("9 seeds would with 80 %") && !is_noted("not even"));
    assert_true(is_noted("8 seeds are too few to compare seed by seed for 7 questions, pairs times metrics (9 would "
                         "do), so that the sides are compared as two groups"));
    struct json j = {0};
    assert_ok(compare_json(&c, &j));
    assert_non_null(strstr(j.text, "\"pairs\":8,\"paired\":false"));
    assert_non_null(strstr(j.text, "\"notes\":[\"8 seeds are too few"));
    json_fini(&j);
    x.nseeds = 0; /* the same trainings again, which have no partners */
    assert_null(experiment_too_few(&x, 8));
    x.measure[1].about = ABOUT_MACHINE;
    assert_non_null(strstr(experiment_too_few(&x, 8), "8 runs are too few to compare run by run"));
    assert_null(experiment_too_few(&x, 9));
    assert_null(experiment_too_few(&x, 3)); /* there is no verdict at all */
}

/* Of two groups the third side has more power: it varies less. In pairs it has less, as it does not vary with A. */
static void the_side_that_needs_the_most_is_named(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "third"}, *const letters[] = {"abcdefgh", "ijklmnop", "qrstuvwx"};
    const char *dirs[3];
    struct run_result made[3];
    struct made third = a;
    third.name = "third";
    make(&a), make(&b), make(&third);
    for (int i = 0; i < 3; i++) dirs[i] = strdup(scratch_path(names[i]));
    assert_ok(compare_finished(dirs, 3, NULL, &x, &c));
    for (int i = 0; i < 3; i++) made[i] = c.cell[i].run[0].result;
    x.repeats = x.most = x.nseeds = RUNS, x.nmeasures = 4; /* eight questions */
    for (int m = 0; m < 4; m++) x.measure[m] = *measure_find("val_accuracy", 12);
    assert_ok(compare_begin(&x, "folder", &c));
    for (int side = 0; side < 3; side++)
        for (int i = 0; i < RUNS; i++) {
            c.cell[side].run[i] = (struct compared_run){.dir = "", .result = made[side], .repeat = i};
            struct run_result *r = &c.cell[side].run[c.cell[side].nruns++].result;
            r->weights = pool_strndup(x.pool, letters[side] + i, 1);
            r->val_accuracy = side == 2 ? 0.67 + 1e-4 * i : 0.6 + 0.02 * i + 1e-3 * side * (i % 3);
        }
    assert_ok(compare_judge(&c));
    const struct compared_answer *of[2] = {&c.pair[0].answer[0], &c.pair[1].answer[0]};
    assert_true(of[0]->needed == 9 && of[1]->needed == 0 && of[0]->power < of[1]->power);
    assert_true(is_noted("third') with a chance of") && is_noted("not even 64 seeds would"));
    for (int i = 0; i < 3; i++) free((void *)(uintptr_t)dirs[i]);
}

/* The same trainings are the same whatever their spread over seeds; times of theirs are compared as ever. */
static void equal_trainings_are_the_same(void **state) {
    (void)state;
    with_seeds("val_accuracy", (const char *[]){"abcdefgh", "abcdefgh"}, (double[]){0.6, 0.6});
    x.asked[0] = "mode";
    c.cell[1].run[0].result.losses = c.cell[0].run[0].result.losses;
    struct result_setting *lr = NULL;
    for (int i = 0; i < x.cell[1].nsettings; i++)
        if (!strcmp(x.cell[1].setting[i].key, "optimizer.lr")) lr = &x.cell[1].setting[i];
    lr->value = "0.1"; /* as on side A */
    assert_ok(compare_judge(&c));
    const struct compared_answer *got = &c.pair[0].answer[0];
    assert_true(c.pair[0].held && c.pair[0].same_weights && got->equal);
    assert_int_equal(got->verdict, VERDICT_SAME);
    assert_true(got->statistics.low == 0 && got->statistics.high == 0);
    c.cell[1].run[5].result.weights = "other"; /* one of the eight is not */
    assert_ok(compare_judge(&c));
    assert_false(c.pair[0].answer[0].equal);
}

/* Eight runs a side, with so many measures, as they were. */
static void with_measures(int n, const char *const *names) {
    x.nmeasures = n;
    for (int m = 0; m < n; m++) x.measure[m] = *measure_find(names[m], (int)strlen(names[m]));
    struct compared_run *runs[2] = {c.cell[0].run, c.cell[1].run};
    assert_ok(compare_begin(&x, c.folder, &c));
    for (int side = 0; side < 2; side++) c.cell[side].run = runs[side], c.cell[side].nruns = 8;
}

/* Every measure has an answer, and p is corrected for all of them. */
static void measures_are_one_family(void **state) {
    (void)state;
    static const char *const names[] = {"step_time", "val_accuracy", "train_loss"};
    several("step_time", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.7});
    with_measures(3, names);
    assert_ok(compare_judge(&c));
    const struct compared_answer *got = c.pair[0].answer;
    assert_true(fabs(got[0].statistics.p - 2.0 / 256) < 1e-15 && fabs(got[0].statistics.p_all - 4.0 / 256) < 1e-12);
    assert_true(fabs(got[1].statistics.p_all - 6.0 / 12870) < 1e-12);        /* trainings without a seed in common */
    assert_true(got[2].statistics.p == 1 && got[2].verdict == VERDICT_SAME); /* equal losses on both sides */
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    compare_verdicts(&c, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "\n\"0.2\",\"0.1\",\"val_accuracy\",difference,0.6035,0.7115,0.108"));
    assert_non_null(strstr(table_of(&c), "val_accuracy"));
}

/* Holm's p of a question is the largest of Bonferroni's over all sets of questions that it is in: Marcus, Peritz and
 * Gabriel's closed tests, which need no order. A question that nothing answers is in the sets, too. */
static double closed_p(const double *p, int n, int question) {
    double most = 0;
    for (int set = 1; set < 1 << n; set++) {
        double least = 1;
        int members = 0;
        for (int i = 0; i < n; i++)
            if (set & 1 << i) members++, least = fmin(least, p[i]);
        if (set & 1 << question) most = fmax(most, fmin(1, members * least));
    }
    return most;
}

static void questions_without_an_answer_count_too(void **state) {
    (void)state;
    enum { QUESTIONS = 6 };
    static const char *const names[QUESTIONS] = {"step_time",  "val_accuracy", "step_q25",
                                                 "train_loss", "step_best",    "val_loss"};
    double p[QUESTIONS];
    several("step_time", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.6});
    with_measures(QUESTIONS, names);
    for (int i = 0; i < 8; i++) {
        c.cell[1].run[i].result.val_loss = (double)NAN; /* which was never measured */
        c.cell[1].run[i].result.val_accuracy = 0.6 + 0.001 * (i % 3) + (i > 4 ? 0.004 : 0);
    }
    assert_ok(compare_judge(&c));
    const struct compared_answer *got = c.pair[0].answer;
    assert_false(got[5].judged);
    for (int m = 0; m < QUESTIONS; m++) p[m] = m < 5 ? got[m].statistics.p : 1;
    for (int m = 0; m < 5; m++) assert_true(fabs(got[m].statistics.p_all - closed_p(p, QUESTIONS, m)) < 1e-12);
    assert_true(fabs(got[0].statistics.p_all - QUESTIONS * 2.0 / 256) < 1e-12); /* 0.047; among five it was 0.039 */
    assert_int_equal(got[0].verdict, VERDICT_FASTER);
    struct json j = {0};
    assert_ok(compare_json(&c, &j));
    assert_non_null(strstr(j.text, "\"tests\":6"));
    json_fini(&j);
}

static struct check_value value(const char *text, int cell) {
    struct quantity q;
    struct check_value v;
    char wrong[CHECK_WRONG];
    if (!quantity_read(&x, text, &q, wrong)) fail_msg("%s: %s", text, wrong);
    quantity_value(&c, &q, cell, &v);
    return v;
}

/* A side's name may have points, as a number has; the metric is one of the experiment's, or the first. */
static void answers_are_quantities(void **state) {
    (void)state;
    struct quantity q;
    char wrong[CHECK_WRONG];
    measures_are_one_family(state);
    const struct compared_answer *of = &c.pair[0].answer[1];
    assert_string_equal(value("0.2.val_accuracy.verdict", 1).text[0], "better");
    assert_string_equal(value("0.2.train_loss.verdict", 1).text[0], "same");
    assert_string_equal(value("B.verdict", 1).text[0], "faster"); /* of step_time */
    assert_true(fabs(value("0.2.val_accuracy.effect", 1).number - 0.108) < 1e-9);
    assert_true(value("B.val_accuracy.low", 1).number == of->statistics.low);
    assert_true(value("B.val_accuracy.high", 1).number == of->statistics.high && of->statistics.low < 0.108);
    assert_true(value("B.val_accuracy.p", 1).number == of->statistics.p_all);
    assert_true(value("B.power", 1).number == c.pair[0].answer[0].power);
    assert_true(value("B.effect", 1).number > 1.9);
    assert_string_equal(value("A.val_accuracy.verdict", 0).text[0], "none");
    assert_true(isnan(value("A.val_accuracy.effect", 0).number));
    assert_false(quantity_read(&x, "B.val_loss.verdict", &q, wrong));
    assert_string_equal(wrong, "the first axis has no value 'B.val_loss'");
    c.cell[0].nruns = c.cell[1].nruns = 1; /* as in quick form */
    assert_ok(compare_judge(&c));
    assert_true(fabs(value("B.val_accuracy.effect", 1).number - 0.108) < 1e-9);
    assert_true(isnan(value("B.val_accuracy.p", 1).number) && isnan(value("B.val_accuracy.power", 1).number));
    assert_int_equal(value("B.val_accuracy.verdict", 1).ntexts, 0);
}

/* Runs of a seed are alike on both sides, and those of two seeds need not be. */
static void bits_are_held_seed_by_seed(void **state) {
    (void)state;
    with_seeds("val_accuracy", (const char *[]){"abcdefgh", "abcdefgh"}, (double[]){0.6, 0.6});
    struct check_value mine = value("A.weights", 0), other = value("B.weights", 1);
    assert_int_equal(check_holds(&mine, IS_EQ, &other), 1);
    x.nseeds = 0;
    mine = value("A.weights", 0), other = value("B.weights", 1);
    assert_int_equal(check_holds(&mine, IS_EQ, &other), 0);
}

static void a_goal_that_is_not_reached_counts_as_the_longest(void **state) {
    (void)state;
    with_seeds("time", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.6});
    x.measure[0] = (struct measure){"time_to", "s", ABOUT_BOTH, MEASURE_TIME_TO, .of = "train.loss", .target = 2};
    for (int i = 0; i < 5; i++)
        for (int64_t k = 0; k < c.cell[1].run[i].result.nsteps; k++) c.cell[1].run[i].result.step[k].loss = 5;
    assert_ok(compare_judge(&c));
    const struct compared_answer *got = &c.pair[0].answer[0];
    assert_true(got->judged && got->unreached[0] == 0 && got->unreached[1] == 5);
    assert_true(isinf(c.cell[1].median[0]) && got->statistics.estimate == 0);
    assert_non_null(strstr(table_of(&c), "in 3 of 8 runs"));
    assert_non_null(strstr(table_of(&c), "never"));
}

/* ---- the validation set ---- */

enum { SAMPLES = 8 };
static void write_right(const char *run, const char *right, const char *data) {
    unsigned char is[SAMPLES];
    uint32_t crc;
    int64_t bytes;
    char path[700];
    for (int i = 0; i < SAMPLES; i++) is[i] = right[i] == 'x';
    const struct st_tensor t = {
        .name = "right", .dtype = "BOOL", .ndim = 1, .dim = {SAMPLES}, .data = is, .bytes = SAMPLES};
    snprintf(path, sizeof path, "%s/validation.safetensors", scratch_path(run));
    (void)unlink(path);
    assert_ok(st_write(path, &t, 1, (const char *const[][2]){{"data", data}, {"step", "30"}, {NULL}}, &crc, &bytes));
}

/* One of eight samples only A has right, four only B: 2 (1 + 5) / 2^5. */
static void samples_tell_two_networks_apart(void **state) {
    (void)state;
    assert_ok(two(NULL));
    write_right("a", "xx------", "0000000a");
    write_right("b", "x-xxxx--", "0000000a");
    x.measure[0] = *measure_find("val_accuracy", 12), x.nmeasures = 1;
    c.cell[0].run[0].result.val_accuracy = 0.25, c.cell[1].run[0].result.val_accuracy = 0.625;
    c.cell[1].run[0].result.weights = "other";
    assert_ok(compare_judge(&c));
    assert_int_equal(c.nnotes, 1);
    assert_non_null(strstr(c.note[0], "of 8 validation samples A alone has 1 right, B alone 4"));
    assert_non_null(strstr(c.note[0], "p = 0.375 (McNemar, exact)"));
    write_right("b", "x-xxxx--", "0000000b"); /* other samples: nothing is said */
    assert_ok(compare_judge(&c));
    assert_int_equal(c.nnotes, 0);
}

/* Which samples two seeds of both sides have right; the data of the first seed are "0000000a". */
static void right_of_seeds(const char *const right[2][2], const char *second) {
    static const char *const names[2][2] = {{"a0", "a1"}, {"b0", "b1"}};
    c.folder = pool_printf(x.pool, "%s", scratch_folder());
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < 2; i++) {
            assert_ok(file_make_folders(scratch_path(names[side][i])));
            write_right(names[side][i], right[side][i], i ? second : "0000000a");
            c.cell[side].run[i].dir = names[side][i];
        }
}

static void a_set_that_all_seeds_share_has_an_error_of_its_own(void **state) {
    (void)state;
    /* B less A: 0 0 0 1 and -1 0 1 0, and four times 0; the mean over both seeds: -0.5 0 0.5 0.5 */
    static const char *const right[2][2] = {{"xx------", "x--x----"}, {"xx-x----", "--xx----"}};
    with_seeds("val_accuracy", (const char *[]){"ab", "cd"}, (double[]){0.25, 0.375});
    right_of_seeds(right, "0000000a");
    assert_ok(compare_judge(&c));
    double mean = 0.5 / 8, variance = 0.75 / 8 - mean * mean;
    assert_true(fabs(c.pair[0].answer[0].statistics.error - sqrt(variance / 8)) < 1e-12);
    assert_true(c.nnotes > 0 &&
                strstr(c.note[c.nnotes - 1], "all seeds are measured on the same 8 validation samples"));
    write_right("a1", "x--x----", "0000000b");
    write_right("b1", "--xx----", "0000000b");
    assert_ok(compare_judge(&c));
    assert_true(isnan(c.pair[0].answer[0].statistics.error));
    assert_true(c.nnotes > 0 && strstr(c.note[c.nnotes - 1], "each seed draws its own 8 validation samples"));
}

/* The set's part is of the differences of each seed, however far apart the seeds are. */
static void a_set_has_a_share_of_the_paired_differences(void **state) {
    (void)state;
    /* 1 of 8 and 2, then 7 and 7: B less A is 1/8, then 0 */
    static const char *const right[2][2] = {{"x-------", "xxxxxxx-"}, {"xx------", "-xxxxxxx"}};
    with_seeds("val_accuracy", (const char *[]){"ab", "cd"}, (double[]){0.125, 0.25});
    right_of_seeds(right, "0000000b");
    for (int side = 0; side < 2; side++) c.cell[side].run[1].result.val_accuracy = 0.875;
    c.cell[0].run[0].result.val_accuracy = 0.125, c.cell[1].run[0].result.val_accuracy = 0.25;
    assert_ok(compare_judge(&c));
    /* (1/8 - 1/64) / 8 and (2/8 - 0) / 8 are 0.022 in the mean; the differences' variance is pi / 4 / 64 = 0.012 */
    assert_true(is_noted("these make about 100 % of the variance of the difference of"));
    assert_false(is_noted("narrow")); /* the interval would be of two groups */
}

/* The same for all that matters, and yet better in every seed. */
static void seeds_that_differ_by_little(const char *a0, const char *b0) {
    static const double more[RUNS] = {2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 7e-3, 8e-3, 9e-3};
    with_seeds("val_accuracy", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.6});
    x.measure[0].practical = 0.01;
    c.folder = pool_printf(x.pool, "%s", scratch_folder());
    for (int side = 0; side < 2; side++) {
        assert_ok(file_make_folders(scratch_path(side ? "b0" : "a0")));
        (void)unlink(scratch_path(side ? "b0/validation.safetensors" : "a0/validation.safetensors"));
        if (a0) write_right(side ? "b0" : "a0", side ? b0 : a0, "0000000a");
        for (int i = 0; i < RUNS; i++) {
            c.cell[side].run[i].dir = side ? "b0" : "a0";
            if (side) c.cell[1].run[i].result.val_accuracy = c.cell[0].run[i].result.val_accuracy + more[i];
        }
    }
    assert_ok(compare_judge(&c));
}

static void a_small_difference_is_no_equality(void **state) {
    (void)state;
    char text[4096] = "";
    const struct compared_pair *p;
    seeds_that_differ_by_little("xxxx----", "xxxx----"); /* a set that makes no difference */
    p = &c.pair[0];
    assert_true(p->answer[0].verdict == VERDICT_SAME && p->answer[0].statistics.p_all < 0.01);
    assert_string_equal(compare_verdict(&c, p, 0), "better by less than 1 pt");
    assert_string_equal(compare_doubt(&c, p, 0), "");
    assert_non_null(strstr(compare_sentence(&c), "val_accuracy: better by less than 1 pt (+0.55 pt [+0.3"));
    assert_non_null(strstr(table_of(&c), "B better by less than 1 pt"));
    FILE *f = fmemopen(text, sizeof text, "w");
    compare_verdicts(&c, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, ",8,8,same,")); /* a word for programs, and for gates */
    assert_string_equal(value("B.verdict", 1).text[0], "same");
}

/* Which samples the set has could make more of it than one point, or turn it round. */
static void same_holds_the_error_of_the_set(void **state) {
    (void)state;
    const struct compared_pair *p;
    seeds_that_differ_by_little(NULL, NULL); /* as a command's runs, which leave no such file */
    assert_int_equal(c.pair[0].answer[0].verdict, VERDICT_SAME);
    assert_string_equal(compare_doubt(&c, &c.pair[0], 0), "the error of the validation set is not known");
    experiment_close(&x);
    seeds_that_differ_by_little("xxxx----", "xxx-x---");
    p = &c.pair[0];
    assert_true(p->answer[0].statistics.high < 0.01 && p->answer[0].statistics.error > 0.1);
    assert_int_equal(p->answer[0].verdict, VERDICT_FASTER);
    assert_string_equal(compare_verdict(&c, p, 0), "better");
    assert_non_null(strstr(compare_sentence(&c), "]), but on these validation samples alone: others would change it by "
                                                 "about ±34.65 pt")); /* 1.96 sqrt(2 / 8 / 8) */
    assert_true(is_noted("±34.65 pt (95 %), not included in the interval above"));
}

/* ---- doubts ---- */

/* Half of A's runs take three times as long as the others. */
static void a_large_doubt_is_in_the_sentence(void **state) {
    (void)state;
    several("step_time", (const char *[]){"aaaaaaaa", "aaaaaaaa"}, (double[]){0.6, 0.6});
    for (int i = 0; i < 8; i += 2)
        for (int64_t k = 0; k < c.cell[0].run[i].result.nsteps; k++) c.cell[0].run[i].result.step[k].ms *= 3;
    assert_ok(compare_judge(&c));
    assert_int_equal(c.pair[0].answer[0].verdict, VERDICT_FASTER);
    double apart = c.cell[0].spread; /* 4 and 12 ms: 8 of 8 */
    assert_true(apart > 0.9 && c.pair[0].answer[0].apart == apart);
    const char *words = pool_printf(x.pool, "]), but half of the runs of a side lie %.0f %% apart", 100 * apart);
    assert_non_null(strstr(compare_sentence(&c), words));
    struct json j = {0};
    assert_ok(compare_json(&c, &j));
    assert_non_null(strstr(j.text, "\"doubt\":\"half of the runs of a side lie "));
    json_fini(&j);
    x.pair[1] = x.pair[x.npairs++ - 1]; /* the same question twice */
    with_measures(1, (const char *const[]){"step_time"});
    assert_ok(compare_judge(&c));
    assert_non_null(strstr(compare_sentence(&c), "step_time: faster in 2 of 2, 2 of them in doubt: half of the runs "));
}

/* ---- what a command does not report ---- */

static void without_weights_and_losses(bool same_vals) {
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < RUNS; i++) {
            struct run_result *r = &c.cell[side].run[i].result;
            r->weights = r->losses = "";
            r->val = pool_alloc(x.pool, sizeof *r->val);
            r->nvals = 1;
            *r->val =
                (struct result_val){.step = 30, .loss = (double)NAN, .accuracy = same_vals ? 0.5 : r->val_accuracy};
        }
    assert_ok(compare_judge(&c));
}

static void no_losses_are_no_equal_losses(void **state) {
    (void)state;
    with_seeds("val_accuracy", (const char *[]){"abcdefgh", "ijklmnop"}, (double[]){0.6, 0.7});
    without_weights_and_losses(false);
    assert_true(c.pair[0].answer[0].samples[0] == 8 && c.pair[0].answer[0].samples[1] == 8);
    assert_string_equal(compare_verdict(&c, &c.pair[0], 0), "better");
    assert_false(c.same_bits || c.pair[0].same_losses || c.pair[0].same_weights);
    without_weights_and_losses(true); /* a command that takes no notice of its seed */
    assert_true(c.pair[0].answer[0].samples[0] == 1 && c.pair[0].answer[0].verdict == VERDICT_UNTESTED);
    assert_non_null(strstr(compare_untested(&c), "reports neither losses nor weights, so its 8 runs may be copies of "
                                                 "one training; all of them have the same validations"));
    x.nseeds = 0;
    without_weights_and_losses(false);
    assert_int_equal(c.pair[0].answer[0].samples[0], 1);
    assert_non_null(strstr(compare_untested(&c), "repeats: {seeds: 8} gives each run a different seed"));
}

/* ---- the same bits ---- */

/* Losses are means in 32 bits: different weights may share them. */
static void the_same_losses_are_not_the_same_training(void **state) {
    (void)state;
    assert_ok(two(NULL));
    c.cell[1].run[0].result.weights = "other";
    assert_ok(compare_judge(&c));
    assert_true(c.pair[0].same_losses && !c.pair[0].same_weights && !c.same_bits);
    assert_string_equal(compare_bits(&c, &c.pair[0]), "no: the same losses, but other weights");
    assert_non_null(strstr(table_of(&c), "same losses and weights, bit for bit: no (0 of 1 pairs)"));
    experiment_close(&x);
    b.losses = "other", b.loss[6] = 2.5;
    assert_ok(two(NULL));
    assert_non_null(strstr(compare_bits(&c, &c.pair[0]), "the same weights at the end"));
}

/* An experiment that was stopped before a side had run. */
static void what_has_not_run_is_not_said_to_differ(void **state) {
    (void)state;
    assert_ok(two(NULL));
    c.cell[0].nruns = 0;
    assert_ok(compare_judge(&c));
    const char *text = table_of(&c);
    assert_null(strstr(text, "changes the computation"));
    assert_non_null(strstr(text, "same losses and weights: not known, since no pair has runs on"));
    assert_string_equal(compare_bits(&c, &c.pair[0]), "-");
}

/* What programs read is what was measured. */
static void json_and_csv_hold_the_numbers(void **state) {
    (void)state;
    struct json j = {0};
    const struct json_value *root;
    b.losses = "other", b.loss[0] = 1;
    assert_ok(two(NULL));
    assert_ok(compare_json(&c, &j));
    assert_ok(json_parse(j.text, j.length, (struct json_limits){8, 4096, 4096}, x.pool, &root));
    json_fini(&j);
    const struct json_value *pair = &json_get(root, "pairs")->children[0];
    assert_true(fabs(json_get(pair, "ratio")->number - 2) < 1e-9);
    assert_false(json_get(pair, "same_losses")->truth);
    assert_int_equal(json_get(json_get(pair, "difference"), "step")->integer, 1);
    assert_true(json_get(json_get(&json_get(root, "cells")->children[1], "median"), "step_time")->number == 2);
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    compare_csv(&c, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "\"run\",run,\"step_time\""));
    assert_non_null(strstr(text, "\n\"B\",1,2,4000,10,2,1,1,,other,w,"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_runs_are_told_apart_but_not_judged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_step_that_differs_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_trainings_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gates_are_judged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_of_a_training_are_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_weights_are_other_trainings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trainings_for_a_time_are_copies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copies_are_no_copies_of_times, set_up, tear_down),
        cmocka_unit_test_setup_teardown(seeds_are_pairs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_few_pairs_are_groups_and_said_to_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_side_that_needs_the_most_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(equal_trainings_are_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(measures_are_one_family, set_up, tear_down),
        cmocka_unit_test_setup_teardown(questions_without_an_answer_count_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers_are_quantities, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bits_are_held_seed_by_seed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_goal_that_is_not_reached_counts_as_the_longest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(samples_tell_two_networks_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_set_that_all_seeds_share_has_an_error_of_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_set_has_a_share_of_the_paired_differences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_small_difference_is_no_equality, set_up, tear_down),
        cmocka_unit_test_setup_teardown(same_holds_the_error_of_the_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_doubt_is_in_the_sentence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_losses_are_no_equal_losses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_same_losses_are_not_the_same_training, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_not_run_is_not_said_to_differ, set_up, tear_down),
        cmocka_unit_test_setup_teardown(json_and_csv_hold_the_numbers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
