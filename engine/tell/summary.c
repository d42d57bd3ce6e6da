/* The summary at the end of a run: one table for people, one JSON object for programs, from the same numbers. */
#include "engine/tell/tell.h"

#include "engine/data/unreadable.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error summary_lists(struct summary *s, int ranks, struct pool *pool) {
    double **const lists[] = {&s->steps_moved.sent,
                              &s->steps_moved.received,
                              &s->start_moved.sent,
                              &s->start_moved.received,
                              &s->paused_moved.sent,
                              &s->paused_moved.received,
                              &s->rss,
                              &s->state};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!(*lists[i] = pool_alloc(pool, (size_t)ranks * sizeof **lists[i]))) return ERR_MEMORY;
    for (int i = 0; i < HELD_PARTS; i++)
        if (!(s->held[i] = pool_alloc(pool, (size_t)ranks * sizeof **s->held))) return ERR_MEMORY;
    return ERR_NONE;
}

static void json_list(struct json *j, const char *key, const double *v, int n) {
    json_array(j, key, i, n) json_int(j, NULL, (int64_t)v[i]);
}

static void json_moved(const struct moved *m, int ranks, struct json *j) {
    json_list(j, "sent", m->sent, ranks);
    json_list(j, "received", m->received, ranks);
}

static void json_bytes(const struct summary *s, struct json *j) {
    json_open(j, "bytes", '{');
    json_moved(&s->steps_moved, s->ranks, j);
    json_open(j, "start", '{');
    json_moved(&s->start_moved, s->ranks, j);
    json_close(j, '}');
    json_open(j, "other", '{');
    json_moved(&s->paused_moved, s->ranks, j);
    json_close(j, '}');
    json_close(j, '}');
}

static void json_times(const struct summary *s, struct json *j) {
    json_open(j, "time_s", '{');
    for (int i = 0; i < PHASES; i++) {
        json_real(j, phase_names[i].key, s->time_s[i]);
        if (i == PHASE_COMM) json_real(j, "comm_hidden", s->hidden_s);
    }
    json_real(j, "total", s->total_s);
    json_close(j, '}');
}

void val_json(const struct val_result *v, const char *key, struct json *j) {
    json_open(j, key, '{');
    for (int i = 0; i < VAL_METRICS; i++) json_real(j, metric_table[i].key, v->of[i]);
    json_int(j, "samples", v->samples);
    json_close(j, '}');
}

char *val_text(const struct val_result *v, char out[VAL_TEXT]) {
    int n = snprintf(out, VAL_TEXT, isnan(v->accuracy) ? "loss %.6g" : "loss %.4f", v->loss);
    for (int i = VAL_AT_loss + 1; i < VAL_METRICS && n < VAL_TEXT; i++) {
        const struct metric *m = &metric_table[i];
        if (isnan(v->of[i])) continue;
        n += snprintf(out + n, VAL_TEXT - (size_t)n, m->share ? ", %s %.2f %%" : ", %s %.5g", m->words,
                      m->share ? v->of[i] * 100 : v->of[i]);
    }
    return out;
}

static void json_loss(const struct summary *s, struct json *j) {
    json_open(j, "loss", '{');
    json_string(j, "name", s->loss);
    json_real(j, "smoothing", s->smoothing);
    if (s->class_weights)
        json_array(j, "class_weights", k, s->classes) json_real(j, NULL, (double)s->class_weights[k]);
    json_close(j, '}');
}

static void json_staleness(const struct staleness *s, struct json *j) {
    int64_t bound = s->of->sharing.staleness;
    json_open(j, "staleness", '{');
    if (bound < 0)
        json_string(j, "bound", "unbounded");
    else
        json_int(j, "bound", bound);
    json_put(j, JSON_BOOL("in_turn", s->of->deterministic != DETERMINISTIC_FALSE), JSON_REAL("mean", s->mean),
             JSON_INT("most", (int64_t)s->most), JSON_REAL("idle", s->idle));
    json_close(j, '}');
}

