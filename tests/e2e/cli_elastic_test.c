/* A run that loses devices goes on with the others, and ends with the bits of one that nobody disturbed. */
#include "engine/base/file.h"
#include "tests/harness/ports.h"
#include "tests/harness/timing.h"
#include "tests/harness/training.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4 };
static struct program p;
static const char train60[] = "train=60st", kill_1[] = "inject.fault={device: 1, step: 30, kind: kill}",
                  saves[] = "checkpoint=20st";

/* The digests of a run that nothing has disturbed: of the weights, of the losses. */
static const char *undisturbed(const char *of) {
    static char weights[80], losses[80];
    static struct program control;
    if (!*weights) {
        const char *const more[] = {"mode=single", "devices=cpu:1", "checkpoint=off", train60, NULL};
        training_start(&control, "undisturbed", more);
        assert_true(program_wait(&control, 60));
        snprintf(weights, sizeof weights, "%s", program_string(&control, "weights_sha256"));
        snprintf(losses, sizeof losses, "%s", program_string(&control, "losses_sha256"));
    }
    return *of == 'w' ? weights : losses;
}

static void same_bits(const struct program *run) {
    static const char *const digests[] = {"weights_sha256", "losses_sha256"};
    for (int i = 0; i < 2; i++) assert_string_equal(program_string(run, digests[i]), undisturbed(digests[i]));
}

static const char *next_dir(void) {
    static char dir[32];
    static int serial;
    snprintf(dir, sizeof dir, "elastic-%d", serial++);
    return dir;
}

/* ---- what the run says of it ---- */

struct event {
    int from, to, lost[RANKS], nlost;
    double seconds;
    int64_t step;
};

static struct event read_event(const struct json_value *v) {
    struct event e = {.from = (int)json_get(v, "from")->integer, .to = (int)json_get(v, "to")->integer};
    const struct json_value *lost = json_get(v, "lost");
    e.step = json_get(v, "step")->integer;
    e.seconds = json_get(v, "seconds")->number;
    assert_true(lost->count <= RANKS);
    for (int i = 0; i < lost->count; i++) e.lost[e.nlost++] = (int)lost->children[i].integer;
    return e;
}

/* The events 'devices' of metrics.jsonl; how many. */
static int read_events(const char *dir, struct event *out, int most) {
    static const struct json_limits limits = {8, 1000, 1 << 20};
    char path[700], *text;
    size_t n;
    int count = 0;
    struct pool *pool;
    snprintf(path, sizeof path, "%s/metrics.jsonl", scratch_path(dir));
    assert_ok(pool_create(&pool));
    assert_ok(file_read(path, 1 << 24, pool, &text, &n));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        const struct json_value *v;
        assert_ok(json_parse(line, (size_t)(end - line), limits, pool, &v));
        const char *name = json_get_text(v, "event");
        if (!name || strcmp(name, "devices") != 0) continue;
        assert_true(count < most);
        out[count++] = read_event(v);
    }
    pool_free(pool);
    return count;
}

static void lost_one(const struct event *e, int from, int rank, int64_t step) {
    assert_int_equal(e->from, from);
    assert_int_equal(e->to, from - 1);
    assert_int_equal(e->nlost, 1);
    assert_int_equal(e->lost[0], rank);
    assert_int_equal(e->step, step);
    assert_true(e->seconds > 0 && e->seconds < timing_limit(30));
}

static void came_back(const struct event *e, int count, int64_t step) {
    assert_int_equal(e->from, RANKS - count);
    assert_int_equal(e->to, RANKS);
    assert_int_equal(e->nlost, 0);
    assert_int_equal(e->step, step);
    assert_true(e->seconds > 0 && e->seconds < timing_limit(30));
}

static void ended_well(const char *dir, int devices) {
    if (p.code) fail_msg("%s: exit code %d: %s", dir, p.code, p.err);
    same_bits(&p);
    assert_float_equal(program_number(&p, "devices"), devices, 0);
    assert_float_equal(program_number(&p, "devices_at_first"), RANKS, 0);
    training_gone();
}

/* ---- one host ---- */

/* The others go on from the step that all have finished: over shared memory and over a store, with checkpoints and
 * without. At the next checkpoint the lost one is tried again. */
