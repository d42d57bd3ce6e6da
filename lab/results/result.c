#include "lab/results/result.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SUMMARY_MOST = 1 << 20, METRICS_MOST = 1 << 30 };
static const struct json_limits summary_limits = {8, 16 * RANKS_MOST, 4096}, line_limits = {4, 64 + RANKS_MOST, 4096};

/* ---- members that must be of a kind --------------------------------------------------------- */

struct result_reader {
    const char *path;
    struct pool *pool;
    enum error err; /* the first */
};

/* The member of this kind; NULL and an error of the reader: there is none. */
static const struct json_value *reader_member(struct result_reader *r, const struct json_value *in, const char *key,
                                              enum json_kind kind) {
    const struct json_value *v = in ? json_get(in, key) : NULL;
    if (v && v->kind == kind) return v;
    if (r->err == ERR_NONE) r->err = FAIL(ERR_DATA, "'%s' has no such '%s' as a run writes", r->path, key);
    return NULL;
}

static int64_t reader_whole(struct result_reader *r, const struct json_value *in, const char *key, int64_t most) {
    const struct json_value *v = reader_member(r, in, key, JSON_NUMBER);
    if (v && v->is_integer && v->integer >= 0 && v->integer <= most) return v->integer;
    if (v && r->err == ERR_NONE) r->err = FAIL(ERR_DATA, "'%s': '%s' is %s", r->path, key, v->text);
    return 0;
}

/* null is NaN: what was not measured. */
static double reader_real(struct result_reader *r, const struct json_value *in, const char *key) {
    const struct json_value *v = in ? json_get(in, key) : NULL;
    if (v && v->kind == JSON_NULL) return (double)NAN;
    v = reader_member(r, in, key, JSON_NUMBER);
    return v ? v->number : 0;
}

static const char *reader_text(struct result_reader *r, const struct json_value *in, const char *key) {
    const struct json_value *v = reader_member(r, in, key, JSON_STRING);
    return v ? v->text : "";
}

static int reader_list(struct result_reader *r, const struct json_value *in, const char *key, const double **out) {
    const struct json_value *v = reader_member(r, in, key, JSON_ARRAY);
    double *list = v ? pool_alloc(r->pool, (size_t)v->count * sizeof *list) : NULL;
    if (v && !list) r->err = r->err ? r->err : ERR_MEMORY;
    if (!list) return 0;
    for (int i = 0; i < v->count; i++) {
        if (v->children[i].kind != JSON_NUMBER) {
            r->err = r->err ? r->err : FAIL(ERR_DATA, "'%s': '%s' contains values that are not numbers", r->path, key);
            return 0;
        }
        list[i] = v->children[i].number;
    }
    *out = list;
    return v->count;
}

/* ---- the files ------------------------------------------------------------------------------ */

static void result_read_times(struct result_reader *r, const struct json_value *root, struct run_result *out) {
    const struct json_value *times = reader_member(r, root, "time_s", JSON_OBJECT);
    const struct json_value *step = reader_member(r, root, "step_ms", JSON_OBJECT);
    for (int p = 0; p < PHASES; p++) out->time_s[p] = reader_real(r, times, phase_names[p].key);
    out->time_s[RESULT_COMM_HIDDEN] = reader_real(r, times, "comm_hidden");
    out->time_s[RESULT_TOTAL] = reader_real(r, times, "total");
    out->p50_ms = reader_real(r, step, "p50");
    out->p95_ms = reader_real(r, step, "p95");
    out->samples_per_s = reader_real(r, root, "samples_per_s");
}

