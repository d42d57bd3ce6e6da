/* What happens between gradient and weights: groups of weights with keys of their own, frozen ones, their average. Every mode, any
 * number of devices and any interruption give the same bits, and what stays as it is does. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
#define LAYERS                                                                                                         \
    "{layers: [{conv2d: {out: 8, kernel: 3, pad: 1, name: conv0}}, {batchnorm: {name: bn0}}, relu, {maxpool: 2}, "     \
    "{conv2d: {out: 8, kernel: 3, name: conv1}}, relu, flatten, {linear: {units: 32, name: fc1}}, relu, {linear: "     \
    "{units: 10, name: fc2}}]}"
#define MODEL "model=" LAYERS

static const char *place_dir(const char *what) {
    static char dir[700];
    static int serial;
    snprintf(dir, sizeof dir, "log.dir=%s-%d", scratch_path(what), serial++);
    return dir;
}

/* The averaged weights, too. */
static void assert_same(const char *what) {
    program_assert_same(&control, &other, what);
    assert_string_equal(program_string(&control, "ema_sha256"), program_string(&other, "ema_sha256"));
    if (program_number(&control, "val.loss") != program_number(&other, "val.loss")) fail_msg("%s: val.loss", what);
}

static void run_at(struct program *p, const struct place *at, const char *optimizer, const char *dir,
                   const char *more) {
    program_train(p,
                  SETS(MODEL, "data={set: digits, train: 300, val: 70}", "batch={size: 64, shards: 8}", "train=2ep",
                       "threads=1", "ddp.bucket={first: 1KB, cap: 9KB}", "ema=0.8", optimizer),
                  SETS(at->mode, at->devices, at->more, dir, more));
}

static void same_bits_everywhere(void **state) {
    (void)state;
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++)
        for (int i = 0; i < PLACES; i++) {
            run_at(i ? &other : &control, &places[i], optimizers[o], place_dir("same"), "checkpoint=off");
            if (i) assert_same(places[i].more);
        }
    run_at(&control, &places[0], optimizers[0], place_dir("kept"), "recompute=1");
    run_at(&other, &places[0], optimizers[0], place_dir("recomputed"), "recompute=auto");
    assert_same("recompute");
    for (int i = 0; i < PLACES; i += 4) { /* backward then goes to the end */
        run_at(i ? &other : &control, &places[i], optimizers[0], place_dir("sync"), "sync_batchnorm=true");
        if (i) assert_same("sync_batchnorm");
    }
}

static double bytes_sent(const char *optimizer) {
    struct pool *pool;
    assert_ok(pool_create(&pool));
    run_at(&other, &(struct place){"mode=ddp", "devices=cpu:2", "ema=off"}, optimizer, place_dir("bytes"),
           "ddp.bucket=0");
    const struct json_value *sent = json_get(json_get(program_json(&other, pool), "bytes"), "sent");
    double bytes = (double)sent->children[0].integer;
    pool_free(pool);
    return bytes;
}

/* Where nothing is trained from some place of the arena on, buckets behind it do not travel: fc2 has 330 of 44,314
 * weights. */
static void frozen_buckets_stay(void **state) {
    (void)state;
    double all = bytes_sent("optimizer=sgd"),
           some = bytes_sent("optimizer={name: sgd, freeze: [\"conv*\", \"bn*\", \"fc1.*\"]}");
    if (!(some > 0 && some < all / 100)) fail_msg("%g bytes, of %g", some, all);
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
            assert_same(places[i + 1].more);
        }
    }
}

