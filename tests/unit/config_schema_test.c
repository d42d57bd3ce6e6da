/* The schema's reader and its help, on tables of this test's own that use every type and every way
 * of combining tables. */
#include "tests/harness/harness.h"

#include "engine/config/schema.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- tables ---- */

struct sgd_config {
    double lr, momentum;
};
static const struct config_field sgd_fields[] = {
    {.key = "lr",
     .type = CONFIG_REAL,
     .offset = offsetof(struct sgd_config, lr),
     .standard = "0.1",
     .help = "The rate",
     .min = 1e-12,
     .max = 1e6,
     .also = "learning_rate|torch.rate"},
    {.key = "momentum",
     .type = CONFIG_REAL,
     .offset = offsetof(struct sgd_config, momentum),
     .standard = "0",
     .min = 0,
     .max = 1},
    {.key = NULL},
};
struct adam_config {
    double lr;
    struct config_list betas;
};
static const struct config_field adam_fields[] = {
    {.key = "lr",
     .type = CONFIG_REAL,
     .offset = offsetof(struct adam_config, lr),
     .standard = "0.001",
     .min = 1e-12,
     .max = 1e6},
    {.key = "betas",
     .type = CONFIG_REALS,
     .offset = offsetof(struct adam_config, betas),
     .standard = "[0.9, 0.999]",
     .min = 0,
     .max = 1},
    {.key = NULL},
};
static void adam_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct adam_config *c = config;
    if (c->betas.count != 2) config_error(e, node_get(at, "betas"), false, "betas are two, not %d", c->betas.count);
}
static const struct config_section optims[] = {
    {.name = "sgd", .fields = sgd_fields, .size = sizeof(struct sgd_config)},
    {.name = "adam",
     .fields = adam_fields,
     .size = sizeof(struct adam_config),
     .help = "Adaptive",
     .check = adam_check},
};
static const struct config_section *optim_at(int i) {
    return &optims[i];
}
static const struct config_variants optim_kinds = {.name = "name", .count = 2, .at = optim_at};

struct layer_common {
    const char *name;
};
static const struct config_field layer_common_fields[] = {
    {.key = "name", .type = CONFIG_STRING, .offset = offsetof(struct layer_common, name)},
    {.key = NULL},
};
static const struct config_section layer_common_section = {
    .name = "all", .fields = layer_common_fields, .size = sizeof(struct layer_common)};
struct linear_config {
    int64_t units;
    bool bias;
};
static const struct config_field linear_fields[] = {
    {.key = "units",
     .type = CONFIG_INT,
     .offset = offsetof(struct linear_config, units),
     .min = 1,
     .max = 1000,
     .required = true},
    {.key = "bias", .type = CONFIG_BOOL, .offset = offsetof(struct linear_config, bias), .standard = "true"},
    {.key = NULL},
};
static const struct config_field no_fields[] = {{.key = NULL}};
static const struct config_section layers[] = {
    {.name = "relu", .fields = no_fields},
    {.name = "linear",
     .fields = linear_fields,
     .size = sizeof(struct linear_config),
     .shorthand = "units",
     .also = "nn.Dense"},
};
static const struct config_section *layer_at(int i) {
    return &layers[i];
}
static const struct config_variants layer_kinds = {
    .name = "kind", .count = 2, .at = layer_at, .common = &layer_common_section, .topic = "parts"};

struct all {
    bool flag;
    int64_t count, automatic, bytes;
    double ratio, seconds, share;
    const char *text, *metric;
    int choice;
    struct config_span span, often;
    struct config_list ints, spans, words, layers;
    struct node *node;
    struct batch {
        int64_t size, shards;
    } batch;
    struct optimizer {
        struct config_variant kind;
        double clip;
    } optimizer;
    struct config_variant schedule;
};
#define AT(member) offsetof(struct all, member)
static const struct config_field batch_fields[] = {
    {.key = "size",
     .type = CONFIG_INT,
     .offset = offsetof(struct batch, size),
     .standard = "128",
     .help = "Samples",
     .min = 1,
     .max = -1,
     .also = "bs"},
    {.key = "shards",
     .type = CONFIG_INT,
     .offset = offsetof(struct batch, shards),
     .standard = "auto",
     .choices = "auto",
     .min = 1,
     .max = 256},
    {.key = NULL},
};
static const struct config_section batch_section = {
    .name = "batch", .fields = batch_fields, .size = sizeof(struct batch), .shorthand = "size", .help = "How much"};
