#include "lab/results/runs.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/text.h"
#include "engine/save/run_record.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH = 16, RESULTS_MOST = 64 << 20 };
static const struct json_limits results_limits = {12, 1 << 20, 1 << 16};

/* What lies in a folder, by name. */
struct marks {
    bool record, summary, metrics, results, cells, lock;
    bool folders; /* others, which may have runs in them */
    bool brief;   /* what takes long may be left out */
    int closed;   /* why it cannot be looked into: errno; 0 */
};

static bool *mark_of(struct marks *m, const char *name) {
    struct {
        const char *name;
        bool *mark;
    } all[] = {{"run.json", &m->record},      {"summary.json", &m->summary}, {"metrics.jsonl", &m->metrics},
               {"results.json", &m->results}, {"cells", &m->cells},          {"compare.lock", &m->lock}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].mark;
    return NULL;
}

static bool is_run(const struct marks *m) {
    return m->record || m->summary || m->metrics;
}

static bool runs_is_experiment(const struct marks *m) {
    return m->results || (m->cells && m->lock);
}

/* ---- a run ---- */

static char *runs_text_kept(struct pool *pool, const char *text) {
    char *copy = pool_printf(pool, "%s", text);
    return copy ? text_defuse(copy, "") : NULL;
}

static bool runs_event_is(const char *event, const char *name) {
    return !strcmp(event, name);
}

/* The best of what was measured. */
static void runs_find_best(const struct run_result *r, struct listed *out) {
    const struct metric *by;
    const struct result_val *best = run_result_best(r, NULL, &by);
    out->best_is_loss = by != &metric_table[VAL_AT_accuracy];
    if (best) out->best = best->of[by - metric_table], out->best_step = best->step;
}

/* The newest numbers of metrics.jsonl. */
static void runs_take_newest(const struct run_result *r, struct listed *out) {
    const struct result_step *last = r->nsteps ? &r->step[r->nsteps - 1] : NULL;
    const struct result_val *val = r->nvals ? &r->val[r->nvals - 1] : NULL;
    out->steps = last ? last->step : r->event_step;
    if (last) out->loss = last->loss;
    if (val) memcpy(out->val_of, val->of, sizeof out->val_of);
}

static void runs_take_summary(const struct run_result *r, struct listed *out) {
    out->steps = r->steps;
    out->devices = r->devices;
    out->loss = r->train_loss;
    memcpy(out->val_of, r->val_of, sizeof out->val_of);
    out->seconds = r->time_s[RESULT_TOTAL];
    out->samples_per_s = r->samples_per_s;
}

/* How many devices a text of the configuration means, where it says that by itself: "cpu:4". */
static int64_t runs_devices_of(const char *text) {
    int64_t n;
    return !strncmp(text, "cpu:", 4) && text_int(text + 4, &n) && n > 0 ? n : -1;
}

/* Reads the settings of a run without a summary. A start that is not yet that far has nothing to read. */
static enum error runs_take_settings(const char *dir, struct pool *scratch, struct pool *pool, struct listed *out) {
    struct run_result r = {0};
    char *path = pool_printf(scratch, "%s/resolved.yaml", dir);
    if (!path) return ERR_MEMORY;
    if (!file_exists(path)) return ERR_NONE;
    TRY(run_result_settings(dir, scratch, &r));
    out->mode = runs_text_kept(pool, run_result_setting(&r, "mode"));
    out->devices = runs_devices_of(run_result_setting(&r, "devices"));
    return out->mode ? ERR_NONE : ERR_MEMORY;
}

/* The state of one that nobody holds. ours: summary.json is of this run, and of its end. */
static void run_judge(const struct run_record *record, const struct run_result *r, bool ours, struct pool *pool,
                      struct listed *out) {
    if (record->code) {
        out->state = RUN_FAILED;
        out->reason = *record->error ? runs_text_kept(pool, record->error)
                                     : pool_printf(pool, "exit code %lld", (long long)record->code);
    } else if (ours) {
        out->state = runs_event_is(r->event, "stopped") ? RUN_STOPPED : RUN_FINISHED;
    } else {
        out->state = RUN_UNFINISHED;
        out->reason = run_event_is_end(r->event)
                          ? "metrics.jsonl has its end, but summary.json is missing or of another run"
                          : "no end is recorded, and no process of this host works on it";
    }
    if (!out->reason) out->reason = "";
}