static void result_read_bytes(struct result_reader *r, const struct json_value *root, struct run_result *out) {
    const struct json_value *bytes = reader_member(r, root, "bytes", JSON_OBJECT);
    out->ranks = reader_list(r, bytes, "sent", &out->sent);
    int received = reader_list(r, bytes, "received", &out->received);
    int state = reader_list(r, root, "optimizer_bytes", &out->state);
    const struct json_value *start = bytes ? json_get(bytes, "start") : NULL;
    if (start && reader_list(r, start, "sent", &out->start_sent) != out->ranks) received = -1;
    out->processes = reader_list(r, root, "peak_rss_bytes", &out->rss);
    const struct json_value *held = json_get(root, "held_bytes");
    for (int i = 0; i < HELD_PARTS && held; i++)
        if (reader_list(r, held, held_keys[i], &out->held[i]) != out->ranks) received = -1;
    if (r->err == ERR_NONE && (received != out->ranks || state != out->ranks))
        r->err = FAIL(ERR_DATA, "'%s': lists of %d, %d and %d ranks", r->path, out->ranks, received, state);
}

static bool result_has(const char *dir, const char *name, struct pool *pool, bool (*is)(const char *path)) {
    char *path = pool_printf(pool, "%s/%s", dir, name);
    return path && is(path);
}

static enum error result_missing(const char *dir, struct pool *pool) {
    if (result_has(dir, "results.json", pool, file_exists))
        return FAIL(ERR_INPUT,
                    "'%s' is the folder of an experiment, not of a run\nits runs are in "
                    "%s/cells/*/run-*; engine report %s shows its results",
                    dir, dir, dir);
    if (result_has(dir, "compare.lock", pool, file_exists))
        return FAIL(ERR_INPUT,
                    "'%s' is the folder of an experiment without results\nthe same engine compare command continues it",
                    dir);
    if (!result_has(dir, "resolved.yaml", pool, file_exists))
        return FAIL(ERR_INPUT, "'%s' is not the folder of a run: there is no summary.json, nor resolved.yaml", dir);
    if (result_has(dir, "run.lock", pool, file_is_locked))
        return FAIL(ERR_INPUT, "'%s' holds no finished run: it is still running", dir);
    return FAIL(ERR_INPUT, "'%s' holds no finished run: there is no summary.json\nengine run %s continues it", dir,
                dir);
}

static void result_read_val(const struct json_value *val, double of[VAL_METRICS]) {
    for (int i = 0; i < VAL_METRICS; i++) of[i] = json_number(val, metric_table[i].key);
}

static void result_read_losses(struct result_reader *r, const struct json_value *root, struct run_result *out) {
    out->train_loss = reader_real(r, reader_member(r, root, "train", JSON_OBJECT), "loss");
    const struct json_value *val = reader_member(r, root, "val", JSON_OBJECT);
    result_read_val(val, out->val_of);
    out->val_loss = reader_real(r, val, "loss");
    out->val_accuracy = reader_real(r, val, "accuracy");
    out->weights = reader_text(r, root, "weights_sha256");
    out->losses = reader_text(r, root, "losses_sha256");
}

enum error run_result_summary(const char *dir, struct pool *pool, struct run_result *out) {
    char *path = pool_printf(pool, "%s/summary.json", dir);
    const struct json_value *root;
    if (!path) return ERR_MEMORY;
    *out = (struct run_result){.dir = pool_printf(pool, "%s", dir), .event = ""};
    if (!out->dir) return ERR_MEMORY;
    if (!file_exists(path)) return result_missing(dir, pool);
    TRY(json_read(path, SUMMARY_MOST, summary_limits, pool, &root));
    struct result_reader r = {.path = path, .pool = pool};
    out->mode = reader_text(&r, root, "mode");
    out->devices = reader_whole(&r, root, "devices", 1 << 20);
    out->shards = reader_whole(&r, root, "shards", 1 << 20);
    out->steps = reader_whole(&r, root, "steps", INT64_MAX);
    out->epochs = reader_whole(&r, root, "epochs", INT64_MAX);
    const struct json_value *first = json_get(root, "first_step");
    if (first) out->first_step = reader_whole(&r, root, "first_step", out->steps);
    if (json_get(root, "devices_at_first")) out->began = reader_whole(&r, root, "devices_at_first", 1 << 20);
    out->run_id = json_text(root, "run_id");
    out->train_s = json_number(root, "train_s");
    out->patience = json_text(json_get(root, "patience"), "metric");
    (void)json_get_int(json_get(root, "patience"), "evaluations_since", INT64_MAX, &out->waits);
    out->tuned = json_member(root, "tuned", JSON_OBJECT);
    out->noise = json_member(root, "noise_scale", JSON_OBJECT);
    result_read_losses(&r, root, out);
    result_read_times(&r, root, out);
    result_read_bytes(&r, root, out);
    return r.err;
}

