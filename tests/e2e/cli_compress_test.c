/* comm.compress, as a user meets it: each kind trains nearly as well as uncompressed gradients do,
 * in the bytes that it is for; slices of the optimizer change nothing, so all ranks have the same
 * sums; what it cannot keep is refused or warned of. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static struct program control, other;

static void run(struct program *p, const char *compress, const char *more1, const char *more2, const char *more3) {
    char set[200];
    snprintf(set, sizeof set, "comm.compress=%s", compress);
    program_train(p,
                  SETS("model={zoo: mlp, hidden: [128, 64]}", "data={set: digits, train: 2000, val: 500}",
                       "batch={size: 64, shards: 4}", "train=8ep", "threads=1", "checkpoint=off", "mode=ddp",
                       "devices=cpu:4", "eval=end", "optimizer={name: sgd, lr: 0.1}"),
                  SETS(set, more1, more2, more3));
}

static const struct kind {
    const char *yaml, *name;
    double ratio, loss; /* fewer bytes by this, loss above the control's by no more than this */
} kinds[] = {
    {"bf16", "bf16", 1.99, 0.03},       {"fp16", "fp16", 1.99, 0.03},
    {"int8", "int8", 3.9, 0.04},        {"{kind: topk, ratio: 0.02}", "topk", 12, 0.08},
    {"powersgd", "powersgd", 22, 0.05}, {"{kind: powersgd, rank: 8}", "powersgd", 11, 0.05},
    {"onebit", "onebit", 28, 0.1},      {"{kind: randomk, ratio: 0.1}", "randomk", 9.9, 0.1},
};

static void trains_nearly_as_well(void **state) {
    (void)state;
    run(&control, "none", "seed=0", "seed=0", "seed=0");
    double loss = program_number(&control, "val.loss");
    assert_true(loss < 0.6); /* of 2.3 */
    assert_null(strstr(control.out, "\"compress\""));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        run(&other, k->yaml, "seed=0", "seed=0", "seed=0");
        double now = program_number(&other, "val.loss"), ratio = program_number(&other, "compress.ratio");
        if (!(now < loss + k->loss)) fail_msg("%s: loss %g, not %g", k->yaml, now, loss);
        if (!(ratio > k->ratio && ratio < 1.1 * k->ratio + 0.1)) fail_msg("%s: %g times fewer bytes", k->yaml, ratio);
        char said[64];
        snprintf(said, sizeof said, "gradients compressed (%s", k->name);
        assert_non_null(strstr(other.err, said));
    }
}

/* Each rank steps its slices by its own sums: they are the same as all of rank 0's. */
static void same_sums_everywhere(void **state) {
    (void)state;
    static const char cut[] = "ddp.bucket={first: 1KB, cap: 100KB}";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        static const char *const others[] = {"optimizer={name: sgd, lr: 0.1, shard: true}", "comm.link=tcp",
                                             "ddp.overlap=false"};
        run(&control, kinds[i].yaml, cut, "train=1ep", "seed=0");
        for (int k = 0; k < 3; k++) {
            run(&other, kinds[i].yaml, cut, "train=1ep", others[k]);
            if (strcmp(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256")) != 0)
                fail_msg("%s, %s: other weights", kinds[i].yaml, others[k]);
        }
    }
}

static void resume_warns(void **state) {
    (void)state;
    char dir[600], set[700];
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "%s%d", scratch_path("resume-"), i);
        snprintf(set, sizeof set, "log.dir=%s", dir);
        run(&other, i ? "int8" : "bf16", set, "checkpoint=1ep", "train=1ep");
        snprintf(set, sizeof set, "checkpoint={every: 1ep, resume: '%s'}", dir);
        run(&other, i ? "int8" : "bf16", set, "train=2ep", "seed=0");
        assert_true(!!strstr(other.err, "had not sent yet: it begins at zero") == (i == 1));
    }
}

static void refused(void **state) {
    (void)state;
    static const char *const bad[][3] = {
        {"mode=dp", "comm.compress=int8", "'comm.compress' is for modes whose devices are processes"},
        {"mode=single", "comm.compress=bf16", "'comm.compress' is for modes whose devices are processes"},
        {"deterministic=bitwise", "comm.compress=topk", "depend on the number of devices"},
        {"mode=ddp", "comm.compress={kind: topk, ratio: 0}", "'comm.compress.ratio'"},
        {"mode=ddp", "comm.compress={kind: topk, ratio: 1.5}", "'comm.compress.ratio'"},
        {"mode=ddp", "comm.compress={kind: powersgd, rank: 0}", "'comm.compress.rank'"},
        {"mode=ddp", "comm.compress={kind: powersgd, ratio: 0.1}", "unknown key 'ratio'"},
        {"mode=ddp", "comm.compress=bf17", "bf16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        program_run(&other, 20, "run", "--set", bad[i][0], "--set", bad[i][1], NULL);
        if (other.code != 78 || !strstr(other.err, bad[i][2]))
            fail_msg("%s %s: exit code %d\n%s", bad[i][0], bad[i][1], other.code, other.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_nearly_as_well),
        cmocka_unit_test(same_sums_everywhere),
        cmocka_unit_test(resume_warns),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("compression", tests, NULL, NULL);
}