/* The others go on from the last step that has ended, whose evaluation counts once, and end as if nothing had been. */
static void a_lost_device_changes_nothing(void **state) {
    (void)state;
    static const char until[] = "train={for: 30st, patience: {val.loss: 2, min_delta: 0.2}}";
    const struct place whole = {"mode=single", "devices=cpu:1", until},
                       less = {"mode=ddp", "devices=cpu:3", "run.elastic=1"};
    run_at(&control, &whole, optimizers[0], place_dir("undisturbed"), "eval=3st");
    program_train(&other,
                  SETS(MODEL, "data={set: digits, train: 300, val: 70}", "batch={size: 64, shards: 8}", "threads=1",
                       "ema=0.8", optimizers[0], until),
                  SETS(less.mode, less.devices, less.more, "eval=3st", "checkpoint=4st",
                       "inject.fault={kind: kill, device: 2, step: 7}", place_dir("disturbed")));
    assert_same("after a loss");
    assert_string_equal(program_string(&other, "ended"), program_string(&control, "ended"));
    assert_string_equal(program_string(&other, "ended"), "no improvement");
}

/* What eval measures is what the run has measured; --raw is another network. */
static void eval_takes_the_average(void **state) {
    (void)state;
    const char *dir = place_dir("asked");
    run_at(&control, &places[0], optimizers[0], dir, "ema=0.95");
    const double loss = program_number(&control, "val.loss");
    program_run(&other, 60, "eval", "--json", dir + strlen("log.dir="), NULL);
    assert_int_equal(other.code, 0);
    assert_true(program_number(&other, "result.loss") == loss);
    program_run(&other, 60, "eval", "--json", dir + strlen("log.dir="), "--mode", "dp", "--devices", "cpu:2", NULL);
    assert_int_equal(other.code, 0);
    assert_true(program_number(&other, "result.loss") == loss);
    program_run(&other, 60, "eval", "--json", "--raw", dir + strlen("log.dir="), NULL);
    assert_int_equal(other.code, 0);
    assert_true(program_number(&other, "result.loss") != loss);
    program_run(&other, 60, "model", "export", dir + strlen("log.dir="), "--raw", "-o", scratch_path("net.onnx"), NULL);
    assert_int_equal(other.code, 0);
    program_run(&other, 60, "predict", "--raw", dir + strlen("log.dir="), "val:0", NULL);
    assert_int_equal(other.code, 0);
}

