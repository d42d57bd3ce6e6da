/* Mode fsdp: the bits of one device, whatever is given back when; bytes as the essay says; less memory; checkpoints from and
 * to other modes; a lost rank; and what is refused. */
#include "tests/harness/training.h"

#include <string.h>

static struct program p, other;
/* 2 x 66,000 parameters or so, of which the largest has several units of 64 KB. */
static const char *const network[] = {
    "data={set: digits, train: 500, val: 70}",
    "model={layers: [flatten, {linear: 128}, relu, {linear: 256}, relu, {linear: 10}]}", "batch={size: 64, shards: 8}",
    "threads=1", NULL};
static const char *const reshards[] = {"fsdp={reshard: forward, unit: 16KB}", "fsdp={reshard: backward, unit: 64KB}",
                                       "fsdp={reshard: never, unit: 16KB}", "fsdp={unit: 1MB, overlap: false}"};
enum { RESHARDS = sizeof reshards / sizeof *reshards };

/* ---- bits ---- */

static void the_bits_of_one_device(void **state) {
    static const char *const features[][2] = {
        {"optimizer={name: adam, clip: 1}", "ema=0.9"},
        {"optimizer={name: lamb}", "recompute=2"},
        {"optimizer={name: sgd, lr: 0.05, momentum: 0.9, freeze: [linear1.*]}", "batch.accumulate=2"},
        {"optimizer={name: adam, groups: [{match: \"*.bias\", weight_decay: 0}]}", "precision=bf16"},
    };
    static const char *const devices[] = {"devices=cpu:1", "devices=cpu:2", "devices=cpu:3", "devices=cpu:5",
                                          "devices=cpu:8"};
    (void)state;
    for (size_t f = 0; f < sizeof features / sizeof *features; f++) {
        const char *const *with = features[f];
        program_train(&other, network,
                      SETS("mode=single", "devices=cpu:1", with[0], with[1], "train=10st", "eval=4st"));
        for (size_t i = 0; i < RESHARDS * 5; i++) {
            const char *link = i % 3 ? "comm.link=shm" : "comm.link=tcp";
            if (f % 2 && i % 5 % 2) continue; /* the odd features on 1, 3 and 8 devices */
            program_train(
                &p, network,
                SETS("mode=fsdp", devices[i % 5], reshards[i / 5], link, with[0], with[1], "train=10st", "eval=4st"));
            program_assert_same(&other, &p, reshards[i / 5]);
            if (program_number(&p, "val.loss") != program_number(&other, "val.loss")) fail_msg("validation differs");
        }
    }
}

/* Many units, whose pages others take over; layers of sizes that leave places between parameters, which are part of the norm. */
static void the_bits_of_many_units(void **state) {
    static const char *const deep[] = {"data={set: digits, train: 320, val: 16}",
                                       "model={zoo: mlp, hidden: [250, 250, 130, 250, 61, 250, 250, 250]}",
                                       "batch={size: 64, shards: 8}",
                                       "threads=1",
                                       "train=6st",
                                       "eval=end",
                                       NULL};
    static const char *const with[] = {"optimizer={name: adam, clip: 0.5}", "optimizer={name: lamb}",
                                       "optimizer={name: sgd, lr: 0.05, clip: 1, freeze: [fc3.*]}"};
    static const char *const overlaps[] = {"fsdp.overlap=true", "fsdp.overlap=false"};
    static const char *const units[] = {"fsdp={reshard: forward, unit: 64KB}", "fsdp={reshard: backward, unit: 1KB}",
                                        "fsdp={reshard: never, unit: 200KB}"};
    (void)state;
    for (int w = 0; w < 3; w++) {
        program_train(&other, deep, SETS("mode=single", "devices=cpu:1", with[w]));
        for (int i = 0; i < 6; i++)
            for (int d = 0; d < 2; d++) {
                const char *devices = d ? "devices=cpu:4" : "devices=cpu:2",
                           *link = i % 2 ? "comm.link=shm" : "comm.link=tcp";
                program_train(&p, deep, SETS("mode=fsdp", devices, units[i / 2], overlaps[(i + d) % 2], with[w], link));
                program_assert_same(&other, &p, units[i / 2]);
            }
    }
}

