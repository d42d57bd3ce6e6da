#include "lab/results/foreign.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/quantile.h"
#include "engine/base/text.h"
#include "engine/tell/environment.h"
#include "engine/tell/tell.h"
#include "lab/results/foreign_told.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDERS_DEEP = 6, FILES_MOST = 64 };

/* ---- the files of a command ---- */

struct told_files {
    struct pool *pool;
    int n;
    const char *path[FILES_MOST];
};

static int foreign_by_name(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* Lists the CSV files below a folder. Links are not followed. */
static void list_files(const char *folder, int depth, struct told_files *f) {
    DIR *d = depth ? opendir(folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        char *path = *e->d_name == '.' ? NULL : pool_printf(f->pool, "%s/%s", folder, e->d_name);
        if (!path || lstat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) list_files(path, depth - 1, f);
        if (S_ISREG(st.st_mode) && text_ends(path, ".csv") && f->n < FILES_MOST) f->path[f->n++] = path;
    }
    if (d) closedir(d);
}

static enum error read_files(const struct foreign *f, struct pool *pool, struct told *t) {
    struct told_files files = {.pool = pool};
    list_files(f->dir, FOLDERS_DEEP, &files);
    qsort(files.path, (size_t)files.n, sizeof *files.path, foreign_by_name);
    for (int i = 0; i < files.n; i++) TRY(told_csv(files.path[i], t));
    return ERR_NONE;
}

static bool foreign_has_steps(const struct told *t) {
    for (size_t i = 0; i < t->n; i++)
        if (told_is_step(&t->row[i])) return true;
    return false;
}

static enum error read_told(const struct foreign *f, struct pool *pool, struct told *t) {
    struct stat st;
    bool written = stat(f->metrics, &st) == 0 && st.st_size > 0;
    TRY(told_lines(written ? f->metrics : f->out, written, t));
    if (!foreign_has_steps(t)) TRY(read_files(f, pool, t));
    TRY(told_settle(t));
    if (foreign_has_steps(t)) return ERR_NONE;
    const char *torn = t->not_json ? pool_say(pool, "; line %lld of its output begins with '{' but is not JSON",
                                              (long long)t->not_json)
                                   : "";
    return FAIL(ERR_DATA,
                "the command ended with code 0, but reported no step%s\nprint lines such as {\"step\": 1, \"loss\": "
                "2.3, \"ms\": 12.1}, or write them to the file $ENGINE_METRICS; see engine help compare",
                torn);
}

/* ---- times that were not reported ---- */

struct told_run {
    const struct foreign *f;
    struct told *t;
    int64_t steps, told;               /* the last one; how many were told */
    double total;                      /* seconds; NaN: not known */
    const struct told_row *last, *val; /* the last with a loss, and with a validation; NULL */
    char losses[SHA256_TEXT];
};

/* From moments to durations; of steps between two lines each takes its share. */
static double foreign_times_of_moments(struct told *t) {
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

static void foreign_sum_up(struct told_run *run) {
    struct told *t = run->t;
    struct sha256 losses;
    double sum = 0;
    bool any = false;
    for (size_t i = 0; i < t->n && !any; i++) any = !isnan(t->row[i].of[TOLD_MS]);
    run->total = any ? (double)NAN : foreign_times_of_moments(t);
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

static struct step_record foreign_step_of(const struct told_row *r) {
    const double *of = r->of;
    struct step_record s = {.step = r->step,
                            .epoch = of[TOLD_EPOCH] > 0 ? (int64_t)fmin(of[TOLD_EPOCH], 1e9) : 0,
                            .loss = (float)of[TOLD_LOSS],
                            .accuracy = (float)of[TOLD_ACCURACY],
                            .lr = of[TOLD_LR],
                            .norm = of[TOLD_GRAD_NORM],
                            .ms = of[TOLD_MS],
                            .samples = of[TOLD_SAMPLES]};
    for (int p = 0; p < PHASES; p++) s.phase_ms[p] = of[phase_fields[p]];
    return s;
}

static struct val_result foreign_val_of(const struct told_row *r) {
    struct val_result v;
    _Static_assert(TOLD_VAL_SAMPLES - TOLD_VAL_LOSS == VAL_METRICS, "they are in the order of the metrics");
    memcpy(v.of, r->of + TOLD_VAL_LOSS, sizeof v.of);
    v.samples = r->of[TOLD_VAL_SAMPLES] > 0 ? (int64_t)fmin(r->of[TOLD_VAL_SAMPLES], 1e15) : 0;
    return v;
}

static enum error foreign_put_rows(const struct told_run *run, const struct sink_ops *to, void *sink) {
    TRY(to->event(sink, &(struct sink_event){.name = "started"}));
    for (size_t i = 0; i < run->t->n; i++) {
        const struct told_row *r = &run->t->row[i];
        const struct step_record step = foreign_step_of(r);
        const struct val_result val = foreign_val_of(r);
        if (told_is_step(r)) TRY(to->step(sink, &step));
        if (told_is_val(r)) TRY(to->val(sink, r->step, &val));
    }
    TRY(to->event(sink, &(struct sink_event){.name = "finished", .step = run->steps}));
    return to->flush(sink, true);
}

/* Writes metrics.jsonl; a file of that name that the command has left is replaced. */
static enum error foreign_write_metrics(const struct told_run *run, struct pool *pool) {
    const struct sink_ops *to = sink_find(SINK_jsonl);
    char *path = pool_printf(pool, "%s/metrics.jsonl", run->f->dir);
    void *sink;
    if (!path) return ERR_MEMORY;
    (void)unlink(path);
    TRY(to->open(&(struct sink_place){.run_dir = run->f->dir}, &sink));
    enum error err = foreign_put_rows(run, to, sink);
    to->close(sink);
    return err;
}

/* ---- summary.json ---- */

static double foreign_mean_of(const struct told_run *run, int field) {
    double sum = 0;
    int64_t n = 0;
    for (size_t i = 0; i < run->t->n; i++)
        if (!isnan(run->t->row[i].of[field])) sum += run->t->row[i].of[field], n++;
    return n ? sum / (double)n : (double)NAN;
}

static enum error foreign_take_times(const struct told_run *run, struct summary *s) {
    int64_t n = 0;
    double samples = 0, seconds = 0, *ms = malloc(run->t->n * sizeof *ms);
    if (!ms) return FAIL(ERR_MEMORY, "no memory for the times of %zu steps", run->t->n);
    for (size_t i = 0; i < run->t->n; i++) {
        const double *of = run->t->row[i].of;
        if (isnan(of[TOLD_MS])) continue;
        ms[n++] = of[TOLD_MS];
        samples += of[TOLD_SAMPLES], seconds += of[TOLD_MS] / 1e3;
    }
    s->step_p50 = n ? quantile_of(ms, n, 0.5) : (double)NAN;
    s->step_p95 = n ? quantile_of(ms, n, 0.95) : (double)NAN;
    free(ms);
    s->samples_per_s = samples / seconds;
    for (int p = 0; p < PHASES; p++) s->time_s[p] = foreign_mean_of(run, phase_fields[p]) * (double)run->steps / 1e3;
    s->hidden_s = s->train_s = (double)NAN;
    s->total_s = run->total;
    return ERR_NONE;
}

/* As 'engine run' has it. Of bytes only the busiest rank's are known, if any, and of memory the largest process's. */
static enum error foreign_take_summary(const struct told_run *run, struct pool *pool, struct summary *s) {
    double epochs = run->last ? run->last->of[TOLD_EPOCH] : 0;
    s->mode = FOREIGN_MODE, s->run_dir = run->f->dir, s->ended = "finished";
    s->devices = run->f->devices, s->shards = run->f->devices;
    s->steps = run->steps, s->epochs = epochs > 0 ? (int64_t)fmin(epochs, 1e9) : 0;
    s->train_loss = run->last ? run->last->of[TOLD_LOSS] : (double)NAN;
    s->has_val = run->val != NULL;
    if (run->val) s->val = foreign_val_of(run->val);
    s->ranks = !isnan(run->t->bytes), s->processes = !isnan(run->f->memory);
    TRY(summary_lists(s, 1, pool));
    if (s->ranks) s->steps_moved.sent[0] = fmin(run->t->bytes, 9e18);
    s->rss[0] = run->f->memory;
    memcpy(s->weights, run->t->weights, sizeof s->weights);
    memcpy(s->losses, run->losses, sizeof s->losses);
    return foreign_take_times(run, s);
}

static enum error foreign_write_summary(const struct told_run *run, struct pool *pool) {
    struct summary *s = pool_alloc(pool, sizeof *s);
    struct json j = {0};
    if (!s) return ERR_MEMORY;
    TRY(foreign_take_summary(run, pool, s));
    return json_save(&j, summary_json(s, &j), pool_printf(pool, "%s/summary.json", run->f->dir));
}

/* ---- all ---- */

static enum error write_run(const struct told_run *run, struct pool *pool) {
    char *settings = tree_write(run->f->settings, false, pool);
    if (!settings) return ERR_MEMORY;
    TRY(file_replace(pool_printf(pool, "%s/resolved.yaml", run->f->dir), settings, strlen(settings)));
    TRY(foreign_write_metrics(run, pool));
    return foreign_write_summary(run, pool);
}

enum error foreign_begin(const char *dir, struct pool *pool) {
    TRY(file_make_folders(dir));
    return environment_save(dir, pool);
}

enum error foreign_finish(const struct foreign *f, struct pool *pool) {
    struct told t;
    told_init(&t);
    enum error err = read_told(f, pool, &t);
    struct told_run run = {.f = f, .t = &t};
    if (err == ERR_NONE) foreign_sum_up(&run);
    if (err == ERR_NONE && run.told <= f->warmup)
        err =
            FAIL(ERR_DATA, "the command reported %lld steps, all of them warm-up\nlet it train longer, or set 'warmup'",
                 (long long)run.told);
    if (err == ERR_NONE) err = write_run(&run, pool);
    told_fini(&t);
    return err;
}
