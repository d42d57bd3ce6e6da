/* The configuration of a run: what is decided for 'auto', which combinations are refused, and that
 * the resolved configuration gives itself again. */
#include "tests/harness/harness.h"

#include "engine/base/links.h"
#include "engine/base/text.h"
#include "engine/device/device.h"
#include "engine/settings/loss.h"
#include "engine/settings/run_config.h"
#include "modes/modes.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { SETS = 8 };

static const char *const algorithms[] = {"ring", "direct", "star", "tree", NULL};

struct fixture {
    struct run_settings s;
    char *report;
};

static int setup(void **state) {
    if (chdir(scratch_folder()) != 0) return -1;
    *state = calloc(1, sizeof(struct fixture));
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    run_settings_free(&f->s);
    free(f);
    return 0;
}

/* text NULL: no file; sets: assignments one a line, or NULL. */
static enum error load(struct fixture *f, const char *text, const char *sets) {
    static char copies[SETS][128];
    const char *list[SETS];
    int n = 0;
    for (const char *set = sets; set && *set && n < SETS; n++) {
        size_t length = strcspn(set, "\n");
        snprintf(copies[n], sizeof copies[n], "%.*s", (int)length, set);
        list[n] = copies[n];
        set += length + (set[length] == '\n');
    }
    if (text) save_text("c.yaml", text);
    run_settings_free(&f->s);
    const struct run_ask ask = {text ? "c.yaml" : NULL, list, n, mode_kinds(&(int){0}), algorithms, NULL, ASKS_NOTHING};
    return run_settings_load(&ask, &f->s, &f->report);
}

static enum error load_file(struct fixture *f, const char *path, const struct run_launched *launched) {
    const struct run_ask ask = {
        .path = path, .modes = mode_kinds(&(int){0}), .algorithms = algorithms, .launched = launched};
    return run_settings_load(&ask, &f->s, &f->report);
}

static const struct run_config *load_good(struct fixture *f, const char *text, const char *sets) {
    if (load(f, text, sets) != ERR_NONE) fail_msg("%s\n%s", text ? text : "", f->report);
    return &f->s.config;
}

/* ---- what is decided ---- */

static void defaults(void **state) {
    struct fixture *f = *state;
    const struct run_config *c = load_good(f, NULL, NULL);
    int cores = device_host_cores();
    assert_string_equal(c->name, "run");
    assert_string_equal(c->mode, "ddp");
    assert_string_equal(c->devices.kind, "cpu");
    assert_true(c->devices.automatic);
    assert_int_equal(c->devices.count, cores < RANKS_MOST ? cores : RANKS_MOST);
    assert_int_equal(c->batch.size, 128);
    if (cores <= 8) assert_int_equal(c->batch.shards, 8);
    assert_int_equal(c->threads, cores / c->devices.count);
    assert_string_equal(c->model->text, "mlp");
    assert_int_equal(c->loss.index, LOSS_CROSS_ENTROPY);
    assert_string_equal(dataset_variants.at(c->data.set.index)->name, "digits");
    assert_non_null(c->data.set.config);
    assert_non_null(c->data.augment);
    assert_true(c->train.length.unit == SPAN_EPOCHS && c->train.length.value == 3);
    assert_null(c->train.until_metric);
    assert_string_equal(optim_variants.at(c->optimizer.kind.index)->name, "sgd");
    assert_true(c->optimizer.clip == 0);
    assert_int_equal(c->lr_scale.rule, LR_SCALE_NONE);
    assert_int_equal(c->deterministic, DETERMINISTIC_TRUE);
    assert_int_equal(c->dp.server, SERVER_SHARED);
    assert_int_equal(c->dp.scatter, SCATTER_DIRECT);
    assert_int_equal(c->ddp.bucket.first, 1 << 20);
    assert_int_equal(c->ddp.bucket.cap, 25 << 20);
    assert_true(c->ddp.overlap);
    assert_int_equal(c->comm.link, COMM_LINK_SHM);
    assert_int_equal(c->comm.order, COMM_ORDER_TREE);
    assert_true(c->comm.timeout == 60);
    assert_true(c->eval.every.unit == SPAN_EPOCHS && c->checkpoint.every.unit == SPAN_EPOCHS);
    assert_string_equal(c->checkpoint.best, "off");
    assert_string_equal(c->checkpoint.resume, "never");
    assert_true(c->log.every.unit == SPAN_STEPS && c->log.every.value == 50);
    assert_string_equal(f->s.given, "");
    c = load_good(f, "", NULL);
    assert_string_equal(c->name, "c");
}

static void decisions(void **state) {
    struct fixture *f = *state;
    int cores = device_host_cores();
    const struct run_config *c = load_good(f, "mode: single\nbatch: {shards: 4}\n", NULL);
    assert_int_equal(c->devices.count, 1);
    assert_int_equal(c->threads, cores);
    assert_int_equal(c->batch.shards, 4);
    c = load_good(f, "mode: dp\ndevices: ref:4\n", NULL);
    assert_string_equal(c->devices.kind, "ref");
    assert_int_equal(c->devices.count, 4);
    assert_false(c->devices.automatic);
    assert_int_equal(c->batch.shards, 8);
    assert_int_equal(c->comm.link, COMM_LINK_THREAD);
    c = load_good(f, "comm: ring\ndevices: cpu:3\n", NULL);
    assert_int_equal(c->comm.order, COMM_ORDER_RING);
    assert_int_equal(c->batch.shards, 8);
    c = load_good(f, "mode: single\ndeterministic: bitwise\nthreads: 2\n", NULL);
    assert_int_equal(c->threads, 2);
    c = load_good(f, "comm: {algorithm: direct, order: ring}\n", NULL);
    assert_int_equal(c->comm.order, COMM_ORDER_RING);
    c = load_good(f, "batch: 1\n", NULL); /* fewer devices than cores where they could not share the batch */
    assert_int_equal(c->devices.count, 1);
    c = load_good(f, "devices: ref\nbatch: {size: 8, shards: 8}\n", NULL);
    assert_string_equal(c->devices.kind, "ref");
    assert_int_equal(c->devices.count, cores < 8 ? cores : 8);
    c = load_good(f, "ddp: 64KB\n", NULL); /* the first bucket is never larger than the others */
    assert_int_equal(c->ddp.bucket.cap, 65536);
    assert_int_equal(c->ddp.bucket.first, 65536);
    c = load_good(f, "devices: cpu:2\nddp: {bucket: tune}\ncomm: tune\n", NULL); /* begins as without */
    assert_true(c->sharing.tunes[TUNABLE_BUCKET] && c->sharing.tunes[TUNABLE_ALGORITHM]);
    assert_true(c->ddp.bucket.first == 1 << 20 && c->sharing.cut.cap == 25 << 20);
    assert_string_equal(c->comm.algorithm, "auto");
    c = load_good(f, "mode: single\ndevices: cpu:1\nddp: {bucket: tune}\n", NULL);
    assert_true(c->sharing.tunes[TUNABLE_BUCKET] && !c->sharing.tunes[TUNABLE_ALGORITHM]);
    c = load_good(f, "ddp: {bucket: 0}\n", NULL);
    assert_true(c->ddp.bucket.first == 0 && c->ddp.bucket.cap == 0);
    c = load_good(f, "ddp: {bucket: {first: 2MB, cap: flat}}\n", NULL);
    assert_true(c->ddp.bucket.first == INT64_MAX && c->ddp.bucket.cap == INT64_MAX);
}

