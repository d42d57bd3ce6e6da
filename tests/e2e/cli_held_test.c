/* What ranks hold, as the summary of a run counts it: against sums of layers that are made by hand, against what
 * 'engine model summary' predicts, and against the measured peak. */
#include "tests/harness/training.h"

#include "engine/settings/held.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct program p;
static struct pool *pool;

/* 784 numbers, 512, 512, ..., 10: the first layer is the largest, of K bytes in all. Each rank computes one shard of two
 * samples, in one pass; adam has two numbers for each weight. */
enum { DEVICES = 4, DEPTH = 9 };
static const double FIRST = 4. * (784 * 512 + 512), EACH = 4. * (512 * 512 + 512), LAST = 4. * (512 * 10 + 10);
static const double K = FIRST + (DEPTH - 1) * EACH + LAST;
static const char *const deep[] = {"data={set: digits, train: 64, val: 8}",
                                   "model={zoo: mlp, hidden: [512, 512, 512, 512, 512, 512, 512, 512, 512]}",
                                   "batch={size: 8, shards: 4}",
                                   "threads=1",
                                   "train=3st",
                                   "eval=end",
                                   "checkpoint=off",
                                   "optimizer=adam",
                                   "comm={link: tcp}",
                                   "devices=cpu:4",
                                   "fsdp={unit: 1MB}",
                                   NULL};

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool) != ERR_NONE;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static double held_of(enum held_part part, int rank) {
    const struct json_value *held = json_get(program_json(&p, pool), "held_bytes");
    assert_non_null(held);
    const struct json_value *list = json_get(held, held_keys[part]);
    assert_true(list && list->count == DEVICES);
    return list->children[rank].number;
}

/* Parts end at multiples of 16 KB in each bucket, and the arena has a header. */
static void assert_bytes(const char *what, double got, double want) {
    if (fabs(got - want) > 0.01 * want + 20e3) fail_msg("%s: %.0f bytes, not %.0f", what, got, want);
}

/* A bucket of fsdp is a layer. The first leaves as the last one, and three of them may be on their way; three neighbours
 * with the first layer among them are the most that are gathered at a time, of which a rank has its fourth anyway. */