static void a_killed_rank_is_left_out(void **state) {
    (void)state;
    static const char *const how[][2] = {
        {"comm.link=shm", saves}, {"comm.link=shm", "checkpoint=off"}, {"comm.link=tcp", saves}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        struct event e[2];
        const char *dir = next_dir();
        bool back = how[i][1] == saves;
        const char *const more[] = {how[i][0], how[i][1], train60, kill_1, "run.elastic.min=2", NULL};
        training_start(&p, dir, more);
        assert_true(program_wait(&p, 60));
        ended_well(dir, back ? RANKS : RANKS - 1);
        assert_float_equal(program_number(&p, "devices_lost"), 1, 0);
        assert_float_equal(program_number(&p, "devices_back"), back, 0);
        training_says(&p, "lost rank 1: 3 devices, after 4, go on from step 29");
        assert_null(strstr(p.err, "starting again"));
        assert_int_equal(read_events(dir, e, 2), 1 + back);
        lost_one(&e[0], RANKS, 1, 29);
        if (back) came_back(&e[1], 1, 40);
    }
}

/* Where that step is not there whole, they go on from the last checkpoint, or from the beginning. */
static void what_was_lost_with_the_rank(void **state) {
    (void)state;
    static const char *const how[][3] = {
        {"inject.fault={device: 0, step: 30, kind: kill}", saves, "optimizer.shard=false"},
        {"inject.fault={device: 0, step: 30, kind: kill}", "checkpoint=off", "optimizer.shard=false"},
        {kill_1, saves, "optimizer.shard=true"}};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        struct event e[2];
        const char *dir = next_dir();
        bool saved = how[i][1] == saves;
        const char *const more[] = {how[i][0], how[i][1], how[i][2], train60, "run.elastic.min=2", NULL};
        training_start(&p, dir, more);
        assert_true(program_wait(&p, 60));
        ended_well(dir, saved ? RANKS : RANKS - 1);
        assert_int_equal(read_events(dir, e, 2), 1 + saved);
        assert_true(e[0].step == 0 || (e[0].step == 20 && saved)); /* 0: the 20th was not on disk yet */
    }
}

/* Batchnorm's statistics change in forward, so those of the step that failed are left. They show in what validation
 * says; and that is asked for again where the loss may have come between a step and its validation. */
static void statistics_are_those_of_the_step(void **state) {
    (void)state;
    static const char net[] = "model={layers: [flatten, linear: 16, batchnorm, linear: 10]}";
    static double loss[2][6];
    for (int i = 0; i < 2; i++) {
        const char *dir = next_dir();
        const char *const more[] = {
            net, train60, "eval=10st", "checkpoint=off", i ? kill_1 : "inject=none", "run.elastic=1", NULL};
        training_start(&p, dir, more);
        assert_true(program_wait(&p, 60));
        if (p.code) fail_msg("exit code %d: %s", p.code, p.err);
        training_numbers(dir, "val\":{\"loss", loss[i], 6);
    }
    for (int k = 0; k < 6; k++) assert_float_equal(loss[0][k], loss[1][k], 0);
}

static void a_rank_that_hangs_is_left_out(void **state) {
    (void)state;
    struct event e[2];
    const char *dir = next_dir();
    const char *const more[] = {
        saves, train60, "comm.timeout=3s", "run.elastic=1", "inject.fault={device: 2, step: 30, kind: stop}", NULL};
    training_start(&p, dir, more);
    assert_true(program_wait(&p, 60));
    ended_well(dir, RANKS);
    assert_int_equal(read_events(dir, e, 2), 2);
    lost_one(&e[0], RANKS, 2, 29);
    came_back(&e[1], 1, 40);
}