/* A job began after this step: the steps that an earlier one has made after it are made again. */
static void result_begin_stretch(struct run_result *out, int64_t step) {
    while (out->nsteps && out->step[out->nsteps - 1].step > step) out->nsteps--;
    while (out->nvals && out->val[out->nvals - 1].step > step) out->nvals--;
    out->stretch = out->nsteps;
}

static enum error result_read_event(struct result_reader *r, const struct json_value *root, const char *name,
                                    struct run_result *out) {
    bool started = !strcmp(name, "started");
    out->event_step = reader_whole(r, root, "step", INT64_MAX);
    if (started || !strcmp(name, "resumed")) result_begin_stretch(out, out->event_step);
    if (started) (void)json_get_int(root, "steps", INT64_MAX, &out->planned);
    out->event = pool_printf(r->pool, "%s", name);
    return out->event ? ERR_NONE : ERR_MEMORY;
}

/* One line; a step's has a loss and no event. The pool of the reader keeps what stays. */
static enum error read_line(struct result_reader *r, const char *line, size_t n, struct pool *scratch,
                            struct run_result *out) {
    const struct json_value *root;
    enum error err = json_parse(line, n, line_limits, scratch, &root);
    if (err != ERR_NONE) return error_prefix(err, "%s: ", r->path);
    const char *event = json_get_text(root, "event");
    if (event) TRY(result_read_event(r, root, event, out));
    const struct json_value *val = json_member(root, "val", JSON_OBJECT);
    if (val)
        out->val[out->nvals].step = reader_whole(r, root, "step", INT64_MAX),
        result_read_val(val, out->val[out->nvals++].of);
    if (!json_get(root, "ms")) return r->err;
    out->step[out->nsteps++] = (struct result_step){.step = reader_whole(r, root, "step", INT64_MAX),
                                                    .epoch = reader_whole(r, root, "epoch", INT64_MAX),
                                                    .loss = reader_real(r, root, "loss"),
                                                    .accuracy = reader_real(r, root, "accuracy"),
                                                    .lr = json_number(root, "lr"),
                                                    .ms = reader_real(r, root, "ms"),
                                                    .samples = reader_real(r, root, "samples")};
    return r->err;
}

/* Whether a line describes a step, by how it begins, without parsing it: {"step":7,"epoch":0,... */
static bool result_is_step(const char *line, size_t n) {
    enum { NAME = 8 };
    size_t at = NAME;
    if (n < NAME || memcmp(line, "{\"step\":", NAME) != 0) return false;
    while (at < n && line[at] >= '0' && line[at] <= '9') at++;
    return n - at > NAME && !memcmp(line + at, ",\"epoch\"", NAME);
}

struct lines { /* of metrics.jsonl */
    const char *at, *end;
};

/* The next whole line; NULL: the file ends, perhaps within one that is just being written. */
static const char *next_line(struct lines *l, size_t *n) {
    const char *line = l->at, *end = memchr(line, '\n', (size_t)(l->end - line));
    if (!end) return NULL;
    *n = (size_t)(end - line);
    l->at = end + 1;
    return line;
}

/* Reads the lines. If steps are not asked for, only the last one before each other line is kept, and the last of all. */
static enum error read_lines(struct result_reader *r, bool steps, struct lines l, struct run_result *out) {
    struct pool *scratch; /* lines are read one by one, and forgotten */
    const char *line, *last = NULL, *from = l.at;
    size_t n, nlast = 0;
    TRY(pool_create(&scratch));
    enum error err = ERR_NONE;
    while (err == ERR_NONE && ((line = next_line(&l, &n)) || last)) {
        bool put_off = line && !steps && result_is_step(line, n);
        if (last && !put_off) {
            out->nsteps = 0;
            err = read_line(r, last, nlast, scratch, out);
            last = NULL;
        }
        if (put_off)
            last = line, nlast = n;
        else if (line && err == ERR_NONE)
            err = read_line(r, line, n, scratch, out);
        if (!line || (line - from) >> 20 == (l.at - from) >> 20) continue;
        pool_free(scratch);
        if (pool_create(&scratch) != ERR_NONE) return ERR_MEMORY;
    }
    pool_free(scratch);
    return err;
}

