/* An experiment's file, as text and as configurations of its cells. */
#include "lab/experiment/experiment.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "lab/experiment/gate.h"
#include "lab/experiment/impl.h"
#include "lab/numbers/statistics.h"

#include <stdio.h>
#include <string.h>

/* ---- the schema ---- */

struct experiment_raw {
    const char *name;
    struct node *base, *sides, *matrix, *exclude, *repeats, *tune, *metrics, *practical, *fail_if, *under, *hosts;
    int scaling, pairs;
    int64_t seed;
    struct config_span warmup;
    const char *confidence;
    double timeout;
    bool model_fit;
};
#define AT(member) offsetof(struct experiment_raw, member)
static const struct config_field fields[] = {
    {"name", CONFIG_STRING, AT(name), NULL,
     .help = "Name of the experiment and its folder; default: the name of the file"},
    {"base", CONFIG_NODE, AT(base), NULL,
     .help = "The configuration that all runs share: its keys, or its path, relative to this file"},
    {"matrix", CONFIG_NODE, AT(matrix), NULL,
     .help = "Keys with a list of values: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}; the values of the first key are "
             "compared"},
    {"sides", CONFIG_NODE, AT(sides), NULL,
     .help = "The sides to compare, if they differ in more than one key: {dp: {mode: dp}, int8: {mode: ddp, "
             "comm.compress: int8}}; the matrix then has only the conditions"},
    {"pairs", CONFIG_ENUM, AT(pairs), "first",
     "first: compare each side with the first; all: compare each side with every other", .choices = "first|all"},
    {"exclude", CONFIG_NODE, AT(exclude), NULL,
     .help = "Cells to leave out: [{devices: cpu:1, comm.emulate.bandwidth: [1Gbit, 10Gbit]}]"},
    {"scaling", CONFIG_ENUM, AT(scaling), "strong",
     "strong: the batch of base is for all devices together; weak: it is for each device", .choices = "strong|weak"},
    {"repeats", CONFIG_NODE, AT(repeats), "auto",
     .help = "Number of runs of each cell. auto: by the spread of the first runs, as many as detect a 'practical' "
             "difference with a chance of 80 %, at most 10 ({most: 20}). {seeds: 8} or {seeds: [3, 5]}: run k of every "
             "cell has seed k, so each is a separate training"},
    {"tune", CONFIG_NODE, AT(tune), NULL,
     .help =
         "Keys whose values are chosen for each side before the comparison, on seeds of their own: {optimizer.lr: log "
         "1e-4..1e-1, budget: 16 runs, search: grid}"},
    {"warmup", CONFIG_SPAN, AT(warmup), "10st", "Number of first steps of each run that are not counted",
     .choices = "off"},
    {"metrics", CONFIG_NODE, AT(metrics), "[step_time, throughput, comm_exposed]",
     .help = "Metrics to measure; the first one is the main question"},
    {"confidence", CONFIG_STRING, AT(confidence), "95%",
     .help = "Confidence of the verdicts, for all of them together"},
    {"practical", CONFIG_NODE, AT(practical), "2%",
     .help = "The smallest difference that matters: for ratios (2%), or for each metric: {step_time: 2%, val_accuracy: "
             "0.5pt}"},
    {"model_fit", CONFIG_BOOL, AT(model_fit), "false",
     .help = "true: 'engine bench comm' measures links that are not emulated, for a few seconds "
             "before the runs, so that steps over them can be predicted"},
    {"under", CONFIG_NODE, AT(under), NULL,
     .help = "Words before 'engine run' of each run: srun -N 2, mpirun -np 2, nice"},
    {"hosts", CONFIG_NODE, AT(hosts), NULL,
     .help = "[a, b]: each run has a process on each host, started by ssh; the processes meet at the first host"},
    {"timeout", CONFIG_SECONDS, AT(timeout), "0",
     "Longest time of a run; a longer run is ended, and so is the experiment: 10min"},
    {"seed", CONFIG_INT, AT(seed), "0", "Seed of the order of runs and of intervals", .min = 0, .max = -1},
    {"fail_if", CONFIG_NODE, AT(fail_if), NULL,
     .help = "Gates: ['ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4']"},
    {.key = NULL},
};
static const struct config_section schema = {
    .name = "experiment", .fields = fields, .size = sizeof(struct experiment_raw), .help = "An experiment"};

/* ---- simple keys ---- */

