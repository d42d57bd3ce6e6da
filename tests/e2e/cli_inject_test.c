/* What is planted on purpose shows where it should, and nowhere else: a slow device is slow by so
 * much and costs no bit. Times are of a busy machine, so shares are large and bounds wide. */
#include "tests/harness/training.h"

#include "engine/base/file.h"

#include <stdio.h>
#include <stdlib.h>
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

/* The least of some runs, which is the one that was disturbed least. */
static double least_computing(const char *slow) {
    const char *const more[] = {"mode=single", "devices=cpu:1", steps40, slow, NULL};
    double least = 1e9;
    for (int i = 0; i < 4; i++) {
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
    assert_in_range((uintmax_t)(slow / plain * 10), 40, 300);
    assert_string_equal(hash(), bits);
    assert_string_equal(program_string(&p, "inject"), "device 0 computes 900 % longer");
    training_says(&p, "warning: planted on purpose: device 0 computes 900 % longer");
}

/* Device 0, whose times these are, waits for device 1. */
static void others_wait(void **state) {
    (void)state;
    static const char *const kinds[][2] = {{"mode=dp", "dp.server=shared"},
                                           {"mode=dp", "dp.server=dedicated"},
                                           {"mode=ddp", "ddp.overlap=true"},
                                           {"mode=ddp", "ddp.overlap=false"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *const more[] = {kinds[i][0],
                                    kinds[i][1],
                                    "devices=cpu:2",
                                    steps40,
                                    "inject.slow={device: 1, by: 3000%}",
                                    NULL};
        train_well(more);
        double waited = program_number(&p, "time_s.comm_exposed");
        print_message("%s %s: computes %.3f s, waits %.3f s\n", kinds[i][0], kinds[i][1],
                      computing(), waited);
        assert_true(waited > 5 * computing());
    }
}

/* Milliseconds of a phase in each step, as metrics.jsonl has them. */
static void read_phase(const char *dir, const char *phase, double ms[STEPS]) {
    char path[700], key[32], *text;
    size_t n;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    snprintf(path, sizeof path, "%s/metrics.jsonl", scratch_path(dir));
    assert_ok(file_read(path, 1 << 22, pool, &text, &n));
    snprintf(key, sizeof key, "\"%s\":", phase);
    const char *at = text;
    for (int i = 0; i < STEPS; i++) {
        at = strstr(at, "\"phase_ms\"");
        assert_non_null(at);
        at = strstr(at, key);
        assert_non_null(at);
        ms[i] = atof(at += strlen(key));
    }
    pool_free(pool);
}

/* Each device has slow steps of its own, and the same in every run. */
static void slow_now_and_then(void **state) {
    (void)state;
    enum { LATE_MS = 30 };
    static double own[2][STEPS], others[2][STEPS];
    const char *const more[] = {"mode=dp", "devices=cpu:2", steps40,
                                "inject.slow={device: all, by: 100000%, chance: 25%}", NULL};
    for (int run = 0; run < 2; run++) {
        const char *dir = train_well(more);
        read_phase(dir, "backward", own[run]);
        read_phase(dir, "comm", others[run]);
    }
    int mine = 0, theirs = 0, same = 0;
    for (int i = 0; i < STEPS; i++) {
        bool late = own[0][i] > LATE_MS;
        mine += late;
        theirs += !late && others[0][i] > LATE_MS;
        same += late == (own[1][i] > LATE_MS);
    }
    print_message("late steps: %d of device 0, %d more of device 1, %d alike\n", mine, theirs,
                  same);
    assert_in_range(mine, 3, 20);
    assert_in_range(theirs, 2, 20);
    assert_in_range(same, STEPS - 2, STEPS);
}

/* ---- what cannot be planted ---- */

static void refused(void **state) {
    (void)state;
    static const char *const wrong[][3] = {
        {"mode=dp", "inject.slow={device: 4, by: 50%}", "there is no device 4: 4 devices"},
        {"mode=dp", "inject.slow=-50%", "a share such as 50% or 0.5"},
        {"mode=dp", "inject.slow={by: 50%, chance: 101%}", "must be at most 100%, got"},
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
        cmocka_unit_test(slow_by_its_share),
        cmocka_unit_test(others_wait),
        cmocka_unit_test(slow_now_and_then),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("inject", tests, NULL, NULL);
}