static void shards_that_are_chosen(void **state) {
    static const struct {
        const char *text;
        int shards;
        const char *why;
    } of[] = {{"devices: cpu:1\n", 8, ""},
              {"devices: cpu:7\n", 8, ""},
              {"devices: cpu:9\n", 16, ", so that each device has one"},
              {"devices: cpu:1\nbatch: 7\n", 4, ", as many as it can be cut in"},
              {"devices: cpu:1\nbatch: {size: 64, accumulate: 32}\n", 2, ", as many as it can be cut in"},
              {"devices: cpu:1\nmodel: resnet20\nbatch: 128\n", 8, ""},
              {"devices: cpu:1\nmodel: resnet20\nbatch: 127\n", 4, ", for batchnorm's sake"},
              {"devices: cpu:1\nmodel: resnet20\nbatch: 15\n", 1, ", for batchnorm's sake"},
              {"devices: cpu:3\nmodel: resnet20\nbatch: 15\n", 4, ", so that each device has one"},
              {"devices: cpu:1\nmodel: resnet20\nsync_batchnorm: true\nbatch: 32\n", 8, ""},
              {"devices: cpu:1\nmodel: {layers: [flatten, {linear: 10}, batchnorm]}\nbatch: 32\n", 2,
               ", for batchnorm's sake"},
              {"devices: cpu:2\nbatch: {shards: 2}\n", 2, ""}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct run_config *c = load_good(*state, of[i].text, NULL);
        assert_int_equal(c->batch.shards, of[i].shards);
        assert_string_equal(c->batch.shards_why, of[i].why);
    }
}

static void shorthands(void **state) {
    struct fixture *f = *state;
    const struct run_config *c =
        load_good(f,
                  "batch: 64\ntrain: 200st\noptimizer: adam\nschedule: cosine\nlr_scale: {linear: 256}\n"
                  "eval: off\ncheckpoint: off\ndp: sharded\nlog: 5st\n",
                  NULL);
    assert_int_equal(c->batch.size, 64);
    assert_true(c->train.length.unit == SPAN_STEPS && c->train.length.value == 200);
    assert_string_equal(optim_variants.at(c->optimizer.kind.index)->name, "adam");
    assert_int_equal(c->lr_scale.rule, LR_SCALE_LINEAR);
    assert_int_equal(c->lr_scale.base, 256);
    assert_int_equal(c->eval.every.unit, SPAN_OFF);
    assert_int_equal(c->checkpoint.every.unit, SPAN_OFF);
    assert_int_equal(c->dp.server, SERVER_SHARDED);
    assert_true(c->log.every.value == 5);
    c = load_good(f, "lr_scale: sqrt\ntrain: {for: 5ep, until: {val.accuracy: 0.97}}\n", NULL);
    assert_int_equal(c->lr_scale.rule, LR_SCALE_SQRT);
    assert_int_equal(c->lr_scale.base, 256);
    assert_string_equal(c->train.until_metric, "val.accuracy");
    assert_true(c->train.until_value == 0.97);
    static const struct {
        const char *text;
        double seconds;
    } times[] = {{"train: 60s", 60},
                 {"train: {for: 1.5min}", 90},
                 {"train: 2m", 120},
                 {"train: 1e9h", 3.6e12},
                 {"train: 250ms", 0.25}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        const struct config_span *length = &load_good(f, times[i].text, NULL)->train.length;
        assert_true(length->unit == SPAN_SECONDS && length->value == times[i].seconds);
    }
    load_good(f, "train: 60s\nschedule: {name: linear, for: 5ep}\n", NULL);
}

static void sets(void **state) {
    struct fixture *f = *state;
    const struct run_config *c =
        load_good(f, "batch: 64\noptimizer: sgd\nmode: single\n",
                  "batch.shards=8\noptimizer.lr=0.25\ndata.limit=100\ntrain.until={val.loss: 0.1}\n"
                  "model.hidden=[64]\nschedule.warmup=1ep\nlr_scale.rule=sqrt");
    assert_int_equal(c->batch.size, 64);
    assert_int_equal(c->batch.shards, 8);
    assert_true(optim_lr(c->optimizer.kind.config) == 0.25);
    assert_int_equal(c->data.limit, 100);
    assert_string_equal(c->train.until_metric, "val.loss");
    assert_int_equal(node_get(c->model, "hidden")->count, 1);
    assert_string_equal(node_get(c->model, "zoo")->text, "mlp"); /* the standard model */
    c = load_good(f, "model: mlp\n", "model.hidden=[8, 8]");
    assert_string_equal(node_get(c->model, "zoo")->text, "mlp");
    assert_int_equal(node_get(c->model, "hidden")->count, 2);
    c = load_good(f, NULL, "optimizer.lr=0.125"); /* of the standard optimizer */
    assert_string_equal(optim_variants.at(c->optimizer.kind.index)->name, "sgd");
    assert_true(optim_lr(c->optimizer.kind.config) == 0.125);
    c = load_good(f, "mode: dp\ndevices: cpu:2\n", "mode=single\ndevices=cpu:1");
    assert_string_equal(c->mode, "single");
}

static void names(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *file, *name;
    } cases[] = {{"a b.yaml", "a-b"},
                 {"x.y.yaml", "x.y"},
                 {".yaml", "run.yaml"},
                 {"plain", "plain"},
                 {"-.yml", "run-"},
                 {"été 数据.yaml", "été-数据"},
                 {"a\xe2\x80\xae"
                  "b\xc2\xa0\xff.yaml",
                  "a---b---"},
                 {"ééééééééééééééééééééééééééééééééaa.yaml", "éééééééééééééééééééééééééééééééé"},
                 {"aéééééééééééééééééééééééééééééééééaa.yaml", "aééééééééééééééééééééééééééééééé"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        save_text(cases[i].file, "mode: single\n");
        run_settings_free(&f->s);
        char path[128];
        snprintf(path, sizeof path, "./%s", cases[i].file);
        assert_ok(load_file(f, path, NULL));
        assert_string_equal(f->s.config.name, cases[i].name);
    }
}

/* What 'engine config' prints is a configuration that gives the same, on whatever number of cores.
 */
