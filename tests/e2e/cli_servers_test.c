/* Mode ps: servers as processes. What passes each port is what the essay says; checkpoints go from and to other modes; a
 * server that dies is named, and the run starts again; what makes no sense together is refused. (The same bits in every
 * form: cli_same_bits_test.) */
#include "tests/harness/training.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct program p, other;
/* 2 x 66,000 parameters or so; two devices or four have one subtree of the shards each. */
static const char *const network[] = {
    "data={set: digits, train: 512, val: 64}",
    "model={layers: [flatten, {linear: 128}, relu, {linear: 256}, relu, {linear: 10}]}",
    "batch={size: 64, shards: 8}",
    "threads=1",
    "eval=end",
    NULL};

/* ---- bytes ---- */

enum { STEPS = 8, MOST = 8 };

static void bytes_of(const char *name, double *out, int n) {
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *list = json_get(json_get(program_json(&p, pool), "bytes"), name);
    assert_int_equal(list->count, n);
    for (int i = 0; i < n; i++) out[i] = list->children[i].number;
    pool_free(pool);
}

/* The arena: parameters, and the header that travels with them, in whole cache lines. */
static double arena_bytes(void) {
    program_train(&p, network, SETS("mode=dp", "devices=cpu:2", "train=8st"));
    double sent[2];
    bytes_of("sent", sent, 2);
    return sent[1] /
           STEPS; /* a worker of one server sends all gradients once a step, and a server apart sends as many weights */
}

static void assert_near(double got, double want, double share, const char *what) {
    if (got < want * (1 - share) || got > want * (1 + share)) fail_msg("%s: %.0f bytes, not %.0f", what, got, want);
}

/* A worker sends K and receives K; a server W K / k each way, and the first block of 16 KB to the other servers, of which
 * each tells in 4 bytes whether it is asked to stop. */
static void ports_pass_what_the_essay_says(void **state) {
    static const struct {
        int workers, servers;
        const char *devices, *ps;
    } of[] = {{2, 1, "devices=cpu:2", "ps={servers: 1, partition: 64KB}"},
              {4, 2, "devices=cpu:4", "ps={servers: 2, partition: 64KB}"},
              {2, 2, "devices=cpu:2", "ps={servers: 2, partition: 64KB, overlap: false}"},
              {2, 2, "devices=cpu:2", "ps={servers: 2, partition: 1MB}"}};
    static const char *const links[] = {"comm.link=shm", "comm.link=tcp"};
    double k = arena_bytes(), sent[MOST], received[MOST];
    (void)state;
    for (int i = 0; i < 8; i++) {
        int workers = of[i / 2].workers, servers = of[i / 2].servers, ranks = workers + servers;
        program_train(&p, network, SETS("mode=ps", of[i / 2].devices, of[i / 2].ps, links[i % 2], "train=8st"));
        bytes_of("sent", sent, ranks);
        bytes_of("received", received, ranks);
        double all = 0, first = (servers - 1) * (16384.0 + 4);
        double near = strstr(of[i / 2].ps, "false") ? 0.01 : 0; /* the sums then travel by themselves */
        for (int r = 0; r < servers; r++) {
            assert_near(sent[r], STEPS * k * workers / servers, 0.1, "a server sends");
            all += sent[r];
        }
        for (int r = servers; r < ranks; r++) {
            assert_near(sent[r], STEPS * k, near, "a worker sends");
            assert_near(received[r], STEPS * k, near, "a worker receives");
        }
        assert_near(all, STEPS * (k * workers + first), near ? 0.03 : 0, "all servers send");
    }
}

/* ---- compressed gradients ---- */

static double worker_sends(const char *compress, const char *ps) {
    double sent[2];
    program_train(&p, network, SETS("mode=ps", "devices=cpu:1", ps, compress, "train=8st"));
    bytes_of("sent", sent, 2);
    return sent[1] / STEPS;
}

/* n gradients beside the header of 64 bytes, which travels as it is: as the formula of each kind says. */
static void pushes_have_the_bytes_of_their_kind(void **state) {
    (void)state;
    double n = arena_bytes() / 4 - 16;
    const char *whole = "ps.partition=1GB";
    assert_near(worker_sends("comm.compress=bf16", whole), 2 * n + 64, 0, "bf16");
    assert_near(worker_sends("comm.compress=fp16", "ps.partition=20KB"), 2 * n + 64, 0, "fp16");
    assert_near(worker_sends("comm.compress=int8", whole), 260 * ceil(n / 256) + 64, 0, "int8");
    assert_near(worker_sends("comm.compress=onebit", whole), 36 * ceil(n / 256) + 64, 0, "onebit");
    assert_near(worker_sends("comm.compress={kind: topk, ratio: 0.01}", whole), 8 * ceil(0.01 * n) + 64, 0, "topk");
}

