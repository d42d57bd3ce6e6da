/* Every key of a configuration: whether a resume compares it (the identity of a run), and whether a trained network is
 * asked by it. A key that is added to the schema has to be added here. */
#include "tests/harness/harness.h"

#include "engine/settings/run_config.h"
#include "engine/train/internal.h"
#include "modes/modes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { SETS = 16 };
enum kind {
    PLACE = 0,    /* neither: where, how fast, how it is learned and what is kept */
    IDENTITY = 1, /* it decides which numbers are computed: a resume compares it */
    NETWORK = 2,  /* of a run's file it counts when the trained network is asked */
    PLANTED = 4,  /* eval takes it, too: it may be bound to a mode */
};
static const struct row {
    const char *set;
    int kind;
    const char *with[3]; /* what it needs */
} rows[] = {
    {"name=other", NETWORK},
    {"mode=dp", PLACE},
    {"devices=cpu:1", PLACE},
    {"threads=1", PLACE},
    {"model=lenet", IDENTITY | NETWORK},
    {"loss={name: cross_entropy, smoothing: 0.1}", IDENTITY | NETWORK},
    {"data={set: digits, train: 96, val: 16}", IDENTITY | NETWORK},
    {"data.augment=[{crop: 2}]", IDENTITY | NETWORK},
    {"data.normalize=off", IDENTITY | NETWORK},
    {"data.split=3", NETWORK},
    {"data.normalize_target=false", NETWORK},
    {"data.limit=48", IDENTITY | NETWORK},
    {"data.order=file", IDENTITY | NETWORK},
    {"data.sampling=balanced", IDENTITY | NETWORK},
    {"data.weights=w.txt", NETWORK, {"data.sampling=weights"}}, /* its digest is compared with the data */
    {"data.workers=3", NETWORK},
    {"batch.size=16", IDENTITY},
    {"batch.shards=2", IDENTITY},
    {"batch.accumulate=2", IDENTITY},
    {"batch.drop_last=true", IDENTITY},
    {"batch.pad=true", IDENTITY},
    {"train.for=20st", PLACE},
    {"train.until={val.loss: 0.1}", PLACE},
    {"train.patience={val.loss: 3}", PLACE},
    {"train.stop=10st", PLACE},
    {"train.noise_scale=2st", PLACE},
    {"optimizer.name=adam", IDENTITY},
    {"optimizer.clip=1", PLACE},
    {"optimizer.shard=true", PLACE},
    {"optimizer.groups=[{match: '*.bias', lr: 0.01}]", PLACE},
    {"optimizer.freeze=['fc1.*']", IDENTITY},
    {"schedule=cosine", PLACE},
    {"lr_scale.rule=linear", PLACE},
    {"lr_scale.base=64", PLACE, {"lr_scale.rule=linear"}},
    {"ema.decay=0.9", IDENTITY},
    {"seed=3", IDENTITY | NETWORK},
    {"precision=bf16", IDENTITY | NETWORK},
    {"winograd=false", IDENTITY | NETWORK},
    {"sync_batchnorm=true", IDENTITY},
    {"recompute=2", PLACE},
    {"deterministic=bitwise", PLACE},
    {"cuda.graph=off", PLACE},
    {"dp.server=dedicated", PLACE, {"mode=dp"}},
    {"dp.scatter=server", PLACE, {"mode=dp"}},
    {"dp.overlap=true", PLACE, {"mode=dp"}},
    {"dp.staleness=1", PLACE, {"mode=dp", "dp.server=dedicated"}},
    {"ps.staleness=1", PLACE, {"mode=ps"}},
    {"ps.servers=2", PLACE, {"mode=ps"}},
    {"ps.place=workers", PLACE, {"mode=ps"}},
    {"ps.hosts=spread", PLACE, {"mode=ps"}},
    {"ps.partition=64KB", PLACE, {"mode=ps"}},
    {"ps.overlap=false", PLACE, {"mode=ps"}},
    {"fsdp.reshard=never", PLACE, {"mode=fsdp"}},
    {"fsdp.unit=64KB", PLACE, {"mode=fsdp"}},
    {"fsdp.overlap=false", PLACE, {"mode=fsdp"}},
    {"pipeline.stages=2", PLACE, {"mode=pipeline", "devices=cpu:2"}},
    {"pipeline.schedule=gpipe", PLACE, {"mode=pipeline", "devices=cpu:2"}},
    {"ddp.bucket.first=1KB", PLACE},
    {"ddp.bucket.cap=2MB", PLACE},
    {"ddp.bucket.cap=tune", PLACE},
    {"ddp.sync.every=2", PLACE},
    {"ddp.sync.with=neighbour", PLACE, {"ddp.sync.every=2"}},
    {"ddp.sync.state=average", PLACE, {"ddp.sync.every=2"}},
    {"ddp.sync.outer.lr=0.7", PLACE, {"ddp.sync.every=2"}},
    {"ddp.sync.outer.momentum=0.5", PLACE, {"ddp.sync.every=2", "ddp.sync.outer.lr=0.7"}},
    {"ddp.reduce.with=adasum", PLACE},
    {"ddp.reduce.sha256=00", PLACE, {"ddp.reduce.with=" ENGINE_BINARY_DIR "/plugins/share_0.so"}},
    {"ddp.overlap=false", PLACE},
    {"comm.backend=host", PLACE},
    {"comm.link=tcp", PLACE},
    {"comm.algorithm=ring", PLACE},
    {"comm.algorithm=tune", PLACE},
    {"ddp.sync.sha256=00", PLACE, {"ddp.sync.with=" ENGINE_BINARY_DIR "/plugins/share_0.so", "ddp.sync.every=2"}},
    {"comm.sha256=00", PLACE, {"comm.algorithm=" ENGINE_BINARY_DIR "/plugins/algorithm_0.so", "comm.order=ring"}},
    {"comm.order=ring", PLACE},
    {"comm.timeout=9s", PLACE},
    {"comm.heartbeat=9s", PLACE},
    {"comm.interface=lo", PLACE},
    {"comm.secure=encrypted", PLACE},
    {"comm.emulate.bandwidth=1Gbit", PLACE},
    {"comm.emulate.up=1Mbit", PLACE},
    {"comm.emulate.latency=1us", PLACE},
    {"comm.emulate.jitter=1us", PLACE},
    {"comm.emulate.loss=1%", PLACE},
    {"comm.emulate.links=[{ranks: 0, latency: 1us}]", PLACE},
    {"comm.compress=topk", PLACE},
    {"run.nodes=2", PLACE},
    {"run.node_rank=1", PLACE, {"run.nodes=2"}},
    {"run.master=10.0.0.1", PLACE, {"run.nodes=2"}},
    {"run.port=29501", PLACE, {"run.nodes=2"}},
    {"run.init=none", PLACE},
    {"run.rank=0", PLACE},
    {"run.world_size=1", PLACE},
    {"run.restarts=2", PLACE},
    {"run.elastic.min=1", PLACE},
    {"run.elastic.nodes=1", PLACE, {"run.nodes=2"}},
    {"run.token=env:SECRET", PLACE},
    {"run.join_timeout=9s", PLACE},
    {"eval.every=5st", PLACE},
    {"checkpoint.every=5st", PLACE},
    {"checkpoint.keep=3", PLACE},
    {"checkpoint.best=val.loss", PLACE},
    {"checkpoint.resume=auto", PLACE},
    {"checkpoint.data=any", PLACE},
    {"log.dir=elsewhere", NETWORK},
    {"log.every=5st", NETWORK},
    {"log.sinks=[jsonl, csv]", NETWORK},
    {"log.dashboard=0", NETWORK},
    {"log.trace=2..3st", NETWORK},
    {"inject.slow.device=1", PLANTED, {"inject.slow.by=50%"}},
    {"inject.slow.by=50%", PLANTED},
    {"inject.slow.chance=50%", PLANTED, {"inject.slow.by=50%"}},
    {"inject.fault.device=1", PLANTED, {"inject.fault.kind=kill"}},
    {"inject.fault.step=3", PLANTED, {"inject.fault.kind=kill"}},
    {"inject.fault.kind=nan", IDENTITY | PLANTED},
    {"inject.mistake=no_set_epoch", IDENTITY | PLANTED},
};

