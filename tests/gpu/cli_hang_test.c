/* A GPU that hangs, whatever it was asked for: each kind of work, in each mode, with a kernel or a copy that never ends.
 * The run ends with exit code 75, within comm.timeout and a bound, and its error names the GPU and what it did. */
#include "tests/gpu/gpu.h"
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include "engine/base/text.h"

#include <string.h>

#ifdef ENGINE_EMULATED

enum { MODES = 3, WORDS = 40 };
static const char *const mode_sets[MODES][2] = {
    {"mode=single", "devices=cuda:0"}, {"mode=dp", "devices=cuda:0,1"}, {"mode=ddp", "devices=cuda:0,1"}};
static struct program at[MODES];
static char resume[700];

/* What hangs, which time it is asked for in each mode (0: this work does not exist there), and what the error says. A
 * step of a run has four shards: one GPU does them all, each of two GPUs two. */
static const struct work {
    const char *name, *hangs;
    int nth[MODES];
    const char *more, *says;
} works[] = {
    {"forward", "rows_add", {9, 5, 5}, NULL, "(training, step 2)"},
    {"backward", "column_totals", {9, 5, 5}, NULL, "(training, step"},
    {"update", "step_kernel", {3, 3, 3}, NULL, "(training, step 2)"},
    {"a product", "a product", {20, 20, 20}, NULL, "(training, step"},
    {"a batch", "copy from the host", {30, 20, 20}, NULL, "(training, step"},
    {"evaluation", "rows_add", {9, 5, 5}, "eval.every=2st", "(evaluation, step 2)"},
    {"checkpoint", "copy to the host", {3, 5, 3}, "checkpoint=2st", "(saving a checkpoint, step 2)"},
    {"load", "copy from the host", {3, 3, 3}, resume, "(loading a checkpoint, step 0)"},
    {"peers", "copy between GPUs", {0, 3, 0}, "comm.backend=peer", "(training, step 2)"},
    {"collectives", "a collective", {0, 0, 4}, "comm.backend=nccl", "has not ended on its device"},
};
enum { WORKS = sizeof works / sizeof *works };

static void start(struct program *p, int mode, const char *steps, const char *more) {
    static int serial;
    char dir[600];
    const char *words[WORDS] = {"run", "--no-progress"};
    const char *sets[] = {"data={set: digits, train: 200, val: 40}",
                          "model={layers: [flatten, {linear: 48}, relu, {linear: 10}]}",
                          "batch={size: 64, shards: 4}",
                          "threads=1",
                          "comm.timeout=5s",
                          mode_sets[mode][0],
                          mode_sets[mode][1],
                          steps,
                          dir,
                          more};
    int n = 2;
    snprintf(dir, sizeof dir, "log.dir=%s/hung-%d", scratch_folder(), ++serial);
    for (size_t i = 0; i < sizeof sets / sizeof *sets && sets[i]; i++) words[n++] = "--set", words[n++] = sets[i];
    words[n] = NULL;
    program_start(p, words);
    if (!strncmp(more ? more : "", "checkpoint=1st", 14))
        snprintf(resume, sizeof resume, "checkpoint.resume=%s", dir + strlen("log.dir="));
}

static void hang_end(const struct work *w, int mode, struct program *p) {
    const char *set = mode_sets[mode][0];
    if (!program_wait(p, 120)) fail_msg("%s, %s: still running\n%s", w->name, set, p->err);
    if (p->code != 75) fail_msg("%s, %s: ends with %d:\n%s%s", w->name, set, p->code, p->out, p->err);
    bool named = strstr(p->err, "GPU 0 (Emulated GPU)") || strstr(w->says, "on its device");
    if (!named || !strstr(p->err, w->says)) fail_msg("%s, %s: no '%s' in\n%s", w->name, set, w->says, p->err);
    if (p->seconds > timing_limit(20)) fail_msg("%s, %s took %g s", w->name, set, p->seconds);
}

static void whatever_hangs_is_named(void **state) {
    (void)state;
    start(&at[0], 0, "train=1st", "checkpoint=1st");
    assert_true(program_wait(&at[0], 60));
    if (at[0].code) fail_msg("%s", at[0].err);
    for (const struct work *w = works; w < works + WORKS; w++) {
        for (int m = 0; m < MODES; m++) {
            char hang[64];
            snprintf(hang, sizeof hang, "%s:%d@0", w->hangs, w->nth[m]);
            setenv("ENGINE_EMULATED_HANG", hang, 1);
            if (w->nth[m]) start(&at[m], m, "train=6st", w->more);
            unsetenv("ENGINE_EMULATED_HANG");
        }
        for (int m = 0; m < MODES; m++)
            if (w->nth[m]) hang_end(w, m, &at[m]);
        assert_int_equal(program_orphans(), 0);
    }
}

/* The page has each row as it stands here. */
static void the_page_has_the_table(void **state) {
    char line[400];
    (void)state;
    for (const struct work *w = works; w < works + WORKS; w++) {
        snprintf(line, sizeof line, "| %s | `%s` |", w->name, w->hangs);
        for (int m = 0; m < MODES; m++) text_append(line, sizeof line, " %s |", w->nth[m] ? "named" : "-");
        text_append(line, sizeof line, " `%s` |", w->says);
        gpu_page_has(line);
    }
}

/* It names the GPU, and asks nothing more of any. */
static void doctor_names_it(void **state) {
    (void)state;
    setenv("ENGINE_EMULATED_HANG", "sum_kernel:1@0", 1);
    program_run(&at[0], 120, "doctor", "cuda", NULL);
    unsetenv("ENGINE_EMULATED_HANG");
    assert_int_equal(at[0].code, 75);
    const char *named = strstr(at[0].out, "missing  cuda:0           GPU 0 (Emulated GPU) has not done within");
    if (!named) fail_msg("%s", at[0].out);
    assert_null(strstr(at[0].out, "cuda:1"));
    if (at[0].seconds > timing_limit(45)) fail_msg("it took %g s", at[0].seconds);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_has_the_table),
        cmocka_unit_test(whatever_hangs_is_named),
        cmocka_unit_test(doctor_names_it),
    };
    return gpu_run_tests(tests);
}
#else
int main(void) {
    printf("skipped: real GPUs do not hang when they are asked to\n");
    return GPU_SKIPPED;
}
#endif