static const struct config_field optimizer_fields[] = {
    {.key = "",
     .type = CONFIG_VARIANT,
     .offset = offsetof(struct optimizer, kind),
     .standard = "sgd",
     .extra = &optim_kinds},
    {.key = "clip",
     .type = CONFIG_REAL,
     .offset = offsetof(struct optimizer, clip),
     .standard = "off",
     .choices = "off",
     .min = 1e-12,
     .max = 1e6},
    {.key = NULL},
};
static const struct config_section optimizer_section = {
    .name = "optimizer", .fields = optimizer_fields, .size = sizeof(struct optimizer)};
static const struct config_field all_fields[] = {
    {.key = "flag", .type = CONFIG_BOOL, .offset = AT(flag), .standard = "false", .help = "A flag"},
    {.key = "count", .type = CONFIG_INT, .offset = AT(count), .standard = "1", .min = 1, .max = -1},
    {.key = "automatic",
     .type = CONFIG_INT,
     .offset = AT(automatic),
     .standard = "auto",
     .choices = "auto",
     .word = -7},
    {.key = "bytes", .type = CONFIG_BYTES, .offset = AT(bytes), .standard = "25MB", .min = 1, .max = 1 << 30},
    {.key = "ratio", .type = CONFIG_REAL, .offset = AT(ratio), .standard = "0.5", .min = 0, .max = 1},
    {.key = "seconds", .type = CONFIG_SECONDS, .offset = AT(seconds), .standard = "60s"},
    {.key = "percent", .type = CONFIG_SHARE, .offset = AT(share), .standard = "50%", .min = 0, .max = 2},
    {.key = "text", .type = CONFIG_STRING, .offset = AT(text), .standard = "hello"},
    {.key = "metric", .type = CONFIG_STRING, .offset = AT(metric), .standard = "off", .choices = "off|loss|accuracy"},
    {.key = "choice", .type = CONFIG_ENUM, .offset = AT(choice), .standard = "ring", .choices = "auto|tree|ring"},
    {.key = "span", .type = CONFIG_SPAN, .offset = AT(span), .standard = "5ep"},
    {.key = "often",
     .type = CONFIG_SPAN,
     .offset = AT(often),
     .standard = "off",
     .choices = "off",
     .min = 1e-12,
     .max = 1e15},
    {.key = "ints", .type = CONFIG_INTS, .offset = AT(ints), .standard = "3", .min = 1, .max = 9},
    {.key = "spans", .type = CONFIG_SPANS, .offset = AT(spans), .standard = "[]"},
    {.key = "words", .type = CONFIG_ENUMS, .offset = AT(words), .standard = "[two]", .choices = "one|two|three"},
    {.key = "layers", .type = CONFIG_VARIANTS, .offset = AT(layers), .standard = "[]", .extra = &layer_kinds},
    {.key = "node", .type = CONFIG_NODE, .offset = AT(node), .standard = "mlp", .extra = "zoo"},
    {.key = "batch", .type = CONFIG_SECTION, .offset = AT(batch), .extra = &batch_section},
    {.key = "optimizer", .type = CONFIG_SECTION, .offset = AT(optimizer), .extra = &optimizer_section},
    {.key = "schedule", .type = CONFIG_VARIANT, .offset = AT(schedule), .standard = "sgd", .extra = &optim_kinds},
    {.key = NULL},
};
static const struct config_section all = {.name = "all", .fields = all_fields, .size = sizeof(struct all)};

/* ---- reading ---- */

struct fixture {
    struct pool *pool;
    struct config_errors *e;
    struct node *root;
    struct all out;
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    if (!f || pool_create(&f->pool) || config_errors_create(&f->e)) return -1;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    pool_free(f->pool);
    config_errors_free(f->e);
    free(f);
    return 0;
}

/* sets: assignments one a line, or NULL. */
static enum error read_text(struct fixture *f, const char *text, const char *sets) {
    config_errors_free(f->e);
    assert_ok(config_errors_create(&f->e));
    assert_ok(tree_parse(text, strlen(text), "c.yaml", f->pool, f->e, &f->root));
    for (const char *set = sets; set && *set;) {
        size_t n = strcspn(set, "\n");
        assert_ok(tree_set(f->root, pool_strndup(f->pool, set, n), f->pool, f->e));
        set += n + (set[n] == '\n');
    }
    return config_read(&all, f->root, f->pool, f->e, &f->out);
}

static struct all *read_good(struct fixture *f, const char *text, const char *sets) {
    if (read_text(f, text, sets) != ERR_NONE) fail_msg("%s", config_errors_text(f->e, f->pool));
    return &f->out;
}