static void json_pipeline(const struct stages_told *s, struct json *j) {
    json_open(j, "pipeline", '{');
    json_put(j, JSON_INT("stages", s->stages), JSON_INT("copies", s->copies), JSON_INT("micro_batches", s->passes),
             JSON_REAL("bubble", s->bubble), JSON_REAL("waited", s->waited));
    json_close(j, '}');
}

/* The samples that a batch needs to be as much signal as noise; NaN where the noise hides the signal. */
static double noise_scale_of(const struct noise_told *s) {
    return s->signal > 0 && s->noise > 0 ? s->noise / s->signal : (double)NAN;
}

/* Steps to a loss are in proportion to 1 + scale / batch, and samples to 1 + batch / scale. */
static void json_noise(const struct noise_told *s, struct json *j) {
    double scale = noise_scale_of(s), of = scale / (double)s->batch;
    json_open(j, "noise_scale", '{');
    json_put(j, JSON_REAL("samples", scale), JSON_REAL("noise", s->noise), JSON_REAL("signal", s->signal),
             JSON_INT("measurements", s->count), JSON_INT("batch", s->batch));
    json_object(j, "twice_the_batch", JSON_REAL("steps", (1 + of / 2) / (1 + of)),
                JSON_REAL("samples", (1 + 2 / of) / (1 + 1 / of)));
    json_close(j, '}');
}

static void print_noise(const struct noise_told *s, FILE *f) {
    double scale = noise_scale_of(s);
    if (isnan(scale))
        fprintf(f, "noise scale  not told: %lld measurements do not find the gradient in its noise\n",
                (long long)s->count);
    else
        fprintf(f, "noise scale  %.4g samples, of %lld measurements; the batch has %lld\n", scale, (long long)s->count,
                (long long)s->batch);
}

static const char *const tuned_by_words[] = {[TUNED_ALONE] = "nothing to choose",
                                             [TUNED_KEPT] = "kept",
                                             [TUNED_OPEN] = "unfinished",
                                             [TUNED_MEASURED] = "measured"};

static void json_tuned(const struct tuned_told *t, const char *key, struct json *j) {
    json_open(j, key, '{');
    json_put(j, JSON_TEXT("chosen", t->name[t->chosen]), JSON_TEXT("default", t->name[0]),
             JSON_TEXT("by", tuned_by_words[t->by]), JSON_INT("steps", t->steps));
    if (t->ms) json_open(j, "step_ms", '{');
    for (int i = 0; t->ms && i < t->n; i++) json_real(j, t->name[i], t->ms[i]);
    if (t->ms) json_close(j, '}');
    json_close(j, '}');
}

static void print_tuned(const struct tuned_told *t, const char *key, FILE *f) {
    const char *chosen = t->name[t->chosen];
    fprintf(f, "tuned       %s %s", key, chosen);
    if (t->by == TUNED_ALONE) fprintf(f, ": there was nothing to choose\n");
    if (t->by == TUNED_KEPT) fprintf(f, ", as an earlier part of the run has chosen\n");
    if (t->by == TUNED_OPEN) fprintf(f, ", the default: the run ended before all was tried\n");
    if (t->by != TUNED_MEASURED) return;
    fprintf(f,
            t->chosen ? ", by %lld steps (ms a step:"
                      : ", the default: nothing was clearly faster in %lld steps (ms a step:",
            (long long)t->steps);
    for (int i = 0; i < t->n; i++) fprintf(f, "%s %s %.2f", i ? "," : "", t->name[i], t->ms[i]);
    fputs(")\n", f);
}

static void json_skipped(const struct summary *s, struct json *j) {
    enum { NAMED = 100 };
    int64_t count = 0;
    json_open(j, "skipped", '{');
    json_array(j, "files", part, 2)
        for (int64_t i = 0; s->unreadable[part] && i < s->unreadable[part]->count; i++)
            if (count++ < NAMED) json_string(j, NULL, s->unreadable[part]->sample[i].why);
    json_int(j, "samples", count);
    json_close(j, '}');
}