static void assert_hash(const char *what, const char *hash) {
    if (strcmp(program_string(&p, "weights_sha256"), hash) != 0) fail_msg("%s: other weights", what);
}

/* Where the sum is the same by definition, so are the weights: 16 bits however they are cut, the largest of one bucket. */
static void pushes_add_what_ddp_adds(void **state) {
    static const char *const kinds[] = {"comm.compress=bf16", "comm.compress=fp16",
                                        "comm.compress={kind: topk, ratio: 0.05}"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        program_train(&other, network, SETS("mode=ddp", "devices=cpu:3", kinds[i], "train=40st", "ddp.bucket=flat"));
        const char *hash = program_string(&other, "weights_sha256");
        program_train(&p, network, SETS("mode=ps", "devices=cpu:3", "ps={partition: 1GB}", kinds[i], "train=40st"));
        assert_hash(kinds[i], hash);
        if (i == 2) continue; /* of each part the largest */
        program_train(&p, network,
                      SETS("mode=ps", "devices=cpu:3", "ps={servers: 3, partition: 20KB}", kinds[i], "train=40st",
                           "comm.link=tcp"));
        assert_hash(kinds[i], hash);
    }
}

/* What servers add need not be rounded again, so int8 is not ddp's; on workers it is. */
static void pushes_in_eight_bits(void **state) {
    const char *const eight = "comm.compress=int8";
    (void)state;
    program_train(&other, network, SETS("mode=ps", "devices=cpu:3", "train=40st"));
    double plain = program_number(&other, "train.loss");
    program_train(&other, network, SETS("mode=ps", "devices=cpu:3", eight, "train=40st"));
    assert_near(program_number(&other, "train.loss"), plain, 0.03, eight);
    program_train(&p, network,
                  SETS("mode=ps", "devices=cpu:3", "ps={servers: 3, partition: 20KB}", eight, "train=40st"));
    assert_near(program_number(&p, "train.loss"), plain, 0.03, "three servers");
    program_train(&other, network, SETS("mode=ddp", "devices=cpu:3", eight, "train=40st"));
    program_train(&p, network,
                  SETS("mode=ps", "devices=cpu:3", "ps={servers: 3, place: workers}", eight, "train=40st"));
    assert_hash("on workers", program_string(&other, "weights_sha256"));
}

/* ---- checkpoints ---- */

static void checkpoints_go_anywhere(void **state) {
    static const char *const ways[][3] = {{"mode=ps", "devices=cpu:2", "ps=2"},
                                          {"mode=ps", "devices=cpu:4", "ps={servers: 3, place: workers}"},
                                          {"mode=ddp", "devices=cpu:3", "optimizer.shard=true"},
                                          {"mode=single", "devices=cpu:1", "ps=1"}};
    (void)state;
    training_goes_anywhere(network, ways, 20);
}

/* ---- traces ---- */

static void traces_of_servers_are_read(void **state) {
    char dir[600];
    (void)state;
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("traced"));
    program_train(&p, network, SETS("mode=ps", "devices=cpu:2", "ps=3", "train=8st", "log.trace=2..6", dir));
    program_run(&p, 60, "simulate", dir + 8, "--devices", "4", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "ready as traced"));
    assert_null(strstr(p.err, "warning"));
}

/* ---- faults ---- */

/* Rank 1 is a server. */
static void a_lost_server_is_named(void **state) {
    (void)state;
    training_names_lost(SETS("mode=ps", "devices=cpu:2", "ps=2", "comm.link=tcp"), 1);
}

/* Any server, or a worker: all stop after the same step, and it is saved. */
static void one_rank_asked_to_stop(void **state) {
    static const char *const alone[] = {"checkpoint=off", NULL};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const char *const more[] = {"mode=ps",
                                    "devices=cpu:2",
                                    i % 2 ? "ps={servers: 2, overlap: false}" : "ps=2",
                                    i % 2 ? "comm.link=tcp" : "comm.link=shm",
                                    "checkpoint=100000000st",
                                    NULL};
        char dir[32];
        snprintf(dir, sizeof dir, "asked-%d", i);
        training_begin(&p, dir, more);
        kill(program_rank(&p, i / 2, 5), SIGTERM);
        training_ends(&p, 5);
        assert_int_equal(p.code, 143);
        assert_null(strstr(p.err, "error"));
        training_gone();
        long saved = training_saved(dir);
        assert_true(saved >= 10);
        training_resume(&p, dir, saved + 20);
        assert_true(program_wait(&p, 60));
        assert_string_equal(program_string(&p, "weights_sha256"), training_hash(saved + 20, alone));
    }
}

