/* What GPUs can do in each mode, as the table of docs/gpus.md says it: it runs, with the weights of mode single where the
 * bits are promised, or it is refused by its name. And: a step allocates nothing. */
#include "tests/harness/program.h"

#include "engine/optim/optim.h"
#include "tests/gpu/gpu.h"

#include <stdio.h>
#include <string.h>

enum { MODES = 4 };
static const char *const modes[MODES][2] = {{"mode=single", "devices=cuda:0"},
                                            {"mode=dp", "devices=cuda:0,1"},
                                            {"mode=ddp", "devices=cuda:0,1"},
                                            {"mode=ps", "devices=cuda:0,1"}};
static struct program p;

#define EVERYWHERE(words) words, words, words, words
#define PLUGIN(name) ENGINE_BINARY_DIR "/plugins/" name ".so"
static const char no_key[] = "is not its key"; /* which changes nothing there */

/* A row of the table: what is set, one after another, and how each mode refuses all of it; NULL: it runs there. */
static const struct feature {
    const char *row, *set[8]; /* set[0] NULL: every optimizer that works element by element */
    bool bitwise;             /* then with single's weights */
    const char *says[MODES];
} features[] = {
    {"precision `f32`, `tf32`, `bf16`, `fp16`",
     {"seed=0", "precision=tf32", "precision=bf16", "precision=fp16"},
     true,
     {NULL}},
    {"`batch.accumulate`, `recompute`, `cuda.graph`, `ema`, `optimizer.clip`",
     {"batch.accumulate=2", "recompute=2", "cuda.graph=off", "ema=0.9", "optimizer={name: adamw, clip: 1}"},
     true,
     {NULL}},
    {"every optimizer but these two", {NULL}, true, {NULL}},
    {"optimizers `muon`, `adafactor`",
     {"optimizer={name: muon, lr: 0.01}", "optimizer=adafactor"},
     false,
     {EVERYWHERE("works on whole matrices in the host's memory")}},
    {"an optimizer of one's own",
     {"optimizer=" PLUGIN("optimizer_0")},
     false,
     {EVERYWHERE("works on the host's memory")}},
    {"`train.noise_scale`", {"train.noise_scale=2st"}, true, {NULL}},
    {"`comm.backend: host`, `comm.emulate`", {"comm.backend=host", "comm.emulate.bandwidth=10GB"}, true, {NULL}},
    {"an algorithm of one's own",
     {"comm.algorithm=" PLUGIN("algorithm_0")},
     false,
     {no_key, "all-reduces the host's memory between processes", "all-reduces the host's memory between processes",
      "all-reduces the host's memory between processes"}},
    {"`optimizer.shard`",
     {"optimizer.shard=true"},
     true,
     {"is for mode ddp", "is for mode ddp", NULL, "the servers have the optimizer's state"}},
    {"`run.elastic`", {"run.elastic.min=1"}, true, {"no processes", "no processes", NULL, NULL}},
    {"`ddp.sync`: local SGD",
     {"ddp.sync=2", "ddp.sync={every: 3, state: average}"},
     false,
     {"mode is not 'ddp'", "mode is not 'ddp'", NULL, "mode is not 'ddp'"}},
    {"`ddp.sync` with an outer step, a neighbour, a share of one's own",
     {"ddp.sync={every: 2, outer: {lr: 0.7, momentum: 0.9}}", "ddp.sync={every: 2, with: neighbour}",
      "ddp.sync={every: 2, with: " PLUGIN("share_0") "}"},
     false,
     {"mode is not 'ddp'", "mode is not 'ddp'", "no other meeting than the mean of all", "mode is not 'ddp'"}},
    {"`ddp.reduce`: Adasum, a reduction of one's own",
     {"ddp.reduce=adasum", "ddp.reduce=" PLUGIN("share_0")},
     false,
     {EVERYWHERE("computes in the host's memory")}},
    {"`comm.compress`",
     {"comm.compress=int8", "comm.compress=topk", "comm.compress=" PLUGIN("compressor_0")},
     false,
     {"devices are processes", "devices are processes", "in the host's memory", "in the host's memory"}},
    {"a server that does not wait (`dp.staleness`)",
     {"dp={server: dedicated, staleness: 1}"},
     false,
     {no_key, "served in the host's memory", no_key, no_key}},
    {"the same of `ps.staleness`", {"ps.staleness=1"}, false, {no_key, no_key, no_key, "served in the host's memory"}},
    {"`sync_batchnorm`", {"sync_batchnorm=true"}, false, {EVERYWHERE("not possible on GPUs")}},
    {"layer `groupnorm`",
     {"model={layers: [{conv2d: {out: 4, kernel: 3}}, {groupnorm: 2}, flatten, {linear: 10}]}"},
     true,
     {NULL}},
    {"layer `attention`, more than 128 features a head",
     {"model={layers: [tokens, {linear: 396}, {attention: 1}, meanpool, {linear: 10}]}"},
     false,
     {EVERYWHERE("has no implementation of this attention")}},
    {"mode `fsdp`, mode `pipeline`",
     {"mode=fsdp", "mode=pipeline"},
     false,
     {EVERYWHERE("gives memory back page by page")}},
};
enum { FEATURES = sizeof features / sizeof *features };