static void print_skipped(const struct summary *s, FILE *f) {
    for (int part = 0; part < 2; part++) {
        const struct unreadable *u = s->unreadable[part];
        if (u && u->count)
            fprintf(f, "skipped     %lld of the files, which cannot be read%s %s\n", (long long)u->count,
                    u->count > 1 ? " (engine data check names all), as" : ":", u->sample[0].why);
    }
}

static void json_best(const struct best_checkpoint *b, struct json *j) {
    json_object(j, "best_checkpoint", JSON_TEXT("metric", b->metric), JSON_REAL("value", b->value),
                JSON_INT("step", b->step), JSON_TEXT("path", b->path));
}

static void print_best(const struct best_checkpoint *b, FILE *f) {
    bool share = metric_find(b->metric)->share;
    fprintf(f,
            share ? "best checkpoint %s: %s %.2f %%, after step %lld\n"
                  : "best checkpoint %s: %s %.4f, after step %lld\n",
            b->path, b->metric, share ? b->value * 100 : b->value, (long long)b->step);
}

enum error summary_json(const struct summary *s, struct json *j) {
    json_open(j, NULL, '{');
    json_string(j, "mode", s->mode);
    json_int(j, "devices", s->devices);
    if (s->began)
        json_put(j, JSON_INT("devices_at_first", s->began), JSON_INT("devices_lost", s->lost),
                 JSON_INT("devices_back", s->back));
    json_put(j, JSON_INT("shards", s->shards), JSON_INT("steps", s->steps), JSON_INT("epochs", s->epochs),
             JSON_INT("first_step", s->first_step));
    if (s->trained < s->parameters) {
        json_int(j, "parameters", s->parameters);
        json_int(j, "trained_parameters", s->trained);
    }
    json_string(j, "ended", s->ended);
    if (s->patience.metric)
        json_object(j, "patience", JSON_TEXT("metric", s->patience.metric), JSON_REAL("best", s->patience.best),
                    JSON_INT("step", s->patience.step), JSON_INT("evaluations_since", s->patience.waits));
    json_real(j, "train_s", s->train_s);
    json_object(j, "train", JSON_REAL("loss", s->train_loss));
    struct val_result nothing;
    val_result_clear(&nothing);
    val_json(s->has_val ? &s->val : &nothing, "val", j);
    if (s->best.path) json_best(&s->best, j);
    json_object(j, "step_ms", JSON_REAL("p50", s->step_p50), JSON_REAL("p95", s->step_p95));
    json_real(j, "samples_per_s", s->samples_per_s);
    json_times(s, j);
    json_bytes(s, j);
    if (s->loss_scale > 0)
        json_object(j, "fp16", JSON_INT("skipped_steps", s->skipped), JSON_REAL("loss_scale", s->loss_scale));
    if (s->compress)
        json_object(j, "compress", JSON_TEXT("kind", s->compress), JSON_INT("bytes", (int64_t)s->packed),
                    JSON_INT("uncompressed", (int64_t)s->dense),
                    JSON_REAL("ratio", s->packed > 0 ? s->dense / s->packed : (double)NAN));
    if (s->loss) json_loss(s, j);
    if (s->unreadable[0] || s->unreadable[1]) json_skipped(s, j);
    if (s->planted) json_string(j, "inject", s->planted);
    if (s->stale.of) json_staleness(&s->stale, j);
    if (s->pipeline.stages) json_pipeline(&s->pipeline, j);
    if (s->noise.count) json_noise(&s->noise, j);
    bool tuned = s->tuned[TUNABLE_BUCKET].by || s->tuned[TUNABLE_ALGORITHM].by;
    if (tuned) json_open(j, "tuned", '{');
    for (int i = 0; i < TUNABLES; i++)
        if (s->tuned[i].by) json_tuned(&s->tuned[i], tunable_keys[i], j);
    if (tuned) json_close(j, '}');
    json_list(j, "peak_rss_bytes", s->rss, s->processes);
    json_list(j, "optimizer_bytes", s->state, s->ranks);
    json_open(j, "held_bytes", '{');
    for (int i = 0; i < HELD_PARTS; i++) json_list(j, held_keys[i], s->held[i], s->ranks);
    json_close(j, '}');
    json_string(j, "weights_sha256", s->weights);
    if (*s->average) json_string(j, "ema_sha256", s->average);
    json_put(j, JSON_TEXT("losses_sha256", s->losses), JSON_TEXT("run_id", s->run_id),
             JSON_TEXT("run_dir", s->run_dir));
    json_close(j, '}');
    return json_done(j);
}

