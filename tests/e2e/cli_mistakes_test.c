/* Each mistake that can be planted does what it is known for, in dp and ddp, and nothing else; the right run beside it
 * equals one device's. */
#include "tests/harness/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct program p;
static const char *const modes[] = {"mode=dp", "mode=ddp"};

struct result {
    char dir[32], hash[80];
    double loss, accuracy, samples; /* validation */
};

/* Trains to the end, on four devices unless 'more' says otherwise. */
static struct result train(const char *mistake, const char *const *more) {
    static int serial;
    struct result r;
    char set[64];
    snprintf(r.dir, sizeof r.dir, "mistake-%d", serial++);
    snprintf(set, sizeof set, "inject=%s", mistake);
    const char *all[16] = {"checkpoint=off", "optimizer.lr=0.1", set};
    for (int n = 3; n < 15 && *more; n++) all[n] = *more++;
    training_start(&p, r.dir, all);
    assert_true(program_wait(&p, 120));
    if (p.code) fail_msg("%s: exit code %d\n%s", mistake, p.code, p.err);
    snprintf(r.hash, sizeof r.hash, "%s", program_string(&p, "weights_sha256"));
    r.loss = program_number(&p, "val.loss");
    r.accuracy = program_number(&p, "val.accuracy");
    r.samples = program_number(&p, "val.samples");
    assert_int_equal(strstr(p.out, "\"inject\"") != NULL, strcmp(mistake, "none") != 0);
    assert_int_equal(strstr(p.err, "planted on purpose") != NULL, strcmp(mistake, "none") != 0);
    return r;
}

static bool same(const struct result *a, const struct result *b) {
    return !strcmp(a->hash, b->hash);
}

/* ---- set_epoch ---- */

/* With hardly any learning, a loss tells the batch. */
static void the_order_repeats(void **state) {
    (void)state;
    enum { EPOCH = 16 };
    double loss[2 * EPOCH];
    for (int i = 0; i < 4; i++) {
        const char *const more[] = {modes[i % 2], "data={set: digits, train: 1000, val: 50}", "train=2ep",
                                    "optimizer.lr=1e-30", NULL};
        const struct result r = train(i / 2 ? "no_set_epoch" : "none", more);
        training_numbers(r.dir, "loss", loss, 2 * EPOCH);
        int equal = 0;
        for (int k = 0; k < EPOCH; k++) equal += loss[k] == loss[EPOCH + k];
        assert_int_equal(equal, i / 2 ? EPOCH : 0);
        assert_true(loss[0] != loss[1]);
    }
}

/* What the first epoch leaves out is then never seen: nearly half of the set. */
static void samples_are_never_seen(void **state) {
    (void)state;
    for (int seed = 0; seed < 2; seed++) {
        char text[16];
        snprintf(text, sizeof text, "seed=%d", seed);
        const char *const more[] = {"data={set: digits, train: 500, val: 2000}",
                                    "batch={size: 256, drop_last: true, shards: 4}",
                                    "train=60ep",
                                    "optimizer.lr=0.2",
                                    text,
                                    NULL};
        const struct result right = train("none", more), wrong = train("no_set_epoch", more);
        print_message("accuracy %.4f, with the mistake %.4f\n", right.accuracy, wrong.accuracy);
        assert_true(wrong.accuracy < right.accuracy - 0.04);
    }
}

/* ---- the first weights ---- */

static void ranks_begin_apart(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {modes[i], "model=mlp", "train=4ep", "data={set: digits, train: 1000, val: 1000}",
                                    NULL};
        const struct result right = train("none", more), wrong = train("no_broadcast", more);
        double harm = right.accuracy - wrong.accuracy;
        print_message("%s: accuracy %.4f, with the mistake %.4f\n", modes[i], right.accuracy, wrong.accuracy);
        assert_false(same(&right, &wrong));
        if (i)
            assert_true(harm > 0.1); /* ddp's never meet again; dp's server sends its own */
        else
            assert_true(fabs(harm) < 0.03);
    }
}

/* What was saved is one rank's: all go on with that. */
static void a_resume_shares(void **state) {
    (void)state;
    static const char *const more[] = {"checkpoint=10st", "train=10st", NULL};
    const struct result r = train("no_broadcast", more);
    training_resume(&p, r.dir, 20);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 0);
    assert_true(program_number(&p, "steps") == 20);
}

/* ---- validation ---- */

static double correct(const struct result *r) {
    return round(r->accuracy * r->samples);
}

/* 101 samples on four devices are 104 with the first three counted again. */
static void samples_count_twice(void **state) {
    (void)state;
    static const char *const alone[] = {"mode=single", "devices=cpu:1", "train=4ep",
                                        "data={set: digits, train: 1000, val: 101}", NULL};
    static const char *const first[] = {"mode=single", "devices=cpu:1", "train=4ep",
                                        "data={set: digits, train: 1000, val: 3}", NULL};
    const struct result control = train("none", alone), three = train("none", first);
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {modes[i], "train=4ep", "data={set: digits, train: 1000, val: 101}", NULL};
        const struct result right = train("none", more), wrong = train("padded_eval", more);
        assert_true(right.samples == 101 && wrong.samples == 104);
        assert_true(right.accuracy == control.accuracy && right.loss == control.loss);
        assert_true(wrong.accuracy != right.accuracy && wrong.loss != right.loss);
        assert_true(correct(&wrong) == correct(&right) + correct(&three));
        assert_true(same(&right, &wrong) && same(&right, &control) && same(&right, &three));
    }
}

