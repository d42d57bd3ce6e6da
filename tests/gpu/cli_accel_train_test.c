/* Training on a GPU, as people start it: the losses of plain C's numbers, the same bits from run to run and with steps
 * recorded or not, checkpoints that go from one kind of device to the other, fp16's scale. */
#include "tests/gpu/gpu.h"
#include "tests/harness/program.h"

#include "engine/tell/trace.h"

#include <math.h>
#include <string.h>

static struct program here, there;

#define SHAPES "data={set: shapes, train: 40, val: 16}"
#define GRAMMAR "data={set: grammar, context: 16, train: 800, val: 400}"
static const struct network {
    const char *name, *model, *data, *optimizer;
} networks[] = {
    {"mlp", "model={zoo: mlp, hidden: [64, 32], dropout: 0.2}", "data={set: digits, train: 80, val: 40}",
     "optimizer={name: sgd, lr: 0.05, momentum: 0.9, clip: 1}"},
    {"lenet", "model=lenet", SHAPES,
     "optimizer={name: adam, freeze: conv2.weight, groups: [{match: \"*.bias\", lr: 1e-2}]}"},
    {"resnet", "model={zoo: resnet, blocks: [1, 1, 1, 1], width: 8}", SHAPES,
     "optimizer={name: sgd, lr: 0.02, nesterov: true, momentum: 0.9, clip: 1, freeze: [\"conv1.*\", \"bn1.*\", "
     "\"layer1.*\"]}"},
    {"vit", "model={zoo: vit-tiny, patch: 8, depth: 2, width: 32, heads: 2}", SHAPES,
     "optimizer={name: lamb, lr: 1e-3}"},
    {"gpt", "model={zoo: gpt-nano, depth: 2, width: 32, heads: 2, dropout: 0.1}", GRAMMAR,
     "optimizer={name: adamw, lr: 1e-3, decay: matrices, clip: 1}"},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* Where the last run went: "log.dir=...", and the folder alone. */
static char log_dir[600];
static const char *run_dir(void) {
    return log_dir + strlen("log.dir=");
}

/* 16 samples in 4 shards; the third step of the images has 8. more: further settings. */
static void start(struct program *p, const struct network *n, const char *device, const char *precision,
                  const char *steps, const char *const *more) {
    static int serial;
    const char *words[PROGRAM_ARGS] = {"run", "--json", "--quiet"};
    const char *sets[] = {"mode=single",   "threads=1", "batch={size: 16, shards: 4}",
                          "log.every=1st", n->model,    n->data,
                          n->optimizer,    device,      precision,
                          steps,           log_dir};
    int count = 3;
    snprintf(log_dir, sizeof log_dir, "log.dir=%s%d", scratch_path("run-"), ++serial);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) words[count++] = "--set", words[count++] = sets[i];
    for (; *more; more++) words[count++] = "--set", words[count++] = *more;
    words[count] = NULL;
    program_start(p, words);
    if (!program_wait(p, 300)) fail_msg("%s on %s: it takes too long", n->name, device);
}

static void run(struct program *p, const struct network *n, const char *device, const char *precision,
                const char *steps, const char *const *more) {
    start(p, n, device, precision, steps, more);
    if (p->code != 0) fail_msg("%s on %s, %s: exit code %d\n%s", n->name, device, precision, p->code, p->err);
}

#define NOTHING ((const char *const[]){"checkpoint=off", NULL})
#define GPU "devices=cuda:0"
#define HOST "devices=cpu:1"

static void assert_close(const struct network *n, const char *key, double most) {
    double a = program_number(&here, key), b = program_number(&there, key);
    if (!(fabs(a - b) <= most * fabs(a))) fail_msg("%s: %s is %.8g here and %.8g on the GPU", n->name, key, a, b);
}

static void assert_same_bits(const char *what) {
    static const char *const keys[] = {"weights_sha256", "losses_sha256"};
    for (int i = 0; i < 2; i++)
        if (strcmp(program_string(&here, keys[i]), program_string(&there, keys[i])) != 0)
            fail_msg("%s: %s differs", what, keys[i]);
}