/* A file that the manifest names is never replaced by another without a word. */
static void a_lost_average_is_told(void **state) {
    (void)state;
    const char *dir = place_dir("lost");
    run_at(&control, &places[0], optimizers[0], dir, "checkpoint=1ep");
    char step[800], init[900], file[900], out[600];
    snprintf(step, sizeof step, "%s/ckpt/step-%09d", dir + strlen("log.dir="), (int)program_number(&control, "steps"));
    snprintf(file, sizeof file, "%s/ema.safetensors", step);
    snprintf(init, sizeof init, "model={zoo: mlp, init: '%s'}", step);
    snprintf(out, sizeof out, "%s", scratch_path("lost.onnx"));
    assert_int_equal(unlink(file), 0);
    const char *const words[][8] = {{"eval", dir + strlen("log.dir="), "--checkpoint", step},
                                    {"model", "export", step, "-o", out},
                                    {"run", "--set", init, "--set", "train=2st"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        program_run(&other, 60, words[i][0], words[i][1], words[i][2], words[i][3], words[i][4], NULL);
        if (other.code != 65 || !strstr(other.err, "lacks ema.safetensors, which its manifest names"))
            fail_msg("%s: %d, %s", words[i][0], other.code, other.err);
    }
    assert_int_not_equal(access(out, F_OK), 0);
    program_run(&other, 60, "eval", "--raw", dir + strlen("log.dir="), "--checkpoint", step, NULL);
    assert_int_equal(other.code, 0);
}

static void assert_refused(const char *const sets[3], const char *words) {
    program_run(&other, 60, "run", "--set", "data={set: digits, train: 300, val: 70}", "--set", "train=2st", "--set",
                sets[0], "--set", sets[1], "--set", sets[2], "--set", place_dir("refused"), NULL);
    if (other.code != 78 || !strstr(other.err, words)) fail_msg("%s: %d, %s", words, other.code, other.err);
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    assert_refused(SETS("ema=0.9", "devices=cpu:2", "ddp.sync=2"), "ema averages the weights of every step");
    assert_refused(SETS("ema=0.9", "mode=dp", "dp={staleness: 1, server: dedicated}"), "ema");
    assert_refused(SETS("ema=1", "mode=single", "devices=cpu:1"), "'ema' must be at most");
    assert_refused(SETS("optimizer.freeze=fc1.wieght", "mode=single", "devices=cpu:1"), "did you mean 'fc1.weight'?");
    assert_refused(SETS("optimizer.groups=[{match: x.*}]", "mode=single", "devices=cpu:1"), "no tensor of the model");
    assert_refused(SETS("optimizer.freeze=[\"*\"]", "mode=single", "devices=cpu:1"), "leaves nothing to train");
}

/* What decides the numbers may not change on the way. */
static void a_resume_compares(void **state) {
    (void)state;
    static const char *const changes[][2] = {
        {"ema=0.7", "ema was '0.8"}, {"ema=off", "ema was '0.8"}, {"optimizer.freeze=fc1.bias", "freeze was"}};
    char resume[800];
    const char *first = place_dir("before");
    run_at(&control, &places[0], optimizers[0], first, "train=2st");
    snprintf(resume, sizeof resume, "checkpoint.resume=%s", first + strlen("log.dir="));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        program_run(&other, 60, "run", "--set", MODEL, "--set", "data={set: digits, train: 300, val: 70}", "--set",
                    "batch={size: 64, shards: 8}", "--set", "train=4st", "--set", "mode=single", "--set",
                    "devices=cpu:1", "--set", optimizers[0], "--set", "ema=0.8", "--set", changes[i][0], "--set",
                    resume, "--set", place_dir("after"), NULL);
        if (other.code != 78 || !strstr(other.err, changes[i][1])) fail_msg("%d, %s", other.code, other.err);
    }
}

static double state_bytes(const struct program *p) {
    struct pool *pool;
    assert_ok(pool_create(&pool));
    double bytes = (double)json_get(program_json(p, pool), "optimizer_bytes")->children[0].integer;
    pool_free(pool);
    return bytes;
}

/* What an optimizer works on as a whole is so wherever it updates: the same bits there, also after a resume elsewhere, and
 * a refusal by name where it would be cut. */