enum error run_result_metrics(const char *dir, bool steps, struct pool *pool, struct run_result *out) {
    char *words, *path = pool_printf(pool, "%s/metrics.jsonl", dir);
    size_t n, length, bytes, lines = 2;
    TRY(file_read(path, METRICS_MOST, pool, &words, &n));
    const struct lines all = {words, words + n};
    struct lines l = all;
    for (const char *line; (line = next_line(&l, &length));) lines += steps || !result_is_step(line, length);
    TRY(memory_size(lines, sizeof *out->step, path, &bytes));
    out->step = pool_alloc(pool, bytes);
    TRY(memory_size(lines, sizeof *out->val, path, &bytes));
    out->val = pool_alloc(pool, bytes);
    if (!out->step || !out->val) return ERR_MEMORY;
    struct result_reader r = {.path = path, .pool = pool};
    return read_lines(&r, steps, all, out);
}

static void settings_flatten(const struct node *at, const char *name, struct pool *pool, struct result_setting *out,
                             int most, int *n) {
    for (int i = 0; i < at->count; i++) {
        const struct node *item = at->items[i];
        const char *key = at->kind == NODE_LIST ? pool_printf(pool, "%s[%d]", name, i)
                          : *name               ? pool_printf(pool, "%s.%s", name, item->key)
                                                : item->key;
        if (!key) return;
        if (item->kind != NODE_SCALAR)
            settings_flatten(item, key, pool, out, most, n);
        else if (*n < most)
            out[(*n)++] = (struct result_setting){key, item->text};
    }
}

int result_flatten(const struct node *root, struct pool *pool, struct result_setting *out, int most) {
    int n = 0;
    settings_flatten(root, "", pool, out, most, &n);
    return n;
}

enum error run_result_settings(const char *dir, struct pool *pool, struct run_result *out) {
    char *path = pool_printf(pool, "%s/resolved.yaml", dir);
    struct config_errors *e;
    struct node *root;
    out->setting = pool_alloc(pool, RESULT_SETTINGS * sizeof *out->setting);
    if (!out->setting) return ERR_MEMORY;
    TRY(config_errors_create(&e));
    enum error err = tree_read(path, pool, e, &root);
    if (err == ERR_CONFIG) err = FAIL(ERR_DATA, "'%s' is not what a run writes: %s", path, config_errors_text(e, pool));
    if (err == ERR_NONE) out->nsettings = result_flatten(root, pool, out->setting, RESULT_SETTINGS);
    config_errors_free(e);
    return err;
}

/* Runs of before there was this file are fine. */
enum error run_result_environment(const char *dir, struct pool *pool, struct result_environment *out) {
    char *path = pool_printf(pool, "%s/env.json", dir);
    const struct json_value *root;
    *out = (struct result_environment){"", "", "", "", "", "", 0, 0};
    if (!path) return ERR_MEMORY;
    if (!file_exists(path)) return ERR_NONE;
    TRY(json_read(path, SUMMARY_MOST, summary_limits, pool, &root));
    out->time = json_text(root, "time"), out->processor = json_text(root, "processor");
    out->governor = json_text(root, "governor"), out->kernel = json_text(root, "kernel");
    out->host = json_text(root, "host"), out->engine = json_text(root, "engine");
    (void)json_get_int(root, "cores", INT64_MAX, &out->cores);
    const struct json_value *list = json_member(root, "load", JSON_ARRAY);
    if (list && list->count && list->children[0].kind == JSON_NUMBER) out->load = list->children[0].number;
    return ERR_NONE;
}

