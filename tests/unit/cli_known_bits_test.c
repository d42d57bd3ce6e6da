/* Training in f32 ends in these weights and losses on every processor that has fused multiply-add, whatever compiler,
 * library and width of vectors: the hashes stand here, and do not come from a second run on the same machine. Every
 * level of instructions that this machine has is tried; where one has no fused multiply-add, the plain device alone. */
#include "tests/harness/levels.h"

#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "engine/base/file.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "data={set: digits, train: 400, val: 50}"
static struct known {
    const char *name, *device, *model, *data, *optimizer, *train, *weights, *losses;
    const char *batch; /* 16 in one shard; fewer where an emulated processor would take minutes */
} runs[] = {
    {"mlp", "cpu:1", "mlp", DIGITS, "sgd", "20st", "1b8375b94fb25213974f9fa8c21fbd973d3f104a837a77559692aa991ce6d6f7",
     "9b1b5a5228402d9b3249dd3b70e2a6677a754d9bfbe16c0120c88da12f44d1cb"},
    {"lenet", "cpu:1", "lenet", DIGITS, "{name: sgd, lr: 0.05, momentum: 0.9, clip: 1}", "20st",
     "f3b13089d0277f61ddddb49e2e91fcaa124c05762bdbcb927dc9e9fcd56909d5",
     "f3cfb30b9c9f6e3befb404247711e5a2bf508f1fcc836f491da76538172b5c50"},
    {"a convolution net", "cpu:1",
     "{layers: [{conv2d: {out: 12, kernel: 3, pad: 1}}, batchnorm, relu, {maxpool: 2}, "
     "{conv2d: {out: 16, kernel: 3, pad: 1}}, relu, {maxpool: 2}, "
     "flatten, tanh, {dropout: 0.2}, {linear: 10}, sigmoid]}",
     DIGITS, "{name: lion, lr: 1e-3}", "6st", "eb1c1b24782790c453e27bcdeb3dfb5b397d13d06b575f206eeb72a38f077a79",
     "28cd3fd2bcebd95680f918d1b83960212c7d3db9b45d31e48440ebbc4dd8a90b"},
    {"gpt-nano", "cpu:1", "{zoo: gpt-nano, depth: 2, width: 24, heads: 2, dropout: 0.1}",
     "data={set: grammar, train: 4000, val: 400}", "{name: adamw, lr: 1e-3, clip: 1}", "6st",
     "59feea4bb7cfb9a2bcd6a4b1adf950ee5e96832be98597e5389789972f934f85",
     "8ec79ff6e76d9b3d083110fa8e677edc09f8a9116f4f369ffc7cfc4ff329264a"},
    {"resnet20", "cpu:1", "resnet20", "data={set: shapes, train: 64, val: 16}", "{name: sgd, lr: 0.1, momentum: 0.9}",
     "2st", "97234ee77c053092b74ced6117cee2af2942ceeffe6034ec540bb440dd337760",
     "de882cbe7a27a83e33f8f09aaf5d347b7bddc37f4215db69d78f30b5bf9139ee"},
    {"resnet18", "cpu:1", "resnet18", "data={set: shapes, train: 32, val: 16}", "{name: sgd, lr: 0.1, momentum: 0.9}",
     "1st", "5383e0595f4f24177176f6d346a59da7c094e26316cad57412f113b2cdb0cc43",
     "8162db6b8bb38b31efc184712a81e7aea326756e591e7bc30764577a36842de9", "{size: 4, shards: 1}"},
    {"vit-tiny", "cpu:1", "{zoo: vit-tiny, depth: 2}", "data={set: shapes, train: 64, val: 16}",
     "{name: adamw, lr: 1e-3}", "2st", "bd9f1cfa767174dbfe72b3a24fcd7e4caba9b3e6573364023c373404348974fb",
     "d9ce80d7cb901129487c311f610a94ca57cdbbd15f3d93fda964cc999228feaa", "{size: 8, shards: 1}"},
    {"lenet, 8 shards", "cpu:1", "lenet", DIGITS, "{name: sgd, lr: 0.05, momentum: 0.9}", "10st",
     "add41798262b895eda2fa626067bfbffd4ebc100147f54d7b30599ea5f6d5a4e",
     "2b74fc1b106e047e9c05b45c1b26af3c1d8aee6bb60c139b8a6f0a11637393ce", "{size: 32, shards: 8}"},
    {"every convolution, 4 shards", "cpu:1",
     "{layers: [{conv2d: {out: 16, kernel: 3, pad: 1}}, relu, {conv2d: {out: 16, kernel: 3, pad: 1}}, relu, "
     "{conv2d: {out: 32, kernel: 1, stride: 2}}, batchnorm, relu, {maxpool: 2}, flatten, {linear: 10}]}",
     DIGITS, "{name: adamw, lr: 1e-3}", "3st", "965fdb9f1632b8ef3cf0f330a0ede4d35dfe4755885e87b0acd36655fca0bbda",
     "fba6771efba879e09f31d3d32cdf65e7eac6c96a180d8eb544113c471bf2a1b3", "{size: 16, shards: 4}"},
    {"groupnorm, 4 shards", "cpu:1",
     "{layers: [{conv2d: {out: 16, kernel: 3, pad: 1}}, {groupnorm: 4}, relu, "
     "{conv2d: {out: 24, kernel: 3, stride: 2}}, {groupnorm: {groups: 3, affine: false}}, relu, meanpool, "
     "{groupnorm: {groups: 2, eps: 1e-3}}, {linear: 10}]}",
     DIGITS, "{name: adamw, lr: 1e-3}", "3st", "8701984981aa8aa2750c2aa3590671fb77b3239b4f1e8525851299e07482ccdd",
     "61a1d8b47243ad0beb01c15e17dd87013508dc657ab62f4a3bed1e565cc29eed", "{size: 16, shards: 4}"},
    {"gpt-nano, 8 shards", "cpu:1", "{zoo: gpt-nano, depth: 2, width: 24, heads: 2, dropout: 0.1}",
     "data={set: grammar, train: 4000, val: 400}", "{name: adamw, lr: 1e-3, clip: 1}", "3st",
     "e41b94d42af501157c2a8b0dfe165f55d614be458a9b65f48721217182eafe60",
     "822410232c48dc65db469cae0fc453121c4b139b5e1f33bd5dd9f119635865d8", "{size: 16, shards: 8}"},
    {"spirals", "cpu:1", "{layers: [{linear: 32}, gelu, {linear: 32}, silu, {linear: 3}]}", "data=spirals",
     "{name: lamb, lr: 0.01}", "30st", "d50ffb407ecdb3218b142f36bc688dbe7dad0cd280767717356166df42e2b1ac",
     "42acddf934990717dd69f06482e4c5d9acd96c0377738bf9d8e0909dbca5a54f"},
    {"spirals, plain", "ref:1", "{layers: [{linear: 16}, gelu, {linear: 16}, tanh, {linear: 3}]}", "data=spirals",
     "{name: adam, lr: 0.01}", "30st", "8c5cd7e52ba2ccd9f837db6a4cf48cf6301634518884d49932de82d90945c729",
     "b5b24701915f5f51f7c6a57f6c3c4796889bdb326b0ced076c86a55f0d3d477d"},
};

