/* The promise: from one configuration, single, dp and ddp on 1 to 8 devices give the same
 * weights and losses, bit for bit, in tree order, whatever the algorithm and the server; in ring
 * order dp equals ddp. With dropout, momentum, clipping, batch normalisation, a ragged last batch
 * and several threads of the loader. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

/* 8 shards of 8 samples; 300 samples: the last batch has 44, so shards of 6 and 5. */
static const char *const networks[][2] = {
    {"mlp with dropout", "model={layers: [flatten, {linear: 64}, relu, {dropout: 0.2}, {linear: "
                         "32}, relu, {linear: 10}]}"},
    {"lenet with dropout", "model={layers: [{conv2d: {out: 6, kernel: 5, pad: 2}}, relu, {maxpool: "
                           "2}, {conv2d: {out: 16, kernel: 5}}, "
                           "relu, {maxpool: 2}, flatten, {linear: 120}, relu, {dropout: 0.1}, "
                           "{linear: 84}, relu, {linear: 10}]}"},
    {"batchnorm and residual", "model={layers: [{conv2d: {out: 8, kernel: 3, pad: 1}}, {batchnorm: {name: a}}, relu, "
                               "{conv2d: {out: 8, kernel: 3, pad: 1}}, "
                               "{batchnorm: {name: b}}, {add: {from: a}}, relu, {avgpool: 4}, flatten, {linear: 10}]}"},
};

/* Strided, 1x1 and plain ones among its convolutions. */
static const char convolutions[] = "model={layers: [{conv2d: {out: 32, kernel: 3, pad: 1}}, relu, {conv2d: {out: 48, "
                                   "kernel: 3, stride: 2, pad: 1}}, {batchnorm: {name: a}}, "
                                   "relu, {conv2d: {out: 32, kernel: 1}}, relu, {conv2d: {out: 10, kernel: 3, stride: "
                                   "3}}, {avgpool: 4}, flatten, {linear: 10}]}";

static void run(struct program *p, const char *network, const char *extra1, const char *extra2, const char *extra3,
                const char *extra4) {
    static int serial;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("run-"));
    snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "%d", ++serial);
    program_run(p, 120, "run", "--json", "--quiet", "--set", network, "--set",
                "data={set: digits, train: 300, val: 70}", "--set", "batch={size: 64, shards: 8}", "--set", "train=2ep",
                "--set", "threads=1", "--set", "checkpoint=off", "--set",
                "optimizer={name: sgd, lr: 0.05, momentum: 0.9, clip: 1}", "--set", dir, "--set", extra1, "--set",
                extra2, "--set", extra3, "--set", extra4, NULL);
    if (p->code != 0) fail_msg("%s %s %s %s: exit code %d\n%s", extra1, extra2, extra3, extra4, p->code, p->err);
}

static void assert_same(const struct program *a, const struct program *b, const char *what) {
    program_assert_same(a, b, what);
    if (program_number(a, "val.loss") != program_number(b, "val.loss")) fail_msg("%s: validation loss differs", what);
}

static struct program control, other;

static void every_mode_and_count(void **state) {
    (void)state;
    static const char *const modes[] = {"mode=dp", "mode=ddp"};
    for (size_t n = 0; n < sizeof networks / sizeof *networks; n++) {
        run(&control, networks[n][1], "mode=single", "devices=cpu:1", "seed=1", "log.every=1ep");
        for (int m = 0; m < 2; m++)
            for (int devices = 1; devices <= 8; devices++) {
                char set[32], what[128];
                snprintf(set, sizeof set, "devices=cpu:%d", devices);
                snprintf(what, sizeof what, "%s, %s, %s", networks[n][0], modes[m], set);
                run(&other, networks[n][1], modes[m], set, "seed=1", "log.every=1ep");
                assert_same(&control, &other, what);
            }
    }
}

/* Moments of the whole batch: the same whoever computes its shards, and nearly those of one shard. */
static void batchnorm_of_the_whole_batch(void **state) {
    (void)state;
    static const char *const places[][2] = {{"mode=dp", "devices=cpu:2"},  {"mode=dp", "devices=cpu:8"},
                                            {"mode=ddp", "devices=cpu:3"}, {"mode=dp", "devices=cpu:5"},
                                            {"mode=ddp", "devices=cpu:4"}, {"mode=ddp", "devices=cpu:8"}};
    const char *net = networks[2][1], *sync = "sync_batchnorm=true", *few = "train=3st";
    run(&control, net, "mode=single", "devices=cpu:1", sync, few);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        run(&other, net, places[i][0], places[i][1], sync, few);
        assert_same(&control, &other, places[i][1]);
    }
    run(&other, net, "mode=single", "devices=cpu:1", "batch={size: 64, shards: 1}", few);
    double together = program_number(&control, "val.loss"), one = program_number(&other, "val.loss");
    assert_true(together > one * (1 - 1e-4) && together < one * (1 + 1e-4));
}