static void round_trip(void **state) {
    struct fixture *f = *state;
    static const char *const texts[] = {
        "",
        "mode: dp\ndevices: ref:4\nbatch: 64\noptimizer: {name: adamw, lr: 1e-3, clip: "
        "1}\nschedule: {name: cosine, warmup: 5st}\n",
        "mode: single\ntrain: {for: 5ep, until: {val.loss: 0.1}}\nlr_scale: {linear: "
        "64}\ndeterministic: bitwise\n",
        "devices: cpu:3\ncomm: ring\nddp: {bucket: 4KB, overlap: false}\ndata: {augment: [], "
        "limit: 50}\nname: a.b\n",
        "model: {layers: [flatten, {linear: 32}, relu, {linear: 10}]}\nlog: {dir: \"out/x y\", "
        "every: 1st}\n",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        load_good(f, texts[i], NULL);
        assert_string_equal(f->s.given, texts[i]);
        assert_int_equal(f->s.given_length, strlen(texts[i]));
        char *first = strdup(tree_write(f->s.tree, false, f->s.pool)),
             *origins = strdup(tree_write(f->s.tree, true, f->s.pool));
        struct run_config before = f->s.config;
        load_good(f, origins, NULL);
        assert_string_equal(tree_write(f->s.tree, false, f->s.pool), first);
        assert_int_equal(f->s.config.devices.count, before.devices.count);
        assert_int_equal(f->s.config.threads, before.threads);
        assert_int_equal(f->s.config.batch.shards, before.batch.shards);
        assert_int_equal(f->s.config.comm.link, before.comm.link);
        assert_int_equal(f->s.config.comm.order, before.comm.order);
        assert_true(f->s.config.train.until_value == before.train.until_value);
        free(first);
        free(origins);
    }
    load_good(f, "mode: single\ndevices: cpu:1\n", "seed=7");
    const char *text = tree_write(f->s.tree, true, f->s.pool);
    assert_non_null(strstr(text, "\nmode: single  # c.yaml:1\ndevices: cpu:1  # c.yaml:2\n"));
    assert_non_null(strstr(text, "\nseed: 7  # --set\n"));
    assert_non_null(strstr(text, "\n  shards: 8  # auto\n"));
    assert_non_null(strstr(text, "\n  size: 128  # default\n"));
}

/* ---- what is refused ---- */

