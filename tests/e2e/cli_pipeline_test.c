/* Mode pipeline: the layers in stages give the bits of one device, however they are cut, by both schedules, over any link, and
 * on several copies; what passes each port is what the essay says (modes/pipeline.c); checkpoints go from and to other
 * modes; a stage that dies is named, and the run starts again; what is impossible is refused. */
#include "tests/harness/training.h"

#include <string.h>

static struct program p, other;
static const char *const mlp[] = {"data={set: digits, train: 300, val: 70}",
                                  "model={layers: [flatten, {linear: {units: 48, name: a}}, relu, {dropout: 0.2}, "
                                  "{linear: {units: 32, name: b}}, relu, "
                                  "{linear: {units: 24, name: c}}, relu, {linear: {units: 10, name: d}}]}",
                                  "batch={size: 64, shards: 8}",
                                  "optimizer={name: sgd, lr: 0.05, momentum: 0.9, clip: 1}",
                                  "train=1ep",
                                  "threads=1",
                                  NULL};
/* Convolutions, batchnorm's buffers, residual connections; and text with weights that the first and the last stage have. */
static const char *const pictures[] = {"data={set: shapes, train: 128, val: 40}",
                                       "model={zoo: resnet, blocks: [1, 1, 1], width: 8}",
                                       "batch={size: 64, shards: 8}",
                                       "optimizer={name: lamb, lr: 0.01}",
                                       "train=3st",
                                       "threads=1",
                                       NULL};
static const char *const text[] = {"data=grammar",
                                   "model={zoo: gpt, depth: 2, width: 32, heads: 2}",
                                   "batch={size: 16, shards: 8, accumulate: 2}",
                                   "optimizer={name: adamw, lr: 1e-3, clip: 1}",
                                   "train=3st",
                                   "threads=1",
                                   "ema=0.9",
                                   NULL};

/* ---- bits ---- */

static const char *const places[][3] = {
    {"devices=cpu:2", "pipeline=auto", "comm.link=shm"},
    {"devices=cpu:3", "pipeline={schedule: gpipe}", "comm.link=tcp"},
    {"devices=cpu:4", "pipeline=auto", "recompute=2"},
    {"devices=cpu:4", "pipeline=2", "comm.link=tcp"},
    {"devices=cpu:6", "pipeline={stages: 3, schedule: gpipe}", "comm.link=shm"},
    {"devices=cpu:6", "pipeline=2", "ddp.bucket={first: 1KB, cap: 4KB}"},
};

static void assert_bits(const char *const *network) {
    program_train(&other, network, SETS("mode=single", "devices=cpu:1"));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        program_train(&p, network, SETS("mode=pipeline", places[i][0], places[i][1], places[i][2]));
        program_assert_same(&other, &p, places[i][1]);
        if (program_number(&p, "val.loss") != program_number(&other, "val.loss"))
            fail_msg("%s, %s: validation differs", places[i][0], places[i][1]);
    }
}

static void a_perceptron(void **state) {
    (void)state;
    assert_bits(mlp);
    program_train(&p, mlp, SETS("mode=pipeline", "devices=cpu:3", "pipeline.stages=[b, d]"));
    program_assert_same(&other, &p, "stages that are named");
}

static void residual_networks(void **state) {
    (void)state;
    assert_bits(pictures);
}

static void tied_weights(void **state) {
    (void)state;
    assert_bits(text);
}

/* ---- bytes ---- */

static double bytes_of(const char *name, int rank) {
    struct pool *pool;
    assert_ok(pool_create(&pool));
    double bytes = json_get(json_get(program_json(&p, pool), "bytes"), name)->children[rank].number;
    pool_free(pool);
    return bytes;
}

/* Stage 0 sends 48 floats a sample to stage 1, and receives as many; stage 1 exchanges 32 with stage 2. In a step there are
 * 64 samples. What the ranks tell each other is small: less than 2 KB a step each. */