/* A device that is lost each time that it is tried, before the next checkpoint: the next try is after twice as many. */
static void what_is_broken_is_tried_less_and_less(void **state) {
    (void)state;
    enum { TRIES = 3, LONG = 300 };
    static const int64_t tried[TRIES] = {40, 120, 280}; /* of every 40th step: the next one, the second, the fourth */
    static const char *const nothing[] = {NULL};
    struct event e[2 * TRIES];
    char hash[80], text[64];
    const char *dir = next_dir();
    const char *const more[] = {"train=300st",   "checkpoint=40st",          kill_1,
                                "run.elastic=1", "comm.emulate.latency=5ms", NULL};
    snprintf(hash, sizeof hash, "%s", training_hash(LONG, nothing));
    training_start(&p, dir, more);
    for (int i = 0; i < TRIES; i++) {
        snprintf(text, sizeof text, "1 device more: 4 devices, after 3, go on from step %d,", (int)tried[i]);
        program_wait_text(&p, text, 60);
        if (i < TRIES - 1) kill(program_rank(&p, 1, 5), SIGKILL);
    }
    assert_true(program_wait(&p, 60));
    if (p.code) fail_msg("exit code %d: %s", p.code, p.err);
    assert_string_equal(program_string(&p, "weights_sha256"), hash);
    assert_float_equal(program_number(&p, "devices_lost"), TRIES, 0);
    assert_float_equal(program_number(&p, "devices_back"), TRIES, 0);
    assert_int_equal(read_events(dir, e, 2 * TRIES), 2 * TRIES);
    for (int i = 0; i < TRIES; i++) came_back(&e[2 * i + 1], 1, tried[i]);
    training_gone();
}

/* Until one is left. The first fault is planted; the next ranks crash where each start has said that it is under way. */
static void one_after_the_other(void **state) {
    (void)state;
    enum { LONG = 1500 };
    static const char *const nothing[] = {NULL};
    struct event e[RANKS];
    char hash[80], text[64];
    const char *dir = next_dir();
    const char *const more[] = {
        "train=1500st", "checkpoint=off", kill_1, "run.elastic=1", "comm.emulate.latency=200us", NULL};
    snprintf(hash, sizeof hash, "%s", training_hash(LONG, nothing));
    training_start(&p, dir, more);
    for (int left = RANKS - 1; left > 1; left--) {
        snprintf(text, sizeof text, "%d devices, after %d, go on", left, left + 1);
        program_wait_text(&p, text, 30);
        kill(program_rank(&p, left - 1, 5), SIGABRT);
    }
    assert_true(program_wait(&p, 60));
    if (p.code) fail_msg("exit code %d: %s", p.code, p.err);
    assert_string_equal(program_string(&p, "weights_sha256"), hash);
    assert_float_equal(program_number(&p, "devices"), 1, 0);
    assert_int_equal(read_events(dir, e, RANKS), RANKS - 1);
    for (int i = 0; i < RANKS - 1; i++) assert_int_equal(e[i].from, RANKS - i);
    for (int i = 1; i < RANKS - 1; i++) assert_int_equal(e[i].lost[0], e[i].from - 1);
    training_gone();
}

static void too_few_are_left(void **state) {
    (void)state;
    const char *const more[] = {saves, train60, kill_1, "run.elastic.min=4", NULL};
    training_start(&p, next_dir(), more);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 75);
    training_says(&p, "left, and the run needs 4 to go on (run.elastic.min)");
    assert_null(strstr(p.err, "going on"));
    training_gone();
}

/* Then all start again, if they may. */
static void restarts_are_for_too_few(void **state) {
    (void)state;
    struct event e;
    const char *dir = next_dir();
    const char *const more[] = {saves, train60, kill_1, "run.elastic.min=4", "run.restarts=1", NULL};
    training_start(&p, dir, more);
    assert_true(program_wait(&p, 60));
    if (p.code) fail_msg("exit code %d: %s", p.code, p.err);
    training_says(&p, "starting again, for the 1. time of 1");
    same_bits(&p);
    assert_float_equal(program_number(&p, "devices"), RANKS, 0);
    assert_int_equal(read_events(dir, &e, 1), 0);
}

/* What would fail again is no loss. */
static void a_loss_that_diverged_is_none(void **state) {
    (void)state;
    const char *const more[] = {saves, train60, "optimizer.lr=1e30", "run.elastic=1", NULL};
    training_start(&p, next_dir(), more);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 1);
    assert_null(strstr(p.err, "going on"));
}

/* ---- several nodes ---- */

/* Two nodes with two devices each, of which the second is lost with all its processes. */
static void start_node(struct program *node, const char *dir, int index, int port) {
    enum { WORDS = 3 };
    char words[WORDS][64];
    const char *const more[] = {"devices=cpu:2",    "run.nodes=2",  words[0],          words[1], "run.elastic=1",
                                "checkpoint=500st", "train=3000st", "log.every=100st", NULL};
    snprintf(words[0], sizeof words[0], "run.node_rank=%d", index);
    snprintf(words[1], sizeof words[1], "run.port=%d", port);
    setenv("ENGINE_TOKEN", "of-the-test-0123456789", 1);
    training_start(node, dir, more);
    unsetenv("ENGINE_TOKEN");
}