static const struct {
    const char *text, *sets, *first; /* line of the report */
} wrong[] = {
    /* keys, at every depth, and keys of things that there are not */
    {"modle: mlp", NULL, "c.yaml:1:1: error: unknown key 'modle'"},
    {"lr: 0.1", NULL, "c.yaml:1:1: error: unknown key 'lr'"},
    {"precisio: bf16", NULL, "c.yaml:1:1: error: unknown key 'precisio'"},
    {"precision: fp16\ndevices: cpu:1", NULL,
     "c.yaml:1:12: error: precision fp16 needs a GPU, and devices are 'cpu:1' (set at 2:10)"},
    {"devices: cpu:1\nprecision: tf32", NULL,
     "c.yaml:2:12: error: precision tf32 needs a GPU, and devices are 'cpu:1' (set at 1:10)"},
    {"sync_batchnorm: true\nbatch: {accumulate: 2}", NULL,
     "c.yaml:1:17: error: sync_batchnorm needs the whole batch at once, but batch.accumulate cuts "
     "it "
     "(set at 2:21)"},
    {"sync_batchnorm: true\nmode: dp\ndp: dedicated", NULL,
     "c.yaml:1:17: error: sync_batchnorm is shared among all ranks, but a dedicated server "
     "(set at 3:5) computes nothing"},
    {"sync_batchnorm: true\nrecompute: auto", NULL,
     "c.yaml:2:12: error: recompute runs layers once more in backward, for which sync_batchnorm (set at 1:17) would "
     "have "
     "ranks meet again"},
    {"plugins: [a.so]", NULL, "c.yaml:1:1: error: unknown key 'plugins'"},
    {"log: {nodes: 2}", NULL, "c.yaml:1:7: error: unknown key 'nodes' in 'log'"},
    {"comm: {emulate: {delay: 5us}}", NULL, "c.yaml:1:18: error: unknown key 'delay' in 'comm.emulate'"},
    {"devices: cpu:2\ncomm: {backend: nccl}", NULL,
     "c.yaml:2:17: error: comm.backend 'nccl': devices are 'cpu:2' (set at 1:10), whose memory is "
     "the host's"},
    {"ddp: {bucket: {fisrt: 1MB}}", NULL, "c.yaml:1:16: error: unknown key 'fisrt' in 'ddp.bucket'"},
    {"optimizer: {momentun: 0.9}", NULL, "c.yaml:1:13: error: unknown key 'momentun' in 'optimizer'"},
    {"optimizer: {name: adam, nesterov: true}", NULL, "c.yaml:1:25: error: unknown key 'nesterov' in 'optimizer'"},
    {"data: {set: digits, lables: x}", NULL, "c.yaml:1:21: error: unknown key 'lables' in 'data'"},
    {"schedule: {name: cosine, gamma: 1}", NULL, "c.yaml:1:26: error: unknown key 'gamma' in 'schedule'"},
    {"train: {until: {val.acc: 1}}", NULL, "c.yaml:1:17: error: unknown metric 'val.acc' in 'train.until'"},
    {"train: {until: {val.r2: 97}}", NULL, "c.yaml:1:25: error: 'train.until.val.r2' is at most 1"},
    {"checkpoint: {evry: 1ep}", NULL, "c.yaml:1:14: error: unknown key 'evry' in 'checkpoint'"},
    {"log: {dri: x}", NULL, "c.yaml:1:7: error: unknown key 'dri' in 'log'"},
    {"seed: 1\nmode: dp\nseed: 2", NULL, "c.yaml:3:1: error: duplicate key 'seed' (first set at 1:1)"},
    /* types and units */
    {"batch: 256k", NULL, "c.yaml:1:8: error: 'batch' must be an integer >= 1, got \"256k\""},
    {"batch: {accumulate: 0}", NULL,
     "c.yaml:1:21: error: 'batch.accumulate' must be an integer from 1 to 65536, got \"0\""},
    {"seed: -1", NULL, "c.yaml:1:7: error: 'seed' must be an integer >= 0, got \"-1\""},
    {"seed: 010", NULL, "c.yaml:1:7: error: 'seed' must be an integer >= 0, got \"010\""},
    {"seed: 99999999999999999999", NULL,
     "c.yaml:1:7: error: 'seed' must be an integer >= 0, got \"99999999999999999999\""},
    {"threads: 1.5", NULL, "c.yaml:1:10: error: 'threads' must be auto or an integer from 1 to 1024, got \"1.5\""},
    {"train: 5", NULL,
     "c.yaml:1:8: error: 'train' must be a length such as 5ep (epochs), 200st (steps) or 60s (time), got "
     "\"5\""},
    {"train: 0ep", NULL,
     "c.yaml:1:8: error: 'train' must be a length such as 5ep (epochs), 200st (steps) or 60s (time), got "
     "\"0ep\""},
    {"train: {for: off}", NULL,
     "c.yaml:1:14: error: 'train.for' must be a length such as 5ep (epochs), 200st (steps) or 60s (time), got "
     "\"off\""},
    {"ddp: {overlap: yes}", NULL, "c.yaml:1:16: error: 'ddp.overlap' must be true or false, got \"yes\""},
    {"ddp: {bucket: 25 MB}", NULL,
     "c.yaml:1:15: error: 'ddp.bucket' must be tune or flat or a size such as 64KB or 25MB, got \"25 MB\""},
    {"comm: {timeout: 1 min}", NULL,
     "c.yaml:1:17: error: 'comm.timeout' must be a time such as 250ms, 10s or 2m, got \"1 min\""},
    {"loss: cross-entropy", NULL,
     "c.yaml:1:7: error: 'loss' must be one of cross_entropy, mse, bce, got \"cross-entropy\""},
    {"deterministic: maybe", NULL,
     "c.yaml:1:16: error: 'deterministic' must be one of false, true, bitwise, got \"maybe\""},
    {"mode: ddp\nddp: {sync: {state: average}}", NULL,
     "c.yaml:2:14: error: 'ddp.sync.state' does nothing without 'ddp.sync.every'"},
    {"mode: dp\ndp: {staleness: -1}", NULL,
     "c.yaml:2:17: error: 'dp.staleness' must be unbounded or an integer >= 0, got \"-1\""},
    {"mode: dp\ndp: {staleness: 4}", NULL,
     "c.yaml:2:17: error: 'dp.staleness': a server that does not wait must be dedicated, "
     "but dp.server is 'shared' (by default)"},
    {"mode: dp\ndp: {staleness: unbounded, server: sharded}", NULL,
     "c.yaml:2:17: error: 'dp.staleness': a server that does not wait must be dedicated, "
     "but dp.server is 'sharded' (set at 2:36)"},
    {"mode: dp\ndp: {staleness: 1, server: cpu, scatter: server}", NULL,
     "c.yaml:2:17: error: 'dp.staleness': devices are not in the same step, but dp.scatter is "
     "'server' (set at 2:42)"},
    {"mode: dp\ndp: {staleness: 1, server: cpu, overlap: on}", NULL,
     "c.yaml:2:17: error: 'dp.staleness': a gradient travels when it is complete, but dp.overlap "
     "is 'on' (set at 2:42)"},
    {"mode: dp\ndp: {staleness: 1, server: cpu, overlap: true}", NULL,
     "c.yaml:2:17: error: 'dp.staleness': a gradient travels when it is complete, but dp.overlap "
     "is 'true' (set at 2:42)"},
    {"mode: dp\ndp: {staleness: 1, server: cpu}\nsync_batchnorm: true", NULL,
     "c.yaml:2:17: error: 'dp.staleness': devices are not in the same step, but sync_batchnorm is "
     "'true' (set at 3:17)"},
    {"mode: dp\ndp: {staleness: 1, server: cpu}\ndeterministic: bitwise", NULL,
     "c.yaml:2:17: error: 'dp.staleness': what comes out depends on the number of devices, but "
     "deterministic is 'bitwise' (set at 3:16)"},
    {"mode: dp\ndp: {staleness: 1, server: cpu}\ntrain: {for: 1ep, until: {train.loss: 1}}", NULL,
     "c.yaml:2:17: error: 'dp.staleness': devices are not in the same step, but train.until is "
     "'train.loss' (set at 3:26)"},
    {"checkpoint: {best: accuracy}", NULL,
     "c.yaml:1:20: error: 'checkpoint.best' must be one of off, val.loss, val.accuracy, val.top5, val.perplexity, "
     "val.balanced_accuracy, val.rmse, val.mae, val.r2, val.bits_per_byte, got \"accuracy\""},
    {"train: {until: 0.9}", NULL, "c.yaml:1:16: error: 'train.until' must be one metric and its value"},
    {"train: {until: {val.loss: 1, val.accuracy: 1}}", NULL,
     "c.yaml:1:16: error: 'train.until' must be one metric and its value"},
    {"train: {until: {val.loss: low}}", NULL, "c.yaml:1:27: error: 'train.until.val.loss' must be a number"},
    {"lr_scale: {linear: x}", NULL, "c.yaml:1:20: error: 'lr_scale.base' must be an integer >= 1, got \"x\""},
    {"lr_scale: {cubic: 2}", NULL, "c.yaml:1:12: error: unknown key 'cubic' in 'lr_scale'"},
    {"log: {dir: runs/$nmae}", NULL, "c.yaml:1:12: error: 'log.dir' knows no '$nmae'"},
    {"name: a/b", NULL,
     "c.yaml:1:7: error: 'name' must be of letters, digits, '-', '_' and '.', at most 64, as it "
     "names a folder"},
    {"name: ..", NULL,
     "c.yaml:1:7: error: 'name' must be of letters, digits, '-', '_' and '.', at most 64, as it "
     "names a folder"},
    /* names of registries */
    {"mode: pd", NULL, "c.yaml:1:7: error: 'mode' must be one of single, dp, ddp, ps, fsdp, pipeline, got \"pd\""},
    {"comm: rign", NULL,
     "c.yaml:1:7: error: 'comm.algorithm' must be one of auto, ring, direct, star, tree, tune, got \"rign\""},
    {"devices: tpu", NULL, "c.yaml:1:10: error: unknown device kind 'tpu' (there are cpu, ref, cuda)"},
    {"devices: gpu:2", NULL, "c.yaml:1:10: error: unknown device kind 'gpu' (there are cpu, ref, cuda)"},
    {"devices: cpu:0", NULL,
     "c.yaml:1:10: error: 'devices' must be auto, or a kind and a number from 1 to 4096, got "
     "\"cpu:0\""},
    {"devices: cpu:4096\nrun: {nodes: 2}", NULL,
     "c.yaml:1:10: error: 4096 devices on each of 2 nodes (set at 2:14) are 8192, but a run has at "
     "most "
     "4096"},
    {"mode: dp\ndp: {server: dedicated}\ndevices: cpu:4096", NULL,
     "c.yaml:3:10: error: 4096 devices, but a run has at most 4095 beside the server"},
    {"devices: cpu:5000", NULL,
     "c.yaml:1:10: error: 'devices' must be auto, or a kind and a number from 1 to 4096, got "
     "\"cpu:5000\""},
    {"devices: cpu:4097", NULL,
     "c.yaml:1:10: error: 'devices' must be auto, or a kind and a number from 1 to 4096, got "
     "\"cpu:4097\""},
    {"devices: \"cpu:\"", NULL,
     "c.yaml:1:10: error: 'devices' must be auto, or a kind and a number from 1 to 4096, got "
     "\"cpu:\""},
    {"devices: 4", NULL, "c.yaml:1:10: error: unknown device kind '4' (there are cpu, ref, cuda)"},
    {"data: /no/mnist", NULL, "c.yaml:1:7: error: data: no file or folder '/no/mnist'"},
    {"data: {train: /no/mnist}", NULL, "c.yaml:1:15: error: data: no file or folder '/no/mnist'"},
    {"data: /dev/null", NULL, "c.yaml:1:7: error: data: /dev/null is not a file that a data set reads"},
    /* combinations */
    {"mode: single\ndevices: cpu:2", NULL, "c.yaml:2:10: error: 2 devices, but mode 'single' runs on one (set at 1:7)"},
    {"devices: cpu:2\nmode: single", NULL,
     "c.yaml:2:7: error: mode 'single' runs on one device, but 'devices' is cpu:2 (set at 1:10)"},
    {"devices: cpu:2\nbatch: {shards: 3}", NULL, "c.yaml:2:17: error: 3 shards are not a power of two"},
    {"devices: cpu:2\nbatch: {shards: 6}", NULL, "c.yaml:2:17: error: 6 shards are not a power of two"},
    {"devices: cpu:4\nbatch: {shards: 2}", NULL,
     "c.yaml:2:17: error: 2 shards are not enough for 4 devices (set at 1:10)"},
    {"devices: cpu:8\nbatch: 4", NULL,
     "c.yaml:2:8: error: a batch of 4 cannot be cut into 8 shards (devices set at 1:10)"},
    {"devices: cpu:1\nbatch: {size: 4, shards: 8}", NULL,
     "c.yaml:2:26: error: a batch of 4 cannot be cut into 8 shards (batch.size set at 2:15)"},
    {"devices: cpu:2\nbatch: {size: 8, accumulate: 5}", NULL,
     "c.yaml:2:30: error: 5 pieces of a shard that has 4 samples (batch.size 8, set at 2:15)"},
    {"comm: {algorithm: ring, order: tree}", NULL,
     "c.yaml:1:32: error: algorithm 'ring' (set at 1:19) cannot add in order 'tree'"},
    {"comm: {link: thread}", NULL,
     "c.yaml:1:14: error: link 'thread' joins threads, but mode 'ddp' (by default) runs processes"},
    {"mode: dp\ncomm: {link: shm}", NULL,
     "c.yaml:2:14: error: link 'shm' joins processes, but mode 'dp' (set at 1:7) runs threads"},
    {"run: 2\ncomm: {link: shm}", NULL,
     "c.yaml:2:14: error: link 'shm' stays on one host, but there are 2 nodes (set at 1:6)"},
    {"run: 2\ncomm: {emulate: 1Gbit}", NULL,
     "c.yaml:2:17: error: emulated links need one clock: they stay on one host, with ranks that "
     "'engine run' starts"},
    {"mode: dp\nrun: 2", NULL, "c.yaml:2:6: error: 2 nodes, but mode 'dp' runs on one"},
    {"run: {nodes: 2, node_rank: 2}", NULL, "c.yaml:1:28: error: node 2 of 2 (set at 1:14)"},
    {"mode: dp\nrun: {restarts: 1}", NULL,
     "c.yaml:2:17: error: 'run.restarts' starts processes again, but mode 'dp' has none"},
    {"mode: dp\nrun: {elastic: 1}", NULL,
     "c.yaml:2:16: error: 'run.elastic' continues without a device's process, but mode 'dp' has no processes"},
    {"devices: cpu:2\nrun: {elastic: {min: 3}}", NULL,
     "c.yaml:2:22: error: 'run.elastic.min' is 3, but the run begins with 2 devices (set at 1:10)"},
    {"mode: dp\ndevices: cpu:3\nbatch: {shards: 8}\ncomm: {algorithm: tree}", NULL,
     "c.yaml:4:19: error: algorithm 'tree' is not for 3 devices (set at 2:10) that share 8 shards: it needs one "
     "subtree "
     "of the shards for each, as a power of two of devices has"},
    {"devices: cpu:4\ncomm: {algorithm: tree, order: ring}", NULL,
     "c.yaml:2:19: error: algorithm 'tree' cannot add in order 'ring' (set at 2:32)"},
    {"devices: cpu:2\nrun: {elastic: 1}\ncomm: {algorithm: tree}", NULL,
     "c.yaml:2:16: error: 'run.elastic' continues with any number of devices, but comm.algorithm 'tree' (set at 3:19) "
     "does not support every number"},
    {"comm: {secure: sealed}\nrun: {token: none}", NULL,
     "c.yaml:1:16: error: 'comm.secure' is sealed, but everybody knows the secret of run.token: none (set at 2:14)"},
    {"run: {init: udp://x}", NULL,
     "c.yaml:1:13: error: 'run.init' must be auto, none, env://, tcp://HOST:PORT or file:///PATH, "
     "got \"udp://x\""},
    {"run: {init: env://}", NULL,
     "c.yaml:1:13: error: 'run.init' is env://, but RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT "
     "are not all set"},
    {"run: {init: \"file:///tmp/x\"}", NULL,
     "c.yaml:1:13: error: 'run.init' is file:///tmp/x, but the number of this rank and of all ranks is not set"},
    {"comm: {emulate: {bandwidth: fast}}", NULL,
     "c.yaml:1:29: error: 'comm.emulate.bandwidth' must be off or a rate such as 1Gbit or 250MB (a "
     "second), got \"fast\""},
    {"comm: {emulate: /nowhere/links.yaml}", NULL,
     "c.yaml:1:17: error: 'comm.emulate': cannot open '/nowhere/links.yaml': No such file or directory"},
    {"comm: {emulate: {up: 0}}", NULL,
     "c.yaml:1:22: error: 'comm.emulate.up' must be same or a rate such as 1Gbit or 250MB (a second), got \"0\""},
    {"comm: {emulate: {loss: 60%}}", NULL, "c.yaml:1:24: error: 'comm.emulate.loss' must be at most 50%, got \"60%\""},
    {"comm: {emulate: {links: [{to: 1, loss: 1%}]}}", NULL,
     "c.yaml:1:26: error: 'comm.emulate.links[0].ranks' is missing: it must be a text, or a list of them"},
    {"comm: {emulate: {links: [{ranks: 0-, loss: 1%}]}}", NULL,
     "c.yaml:1:34: error: 'ranks' must be a rank or a range of them, got \"0-\""},
    {"comm: {emulate: {links: [{ranks: [0, 3-1], loss: 1%}]}}", NULL,
     "c.yaml:1:38: error: 'ranks' must be a rank or a range of them, got \"3-1\""},
    {"comm: {emulate: {links: [{ranks: 0}]}}", NULL, "c.yaml:1:26: error: these links differ in nothing"},
    {"comm: {emulate: {links: [{ranks: 0, to: 1, up: 1Mbit}]}}", NULL,
     "c.yaml:1:44: error: 'up' is a port's, which has no 'to'"},
    {"comm: {emulate: {links: [{ranks: 0, loss: 1%, one_way: true}]}}", NULL,
     "c.yaml:1:47: error: 'one_way' does nothing without 'to'"},
    {"devices: cpu:4\ncomm: {emulate: {links: [{ranks: 2-4, loss: 1%}]}}", NULL,
     "c.yaml:2:26: error: these links are of a rank that is not there"},
    {"devices: cpu:4\ncomm: {emulate: {links: [{ranks: 3, to: 3, loss: 1%}]}}", NULL,
     "c.yaml:2:26: error: these links join no two ranks"},
    {"devices: cpu:4\ncomm: {emulate: {links: [{ranks: 2, to: 3, loss: 1%}, {ranks: 3, to: 2, loss: 2%}]}}", NULL,
     "c.yaml:2:26: error: all that this says of links is said again by comm.emulate.links[1], which comes later and "
     "counts"},
    {"run: 2\ncomm: {emulate: {loss: 1%}}", NULL,
     "c.yaml:2:17: error: emulated links need one clock: they stay on one host, with ranks that 'engine run' starts"},
    {"mode: dp\ndp: {server: sharded}\ncomm: {order: ring}", NULL,
     "c.yaml:3:15: error: order 'ring' adds by bucket, which a sharded server (set at 2:14) has "
     "not"},
    {"deterministic: bitwise\ncomm: {order: ring}", NULL,
     "c.yaml:2:15: error: order 'ring' depends on the number of devices, but deterministic is "
     "'bitwise' (set at 1:16)"},
    {"deterministic: bitwise\ncomm: ring", NULL,
     "c.yaml:2:7: error: order 'ring' depends on the number of devices, but deterministic is "
     "'bitwise' (set at 1:16)"},
    {"ddp: {bucket: {first: 2MB, cap: 1MB}}", NULL,
     "c.yaml:1:23: error: the first bucket is larger than ddp.bucket.cap, 1MB (set at 1:33)"},
    {"ddp: {bucket: {first: 26MB}}", NULL,
     "c.yaml:1:23: error: the first bucket is larger than ddp.bucket.cap, 25MB (by default)"},
    {"ddp: {bucket: {first: 26MB, cap: tune}}", NULL,
     "c.yaml:1:23: error: the first bucket is larger than ddp.bucket.cap, 25MB (set at 1:34)"},
    /* what is chosen by time must not change a bit */
    {"devices: cpu:2\nddp: {bucket: tune, sync: 4}", NULL,
     "c.yaml:2:15: error: steps without an exchange show no difference, and devices meet only now and then (set at "
     "2:27)"},
    {"devices: cpu:2\noptimizer: {shard: true}\nddp: {bucket: tune}", NULL,
     "c.yaml:3:15: error: 'tune' is for devices that all make the same update, but here each updates a slice"},
    {"devices: cpu:2\nddp: {bucket: tune}\ncomm: {compress: int8}", NULL,
     "c.yaml:2:15: error: compressed gradients depend on their buckets, which 'tune' would choose by time"},
    {"devices: cpu:2\nddp: {bucket: tune}\ncomm: {order: ring}", NULL,
     "c.yaml:2:15: error: order 'ring' (set at 3:15) adds by bucket, so that weights would depend on what 'tune' "
     "finds"},
    {"mode: pipeline\ndevices: cpu:2\nddp: {bucket: tune}", NULL,
     "c.yaml:3:15: error: 'tune' is for gradients that all devices add up, but mode is 'pipeline' (set at 1:7)"},
    {"mode: dp\ndevices: cpu:2\ncomm: tune", NULL,
     "c.yaml:3:7: error: 'tune' is for all-reduces, but in mode 'dp' (set at 1:7) a server adds"},
    {"eval: off\ncheckpoint: {best: val.loss}", NULL,
     "c.yaml:2:20: error: 'checkpoint.best' needs validation, but 'eval' makes none before the end (set at 1:7)"},
    {"checkpoint: {best: val.loss, every: off}", NULL,
     "c.yaml:1:20: error: 'checkpoint.best' needs checkpoints, but 'checkpoint.every' is off (set "
     "at 1:37)"},
    {"train: 60s\nschedule: {name: cosine, warmup: 5st}", NULL,
     "c.yaml:2:11: error: schedule 'cosine' must know the last step, which is unknown if train.for is a time "
     "(set at 1:8)"},
    {"eval: off\ntrain: {until: {val.loss: 1}}", NULL,
     "c.yaml:2:17: error: 'train.until' needs validation, but 'eval' makes none before the end (set at 1:7)"},
    /* --set */
    {"", "optimizer.lr=fast", "--set optimizer.lr=fast: error: 'optimizer.lr' must be a number >= 0, got \"fast\""},
    {"", "optimzer.lr=1", "--set optimzer.lr=1: error: unknown key 'optimzer'"},
    {"mode: single", "devices=cpu:2",
     "--set devices=cpu:2: error: 2 devices, but mode 'single' runs on one (set at 1:7)"},
    {"devices: cpu:2", "mode=single",
     "--set mode=single: error: mode 'single' runs on one device, but 'devices' is cpu:2 (set at "
     "1:10)"},
    {"", "mode", "--set mode: error: no key and value"},
    /* not YAML, or more than a configuration may have */
    {"a: [1", NULL, "c.yaml:2:1: error: did not find expected ',' or ']'"},
    {"batch:\n\tsize: 1", NULL, "c.yaml:2:1: error: a tab cannot indent YAML"},
    {"seed: &x 1\nthreads: *x", NULL, "c.yaml:1:7: error: anchors ('&x') are not allowed"},
    {"seed: !!int 1", NULL, "c.yaml:1:7: error: tags ('tag:yaml.org,2002:int') are not allowed"},
    {"<<: {seed: 1}", NULL, "c.yaml:1:1: error: merge keys ('<<') are not allowed"},
    {"seed: 1\n---\nseed: 2", NULL, "c.yaml:2:1: error: a second document begins here"},
    {"- mode: dp", NULL, "c.yaml:1:1: error: a configuration is a map of keys"},
    {"\x7f"
     "ELF\x02\x01\x01",
     NULL, "c.yaml:1:1: error: this is not YAML: control characters are not allowed"},
    {"seed: \xff", NULL, "c.yaml:1:7: error: this is not YAML: invalid leading UTF-8 octet"},
    {"a: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", NULL, "c.yaml:1:35: error: nested deeper than 32 levels"},
};