static const char *const algorithms[] = {"direct", "ring", "star", "tree", NULL};
static const char *const base[] = {"mode=ddp", "devices=cpu:2", "batch={size: 32, shards: 4}",
                                   "data={set: digits, train: 64, val: 16}", "model={hidden: [8]}"};
static struct run_settings settings;

static void load(const char *file, enum asks asks, const char *const *sets, int n) {
    char *report;
    run_settings_free(&settings);
    const struct run_ask ask = {file, sets, n, mode_kinds(&(int){0}), algorithms, NULL, asks};
    if (run_settings_load(&ask, &settings, &report) != ERR_NONE) fail_msg("%s: %s", n ? sets[n - 1] : "", report);
}

/* The base, what the row needs, and (whole) the row itself. */
static void load_row(const struct row *row, bool whole) {
    const char *sets[SETS];
    int n = 0;
    for (; n < (int)COUNT(base); n++) sets[n] = base[n];
    for (int i = 0; row->with[i]; i++) sets[n++] = row->with[i];
    if (whole) sets[n++] = row->set;
    load(NULL, ASKS_NOTHING, sets, n);
}

static char *identity(void) {
    const char *text = trainer_identity(&(struct job){.settings = &settings});
    assert_non_null(text);
    return strdup(text);
}

static void is_listed(void *user, const struct config_key *key) {
    size_t n = strlen(key->path);
    (void)user;
    if (key->with || key->field->type == CONFIG_SECTION) return;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strncmp(rows[i].set, key->path, n) && rows[i].set[n] == '=') return;
    fail_msg("what is '%s': of a run's identity, of its network, or of neither?", key->path);
}

