/* ddp.reduce: a run with Adasum makes the steps that a few lines of double precision make, on any number of devices; the
 * same each time, over any link and in any buckets; with the bytes that its plan declares; a plug-in replaces the sum of
 * gradients as well, and is told where ranks do not agree. */
#include "engine/base/leaves.h"
#include "engine/data/sampler.h"
#include "engine/save/checkpoint.h"
#include "tests/harness/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PLUGIN(name) ENGINE_BINARY_DIR "/plugins/" name ".so"
static struct program control, other;

/* ---- by hand: y = w0 x0 + w1 x1 + b, the mean squared error ---- */

enum { SAMPLES = 21, BATCH = 8, SHARDS = 8, FEATURES = 2, STEPS = 9, WORLD = 8 };
static const double rate = 0.1;
struct line {
    double w[FEATURES], b; /* two layers of Adasum: the weights, and the bias */
};

static double input(int64_t sample, int i) {
    return sin((double)(sample * FEATURES + i) * 1.7);
}

static double target(int64_t sample) {
    return cos((double)sample) + 0.5;
}

static void join(double *a, const double *b, int n) {
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    for (int i = 0; i < n; i++)
        a[i] = (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
}

static void join_models(struct line *a, const struct line *b) {
    join(a->w, b->w, FEATURES);
    join(&a->b, &b->b, 1);
}

/* The mean gradient of rank r's samples, which are those of its run of shards. */
static struct line gradient(const struct line *m, int world, int r, const int64_t *order, int64_t size) {
    struct line g = {{0}, 0};
    int n = 0;
    for (int leaf = leaves_cut(SHARDS, world, r); leaf < leaves_cut(SHARDS, world, r + 1); leaf++)
        for (int64_t p = leaves_shard(SHARDS, leaf); p < size; p += SHARDS, n++) {
            double off = m->b - target(order[p]);
            for (int i = 0; i < FEATURES; i++) off += m->w[i] * input(order[p], i);
            for (int i = 0; i < FEATURES; i++) g.w[i] += 2 * off * input(order[p], i);
            g.b += 2 * off;
        }
    for (int i = 0; i < FEATURES && n; i++) g.w[i] /= n;
    if (n) g.b /= n;
    return g;
}

static struct line train_by_hand(int world) {
    struct sampler s = {.size = SAMPLES, .batch = BATCH, .shards = SHARDS, .shuffle = true, .seed = 3};
    struct line m = {{0.5, -1}, 0.25}, g[WORLD];
    int64_t order[2 * SAMPLES], per_epoch = sampler_steps(&s);
    for (int step = 0; step < STEPS; step++) {
        int64_t at = step % per_epoch;
        int left = 0, count = world;
        sampler_order(&s, step / per_epoch, order);
        while (!is_power_of_two(count)) count--;
        for (int r = 0; r < world; r++, left++) {
            g[left] = gradient(&m, world, r, order + at * BATCH, sampler_batch_size(&s, at));
            if (left >= world - count) continue;
            r++;
            struct line next = gradient(&m, world, r, order + at * BATCH, sampler_batch_size(&s, at));
            join_models(&g[left], &next);
        }
        for (; count > 1; count /= 2)
            for (int i = 0; i < count / 2; i++) {
                join_models(&g[2 * i], &g[2 * i + 1]);
                g[i] = g[2 * i];
            }
        for (int i = 0; i < FEATURES; i++) m.w[i] -= rate * g[0].w[i];
        m.b -= rate * g[0].b;
    }
    return m;
}

static void write_data(void) {
    FILE *f = fopen(scratch_path("toy.csv"), "w");
    assert_non_null(f);
    for (int s = 0; s < SAMPLES; s++) fprintf(f, "%.9g,%.9g,%.9g\n", input(s, 0), input(s, 1), target(s));
    assert_int_equal(fclose(f), 0);
    float w[FEATURES] = {0.5f, -1}, b = 0.25f;
    const struct st_tensor t[] = {
        {.name = "linear1.bias", .dtype = "F32", .ndim = 1, .dim = {1}, .data = &b, .bytes = sizeof b},
        {.name = "linear1.weight", .dtype = "F32", .ndim = 2, .dim = {1, FEATURES}, .data = w, .bytes = sizeof w}};
    const char *const metadata[][2] = {{"format", "pt"}, {NULL}};
    uint32_t crc;
    int64_t bytes;
    assert_ok(st_write(scratch_path("toy.safetensors"), t, 2, metadata, &crc, &bytes));
}

static void read_tensor(const struct st_file *f, const char *name, float *to) {
    const struct st_tensor *t = st_find(f, name);
    if (!t) fail_msg("no tensor '%s'", name);
    assert_ok(st_read(f, t, to));
}

static struct line trained(void) {
    char path[700];
    struct st_file f;
    float w[FEATURES], b;
    snprintf(path, sizeof path, "%s/ckpt/step-%09d/model.safetensors", program_string(&other, "run_dir"), STEPS);
    assert_ok(st_open(path, &f));
    read_tensor(&f, "linear1.weight", w);
    read_tensor(&f, "linear1.bias", &b);
    st_close(&f);
    return (struct line){{(double)w[0], (double)w[1]}, (double)b};
}

static void as_by_hand(void **state) {
    char data[700], model[700], devices[32];
    (void)state;
    write_data();
    snprintf(data, sizeof data, "data={train: '%s', val: '%s', normalize: off, normalize_target: false}",
             scratch_path("toy.csv"), scratch_path("toy.csv"));
    snprintf(model, sizeof model, "model={layers: [{linear: {units: 1}}], init: '%s'}",
             scratch_path("toy.safetensors"));
    for (int world = 1; world <= WORLD; world++) {
        struct line want = train_by_hand(world), got;
        snprintf(devices, sizeof devices, "devices=cpu:%d", world);
        program_train(&other,
                      SETS(data, model, "mode=ddp", devices, "threads=1", "loss=mse", "seed=3", "train=9st",
                           "batch={size: 8, shards: 8}", "optimizer={name: sgd, lr: 0.1}"),
                      SETS("ddp.reduce=adasum"));
        got = trained();
        double off = fabs(got.b - want.b) + fabs(got.w[0] - want.w[0]) + fabs(got.w[1] - want.w[1]);
        if (!(off < 1e-5))
            fail_msg("%d devices: %.7g, %.7g, %.7g, and not %.7g, %.7g, %.7g", world, got.w[0], got.w[1], got.b,
                     want.w[0], want.w[1], want.b);
    }
}

/* ---- a network ---- */

static const char *const network[] = {"model={zoo: mlp, hidden: [64, 32]}",
                                      "data={set: digits, train: 512, val: 64}",
                                      "batch={size: 64, shards: 8}",
                                      "train=16st",
                                      "threads=1",
                                      "eval=end",
                                      "checkpoint=off",
                                      "mode=ddp",
                                      "optimizer={name: adam, lr: 0.002}",
                                      "ddp.reduce=adasum",
                                      NULL};

static void the_same_each_time(void **state) {
    static const char *const ways[][2] = {{"comm.link=tcp", "seed=0"},
                                          {"ddp.bucket=0", "comm.link=shm"},
                                          {"ddp.bucket=flat", "ddp.overlap=false"},
                                          {"ddp.bucket=64KB", "threads=2"}};
    (void)state;
    for (int world = 3; world <= 4; world++) {
        const char *devices = world == 3 ? "devices=cpu:3" : "devices=cpu:4";
        program_train(&control, network, SETS(devices, "seed=0"));
        assert_non_null(strstr(control.err, ", gradients reduced by adasum"));
        assert_true(program_number(&control, "train.loss") < 2);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            program_train(&other, network, SETS(devices, ways[i][0], ways[i][1]));
            program_assert_same(&control, &other, ways[i][0]);
        }
    }
    program_train(&other, network, SETS("devices=cpu:2", "seed=0"));
    assert_string_not_equal(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256"));
    program_train(&control, network, SETS("devices=cpu:1", "seed=0"));
    program_train(&other, network, SETS("devices=cpu:1", "seed=0", "ddp.reduce=sum"));
    program_assert_same(&control, &other, "one device: nothing to reduce");
}

/* Of N devices, P the largest power of two: log2(P) K a step, and K more of the first 2 (N - P); and the header twice, as
 * the all-reduce beside it. So a longer run is longer by so much. */
static double most_sent(const struct program *p) {
    double most = 0;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *sent = json_get(json_get(program_json(p, pool), "bytes"), "sent");
    for (int i = 0; i < sent->count; i++) most = fmax(most, sent->children[i].number);
    pool_free(pool);
    return most;
}

static void bytes_are_the_plan(void **state) {
    static const struct {
        int world, rounds; /* of the busiest rank */
    } of[] = {{2, 1}, {3, 2}, {4, 2}, {5, 3}, {7, 3}, {8, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char devices[32];
        snprintf(devices, sizeof devices, "devices=cpu:%d", of[i].world);
        program_train(&control, network, SETS(devices, "ddp.bucket=flat"));
        program_train(&other, network, SETS(devices, "ddp.bucket=flat", "train=26st"));
        double parameters = 784 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10;
        double step = (most_sent(&other) - most_sent(&control)) / 10;
        double least = 4 * parameters * of[i].rounds;
        if (!(step >= least && step < least + 4 * (6 * 16.0 * of[i].rounds + 64 * of[i].world)))
            fail_msg("%d devices: %g bytes a step, and the plan's are %g", of[i].world, step, least);
    }
}

/* ---- a plug-in ---- */

/* The median of two is their mean. */
static void a_plugin_reduces(void **state) {
    (void)state;
    program_train(&control, network, SETS("devices=cpu:2", "ddp.reduce=" PLUGIN("share_0")));
    assert_non_null(strstr(control.err, ", gradients reduced by plug-in share_0.so"));
    program_train(&other, network, SETS("devices=cpu:2", "ddp.reduce=sum"));
    double want = program_number(&other, "train.loss"), loss = program_number(&control, "train.loss");
    if (!(fabs(loss - want) < 1e-3 * want)) fail_msg("a loss of %g, and by the sum %g", loss, want);
    program_train(&other, network, SETS("devices=cpu:2", "ddp.reduce=" PLUGIN("share_0"), "comm.link=tcp"));
    program_assert_same(&control, &other, "over TCP");
}

static void refuse(const char *set, const char *more, int code, const char *words) {
    program_run(&other, 30, "run", "--quiet", "--set", "train=4st", "--set", "mode=ddp", "--set", "devices=cpu:4",
                "--set", set, "--set", more ? more : "seed=0", NULL);
    if (other.code != code || !strstr(other.err, words))
        fail_msg("%s, %s: exit code %d, and not '%s' in\n%s", set, more ? more : "", other.code, words, other.err);
}

static void refused(void **state) {
    (void)state;
    refuse("ddp.reduce=adasm", NULL, 78, "did you mean 'adasum'?");
    refuse("ddp.reduce=adasum", "mode=dp", 78, "ddp.reduce is for mode ddp, but mode is 'dp'");
    refuse("ddp.reduce=adasum", "mode=fsdp", 78, "but mode is 'fsdp'");
    refuse("ddp.reduce=adasum", "mode=pipeline", 78, "but mode is 'pipeline'");
    refuse("ddp.reduce=adasum", "ddp.sync=4", 78, "but devices step alone");
    refuse("ddp.reduce=adasum", "comm.compress=int8", 78, "comm.compress is for gradients that are added");
    refuse("ddp.reduce=adasum", "optimizer={name: sgd, shard: true}", 78, "each device receives its part of a sum");
    refuse("ddp.reduce=adasum", "deterministic=bitwise", 78, "'adasum' depends on the number of devices");
    refuse("ddp.reduce=adasum", "ddp.bucket=tune", 78, "'tune' is for gradients that are added");
    refuse("ddp.reduce={with: adasum, sha256: abc}", NULL, 78, "is the digest of a plug-in");
    refuse("ddp.reduce=" PLUGIN("algorithm_0"), NULL, 78, "has no share");
    refuse("ddp.reduce=" PLUGIN("wrong_share_3"), NULL, 70, "its plan declares");
    refuse("ddp.reduce=" PLUGIN("wrong_share_0"), NULL, 70, /* gossip */
           "has left other gradients on other ranks: after step 4 their weights differ");
    program_run(&other, 30, "simulate", "--set", "mode=ddp", "--set", "ddp.reduce=" PLUGIN("share_0"), NULL);
    assert_int_equal(other.code, 78);
    assert_non_null(strstr(other.err, "ddp.reduce.with is not simulated"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_by_hand),
        cmocka_unit_test(the_same_each_time),
        cmocka_unit_test(bytes_are_the_plan),
        cmocka_unit_test(a_plugin_reduces),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("gradients that are not added", tests, NULL, NULL);
}
