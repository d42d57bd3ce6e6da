/* What is planted on purpose shows where it should, and nowhere else: a slow device costs no bit, and is slow by so much. The
 * latter is a claim about time (tests/harness/timing.h). */
#include "tests/harness/training.h"

#include "engine/base/rng.h"
#include "lab/numbers/statistics.h"
#include "tests/harness/timing.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct program p;

static const char *folder(void) {
    static int serial;
    static char name[32];
    snprintf(name, sizeof name, "inject-%d", serial++);
    return name;
}

/* Trains to the end with these settings, in a folder that it names; NULL-terminated. */
static const char *train(const char *const *more) {
    const char *dir = folder();
    training_start(&p, dir, more);
    assert_true(program_wait(&p, 120));
    return dir;
}

static const char *train_well(const char *const *more) {
    const char *dir = train(more);
    if (p.code) fail_msg("%s: exit code %d\n%s", more[0], p.code, p.err);
    return dir;
}

static const char *hash(void) {
    return program_string(&p, "weights_sha256");
}

/* ---- a slow device ---- */

enum { STEPS = 40 };
static const char steps40[] = "train=40st";

static double computing(void) {
    return program_number(&p, "time_s.forward") + program_number(&p, "time_s.backward");
}

/* Runs of which the least disturbed one counts. */
static int runs(void) {
    return timing_checked() ? 4 : 1;
}

static double least_computing(const char *slow) {
    const char *const more[] = {"mode=single", "devices=cpu:1", steps40, slow, NULL};
    double least = 1e9;
    for (int i = 0; i < runs(); i++) {
        train_well(more);
        if (computing() < least) least = computing();
    }
    return least;
}

static void slow_by_its_share(void **state) {
    (void)state;
    double plain = least_computing("inject.slow=0%");
    char bits[80];
    snprintf(bits, sizeof bits, "%s", hash());
    assert_null(strstr(p.out, "\"inject\""));
    assert_null(strstr(p.err, "planted"));
    double slow = least_computing("inject.slow=900%");
    print_message("900 %% longer: %.1f times as long\n", slow / plain);
    if (timing_checked()) assert_between((uintmax_t)(slow / plain * 10), 40, 300);
    assert_string_equal(hash(), bits);
    assert_string_equal(program_string(&p, "inject"), "device 0 computes 900 % longer");
    training_says(&p, "warning: planted on purpose: device 0 computes 900 % longer");
}