static void every_key_is_here(void **state) {
    struct pool *pool;
    (void)state;
    assert_ok(pool_create(&pool));
    assert_ok(config_walk(&run_schema, pool, is_listed, NULL));
    pool_free(pool);
}

static void what_changes_bits_is_compared(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        load_row(&rows[i], false);
        char *before = identity();
        load_row(&rows[i], true);
        char *after = identity();
        if (!strcmp(before, after) != !(rows[i].kind & IDENTITY)) fail_msg("%s:\n%s%s", rows[i].set, before, after);
        free(before);
        free(after);
    }
}

/* The file of a run that was trained so, as predict, generate and model export read it, and eval on one device. */
static void a_trained_network_can_be_asked(void **state) {
    static const char *const here[] = {"mode=single", "devices=cpu:1", "batch.shards=1", "batch.size=1"};
    static const char *const there[] = {"run.nodes=1", "run.node_rank=0", "comm.link=auto", "mode=single",
                                        "devices=cpu:1"};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct row *row = &rows[i];
        load_row(row, true);
        save_text("c.yaml", tree_write(settings.tree, false, settings.pool));
        char section[32];
        snprintf(section, sizeof section, "%.*s", (int)strcspn(row->set, ".="), row->set);
        load("c.yaml", ASKS_HERE, here, COUNT(here));
        const struct node *node = node_get(settings.tree, section);
        while (node && node->kind == NODE_MAP && node->count) node = node->items[0];
        bool kept = node && node->source && !strcmp(node->source, "c.yaml");
        if (node && kept != !!(row->kind & NETWORK)) fail_msg("%s: %s", row->set, node->source);
        if (!(row->kind & PLANTED)) load("c.yaml", ASKS_THERE, there, COUNT(there));
    }
}

/* fp16 needs a GPU to train on; whoever asks for it by --set is told so. */
static void any_device_can_be_asked(void **state) {
    char *report;
    const char *const sets[] = {"devices=cpu:1", "precision=fp16"};
    (void)state;
    save_text("c.yaml", "mode: single\nprecision: fp16\n");
    for (enum asks asks = ASKS_THERE; asks <= ASKS_HERE; asks++) {
        load("c.yaml", asks, sets, 1);
        assert_int_equal(settings.config.precision, PRECISION_F32);
        run_settings_free(&settings);
        const struct run_ask ask = {"c.yaml", sets, 2, mode_kinds(&(int){0}), algorithms, NULL, asks};
        assert_fails(ERR_CONFIG, run_settings_load(&ask, &settings, &report));
    }
}

static int setup(void **state) {
    (void)state;
    return chdir(scratch_folder());
}

static int teardown(void **state) {
    (void)state;
    run_settings_free(&settings);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_here),
        cmocka_unit_test(what_changes_bits_is_compared),
        cmocka_unit_test(a_trained_network_can_be_asked),
        cmocka_unit_test(any_device_can_be_asked),
    };
    return cmocka_run_group_tests_name("every key", tests, setup, teardown);
}
