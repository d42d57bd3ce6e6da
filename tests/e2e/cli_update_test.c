/* What happens between gradient and weights: groups of weights with keys of their own, and frozen ones. Every mode, any
 * number of devices and any interruption give the same bits, and what stays as it is does. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static struct program control, other;

struct place {
    const char *mode, *devices, *more;
};
static const struct place places[] = {
    {"mode=single", "devices=cpu:1", "seed=0"},
    {"mode=dp", "devices=cpu:3", "dp.server=shared"},
    {"mode=dp", "devices=cpu:2", "dp.server=dedicated"},
    {"mode=dp", "devices=cpu:4", "dp.server=sharded"},
    {"mode=ddp", "devices=cpu:2", "ddp.overlap=false"},
    {"mode=ddp", "devices=cpu:4", "optimizer.shard=true"},
    {"mode=ddp", "devices=cpu:8", "comm.algorithm=direct"},
};
enum { PLACES = sizeof places / sizeof *places };

/* The slowest part of its norms and numbers is checked by lamb; conv0 ends backward early, and fc1.weight is frozen
 * between weights that are not. */
static const char *const optimizers[] = {
    "optimizer={name: adamw, lr: 0.002, weight_decay: 0.1, clip: 0.5, freeze: [\"conv0.*\", fc1.weight], groups: "
    "[{match: "
    "\"*.bias\", weight_decay: 0}, {match: \"fc*\", lr: 0.001, betas: [0.8, 0.9]}]}",
    "optimizer={name: lamb, lr: 0.01, clip: 1, freeze: \"fc1.*\", groups: [{match: [\"conv?.weight\"], lr: 0.02, "
    "weight_decay: 0.1}]}",
};
#define MODEL                                                                                                          \
    "model={layers: [{conv2d: {out: 8, kernel: 3, pad: 1, name: conv0}}, {batchnorm: {name: bn0}}, relu, {maxpool: "   \
    "2}, "                                                                                                             \
    "{conv2d: {out: 8, kernel: 3, name: conv1}}, relu, flatten, {linear: {units: 32, name: fc1}}, relu, {linear: "     \
    "{units: 10, name: fc2}}]}"

static const char *place_dir(const char *what) {
    static char dir[700];
    static int serial;
    snprintf(dir, sizeof dir, "log.dir=%s-%d", scratch_path(what), serial++);
    return dir;
}

static void run_at(struct program *p, const struct place *at, const char *optimizer, const char *dir,
                   const char *more) {
    program_train(p,
                  SETS(MODEL, "data={set: digits, train: 300, val: 70}", "batch={size: 64, shards: 8}", "train=2ep",
                       "threads=1", "ddp.bucket={first: 1KB, cap: 9KB}", optimizer),
                  SETS(at->mode, at->devices, at->more, dir, more));
}

static void same_bits_everywhere(void **state) {
    (void)state;
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++)
        for (int i = 0; i < PLACES; i++) {
            run_at(i ? &other : &control, &places[i], optimizers[o], place_dir("same"), "checkpoint=off");
            if (i) program_assert_same(&control, &other, places[i].more);
        }
    for (int i = 0; i < PLACES; i += 4) { /* backward then goes to the end */
        run_at(i ? &other : &control, &places[i], optimizers[0], place_dir("sync"), "sync_batchnorm=true");
        if (i) program_assert_same(&control, &other, "sync_batchnorm");
    }
}

/* Half of a run in one place, the rest in the next one. */
static void resumes_anywhere(void **state) {
    (void)state;
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        run_at(&control, &places[0], optimizers[o], place_dir("whole"), "checkpoint=off");
        for (int i = 1; i + 1 < PLACES; i++) {
            char resume[800];
            const char *first = place_dir("first");
            snprintf(resume, sizeof resume, "checkpoint={every: 3st, resume: '%s'}", first + strlen("log.dir="));
            run_at(&other, &places[i], optimizers[o], first, "train=7st");
            run_at(&other, &places[i + 1], optimizers[o], place_dir("second"), resume);
            assert_non_null(strstr(other.err, "resuming from"));
            program_assert_same(&control, &other, places[i + 1].more);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(resumes_anywhere),
    };
    return cmocka_run_group_tests_name("update", tests, NULL, NULL);
}
