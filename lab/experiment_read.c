/* An experiment's file, as text and as configurations of its cells. */
#include "lab/experiment.h"

#include "engine/base/text.h"
#include "lab/experiment_impl.h"
#include "lab/gate.h"
#include "lab/statistics.h"

#include <stdio.h>
#include <string.h>

/* ---- the schema ---- */

struct raw {
    const char *name;
    struct node *base, *matrix, *exclude, *metrics, *fail_if;
    int scaling;
    int64_t repeats, seed;
    struct config_span warmup;
    const char *confidence, *practical;
    bool model_fit;
};
#define AT(member) offsetof(struct raw, member)
static const struct config_field fields[] = {
    {"name", CONFIG_STRING, AT(name), NULL,
     .help = "Of the experiment and its folder; the file's name if it is not given"},
    {"base", CONFIG_NODE, AT(base), NULL,
     .help = "What all runs share: keys of a configuration, or the path of one, seen from here"},
    {"matrix", CONFIG_NODE, AT(matrix), NULL,
     .help = "Keys and the values that each takes: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}; "
             "sides of the first one are compared"},
    {"exclude", CONFIG_NODE, AT(exclude), NULL,
     .help = "Cells to leave out: [{devices: cpu:1, comm.emulate.bandwidth: [1Gbit, 10Gbit]}]"},
    {"scaling", CONFIG_ENUM, AT(scaling), "strong",
     "strong: the batch is what base says; weak: so much for each device", .choices = "strong|weak"},
    {"repeats", CONFIG_INT, AT(repeats), "auto",
     "Runs of each cell; auto: the fewest that can tell anything with this confidence", .min = 1,
     .max = STATISTICS_RUNS, .choices = "auto"},
    {"warmup", CONFIG_SPAN, AT(warmup), "10st", "First steps of each run that are not counted", .choices = "off"},
    {"metrics", CONFIG_NODE, AT(metrics), "[step_time, throughput, comm_exposed]",
     .help = "What is measured; verdicts are about the first"},
    {"confidence", CONFIG_STRING, AT(confidence), "95%", .help = "Of the verdicts, all of them together"},
    {"practical", CONFIG_STRING, AT(practical), "2%", .help = "Smaller differences count as none"},
    {"model_fit", CONFIG_BOOL, AT(model_fit), "false",
     .help = "true: 'engine bench comm' measures links that are not emulated, for a few seconds "
             "before the runs, so that steps over them can be predicted"},
    {"seed", CONFIG_INT, AT(seed), "0", "Of the order of runs and of intervals", .min = 0, .max = -1},
    {"fail_if", CONFIG_NODE, AT(fail_if), NULL,
     .help = "Gates: ['ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4']"},
    {.key = NULL},
};
static const struct config_section schema = {
    .name = "experiment", .fields = fields, .size = sizeof(struct raw), .help = "An experiment"};

/* ---- simple keys ---- */

/* "95%" or 0.95, within [low, high]. */
static double read_share(struct experiment_reader *r, const struct node *at, const char *text, double low,
                         double high) {
    char number[32];
    size_t n = strlen(text);
    bool percent = n > 0 && text[n - 1] == '%';
    double value = -1;
    snprintf(number, sizeof number, "%.*s", (int)(percent ? n - 1 : n), text);
    if (n < sizeof number && text_real(number, &value) && percent) value /= 100;
    if (value >= low && value <= high) return value;
    config_error(r->e, at, false, "'%s' is a share from %g%% to %g%%, not '%s'", at->key, low * 100, high * 100, text);
    return low;
}

static void read_warmup(struct experiment_reader *r, const struct node *root, struct config_span warmup) {
    r->x->warmup = (int64_t)warmup.value;
    if (warmup.unit == SPAN_EPOCHS)
        config_error(r->e, node_get(root, "warmup"), false, "'warmup' counts steps\nas in warmup: 10st");
}