/* What a launcher has started. */
static void launched(void **state) {
    struct fixture *f = *state;
    struct run_launched l = {.by = "torchrun",
                             .variables = "RANK, WORLD_SIZE",
                             .rank = 2,
                             .size = 4,
                             .local = 0,
                             .locals = 2,
                             .master = "a:1",
                             .job = ""};
    static const struct {
        const char *text, *first; /* NULL: right */
    } cases[] = {
        {"", NULL},
        {"devices: cpu:2", NULL},
        {"devices: cpu:4", NULL},
        {"devices: cpu:3", "c.yaml:1:10: error: 3 devices, but torchrun has started 4 processes, 2 "
                           "of them here"},
        {"mode: dp", "c.yaml:1:7: error: mode 'dp' is one process, but torchrun has started 4 "
                     "(RANK, WORLD_SIZE)"},
        {"mode: dp\nrun: {init: none}", NULL},
        {"run: 2", "c.yaml:1:6: error: 2 nodes, but torchrun has started the ranks already (RANK, "
                   "WORLD_SIZE)"},
        {"run: {restarts: 1}", "c.yaml:1:17: error: 'run.restarts' is for ranks that 'engine run' "
                               "starts; here torchrun does"},
        {"run: {elastic: 2}", "c.yaml:1:16: error: torchrun may start another number of ranks the next time, but the "
                              "number of shards must stay the same"},
        {"run: {elastic: 2}\nbatch: {shards: 8}", NULL},
        {"run: {init: \"tcp://b:2\"}", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        run_settings_free(&f->s);
        save_text("c.yaml", cases[i].text);
        enum error err = load_file(f, "c.yaml", &l);
        if (!cases[i].first) {
            assert_ok(err);
            bool ours = f->s.config.launched.by == NULL;
            assert_int_equal(ours, strstr(cases[i].text, "none") != NULL);
            if (!ours) assert_int_equal(f->s.config.devices.count, 4);
            if (!ours) assert_int_equal(f->s.config.devices.local, 2);
            if (strstr(cases[i].text, "tcp")) assert_string_equal(f->s.config.launched.master, "b:2");
        } else {
            size_t n = strlen(cases[i].first);
            if (strncmp(f->report, cases[i].first, n) != 0 || f->report[n] != '\n')
                fail_msg("expected:\n%s\ngot:\n%s", cases[i].first, f->report);
        }
    }
}

static void refused(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        enum error err = load(f, wrong[i].text, wrong[i].sets);
        if (err != ERR_CONFIG) fail_msg("%s: %s, not a bad configuration", wrong[i].text, error_text(err));
        size_t n = strlen(wrong[i].first);
        if (strncmp(f->report, wrong[i].first, n) != 0 || f->report[n] != '\n')
            fail_msg("expected:\n%s\ngot:\n%s", wrong[i].first, f->report);
    }
}