/* ---- numbers ---------------------------------------------------------------------------------- */
static void networks_learn_the_same_in_f32(void **state) {
    (void)state;
    for (int i = 0; i < NETWORKS; i++) {
        const struct network *n = &networks[i];
        run(&here, n, HOST, "precision=f32", "train=3st", NOTHING);
        run(&there, n, GPU, "precision=f32", "train=3st", NOTHING);
        assert_close(n, "train.loss", 1e-4);
        assert_close(n, "val.loss", 1e-3);
        assert_true(program_number(&here, "val.samples") == program_number(&there, "val.samples"));
    }
}

/* Second labels and weights travel with the batch, also where a step is recorded. */
static void losses_are_the_same(void **state) {
    (void)state;
    static const char *const losses[] = {"loss={name: cross_entropy, smoothing: 0.1, weights: balanced}", "loss=bce",
                                         "loss=mse"};
    struct network n = networks[1];
    n.data = "data={set: shapes, train: 40, val: 16, augment: [{mixup: 0.5}, {cutmix: 1}]}";
    for (int i = 0; i < 3; i++) {
        const char *const more[] = {"checkpoint=off", losses[i], NULL};
        const char *const unrecorded[] = {"checkpoint=off", losses[i], "cuda=off", NULL};
        n.name = losses[i];
        run(&here, &n, HOST, "precision=f32", "train=7st", more);
        run(&there, &n, GPU, "precision=f32", "train=7st", more);
        assert_close(&n, "train.loss", 1e-3);
        assert_close(&n, "val.loss", 1e-3);
        run(&here, &n, GPU, "precision=f32", "train=7st", unrecorded);
        assert_same_bits(losses[i]);
    }
}

static void networks_learn_nearly_the_same_in_less(void **state) {
    (void)state;
    static const char *const precisions[] = {"precision=bf16", "precision=fp16", "precision=tf32"};
    static const double most[] = {0.03, 0.005, 0.005};
    for (int i = 0; i < NETWORKS; i++) {
        run(&here, &networks[i], HOST, "precision=f32", "train=3st", NOTHING);
        for (int p = 0; p < 3; p++) {
            run(&there, &networks[i], GPU, precisions[p], "train=3st", NOTHING);
            assert_close(&networks[i], "train.loss", most[p]);
        }
    }
}

/* Ten steps, so that what is recorded also runs again; shards in two pieces. */
static void recordings_and_recomputation_change_no_bit(void **state) {
    (void)state;
    static const char *const on[] = {"checkpoint=off", "cuda=auto", "batch.accumulate=2", NULL},
                             *const off[] = {"checkpoint=off", "cuda=off", "batch.accumulate=2", NULL},
                             *const again[] = {"checkpoint=off", "batch.accumulate=2", "recompute=3", NULL};
    static const int which[] = {0, 1, 4};
    for (int i = 0; i < 3; i++) {
        const struct network *n = &networks[which[i]];
        run(&here, n, GPU, "precision=bf16", "train=10st", on);
        run(&there, n, GPU, "precision=bf16", "train=10st", off);
        assert_same_bits(n->name);
        run(&there, n, GPU, "precision=bf16", "train=10st", again);
        assert_same_bits(n->name);
        assert_null(strstr(here.err, "cannot be recorded"));
        assert_null(strstr(there.err, "cannot be recorded"));
    }
}