/* Of characters that a folder's name may have. */
static const char *clean_name(struct pool *pool, const char *text, size_t n) {
    char *name = pool_strndup(pool, text, n < 60 ? n : 60);
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (char *c = name; c && *c; c++)
        if (!strchr(good, *c) || (*c == '.' && c == name)) *c = '-';
    return name && *name ? name : "experiment";
}

static const char *name_of(const struct experiment_source *s, const struct raw *raw, struct pool *pool) {
    if (raw->name) return clean_name(pool, raw->name, strlen(raw->name));
    const char *file = s->path ? s->path : "experiment";
    if (strrchr(file, '/')) file = strrchr(file, '/') + 1;
    const char *dot = strrchr(file, '.');
    return clean_name(pool, file, dot && dot > file ? (size_t)(dot - file) : strlen(file));
}

/* ---- base ---- */

static enum error read_base_file(struct experiment_reader *r, const struct experiment_source *s,
                                 const struct node *base, struct node **out) {
    const char *slash = s->path ? strrchr(s->path, '/') : NULL;
    const char *path = base->text;
    if (slash && *path != '/') path = pool_printf(r->x->pool, "%.*s/%s", (int)(slash - s->path), s->path, path);
    if (!path) return ERR_MEMORY;
    enum error err = tree_read(path, r->x->pool, r->e, out);
    if (err != ERR_INPUT && err != ERR_DATA) return err;
    config_error(r->e, base, false, "base: %s\n%s", error_message(), error_hint());
    return ERR_CONFIG;
}

static enum error read_base(struct experiment_reader *r, const struct experiment_source *s, const struct raw *raw) {
    struct node *base = pool_alloc(r->x->pool, sizeof *base);
    if (!base) return ERR_MEMORY;
    *base = (struct node){.kind = NODE_MAP, .source = "default"};
    if (raw->base && raw->base->kind == NODE_SCALAR && *raw->base->text)
        TRY(read_base_file(r, s, raw->base, &base));
    else if (raw->base && raw->base->kind == NODE_MAP)
        base = raw->base;
    else if (raw->base && raw->base->kind == NODE_LIST)
        config_error(r->e, raw->base, false, "'base' is a configuration, or the path of one");
    r->base = base;
    for (int i = 0; i < s->nsets; i++) TRY(tree_set(base, s->sets[i], r->x->pool, r->e));
    return ERR_NONE;
}

/* ---- matrix ---- */