/* Device 0, whose times these are, waits for device 1. */
static void others_wait(void **state) {
    (void)state;
    const char *const none[] = {NULL}, *bits = training_hash(STEPS, none);
    static const char *const kinds[][2] = {{"mode=dp", "dp.server=shared"},
                                           {"mode=dp", "dp.server=dedicated"},
                                           {"mode=ddp", "ddp.overlap=true"},
                                           {"mode=ddp", "ddp.overlap=false"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *const more[] = {kinds[i][0], kinds[i][1],        "devices=cpu:2",
                                    steps40,     "comm.timeout=60s", "inject.slow={device: 1, by: 3000%}",
                                    NULL};
        train_well(more);
        double waited = program_number(&p, "time_s.comm_exposed");
        print_message("%s %s: computes %.3f s, waits %.3f s\n", kinds[i][0], kinds[i][1], computing(), waited);
        assert_true(waited > (timing_checked() ? 5 * computing() : 0));
        assert_string_equal(hash(), bits);
    }
}

static bool drawn(int step, int device) {
    return rng_float(rng_key(0, RNG_INJECT), (uint64_t)step, (uint64_t)device) < 0.25f;
}

static void keep_least(const char *dir, const char *phase, double least[STEPS]) {
    double ms[STEPS];
    training_numbers(dir, phase, ms, STEPS);
    for (int i = 0; i < STEPS; i++) least[i] = fmin(least[i], ms[i]);
}

/* Each device has slow steps of its own, and the same in every run: only these are long in all of some runs. */
static void slow_now_and_then(void **state) {
    (void)state;
    double own[STEPS], others[STEPS];
    const char *const more[] = {"mode=dp", "devices=cpu:2",    "model={zoo: mlp, hidden: [512, 512]}",
                                steps40,   "comm.timeout=60s", "inject.slow={device: all, by: 8000%, chance: 25%}",
                                NULL};
    for (int i = 0; i < STEPS; i++) own[i] = others[i] = 1e9;
    for (int run = 0; run < runs(); run++) {
        const char *dir = train_well(more);
        keep_least(dir, "backward", own);
        keep_least(dir, "comm", others);
    }
    int mine = 0, theirs = 0;
    double sorted[STEPS];
    memcpy(sorted, own, sizeof sorted);
    double late = 10 * statistics_median(sorted, STEPS); /* slow ones take 80 times as long */
    for (int i = 0; i < STEPS; i++) {
        mine += drawn(i, 0), theirs += drawn(i, 1) && !drawn(i, 0);
        if (!timing_checked()) continue;
        if (drawn(i, 0) != (own[i] > late)) fail_msg("step %d: backward takes %g ms", i, own[i]);
        if (!drawn(i, 0) && drawn(i, 1) != (others[i] > late)) fail_msg("step %d: waits %g ms", i, others[i]);
    }
    assert_true(mine > 3 && theirs > 3);
}

/* ---- a fault ---- */

static const char train60[] = "train=60st", kill_it[] = "inject.fault={device: 1, step: 30, kind: kill}";

static const char *plain_hash(void) {
    static const char *const none[] = {NULL};
    return training_hash(60, none);
}

/* Says it as it would of a rank that was lost. */
static void a_rank_is_killed(void **state) {
    (void)state;
    const char *const more[] = {"checkpoint=off", train60, kill_it, NULL};
    const char *dir = train(more);
    assert_int_equal(p.code, 75);
    training_says(&p, "planted on purpose: device 1's process is killed at step 30");
    training_says(&p, "rank 1 was killed by signal 9");
    training_gone();
    double steps[29];
    training_numbers(dir, "ms", steps, 29); /* and not before */
    assert_non_null(strstr(training_inspect(dir), "killed: rank 1\n"));
}

/* From the last checkpoint, and from the beginning where there is none. */
static void restarts_survive(void **state) {
    (void)state;
    static const char *const saves[] = {"checkpoint=20st", "checkpoint=off"};
    char right[80];
    snprintf(right, sizeof right, "%s", plain_hash());
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {saves[i], "run.restarts=1", train60, kill_it, NULL};
        train_well(more);
        training_says(&p, "rank 1 was killed by signal 9");
        training_says(&p, "starting again, for the 1. time of 1");
        assert_string_equal(hash(), right);
    }
}

/* All of dp is one process. What goes on in the run's folder is not struck again, even when the kill was faster than
 * the first checkpoint; a new run there is. */
static void dp_goes_on(void **state) {
    (void)state;
    static const char *const saves[] = {"checkpoint=20st", "checkpoint=off"};
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {"mode=dp", saves[i], train60, kill_it, NULL};
        const char *dir = train(more);
        assert_int_equal(p.code, -SIGKILL);
        training_resume(&p, dir, 60);
        assert_true(program_wait(&p, 60));
        assert_int_equal(p.code, 0);
        char right[80];
        snprintf(right, sizeof right, "%s", hash());
        assert_string_equal(right, plain_hash());
        training_start(&p, dir, more);
        assert_true(program_wait(&p, 60));
        assert_int_equal(p.code, i ? -SIGKILL : 73); /* no new one where checkpoints are */
    }
}

static void a_rank_is_stopped(void **state) {
    (void)state;
    const char *const more[] = {"checkpoint=off", train60, "comm.timeout=3s",
                                "inject.fault={device: 2, step: 30, kind: stop}", NULL};
    train(more);
    assert_int_equal(p.code, 75);
    training_says(&p, "error: rank 2 (");
    training_says(&p, "within 3 s; last seen in forward");
    training_says(&p, "rank 2 did not end by itself");
    training_gone();
}