enum error run_result_read(const char *dir, struct pool *pool, struct run_result *out) {
    if (!file_is_folder(dir)) return FAIL(ERR_INPUT, "no run directory '%s'", dir);
    TRY(run_result_summary(dir, pool, out));
    TRY(run_result_metrics(dir, true, pool, out));
    TRY(run_result_environment(dir, pool, &out->environment));
    return run_result_settings(dir, pool, out);
}

/* ---- what is asked of it -------------------------------------------------------------------- */

const char *result_setting_of(const struct result_setting *s, int n, const char *key) {
    for (int i = 0; i < n; i++)
        if (!strcmp(s[i].key, key)) return s[i].value;
    return NULL;
}

const char *run_result_setting(const struct run_result *r, const char *key) {
    const char *value = result_setting_of(r->setting, r->nsettings, key);
    return value ? value : "";
}

bool run_event_is_end(const char *event) {
    static const char *const ends[] = {"finished",       "part finished", "target reached",
                                       "no improvement", "time over",     "stopped"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(event, ends[i])) return true;
    return false;
}

bool run_result_ended(const struct run_result *r) {
    return run_event_is_end(r->event) && r->event_step == r->steps;
}

const char *run_result_training(const struct run_result *r) {
    return *r->weights ? r->weights : *r->losses ? r->losses : NULL;
}

static bool result_same_number(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

bool run_result_same_vals(const struct run_result *a, const struct run_result *b) {
    bool same = a->nvals == b->nvals;
    for (int64_t i = 0; same && i < a->nvals; i++)
        same = a->val[i].step == b->val[i].step && result_same_number(a->val[i].loss, b->val[i].loss) &&
               result_same_number(a->val[i].accuracy, b->val[i].accuracy);
    return same;
}

int64_t run_result_stretch(const struct run_result *r) {
    return r->steps - r->first_step;
}

int64_t run_result_warm(const struct run_result *r, int64_t warmup) {
    return warmup < r->nsteps - r->stretch ? r->stretch + warmup : r->nsteps;
}

/* The seconds of the steps up to this one. In a command's run the time of the first step may not be known. */
double run_result_seconds(const struct run_result *r, int64_t step) {
    double ms = 0;
    for (int64_t i = 0; i < r->nsteps && r->step[i].step <= step; i++)
        if (i > 0 || !isnan(r->step[i].ms)) ms += r->step[i].ms;
    return ms / 1000;
}

double run_result_quantile_ms(const struct run_result *r, int64_t warmup, double q, int64_t *n) {
    int64_t from = run_result_warm(r, warmup);
    *n = 0;
    double *ms = r->nsteps > from && r->nsteps < INT32_MAX ? malloc((size_t)(r->nsteps - from) * sizeof *ms) : NULL;
    if (!ms) return (double)NAN;
    for (int64_t i = from; i < r->nsteps; i++)
        if (!isnan(r->step[i].ms)) ms[(*n)++] = r->step[i].ms; /* a command may not tell of all */
    double value = *n ? quantile_of(ms, *n, q) : (double)NAN;
    free(ms);
    return value;
}

double run_result_step_ms(const struct run_result *r, int64_t warmup, int64_t *n) {
    return run_result_quantile_ms(r, warmup, 0.5, n);
}

/* The first of the accuracy and the loss that any validation has measured, after what was asked for. */
static const struct metric *result_metric_for(const struct run_result *r, const struct metric *asked) {
    const struct metric *order[] = {asked, &metric_table[VAL_AT_accuracy], &metric_table[VAL_AT_loss]};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < r->nvals && order[k] && metric_is_val(order[k]); i++)
            if (isfinite(r->val[i].of[order[k] - metric_table])) return order[k];
    return NULL;
}

const struct result_val *run_result_best(const struct run_result *r, const struct metric *asked,
                                         const struct metric **by) {
    const struct metric *m = *by = result_metric_for(r, asked);
    const struct result_val *best = NULL;
    struct best most = {(double)NAN, (double)NAN};
    for (int64_t i = 0; m && i < r->nvals; i++) {
        struct best now = {r->val[i].of[m - metric_table], r->val[i].loss};
        if (!isfinite(now.value) || !metric_beats(m, now, most)) continue;
        best = &r->val[i];
        most = now;
    }
    return best;
}