static void hints(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *text, *hint;
    } cases[] = {
        {"modle: mlp", "did you mean 'model'?"},
        {"lr: 0.1", "did you mean 'optimizer.lr', as in 'optimizer: {lr: 0.1}'?"},
        {"learning_rate: x", "did you mean 'optimizer.lr', as in 'optimizer: {lr: 0.05}'?"},
        {"optimizer: {name: adam, Learning-Rate: 0.1}", "did you mean 'lr'?"},
        {"log: {epochs: 1}", "did you mean 'train', as in 'train: 1ep'?"},
        {"max_steps: 10", "did you mean 'train', as in 'train: 10st'?"},
        {"batch_size: 8", "did you mean 'batch', as in 'batch: 8'? It counts the samples of all devices together;"},
        {"data: {batch_size: 8}", "did you mean 'batch', as in 'batch: 8'? It counts the samples of all devices"},
        {"batch: {batch_size: 8}", "did you mean 'size'? It counts the samples of all devices together;"},
        {"per_device_train_batch_size: 8", "hint: 'batch' counts the samples of all devices together: write"},
        {"batch: {per_device: 8}", "hint: 'batch' counts the samples of all devices together: write"},
        {"find_unused_parameters: true", "hint: leave it out: "},
        {"ddp: {gradient_as_bucket_view: true}", "hint: leave it out: "},
        {"static_graph: true", "hint: leave it out: "},
        {"broadcast_buffers: false", "hint: leave it out: batchnorm's running statistics follow shard 0"},
        {"bucket_cap_mb: 50", "did you mean 'ddp.bucket', as in 'ddp: {bucket: 50MB}'?"},
        {"bucket-cap-mb: 5MB", "did you mean 'ddp.bucket', as in 'ddp: {bucket: 5MB}'?"},
        {"bucket-cap-mb: 5", "did you mean 'ddp.bucket', as in 'ddp: {bucket: 5MB}'?"},
        {"dist_url: auto", "did you mean 'run.init', as in 'run: {init: auto}'?"},
        {"dist_url: tcp://h:1234", "did you mean 'run.init', as in 'run: {init: tcp://h:1234}'?"},
        {"evaluate: true", "engine eval RUN_DIR"},
        {"pretrained: true", "init: FILE.safetensors"},
        {"model: {zoo: lenet, pretrained: true}", "init: FILE.safetensors"},
        {"mode: DataParallel", "did you mean 'dp'?"},
        {"mode: nn.parallel.DistributedDataParallel", "did you mean 'ddp'?"},
        {"device: cuda", "did you mean 'devices', as in 'devices: cuda'?"},
        {"scheduler: CosineAnnealingLR", "did you mean 'schedule', as in 'schedule: cosine'?"},
        {"schedule: torch.optim.lr_scheduler.StepLR", "did you mean 'step'?"},
        {"data: MNIST", "did you mean 'idx'?"},
        {"loss: nn.CrossEntropyLoss", "did you mean 'cross_entropy'?"},
        {"precision: bfloat16", "did you mean 'bf16'?"},
        {"train: 5 epochs", "did you mean '5ep'?"},
        {"eval: 100 steps", "did you mean '100st'?"},
        {"train: 90 seconds", "did you mean '90s'?"},
        {"ddp: {server: cpu}", "did you mean 'dp', as in 'dp: cpu'?"},
        {"image_size: 64", "did you mean 'data.size', as in 'data: {size: 64}'?"},
        {"data: {num_workers: 8}", "did you mean 'workers'?"},
        {"train: 8", "did you mean '8ep', '8st' or '8s'?"},
        {"optimizer: AdamW", "did you mean 'adamw'?"},
        {"devices: gpu:2", "did you mean 'cuda'?"},
        {"devices: 2", "did you mean 'cpu:2'?"},
        {"mode: dpp", "did you mean 'ddp'?"},
        {"comm: rign", "did you mean 'ring'?"},
        {"devices: cup:2", "did you mean 'cpu:2'?"},
        {"devices: cpu:2\nbatch: {shards: 6}", "hint: set batch.shards to 4 or 8"},
        {"devices: cpu:3\nbatch: {shards: 2}", "hint: set batch.shards to 4"},
        {"devices: cpu:48\nbatch: {size: 512, shards: 201}", "hint: set batch.shards to 128 or 256\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_fails(ERR_CONFIG, load(f, cases[i].text, NULL));
        if (!strstr(f->report, cases[i].hint)) fail_msg("no '%s' in:\n%s", cases[i].hint, f->report);
    }
}