static void a_gradient_is_spoilt(void **state) {
    (void)state;
    static const char *const modes[][4] = {
        {"mode=single", "devices=cpu:1", "threads=1", "inject.fault={step: 30, kind: nan}"},
        {"mode=dp", "devices=cpu:4", "dp.overlap=on", "inject.fault={device: 3, step: 30, kind: nan}"},
        {"mode=ddp", "devices=cpu:4", "ddp.overlap=true", "inject.fault={device: 2, step: 30, kind: nan}"},
        {"mode=ddp", "devices=cpu:2", "batch.accumulate=2", "inject.fault={device: 1, step: 30, kind: nan}"}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const char *const more[] = {modes[i][0], modes[i][1], modes[i][2], modes[i][3], train60, NULL};
        train(more);
        assert_int_equal(p.code, 1);
        training_says(&p, "diverged: the loss of step 31 is nan");
    }
}

static void only_one_device(void **state) {
    (void)state;
    static const char *const never[] = {"inject.fault={device: 1, step: 61, kind: kill}",
                                        "inject.fault={device: 1, step: 30, kind: none}"};
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {"checkpoint=off", train60, never[i], NULL};
        train_well(more);
        assert_string_equal(hash(), plain_hash());
        assert_int_equal(!strstr(p.err, "warning: step 61, of the fault, never comes"), i);
    }
}

/* ---- a mistake ---- */

/* A number that is wrong on purpose says so where it is read. */
static void told_where_it_is_measured(void **state) {
    (void)state;
    static const char *const mistakes[] = {"inject=none", "inject=padded_eval"};
    for (int i = 0; i < 2; i++) {
        const char *const more[] = {"train=10st", "data.val=57", mistakes[i], NULL};
        char dir[600];
        snprintf(dir, sizeof dir, "%s", scratch_path(train_well(more)));
        program_run(&p, 60, "eval", dir, "--json", NULL);
        assert_int_equal(p.code, 0);
        assert_float_equal(program_number(&p, "result.samples"), i ? 60 : 57, 0);
        assert_int_equal(!strstr(p.out, "\"inject\""), !i);
    }
    assert_string_equal(program_string(&p, "inject"), "padded_eval: validation counts repeated samples");
}

/* ---- what cannot be planted ---- */

static void refused(void **state) {
    (void)state;
    static const char *const wrong[][3] = {
        {"mode=dp", "inject.slow={device: 4, by: 50%}", "device 4 does not exist: there are 4 devices"},
        {"mode=dp", "inject.slow=-50%", "a share such as 50% or 0.5"},
        {"mode=dp", "inject.slow={by: 50%, chance: 101%}", "must be at most 100%, got"},
        {"mode=dp", "inject.fault=stop", "in mode 'dp' (set by --set) that is all of the run"},
        {"devices=cpu:1", "inject.fault=stop", "fault 'stop' with one device (set by --set)"},
        {"mode=ddp", "inject.fault={device: 4, kind: nan}", "device 4 does not exist: there are 4 devices"},
        {"mode=ddp", "inject.fault={step: 0, kind: nan}", "'inject.fault.step' must be an integer >= 1"},
        {"mode=dp", "inject.slow={device: 1}", "'inject.slow.device' does nothing without"},
        {"mode=dp", "inject.slow.chance=10%", "'inject.slow.chance' does nothing without"},
        {"mode=dp", "inject.fault.device=1", "'inject.fault.device' does nothing without"},
        {"mode=dp", "inject.fault={step: 3}", "without 'inject.fault.kind'"},
        {"ddp.sync=4", "inject.mistake=mean_of_means", "is the correct behaviour of local SGD"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const more[] = {wrong[i][0], wrong[i][1], steps40, NULL};
        train(more);
        assert_int_equal(p.code, 78);
        training_says(&p, wrong[i][2]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_by_its_share), cmocka_unit_test(others_wait),
        cmocka_unit_test(slow_now_and_then), cmocka_unit_test(a_rank_is_killed),
        cmocka_unit_test(restarts_survive),  cmocka_unit_test(dp_goes_on),
        cmocka_unit_test(a_rank_is_stopped), cmocka_unit_test(a_gradient_is_spoilt),
        cmocka_unit_test(only_one_device),   cmocka_unit_test(told_where_it_is_measured),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("inject", tests, NULL, NULL);
}