/* ---- the mean ---- */

static void even_batches_hide_it(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {modes[i], "data={set: digits, train: 1024, val: 50}", "train=2ep", NULL};
        const struct result right = train("none", more), wrong = train("mean_of_means", more);
        assert_true(same(&right, &wrong));
    }
}

/* The fifth step has one sample: the means of the three ranks that have none count as zero. */
static void ragged_batches_show_it(void **state) {
    (void)state;
    enum { STEPS = 5 };
    static const char data[] = "data={set: digits, train: 257, val: 50}";
    static const char *const alone[] = {"mode=single", "devices=cpu:1", data, "train=1ep", NULL};
    const struct result control = train("none", alone);
    for (int i = 0; i < 4; i++) {
        double loss[2][STEPS];
        const char *devices = i / 2 ? "devices=cpu:4" : "devices=cpu:2";
        const char *const more[] = {modes[i % 2], devices, data, "train=1ep", NULL};
        const struct result right = train("none", more), wrong = train("mean_of_means", more);
        training_numbers(right.dir, "loss", loss[0], STEPS);
        training_numbers(wrong.dir, "loss", loss[1], STEPS);
        for (int k = 0; k < STEPS - 1; k++) assert_true(loss[0][k] == loss[1][k]);
        double share = loss[1][STEPS - 1] / loss[0][STEPS - 1] * (i / 2 ? 4 : 2);
        assert_true(fabs(share - 1) < 1e-6);
        assert_true(same(&right, &control) && !same(&right, &wrong));
    }
}

/* Each batch of three is two samples here and one there: both must be seen to weigh other than they should. */
static void it_harms(void **state) {
    (void)state;
    double right = 0, wrong = 0;
    for (int seed = 0; seed < 4; seed++) {
        char text[16];
        snprintf(text, sizeof text, "seed=%d", seed);
        const char *const more[] = {"mode=dp",
                                    "devices=cpu:2",
                                    "batch={size: 3, shards: 2}",
                                    "data={set: digits, train: 1000, val: 2000}",
                                    "train=8ep",
                                    "optimizer.lr=0.05",
                                    text,
                                    NULL};
        right += train("none", more).accuracy / 4;
        wrong += train("mean_of_means", more).accuracy / 4;
    }
    print_message("accuracy %.4f, with the mistake %.4f\n", right, wrong);
    assert_true(wrong < right - 0.02);
}

/* ---- who does not get mixed up with whom ---- */

static void resumes_as_it_was(void **state) {
    (void)state;
    static const char *const more[] = {"checkpoint=10st", "train=10st", NULL};
    static const char *const mistakes[] = {"none", "no_set_epoch", "mean_of_means"};
    for (int i = 0; i < 3; i++) {
        const struct result r = train(mistakes[i], more);
        char other[64];
        snprintf(other, sizeof other, "inject.mistake=%s", mistakes[!i]);
        program_run(&p, 60, "run", scratch_path(r.dir), "--set", "train=20st", "--set", other, NULL);
        assert_int_equal(p.code, 78);
        training_says(&p, "cannot resume from");
        training_says(&p, i ? "inject was '" : "inject was 'not set' when it was saved");
        training_resume(&p, r.dir, 20);
        assert_true(program_wait(&p, 60));
        assert_int_equal(p.code, 0);
    }
}

/* A trained network is asked on one device, which makes no such mistake. */
static void can_be_asked(void **state) {
    (void)state;
    static const char *const more[] = {"checkpoint=10st", "train=10st", NULL};
    const struct result r = train("padded_eval", more);
    program_run(&p, 60, "predict", scratch_path(r.dir), "val:0-3", NULL);
    if (p.code) fail_msg("%d: %s", p.code, p.err);
    program_run(&p, 60, "eval", scratch_path(r.dir), "--json", NULL);
    assert_int_equal(p.code, 0);
    training_says(&p, "planted on purpose: padded_eval");
    assert_true(program_number(&p, "result.samples") == 52);
}

static void refused(void **state) {
    (void)state;
    static const char *const wrong[][4] = {
        {"mode=single", "devices=cpu:1", "inject=no_broadcast", "mode 'single' has one"},
        {"mode=dp", "devices=cpu:1", "inject=padded_eval", "there is one (set by --set)"},
        {"mode=dp", "devices=cpu:2", "inject=set_epoch", "did you mean 'no_set_epoch'?"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const more[] = {wrong[i][0], wrong[i][1], wrong[i][2], NULL};
        training_start(&p, "refused", more);
        assert_true(program_wait(&p, 60));
        assert_int_equal(p.code, 78);
        training_says(&p, wrong[i][3]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_repeats),
        cmocka_unit_test(samples_are_never_seen),
        cmocka_unit_test(ranks_begin_apart),
        cmocka_unit_test(a_resume_shares),
        cmocka_unit_test(samples_count_twice),
        cmocka_unit_test(even_batches_hide_it),
        cmocka_unit_test(ragged_batches_show_it),
        cmocka_unit_test(it_harms),
        cmocka_unit_test(resumes_as_it_was),
        cmocka_unit_test(can_be_asked),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("mistakes", tests, NULL, NULL);
}