/* "95%", 0.95 or "0.5pt" (of a share: 0.005). */
static double read_share(struct experiment_reader *r, const struct node *at, const char *text, const char *unit,
                         double low, double high) {
    char number[32];
    size_t n = text ? strlen(text) : 0, u = strlen(unit);
    bool has = n > u && !strcmp(text + n - u, unit);
    double value = -1;
    snprintf(number, sizeof number, "%.*s", (int)(has ? n - u : n), text ? text : "");
    if (n < sizeof number && text_real(number, &value) && has) value /= 100;
    if (value >= low && value <= high) return value;
    config_error(r->e, at, false, "'%s' is a share from %g%s to %g%s, not '%s'", at->key, low * 100, unit, high * 100,
                 unit, text ? text : "");
    return low;
}

static void read_warmup(struct experiment_reader *r, const struct node *root, struct config_span warmup) {
    r->x->warmup = (int64_t)warmup.value;
    if (warmup.unit == SPAN_EPOCHS)
        config_error(r->e, node_get(root, "warmup"), false, "'warmup' counts steps\nfor example warmup: 10st");
}

/* ---- how often ---- */

static void reader_add_seed(struct experiment_reader *r, const struct node *at, int64_t seed) {
    struct experiment *x = r->x;
    for (int i = 0; i < x->nseeds; i++)
        if (x->seeds[i] == seed) config_error(r->e, at, false, "seed %lld appears twice", (long long)seed);
    if (x->nseeds < STATISTICS_RUNS) x->seeds[x->nseeds++] = seed;
}

/* 8, or [3, 5, 7]. */
static void read_seeds(struct experiment_reader *r, const struct node *at) {
    int64_t n = 0;
    bool list = at->kind == NODE_LIST && at->count > 0 && at->count <= STATISTICS_RUNS, good = list;
    for (int i = 0; list && i < at->count; i++) {
        const struct node *item = at->items[i];
        good &= item->kind == NODE_SCALAR && text_int(item->text, &n) && n >= 0;
        if (good) reader_add_seed(r, item, n);
    }
    if (at->kind == NODE_SCALAR && text_int(at->text, &n) && n >= 1 && n <= STATISTICS_RUNS) {
        good = true;
        for (int64_t i = 0; i < n; i++) reader_add_seed(r, at, i);
    }
    if (!good)
        config_error(r->e, at, false, "'seeds' is a number from 1 to %d, or a list of that many different seeds",
                     STATISTICS_RUNS);
    for (int a = 0; r->x->asked[a]; a++)
        if (!strcmp(r->x->asked[a], "seed")) config_error(r->e, at, true, "sides have a seed already");
}

static void read_repeats(struct experiment_reader *r, const struct node *at, const struct experiment_source *s) {
    const struct node *seeds = at ? node_get(at, "seeds") : NULL, *most = at ? node_get(at, "most") : NULL;
    const struct node *number = most ? most : at;
    int64_t n = 0;
    bool plain = number && number->kind == NODE_SCALAR && strcmp(number->text, "auto") != 0;
    if (seeds && at->count == 1)
        read_seeds(r, seeds);
    else if ((at && at->kind != NODE_SCALAR && !(most && at->count == 1)) ||
             (plain && !(text_int(number->text, &n) && n >= 1 && n <= STATISTICS_RUNS)))
        config_error(r->e, at, false, "'repeats' is auto, a number from 1 to %d, {most: 20} or {seeds: 8}",
                     STATISTICS_RUNS);
    r->given_repeats = most ? 0 : (int)n, r->given_most = most ? (int)n : 0;
    if (s->repeats || s->quick) r->given_repeats = s->repeats ? s->repeats : 1;
    if (r->x->nseeds && (r->given_repeats > r->x->nseeds))
        config_error(r->e, at, false, "%d repeats, and %d seeds", r->given_repeats, r->x->nseeds);
    if (r->x->nseeds && !r->given_repeats) r->given_repeats = r->x->nseeds;
}

/* ---- what counts ---- */