/* Two devices on one GPU: gradients are reduced there, through the host, or by slices. */
static void modes_change_no_bit(void **state) {
    (void)state;
    static const char *const ways[][4] = {
        {"mode=dp", "devices=cuda:0,0", "dp.server=shared", "comm.backend=auto"},
        {"mode=dp", "devices=cuda:0,0", "dp.overlap=on", "comm.backend=auto"},
        {"mode=dp", "devices=cuda:0,0", "dp.server=sharded", "comm.backend=host"},
        {"mode=ddp", "devices=cuda:0,0", "ddp.bucket.cap=100KB", "comm.backend=host"},
        {"mode=ddp", "devices=cuda:0,0", "optimizer.shard=true", "comm.backend=host"},
    };
    const char *const alone[] = {"checkpoint=off", "deterministic=bitwise", NULL};
    run(&here, &networks[1], GPU, "precision=fp16", "train=5st", alone);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *const *w = ways[i];
        const char *const more[] = {"checkpoint=off", "deterministic=bitwise", w[0], w[2], w[3], NULL};
        run(&there, &networks[1], w[1], "precision=fp16", "train=5st", more);
        assert_same_bits(w[2]);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------ */
static const char *resume(char out[700], const char *dir) {
    snprintf(out, 700, "checkpoint.resume=%s", dir);
    return out;
}

/* What the device did when, beside when it was asked: within its step, one pass after another, four shards a step. */
static void a_trace_tells_of_the_device(void **state) {
    (void)state;
    static const char *const more[] = {"checkpoint=off", "log.trace=2..4st", NULL};
    struct trace_rank *ranks;
    struct pool *pool;
    int n, passes = 0;
    int64_t last = 0;
    assert_ok(pool_create(&pool));
    run(&there, &networks[0], GPU, "precision=f32", "train=4st", more);
    assert_ok(trace_read_all(run_dir(), pool, &ranks, &n));
    assert_int_equal(n, 1);
    assert_true(ranks->accel);
    for (int i = 0; i < ranks->nevents; i++) {
        const struct trace_event *e = &ranks->events[i];
        assert_true(e->kind != TRACE_LAYER);
        if (e->lane != TRACE_DEVICE) continue;
        assert_int_equal(e->kind, passes % 2 ? TRACE_BACKWARD : TRACE_FORWARD);
        assert_true(e->begin >= last);
        last = e->end;
        passes++;
    }
    assert_int_equal(passes, 3 * 4 * 2);
    pool_free(pool);
}

static void a_checkpoint_goes_anywhere(void **state) {
    (void)state;
    const struct network *n = &networks[0];
    const char *const keep[] = {"checkpoint=2st", NULL};
    char from_gpu[700], from_host[700];
    run(&there, n, GPU, "precision=f32", "train=2st", keep);
    resume(from_gpu, run_dir());
    run(&there, n, HOST, "precision=f32", "train=2st", keep);
    resume(from_host, run_dir());
    run(&here, n, GPU, "precision=f32", "train=5st", NOTHING);
    run(&there, n, GPU, "precision=f32", "train=5st", (const char *const[]){from_gpu, NULL});
    assert_same_bits("resumed on a GPU"); /* to the bit, and with it the batches that had been on their way */
    run(&there, n, GPU, "precision=f32", "train=5st", (const char *const[]){from_host, NULL});
    assert_close(n, "train.loss", 1e-4);
    run(&there, n, HOST, "precision=f32", "train=5st", (const char *const[]){from_gpu, NULL});
    assert_close(n, "train.loss", 1e-4);
}

/* ---- fp16 ------------------------------------------------------------------------------------- */
static const struct network wild = {"wild", "model={zoo: mlp, hidden: [64, 32]}",
                                    "data={set: digits, train: 80, val: 40}", "optimizer={name: adam, lr: 0.05}"};

/* One sample a step: its loss's gradient times 65536 is too large, until the scale has been halved. */
static void overflow_is_left_out_and_remembered(void **state) {
    (void)state;
    const char *const one[] = {"batch={size: 1, shards: 1}", "checkpoint=off", NULL};
    run(&here, &wild, GPU, "precision=fp16", "train=12st", one);
    double skipped = program_number(&here, "fp16.skipped_steps");
    assert_true(skipped >= 1 && skipped < 12);
    assert_true(program_number(&here, "fp16.loss_scale") == ldexp(65536, -(int)skipped));
    const char *const keep[] = {"batch={size: 1, shards: 1}", "checkpoint=7st", NULL};
    run(&there, &wild, GPU, "precision=fp16", "train=7st", keep);
    assert_true(program_number(&there, "fp16.skipped_steps") >= 1); /* part of what is resumed */
    char from[700];
    resume(from, run_dir());
    const char *const again[] = {"batch={size: 1, shards: 1}", from, NULL};
    run(&there, &wild, GPU, "precision=fp16", "train=12st", again);
    assert_same_bits("resumed in fp16");
    assert_true(program_number(&there, "fp16.skipped_steps") == skipped);
}

/* ---- evaluation with a large vocabulary --------------------------------------------------------- */
enum { VOCABULARY = 50257, CONTEXT = 8, WINDOWS = 4 };

static const char *tokens_file(void) {
    static uint16_t tokens[WINDOWS * CONTEXT + 1];
    const char *path = scratch_path("tokens.bin");
    for (int i = 0; i < WINDOWS * CONTEXT + 1; i++) tokens[i] = (uint16_t)((unsigned)i * 7919 % VOCABULARY);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(tokens, sizeof tokens, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* The outputs stay on the GPU, and what is counted there is what is counted here. */
static void evaluation_leaves_outputs_where_they_are(void **state) {
    static char data[800];
    (void)state;
    snprintf(data, sizeof data, "data={set: tokens, train: %s, val: %s, type: u16, context: %d, vocabulary: %d}",
             tokens_file(), tokens_file(), CONTEXT, VOCABULARY);
    const struct network wide = {"wide",
                                 "model={layers: [{embedding: {vocabulary: 50257, units: 8}}, {linear: 50257}]}", data,
                                 "optimizer={name: sgd, lr: 100}"};
    const char *const few[] = {"batch={size: 2, shards: 1}", "checkpoint=off", NULL};
#ifdef ENGINE_EMULATED
    const char *path = scratch_path("read");
    setenv("ENGINE_EMULATED_READ", path, 1);
#endif
    run(&there, &wide, GPU, "precision=f32", "train=2st", few);
    run(&here, &wide, HOST, "precision=f32", "train=2st", few);
    assert_close(&wide, "val.loss", 1e-5);
    assert_close(&wide, "val.top5", 0);
    assert_close(&wide, "val.accuracy", 0);
    double top = program_number(&there, "val.top5");
    if (!(top > 0 && top < 1)) fail_msg("nothing to tell apart: top-5 is %g", top);
#ifdef ENGINE_EMULATED
    unsetenv("ENGINE_EMULATED_READ");
    FILE *f = fopen(path, "r");
    unsigned long long bytes = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &bytes), 1);
    fclose(f);
    /* The weights once, for their hash; the outputs of the evaluation would be twice as much. */
    const unsigned long long weights = (2ull * 8 + 1) * VOCABULARY * sizeof(float);
    if (bytes > weights + 65536) fail_msg("%llu bytes were copied to the host", bytes);
#endif
}

/* ---- what is refused -------------------------------------------------------------------------- */
static void refuse(const char *set, const char *why) {
    start(&there, &networks[1], GPU, "precision=f32", "train=1st", (const char *const[]){set, NULL});
    assert_int_equal(there.code, 78);
    if (!strstr(there.err, why)) fail_msg("%s: it says\n%s", set, there.err);
}

static void what_gpus_cannot_is_refused(void **state) {
    (void)state;
    refuse("sync_batchnorm=true", "sync_batchnorm is not possible on GPUs");
    refuse("cuda={graph: maybe}", "'cuda.graph' must be one of auto, off");
}

static void a_bad_token_is_bad_data(void **state) {
    (void)state;
    start(&there, &networks[4], GPU, "precision=f32", "train=2st",
          (const char *const[]){"model={layers: [{embedding: {vocabulary: 5, units: 8}}, {linear: 29}]}", NULL});
    assert_int_equal(there.code, 65);
    assert_non_null(strstr(there.err, "a token is not in the vocabulary"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_learn_the_same_in_f32),
        cmocka_unit_test(networks_learn_nearly_the_same_in_less),
        cmocka_unit_test(recordings_and_recomputation_change_no_bit),
        cmocka_unit_test(losses_are_the_same),
        cmocka_unit_test(modes_change_no_bit),
        cmocka_unit_test(a_trace_tells_of_the_device),
        cmocka_unit_test(a_checkpoint_goes_anywhere),
        cmocka_unit_test(overflow_is_left_out_and_remembered),
        cmocka_unit_test(evaluation_leaves_outputs_where_they_are),
        cmocka_unit_test(what_gpus_cannot_is_refused),
        cmocka_unit_test(a_bad_token_is_bad_data),
    };
    return gpu_run_tests(tests);
}