/* It may come back: then the same command waits until it is taken in. */
static void a_lost_node_is_left_out(void **state) {
    (void)state;
    static struct program other;
    static const char *const nothing[] = {NULL};
    struct event e[2];
    char hash[80], dir[32];
    snprintf(hash, sizeof hash, "%s", training_hash(3000, nothing));
    for (int back = 0; back < 2; back++) {
        int port = port_free();
        snprintf(dir, sizeof dir, "%s", next_dir());
        start_node(&p, dir, 0, port);
        start_node(&other, dir, 1, port);
        program_wait_text(&p, "step=200/", 30);
        kill(other.pid, SIGKILL); /* its ranks die with it */
        assert_true(program_wait(&other, 10));
        if (back) start_node(&other, dir, 1, port);
        assert_true(program_wait(&p, 60));
        if (p.code) fail_msg("exit code %d: %s", p.code, p.err);
        assert_string_equal(program_string(&p, "weights_sha256"), hash);
        assert_int_equal(read_events(dir, e, 2), 1 + back);
        assert_int_equal(e[0].from, 4);
        assert_int_equal(e[0].to, 2);
        assert_int_equal(e[0].nlost, 2);
        assert_int_equal(e[0].lost[0], 2);
        assert_int_equal(e[0].lost[1], 3);
        if (back) {
            assert_true(program_wait(&other, 10));
            assert_int_equal(other.code, 0);
            assert_int_equal(e[1].step % 500, 0);
            came_back(&e[1], 2, e[1].step);
        }
        training_gone();
    }
}

/* One of up to three nodes, one of which is enough. */
static void start_one_of_three(struct program *node, const char *dir, int index, int port) {
    enum { WORDS = 3 };
    char words[WORDS][64];
    const char *const more[] = {words[0],
                                "run.nodes=3",
                                words[1],
                                words[2],
                                "run.elastic.nodes=1",
                                "checkpoint=500st",
                                "train=6000st",
                                "log.every=100st",
                                "threads=1",
                                "batch.shards=8",
                                NULL};
    snprintf(words[0], sizeof words[0], "devices=cpu:%d", index ? 1 : 2);
    snprintf(words[1], sizeof words[1], "run.node_rank=%d", index);
    snprintf(words[2], sizeof words[2], "run.port=%d", port);
    setenv("ENGINE_TOKEN", "of-the-test-0123456789", 1);
    training_start(node, dir, more);
    unsetenv("ENGINE_TOKEN");
}

/* Two hosts begin, of two devices and of one; a third comes, and the second is lost. */
static void one_to_three_hosts(void **state) {
    (void)state;
    enum { LONG = 6000 };
    static struct program second, third;
    static const char *const shards[] = {"batch.shards=8", NULL};
    struct event e[2];
    char hash[80], dir[32];
    int port = port_free();
    snprintf(hash, sizeof hash, "%s", training_hash(LONG, shards));
    snprintf(dir, sizeof dir, "%s", next_dir());
    start_one_of_three(&p, dir, 0, port);
    start_one_of_three(&second, dir, 1, port);
    program_wait_text(&p, "step=200/", 60);
    start_one_of_three(&third, dir, 2, port);
    program_wait_text(&p, "1 device more: 4 devices, after 3, go on from step ", 60);
    kill(second.pid, SIGKILL); /* its rank dies with it */
    program_wait_text(&p, "lost rank 2: 3 devices, after 4, go on from step ", 60);
    assert_true(program_wait(&p, 60) && program_wait(&third, 20) && program_wait(&second, 20));
    if (p.code || third.code) fail_msg("exit codes %d, %d: %s %s", p.code, third.code, p.err, third.err);
    assert_string_equal(program_string(&p, "weights_sha256"), hash);
    training_says(&p, "node 1 (");
    training_says(&p, ") is lost, with its 1 rank");
    training_says(&third, "the others run without this node: they take it in at the next checkpoint");
    assert_float_equal(program_number(&p, "devices_at_first"), 3, 0);
    assert_int_equal(read_events(dir, e, 2), 2);
    assert_true(e[0].from == 3 && e[0].to == 4 && e[0].nlost == 0 && e[0].step % 500 == 0);
    assert_true(e[1].from == 4 && e[1].to == 3 && e[1].nlost == 1 && e[1].lost[0] == 2);
    training_gone();
}