static void defaults(void **state) {
    struct fixture *f = *state;
    struct all *c = read_good(f, "", NULL);
    assert_false(c->flag);
    assert_int_equal(c->count, 1);
    assert_int_equal(c->automatic, -7);
    assert_int_equal(c->bytes, 25 << 20);
    assert_true(c->ratio == 0.5 && c->seconds == 60 && c->share == 0.5);
    assert_string_equal(c->text, "hello");
    assert_string_equal(c->metric, "off");
    assert_int_equal(c->choice, 2);
    assert_true(c->span.unit == SPAN_EPOCHS && c->span.value == 5);
    assert_true(c->often.unit == SPAN_OFF);
    assert_int_equal(c->ints.count, 1);
    assert_int_equal(*(int64_t *)c->ints.items, 3);
    assert_int_equal(c->spans.count, 0);
    assert_int_equal(c->words.count, 1);
    assert_int_equal(*(int *)c->words.items, 1);
    assert_int_equal(c->layers.count, 0);
    assert_string_equal(c->node->text, "mlp");
    assert_int_equal(c->batch.size, 128);
    assert_int_equal(c->batch.shards, 0);
    assert_int_equal(c->optimizer.kind.index, 0);
    assert_true(((struct sgd_config *)c->optimizer.kind.config)->lr == 0.1);
    assert_null(c->optimizer.kind.common_config);
    assert_true(c->optimizer.clip == 0);
    assert_int_equal(c->schedule.index, 0);
    assert_string_equal(node_get(f->root, "flag")->source, "default");
}

static void values(void **state) {
    struct fixture *f = *state;
    struct all *c = read_good(f,
                              "flag: true\ncount: 9223372036854775807\nautomatic: -3\nbytes: 64KB\nratio: 5e-4\n"
                              "seconds: 250ms\npercent: 150%\ntext: 'no'\nmetric: loss\nchoice: auto\nspan: "
                              "0.5ep\noften: "
                              "200st\n"
                              "ints: [1, 2]\nspans: [3ep, 5st]\nwords: [three, one]\nnode: {a: [1]}\nbatch: 64\n",
                              NULL);
    assert_true(c->flag);
    assert_int_equal(c->count, INT64_MAX);
    assert_int_equal(c->automatic, -3);
    assert_int_equal(c->bytes, 65536);
    assert_true(c->ratio == 5e-4 && c->seconds == 0.25 && c->share == 1.5);
    assert_string_equal(c->text, "no");
    assert_string_equal(c->metric, "loss");
    assert_int_equal(c->choice, 0);
    assert_true(c->span.unit == SPAN_EPOCHS && c->span.value == 0.5);
    assert_true(c->often.unit == SPAN_STEPS && c->often.value == 200);
    assert_int_equal(c->ints.count, 2);
    assert_int_equal(((int64_t *)c->ints.items)[1], 2);
    assert_int_equal(c->spans.count, 2);
    assert_true(((struct config_span *)c->spans.items)[1].unit == SPAN_STEPS);
    assert_int_equal(c->words.count, 2);
    assert_int_equal(((int *)c->words.items)[0], 2);
    assert_int_equal(((int *)c->words.items)[1], 0);
    assert_non_null(node_get(c->node, "a"));
    assert_int_equal(c->batch.size, 64);
    assert_int_equal(read_good(f, "words: three", NULL)->words.count, 1);
}

static void variants(void **state) {
    struct fixture *f = *state;
    struct all *c = read_good(f, "optimizer: adam\nschedule: {name: adam, lr: 2}\n", NULL);
    assert_int_equal(c->optimizer.kind.index, 1);
    struct adam_config *adam = c->optimizer.kind.config;
    assert_true(adam->lr == 0.001 && adam->betas.count == 2 && ((double *)adam->betas.items)[1] == 0.999);
    assert_int_equal(c->schedule.index, 1);
    assert_true(((struct adam_config *)c->schedule.config)->lr == 2);
    c = read_good(f, "optimizer: {lr: 3, clip: 1, name: sgd, momentum: 0.9}\n", NULL);
    struct sgd_config *sgd = c->optimizer.kind.config;
    assert_true(sgd->lr == 3 && sgd->momentum == 0.9 && c->optimizer.clip == 1);
    c = read_good(f, "optimizer: {lr: 3}\n", NULL); /* the standard one */
    assert_int_equal(c->optimizer.kind.index, 0);
    assert_true(((struct sgd_config *)c->optimizer.kind.config)->lr == 3);
    assert_ptr_equal(c->optimizer.kind.node, node_get(f->root, "optimizer"));
    read_good(f, "optimizer:\nbatch:\n", NULL); /* all below is commented out */
}