static double rank_most(const double *v, int n) {
    double m = 0;
    for (int i = 0; i < n; i++) m = fmax(m, v[i]);
    return m;
}

static void print_moved(const struct moved *m, int ranks, const char *form, FILE *f) {
    char sent[32], received[32];
    fprintf(f, form, text_of_bytes(rank_most(m->sent, ranks), sent),
            text_of_bytes(rank_most(m->received, ranks), received));
}

/* "memory of the rank that holds most  77 MB weights, 77 MB gradients, 154 MB optimizer, 1 MB activations: 309 MB" */
static void print_held(const struct summary *s, FILE *f) {
    struct held most = {0};
    char text[32];
    for (int r = 0; r < s->ranks; r++) {
        struct held h;
        for (int i = 0; i < HELD_PARTS; i++) h.of[i] = s->held[i][r];
        if (held_all(&h) > held_all(&most)) most = h;
    }
    fprintf(f, "memory of the rank that holds most ");
    for (int i = 0, n = 0; i < HELD_PARTS; i++)
        if (most.of[i] > 0) fprintf(f, "%s %s %s", n++ ? "," : "", text_of_bytes(most.of[i], text), held_keys[i]);
    fprintf(f, ": %s\n", text_of_bytes(held_all(&most), text));
}

static void print_bytes(const struct summary *s, FILE *f) {
    char rss[32];
    print_moved(&s->steps_moved, s->ranks, "bytes of steps, busiest rank  %s sent, %s received", f);
    fprintf(f, "   peak memory  %d x %s\n", s->processes, text_of_bytes(rank_most(s->rss, s->processes), rss));
    if (s->ranks > 1) print_moved(&s->start_moved, s->ranks, "  besides: at the start  %s, %s", f);
    if (s->ranks > 1) print_moved(&s->paused_moved, s->ranks, "; evaluation and checkpoints  %s, %s\n", f);
    print_held(s, f);
}

struct cell {
    const char *head;
    int width; /* below 0: it begins on the left */
    char text[64];
};

/* A line of heads and one of texts; a line for each where the terminal is too narrow for that. columns: 0 for any. */
static void print_cells(const struct cell *cells, int n, int columns, FILE *f) {
    int width = -2;
    for (int i = 0; i < n; i++) width += abs(cells[i].width) + 2;
    if (columns > 0 && columns < width) {
        for (int i = 0; i < n; i++) fprintf(f, "%-18s %s\n", cells[i].head, cells[i].text);
        return;
    }
    for (int i = 0; i < n; i++) fprintf(f, "%*s%s", cells[i].width, cells[i].head, i + 1 < n ? "  " : "\n");
    for (int i = 0; i < n; i++) fprintf(f, "%*s%s", cells[i].width, cells[i].text, i + 1 < n ? "  " : "\n");
}

