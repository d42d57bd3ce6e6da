#include "lab/results/foreign.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/quantile.h"
#include "engine/base/text.h"
#include "engine/tell/environment.h"
#include "engine/tell/phases.h"
#include "engine/tell/score.h"
#include "lab/results/foreign_told.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FOLDERS_DEEP = 6, FILES_MOST = 64 };

/* ---- where it has told ---- */

struct files {
    struct pool *pool;
    int n;
    const char *path[FILES_MOST];
};

static int by_name(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* All below a folder whose names have 'part' in them or end in it. Links are not followed. */
static void list_files(const char *folder, const char *part, int depth, struct files *f) {
    DIR *d = depth ? opendir(folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        char *path = *e->d_name == '.' ? NULL : pool_printf(f->pool, "%s/%s", folder, e->d_name);
        if (!path || lstat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) list_files(path, part, depth - 1, f);
        bool fits = *part == '.' ? text_ends(e->d_name, part) : strstr(e->d_name, part) != NULL;
        if (S_ISREG(st.st_mode) && fits && f->n < FILES_MOST) f->path[f->n++] = path;
    }
    if (d) closedir(d);
}

static enum error read_files(const struct foreign *f, const char *part, enum error (*read)(const char *, struct told *),
                             struct pool *pool, struct told *t) {
    struct files files = {.pool = pool};
    list_files(f->dir, part, FOLDERS_DEEP, &files);
    qsort(files.path, (size_t)files.n, sizeof *files.path, by_name);
    for (int i = 0; i < files.n; i++) TRY(read(files.path[i], t));
    return ERR_NONE;
}

static bool has_steps(const struct told *t) {
    for (size_t i = 0; i < t->n; i++)
        if (told_is_step(&t->row[i])) return true;
    return false;
}

static enum error read_told(const struct foreign *f, struct pool *pool, struct told *t) {
    struct stat st;
    bool written = stat(f->metrics, &st) == 0 && st.st_size > 0, events = false;
    TRY(told_lines(written ? f->metrics : f->out, written, t));
    if (!has_steps(t)) TRY(read_files(f, ".csv", told_csv, pool, t));
    if (!has_steps(t)) {
        TRY(read_files(f, "tfevents", told_events, pool, t));
        events = true;
    }
    TRY(told_settle(t, events));
    if (has_steps(t)) return ERR_NONE;
    const char *torn = t->not_json ? pool_printf(pool, "; line %lld of its output begins with '{' but is not JSON",
                                                 (long long)t->not_json)
                                   : "";
    return FAIL(ERR_DATA,
                "the command ended with code 0, but reported no step%s\nprint lines such as {\"step\": 1, \"loss\": "
                "2.3, \"ms\": "
                "12.1}, or write them to the file $ENGINE_METRICS; see engine help compare",
                torn ? torn : "");
}

/* ---- times that were not told ---- */

struct run {
    const struct foreign *f;
    struct told *t;
    int64_t steps, told;               /* the last one; how many were told */
    double total;                      /* seconds; NaN: not known */
    const struct told_row *last, *val; /* the last with a loss, and with a validation; NULL */
    char losses[SHA256_TEXT];
};

/* From moments to durations; of steps between two lines each takes its share. */
static double times_of_moments(struct told *t) {
    const struct told_row *before = NULL;
    double first = (double)NAN, total = (double)NAN;
    for (size_t i = 0; i < t->n; i++) {
        struct told_row *r = &t->row[i];
        if (!told_is_step(r) || isnan(r->of[TOLD_TIME])) continue;
        if (!before) first = r->of[TOLD_TIME];
        total = r->of[TOLD_TIME] - first;
        double seconds = before ? r->of[TOLD_TIME] - before->of[TOLD_TIME] : -1;
        if (seconds >= 0) r->of[TOLD_MS] = seconds * 1e3 / (double)(r->step - before->step);
        before = r;
    }
    return total;
}

static void sum_up(struct run *run) {
    struct told *t = run->t;
    struct sha256 losses;
    double sum = 0;
    bool any = false;
    for (size_t i = 0; i < t->n && !any; i++) any = !isnan(t->row[i].of[TOLD_MS]);
    run->total = any ? (double)NAN : times_of_moments(t);
    sha256_init(&losses);
    for (size_t i = 0; i < t->n; i++) {
        const struct told_row *r = &t->row[i];
        float loss = (float)r->of[TOLD_LOSS];
        if (told_is_val(r)) run->val = r;
        if (!told_is_step(r)) continue;
        if (!isnan(r->of[TOLD_LOSS])) run->last = r;
        run->steps = r->step, run->told++;
        sum += r->of[TOLD_MS];
        sha256_update(&losses, &loss, sizeof loss);
    }
    if (any && run->told == run->steps) run->total = sum / 1e3;
    if (run->last) sha256_hex(losses, run->losses); /* reporting no losses is not having equal ones */
}

/* ---- metrics.jsonl ---- */

static const int phase_fields[PHASES] = {[PHASE_LOAD] = TOLD_LOAD,
                                         [PHASE_FORWARD] = TOLD_FORWARD,
                                         [PHASE_BACKWARD] = TOLD_BACKWARD,
                                         [PHASE_COMM] = TOLD_COMM,
                                         [PHASE_UPDATE] = TOLD_UPDATE};

static void put_step(const struct told_row *r, struct json *j) {
    json_open(j, NULL, '{');
    json_int(j, "step", r->step);
    json_int(j, "epoch", r->of[TOLD_EPOCH] > 0 ? (int64_t)fmin(r->of[TOLD_EPOCH], 1e9) : 0);
    json_real(j, "loss", r->of[TOLD_LOSS]);
    json_real(j, "accuracy", r->of[TOLD_ACCURACY]);
    json_real(j, "lr", r->of[TOLD_LR]);
    json_real(j, "grad_norm", r->of[TOLD_GRAD_NORM]);
    json_real(j, "samples", r->of[TOLD_SAMPLES]);
    json_real(j, "ms", r->of[TOLD_MS]);
    json_open(j, "phase_ms", '{');
    for (int p = 0; p < PHASES; p++) json_real(j, phase_names[p].metric, r->of[phase_fields[p]]);
    json_close(j, '}');
    json_close(j, '}');
}

static void put_val(const struct told_row *r, const char *key, struct json *j) {
    const double none = (double)NAN;
    json_open(j, key, '{');
    _Static_assert(TOLD_VAL_SAMPLES - TOLD_VAL_LOSS == VAL_METRICS, "they are in the order of the metrics");
    for (int i = 0; i < VAL_METRICS; i++) json_real(j, metric_table[i].key, r ? r->of[TOLD_VAL_LOSS + i] : none);
    json_int(j, "samples", r && r->of[TOLD_VAL_SAMPLES] > 0 ? (int64_t)fmin(r->of[TOLD_VAL_SAMPLES], 1e15) : 0);
    json_close(j, '}');
}

static void put_event(const char *name, int64_t step, struct json *j) {
    json_open(j, NULL, '{');
    json_int(j, "step", step);
    json_string(j, "event", name);
    json_close(j, '}');
}

static void end_line(FILE *file, struct json *j) {
    fprintf(file, "%s\n", j->text);
    j->length = 0, j->comma = false;
}

static enum error write_metrics(const struct run *run, struct pool *pool) {
    char *path = pool_printf(pool, "%s/metrics.jsonl", run->f->dir);
    FILE *file = path ? fopen(path, "we") : NULL;
    struct json j;
    if (!file) return path ? FAIL(ERR_CREATE, "cannot create '%s'", path) : ERR_MEMORY;
    json_init(&j);
    put_event("started", 0, &j);
    end_line(file, &j);
    for (size_t i = 0; i < run->t->n; i++) {
        const struct told_row *r = &run->t->row[i];
        if (told_is_step(r)) {
            put_step(r, &j);
            end_line(file, &j);
        }
        if (!told_is_val(r)) continue;
        json_open(&j, NULL, '{');
        json_int(&j, "step", r->step);
        put_val(r, "val", &j);
        json_close(&j, '}');
        end_line(file, &j);
    }
    put_event("finished", run->steps, &j);
    end_line(file, &j);
    enum error err = json_done(&j);
    if ((ferror(file) | fclose(file)) != 0 && err == ERR_NONE) err = FAIL(ERR_IO, "cannot write '%s'", path);
    json_fini(&j);
    return err;
}

/* ---- summary.json ---- */

static double mean_of(const struct run *run, int field) {
    double sum = 0;
    int64_t n = 0;
    for (size_t i = 0; i < run->t->n; i++)
        if (!isnan(run->t->row[i].of[field])) sum += run->t->row[i].of[field], n++;
    return n ? sum / (double)n : (double)NAN;
}

static enum error put_times(const struct run *run, struct json *j) {
    int64_t n = 0;
    double samples = 0, seconds = 0, *ms = malloc(run->t->n * sizeof *ms);
    if (!ms) return FAIL(ERR_MEMORY, "no memory for the times of %zu steps", run->t->n);
    for (size_t i = 0; i < run->t->n; i++) {
        const double *of = run->t->row[i].of;
        if (isnan(of[TOLD_MS])) continue;
        ms[n++] = of[TOLD_MS];
        samples += of[TOLD_SAMPLES], seconds += of[TOLD_MS] / 1e3;
    }
    json_open(j, "step_ms", '{');
    json_real(j, "p50", n ? quantile_of(ms, n, 0.5) : (double)NAN);
    json_real(j, "p95", n ? quantile_of(ms, n, 0.95) : (double)NAN);
    json_close(j, '}');
    free(ms);
    json_real(j, "samples_per_s", samples / seconds);
    json_open(j, "time_s", '{');
    for (int p = 0; p < PHASES; p++)
        json_real(j, phase_names[p].key, mean_of(run, phase_fields[p]) * (double)run->steps / 1e3);
    json_real(j, "comm_hidden", (double)NAN);
    json_real(j, "total", run->total);
    json_close(j, '}');
    return ERR_NONE;
}

/* A list of the one number, or of none. */
static void put_list(struct json *j, const char *key, double v) {
    json_open(j, key, '[');
    if (!isnan(v)) json_int(j, NULL, (int64_t)fmin(v, 9e18));
    json_close(j, ']');
}

static void put_bytes(const struct run *run, struct json *j) {
    double sent = run->t->bytes, none = isnan(sent) ? (double)NAN : 0;
    json_open(j, "bytes", '{');
    put_list(j, "sent", sent);
    put_list(j, "received", none);
    json_open(j, "start", '{');
    put_list(j, "sent", none);
    put_list(j, "received", none);
    json_close(j, '}');
    json_close(j, '}');
    put_list(j, "optimizer_bytes", none);
}

static enum error put_summary(const struct run *run, struct json *j) {
    const double none = (double)NAN;
    double epochs = run->last ? run->last->of[TOLD_EPOCH] : 0;
    json_open(j, NULL, '{');
    json_string(j, "mode", FOREIGN_MODE);
    json_int(j, "devices", run->f->devices);
    json_int(j, "shards", run->f->devices);
    json_int(j, "steps", run->steps);
    json_int(j, "epochs", epochs > 0 ? (int64_t)fmin(epochs, 1e9) : 0);
    json_int(j, "first_step", 0);
    json_open(j, "train", '{');
    json_real(j, "loss", run->last ? run->last->of[TOLD_LOSS] : none);
    json_close(j, '}');
    put_val(run->val, "val", j);
    TRY(put_times(run, j));
    put_bytes(run, j);
    put_list(j, "peak_rss_bytes", run->f->memory);
    json_string(j, "weights_sha256", run->t->weights);
    json_string(j, "losses_sha256", run->losses);
    json_string(j, "run_dir", run->f->dir);
    json_close(j, '}');
    return json_done(j);
}

/* ---- all ---- */

static enum error write_summary(const struct run *run, struct pool *pool) {
    char *path = pool_printf(pool, "%s/summary.json", run->f->dir);
    struct json j;
    if (!path) return ERR_MEMORY;
    json_init(&j);
    enum error err = put_summary(run, &j);
    if (err == ERR_NONE) err = file_replace(path, j.text, j.length);
    json_fini(&j);
    return err;
}

static enum error write_run(const struct run *run, struct pool *pool) {
    char *settings = tree_write(run->f->settings, false, pool);
    char *path = pool_printf(pool, "%s/resolved.yaml", run->f->dir);
    if (!settings || !path) return ERR_MEMORY;
    TRY(file_replace(path, settings, strlen(settings)));
    TRY(write_metrics(run, pool));
    return write_summary(run, pool);
}

enum error foreign_begin(const char *dir, struct pool *pool) {
    char *path = pool_printf(pool, "%s/env.json", dir);
    struct json j;
    if (!path) return ERR_MEMORY;
    TRY(file_make_folders(dir));
    json_init(&j);
    environment_json(&j, NULL);
    enum error err = json_done(&j);
    if (err == ERR_NONE) err = file_replace(path, j.text, j.length);
    json_fini(&j);
    return err;
}

enum error foreign_finish(const struct foreign *f, struct pool *pool) {
    struct told t;
    told_init(&t);
    enum error err = read_told(f, pool, &t);
    struct run run = {.f = f, .t = &t};
    if (err == ERR_NONE) sum_up(&run);
    if (err == ERR_NONE && run.told <= f->warmup)
        err =
            FAIL(ERR_DATA, "the command reported %lld steps, all of them warm-up\nlet it train longer, or set 'warmup'",
                 (long long)run.told);
    if (err == ERR_NONE) err = write_run(&run, pool);
    told_fini(&t);
    return err;
}