static void items(void **state) {
    struct fixture *f = *state;
    struct all *c = read_good(f,
                              "layers:\n- linear: 10\n- relu\n- linear: {units: 5, bias: false, "
                              "name: last}\n- {relu: }\n",
                              NULL);
    assert_int_equal(c->layers.count, 4);
    const struct config_variant *v = c->layers.items;
    const struct linear_config *first = v[0].config, *third = v[2].config;
    assert_int_equal(v[0].index, 1);
    assert_true(first->units == 10 && first->bias);
    assert_null(((struct layer_common *)v[0].common_config)->name);
    assert_int_equal(v[1].index, 0);
    assert_true(third->units == 5 && !third->bias);
    assert_string_equal(((struct layer_common *)v[2].common_config)->name, "last");
    assert_int_equal(v[3].index, 0);
    assert_int_equal(v[2].node->line, 4);
}

/* What --set adds to a section that the file gave as a scalar. */
static void sets(void **state) {
    struct fixture *f = *state;
    struct all *c = read_good(f, "batch: 64\n", "batch.shards=8");
    assert_true(c->batch.size == 64 && c->batch.shards == 8);
    c = read_good(f, "batch: 64\n", "batch.shards=8\nbatch.size=32");
    assert_true(c->batch.size == 32 && c->batch.shards == 8);
    c = read_good(f, "batch: {shards: 2}\n", "batch=16");
    assert_true(c->batch.size == 16 && c->batch.shards == 0);
    c = read_good(f, "optimizer: adam\n", "optimizer.lr=0.25");
    assert_int_equal(c->optimizer.kind.index, 1);
    assert_true(((struct adam_config *)c->optimizer.kind.config)->lr == 0.25);
    c = read_good(f, "", "optimizer.lr=0.25\noptimizer.clip=2");
    assert_int_equal(c->optimizer.kind.index, 0);
    assert_true(((struct sgd_config *)c->optimizer.kind.config)->lr == 0.25 && c->optimizer.clip == 2);
    c = read_good(f, "optimizer: adam\n", "optimizer.clip=2\noptimizer.name=sgd");
    assert_int_equal(c->optimizer.kind.index, 0);
    c = read_good(f, "schedule: adam\n", "schedule.lr=4");
    assert_true(c->schedule.index == 1 && ((struct adam_config *)c->schedule.config)->lr == 4);
    c = read_good(f, "node: lenet\n", "node.width=2");
    assert_string_equal(node_get(c->node, "zoo")->text, "lenet");
    assert_string_equal(node_get(c->node, "width")->text, "2");
    c = read_good(f, "layers: [linear: 10, relu]\n", "layers[0].linear.bias=false\nlayers[1].relu.name=r");
    const struct config_variant *v = c->layers.items;
    assert_true(((struct linear_config *)v[0].config)->units == 10 && !((struct linear_config *)v[0].config)->bias);
    assert_string_equal(((struct layer_common *)v[1].common_config)->name, "r");
}

static void completed(void **state) {
    struct fixture *f = *state;
    read_good(f, "batch: 64\nlayers: [relu, linear: 3]\noptimizer: {clip: 1, lr: 2}\n", "node.width=2\nflag=true");
    const char *text = tree_write(f->root, true, f->pool);
    assert_string_equal(text, "flag: true  # --set\n"
                              "count: 1  # default\n"
                              "automatic: auto  # default\n"
                              "bytes: 25MB  # default\n"
                              "ratio: 0.5  # default\n"
                              "seconds: 60s  # default\n"
                              "percent: 50%  # default\n"
                              "text: hello  # default\n"
                              "metric: off  # default\n"
                              "choice: ring  # default\n"
                              "span: 5ep  # default\n"
                              "often: off  # default\n"
                              "ints: 3  # default\n"
                              "spans: []  # default\n"
                              "words: [two]  # default\n"
                              "layers:\n"
                              "  - relu: {}  # c.yaml:2\n"
                              "  - linear:\n"
                              "      units: 3  # c.yaml:2\n"
                              "      bias: true  # default\n"
                              "node:\n"
                              "  width: 2  # --set\n"
                              "batch:\n"
                              "  size: 64  # c.yaml:1\n"
                              "  shards: auto  # default\n"
                              "optimizer:\n"
                              "  name: sgd  # default\n"
                              "  lr: 2  # c.yaml:3\n"
                              "  momentum: 0  # default\n"
                              "  clip: 1  # c.yaml:3\n"
                              "schedule:\n"
                              "  name: sgd  # default\n"
                              "  lr: 0.1  # default\n"
                              "  momentum: 0  # default\n");
    const char *plain = tree_write(f->root, false, f->pool);
    assert_ok(config_read(&all, f->root, f->pool, f->e, &f->out)); /* reading twice changes nothing */
    assert_string_equal(tree_write(f->root, false, f->pool), plain);
    read_good(f, text, NULL);
    assert_string_equal(tree_write(f->root, false, f->pool), plain);
}