/* Reads a run's row; of a run that continues, numbers are left out where only its state is asked for. */
static enum error read_run(const char *dir, const struct marks *m, struct pool *scratch, struct pool *pool,
                           struct listed *out) {
    struct run_result r = {.event = "", .run_id = ""};
    struct run_record record = run_record_read(dir, scratch);
    char *lock = pool_printf(scratch, "%s/run.lock", dir);
    if (!lock) return ERR_MEMORY;
    bool held = file_is_locked(lock);
    if (m->summary) TRY(run_result_summary(dir, scratch, &r));
    if (m->summary && !m->metrics && !held) return FAIL(ERR_DATA, "there is no metrics.jsonl beside summary.json");
    if (m->metrics && !(held && m->brief)) TRY(run_result_metrics(dir, false, scratch, &r));
    TRY(run_result_environment(dir, scratch, &r.environment));
    bool same_run = m->summary && (!*record.run_id || !*r.run_id || !strcmp(record.run_id, r.run_id));
    bool ours = same_run && run_result_ended(&r);
    if (held) ours = false;
    runs_take_newest(&r, out);
    runs_find_best(&r, out);
    if (ours) runs_take_summary(&r, out);
    if (same_run && *r.mode) out->mode = runs_text_kept(pool, r.mode);
    if (!ours) TRY(runs_take_settings(dir, scratch, pool, out));
    out->planned = r.planned ? r.planned : -1;
    out->when = runs_text_kept(pool, r.environment.time);
    out->run_id = runs_text_kept(pool, *record.run_id ? record.run_id : r.run_id);
    if (ours) out->weights = runs_text_kept(pool, r.weights);
    if (!out->mode || !out->when || !out->run_id || !out->weights) return ERR_MEMORY;
    if (held)
        out->state = RUN_RUNNING;
    else
        run_judge(&record, &r, ours, pool, out);
    return ERR_NONE;
}

/* ---- an experiment ---- */

/* Runs that are done have a note in their folder; of which cells, only results.json knows. */
static int64_t runs_count_notes(const char *dir, struct pool *scratch) {
    int64_t n = 0;
    char *path = pool_printf(scratch, "%s/cells", dir);
    DIR *cells = path ? opendir(path) : NULL;
    for (struct dirent *cell; cells && (cell = readdir(cells));) {
        char *inside = *cell->d_name == '.' ? NULL : pool_printf(scratch, "%s/%s", path, cell->d_name);
        DIR *runs = inside ? opendir(inside) : NULL;
        for (struct dirent *run; runs && (run = readdir(runs));) {
            char *note = pool_printf(scratch, "%s/%s/compare.json", inside, run->d_name);
            n += !strncmp(run->d_name, "run-", 4) && note && file_exists(note);
        }
        if (runs) closedir(runs);
    }
    if (cells) closedir(cells);
    return n;
}

static enum error read_results(const char *dir, struct pool *scratch, struct pool *pool, struct listed *out) {
    char *path = pool_printf(scratch, "%s/results.json", dir);
    const struct json_value *root;
    int64_t repeats;
    TRY(json_read(path, RESULTS_MOST, results_limits, scratch, &root));
    const struct json_value *complete = json_member(root, "complete", JSON_BOOL);
    const struct json_value *cells = json_member(root, "cells", JSON_ARRAY);
    if (!cells || !complete) return FAIL(ERR_DATA, "'%s' is not what engine compare writes", path);
    out->state = complete->truth ? RUN_FINISHED : RUN_UNFINISHED;
    out->verdict = runs_text_kept(pool, json_text(root, "verdict"));
    out->done = 0;
    if (json_get_int(root, "repeats", 1 << 20, &repeats)) out->wanted = cells->count * repeats;
    for (int i = 0; i < cells->count; i++) {
        const struct json_value *runs = json_member(&cells->children[i], "runs", JSON_ARRAY);
        out->done += runs ? runs->count : 0;
    }
    return out->verdict ? ERR_NONE : ERR_MEMORY;
}

static enum error runs_read_experiment(const char *dir, const struct marks *m, struct pool *scratch, struct pool *pool,
                                       struct listed *out) {
    char *lock = pool_printf(scratch, "%s/compare.lock", dir);
    if (!lock) return ERR_MEMORY;
    out->experiment = true;
    out->state = file_is_locked(lock) ? RUN_RUNNING : RUN_UNFINISHED;
    if (m->results && out->state != RUN_RUNNING)
        TRY(read_results(dir, scratch, pool, out));
    else
        out->done = runs_count_notes(dir, scratch);
    if (out->state == RUN_UNFINISHED) out->reason = "the same engine compare command continues it";
    return ERR_NONE;
}

