/* The promise again, for what people train: a residual network and a transformer, in f32 and in bf16,
 * give the same weights and losses bit for bit in single, dp and ddp on 1, 2, 4 and 8 devices, and
 * whether every rank keeps the whole state of the optimizer or a slice of it. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static const char *const networks[][3] = {
    {"resnet20", "model=resnet20", "data={set: shapes, train: 40, val: 16}"},
    {"gpt", "model={zoo: gpt, depth: 2, width: 32, heads: 2, dropout: 0.1}",
     "data={set: grammar, context: 32, train: 8000, val: 4000}"},
};
static const char *const optimizers[] = {
    "optimizer={name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 1e-4, clip: 1}",
    "optimizer={name: adamw, lr: 1e-3, decay: matrices, clip: 1}",
};
static const char *const places[][2] = {
    {"mode=dp", "devices=cpu:1"},  {"mode=dp", "devices=cpu:2"},  {"mode=dp", "devices=cpu:4"},
    {"mode=dp", "devices=cpu:8"},  {"mode=ddp", "devices=cpu:1"}, {"mode=ddp", "devices=cpu:2"},
    {"mode=ddp", "devices=cpu:4"}, {"mode=ddp", "devices=cpu:8"},
};

static struct program control, other;

/* 16 samples in 8 shards; the third step of resnet20 has 8. */
static void run(struct program *p, int network, const char *precision, const char *mode, const char *devices,
                const char *extra) {
    static int serial;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("run-"), ++serial);
    program_run(p, 120, "run", "--json", "--quiet", "--set", networks[network][1], "--set", networks[network][2],
                "--set", "batch={size: 16, shards: 8}", "--set", "train=3st", "--set", "threads=1", "--set",
                "checkpoint=off", "--set", optimizers[network], "--set", precision, "--set", dir, "--set", mode,
                "--set", devices, "--set", extra, NULL);
    if (p->code != 0)
        fail_msg("%s %s %s %s: exit code %d\n%s", networks[network][0], precision, mode, devices, p->code, p->err);
}

static void assert_same(int network, const char *precision, const char *mode, const char *devices) {
    static const char *const keys[] = {"weights_sha256", "losses_sha256"};
    for (int i = 0; i < 2; i++)
        if (strcmp(program_string(&control, keys[i]), program_string(&other, keys[i])) != 0)
            fail_msg("%s, %s, %s, %s: %s differs", networks[network][0], precision, mode, devices, keys[i]);
    assert_true(program_number(&control, "val.loss") == program_number(&other, "val.loss"));
}

static void matrix(int network, const char *precision) {
    run(&control, network, precision, "mode=single", "devices=cpu:1", "log.every=1ep");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        run(&other, network, precision, places[i][0], places[i][1], "log.every=1ep");
        assert_same(network, precision, places[i][0], places[i][1]);
    }
    for (int devices = 2; devices <= 8; devices *= 2) {
        char set[32];
        snprintf(set, sizeof set, "devices=cpu:%d", devices);
        run(&other, network, precision, "mode=ddp", set, "optimizer.shard=true");
        assert_same(network, precision, "sharded ddp", set);
    }
    run(&other, network, precision, "mode=dp", "devices=cpu:4", "dp.server=sharded");
    assert_same(network, precision, "sharded dp", "devices=cpu:4");
}

static void resnet_f32(void **state) {
    (void)state;
    matrix(0, "precision=f32");
}
static void resnet_bf16(void **state) {
    (void)state;
    matrix(0, "precision=bf16");
}
static void gpt_f32(void **state) {
    (void)state;
    matrix(1, "precision=f32");
}
static void gpt_bf16(void **state) {
    (void)state;
    matrix(1, "precision=bf16");
}

/* Precision is a part of what is computed: other bits, nearly the same loss. */
static void bf16_is_not_f32(void **state) {
    (void)state;
    for (int network = 0; network < 2; network++) {
        run(&control, network, "precision=f32", "mode=single", "devices=cpu:1", "log.every=1ep");
        run(&other, network, "precision=bf16", "mode=single", "devices=cpu:1", "log.every=1ep");
        assert_string_not_equal(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256"));
        double f32 = program_number(&control, "val.loss"), bf16 = program_number(&other, "val.loss");
        if (!(bf16 > f32 * 0.9 && bf16 < f32 * 1.1))
            fail_msg("%s: loss %g in f32, %g in bf16", networks[network][0], f32, bf16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet_f32), cmocka_unit_test(resnet_bf16),     cmocka_unit_test(gpt_f32),
        cmocka_unit_test(gpt_bf16),   cmocka_unit_test(bf16_is_not_f32),
    };
    return cmocka_run_group_tests_name("same bits of models", tests, NULL, NULL);
}
