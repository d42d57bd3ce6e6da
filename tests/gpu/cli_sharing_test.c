/* How gradients that lie on GPUs are shared changes nothing but how long it takes: single, dp and
 * ddp, by every carrier, with every kind of server, one device a GPU or several, give the same
 * weights bit for bit. */
#include "tests/harness/program.h"

#include "engine/device/device.h"
#include "tests/gpu/gpu.h"

#include <stdio.h>
#include <string.h>

static struct program control, other;

static void run(struct program *p, const char *const *sets) {
    static int serial;
    const char *words[PROGRAM_ARGS] = {"run",   "--json",
                                       "--set", "data={set: digits, train: 200, val: 40}",
                                       "--set", "model={layers: [flatten, {linear: 48}, relu, {linear: 10}]}",
                                       "--set", "batch={size: 64, shards: 4}",
                                       "--set", "train=6st",
                                       "--set", "deterministic=bitwise",
                                       "--set", "ddp.bucket={first: 2KB, cap: 64KB}",
                                       "--set", "optimizer={name: sgd, lr: 0.05, momentum: 0.9, clip: 1}",
                                       "--set", "threads=1",
                                       "--set", "checkpoint=off"};
    char dir[600];
    int n = 0;
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("run-"), ++serial);
    while (words[n]) n++;
    words[n++] = "--set", words[n++] = dir;
    for (int i = 0; i < 4 && sets[i]; i++) words[n++] = "--set", words[n++] = sets[i];
    program_start(p, words);
    assert_true(program_wait(p, 120));
    if (p->code) fail_msg("%s %s: %d\n%s", sets[0], sets[1], p->code, p->err);
}

/* What is set, and what the banner has to say. */
static const struct {
    const char *sets[4], *says;
} ways[] = {
    {{"mode=dp", "devices=cuda:0,1"}, "peer (each copies"},
    {{"mode=dp", "devices=cuda:0,1", "dp.overlap=off"}, "peer (each copies"},
    {{"mode=dp", "devices=cuda:0,0"}, "peer (each copies"},
    {{"mode=dp", "devices=cuda:0,1", "comm.backend=host"}, "through the host"},
    {{"mode=dp", "devices=cuda:0,1", "dp.server=sharded"}, "sharded server, 2 buckets, overlap on"},
    {{"mode=dp", "devices=cuda:0,1", "dp.server=dedicated"}, "(cuda:0, which computes too)"},
    {{"mode=dp", "devices=cuda:0,1", "dp.server=cpu"}, "server on the CPU"},
    {{"mode=dp", "devices=cuda:0,1", "comm.emulate.bandwidth=10GB"}, "emulated"},
    {{"mode=ddp", "devices=cuda:0,1"}, "which only moves"},
    {{"mode=ddp", "devices=cuda:0,1", "ddp.overlap=false"}, "which only moves"},
    {{"mode=ddp", "devices=cuda:0,1", "optimizer.shard=true"}, "in 2 slices"},
    {{"mode=ddp", "devices=cuda:0,0"}, "share a GPU"},
    {{"mode=ddp", "devices=cuda:0,1", "comm.backend=host"}, "through the host"},
    {{"mode=ddp", "devices=cuda:0,1,0,1", "comm.link=tcp"}, "share a GPU"},
};

static void all_the_same(void **state) {
    static const char *const alone[] = {"mode=single", "devices=cuda:0", NULL};
    (void)state;
    if (gpu_count() < 2) skip(); /* a machine with one GPU is met by the test of carriers */
    run(&control, alone);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        run(&other, ways[i].sets);
        const char *what = ways[i].sets[2] ? ways[i].sets[2] : ways[i].sets[1];
        if (strcmp(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256")) != 0)
            fail_msg("%s, %s: other weights\n%s", ways[i].sets[0], what, other.err);
        if (!strstr(other.err, ways[i].says))
            fail_msg("%s, %s: does not say '%s'\n%s", ways[i].sets[0], what, ways[i].says, other.err);
    }
}

/* What cannot be is refused before anything runs. */
static void refusals(void **state) {
    static const struct {
        const char *sets[4], *says;
    } wrong[] = {
        {{"mode=ddp", "devices=cuda:0,0", "comm.backend=peer"}, "for the threads of mode dp"},
        {{"mode=dp", "devices=cuda:0,0", "comm.backend=nccl"}, "for the processes of mode ddp"},
        {{"mode=dp", "devices=cuda:0,0", "comm.backend=peer", "dp.server=cpu"}, "the server has no GPU"},
        {{"mode=ddp", "devices=cuda:0,0", "comm.backend=nccl", "comm.emulate.bandwidth=1GB"}, "emulated links"},
        {{"mode=ddp", "devices=cuda:0,0", "comm.compress=int8"}, "in the host's memory"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const *s = wrong[i].sets;
        program_run(&other, 60, "config", "--set", s[0], "--set", s[1], "--set", s[2], "--set", s[3] ? s[3] : "seed=0",
                    NULL);
        assert_int_equal(other.code, 78);
        if (!strstr(other.err, wrong[i].says)) fail_msg("%s: %s", wrong[i].says, other.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(all_the_same),
    };
    return gpu_run_tests(tests);
}