static void every_algorithm_and_server(void **state) {
    (void)state;
    static const char *const variants[][4] = {
        {"mode=dp", "devices=cpu:4", "dp.server=dedicated", "comm.algorithm=star"},
        {"mode=dp", "devices=cpu:4", "dp.server=sharded", "comm.algorithm=direct"},
        {"mode=dp", "devices=cpu:2", "dp.scatter=server", "comm.algorithm=auto"},
        {"mode=dp", "devices=cpu:2", "dp={server: dedicated, scatter: server}", "comm.algorithm=auto"},
        {"mode=ddp", "devices=cpu:4", "ddp.overlap=false", "comm.algorithm=direct"},
        {"mode=ddp", "devices=cpu:4", "ddp.bucket={first: 1KB, cap: 16KB}", "comm.algorithm=star"},
        {"mode=ddp", "devices=cpu:2", "data.workers=3", "comm.algorithm=direct"},
        {"mode=single", "devices=cpu:1", "data.workers=4", "deterministic=bitwise"},
        {"mode=ddp", "devices=cpu:4", "comm.link=tcp", "comm.algorithm=auto"},
        {"mode=ddp", "devices=cpu:8", "comm.link=tcp", "comm.algorithm=tree"},
        {"mode=ddp", "devices=cpu:4", "comm.link=tcp", "comm.algorithm=direct"},
        {"mode=ddp", "devices=cpu:2", "comm.link=hosts", "comm.algorithm=hierarchical"},
        {"mode=ddp", "devices=cpu:8", "comm.link=shm", "comm.algorithm=halving_doubling"},
        {"mode=ddp", "devices=cpu:4", "comm.link=shm", "comm.algorithm=tree"},
        {"mode=ddp", "devices=cpu:4", "comm.emulate={bandwidth: 10Gbit, latency: 20us}", "comm.algorithm=auto"},
        {"mode=dp", "devices=cpu:4", "comm.emulate=10Gbit", "comm.algorithm=auto"},
        {"mode=dp", "devices=cpu:3", "dp={server: dedicated, scatter: server}", "comm.algorithm=auto"},
        {"mode=dp", "devices=cpu:3", "dp.server=sharded", "comm.algorithm=direct"},
        {"mode=ddp", "devices=cpu:3", "comm.link=tcp", "comm.algorithm=auto"},
        {"mode=ddp", "devices=cpu:3", "comm.link=hosts", "comm.algorithm=star"},
        {"mode=ddp", "devices=cpu:3", "comm.emulate={bandwidth: 10Gbit, latency: 20us}", "ddp.overlap=false"},
        {"mode=ddp", "devices=cpu:4",
         "comm.emulate={up: 1Gbit, jitter: 100us, links: [{ranks: 0-1, to: 3, latency: 1ms}]}", "comm.algorithm=auto"},
        {"mode=ddp", "devices=cpu:7", "comm.link=tcp", "comm.algorithm=tree"},
        {"mode=ddp", "devices=cpu:3", "optimizer.shard=true", "comm.link=tcp"},
        {"mode=ps", "devices=cpu:1", "ps=1", "comm.algorithm=auto"},
        {"mode=ps", "devices=cpu:3", "ps={servers: 2, partition: 32KB}", "comm.link=tcp"},
        {"mode=ps", "devices=cpu:4", "ps={servers: 4, overlap: false}", "comm.algorithm=star"},
        {"mode=ps", "devices=cpu:8", "ps={servers: 3, place: workers}", "comm.algorithm=auto"},
        {"mode=ps", "devices=cpu:5", "ps={servers: 5, place: workers, partition: 1}", "comm.link=hosts"},
        {"mode=ps", "devices=cpu:2", "ps=3", "comm.emulate={bandwidth: 10Gbit, latency: 20us}"},
        {"mode=fsdp", "devices=cpu:4", "fsdp.unit=16KB", "comm.emulate={bandwidth: 10Gbit, latency: 20us}"},
        {"mode=fsdp", "devices=cpu:7", "fsdp={reshard: backward, unit: 16KB}", "comm.link=hosts"},
        {"mode=single", "devices=cpu:1", "recompute=auto", "comm.algorithm=auto"},
        {"mode=ddp", "devices=cpu:3", "recompute=4", "ddp.bucket={first: 1KB, cap: 16KB}"},
    };
    const char *network = networks[1][1];
    run(&control, network, "mode=single", "devices=cpu:1", "seed=2", "log.every=1ep");
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const char *const *v = variants[i];
        char seed[512];
        snprintf(seed, sizeof seed, "%s", v[2]);
        static struct program p;
        char dir[600];
        snprintf(dir, sizeof dir, "log.dir=%s%zu", scratch_path("variant-"), i);
        program_run(&p, 120, "run", "--json", "--quiet", "--set", network, "--set",
                    "data={set: digits, train: 300, val: 70}", "--set", "batch={size: 64, shards: 8}", "--set",
                    "train=2ep", "--set", "threads=1", "--set", "checkpoint=off", "--set",
                    "optimizer={name: sgd, lr: 0.05, momentum: 0.9, clip: 1}", "--set", "seed=2", "--set", dir, "--set",
                    v[0], "--set", v[1], "--set", seed, "--set", v[3], NULL);
        if (p.code != 0) fail_msg("%s %s %s: exit code %d\n%s", v[0], v[2], v[3], p.code, p.err);
        assert_same(&control, &p, v[2]);
    }
}