static void a_lost_server_is_replaced(void **state) {
    (void)state;
    training_replaces_lost(SETS("mode=ps", "devices=cpu:2", "ps=2"), 0, 3000);
}

/* Every worker is a server, too: without one of them the others have its parts. */
static void a_worker_that_serves_is_left_out(void **state) {
    (void)state;
    training_goes_on_without(SETS("mode=ps", "ps={servers: 4, place: workers}"));
}

/* The others go on without a worker; without a server all start again, as often as run.restarts says. */
static void a_lost_worker_is_left_out(void **state) {
    static const char *const alone[] = {"checkpoint=off", NULL};
    (void)state;
    for (int rank = 1; rank < 4; rank += 2) { /* a server, a worker */
        const char *const more[] = {
            "mode=ps",         "devices=cpu:3", "ps=2",          "run.elastic=2",  "run.restarts=1",
            "checkpoint=10st", "train=3000st",  "comm.link=tcp", "log.every=10st", NULL};
        training_begin(&p, rank == 1 ? "elastic-server" : "elastic-worker", more);
        kill(program_rank(&p, rank, 5), SIGKILL);
        training_ends(&p, 60);
        if (p.code) fail_msg("exit code %d: %s", p.code, p.err);
        training_says(&p, rank == 1 ? "rank 1 is lost, a server, without which a part of the weights is missing"
                                    : "lost rank 3: 2 devices, after 3");
        training_says(&p, rank == 1 ? "starting again" : "going on with 2 of 3 devices");
        assert_string_equal(program_string(&p, "weights_sha256"), training_hash(3000, alone));
        training_gone();
    }
    const char *const none[] = {"mode=ps", "devices=cpu:3", "ps=2", "run.elastic=2", NULL};
    training_begin(&p, "elastic-none", none);
    kill(program_rank(&p, 0, 5), SIGKILL);
    training_ends(&p, 30);
    assert_int_equal(p.code, 75);
    training_says(&p, "rank 0 is lost, a server");
}

/* ---- what is refused ---- */

static void refusals(void **state) {
    static const struct {
        const char *set, *says;
    } of[] = {
        {"ps=0", "'ps' must be"},
        {"ps=each\tdevices=cpu", "the number of devices (set by --set) is not given"},
        {"ps={servers: 3, place: workers}", "3 servers on workers, but there are 2"},
        {"optimizer.shard=true", "in mode ps the servers have the optimizer's state"},
        {"ddp.sync=4", "mode is not 'ddp'"},
        {"ps={servers: 2, staleness: 1}", "no worker would get weights of one state"},
        {"ps={place: workers, staleness: 1}", "a server that does not wait (set by --set) computes nothing else"},
        {"comm.compress=powersgd", "this kind makes its sums by exchanges among all ranks, but servers stand apart"},
        {"comm.order=ring", "order 'ring' adds in a circle of ranks, which servers do not form"},
        {"comm.algorithm=tree", "algorithm 'tree' is for gradients that all ranks add"},
        {"ps.staleness=2\trun.elastic=1", "here each gradient is an update of its own (ps.staleness, set by --set)"},
        {"ps={servers: 2, hosts: own}", "2 servers on hosts of their own, of 1 (by default), leave none to compute"},
        {"ps={servers: 2, hosts: spread, place: workers}", "ps.hosts 'spread' is for servers apart"},
        {"sync_batchnorm=true", "servers apart compute nothing (by default)\n      hint: use ps.place: workers"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char set[128], *tab;
        snprintf(set, sizeof set, "%s", of[i].set);
        if ((tab = strchr(set, '\t'))) *tab = '\0';
        program_run(&p, 30, "run", "--set", "data=digits", "--set", "model=mlp", "--set", "mode=ps", "--set",
                    "devices=cpu:2", "--set", set, tab ? "--set" : NULL, tab ? tab + 1 : NULL, NULL);
        assert_int_equal(p.code, 78);
        if (!strstr(p.err, of[i].says)) fail_msg("%s: %s", of[i].set, p.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_pass_what_the_essay_says),
        cmocka_unit_test(checkpoints_go_anywhere),
        cmocka_unit_test(a_lost_server_is_named),
        cmocka_unit_test(a_lost_server_is_replaced),
        cmocka_unit_test(a_worker_that_serves_is_left_out),
        cmocka_unit_test(refusals),
        cmocka_unit_test(one_rank_asked_to_stop),
        cmocka_unit_test(a_lost_worker_is_left_out),
        cmocka_unit_test(traces_of_servers_are_read),
        cmocka_unit_test(pushes_add_what_ddp_adds),
        cmocka_unit_test(pushes_in_eight_bits),
        cmocka_unit_test(pushes_have_the_bytes_of_their_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