/* All shards of a rank go through a layer together, and their gradients are added after it. */
static void the_bits_of_batches_that_are_normalized_together(void **state) {
    static const char *const net[] = {"data={set: shapes, train: 64, val: 10}",
                                      "model=resnet20",
                                      "batch={size: 32, shards: 8}",
                                      "threads=1",
                                      "train=3st",
                                      "eval=end",
                                      "sync_batchnorm=true",
                                      "optimizer={name: sgd, clip: 1}",
                                      NULL};
    (void)state;
    program_train(&other, net, SETS("mode=single", "devices=cpu:1"));
    program_train(&p, net, SETS("mode=fsdp", "devices=cpu:4", "fsdp={reshard: never, unit: 16KB}"));
    program_assert_same(&other, &p, "sync_batchnorm");
}

/* The head shares its weights with the first layer, which other layers stand between. */
static void tied_weights(void **state) {
    static const char *const gpt[] = {"model={zoo: gpt-mini, depth: 2, width: 32, heads: 2}",
                                      "data={set: grammar, train: 64, val: 16, context: 16}",
                                      "batch={size: 8, shards: 4}",
                                      "threads=1",
                                      "train=4st",
                                      "optimizer=adamw",
                                      NULL};
    (void)state;
    program_train(&other, gpt, SETS("mode=single", "devices=cpu:1"));
    for (int i = 0; i < 2 * RESHARDS; i++) {
        program_train(&p, gpt,
                      SETS("mode=fsdp", i % 2 ? "devices=cpu:3" : "devices=cpu:2", reshards[i / 2],
                           i % 2 ? "recompute=3" : "recompute=1"));
        program_assert_same(&other, &p, reshards[i / 2]);
    }
}

/* ---- bytes ---- */

enum { STEPS = 8, DEVICES = 4 };

static double sum_of(const char *name) {
    struct pool *pool;
    double all = 0;
    assert_ok(pool_create(&pool));
    const struct json_value *list = json_get(json_get(program_json(&p, pool), "bytes"), name);
    for (int i = 0; i < list->count; i++) all += list->children[i].number;
    pool_free(pool);
    return all;
}

/* Each of the exchanges moves (W - 1) K in all: of the gradients one, of the weights one for each pass that gathers them.
 * The last units of forward stay for backward, and the first ones of the next forward come ahead, after the last step, too:
 * the first layer's and at most two more. The sums of a step are 64 bytes for each rank but the first. */
static void exchanges_are_those_of_the_plan(void **state) {
    static const double exchanges[] = {3, 2, 2, 3};
    static const char *const few[] = {"mode=fsdp", "devices=cpu:4", "train=8st", "eval=end", NULL};
    static const char *const deep = "model={zoo: mlp, hidden: [128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128]}";
    program_train(&p, network, SETS("mode=dp", "devices=cpu:2", "train=8st", "eval=end", deep));
    double k = sum_of("sent") / 2 / STEPS, header = (DEVICES - 1) * 64.0;
    (void)state;
    for (int i = 0; i < RESHARDS; i++) {
        program_train(&p, network, SETS(few[0], few[1], few[2], few[3], reshards[i], "comm.link=tcp", deep));
        double want = STEPS * (exchanges[i] * (DEVICES - 1) * k + header), got = sum_of("sent");
        double stay = i == 0 ? STEPS * (DEVICES - 1) * 4 * 65536.0 : i == 3 ? STEPS * (DEVICES - 1) * k : 0;
        double early = i < 2 ? (DEVICES - 1) * (785 * 128 * 4 + 2 * 65536.0) : 0;
        if (got > want + early || got < want - stay - (i < 2 ? 0.02 * want : 0))
            fail_msg("%s: %.0f bytes, not %.0f", reshards[i], got, want);
    }
}

/* ---- memory ---- */