static void threads_change_no_bit(void **state) {
    (void)state;
    static const char *const precisions[] = {"precision=f32", "precision=bf16"};
    const char *const both[] = {convolutions, networks[1][1]};
    for (int i = 0; i < 4; i++) {
        run(&control, both[i / 2], precisions[i % 2], "devices=cpu:1", "train=6st", "deterministic=bitwise");
        for (int threads = 2; threads <= 3; threads++) {
            char set[32], what[128];
            snprintf(set, sizeof set, "threads=%d", threads);
            snprintf(what, sizeof what, "network %d, %s, %s", i / 2, precisions[i % 2], set);
            run(&other, both[i / 2], precisions[i % 2], "devices=cpu:1", "train=6st", set);
            assert_same(&control, &other, what);
        }
    }
}

/* Accumulation cuts a shard in pieces: other bits than the whole shard at once, nearly the same
 * numbers, and again the same bits in every mode. */
static void accumulation(void **state) {
    (void)state;
    const char *plain = "model={layers: [flatten, {linear: 32}, relu, {linear: 10}]}";
    run(&control, plain, "mode=single", "devices=cpu:1", "seed=3", "batch.accumulate=1");
    double loss = program_number(&control, "val.loss");
    run(&control, plain, "mode=single", "devices=cpu:1", "seed=3", "batch.accumulate=3");
    double difference = program_number(&control, "val.loss") - loss;
    if (difference > 1e-4 || difference < -1e-4) fail_msg("loss differs by %g", difference);
    run(&other, plain, "mode=dp", "devices=cpu:4", "seed=3", "batch.accumulate=3");
    assert_same(&control, &other, "dp, accumulated");
    run(&other, plain, "mode=ddp", "devices=cpu:2", "ddp.bucket.first=1KB",
        "batch={size: 64, shards: 8, accumulate: 3}");
    run(&control, plain, "mode=single", "devices=cpu:1", "ddp.bucket.first=1KB",
        "batch={size: 64, shards: 8, accumulate: 3}");
    assert_same(&control, &other, "ddp, accumulated");
}

static void ring_order_dp_is_ddp(void **state) {
    (void)state;
    for (int devices = 2; devices <= 4; devices += 2) {
        char set[32];
        snprintf(set, sizeof set, "devices=cpu:%d", devices);
        run(&control, networks[0][1], "mode=dp", set, "comm={order: ring, algorithm: star}",
            "ddp.bucket={first: 4KB, cap: 64KB}");
        run(&other, networks[0][1], "mode=ddp", set, "comm.algorithm=ring", "ddp.bucket={first: 4KB, cap: 64KB}");
        assert_same(&control, &other, set);
    }
}

static void seeds_and_orders_matter(void **state) {
    (void)state;
    run(&control, networks[0][1], "mode=single", "devices=cpu:1", "seed=1", "log.every=1ep");
    run(&other, networks[0][1], "mode=single", "devices=cpu:1", "seed=2", "log.every=1ep");
    assert_string_not_equal(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256"));
    assert_string_not_equal(program_string(&control, "losses_sha256"), program_string(&other, "losses_sha256"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_and_count),       cmocka_unit_test(batchnorm_of_the_whole_batch),
        cmocka_unit_test(every_algorithm_and_server), cmocka_unit_test(accumulation),
        cmocka_unit_test(ring_order_dp_is_ddp),       cmocka_unit_test(seeds_and_orders_matter),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests_name("same bits", tests, NULL, NULL);
}