static void print_result(const struct summary *s, int columns, FILE *f) {
    enum { MODE, DEVICES, STEPS, TRAIN, VAL, ACCURACY, TIME, RATE, STEP, CELLS };
    struct cell c[CELLS] = {{"mode", -6, ""},        {"devices", 7, ""},    {"steps", 5, ""},
                            {"train loss", 10, "-"}, {"val loss", 8, "-"},  {"val acc", 7, "-"},
                            {"time", 7, ""},         {"samples/s", 9, "-"}, {"step p50 / p95 ms", 17, "- / -"}};
    enum { TEXT = sizeof c->text };
    snprintf(c[MODE].text, TEXT, "%s", s->mode);
    snprintf(c[DEVICES].text, TEXT, "%d", s->devices);
    snprintf(c[STEPS].text, TEXT, "%lld", (long long)s->steps);
    if (!isnan(s->train_loss)) snprintf(c[TRAIN].text, TEXT, "%.4f", s->train_loss);
    snprintf(c[TIME].text, TEXT, "%.2f s", s->total_s);
    if (s->has_val) snprintf(c[VAL].text, TEXT, "%.4f", s->val.loss);
    if (s->has_val && !isnan(s->val.accuracy)) snprintf(c[ACCURACY].text, TEXT, "%.2f %%", s->val.accuracy * 100);
    if (s->has_val && !isnan(s->val.rmse)) c[ACCURACY].head = "val R2";
    if (s->has_val && !isnan(s->val.r2)) snprintf(c[ACCURACY].text, TEXT, "%.4f", s->val.r2);
    if (!isnan(s->step_p50)) {
        text_of_count((int64_t)s->samples_per_s, c[RATE].text);
        snprintf(c[STEP].text, TEXT, "%.2f / %.2f", s->step_p50, s->step_p95);
    }
    print_cells(c, CELLS, columns, f);
}

/* Says how many threads would have read the samples that steps waited for. */
static void print_waits(const struct summary *s, FILE *f) {
    double waited = s->time_s[PHASE_LOAD], threads = ceil(s->loading_s / fmax(s->total_s - waited, 1e-9));
    if (s->loading_s <= 0 || waited < 0.1 || waited < s->total_s / 10) return;
    fprintf(f, "samples     steps waited for them %.0f %% of the time. Reading took %.1f s of processor time: ",
            waited / s->total_s * 100, s->loading_s);
    if (s->loading_s < waited / 2)
        fprintf(f, "the disk or other programs are the limit\n\n");
    else
        fprintf(f, "%.0f thread%s (data.workers) on free cores would keep up; 'engine data prepare' decodes once\n\n",
                threads, threads > 1 ? "s" : "");
}