static double peak_of(int rank) {
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *list = json_get(program_json(&p, pool), "peak_rss_bytes");
    double bytes = list->children[rank].number;
    pool_free(pool);
    return bytes;
}

/* 17 layers of 1 MB: ddp with adam has four times as much on each device. Of fsdp's pages that peers have read, each rank
 * counts those, too: of the weights it has at most its parts, those of the others as they lie there, and a few units. */
static void less_memory(void **state) {
    static const char *const deep[] = {"data={set: digits, train: 64, val: 8}",
                                       "model={zoo: mlp, hidden: [512, 512, 512, 512, 512, 512, 512, 512, 512, 512, "
                                       "512, 512, 512, 512, 512, 512, 512]}",
                                       "batch={size: 8, shards: 4}",
                                       "threads=1",
                                       "train=3st",
                                       "eval=end",
                                       "checkpoint=off",
                                       "optimizer=adam",
                                       "comm.link=tcp",
                                       "devices=cpu:4",
                                       NULL};
    const double k = 17.6e6;
    (void)state;
    program_train(&p, deep, SETS("mode=ddp"));
    double ddp = peak_of(1);
    program_train(&p, deep, SETS("mode=fsdp", "fsdp.unit=1MB"));
    double fsdp = peak_of(1);
    program_train(&p, deep, SETS("mode=fsdp", "fsdp={unit: 1MB, reshard: never}"));
    double kept = peak_of(1);
    if (fsdp > ddp - 1.5 * k || kept > ddp - k || fsdp > kept)
        fail_msg("ddp %.0f, fsdp %.0f, with weights kept %.0f bytes", ddp, fsdp, kept);
}

/* ---- checkpoints, and a lost rank ---- */

static void checkpoints_go_anywhere(void **state) {
    static const char *const ways[][3] = {{"mode=fsdp", "devices=cpu:4", "fsdp={reshard: forward, unit: 16KB}"},
                                          {"mode=fsdp", "devices=cpu:3", "fsdp={reshard: never, unit: 64KB}"},
                                          {"mode=ddp", "devices=cpu:2", "optimizer.shard=true"},
                                          {"mode=single", "devices=cpu:1", "seed=0"}};
    (void)state;
    training_goes_anywhere(network, ways, 20);
}

static void a_lost_rank_is_named(void **state) {
    (void)state;
    training_names_lost(SETS("mode=fsdp", "devices=cpu:3", reshards[0]), 1);
}

static void the_others_go_on(void **state) {
    (void)state;
    training_goes_on_without(SETS("mode=fsdp", reshards[0]));
}

/* ---- what is refused ---- */

static void refusals(void **state) {
    static const struct {
        const char *set, *says;
    } of[] = {
        {"fsdp=sometimes", "'fsdp' must be one of forward, backward, never"},
        {"fsdp.unit=0", "'fsdp.unit' must be"},
        {"optimizer.shard=true", "mode fsdp shares the optimizer's state anyway"},
        {"sync_batchnorm=true", "use fsdp.reshard: never"},
        {"ddp.sync=4", "mode is not 'ddp'"},
        {"comm.compress=fp16", "mode fsdp keeps no gradients"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        program_run(&p, 30, "run", "--set", "data=digits", "--set", "model=mlp", "--set", "mode=fsdp", "--set",
                    "devices=cpu:2", "--set", of[i].set, NULL);
        assert_int_equal(p.code, 78);
        if (!strstr(p.err, of[i].says)) fail_msg("%s: %s", of[i].set, p.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_one_device),
        cmocka_unit_test(the_bits_of_many_units),
        cmocka_unit_test(the_bits_of_batches_that_are_normalized_together),
        cmocka_unit_test(tied_weights),
        cmocka_unit_test(exchanges_are_those_of_the_plan),
        cmocka_unit_test(less_memory),
        cmocka_unit_test(checkpoints_go_anywhere),
        cmocka_unit_test(a_lost_rank_is_named),
        cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("fsdp", tests, NULL, NULL);
}
