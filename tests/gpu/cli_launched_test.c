/* Ranks that another launcher has started, each with a GPU of its own to see (as srun --gpus-per-task=1 shows it), with
 * all of them, or several with the same one: the same weights as those of 'engine run'. */
#include "tests/gpu/gpu.h"
#include "tests/harness/program.h"

#include <string.h>

enum { RANKS = 4 };
static struct program ranks[RANKS], whole;
static int serial;

static void begin(struct program *p, const char *devices, const char *meeting) {
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("launched"));
    const char *words[] = {"run",
                           "--json",
                           "--quiet",
                           "--set",
                           "mode=ddp",
                           "--set",
                           devices,
                           "--set",
                           "threads=1",
                           "--set",
                           "train=5st",
                           "--set",
                           "batch={size: 32, shards: 4}",
                           "--set",
                           "data={set: digits, train: 200, val: 40}",
                           "--set",
                           "model={zoo: mlp, hidden: [16]}",
                           "--set",
                           "checkpoint=off",
                           "--set",
                           "deterministic=bitwise",
                           "--set",
                           dir,
                           "--set",
                           meeting,
                           NULL};
    program_start(p, words);
}

static void end(struct program *p, const char *how) {
    if (!program_wait(p, 120)) fail_msg("%s: it takes too long:\n%s", how, p->err);
    if (p->code) fail_msg("%s: exit code %d\n%s", how, p->code, p->err);
}

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* see: so many GPUs for each rank, and 'shift' more than the rank before. */
static void launch(const char *how, const char *devices, int see, int shift) {
    char meeting[600], name[32];
    snprintf(name, sizeof name, "meeting-%d", ++serial);
    snprintf(meeting, sizeof meeting, "run.init=file://%s", scratch_path(name));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1); /* nobody listens there: run.init says where they meet */
    set_number("WORLD_SIZE", RANKS);
    set_number("LOCAL_WORLD_SIZE", RANKS);
    for (int k = 0; k < RANKS; k++) {
        char list[32] = "";
        for (int i = 0; i < see; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", i ? "," : "", (k * shift + i) % RANKS);
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
        set_number("RANK", k);
        set_number("LOCAL_RANK", k);
        begin(&ranks[k], devices, meeting);
    }
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",     "RANK",        "LOCAL_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    for (int k = 0; k < RANKS; k++) end(&ranks[k], how);
    assert_string_equal(program_string(&ranks[0], "weights_sha256"), program_string(&whole, "weights_sha256"));
}

static void each_rank_has_a_gpu(void **state) {
    (void)state;
    if (gpu_count() < RANKS) skip();
    begin(&whole, "devices=cuda:0,1,2,3", "run.rank=auto");
    end(&whole, "engine run");
    launch("one GPU each, auto", "devices=auto", 1, 1);
    launch("one GPU each, cuda:0", "devices=cuda:0", 1, 1);
    launch("all GPUs", "devices=cuda", RANKS, 0);
    launch("two on one GPU, which they number differently", "devices=cuda", 2, 1);
    launch("all GPUs, in another order", "devices=cuda", RANKS, 1);
}

int main(void) {
#ifdef ENGINE_EMULATED
    setenv("ENGINE_EMULATED_GPUS", "4", 1);
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_rank_has_a_gpu)};
    return gpu_run_tests(tests);
}
