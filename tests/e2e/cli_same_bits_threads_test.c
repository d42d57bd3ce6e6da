/* The number of a device's threads changes no bit: every kind of layer that the zoo has, shards in one pass and one by
 * one. Nor does the number of devices, where they are many: more than look at each other one by one. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static const char *const networks[][2] = {
    {"model=mlp", "data={set: digits, train: 100, val: 50}"},
    {"model={layers: [{conv2d: {out: 6, kernel: 5, pad: 2}}, relu, {maxpool: 2}, {conv2d: {out: 16, kernel: 5}}, relu, "
     "{maxpool: 2}, flatten, {linear: 120}, relu, {dropout: 0.3}, {linear: 84}, relu, {linear: $classes}]}",
     "data={set: digits, train: 100, val: 50}"},
    {"model=resnet20", "data={set: shapes, train: 40, val: 16}"},
    {"model={zoo: gpt, depth: 2, width: 96, heads: 3, dropout: 0.1}",
     "data={set: grammar, context: 40, train: 8000, val: 4000}"},
    {"model={zoo: vit-tiny, depth: 1}", "data={set: shapes, train: 40, val: 16}"},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static struct program one, many;

static void train(struct program *p, int network, const char *shards, const char *precision, int threads) {
    char dir[600], set[32];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("run"));
    snprintf(set, sizeof set, "threads=%d", threads);
    program_run(p, 120, "run", "--json", "--quiet", "--set", networks[network][0], "--set", networks[network][1],
                "--set", "batch.size=20", "--set", shards, "--set", "train=2st", "--set", "checkpoint=off", "--set",
                "mode=single", "--set", "devices=cpu:1", "--set", "optimizer={name: adamw, lr: 1e-3, clip: 1}", "--set",
                precision, "--set", dir, "--set", set, NULL);
    if (p->code != 0) fail_msg("%s, %s, %s: exit code %d\n%s", networks[network][0], shards, set, p->code, p->err);
}

static void compare(int network, const char *shards, const char *precision, int least, int most) {
    static const char *const keys[] = {"weights_sha256", "losses_sha256"};
    train(&one, network, shards, precision, 1);
    for (int threads = least; threads <= most; threads++) {
        train(&many, network, shards, precision, threads);
        for (int i = 0; i < 2; i++)
            if (strcmp(program_string(&one, keys[i]), program_string(&many, keys[i])) != 0)
                fail_msg("%s, %s, %s, %d threads: %s differs", networks[network][0], shards, precision, threads,
                         keys[i]);
        assert_true(program_number(&one, "val.loss") == program_number(&many, "val.loss"));
    }
}

static void with_shards_of_unequal_sizes(void **state) {
    (void)state; /* 20 samples: shards of three and of two */
    for (int k = 0; k < NETWORKS; k++) compare(k, "batch.shards=8", "precision=f32", 2, 4);
}
static void with_one_shard(void **state) {
    (void)state;
    for (int k = 0; k < NETWORKS; k++) compare(k, "batch.shards=1", "precision=f32", 3, 3);
}
static void in_bf16(void **state) {
    (void)state;
    for (int k = 0; k < NETWORKS; k++) compare(k, "batch.shards=8", "precision=bf16", 3, 3);
}

static void train_on(struct program *p, const char *mode, const char *devices) {
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("many"));
    program_run(p, 120, "run", "--json", "--quiet", "--mode", mode, "--devices", devices, "--set",
                "model={layers: [{linear: 16}, relu, {linear: $classes}]}", "--set", "data={set: spirals, train: 1024}",
                "--set", "batch={size: 512, shards: 512}", "--set", "train=3st", "--set", "eval=end", "--set",
                "checkpoint=off", "--set", "threads=1", "--set", dir, NULL);
    if (p->code != 0) fail_msg("%s on %s: exit code %d\n%s", mode, devices, p->code, p->err);
}

static void on_many_devices(void **state) {
    static const char *const of[][2] = {{"dp", "cpu:64"}, {"dp", "cpu:100"}, {"dp", "cpu:256"}, {"ddp", "cpu:66"}};
    (void)state;
    train_on(&one, "single", "cpu:1");
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        train_on(&many, of[i][0], of[i][1]);
        assert_string_equal(program_string(&one, "weights_sha256"), program_string(&many, "weights_sha256"));
        assert_string_equal(program_string(&one, "losses_sha256"), program_string(&many, "losses_sha256"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_shards_of_unequal_sizes),
        cmocka_unit_test(with_one_shard),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(on_many_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