static void check_whole(const char *name) {
    char optimizer[200], words[100], plain_words[100];
    snprintf(optimizer, sizeof optimizer,
             "optimizer={name: %s, lr: 0.01, clip: 0.5, groups: [{match: \"*.bias\", weight_decay: 0}]}", name);
    snprintf(words, sizeof words, "optimizer '%s' works on whole matrices", name);
    snprintf(plain_words, sizeof plain_words, "optimizer %s works on whole matrices", name);
    static const char *const cuts[][3] = {{"mode=dp", "devices=cpu:4", "dp.server=sharded"},
                                          {"mode=ddp", "devices=cpu:4", "optimizer.shard=true"},
                                          {"mode=ps", "devices=cpu:2", "ps.servers=1"},
                                          {"mode=fsdp", "devices=cpu:2", "seed=0"}};
    static const struct place whole[] = {{"mode=single", "devices=cpu:1", "threads=2"},
                                         {"mode=dp", "devices=cpu:3", "dp.server=shared"},
                                         {"mode=dp", "devices=cpu:2", "dp.server=dedicated"},
                                         {"mode=ddp", "devices=cpu:4", "seed=0"},
                                         {"mode=pipeline", "devices=cpu:2", "seed=0"}};
    enum { WHOLE = sizeof whole / sizeof *whole };
    char resume[800];
    run_at(&control, &places[0], optimizer, place_dir("whole"), "checkpoint=off");
    for (int i = 0; i < WHOLE; i++) {
        const char *first = place_dir("whole-first");
        run_at(&other, &whole[i], optimizer, place_dir("whole"), "checkpoint=off");
        assert_same(whole[i].mode);
        run_at(&other, &whole[i], optimizer, first, "train=7st");
        snprintf(resume, sizeof resume, "checkpoint={resume: '%s'}", first + strlen("log.dir="));
        run_at(&other, &whole[(i + 1) % WHOLE], optimizer, place_dir("whole-second"), resume);
        assert_same("resumed");
    }
    run_at(&other, &places[0], "optimizer={name: adamw, lr: 0.01, clip: 0.5, betas: [0.9, 0.95]}", place_dir("adamw"),
           "checkpoint=off");
    assert_string_not_equal(program_string(&other, "weights_sha256"), program_string(&control, "weights_sha256"));
    const char *dir = place_dir("simulated");
    run_at(&other, &places[0], optimizer, dir, "checkpoint=off");
    program_run(&other, 60, "simulate", dir + strlen("log.dir="), "--devices", "2", NULL);
    assert_true(other.code == 0 && strstr(other.out, "ddp") && !strstr(other.out, "fsdp"));
    program_run(&other, 60, "simulate", dir + strlen("log.dir="), "--devices", "2", "--mode", "ps", NULL);
    assert_true(other.code == 78 && strstr(other.err, plain_words));
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        program_run(&other, 60, "run", "--set", optimizer, "--set", cuts[i][0], "--set", cuts[i][1], "--set",
                    cuts[i][2], "--set", "data={set: digits, train: 300, val: 70}", "--set", place_dir("refused"),
                    NULL);
        if (other.code != 78 || !strstr(other.err, words)) fail_msg("%s: %d, %s", cuts[i][0], other.code, other.err);
    }
}

/* conv0 and fc1 are its, fc2 is AdamW's. */
static void muon_has_whole_matrices(void **state) {
    (void)state;
    check_whole("muon");
}

/* Of each matrix of the last two dimensions it keeps R + C numbers, of a vector all; a summary foretells as many. */
static void adafactor_keeps_little(void **state) {
    (void)state;
    const double conv0 = 8 * (3 + 3), conv1 = 64 * (3 + 3), fc1 = 32 + 1152, fc2 = 10 + 32,
                 vectors = 8 + 8 + 8 + 8 + 32 + 10;
    const double bytes = 4 * (conv0 + conv1 + fc1 + fc2 + vectors);
    check_whole("adafactor");
    run_at(&control, &places[0], "optimizer=adafactor", place_dir("little"), "checkpoint=off");
    assert_true(state_bytes(&control) == bytes);
    FILE *f = fopen(scratch_path("little.yaml"), "w");
    fputs("{data: digits, optimizer: adafactor, model: " LAYERS "}\n", f);
    assert_int_equal(fclose(f), 0);
    program_run(&other, 60, "model", "summary", "--json", scratch_path("little.yaml"), NULL);
    assert_int_equal(other.code, 0);
    assert_true(program_number(&other, "bytes.optimizer") == bytes);
    program_run(&other, 60, "run", "--set", "mode=ddp", "--set", "devices=cpu:2", "--set", "optimizer=adafactor",
                "--set", "ddp.sync={every: 2, state: average}", "--set", place_dir("refused"), NULL);
    assert_true(other.code == 78 && strstr(other.err, "make no mean of what they stand for"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(frozen_buckets_stay),
        cmocka_unit_test(resumes_anywhere),
        cmocka_unit_test(a_lost_device_changes_nothing),
        cmocka_unit_test(eval_takes_the_average),
        cmocka_unit_test(a_lost_average_is_told),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_resume_compares),
        cmocka_unit_test(muon_has_whole_matrices),
        cmocka_unit_test(adafactor_keeps_little),
    };
    return cmocka_run_group_tests_name("update", tests, NULL, NULL);
}