/* "cpu:2"; of a map "zoo=lenet depth=2". */
static const char *label_of(struct pool *pool, const struct node *value) {
    enum { SHOWN = 4 };
    struct result_setting in[SHOWN];
    char *label = value->kind == NODE_SCALAR ? pool_printf(pool, "%.60s", value->text) : NULL;
    int n = label ? 0 : result_flatten(value, pool, in, SHOWN);
    for (int i = 0; i < n; i++)
        label = pool_printf(pool, "%s%s%s=%s", label ? label : "", label ? " " : "", in[i].key, in[i].value);
    if (label && strlen(label) >= EXPERIMENT_LABEL - 8) label[EXPERIMENT_LABEL - 8] = '\0';
    for (char *c = label; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return label ? label : "(nothing)";
}

static enum error add_value(struct experiment_reader *r, struct experiment_axis *axis, const struct node *value) {
    const char *label = label_of(r->x->pool, value);
    int same = 1;
    for (int i = 0; i < axis->count; i++) {
        size_t n = strlen(label);
        const char *other = axis->label[i];
        same += !strncmp(other, label, n) && (!other[n] || other[n] == '#');
    }
    if (same > 1) label = pool_printf(r->x->pool, "%s#%d", label, same);
    if (!label) return ERR_MEMORY;
    axis->value[axis->count] = value;
    axis->label[axis->count++] = label;
    return ERR_NONE;
}

static enum error read_axis(struct experiment_reader *r, const struct node *values) {
    struct experiment *x = r->x;
    if (x->naxes == EXPERIMENT_AXES) {
        config_error(r->e, values, true, "more than %d axes", EXPERIMENT_AXES);
        return ERR_NONE;
    }
    struct experiment_axis *axis = &x->axis[x->naxes++];
    axis->key = values->key;
    if (values->kind != NODE_LIST || values->count == 0 || values->count > EXPERIMENT_VALUES) {
        config_error(r->e, values, false, "matrix: '%s' needs a list of 1 to %d values\nas in mode: [dp, ddp]",
                     values->key, EXPERIMENT_VALUES);
        return ERR_NONE;
    }
    for (int i = 0; i < values->count; i++) TRY(add_value(r, axis, values->items[i]));
    return ERR_NONE;
}

static enum error read_matrix(struct experiment_reader *r, const struct node *root, const struct node *matrix) {
    if (!matrix || matrix->kind != NODE_MAP || matrix->count == 0) {
        config_error(r->e, matrix ? matrix : root, false,
                     "there is no matrix: nothing to compare\nmatrix: {mode: [dp, ddp]}");
        return ERR_NONE;
    }
    for (int i = 0; i < matrix->count; i++) TRY(read_axis(r, matrix->items[i]));
    if (r->x->axis[0].count == 1)
        config_error(r->e, matrix->items[0], false,
                     "the first axis, '%s', is what is compared: it needs two values or more", r->x->axis[0].key);
    return ERR_NONE;
}

/* ---- metrics and gates ---- */

static enum error add_measure(struct experiment_reader *r, const struct measure *m) {
    if (r->x->nmeasures < EXPERIMENT_MEASURES) r->x->measure[r->x->nmeasures++] = *m;
    return ERR_NONE;
}

/* {time_to: {val.accuracy: 0.95}} */
static enum error read_time_to(struct experiment_reader *r, const struct node *item) {
    static const char *const known[] = {"val.accuracy", "val.loss", "train.loss"};
    const struct node *to = node_get(item, "time_to");
    const struct node *goal = to && to->kind == NODE_MAP && to->count == 1 ? to->items[0] : NULL;
    struct measure m = {.unit = "s", .about = ABOUT_BOTH, .kind = MEASURE_TIME_TO};
    for (int i = 0; i < 3 && goal; i++)
        if (!strcmp(goal->key, known[i])) m.of = known[i];
    if (!m.of || goal->kind != NODE_SCALAR || !text_real(goal->text, &m.target)) {
        config_error(r->e, item, false,
                     "a metric is a name, or {time_to: {val.accuracy: 0.95}}\ntime_to takes "
                     "val.accuracy, val.loss or train.loss");
        return ERR_NONE;
    }
    m.name = pool_printf(r->x->pool, "time_to:%s:%s", m.of, goal->text);
    return m.name ? add_measure(r, &m) : ERR_MEMORY;
}

static enum error read_measure(struct experiment_reader *r, const struct node *item) {
    const char *names[64];
    int n;
    if (item->kind != NODE_SCALAR) return read_time_to(r, item);
    const struct measure *all = measure_list(&n), *m;
    for (int i = 0; i < n; i++) names[i] = all[i].name;
    m = measure_find(item->text, (int)strlen(item->text));
    if (m) return add_measure(r, m);
    const char *near = text_nearest(item->text, names, n);
    config_error(r->e, item, false, "no metric '%s'\n%s%s%s", item->text, near ? "did you mean '" : "",
                 near ? near : "see engine help compare", near ? "'?" : "");
    return ERR_NONE;
}

static enum error read_measures(struct experiment_reader *r, const struct node *list) {
    if (list->kind != NODE_LIST) return read_measure(r, list);
    if (list->count == 0 || list->count > EXPERIMENT_MEASURES)
        config_error(r->e, list, false, "'metrics' lists 1 to %d", EXPERIMENT_MEASURES);
    for (int i = 0; i < list->count; i++) TRY(read_measure(r, list->items[i]));
    return ERR_NONE;
}

static void add_gate(struct experiment_reader *r, const struct node *at) {
    if (at->kind != NODE_SCALAR)
        config_error(r->e, at, false, "a gate is a text\nas in 'ddp.step_time > dp.step_time'");
    else if (r->x->ngates == EXPERIMENT_GATES)
        config_error(r->e, at, false, "more than %d gates", EXPERIMENT_GATES);
    else
        r->x->gate[r->x->ngates++] = (struct experiment_gate){at->text, at};
}

static enum error read_gates(struct experiment_reader *r, const struct experiment_source *s, const struct node *given) {
    for (int i = 0; given && i < (given->kind == NODE_LIST ? given->count : 1); i++)
        add_gate(r, given->kind == NODE_LIST ? given->items[i] : given);
    for (int i = 0; i < s->ngates; i++) {
        struct node *at = pool_alloc(r->x->pool, sizeof *at);
        if (!at) return ERR_MEMORY;
        *at = (struct node){.text = s->gates[i], .source = "--fail-if"};
        add_gate(r, at);
    }
    return ERR_NONE;
}

/* ---- all ---- */

static enum error read_tree(const struct experiment_source *s, struct pool *pool, struct config_errors *e,
                            struct node **out) {
    if (s->path) return tree_read(s->path, pool, e, out);
    return tree_parse(s->text, strlen(s->text), "--modes", pool, e, out);
}

/* What can go on after an error does, so that all are told. */
static enum error go_on(enum error err) {
    return err == ERR_CONFIG ? ERR_NONE : err;
}

static enum error read_all(struct experiment_reader *r, const struct experiment_source *s) {
    struct experiment *x = r->x;
    struct node *root;
    struct raw raw;
    enum error err = read_tree(s, x->pool, r->e, &root);
    if (err == ERR_CONFIG && root->count == 0) return err;
    TRY(go_on(err));
    TRY(go_on(config_read(&schema, root, x->pool, r->e, &raw)));
    x->name = name_of(s, &raw, x->pool);
    x->model_fit = raw.model_fit;
    x->weak = raw.scaling == 1, x->seed = (uint64_t)raw.seed;
    r->given_repeats = s->repeats ? s->repeats : s->quick ? 1 : (int)raw.repeats;
    r->quick = s->quick;
    r->repeats = node_get(root, "repeats"), r->exclude = raw.exclude;
    read_warmup(r, root, raw.warmup);
    if (raw.confidence) x->confidence = read_share(r, node_get(root, "confidence"), raw.confidence, 0.5, 0.999);
    if (raw.practical) x->practical = read_share(r, node_get(root, "practical"), raw.practical, 0, 1);
    TRY(go_on(read_base(r, s, &raw)));
    TRY(read_matrix(r, root, raw.matrix));
    if (raw.metrics) TRY(read_measures(r, raw.metrics));
    TRY(read_gates(r, s, raw.fail_if));
    if (config_errors_count(r->e)) return ERR_CONFIG;
    TRY(experiment_expand(r));
    for (int i = 0; i < x->ngates && !config_errors_count(r->e); i++) TRY(go_on(gate_check(x, i, r->e)));
    return config_errors_count(r->e) ? ERR_CONFIG : ERR_NONE;
}

enum error experiment_open(const struct experiment_source *source, struct experiment *out, char **report) {
    struct config_errors *e;
    memset(out, 0, sizeof *out);
    *report = NULL;
    TRY(pool_create(&out->pool));
    TRY(config_errors_create(&e));
    struct experiment_reader r = {.x = out, .e = e};
    out->command = source->command;
    enum error err = read_all(&r, source);
    if (err == ERR_CONFIG) {
        *report = config_errors_text(e, out->pool);
        if (*report) (void)FAIL(ERR_CONFIG, "%.*s", (int)strcspn(*report, "\n"), *report);
    }
    config_errors_free(e);
    return err;
}

void experiment_close(struct experiment *x) {
    for (int i = 0; i < x->ncells; i++) run_settings_free(&x->cell[i].settings);
    pool_free(x->pool);
    memset(x, 0, sizeof *x);
}
