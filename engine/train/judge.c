/* Trained weights: measured on a whole set as training measures them, and loaded to be asked. */
#include "engine/tell/score.h"
#include "engine/tell/tell.h"
#include "engine/train/internal.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/settings/run_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct verdict { /* what is printed about an evaluation */
    const struct trainer *t;
    const struct dataset *set;
    struct val_result result;
    double seconds;
    int64_t classes; /* of the confusion matrix; 0: there is none */
};

/* ---- for programs ---- */

static void class_json(const struct verdict *v, int64_t k, struct json *j) {
    struct class_score s = confusion_class(v->t->confusion, v->classes, k);
    json_open(j, NULL, '{');
    json_int(j, "class", k);
    if (dataset_class_name(v->t->feed.data, k)) json_string(j, "name", dataset_class_name(v->t->feed.data, k));
    json_put(j, JSON_INT("samples", (int64_t)s.samples), JSON_INT("answers", (int64_t)s.answers),
             JSON_REAL("precision", s.precision), JSON_REAL("recall", s.recall));
    json_close(j, '}');
}

static void confusion_json(const struct verdict *v, struct json *j) {
    const double *counts = v->t->confusion;
    json_array(j, "classes", k, v->classes) class_json(v, k, j);
    json_array(j, "confusion", k, v->classes) {
        json_array(j, NULL, a, v->classes) json_int(j, NULL, (int64_t)counts[k * v->classes + a]);
    }
}

static enum error verdict_json(const struct verdict *v, struct json *j) {
    const struct trainer *t = v->t;
    char planted[INJECT_TEXT];
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("checkpoint", t->job->resume), JSON_TEXT("data", v->set->name),
             JSON_TEXT("split", t->job->on_train ? "train" : "val"), JSON_TEXT("mode", t->config->mode),
             JSON_INT("devices", t->standing.workers));
    if (*inject_text(t->config, planted)) json_string(j, "inject", planted);
    if (!t->job->on_train) json_bool(j, "held_out_differs", t->others_held);
    val_json(&v->result, "result", j);
    json_real(j, "seconds", v->seconds);
    json_real(j, "samples_per_s", (double)v->result.samples / v->seconds);
    if (v->classes) confusion_json(v, j);
    json_close(j, '}');
    return json_done(j);
}

/* ---- for people ---- */

enum { SHOWN = 20, WORST = 10 }; /* classes of a matrix shown whole; rows of a list of mistakes */

static void share_text(double share, char out[16]) {
    if (isnan(share))
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, "%.2f %%", share * 100);
}

static void print_classes(const struct verdict *v, FILE *f) {
    fprintf(f, "\nclass  samples  answers  precision    recall\n");
    for (int64_t k = 0; k < v->classes; k++) {
        struct class_score s = confusion_class(v->t->confusion, v->classes, k);
        char precision[16], recall[16];
        share_text(s.precision, precision);
        share_text(s.recall, recall);
        const char *name = dataset_class_name(v->t->feed.data, k);
        fprintf(f, "%5lld %8.0f %8.0f %10s %9s%s%s\n", (long long)k, s.samples, s.answers, precision, recall,
                name ? "  " : "", name ? name : "");
    }
}

static void print_matrix(const struct verdict *v, FILE *f) {
    const double *counts = v->t->confusion;
    int width = 2;
    for (int64_t i = 0; i < v->classes * v->classes; i++)
        for (int digits = snprintf(NULL, 0, "%.0f", counts[i]) + 1; width < digits;) width = digits;
    fprintf(f, "\nwhat is (down) taken for what (across)\n     ");
    for (int64_t k = 0; k < v->classes; k++) fprintf(f, " %*lld", width, (long long)k);
    for (int64_t k = 0; k < v->classes; k++) {
        fprintf(f, "\n%5lld", (long long)k);
        for (int64_t a = 0; a < v->classes; a++) fprintf(f, " %*.0f", width, counts[k * v->classes + a]);
    }
    fprintf(f, "\n");
}