static void each_mode_holds_what_it_should(void **state) {
    const double gathered = (FIRST + 2 * EACH) * 3 / 4, lean = K / 4 + FIRST;
    const struct {
        const char *mode, *more;
        double want[HELD_ACTIVATIONS]; /* weights, gathered, gradients, leaving, optimizer */
    } of[] = {
        {"mode=ddp", "optimizer.shard=false", {K, 0, K, 0, 2 * K}},
        {"mode=ddp", "optimizer.shard=true", {K, 0, K, 0, 2 * K / 4}},
        {"mode=fsdp", "fsdp.reshard=never", {K, 0, lean, 3 * FIRST, 2 * K / 4}},
        {"mode=fsdp", "fsdp.reshard=backward", {K / 4, K * 3 / 4, lean, 3 * FIRST, 2 * K / 4}},
        {"mode=fsdp", "fsdp.reshard=forward", {K / 4, gathered, lean, 3 * FIRST, 2 * K / 4}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        program_train(&p, deep, SETS(of[i].mode, of[i].more));
        const struct json_value *peak = json_get(program_json(&p, pool), "peak_rss_bytes");
        for (int r = 0; r < DEVICES; r++) {
            double all = held_of(HELD_ACTIVATIONS, r);
            if (all < 2 * 512 * DEPTH * 4) fail_msg("activations of %.0f bytes", all);
            for (int k = 0; k < HELD_ACTIVATIONS; k++) {
                assert_bytes(held_keys[k], held_of((enum held_part)k, r), of[i].want[k]);
                all += held_of((enum held_part)k, r);
            }
            bool whole = i < 2; /* else not all of it is held at the same time */
            if (peak->children[r].number < (whole ? all : all / 2))
                fail_msg("%s, %s: a peak of %.0f of %.0f bytes", of[i].mode, of[i].more, peak->children[r].number, all);
        }
    }
}

/* Four stages have all layers together, each with its gradients of four passes, of which three sums are kept at once. */
static void stages_hold_all_layers_together(void **state) {
    double weights = 0, gradients = 0, state_bytes = 0;
    (void)state;
    program_train(&p, deep, SETS("mode=pipeline"));
    for (int r = 0; r < DEVICES; r++) {
        assert_bytes("gradients", held_of(HELD_GRADIENTS, r), 3 * held_of(HELD_WEIGHTS, r));
        weights += held_of(HELD_WEIGHTS, r), gradients += held_of(HELD_GRADIENTS, r);
        state_bytes += held_of(HELD_OPTIMIZER, r);
        assert_true(held_of(HELD_WEIGHTS, r) < K / 2 && held_of(HELD_ACTIVATIONS, r) > 0);
    }
    assert_bytes("weights", weights, K);
    assert_bytes("gradients", gradients, 3 * K);
    assert_bytes("optimizer", state_bytes, 2 * K);
}

/* The two servers on workers have a half of the state each, and a device of one process all of it. */
static void servers_hold_the_state(void **state) {
    (void)state;
    program_train(&p, deep, SETS("mode=ps", "ps={servers: 2, place: workers}"));
    double all = 0;
    for (int r = 0; r < DEVICES; r++) all += held_of(HELD_OPTIMIZER, r), assert_bytes("weights", held_of(0, r), K);
    assert_bytes("optimizer", all, 2 * K);
}

static void the_prediction_is_the_same(void **state) {
    static const char *const modes[] = {"ddp", "fsdp"};
    const char *path = scratch_path("deep.yaml");
    FILE *f = fopen(path, "w");
    (void)state;
    assert_non_null(f);
    for (int k = 0; deep[k]; k++)
        fprintf(f, "%.*s: %s\n", (int)strcspn(deep[k], "="), deep[k], strchr(deep[k], '=') + 1);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        char mode[32];
        double held[HELD_PARTS];
        snprintf(mode, sizeof mode, "mode=%s", modes[i]);
        program_train(&p, deep, SETS(mode, "fsdp.reshard=forward"));
        for (int k = 0; k < HELD_PARTS; k++) held[k] = held_of((enum held_part)k, 1);
        program_run(&p, 30, "model", "summary", path, "--devices", "4", "--mode", modes[i], "--json", NULL);
        if (p.code != 0) fail_msg("%s", p.err);
        const struct json_value *rows = json_get(program_json(&p, pool), "memory"), *found = NULL;
        for (int r = 0; r < rows->count; r++) {
            const char *way = json_get(&rows->children[r], "way")->text;
            if (!strcmp(way, i ? "fully sharded" : "all-reduce")) found = &rows->children[r];
        }
        assert_non_null(found);
        for (int k = 0; k < HELD_PARTS; k++) assert_bytes(held_keys[k], held[k], json_get(found, held_keys[k])->number);
    }
}

/* The line for people names what there is. */
static void people_read_it_too(void **state) {
    (void)state;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("people"));
    const char *words[PROGRAM_ARGS] = {"run", "--set", "mode=ddp", "--set", dir};
    int n = 5;
    for (int k = 0; deep[k]; k++) words[n++] = "--set", words[n++] = deep[k];
    program_start(&p, words);
    assert_true(program_wait(&p, 60));
    if (p.code != 0) fail_msg("%s", p.err);
    if (!strstr(p.out, "memory of the rank that holds most  9.6 MB weights, 9.6 MB gradients, 19.1 MB optimizer, "))
        fail_msg("%s", p.out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mode_holds_what_it_should),
        cmocka_unit_test(stages_hold_all_layers_together),
        cmocka_unit_test(servers_hold_the_state),
        cmocka_unit_test(the_prediction_is_the_same),
        cmocka_unit_test(people_read_it_too),
    };
    return cmocka_run_group_tests_name("held", tests, set_up, tear_down);
}
