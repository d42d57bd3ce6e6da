/* Runs that are killed or stopped at any moment go on from their last checkpoint, in another mode
 * and on another number of devices, and end with the weights and losses of the run that nobody
 * disturbed. */
#include "engine/base/rng.h"
#include "tests/harness/program.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KILLS = 20 };

static const char *const common[] = {"run",   "--json",
                                     "--set", "model={zoo: mlp, hidden: [128, 64], dropout: 0.1}",
                                     "--set", "data={set: digits, train: 500, val: 50}",
                                     "--set", "batch={size: 64, shards: 8}",
                                     "--set", "train=8ep",
                                     "--set", "threads=1",
                                     "--set", "optimizer={name: adam, lr: 0.002, clip: 1}",
                                     "--set", "schedule={name: cosine, warmup: 5st}",
                                     "--set", "checkpoint={every: 3st, resume: auto}",
                                     "--set", "eval=end",
                                     "--set", "log.every=1st"};
enum { COMMON = sizeof common / sizeof *common };

static void start(struct program *p, const char *dir, const char *mode, int devices) {
    static char set_dir[600], set_mode[64], set_devices[64];
    const char *words[COMMON + 8];
    memcpy(words, common, sizeof common);
    snprintf(set_dir, sizeof set_dir, "log.dir=%s", dir);
    snprintf(set_mode, sizeof set_mode, "mode=%s", mode);
    snprintf(set_devices, sizeof set_devices, "devices=cpu:%d", devices);
    const char *more[] = {"--set", set_dir, "--set", set_mode, "--set", set_devices, NULL};
    memcpy(words + COMMON, more, sizeof more);
    program_start(p, words);
}

static void finish(struct program *p) {
    if (!program_wait(p, 120)) fail_msg("hung:\n%s", p->err);
    if (p->code != 0) fail_msg("exit code %d:\n%s", p->code, p->err);
}

static struct program control, other;

