/* What GPUs can do in each mode, as the table of docs/gpus.md says it: it runs, with the weights of mode single where the
 * bits are promised, or it is refused by its name. And: a step allocates nothing. */
#include "tests/harness/program.h"

#include "tests/gpu/gpu.h"

#include <stdio.h>
#include <string.h>

enum { MODES = 4 };
static const char *const modes[MODES][2] = {{"mode=single", "devices=cuda:0"},
                                            {"mode=dp", "devices=cuda:0,1"},
                                            {"mode=ddp", "devices=cuda:0,1"},
                                            {"mode=ps", "devices=cuda:0,1"}};
static struct program p;

/* says: how each mode refuses it; NULL: it runs there. */
static const struct feature {
    const char *set;
    bool bitwise;
    const char *says[MODES];
} features[] = {
    {"seed=0", true, {NULL}},
    {"precision=bf16", true, {NULL}},
    {"precision=fp16", true, {NULL}},
    {"precision=tf32", true, {NULL}},
    {"batch.accumulate=2", true, {NULL}},
    {"recompute=2", true, {NULL}},
    {"cuda.graph=off", true, {NULL}},
    {"ema=0.9", true, {NULL}},
    {"optimizer={name: adamw, clip: 1}", true, {NULL}},
    {"optimizer=lamb", true, {NULL}},
    {"comm.backend=host", true, {NULL}},
    {"comm.emulate.bandwidth=10GB", true, {NULL}},
    {"optimizer.shard=true",
     true,
     {"is for mode ddp", "is for mode ddp", NULL, "the servers have the optimizer's state"}},
    {"run.elastic.min=1", true, {"no processes", "no processes", NULL, NULL}},
    {"comm.compress=int8",
     false,
     {"devices are processes", "devices are processes", "in the host's memory", "in the host's memory"}},
    {"ddp.sync=2", false, {"mode is not 'ddp'", "mode is not 'ddp'", "cannot do that yet", "mode is not 'ddp'"}},
    {"ddp.sync={every: 2, with: neighbour}",
     false,
     {"mode is not 'ddp'", "mode is not 'ddp'", "cannot do that yet", "mode is not 'ddp'"}},
    {"ps.staleness=1", false, {NULL, NULL, NULL, "served in the host's memory"}},
    {"sync_batchnorm=true",
     false,
     {"not possible on GPUs", "not possible on GPUs", "not possible on GPUs", "not possible on GPUs"}},
    {"mode=fsdp", false, {"page by page", "page by page", "page by page", "page by page"}},
};
enum { FEATURES = sizeof features / sizeof *features };

static void run(int mode, const char *steps, const char *set, bool bitwise) {
    static int serial;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("run-"), ++serial);
    program_run(&p, 120, "run", "--json", "--set", "data={set: digits, train: 200, val: 40}", "--set",
                "model={layers: [flatten, {linear: 48}, relu, {linear: 10}]}", "--set", "batch={size: 64, shards: 4}",
                "--set", "checkpoint=off", "--set", "eval=off", "--set", "threads=1", "--set", steps, "--set", dir,
                "--set", modes[mode][0], "--set", modes[mode][1], "--set",
                bitwise ? "deterministic=bitwise" : "deterministic=true", "--set", set, NULL);
}

static void features_run_or_are_refused(void **state) {
    (void)state;
    if (gpu_count() < 2) skip();
    for (const struct feature *f = features; f < features + FEATURES; f++) {
        char weights[80] = "";
        for (int m = 0; m < MODES; m++) {
            run(m, "train=4st", f->set, f->bitwise);
            if (p.code != (f->says[m] ? 78 : 0)) fail_msg("%s, %s: %d\n%s", f->set, modes[m][0], p.code, p.err);
            if (f->says[m]) {
                if (!strstr(p.err, f->says[m])) fail_msg("%s, %s: %s", f->set, modes[m][0], p.err);
            } else if (f->bitwise) {
                const char *sha = program_string(&p, "weights_sha256");
                if (*weights && strcmp(sha, weights)) fail_msg("%s, %s: other weights", f->set, modes[m][0]);
                snprintf(weights, sizeof weights, "%s", sha);
            }
        }
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

static void a_step_allocates_nothing(void **state) {
    (void)state;
    for (int m = 0; m < 2; m++) assert_int_equal(allocations(m, "train=4st"), allocations(m, "train=14st"));
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_run_or_are_refused),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(a_step_allocates_nothing),
#endif
    };
    return gpu_run_tests(tests);
}