static void print_table(const struct summary *s, int columns, FILE *f) {
    char sent[32], val[VAL_TEXT];
    double total = s->total_s > 0 ? s->total_s : 1;
    print_result(s, columns, f);
    fputc('\n', f);
    if (s->has_val) fprintf(f, "validation: %s\n\n", val_text(&s->val, val));
    if (s->first_step > 0)
        fprintf(f, "resumed after step %lld: times and bytes are of the %lld steps since\n\n", (long long)s->first_step,
                (long long)(s->steps - s->first_step));
    if (s->again)
        fprintf(f, "time was over after %.1f s of steps: train: %lldst gives the same weights\n\n", s->train_s,
                (long long)s->steps);
    if (!strcmp(s->ended, "no improvement"))
        fprintf(f, "ended since %s had not improved in %lld evaluations: the best is %.6g, of step %lld\n\n",
                s->patience.metric, (long long)s->patience.waits, s->patience.best, (long long)s->patience.step);
    if (s->trained < s->parameters)
        fprintf(f, "%s of %s parameters were trained, the others are frozen\n\n", text_of_count(s->trained, sent),
                text_of_count(s->parameters, val));
    if (s->began)
        fprintf(f, "began with %d devices, lost %d, had %d back, and ended with %d\n\n", s->began, s->lost, s->back,
                s->devices);
    fprintf(f, "where the time went     seconds   share\n");
    double rest = s->total_s;
    for (int i = 0; i < PHASES; i++) {
        const char *waits = i == PHASE_LOAD ? " (waiting)" : "";
        int left = 22 - (int)strlen(phase_names[i].words);
        fprintf(f, "  %s%-*s %7.3f  %5.1f %%\n", phase_names[i].words, left, waits, s->time_s[i],
                s->time_s[i] / total * 100);
        rest -= s->time_s[i];
    }
    fprintf(f, "  %-22s %7.3f  %5.1f %%\n", "rest of the loop", fmax(rest, 0), fmax(rest, 0) / total * 100);
    fprintf(f, "  %-22s %7.3f  (beside backward)\n\n", "communication, hidden", s->hidden_s);
    print_waits(s, f);
    print_bytes(s, f);
    if (s->loss_scale > 0)
        fprintf(f, "fp16        %lld of %lld steps left out as their gradient overflowed, the loss's scale is %g\n",
                (long long)s->skipped, (long long)s->steps, s->loss_scale);
    if (s->compress && s->packed > 0) {
        fprintf(f, "gradients, all ranks  %s sent (%s), ", text_of_bytes(s->packed, sent), s->compress);
        fprintf(f, "%s without compression: %.1f times as much\n", text_of_bytes(s->dense, sent), s->dense / s->packed);
    }
    print_skipped(s, f);
    if (s->planted) fprintf(f, "planted on purpose    %s\n", s->planted);
    if (s->stale.of)
        fprintf(f,
                "staleness   gradients %.2f updates old on average, %.0f at most; workers computed "
                "nothing in %.1f %% of their steps' time\n",
                s->stale.mean, s->stale.most, s->stale.idle * 100);
    if (s->pipeline.stages)
        fprintf(
            f,
            "stages      %d waited for each other in %.1f %% of their steps' time; the bubble of %lld micro-batches "
            "is %.1f %%\n",
            s->pipeline.stages, s->pipeline.waited * 100, (long long)s->pipeline.passes, s->pipeline.bubble * 100);
    if (s->noise.count) print_noise(&s->noise, f);
    for (int i = 0; i < TUNABLES; i++)
        if (s->tuned[i].by) print_tuned(&s->tuned[i], tunable_keys[i], f);
    fprintf(f, "weights sha256  %s\n", s->weights);
    if (*s->average) fprintf(f, "ema     sha256  %s\n", s->average);
    fprintf(f, "losses  sha256  %s\nrun             %s\n", s->losses, s->run_dir);
    if (s->best.path) print_best(&s->best, f);
}

/* Of a run that had ended with the same weights, and has made no step since: it knows the times of the steps. */
static bool summary_is_kept(const struct summary *s, const struct job *job, const char *path) {
    enum { MOST = 1 << 20 };
    struct pool *pool = job->settings->pool;
    const struct json_value *root;
    if (s->first_step < s->steps || !file_exists(path) ||
        json_read(path, MOST, (struct json_limits){8, 1 << 16, MOST}, pool, &root) != ERR_NONE)
        return false;
    const char *ended = json_text(root, "ended");
    return *ended && strcmp(ended, "stopped") != 0 && !strcmp(json_text(root, "run_id"), s->run_id) &&
           !strcmp(json_text(root, "weights_sha256"), s->weights);
}

enum error summary_show(const struct summary *s, const struct job *job) {
    char path[4096];
    struct json j = {0};
    enum error err = summary_json(s, &j);
    snprintf(path, sizeof path, "%s/summary.json", job->run_dir);
    if (err == ERR_NONE && !summary_is_kept(s, job, path)) err = file_replace(path, j.text, j.length);
    if (err == ERR_NONE && job->console_out >= 0) {
        struct file_text shown = {0}; /* a path in it may be long */
        err = file_text_open(&shown);
        if (err == ERR_NONE && job->json) fprintf(shown.out, "%s\n", j.text);
        if (err == ERR_NONE && !job->json) print_table(s, file_columns(job->console_out), shown.out);
        if (err == ERR_NONE) err = file_text_close(&shown, err);
        if (err == ERR_NONE) err = file_write_console(job->console_out, shown.text, shown.n);
        free(shown.text);
    }
    json_fini(&j);
    return err;
}