static void read_practical(struct experiment_reader *r, const struct node *at) {
    struct experiment *x = r->x;
    bool map = at && at->kind == NODE_MAP;
    if (at && at->kind == NODE_SCALAR) x->practical = read_share(r, at, at->text, "%", 0, 1);
    if (!at || map) x->practical = 0.02;
    if (at && at->kind == NODE_LIST) config_error(r->e, at, false, "'practical' is 2%%, or a map of metrics");
    for (int m = 0; m < x->nmeasures; m++)
        if (x->measure[m].scale == SCALE_RATIO) x->measure[m].practical = x->practical;
    for (int i = 0; map && i < at->count; i++) {
        const struct node *item = at->items[i];
        int m = 0;
        while (m < x->nmeasures && strcmp(x->measure[m].name, item->key) != 0) m++;
        if (m == x->nmeasures) {
            config_error(r->e, item, true, "practical: '%s' is not one of the metrics", item->key);
            continue;
        }
        const char *unit = x->measure[m].scale == SCALE_DIFFERENCE ? "pt" : "%";
        x->measure[m].practical = read_share(r, item, item->kind == NODE_SCALAR ? item->text : NULL, unit, 0, 1);
    }
}

char *experiment_clean(char *name) {
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c)) *c = '-';
    return name;
}

static const char *reader_clean_name(struct pool *pool, const char *text, size_t n) {
    char *name = pool_strndup(pool, text, n < 60 ? n : 60);
    if (!name || !*name) return "experiment";
    if (*name == '.') *name = '-';
    return experiment_clean(name);
}

static const char *experiment_name_of(const struct experiment_source *s, const struct experiment_raw *raw,
                                      struct pool *pool) {
    if (raw->name) return reader_clean_name(pool, raw->name, strlen(raw->name));
    const char *file = s->path ? file_last_part(s->path) : "experiment";
    const char *dot = strrchr(file, '.');
    return reader_clean_name(pool, file, dot && dot > file ? (size_t)(dot - file) : strlen(file));
}

/* ---- base ---- */

static const char *reader_folder_of(const char *path, struct pool *pool) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash == path && slash ? "/" : slash ? pool_strndup(pool, path, (size_t)(slash - path)) : ".";
}

static enum error read_base_file(struct experiment_reader *r, const struct node *base, struct node **out) {
    const char *path = base->text;
    if (*path != '/') path = pool_printf(r->x->pool, "%s/%s", r->x->folder, path);
    if (!path) return ERR_MEMORY;
    enum error err = tree_read(path, r->x->pool, r->e, out);
    if (err != ERR_INPUT && err != ERR_DATA) return err;
    config_error(r->e, base, false, "base: %s\n%s", error_message(), error_hint());
    return ERR_CONFIG;
}

static enum error read_base(struct experiment_reader *r, const struct experiment_source *s,
                            const struct experiment_raw *raw) {
    struct node *base = pool_alloc(r->x->pool, sizeof *base);
    if (!base) return ERR_MEMORY;
    *base = (struct node){.kind = NODE_MAP, .source = "default"};
    if (raw->base && raw->base->kind == NODE_SCALAR && *raw->base->text)
        TRY(read_base_file(r, raw->base, &base));
    else if (raw->base && raw->base->kind == NODE_MAP)
        base = raw->base;
    else if (raw->base && raw->base->kind == NODE_LIST)
        config_error(r->e, raw->base, false, "'base' is a configuration, or the path of one");
    r->base = base;
    if (raw->under && !node_get(base, "under")) TRY(tree_put(base, "under", raw->under, r->x->pool, r->e));
    if (raw->hosts && !node_get(base, "hosts")) TRY(tree_put(base, "hosts", raw->hosts, r->x->pool, r->e));
    for (int i = 0; i < s->nsets; i++) TRY(tree_set(base, s->sets[i], r->x->pool, r->e));
    return ERR_NONE;
}

/* ---- metrics and gates ---- */

static enum error reader_measure_add(struct experiment_reader *r, const struct measure *m) {
    if (r->x->nmeasures < EXPERIMENT_MEASURES) r->x->measure[r->x->nmeasures++] = *m;
    return ERR_NONE;
}

/* {time_to: {val.accuracy: 0.95}} */
static enum error read_time_to(struct experiment_reader *r, const struct node *item) {
    const struct node *to = node_get(item, "time_to");
    const struct node *goal = to && to->kind == NODE_MAP && to->count == 1 ? to->items[0] : NULL;
    struct measure m = {.unit = "s", .about = ABOUT_BOTH, .kind = MEASURE_TIME_TO};
    if (goal && metric_find(goal->key)) m.of = goal->key;
    if (!m.of || goal->kind != NODE_SCALAR || !text_real(goal->text, &m.target)) {
        config_error(r->e, item, false,
                     "a metric is a name, or {time_to: {val.accuracy: 0.95}}\ntime_to takes "
                     "a metric of train.until and a number");
        return ERR_NONE;
    }
    if (!metric_can_be(metric_find(m.of), m.target))
        config_error(r->e, goal, false, "time_to: '%s' is at most 1\nwrite 0.97 for 97 %%", m.of);
    m.name = pool_printf(r->x->pool, "time_to:%s:%s", m.of, goal->text);
    return m.name ? reader_measure_add(r, &m) : ERR_MEMORY;
}