static void looks(void **state) {
    struct fixture *f = *state;
    assert_fails(ERR_CONFIG, load(f, "mode: dp\nbatch: x\noptimizer:\n  name: sgd\n  momentun: 0.9\n", "seed=x"));
    assert_string_equal(f->report, "c.yaml:2:8: error: 'batch' must be an integer >= 1, got \"x\"\n"
                                   "    2 | batch: x\n"
                                   "      |        ^\n"
                                   "c.yaml:5:3: error: unknown key 'momentun' in 'optimizer'\n"
                                   "    5 |   momentun: 0.9\n"
                                   "      |   ^~~~~~~~ did you mean 'momentum'?\n"
                                   "--set seed=x: error: 'seed' must be an integer >= 0, got \"x\"\n"
                                   "3 errors.\n");
    assert_string_equal(error_message(), "c.yaml:2:8: error: 'batch' must be an integer >= 1, got \"x\"");
}

static void files(void **state) {
    struct fixture *f = *state;
    assert_fails(ERR_INPUT, load_file(f, "absent.yaml", NULL));
    assert_string_equal(f->report, "error: cannot open 'absent.yaml': No such file or directory\n");
    run_settings_free(&f->s);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(mkdir("folder", 0700), 0);
    int fd = open("large.yaml", O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 100000000), 0);
    close(fd);
    static const struct {
        const char *path, *report;
    } cases[] = {
        {"fifo", "error: 'fifo' is not a regular file\n1 error.\n"},
        {"folder", "error: 'folder' is a folder, not a file\n1 error.\n"},
        {"large.yaml", "error: 'large.yaml' has 100000000 bytes; at most 1048576 are allowed\n1 error.\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_fails(ERR_CONFIG, load_file(f, cases[i].path, NULL));
        assert_string_equal(f->report, cases[i].report);
        run_settings_free(&f->s);
    }
}