static void run(int mode, const char *steps, const char *set, bool bitwise) {
    static int serial;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("run-"), ++serial);
    program_run(&p, 120, "run", "--json", "--set", "data={set: digits, train: 200, val: 40}", "--set",
                "model={layers: [flatten, {linear: 48}, relu, {linear: 10}]}", "--set", "batch={size: 64, shards: 4}",
                "--set", "checkpoint=off", "--set", "eval=end", "--set", "threads=1", "--set", steps, "--set", dir,
                "--set", modes[mode][0], "--set", modes[mode][1], "--set",
                bitwise ? "deterministic=bitwise" : "deterministic=true", "--set", set, NULL);
}

static void check_set(const struct feature *f, const char *set) {
    char weights[80] = "";
    for (int m = 0; m < MODES; m++) {
        if (f->says[m] && getenv("ENGINE_EMULATED_JITTER")) continue; /* no stream is late in a refusal */
        run(m, "train=4st", set, f->bitwise);
        int code = !f->says[m] || f->says[m] == no_key ? 0 : 78;
        if (p.code != code) fail_msg("%s, %s: %d\n%s", set, modes[m][0], p.code, p.err);
        if (f->says[m]) {
            if (f->says[m] != no_key && !strstr(p.err, f->says[m])) fail_msg("%s, %s: %s", set, modes[m][0], p.err);
        } else if (f->bitwise) {
            const char *sha = program_string(&p, "weights_sha256");
            if (*weights && strcmp(sha, weights)) fail_msg("%s, %s: other weights", set, modes[m][0]);
            snprintf(weights, sizeof weights, "%s", sha);
        }
    }
}

static void features_run_or_are_refused(void **state) {
    int count;
    const struct optim_ops *const *kinds = optim_kinds(&count);
    (void)state;
    if (gpu_count() < 2) skip();
    for (const struct feature *f = features; f < features + FEATURES; f++) {
        for (int i = 0; f->set[i]; i++) check_set(f, f->set[i]);
        for (int i = 0; i < count && !f->set[0]; i++) {
            char set[64];
            snprintf(set, sizeof set, "optimizer=%s", kinds[i]->section.name);
            if (!kinds[i]->whole) check_set(f, set);
        }
    }
}

/* The page has each row as it stands here. */
static void the_page_has_the_table(void **state) {
    char line[400];
    (void)state;
    for (const struct feature *f = features; f < features + FEATURES; f++) {
        int at = snprintf(line, sizeof line, "| %s |", f->row);
        for (int m = 0; m < MODES; m++)
            at += snprintf(line + at, sizeof line - (size_t)at, " %s |", f->says[m] ? f->says[m] : "runs");
        gpu_page_has(line);
    }
}

#ifdef ENGINE_EMULATED
/* Of the GPU's memory and pinned memory, in a whole run. */
static long allocations(int mode, const char *steps) {
    unsigned long long bytes;
    long count = -1;
    setenv("ENGINE_EMULATED_READ", scratch_path("counts"), 1);
    run(mode, steps, "seed=0", true);
    unsetenv("ENGINE_EMULATED_READ");
    if (p.code) fail_msg("%s", p.err);
    FILE *f = fopen(scratch_path("counts"), "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %ld", &bytes, &count), 2);
    fclose(f);
    return count;
}

/* A shape that NVIDIA's libraries have no kernel for is an error of the configuration in every mode, of a layer that is named. */
static void what_a_library_refuses_is_named(void **state) {
    static const char *const cases[][3] = {
        {"cublasLtMatmulAlgoGetHeuristic:0", "seed=0",
         "linear: cuBLASLt knows no way to multiply (48, 784) by (784, 16) in f32"},
        {"engines_for:0", "model={layers: [{conv2d: {out: 4, kernel: 3}}, flatten, {linear: 10}]}",
         "conv2d: cuDNN has no way to compute a filter's gradient of this shape"},
    };
    (void)state;
    for (int i = 0; i < 2 * MODES; i++) {
        const char *const *c = cases[i / MODES];
        setenv("ENGINE_EMULATED_FAIL", c[0], 1);
        run(i % MODES, "train=4st", c[1], true);
        unsetenv("ENGINE_EMULATED_FAIL");
        if (p.code != 78 || !strstr(p.err, c[2])) fail_msg("%s, %s: %d\n%s", c[0], modes[i % MODES][0], p.code, p.err);
    }
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    for (int m = 0; m < 2; m++) assert_int_equal(allocations(m, "train=4st"), allocations(m, "train=14st"));
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_has_the_table),
        cmocka_unit_test(features_run_or_are_refused),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(what_a_library_refuses_is_named),
#endif
    };
    return gpu_run_tests(tests);
}