static void train(const char *const *sets, int count) {
    struct cli_config c = {0};
    struct run_settings s;
    int code;
    for (int i = 0; i < count; i++) assert_ok(cli_set(&c, sets[i]));
    assert_ok(cli_load(&c, &s));
    struct job job = {.settings = &s,
                      .mode = s.mode,
                      .process = {.rank = -1},
                      .processes = 1,
                      .quiet = true,
                      .console_out = -1,
                      .console_err = 2};
    assert_ok(cli_train(&job, NULL, &code));
    assert_int_equal(code, 0);
    run_settings_free(&s);
}

static void assert_told(const struct json_value *summary, const char *name, const char *key, const char *known) {
    const struct json_value *v = json_get(summary, key);
    assert_true(v && v->kind == JSON_STRING);
    if (strcmp(v->text, known) != 0) fail_msg("%s: %s is %s, not %s", name, key, v->text, known);
}

static void check(const struct known *run, const char *level) {
    struct pool *pool;
    const struct json_value *summary;
    char dir[600], path[700], device[64], model[600], optimizer[200], length[64], batch[64], *text;
    size_t n;
    snprintf(dir, sizeof dir, "log.dir=%s%s-%s", scratch_path("run-"), level, run->name);
    snprintf(device, sizeof device, "devices=%s", run->device);
    snprintf(model, sizeof model, "model=%s", run->model);
    snprintf(optimizer, sizeof optimizer, "optimizer=%s", run->optimizer);
    snprintf(length, sizeof length, "train=%s", run->train);
    snprintf(batch, sizeof batch, "batch=%s", run->batch ? run->batch : "{size: 16, shards: 1}");
    const char *sets[] = {"mode=single",
                          device,
                          model,
                          run->data,
                          optimizer,
                          length,
                          dir,
                          "eval=end",
                          batch,
                          "threads=1",
                          "schedule={name: cosine, warmup: 2st}",
                          "checkpoint=off"};
    train(sets, sizeof sets / sizeof *sets);
    assert_ok(pool_create(&pool));
    snprintf(path, sizeof path, "%s/summary.json", dir + strlen("log.dir="));
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    assert_ok(json_parse(text, n, (struct json_limits){8, 10000, 65536}, pool, &summary));
    assert_told(summary, level, "weights_sha256", run->weights);
    assert_told(summary, level, "losses_sha256", run->losses);
    pool_free(pool);
}

static void test_bits_are_known(void **state) {
    const struct known *run = *state;
    bool plain = !strcmp(run->device, "ref:1");
    int count;
    const struct cpu_level *const *levels = cpu_levels(&count);
    for (int level = 0; level < count; level++) {
        assert_int_equal(setenv("ENGINE_ISA", levels[level]->name, 1), 0);
        if (levels[level]->fused || plain) check(run, levels[level]->name);
    }
    assert_int_equal(unsetenv("ENGINE_ISA"), 0);
}

/* A network is a test, so that those that end in other bits are all named. */
int main(void) {
    struct CMUnitTest tests[sizeof runs / sizeof *runs];
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        tests[i] = (struct CMUnitTest){runs[i].name, test_bits_are_known, NULL, NULL, &runs[i]};
    return cmocka_run_group_tests_name("known bits", tests, NULL, NULL);
}