/* ---- ranks that another launcher starts ---- */

static struct program ranks[RANKS];

/* As torchrun does, by hand. Ends with the exit code of rank 0. */
static int launched(const char *dir, int size, const char *fault) {
    char text[32];
    const char *const more[] = {"devices=cpu", train60, saves, "run.elastic=2", fault, NULL};
    snprintf(text, sizeof text, "%d", size);
    setenv("WORLD_SIZE", text, 1);
    setenv("LOCAL_WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "%d", port_free());
    setenv("MASTER_PORT", text, 1);
    for (int r = 0; r < size; r++) {
        snprintf(text, sizeof text, "%d", r);
        setenv("RANK", text, 1);
        setenv("LOCAL_RANK", text, 1);
        training_start(&ranks[r], dir, more);
    }
    for (int r = 0; r < size; r++) assert_true(program_wait(&ranks[r], 60));
    return ranks[0].code;
}

/* The agent starts fewer without counting it as a restart. */
static void another_launcher_starts_fewer(void **state) {
    (void)state;
    static const char *const names[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR"};
    static const char *const values[] = {"of-the-test", "0", "127.0.0.1"};
    const char *dir = next_dir();
    struct event e;
    for (int i = 0; i < 3; i++) setenv(names[i], values[i], 1);
    assert_int_equal(launched(dir, RANKS, kill_1), 75);
    int code = launched(dir, 2, "inject=none");
    if (code) fail_msg("exit code %d: %s", code, ranks[0].err);
    same_bits(&ranks[0]);
    assert_float_equal(program_number(&ranks[0], "first_step"), 29, 0);
    assert_int_equal(read_events(dir, &e, 1), 1); /* which was lost, and when, the agent alone knows */
    assert_true(e.from == RANKS && e.to == 2 && e.nlost == 0 && e.step == 29);
    assert_int_equal(launched(dir, 1, "inject=none"), 78);
    training_says(&ranks[0], "'run.elastic.min' is 2, but the run begins with 1 device");
    for (int i = 0; i < 3; i++) unsetenv(names[i]);
    static const char *const more[] = {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "RANK", "LOCAL_RANK"};
    for (int i = 0; i < 5; i++) unsetenv(more[i]);
}

/* ---- what cannot be ---- */

static void refused(void **state) {
    (void)state;
    static const char *const wrong[][3] = {
        {"devices=cpu:4", "run.elastic.min=5", "'run.elastic.min' is 5, but the run begins with 4 devices"},
        {"devices=cpu:4", "run.elastic.min=0", "must be off or an integer from 1 to"},
        {"mode=dp", "run.elastic=1", "continues without a device's process, but mode 'dp' has no processes"},
        {"devices=cpu:1", "mode=single", "continues without a device's process, but mode 'single' has no processes"},
        {"devices=cpu:3", "comm.algorithm=halving_doubling", "is not for 3 devices (set by --set) that share 4 shards"},
        {"run.nodes=2", "run.elastic.nodes=3", "'run.elastic.nodes' is 3, but run.nodes 2 (set by --set)"},
        {"ddp.sync=4", "run.elastic=1", "each device steps by its own samples (ddp.sync.every"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const more[] = {"run.elastic=1", wrong[i][0], wrong[i][1], train60, NULL};
        training_start(&p, next_dir(), more);
        assert_true(program_wait(&p, 20));
        assert_int_equal(p.code, 78);
        training_says(&p, wrong[i][2]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_left_out),
        cmocka_unit_test(what_was_lost_with_the_rank),
        cmocka_unit_test(statistics_are_those_of_the_step),
        cmocka_unit_test(a_rank_that_hangs_is_left_out),
        cmocka_unit_test(what_is_broken_is_tried_less_and_less),
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(too_few_are_left),
        cmocka_unit_test(restarts_are_for_too_few),
        cmocka_unit_test(a_loss_that_diverged_is_none),
        cmocka_unit_test(a_lost_node_is_left_out),
        cmocka_unit_test(one_to_three_hosts),
        cmocka_unit_test(another_launcher_starts_fewer),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