static void ports_pass_the_activations(void **state) {
    enum { STEPS = 4, SAMPLES = 64, TOLD = 2048 };
    static const double floats[] = {48, 48 + 32, 32};
    static const char *const links[] = {"comm.link=shm", "comm.link=tcp"}, *const stages = "pipeline.stages=[b, c]";
    (void)state;
    for (int i = 0; i < 2; i++) {
        program_train(
            &p, mlp,
            SETS("mode=pipeline", "devices=cpu:3", stages, links[i], "train=4st", "optimizer={name: sgd, lr: 0.1}"));
        for (int r = 0; r < 3; r++) {
            double want = floats[r] * SAMPLES * 4 * STEPS, sent = bytes_of("sent", r),
                   received = bytes_of("received", r);
            if (sent < want || sent > want + TOLD * STEPS) fail_msg("rank %d sends %.0f, not %.0f", r, sent, want);
            if (received < want || received > want + TOLD * STEPS)
                fail_msg("rank %d receives %.0f, not %.0f", r, received, want);
        }
    }
}

/* 8 shards on 2 copies are 4 each, in 3 pieces: 12 micro-batches. */
static void the_summary_has_the_bubble(void **state) {
    (void)state;
    program_train(&p, mlp,
                  SETS("mode=pipeline", "devices=cpu:6", "pipeline=3", "batch={size: 96, shards: 8, accumulate: 3}"));
    assert_true(program_number(&p, "pipeline.micro_batches") == 12);
    assert_true(program_number(&p, "pipeline.copies") == 2);
    double bubble = program_number(&p, "pipeline.bubble"), share = program_number(&p, "pipeline.waited");
    assert_true(bubble > 2.0 / 14 - 1e-8 && bubble < 2.0 / 14 + 1e-8);
    assert_true(share > 0 && share < 1);
}

/* ---- checkpoints ---- */

static void checkpoints_go_anywhere(void **state) {
    static const char *const ways[][3] = {{"mode=pipeline", "devices=cpu:3", "pipeline=auto"},
                                          {"mode=pipeline", "devices=cpu:4", "pipeline={stages: 2, schedule: gpipe}"},
                                          {"mode=ddp", "devices=cpu:3", "optimizer.shard=true"},
                                          {"mode=single", "devices=cpu:1", "pipeline=auto"}};
    (void)state;
    training_goes_anywhere(mlp, ways, 10);
}

/* ---- faults ---- */

static void a_lost_stage_is_named(void **state) {
    (void)state;
    training_names_lost(SETS("mode=pipeline", "devices=cpu:2", "comm.link=tcp"), 1);
}

static void a_lost_stage_is_replaced(void **state) {
    (void)state;
    training_replaces_lost(SETS("mode=pipeline", "devices=cpu:2"), 1, 1000);
}

/* ---- what is refused ---- */

static void refusals(void **state) {
    static const struct {
        const char *devices, *set, *says;
    } of[] = {
        {"devices=cpu:3", "pipeline=2", "3 devices (set by --set) cannot be cut into stages by this"},
        {"devices=cpu:1", "pipeline=auto", "1 devices (set by --set) cannot be cut into stages by this"},
        {"devices=cpu:2", "pipeline.stages=[nothing]", "model 'mlp' has no layer 'nothing'"},
        {"devices=cpu:2", "pipeline.stages=[relu1]", "no stage can begin with layer 'relu1'"},
        {"devices=cpu:8", "pipeline=8", "8 stages, but model 'mlp' can be cut into"},
        {"devices=cpu:2", "sync_batchnorm=true", "which pass through a pipeline one by one"},
        {"devices=cpu:2", "optimizer.shard=true", "'optimizer.shard' is for mode ddp"},
        {"devices=cpu:2", "run.elastic.min=1", "in mode pipeline each has a stage of its own"},
        {"devices=cpu:2", "comm.order=ring", "which have different stages in mode pipeline"},
        {"devices=cpu:2", "comm.compress=fp16", "mode pipeline keeps no gradients"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        program_run(&p, 30, "run", "--set", "data=digits", "--set", "model=mlp", "--set", "mode=pipeline", "--set",
                    of[i].devices, "--set", of[i].set, NULL);
        if (p.code != 78) fail_msg("%s: code %d, %s", of[i].set, p.code, p.err);
        if (!strstr(p.err, of[i].says)) fail_msg("%s: %s", of[i].set, p.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_perceptron),
        cmocka_unit_test(residual_networks),
        cmocka_unit_test(tied_weights),
        cmocka_unit_test(ports_pass_the_activations),
        cmocka_unit_test(the_summary_has_the_bubble),
        cmocka_unit_test(checkpoints_go_anywhere),
        cmocka_unit_test(a_lost_stage_is_named),
        cmocka_unit_test(a_lost_stage_is_replaced),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
