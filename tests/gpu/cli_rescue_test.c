/* A run on GPUs that loses a rank goes on with the others from the last step that has ended, and not from a checkpoint, and
 * ends in the weights of one that nobody disturbed. */
#include "tests/harness/program.h"

#include "tests/gpu/gpu.h"

#include <stdio.h>
#include <string.h>

static struct program control, other;

static void run(struct program *p, const char *mode, const char *devices, const char *backend, const char *inject) {
    static int serial;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("run-"), ++serial);
    program_run(p, 240, "run", "--json", "--set", "data={set: digits, train: 200, val: 40}", "--set",
                "model={layers: [{conv2d: {out: 4, kernel: 3}}, batchnorm, relu, flatten, {linear: 10}]}", "--set",
                "batch={size: 64, shards: 4}", "--set", "train=20st", "--set", "deterministic=bitwise", "--set",
                "optimizer={name: adam, lr: 0.01}", "--set", "checkpoint=off", "--set", "eval=end", "--set",
                "threads=1", "--set", dir, "--set", mode, "--set", devices, "--set", backend, "--set", inject, "--set",
                strcmp(mode, "mode=ddp") ? "seed=0" : "run.elastic.min=2", NULL);
    if (p->code) fail_msg("%s %s: exit code %d\n%s", mode, backend, p->code, p->err);
}

static void the_others_go_on(void **state) {
    static const char *const backends[] = {"comm.backend=auto", "comm.backend=host"};
    (void)state;
    run(&control, "mode=single", "devices=cuda:0", "comm.backend=auto", "inject=none");
    for (int i = 0; i < 2; i++) {
        run(&other, "mode=ddp", gpu_count() > 1 ? "devices=cuda:0,1,0,1" : "devices=cuda:0,0,0,0", backends[i],
            "inject.fault={device: 1, step: 12, kind: kill}");
        if (!strstr(other.err, "3 devices, after 4, go on from step 11")) fail_msg("%s: %s", backends[i], other.err);
        program_assert_same(&control, &other, backends[i]);
        assert_true(program_number(&other, "devices") == 3);
        assert_int_equal(program_orphans(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on),
    };
    return gpu_run_tests(tests);
}