/* The text without the folder, which the row names already. */
static char *runs_text_without(const char *text, const char *dir, struct pool *pool) {
    const char *at = strstr(text, dir);
    size_t n = strlen(dir);
    if (!at || at[n] != '/') return pool_printf(pool, "%s", text);
    return pool_printf(pool, "%.*s%s", (int)(at - text), text, at + n + 1);
}

/* Reads what people wrote about it. A damaged file is told in the place of the note. */
static enum error runs_take_remark(const char *dir, struct pool *scratch, struct pool *pool, struct listed *out) {
    enum error err = remark_read(dir, out->run_id, scratch, &out->remark);
    if (err == ERR_MEMORY) return err;
    const char *note = err == ERR_NONE ? out->remark.note : runs_text_without(error_message(), dir, scratch);
    out->remark.note = note ? runs_text_kept(pool, note) : NULL;
    out->remark.tags = runs_text_kept(pool, out->remark.tags);
    return out->remark.note && out->remark.tags ? ERR_NONE : ERR_MEMORY;
}

/* ---- folders ---- */

struct runs_search {
    const struct listing *before; /* NULL: there is none */
    struct listing *out;
    struct pool *pool;
    size_t room;
    bool cells;
};

static void run_identify(const char *name, char id[LISTED_ID]) {
    struct sha256 s;
    char hex[SHA256_TEXT];
    sha256_init(&s);
    sha256_update(&s, name, strlen(name));
    sha256_hex(s, hex);
    memcpy(id, hex, LISTED_ID - 1);
    id[LISTED_ID - 1] = '\0';
}

static enum error runs_look_into(const char *dir, const char *name, const struct marks *m, struct pool *pool,
                                 struct listed *out) {
    const double none = (double)NAN;
    struct pool *scratch;
    *out = (struct listed){.reason = "",
                           .when = "",
                           .run_id = "",
                           .mode = "",
                           .weights = "",
                           .verdict = "",
                           .remark = {.note = "", .tags = ""},
                           .devices = -1,
                           .steps = -1,
                           .planned = -1,
                           .best_step = -1,
                           .done = -1,
                           .wanted = -1,
                           .loss = none,
                           .seconds = none,
                           .samples_per_s = none,
                           .best = none};
    for (int i = 0; i < VAL_METRICS; i++) out->val_of[i] = none;
    out->name = runs_text_kept(pool, name);
    out->dir = pool_printf(pool, "%s", dir);
    run_identify(name, out->id);
    if (!out->name || !out->dir) return ERR_MEMORY;
    TRY(pool_create(&scratch));
    enum error err = m->closed ? FAIL(ERR_IO, "cannot open the folder: %s", strerror(m->closed))
                               : (runs_is_experiment(m) ? runs_read_experiment : read_run)(dir, m, scratch, pool, out);
    if (err != ERR_NONE && err != ERR_MEMORY) {
        out->state = RUN_UNREADABLE;
        out->reason = runs_text_without(error_message(), dir, pool);
        err = out->reason ? ERR_NONE : ERR_MEMORY;
    }
    if (err == ERR_NONE) err = runs_take_remark(dir, scratch, pool, out);
    pool_free(scratch);
    return err;
}

/* Room for one more row; NULL: no memory. */
static struct listed *search_room(struct runs_search *s) {
    if ((size_t)s->out->count == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        struct listed *more = pool_alloc(s->pool, s->room * sizeof *more);
        if (!more) return NULL;
        if (s->out->count) memcpy(more, s->out->of, (size_t)s->out->count * sizeof *more);
        s->out->of = more;
    }
    return &s->out->of[s->out->count++];
}

static enum error search_add(struct runs_search *s, const char *dir, const char *name, const struct marks *m,
                             uint64_t stamp) {
    struct listed *r = search_room(s);
    if (!r) return ERR_MEMORY;
    TRY(runs_look_into(dir, name, m, s->pool, r));
    bool rests = !r->experiment && !m->folders && r->state != RUN_RUNNING && r->state != RUN_UNREADABLE;
    r->stamp = rests ? stamp : 0;
    return ERR_NONE;
}