/* ---- what is wrong ---- */

static const struct {
    const char *text, *sets, *report; /* the first line, and a hint where there is one */
} wrong[] = {
    {"falg: true", NULL, "c.yaml:1:1: error: unknown key 'falg'\n... did you mean 'flag'?"},
    {"zebra: true", NULL, "c.yaml:1:1: error: unknown key 'zebra'\n..."},
    {"momentum: 1", NULL,
     "c.yaml:1:1: error: unknown key 'momentum'\n... did you mean 'optimizer.momentum', as in "
     "'optimizer: {momentum: 1}'?"},
    {"", "momentum=1",
     "--set momentum=1: error: unknown key 'momentum'\n      did you mean 'optimizer.momentum', as in "
     "'optimizer.momentum=1'?"},
    {"learning_rate: 1", NULL,
     "c.yaml:1:1: error: unknown key 'learning_rate'\n... did you mean 'optimizer.lr', as in "
     "'optimizer: {lr: 1}'?"},
    {"optimizer: {Learning-Rate: 1}", NULL,
     "c.yaml:1:13: error: unknown key 'Learning-Rate' in 'optimizer'\n... did you mean 'lr'?"},
    {"ints: 3\nrate: 1", NULL,
     "c.yaml:2:1: error: unknown key 'rate'\n... did you mean 'optimizer.lr', as in "
     "'optimizer: {lr: 1}'?"},
    {"bs: 1", NULL, "c.yaml:1:1: error: unknown key 'bs'\n... did you mean 'batch', as in 'batch: 1'?"},
    {"often: 3", NULL,
     "c.yaml:1:8: error: 'often' must be off or a length such as 5ep (epochs) or 200st (steps), got "
     "\"3\"\n... did you mean '3ep' or '3st'?"},
    {"layers: [Dense: 3]", NULL,
     "c.yaml:1:10: error: 'layers[0]' must be one of the parts, got \"Dense\"\n... did you mean 'linear'? (engine help "
     "parts)"},
    {"layers: [linear]", NULL,
     "c.yaml:1:10: error: 'layers[0].linear.units' is missing: it must be an integer from 1 to "
     "1000\n... engine help linear"},
    {"layers: [linear: 0]", NULL,
     "c.yaml:1:18: error: 'layers[0].linear.units' must be an integer from 1 to 1000, got "
     "\"0\"\n... engine help linear"},
    {"shards: 1", NULL,
     "c.yaml:1:1: error: unknown key 'shards'\n... did you mean 'batch.shards', as in 'batch: "
     "{shards: 1}'?"},
    {"batch: {siez: 1}", NULL, "c.yaml:1:9: error: unknown key 'siez' in 'batch'\n... did you mean 'size'?"},
    {"optimizer: {name: sgd, momentun: 1}", NULL,
     "c.yaml:1:24: error: unknown key 'momentun' in 'optimizer'\n... did you mean 'momentum'?"},
    {"optimizer: {betas: 1}", NULL,
     "c.yaml:1:13: error: unknown key 'betas' in 'optimizer'\n... 'betas' belongs to 'adam'"},
    {"optimizer: {nmae: sgd}", NULL, "c.yaml:1:13: error: unknown key 'nmae' in 'optimizer'\n... did you mean 'name'?"},
    {"layers: [linear: {unit: 3}]", NULL,
     "c.yaml:1:19: error: unknown key 'unit' in 'layers[0].linear', which takes units, bias, name\n... did you mean "
     "'units'? (engine help linear)"},
    {"layers: [relu: {slope: 3}]", NULL,
     "c.yaml:1:17: error: unknown key 'slope' in 'layers[0].relu', which takes name\n... engine help relu"},
    {"flag: yes", NULL, "c.yaml:1:7: error: 'flag' must be true or false, got \"yes\"\n... did you mean 'true'?"},
    {"flag: off", NULL, "c.yaml:1:7: error: 'flag' must be true or false, got \"off\"\n... did you mean 'false'?"},
    {"flag: 1", NULL, "c.yaml:1:7: error: 'flag' must be true or false, got \"1\"\n..."},
    {"flag:", NULL, "c.yaml:1:6: error: 'flag' must be true or false, got nothing\n..."},
    {"count: 0", NULL, "c.yaml:1:8: error: 'count' must be an integer >= 1, got \"0\"\n..."},
    {"count: 010", NULL, "c.yaml:1:8: error: 'count' must be an integer >= 1, got \"010\"\n..."},
    {"count: 0x10", NULL, "c.yaml:1:8: error: 'count' must be an integer >= 1, got \"0x10\"\n..."},
    {"count: 1e3", NULL, "c.yaml:1:8: error: 'count' must be an integer >= 1, got \"1e3\"\n..."},
    {"count: 9223372036854775808", NULL,
     "c.yaml:1:8: error: 'count' must be an integer >= 1, got \"9223372036854775808\"\n..."},
    {"count: [1]", NULL, "c.yaml:1:8: error: 'count' must be an integer >= 1, got a list\n..."},
    {"count: {a: 1}", NULL, "c.yaml:1:8: error: 'count' must be an integer >= 1, got a map\n..."},
    {"count: \"\"", NULL, "c.yaml:1:8: error: 'count' must be an integer >= 1, got \"\"\n..."},
    {"automatic: atuo", NULL,
     "c.yaml:1:12: error: 'automatic' must be auto or an integer, got \"atuo\"\n... did you mean "
     "'auto'?"},
    {"bytes: 25mb", NULL, "c.yaml:1:8: error: 'bytes' must be a size such as 64KB or 25MB, got \"25mb\"\n..."},
    {"bytes: 2GB", NULL, "c.yaml:1:8: error: 'bytes' must be at most 1073741824, got \"2GB\"\n..."},
    {"ratio: 1.5", NULL, "c.yaml:1:8: error: 'ratio' must be at most 1, got \"1.5\"\n..."},
    {"ratio: nan", NULL, "c.yaml:1:8: error: 'ratio' must be a number from 0 to 1, got \"nan\"\n..."},
    {"ratio: .inf", NULL, "c.yaml:1:8: error: 'ratio' must be a number from 0 to 1, got \".inf\"\n..."},
    {"ratio: 1e999", NULL, "c.yaml:1:8: error: 'ratio' must be a number from 0 to 1, got \"1e999\"\n..."},
    {"percent: 201%", NULL, "c.yaml:1:10: error: 'percent' must be at most 200%, got \"201%\"\n..."},
    {"percent: half", NULL, "c.yaml:1:10: error: 'percent' must be a share such as 50% or 0.5, got \"half\"\n..."},
    {"seconds: 5 minutes", NULL,
     "c.yaml:1:10: error: 'seconds' must be a time such as 250ms, 10s or 2m, got \"5 "
     "minutes\"\n..."},
    {"text: [a]", NULL, "c.yaml:1:7: error: 'text' must be a text, got a list\n..."},
    {"metric: los", NULL,
     "c.yaml:1:9: error: 'metric' must be one of off, loss, accuracy, got \"los\"\n... did you "
     "mean 'loss'?"},
    {"choice: tere", NULL,
     "c.yaml:1:9: error: 'choice' must be one of auto, tree, ring, got \"tere\"\n... did you mean "
     "'tree'?"},
    {"span: 5", NULL,
     "c.yaml:1:7: error: 'span' must be a length such as 5ep (epochs) or 200st (steps), got "
     "\"5\"\n... did you mean '5ep' or '5st'?"},
    {"span: 0.5st", NULL,
     "c.yaml:1:7: error: 'span' must be a length such as 5ep (epochs) or 200st (steps), got "
     "\"0.5st\"\n..."},
    {"span: -1ep", NULL,
     "c.yaml:1:7: error: 'span' must be a length such as 5ep (epochs) or 200st (steps), got "
     "\"-1ep\"\n..."},
    {"span: off", NULL,
     "c.yaml:1:7: error: 'span' must be a length such as 5ep (epochs) or 200st (steps), got "
     "\"off\"\n..."},
    {"often: 0ep", NULL,
     "c.yaml:1:8: error: 'often' must be off or a length such as 5ep (epochs) or 200st (steps), "
     "got \"0ep\"\n..."},
    {"ints: [1, x]", NULL, "c.yaml:1:11: error: 'ints[1]' must be an integer from 1 to 9, got \"x\"\n..."},
    {"ints: 10", NULL, "c.yaml:1:7: error: 'ints' must be at most 9, got \"10\"\n..."},
    {"ints: {a: 1}", NULL,
     "c.yaml:1:7: error: 'ints' must be an integer from 1 to 9, or a list of them, got a map\n..."},
    {"words: four", NULL,
     "c.yaml:1:8: error: 'words' must be one of one, two, three, or a list of them, got "
     "\"four\"\n..."},
    {"words: [one, tow]", NULL,
     "c.yaml:1:14: error: 'words[1]' must be one of one, two, three, got \"tow\"\n... did you mean "
     "'two'?"},
    {"spans: [1ep, [2ep]]", NULL,
     "c.yaml:1:14: error: 'spans[1]' must be a length such as 5ep (epochs) or 200st (steps), got a "
     "list\n..."},
    {"layers: relu", NULL, "c.yaml:1:9: error: 'layers' must be a list, got \"relu\"\n..."},
    {"layers: [rleu]", NULL,
     "c.yaml:1:10: error: 'layers[0]' must be one of the parts, got \"rleu\"\n... did you mean "
     "'relu'?"},
    {"layers: [{linear: 3, name: x}]", NULL,
     "c.yaml:1:10: error: 'layers[0]' must be one name with its keys, got a map\n... write {name: "
     "{key: value, ...}}, all "
     "keys inside the inner braces"},
    {"layers: [[relu]]", NULL,
     "c.yaml:1:10: error: 'layers[0]' must be one name with its keys, got a list\n... write {name: "
     "{key: value, ...}}, all "
     "keys inside the inner braces"},
    {"layers: [relu: 3]", NULL,
     "c.yaml:1:16: error: 'layers[0].relu' must be a map of keys, got \"3\"\n... engine help relu"},
    {"layers: [linear: x]", NULL,
     "c.yaml:1:18: error: 'layers[0].linear.units' must be an integer from 1 to 1000, got \"x\"\n... engine help "
     "linear"},
    {"batch: 256k", NULL, "c.yaml:1:8: error: 'batch' must be an integer >= 1, got \"256k\"\n..."},
    {"batch: {size: 256k}", NULL, "c.yaml:1:15: error: 'batch.size' must be an integer >= 1, got \"256k\"\n..."},
    {"batch: [1]", NULL, "c.yaml:1:8: error: 'batch' must be an integer >= 1, got a list\n..."},
    {"optimizer: sdg", NULL,
     "c.yaml:1:12: error: 'optimizer' must be one of sgd, adam, got \"sdg\"\n... did you mean "
     "'sgd'?"},
    {"optimizer: {name: sdg, foo: 1}", NULL, /* whose keys they are is not known: one error */
     "c.yaml:1:19: error: 'optimizer.name' must be one of sgd, adam, got \"sdg\"\n... did you mean "
     "'sgd'?"},
    {"optimizer: [sgd]", NULL, "c.yaml:1:12: error: 'optimizer' must be one of sgd, adam, got a list\n..."},
    {"optimizer: {name: adam, betas: [0.9]}", NULL, "c.yaml:1:32: error: betas are two, not 1\n..."},
    {"schedule: {name: adam, momentum: 1}", NULL,
     "c.yaml:1:24: error: unknown key 'momentum' in 'schedule'\n... 'momentum' belongs to 'sgd'"},
    {"text: \"\\e[31m\"\nchoice: \"\\e[31m\"", NULL,
     "c.yaml:2:9: error: 'choice' must be one of auto, tree, ring, got \"?[31m\"\n..."},
    {"", "optimizer.lr=fast", "--set optimizer.lr=fast: error: 'optimizer.lr' must be a number > 0, got \"fast\"\n"},
    {"", "optimiser.lr=1", "--set optimiser.lr=1: error: unknown key 'optimiser'\n      did you mean 'optimizer'?"},
    {"", "flag.x=1", "--set flag.x=1: error: 'flag' must be true or false, got a map\n"},
    {"flag: true", "flag.x=1", "c.yaml:1:7: error: 'flag' must be true or false, got a map\n..."},
    {"batch: 64", "batch.shards=x",
     "--set batch.shards=x: error: 'batch.shards' must be auto or an integer from 1 to 256, got "
     "\"x\"\n"},
};