/* The largest count off the diagonal that is below 'limit' or, at the same count, comes after 'after'. */
static int64_t next_mistake(const struct verdict *v, double limit, int64_t after) {
    const double *counts = v->t->confusion;
    int64_t best = -1, n = v->classes;
    for (int64_t i = 0; i < n * n; i++) {
        bool later = counts[i] < limit || (counts[i] == limit && i > after);
        if (i / n == i % n || !later || counts[i] == 0) continue;
        if (best < 0 || counts[i] > counts[best]) best = i;
    }
    return best;
}

static void print_mistakes(const struct verdict *v, FILE *f) {
    double limit = INFINITY;
    int64_t at = -1, n = v->classes;
    fprintf(f, "\nthe most frequent mistakes\n");
    for (int i = 0; i < WORST && (at = next_mistake(v, limit, at)) >= 0; i++) {
        limit = v->t->confusion[at];
        fprintf(f, "%8.0f of class %lld are taken for class %lld\n", limit, (long long)(at / n), (long long)(at % n));
    }
}

static void print_verdict(const struct verdict *v, FILE *f) {
    const struct trainer *t = v->t;
    char text[VAL_TEXT], samples[32], rate[32];
    fprintf(f, "model %s of %s\n", t->model->name, t->job->resume);
    fprintf(f, "data %s, %s %s samples - %s on %s - %.2f s, %s samples/s\n", v->set->name,
            text_of_count(v->result.samples, samples), t->job->on_train ? "training" : "validation", t->config->mode,
            t->config->devices_text, v->seconds,
            text_of_count((int64_t)((double)v->result.samples / v->seconds), rate));
    fprintf(f, "%s\n", val_text(&v->result, text));
    if (!v->classes) return;
    print_classes(v, f);
    if (v->classes <= SHOWN)
        print_matrix(v, f);
    else
        print_mistakes(v, f);
}

static enum error show_text(const struct verdict *v) {
    struct file_text table;
    TRY(file_text_open(&table));
    print_verdict(v, table.out);
    TRY(file_text_close(&table, ERR_NONE));
    enum error err = file_write_console(v->t->job->console_out, text_defuse(table.text, "\n"), table.n);
    free(table.text);
    return err;
}

static enum error verdict_show(const struct verdict *v) {
    const struct job *job = v->t->job;
    if (job->console_out < 0) return ERR_NONE;
    if (!job->json) return show_text(v);
    struct json j = {0};
    enum error err = verdict_json(v, &j);
    if (err == ERR_NONE) err = file_write_console(job->console_out, j.text, j.length);
    if (err == ERR_NONE) err = file_write_console(job->console_out, "\n", 1);
    json_fini(&j);
    return err;
}

/* ---- evaluation alone ---- */

enum error trainer_judge(struct trainer *t) {
    bool first = t->job->on_train && !t->job->known;
    struct dataset *set = first ? t->feed.data : t->feed.val;
    struct verdict v = {.t = t, .set = set};
    bool counted = v.set->labels == 1 && v.set->classes > 0 && v.set->classes <= CONFUSION_MAX;
    if (counted) v.classes = v.set->classes;
    if (counted && !(t->confusion = calloc((size_t)(v.classes * v.classes), sizeof *t->confusion)))
        return FAIL(ERR_MEMORY, "no memory for a confusion matrix");
    int64_t began = clock_ns();
    trainer_note(t, "evaluation");
    enum error err = trainer_evaluate(t, set, &v.result);
    char planted[INJECT_TEXT];
    if (t->rank == 0 && *inject_text(t->config, planted)) log_warn("planted on purpose: %s", planted);
    v.seconds = fmax(clock_seconds(clock_ns() - began), 1e-9);
    if (err == ERR_NONE && t->rank == 0) err = verdict_show(&v);
    free(t->confusion);
    t->confusion = NULL;
    return err;
}

/* ---- to be asked ---- */

enum error trainer_load(const struct job *job, struct trainer **out) {
    struct trainer *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "no memory for a network");
    *t = (struct trainer){.job = job, .config = &job->settings->config};
    enum error err = trainer_open(t);
    if (err == ERR_NONE)
        *out = t;
    else
        trainer_unload(t);
    return err;
}

void trainer_unload(struct trainer *t) {
    if (!t) return;
    trainer_close(t);
    free(t);
}