static void assert_same(const char *what) {
    if (strcmp(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256")) != 0)
        fail_msg("%s: weights differ", what);
    if (strcmp(program_string(&control, "losses_sha256"), program_string(&other, "losses_sha256")) != 0)
        fail_msg("%s: losses differ", what);
}

static int setup(void **state) {
    (void)state;
    start(&control, scratch_path("control"), "single", 1);
    finish(&control);
    return 0;
}

static const struct {
    const char *mode;
    int devices;
} places[] = {{"single", 1}, {"dp", 2}, {"ddp", 2}, {"dp", 4}, {"ddp", 3}, {"ddp", 8}, {"dp", 5}, {"ddp", 4}};
enum { PLACES = sizeof places / sizeof *places };

static void killed_at_random(void **state) {
    (void)state;
    struct rng_key key = rng_key(20, RNG_TEST);
    int resumed = 0;
    for (int i = 0; i < KILLS; i++) {
        char dir[64], what[128];
        int a = (int)rng_below(key, (uint64_t)i, 0, PLACES), b = (int)rng_below(key, (uint64_t)i, 1, PLACES);
        int step = 1 + (int)rng_below(key, (uint64_t)i, 2, 60);
        snprintf(dir, sizeof dir, "kill-%d", i);
        snprintf(what, sizeof what, "%s:%d killed at step %d, resumed as %s:%d", places[a].mode, places[a].devices,
                 step, places[b].mode, places[b].devices);
        start(&other, scratch_path(dir), places[a].mode, places[a].devices);
        char text[32];
        snprintf(text, sizeof text, "step=%d/", step);
        program_wait_text(&other, text, 60);
        kill(other.pid, SIGKILL);
        assert_true(program_wait(&other, 10));
        for (int k = 0; k < 2000 && program_orphans() > 0; k++) usleep(1000);
        assert_int_equal(program_orphans(), 0);
        start(&other, scratch_path(dir), places[b].mode, places[b].devices);
        finish(&other);
        resumed += strstr(other.err, "resuming from") != NULL;
        assert_same(what);
    }
    assert_true(resumed > KILLS / 2); /* the others were killed before their first checkpoint */
}

static void stopped_politely(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    for (int i = 0; i < 4; i++)
        for (size_t m = 0; m < 3; m++) {
            char dir[64];
            snprintf(dir, sizeof dir, "stop-%d-%zu", i, m);
            start(&other, scratch_path(dir), places[m].mode, places[m].devices);
            program_wait_text(&other, "step=10/", 60);
            kill(other.pid, signals[i]);
            assert_true(program_wait(&other, 10));
            assert_int_equal(other.code, signals[i] == SIGINT ? 130 : 143);
            start(&other, scratch_path(dir), places[(m + 1) % 3].mode, places[(m + 1) % 3].devices);
            finish(&other);
            assert_non_null(strstr(other.err, "resuming from"));
            assert_same(dir);
        }
}

/* What does not care for its terminal (nohup) goes on when that is closed. */
static void an_ignored_hangup_stays_ignored(void **state) {
    (void)state;
    (void)signal(SIGHUP, SIG_IGN);
    for (size_t m = 0; m < 3; m++) {
        char dir[64];
        snprintf(dir, sizeof dir, "nohup-%zu", m);
        start(&other, scratch_path(dir), places[m].mode, places[m].devices);
        program_wait_text(&other, "step=10/", 60);
        kill(other.pid, SIGHUP);
        finish(&other);
        assert_same(dir);
    }
    (void)signal(SIGHUP, SIG_DFL);
}

static void second_interrupt_ends_at_once(void **state) {
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        char dir[64];
        snprintf(dir, sizeof dir, "twice-%zu", m);
        start(&other, scratch_path(dir), places[m].mode, places[m].devices);
        program_wait_text(&other, "step=5/", 60);
        kill(other.pid, SIGINT);
        kill(other.pid, SIGINT);
        assert_true(program_wait(&other, 5));
        assert_int_equal(other.code, 130);
        for (int k = 0; k < 2000 && program_orphans() > 0; k++) usleep(1000);
        assert_int_equal(program_orphans(), 0);
    }
}

static void another_experiment_is_refused(void **state) {
    (void)state;
    char dir[600], log[600];
    snprintf(dir, sizeof dir, "checkpoint.resume=%s", scratch_path("control"));
    snprintf(log, sizeof log, "log.dir=%s", scratch_path("refused"));
    program_run(&other, 30, "run", "--set", "model={zoo: mlp, hidden: [128, 64], dropout: 0.1}", "--set",
                "data={set: digits, train: 500, val: 50}", "--set", "batch={size: 32, shards: 8}", "--set", dir,
                "--set", "optimizer=adam", "--set", "devices=cpu:1", "--set", "mode=single", "--set", log, NULL);
    assert_int_equal(other.code, 78);
    assert_non_null(strstr(other.err, "batch"));
    program_run(&other, 30, "run", "--set", "checkpoint.resume=/no/such/folder", "--set", log, NULL);
    assert_int_equal(other.code, 66);
}

/* The refused settings stay in no file that the next one reads. */
static void a_refused_resume_leaves_the_run_as_it_was(void **state) {
    (void)state;
    const char *dir = scratch_path("control");
    program_run(&other, 30, "run", dir, "--set", "seed=7", "--set", "train=9ep", NULL);
    assert_int_equal(other.code, 78);
    assert_non_null(strstr(other.err, "seed"));
    program_run(&other, 30, "run", dir, NULL);
    assert_int_equal(other.code, 0);
}

/* By its directory alone: a run of one device, stopped in the middle, ends as two processes. */
static void a_directory_goes_on_in_another_mode(void **state) {
    (void)state;
    static char dir[600], set[620];
    const char *words[COMMON + 8];
    memcpy(words, common, sizeof common);
    snprintf(dir, sizeof dir, "%s", scratch_path("elsewhere"));
    snprintf(set, sizeof set, "log.dir=%s", dir);
    const char *more[] = {"--set", set, "--mode", "single", "--devices", "cpu:1", NULL};
    memcpy(words + COMMON, more, sizeof more);
    program_start(&other, words);
    program_wait_text(&other, "step=10/", 60);
    kill(other.pid, SIGTERM);
    assert_true(program_wait(&other, 10));
    program_run(&other, 120, "run", dir, "--json", "--mode", "ddp", "--devices", "cpu:2", NULL);
    if (other.code != 0) fail_msg("exit code %d:\n%s", other.code, other.err);
    assert_same("a directory in another mode");
}

/* The link of the mode before was chosen, and binds nobody, whatever else of the exchange is set. */
static void other_keys_leave_the_link_to_choose(void **state) {
    (void)state;
    static const char *const keys[] = {"comm.timeout=30s", "comm={timeout: 30s}", "comm.order=auto"};
    char dir[600], set[620];
    snprintf(dir, sizeof dir, "%s", scratch_path("linked"));
    snprintf(set, sizeof set, "log.dir=%s", dir);
    program_run(&other, 60, "run", "--mode", "ddp", "--devices", "cpu:2", "--set", "train=3st", "--set", set, NULL);
    assert_int_equal(other.code, 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        program_run(&other, 60, "run", dir, "--mode", i % 2 ? "ddp" : "dp", "--set", keys[i], NULL);
        if (other.code != 0) fail_msg("%s: exit code %d: %s", keys[i], other.code, other.err);
    }
    program_run(&other, 60, "run", dir, "--mode", "dp", "--set", "comm.link=shm", NULL);
    assert_int_equal(other.code, 78);
}

/* Where a network began is no part of what it is: its run goes on without the file. */
static void first_weights_are_no_part_of_a_run(void **state) {
    (void)state;
    static char model[700], set[620], checkpoint[] = "checkpoint={every: 1ep, resume: auto}";
    snprintf(set, sizeof set, "log.dir=%s", scratch_path("begun"));
    snprintf(model, sizeof model, "model={zoo: mlp, hidden: [128, 64], dropout: 0.1, init: %s}",
             scratch_path("control"));
    for (int i = 0; i < 2; i++) {
        program_run(&other, 60, "run", "--json", "--set",
                    i ? "model={zoo: mlp, hidden: [128, 64], dropout: 0.1}" : model, "--set",
                    "data={set: digits, train: 500, val: 50}", "--set", i ? "train=2ep" : "train=1ep", "--set",
                    checkpoint, "--set", set, "--set", "mode=single", "--set", "devices=cpu:1", NULL);
        if (other.code != 0) fail_msg("exit code %d:\n%s", other.code, other.err);
        assert_true((strstr(other.err, "resuming from") != NULL) == (i == 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_random),
        cmocka_unit_test(stopped_politely),
        cmocka_unit_test(an_ignored_hangup_stays_ignored),
        cmocka_unit_test(second_interrupt_ends_at_once),
        cmocka_unit_test(another_experiment_is_refused),
        cmocka_unit_test(a_refused_resume_leaves_the_run_as_it_was),
        cmocka_unit_test(a_directory_goes_on_in_another_mode),
        cmocka_unit_test(first_weights_are_no_part_of_a_run),
        cmocka_unit_test(other_keys_leave_the_link_to_choose),
    };
    return cmocka_run_group_tests_name("resume", tests, setup, NULL);
}