/* expected: the first line; then "... hint" stands for the excerpt and what follows it. */
static void check_report(const char *report, const char *expected) {
    size_t n = strcspn(expected, "\n");
    if (strncmp(report, expected, n + 1) != 0) fail_msg("expected:\n%s\ngot:\n%s", expected, report);
    const char *hint = expected + n + 1;
    bool excerpt = !strncmp(hint, "...", 3);
    if (excerpt) hint += 3 + (hint[3] == ' ');
    if (excerpt && (!strstr(report, "    1 | ") && !strstr(report, "    2 | "))) fail_msg("no excerpt in:\n%s", report);
    if (*hint ? !strstr(report, hint) : strstr(report, "did you mean") || strstr(report, "hint:"))
        fail_msg("expected:\n%s\ngot:\n%s", expected, report);
    if (!strstr(report, "\n1 error.\n")) fail_msg("more than one error:\n%s", report);
}

static void wrong_texts(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_fails(ERR_CONFIG, read_text(f, wrong[i].text, wrong[i].sets));
        check_report(config_errors_text(f->e, f->pool), wrong[i].report);
    }
}

static void all_at_once(void **state) {
    struct fixture *f = *state;
    assert_fails(
        ERR_CONFIG,
        read_text(f, "batch: {size: x, sahrds: 2}\nflag: maybe\nzebra: 1\nlayers: [relu, a, linear: 0]\n", "ratio=2"));
    assert_int_equal(config_errors_count(f->e), 7);
    const char *report = config_errors_text(f->e, f->pool);
    static const char *const order[] = {"c.yaml:1:15:", "c.yaml:1:18:", "c.yaml:2:7:",    "c.yaml:3:1:",
                                        "c.yaml:4:16:", "c.yaml:4:27:", "--set ratio=2:", "7 errors.\n"};
    for (size_t i = 0; i < COUNT(order); i++) {
        report = strstr(report, order[i]);
        if (!report) fail_msg("%s is missing or out of order", order[i]);
    }
}

