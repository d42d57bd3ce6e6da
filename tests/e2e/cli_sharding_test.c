/* optimizer.shard and dp's sharded server: the optimizer in slices gives the bits of one that steps
 * all, at any number of devices, whatever it measures of whole tensors; each rank keeps a part of
 * the state; and a run goes on from a checkpoint with other slices, or none. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static const char *const optimizers[] = {
    "{name: adamw, lr: 0.002, clip: 1, decay: matrices",
    "{name: lamb, lr: 0.01, clip: 1",
    "{name: lars, lr: 5",
    "{name: lion, lr: 0.001, weight_decay: 0.1",
};
static struct program control, other;

struct place {
    const char *mode;
    int devices;
    bool shard;
    const char *more;
};

static void run_in(struct program *p, const char *dir, const char *optimizer, const struct place *at,
                   const char *more) {
    char set[4][700];
    snprintf(set[0], sizeof set[0], "log.dir=%s", dir);
    snprintf(set[1], sizeof set[1], "optimizer=%s%s}", optimizer, at->shard ? ", shard: true" : "");
    snprintf(set[2], sizeof set[2], "mode=%s", at->mode);
    snprintf(set[3], sizeof set[3], "devices=cpu:%d", at->devices);
    program_train(p,
                  SETS("model={zoo: mlp, hidden: [64, 32]}", "data={set: digits, train: 300, val: 70}",
                       "batch={size: 64, shards: 8}", "train=2ep", "threads=1", "ddp.bucket={first: 1KB, cap: 40KB}"),
                  SETS(set[0], set[1], set[2], set[3], at->more, more));
}

static void run(struct program *p, const char *optimizer, bool shard, const char *mode, int devices, const char *more) {
    static int serial;
    char dir[600];
    snprintf(dir, sizeof dir, "%s%d", scratch_path("sharding-"), serial++);
    run_in(p, dir, optimizer, &(struct place){mode, devices, shard, "seed=0"}, more);
}

static void assert_same(const char *what, int devices) {
    char text[128];
    snprintf(text, sizeof text, "%s on %d", what, devices);
    program_assert_same(&control, &other, text);
}

static void same_bits(void **state) {
    (void)state;
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        run(&control, optimizers[o], false, "single", 1, "checkpoint=off");
        for (int n = 1; n <= 8; n *= 2) {
            run(&other, optimizers[o], true, "ddp", n, "checkpoint=off");
            assert_same(optimizers[o], n);
        }
        run(&other, optimizers[o], true, "ddp", 4, "comm.link=tcp");
        assert_same("tcp", 4);
        run(&other, optimizers[o], true, "ddp", 2, "ddp.overlap=false");
        assert_same("no overlap", 2);
        run(&other, optimizers[o], false, "ddp", 4, "checkpoint=off");
        assert_same("ddp, not sharded", 4);
        run(&other, optimizers[o], false, "dp", 4, "dp.server=shared");
        assert_same("dp, one server", 4);
        run(&other, optimizers[o], false, "dp", 2, "dp.server=dedicated");
        assert_same("dp, a server that computes nothing", 2);
        run(&other, optimizers[o], false, "dp", 4, "dp.server=sharded");
        assert_same("dp, sharded server", 4);
    }
}

/* The state is 8 bytes a float, spread evenly but for whole blocks of the norm. */
static void state_is_shared_out(void **state) {
    (void)state;
    struct pool *pool;
    for (int n = 1; n <= 8; n *= 2) {
        assert_ok(pool_create(&pool));
        run(&other, optimizers[0], true, "ddp", n, "model={zoo: mlp, hidden: [300]}");
        const struct json_value *bytes = json_get(program_json(&other, pool), "optimizer_bytes");
        int64_t sum = 0, most = 0;
        assert_int_equal(bytes->count, n);
        for (int r = 0; r < n; r++) {
            sum += bytes->children[r].integer;
            if (bytes->children[r].integer > most) most = bytes->children[r].integer;
        }
        int64_t floats = 784 * 300 + 304 + 3008 + 16 + 16; /* each tensor on whole lines */
        assert_int_equal(sum, floats * 8);
        assert_true(most <= sum / n + 4096 * 8);
        char said[64];
        snprintf(said, sizeof said, "optimizer state in %d slices of ", n);
        assert_non_null(strstr(other.err, said));
        pool_free(pool);
    }
    run(&other, optimizers[0], false, "ddp", 2, "model={zoo: mlp, hidden: [300]}");
    assert_null(strstr(other.err, "slices"));
}

/* Weights that come beside what follows a step are that step's bytes, though an evaluation follows. */
static void bytes_are_their_steps(void **state) {
    (void)state;
    static const char *const evals[] = {"eval=end", "eval=1st", "eval=2st"};
    double sent[2] = {0};
    for (int i = 0; i < 3; i++) {
        struct pool *pool;
        assert_ok(pool_create(&pool));
        run(&other, optimizers[0], true, "ddp", 2, evals[i]);
        const struct json_value *list = json_get(json_get(program_json(&other, pool), "bytes"), "sent");
        assert_int_equal(list->count, 2);
        for (int r = 0; r < 2; r++) {
            if (i > 0) assert_true(list->children[r].number == sent[r]);
            sent[r] = list->children[r].number;
        }
        assert_true(sent[0] > 0);
        pool_free(pool);
    }
}

/* Half of the run in one place, the rest in another. */
static const struct place places[] = {
    {"ddp", 4, true, "seed=0"}, {"single", 1, false, "seed=0"},
    {"ddp", 2, true, "seed=0"}, {"dp", 4, false, "dp.server=sharded"},
    {"ddp", 8, true, "seed=0"}, {"ddp", 2, false, "seed=0"},
    {"ddp", 4, true, "seed=0"}, {"ddp", 8, true, "ddp.bucket={first: 1KB, cap: 9KB}"},
    {"dp", 2, false, "seed=0"}, {"ddp", 2, true, "seed=0"},
};

static void resumes_anywhere(void **state) {
    (void)state;
    for (size_t o = 0; o < 2; o++) {
        run(&control, optimizers[o], false, "single", 1, "checkpoint=off");
        for (size_t i = 0; i + 1 < sizeof places / sizeof *places; i++) {
            const struct place *a = &places[i], *b = &places[i + 1];
            char first[600], second[600], resume[700];
            snprintf(first, sizeof first, "%s-%zu-%zu", scratch_path("first"), o, i);
            snprintf(second, sizeof second, "%s-%zu-%zu", scratch_path("second"), o, i);
            snprintf(resume, sizeof resume, "checkpoint={every: 3st, resume: '%s'}", first);
            run_in(&other, first, optimizers[o], a, "train=7st");
            run_in(&other, second, optimizers[o], b, resume);
            assert_non_null(strstr(other.err, "resuming from"));
            assert_same(b->mode, b->devices);
        }
    }
}

static void refused(void **state) {
    (void)state;
    static const char *const modes[] = {"mode=dp", "mode=single"}, *const says[] = {"dp.server: sharded",
                                                                                    "one device has nobody"};
    for (int i = 0; i < 2; i++) {
        program_run(&other, 20, "run", "--set", "optimizer={name: sgd, shard: true}", "--set", modes[i], "--set",
                    i ? "devices=cpu:1" : "devices=cpu:2", NULL);
        assert_int_equal(other.code, 78);
        assert_non_null(strstr(other.err, "'optimizer.shard' is for mode ddp"));
        assert_non_null(strstr(other.err, says[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(state_is_shared_out),
        cmocka_unit_test(bytes_are_their_steps),
        cmocka_unit_test(resumes_anywhere),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("sharding", tests, NULL, NULL);
}