static enum error read_measure(struct experiment_reader *r, const struct node *item) {
    const char *names[64];
    int n;
    if (item->kind != NODE_SCALAR) return read_time_to(r, item);
    const struct measure *all = measure_list(&n), *m;
    for (int i = 0; i < n; i++) names[i] = all[i].name;
    m = measure_find(item->text, (int)strlen(item->text));
    if (m) return reader_measure_add(r, m);
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

static void reader_add_gate(struct experiment_reader *r, const struct node *at) {
    if (at->kind != NODE_SCALAR)
        config_error(r->e, at, false, "a gate is a text\nfor example 'ddp.step_time > dp.step_time'");
    else if (r->x->ngates == EXPERIMENT_GATES)
        config_error(r->e, at, false, "more than %d gates", EXPERIMENT_GATES);
    else
        r->x->gate[r->x->ngates++] = (struct experiment_gate){at->text, at};
}

static enum error read_gates(struct experiment_reader *r, const struct experiment_source *s, const struct node *given) {
    for (int i = 0; given && i < (given->kind == NODE_LIST ? given->count : 1); i++)
        reader_add_gate(r, given->kind == NODE_LIST ? given->items[i] : given);
    for (int i = 0; i < s->ngates; i++) {
        struct node *at = pool_alloc(r->x->pool, sizeof *at);
        if (!at) return ERR_MEMORY;
        *at = (struct node){.text = s->gates[i], .source = "--fail-if"};
        reader_add_gate(r, at);
    }
    return ERR_NONE;
}

/* ---- all ---- */

static enum error read_tree(const struct experiment_source *s, struct pool *pool, struct config_errors *e,
                            struct node **out) {
    if (s->path) return tree_read(s->path, pool, e, out);
    return tree_parse(s->text, strlen(s->text), s->search ? "--tune" : "--modes", pool, e, out);
}

static enum error read_all(struct experiment_reader *r, const struct experiment_source *s) {
    struct experiment *x = r->x;
    struct node *root;
    struct experiment_raw raw;
    enum error err = read_tree(s, x->pool, r->e, &root);
    if (err == ERR_CONFIG && root->count == 0) return err;
    TRY(config_go_on(err));
    TRY(config_go_on(config_read(&schema, root, x->pool, r->e, &raw)));
    x->name = experiment_name_of(s, &raw, x->pool);
    x->model_fit = raw.model_fit, x->timeout = raw.timeout;
    if (!(x->folder = reader_folder_of(s->path, x->pool))) return ERR_MEMORY;
    x->weak = raw.scaling == 1, x->seed = (uint64_t)raw.seed;
    x->all_pairs = raw.pairs == 1;
    r->quick = s->quick, r->search = s->search;
    r->repeats = raw.repeats, r->exclude = raw.exclude;
    read_warmup(r, root, raw.warmup);
    if (raw.confidence) x->confidence = read_share(r, node_get(root, "confidence"), raw.confidence, "%", 0.5, 0.999);
    TRY(config_go_on(read_base(r, s, &raw)));
    TRY(experiment_axes(r, root, raw.sides, raw.matrix));
    read_repeats(r, raw.repeats, s);
    if (raw.tune) TRY(experiment_tune(r, raw.tune));
    if (raw.tune && raw.metrics && !strcmp(raw.metrics->source, "default"))
        config_error(
            r->e, raw.tune, true,
            "'tune' chooses by the first of 'metrics', which has to be given\nfor example metrics: [val_loss]");
    if (!raw.tune && s->search && s->search->alone)
        config_error(r->e, root, false,
                     "there is no 'tune': nothing to try\ntune: {optimizer.lr: log 1e-4..1e-1, budget: 16 runs}");
    if (raw.metrics) TRY(read_measures(r, raw.metrics));
    read_practical(r, raw.practical);
    if (!s->search || !(s->search->tries || s->search->alone)) TRY(read_gates(r, s, raw.fail_if));
    if (config_errors_count(r->e)) return ERR_CONFIG;
    TRY(experiment_expand(r));
    for (int i = 0; i < x->ngates && !config_errors_count(r->e); i++) TRY(config_go_on(gate_check(x, i, r->e)));
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