/* Links may stand in a file of their own: keys beside its name count, and a tree that is read holds what was in it. */
static void links_of_a_file(void **state) {
    struct fixture *f = *state;
    save_text("links.yaml",
              "up: 10Mbit\nlatency: 50ms\nlinks: [{ranks: [0, 2-3], to: 1, loss: 1%}, {ranks: 0, up: 5Mbit}]\n");
    const char *text = "devices: cpu:4\nseed: 9\ncomm: {emulate: ./links.yaml}\n";
    const struct emulation *e =
        &load_good(f, text, "comm.emulate.latency=2ms\ncomm.emulate.jitter=1ms")->comm.emulate.as;
    assert_true(e->latency == 2e-3 && e->jitter == 1e-3 && e->up == 1.25e6 && e->seed == 9);
    assert_int_equal(e->count, 2);
    assert_true(emulation_line(e, 3, 1).loss == 0.01 && emulation_line(e, 2, 3).loss == 0);
    assert_true(emulation_port(e, 0, true) == 6.25e5 && emulation_port(e, 0, false) == 0);
    assert_true(e->links[1].value[EMULATED_LATENCY] < 0);
    struct config_errors *errors;
    struct run_settings again;
    const struct run_ask ask = {.modes = mode_kinds(&(int){0}), .algorithms = algorithms};
    struct node *tree;
    assert_ok(config_errors_create(&errors));
    assert_ok(tree_parse(text, strlen(text), "c.yaml", f->s.pool, errors, &tree));
    assert_ok(tree_set(tree, "comm.emulate.loss=3%", f->s.pool, errors));
    assert_ok(run_settings_from(tree, &ask, &again, errors));
    assert_non_null(strstr(again.given, "loss: 3%"));
    assert_non_null(strstr(again.given, "up: 10Mbit"));
    run_settings_free(&again);
    config_errors_free(errors);
}

/* A folder of MNIST's files is known for what it is. */
static void data_paths(void **state) {
    struct fixture *f = *state;
    static const unsigned char header[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7};
    FILE *out = fopen("train-images-idx3-ubyte", "w");
    assert_non_null(out);
    fwrite(header, 1, sizeof header, out);
    fclose(out);
    int kind = dataset_recognise("./train-images-idx3-ubyte");
    if (kind < 0) skip();
    const struct run_config *c = load_good(f, "data: ./train-images-idx3-ubyte\n", "data.limit=5");
    assert_int_equal(c->data.set.index, kind);
    assert_int_equal(c->data.limit, 5);
    const struct node *data = node_get(f->s.tree, "data");
    assert_string_equal(node_get(data, "train")->given, "./train-images-idx3-ubyte");
    assert_string_equal(node_get(data, "train")->source, "c.yaml");
    assert_string_equal(node_get(data, "set")->source, "auto");
    c = load_good(f, "data: ./elsewhere\n", "data.train=./train-images-idx3-ubyte");
    assert_int_equal(c->data.set.index, kind);
    c = load_good(f, "data: {train: ./train-images-idx3-ubyte}\n", NULL);
    assert_int_equal(c->data.set.index, kind);
    assert_int_equal(mkdir("tables", 0700), 0);
    save_text("tables/train.csv", "a,b\n1,2\n");
    save_text("tables/val.csv", "a,b\n1,2\n");
    for (int i = 0; i < 3; i++) {
        static const char *const forms[] = {"data: ./tables\n", "data: {train: tables}\n",
                                            "data: {train: tables, val: 20%}\n"};
        c = load_good(f, forms[i], NULL);
        data = node_get(f->s.tree, "data");
        assert_string_equal(dataset_variants.at(c->data.set.index)->name, "csv");
        assert_true(text_ends(node_get(data, "train")->text, "/tables/train.csv"));
        assert_true(text_ends(node_get(data, "val")->text, i < 2 ? "/tables/val.csv" : "0%"));
        assert_true(i == 2 || node_get(data, "val")->given);
    }
    c = load_good(f, "data: {train: 500}\n", NULL); /* the number of samples of the generated set */
    assert_string_equal(dataset_variants.at(c->data.set.index)->name, "digits");
}

/* Every key has help, and every default is one that its own reader takes. */
static void help(void **state) {
    struct fixture *f = *state;
    load_good(f, "", NULL);
    const char *all = config_help(&run_schema, "", f->s.pool);
    assert_non_null(all);
    for (const struct config_field *field = run_schema.fields; field->key; field++) {
        assert_non_null(strstr(all, field->key));
        assert_non_null(config_help(&run_schema, field->key, f->s.pool));
        assert_true(field->help || field->type == CONFIG_SECTION);
    }
    assert_non_null(config_help(&run_schema, "optimizer.momentum", f->s.pool));
    assert_non_null(config_help(&run_schema, "ddp.bucket.cap", f->s.pool));
    assert_non_null(config_help(&run_schema, "data.digits", f->s.pool));
    assert_non_null(config_help(&run_schema, "data.limit", f->s.pool));
    for (int i = 0; i < dataset_variants.count + optim_variants.count; i++) {
        bool set = i < dataset_variants.count;
        const char *name = set ? dataset_variants.at(i)->name : optim_variants.at(i - dataset_variants.count)->name;
        char text[64];
        snprintf(text, sizeof text, "%s: %s\n", set ? "data" : "optimizer", name);
        if (!strcmp(name, "plugin")) continue; /* which cannot do without its file */
        load_good(f, text, NULL);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Servers apart over four nodes with two devices each. */
static void servers_stand_on_nodes(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *ps;
        int servers[4], devices[4], all;
    } of[] = {{"{servers: 3}", {3, 0, 0, 0}, {2, 2, 2, 2}, 8},
              {"{servers: 1, hosts: spread}", {1, 0, 0, 0}, {2, 2, 2, 2}, 8},
              {"{servers: 3, hosts: spread}", {1, 1, 1, 0}, {2, 2, 2, 2}, 8},
              {"{servers: 6, hosts: spread}", {2, 1, 2, 1}, {2, 2, 2, 2}, 8},
              {"{servers: 8, hosts: spread}", {2, 2, 2, 2}, {2, 2, 2, 2}, 8},
              {"{servers: 1, hosts: own}", {1, 0, 0, 0}, {0, 2, 2, 2}, 6},
              {"{servers: 3, hosts: own}", {1, 1, 1, 0}, {0, 0, 0, 2}, 2},
              {"{servers: each, hosts: spread}", {2, 2, 2, 2}, {2, 2, 2, 2}, 8}};
    for (size_t i = 0; i < COUNT(of); i++)
        for (int node = 0; node < 4; node++) {
            char text[300];
            snprintf(text, sizeof text,
                     "mode: ps\ndevices: cpu:2\nps: %s\nrun: {nodes: 4, node_rank: %d, master: 10.0.0.1, token: "
                     "none}\n",
                     of[i].ps, node);
            assert_ok(load(f, text, NULL));
            const struct run_config *c = &f->s.config;
            assert_int_equal(c->sharing.servers_here, of[i].servers[node]);
            assert_int_equal(c->devices.local, of[i].devices[node]);
            assert_int_equal(c->devices.count, of[i].all);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(servers_stand_on_nodes, setup, teardown),
        TEST(defaults),
        TEST(decisions),
        TEST(shards_that_are_chosen),
        TEST(shorthands),
        TEST(sets),
        TEST(names),
        TEST(round_trip),
        TEST(launched),
        TEST(refused),
        TEST(hints),
        TEST(looks),
        TEST(files),
        TEST(links_of_a_file),
        TEST(data_paths),
        TEST(help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