static bool runs_is_folder(const char *path, const struct dirent *e) {
    struct stat st;
    if (e->d_type != DT_UNKNOWN) return e->d_type == DT_DIR;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Folders that a run fills have no runs in them, and those of an experiment's cells are for those who ask. The name of a
 * cell may begin with a dot. */
static bool runs_is_of_interest(const char *name, const char *parent, bool cells) {
    static const char *const not [] = {"ckpt", "flight", "tb", "trace", ".", ".."};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (!strcmp(not [i], name)) return false;
    return (*name != '.' || text_ends(parent, "/cells")) && (cells || strcmp(name, "cells") != 0);
}

static enum error search_folder(struct runs_search *s, const char *dir, const char *name, int depth) {
    struct marks marks = {0};
    struct names {
        struct names *next;
        const char *name;
    } *folders = NULL;
    enum error err = ERR_NONE;
    uint64_t stamp = s->before ? listed_stamp(dir) : 0;
    const struct listed *was = stamp ? listing_find(s->before, name) : NULL;
    if (was && was->stamp == stamp && !strcmp(was->dir, dir)) {
        struct listed *r = search_room(s);
        return r ? listed_copy(was, s->pool, r) : ERR_MEMORY;
    }
    DIR *d = opendir(dir);
    if (!d) marks.closed = errno;
    for (struct dirent *e; d && err == ERR_NONE && (e = readdir(d));) {
        bool *mark = mark_of(&marks, e->d_name);
        if (mark) *mark = true;
        if (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN) continue;
        if (!runs_is_of_interest(e->d_name, dir, s->cells)) continue;
        char *path = pool_printf(s->pool, "%s/%s", dir, e->d_name);
        struct names *one = path && runs_is_folder(path, e) ? pool_alloc(s->pool, sizeof *one) : NULL;
        if (!path) err = ERR_MEMORY;
        if (one) *one = (struct names){folders, path}, folders = one;
    }
    if (d) closedir(d);
    marks.folders = folders != NULL;
    if (err == ERR_NONE && (marks.closed || is_run(&marks) || runs_is_experiment(&marks)))
        err = search_add(s, dir, name, &marks, stamp);
    size_t skip = strlen(dir) + 1;
    for (struct names *f = folders; f && err == ERR_NONE && depth < DEPTH; f = f->next) {
        const char *last = f->name + skip;
        char *inner =
            runs_event_is(name, ".") ? pool_printf(s->pool, "%s", last) : pool_printf(s->pool, "%s/%s", name, last);
        err = inner ? search_folder(s, f->name, inner, depth + 1) : ERR_MEMORY;
    }
    return err;
}

static int runs_by_name(const void *a, const void *b) {
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

static enum error search_start(struct runs_search s, const char *folder) {
    *s.out = (struct listing){0};
    if (!file_is_folder(folder))
        return FAIL(ERR_INPUT, file_exists(folder) ? "'%s' is a file, not a folder of runs" : "no folder '%s'", folder);
    TRY(search_folder(&s, folder, ".", 0));
    if (s.out->count) qsort(s.out->of, (size_t)s.out->count, sizeof *s.out->of, runs_by_name);
    return ERR_NONE;
}

enum error runs_list(const char *folder, bool cells, struct pool *pool, struct listing *out) {
    return search_start((struct runs_search){.out = out, .pool = pool, .cells = cells}, folder);
}

enum error runs_list_again(const char *folder, const struct listing *before, struct pool *pool, struct listing *out) {
    TRY(search_start((struct runs_search){.before = before, .out = out, .pool = pool, .cells = true}, folder));
    listing_version(before, out);
    return ERR_NONE;
}

static struct marks marks_of(const char *dir) {
    struct marks m = {0};
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        bool *mark = mark_of(&m, e->d_name);
        if (mark) *mark = true;
    }
    if (d) closedir(d);
    return m;
}

bool runs_is_any(const char *dir) {
    const struct marks m = marks_of(dir);
    return is_run(&m) || runs_is_experiment(&m);
}

bool runs_is_one(const char *dir) {
    const struct marks m = marks_of(dir);
    return is_run(&m) && !runs_is_experiment(&m);
}

enum error runs_one(const char *dir, struct pool *pool, struct listed *out) {
    struct marks m = marks_of(dir);
    m.brief = true;
    return runs_look_into(dir, ".", &m, pool, out);
}