/* A long or many-byte value is cut between characters, and a wrong key among very many costs no
 * time. */
static void large(void **state) {
    struct fixture *f = *state;
    char text[1000] = "count: ";
    for (int i = 0; i < 100; i++) strcat(text, "\xe2\x82\xac");
    assert_fails(ERR_CONFIG, read_text(f, text, NULL));
    assert_non_null(strstr(config_errors_text(f->e, f->pool), "\xe2\x82\xac...\"\n"));
    char *keys = malloc(40000 * 16);
    assert_non_null(keys);
    size_t n = 0;
    for (int i = 0; i < 40000; i++) n += (size_t)sprintf(keys + n, "falg%d: 1\n", i);
    assert_fails(ERR_CONFIG, read_text(f, keys, NULL));
    free(keys);
    assert_int_equal(config_errors_count(f->e), 40000);
}

/* ---- help ---- */

static void help(void **state) {
    struct fixture *f = *state;
    assert_string_equal(config_help(&all, "batch", f->pool),
                        "batch            a map of keys; a bare value is its 'size'\n"
                        "                 How much\n"
                        "  size             an integer >= 1 (128)\n"
                        "                   Samples (in other tools: bs)\n"
                        "  shards           auto or an integer from 1 to 256 (auto)\n");
    assert_string_equal(config_help(&all, "batch.size", f->pool), "size             an integer >= 1 (128)\n"
                                                                  "                 Samples (in other tools: bs)\n");
    assert_string_equal(config_help(&all, "layers.linear.units", f->pool),
                        "units            an integer from 1 to 1000; required\n");
    assert_string_equal(config_help(&all, "choice", f->pool), "choice           one of auto, tree, ring (ring)\n");
    assert_string_equal(config_help(&all, "optimizer.lr", f->pool),
                        "lr               a number > 0 (0.1)\n"
                        "                 The rate (in other tools: learning_rate, torch.rate)\n");
    assert_string_equal(config_help(&all, "optimizer.betas", f->pool),
                        "betas            a number from 0 to 1, or a list of them ([0.9, 0.999])\n");
    assert_string_equal(config_help(&all, "optimizer.adam", f->pool),
                        "adam: Adaptive\n"
                        "lr               a number > 0 (0.001)\n"
                        "betas            a number from 0 to 1, or a list of them ([0.9, 0.999])\n");
    assert_non_null(config_help(&all, "schedule.adam.lr", f->pool));
    assert_non_null(config_help(&all, "layers.linear.units", f->pool));
    const char *whole = config_help(&all, "", f->pool);
    for (const struct config_field *field = all_fields; field->key; field++) assert_non_null(strstr(whole, field->key));
    assert_null(config_help(&all, "optimizer.momentun", f->pool));
    assert_string_equal(error_message(), "no key 'optimizer.momentun' in the configuration");
    assert_string_equal(error_hint(), "did you mean 'optimizer.momentum'?");
    assert_null(config_help(&all, "zebra", f->pool));
    assert_string_equal(error_hint(), "");
    assert_null(config_help(&all, "count.x", f->pool));
    assert_null(config_help(&all, ".", f->pool));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(defaults),  TEST(values),      TEST(variants),    TEST(items), TEST(sets),
        TEST(completed), TEST(wrong_texts), TEST(all_at_once), TEST(large), TEST(help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
