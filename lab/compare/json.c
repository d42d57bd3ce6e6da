/* A comparison for programs: results.json has all of it, results.csv a line for each run. */
#include "lab/compare/compare.h"

#include "engine/base/file.h"
#include "engine/tell/environment.h"

#include <math.h>

/* ---- json ---- */

/* A number of each side. */
static void compared_put_sides_int(struct json *j, const char *key, const int v[2]) {
    json_ints(j, key, (const int64_t[]){v[0], v[1]}, 2);
}

static void put_measures(const struct compared *c, struct json *j) {
    static const char *const about[] = {"machine", "training", "both"};
    json_array(j, "metrics", m, c->x->nmeasures)
        json_object(j, NULL, JSON_TEXT("name", c->x->measure[m].name), JSON_TEXT("unit", c->x->measure[m].unit),
                    JSON_BOOL("more_is_better", c->x->measure[m].more_is_better),
                    JSON_TEXT("about", about[c->x->measure[m].about]),
                    JSON_TEXT("scale", c->x->measure[m].scale == SCALE_RATIO ? "ratio" : "difference"),
                    JSON_REAL("practical", c->x->measure[m].practical));
}

static void compared_put_run(const struct compared *c, const struct compared_cell *cell, int i, struct json *j) {
    const struct compared_run *r = &cell->run[i];
    json_open(j, NULL, '{');
    json_string(j, "dir", r->dir);
    if (c->x->nseeds) json_int(j, "seed", c->x->seeds[r->repeat]);
    for (int m = 0; m < c->x->nmeasures; m++) json_real(j, c->x->measure[m].name, cell->value[m][i]);
    json_put(j, JSON_TEXT("losses_sha256", r->result.losses), JSON_TEXT("weights_sha256", r->result.weights),
             JSON_REAL("load", r->result.environment.load), JSON_TEXT("host", r->result.environment.host));
    if (r->again) json_int(j, "again", r->again);
    json_real(j, "foreign_cores", r->foreign);
    json_close(j, '}');
}

static void compared_put_places(const struct experiment *x, const char *key, const int *at, int first, struct json *j) {
    json_open(j, key, '{');
    for (int a = first; a < x->naxes; a++) json_string(j, x->axis[a].key, x->axis[a].label[at[a]]);
    json_close(j, '}');
}

/* Times in milliseconds, as the measured ones. */
static void put_prediction(const struct compared *c, int i, struct json *j) {
    const struct compared_prediction *p = &c->cell[i].predicted;
    if (!c->predicted) return;
    json_open(j, "predicted", '{');
    if (p->why) {
        json_bool(j, "reference", p->from == i);
        json_string(j, "why", p->why);
    } else {
        json_put(j, JSON_REAL("step_time", p->step * 1e3), JSON_REAL("formula", p->formula * 1e3),
                 JSON_REAL("residual", p->residual), JSON_TEXT("port", p->port));
        if (isfinite(p->fit_error)) json_real(j, "fit_error", p->fit_error);
        json_string(j, "from", c->x->cell[p->from].label);
    }
    json_close(j, '}');
}

static void compared_put_model(const struct compared *c, struct json *j) {
    const struct compared_model *m = &c->model;
    if (!c->predicted) return;
    json_object(j, "model", JSON_INT("predicted", m->cells), JSON_INT("not_predicted", m->silent),
                JSON_REAL("median_residual", m->median), JSON_REAL("worst_residual", m->worst),
                JSON_TEXT("worst_cell", isfinite(m->worst) ? c->x->cell[m->worst_cell].label : NULL),
                JSON_TEXT("words", compare_model(c)));
}

static void compared_put_cell(const struct compared *c, int i, struct json *j) {
    const struct experiment_cell *cell = &c->x->cell[i];
    const struct compared_cell *runs = &c->cell[i];
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("label", cell->label), JSON_TEXT("side", c->x->axis[0].label[cell->at[0]]));
    compared_put_places(c->x, "settings", cell->at, 0, j);
    json_put(j, JSON_INT("devices", cell->settings.config.devices.count),
             JSON_INT("threads", cell->settings.config.threads));
    if (cell->start.nhosts) json_texts(j, "hosts", cell->start.hosts, cell->start.nhosts);
    json_put(j, JSON_TEXT("digest", cell->digest), JSON_REAL("speedup", runs->speedup),
             JSON_REAL("efficiency", runs->efficiency), JSON_REAL("spread", runs->spread));
    json_open(j, "median", '{');
    for (int m = 0; m < c->x->nmeasures; m++) json_real(j, c->x->measure[m].name, runs->median[m]);
    json_close(j, '}');
    put_prediction(c, i, j);
    json_array(j, "runs", k, runs->nruns) compared_put_run(c, runs, k, j);
    json_close(j, '}');
}

static void compared_put_difference(const struct compared *c, const struct compared_pair *p, struct json *j) {
    if (!p->held) {
        json_put(j, JSON_TEXT("same_losses", NULL), JSON_TEXT("same_weights", NULL));
        return;
    }
    json_put(j, JSON_BOOL("same_losses", p->same_losses), JSON_BOOL("same_weights", p->same_weights));
    if (p->same_losses && p->same_weights) return;
    json_object(j, "difference", JSON_INT("step", p->step), JSON_REAL("a", p->loss[0]), JSON_REAL("b", p->loss[1]),
                JSON_TEXT("tensor", p->tensor), JSON_TEXT("words", compare_bits(c, p)));
}

static void put_answer(const struct compared *c, const struct compared_pair *p, int m, const char *estimate,
                       struct json *j) {
    const double none = (double)NAN;
    const struct compared_answer *a = &p->answer[m];
    const struct comparison *s = &a->statistics;
    const char *doubt = compare_doubt(c, p, m);
    bool tested = compare_is_tested(a);
    json_real(j, estimate, a->judged ? s->estimate : none);
    compared_put_sides_int(j, "samples", a->samples);
    json_put(j, JSON_REAL("low", a->judged ? s->low : none), JSON_REAL("high", a->judged ? s->high : none),
             JSON_REAL("p", tested ? s->p : none), JSON_REAL("p_holm", tested ? s->p_all : none),
             JSON_TEXT("verdict", verdict_text(a->verdict)), JSON_TEXT("words", compare_verdict(c, p, m)),
             JSON_TEXT("doubt", *doubt ? doubt : NULL));
}

static void compared_put_foretold(const struct compared_answer *a, struct json *j) {
    json_put(j, JSON_INT("pairs", a->pairs), JSON_BOOL("paired", a->statistics.paired), JSON_BOOL("equal", a->equal),
             JSON_REAL("power", a->power), JSON_REAL("set_error", a->statistics.error),
             JSON_REAL("choice_error", a->statistics.choice > 0 ? a->statistics.choice : (double)NAN),
             JSON_REAL("needed", a->needed ? a->needed : (double)NAN));
    compared_put_sides_int(j, "unreached", a->unreached);
}

static void put_pair(const struct compared *c, const struct compared_pair *p, struct json *j) {
    json_open(j, NULL, '{');
    json_int(j, "a", p->cell[0]);
    json_int(j, "b", p->cell[1]);
    compared_put_places(c->x, "at", c->x->cell[p->cell[1]].at, 1, j);
    put_answer(c, p, 0, "ratio", j);
    json_array(j, "answers", m, c->x->nmeasures) {
        json_open(j, NULL, '{');
        json_string(j, "metric", c->x->measure[m].name);
        put_answer(c, p, m, "estimate", j);
        compared_put_foretold(&p->answer[m], j);
        json_close(j, '}');
    }
    compared_put_difference(c, p, j);
    json_array(j, "differs", i, p->ndiffers)
        json_object(j, NULL, JSON_TEXT("key", p->differs[i].key), JSON_TEXT("a", p->differs[i].a),
                    JSON_TEXT("b", p->differs[i].b));
    json_close(j, '}');
}

static void compared_put_gates(const struct compared *c, struct json *j) {
    json_array(j, "gates", i, c->x->ngates)
        json_object(j, NULL, JSON_TEXT("text", c->x->gate[i].text), JSON_BOOL("judged", c->gate[i].judged),
                    JSON_BOOL("passed", c->gate[i].passed), JSON_TEXT("words", c->gate[i].words));
}

static void compared_put_sides(const struct experiment *x, struct json *j) {
    json_open(j, "sides_settings", '{');
    for (int i = 0; i < x->axis[0].count; i++) {
        struct result_setting in[EXPERIMENT_ASKED];
        int n = result_flatten(x->axis[0].value[i], x->pool, in, EXPERIMENT_ASKED);
        json_open(j, x->axis[0].label[i], '{');
        for (int k = 0; k < n; k++) json_string(j, in[k].key, in[k].value);
        json_close(j, '}');
    }
    json_close(j, '}');
}

static void compared_put_head(const struct compared *c, struct json *j) {
    const struct experiment *x = c->x;
    json_put(j, JSON_INT("format", 1), JSON_TEXT("name", x->name), JSON_TEXT("verdict", compare_sentence(c)),
             JSON_TEXT("untested", *compare_untested(c) ? compare_untested(c) : NULL), JSON_TEXT("command", x->command),
             JSON_TEXT("axis", x->axis[0].key));
    json_texts(j, "sides", x->axis[0].label, x->axis[0].count);
    if (x->axis[0].named) compared_put_sides(x, j);
    json_array(j, "axes", a, x->naxes - 1) json_string(j, NULL, x->axis[a + 1].key);
    json_string(j, "scaling", x->weak ? "weak" : "strong");
    json_int(j, "repeats", c->repeats);
    if (x->nseeds) json_ints(j, "seeds", x->seeds, x->nseeds);
    json_put(j, JSON_INT("tests", experiment_questions(x)), JSON_INT("warmup", x->warmup),
             JSON_REAL("confidence", x->confidence), JSON_REAL("practical", x->practical),
             JSON_INT("seed", (int64_t)x->seed), JSON_BOOL("complete", c->complete),
             JSON_BOOL("same_bits_in_all_cells", c->same_bits));
}

enum error compare_json(const struct compared *c, struct json *j) {
    json_open(j, NULL, '{');
    compared_put_head(c, j);
    put_measures(c, j);
    json_array(j, "cells", i, c->x->ncells) compared_put_cell(c, i, j);
    json_array(j, "pairs", i, c->x->npairs) put_pair(c, &c->pair[i], j);
    compare_tuned_json(c->x, "tuning", j);
    compared_put_gates(c, j);
    compared_put_model(c, j);
    json_texts(j, "notes", c->note, c->nnotes);
    json_texts(j, "warnings", c->warning, c->nwarnings);
    environment_json(j, "environment");
    json_close(j, '}');
    return json_done(j);
}

/* ---- csv ---- */

static void csv_text(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void csv_run(const struct compared *c, int cell, int run, FILE *f) {
    const struct experiment *x = c->x;
    const struct compared_cell *runs = &c->cell[cell];
    for (int a = 0; a < x->naxes; a++) {
        csv_text(f, x->axis[a].label[x->cell[cell].at[a]]);
        fputc(',', f);
    }
    fprintf(f, "%d", run + 1);
    for (int m = 0; m < x->nmeasures; m++) {
        double v = runs->value[m][run];
        fprintf(f, isfinite(v) ? ",%.9g" : ",", v);
    }
    double predicted = c->predicted && !runs->predicted.why ? runs->predicted.step * 1e3 : NAN;
    fprintf(f, isfinite(predicted) ? ",%.9g" : ",", predicted);
    fprintf(f, ",%s,%s,", runs->run[run].result.losses, runs->run[run].result.weights);
    csv_text(f, runs->run[run].dir);
    fputc('\n', f);
}

void compare_csv(const struct compared *c, FILE *f) {
    for (int a = 0; a < c->x->naxes; a++) {
        csv_text(f, c->x->axis[a].key);
        fputc(',', f);
    }
    fputs("run", f);
    for (int m = 0; m < c->x->nmeasures; m++) {
        fputc(',', f);
        csv_text(f, c->x->measure[m].name);
    }
    fputs(",predicted_step_time,losses_sha256,weights_sha256,dir\n", f);
    for (int i = 0; i < c->x->ncells; i++)
        for (int k = 0; k < c->cell[i].nruns; k++) csv_run(c, i, k, f);
}

static void csv_number(FILE *f, double v) {
    fprintf(f, isnan(v) ? "," : ",%.9g", v);
}

void compare_verdicts(const struct compared *c, FILE *f) {
    const struct experiment *x = c->x;
    csv_text(f, x->axis[0].key);
    for (int a = 1; a < x->naxes; a++) fputc(',', f), csv_text(f, x->axis[a].key);
    fputs(",against,metric,scale,a,b,estimate,low,high,p,p_holm,samples_a,samples_b,verdict,power,needed\n", f);
    for (int i = 0; i < x->npairs; i++)
        for (int m = 0; m < x->nmeasures; m++) {
            const struct compared_pair *p = &c->pair[i];
            const struct compared_answer *a = &p->answer[m];
            const struct comparison *s = &a->statistics;
            const int *at = x->cell[p->cell[1]].at;
            bool tested = compare_is_tested(a);
            for (int k = 0; k < x->naxes; k++) csv_text(f, x->axis[k].label[at[k]]), fputc(',', f);
            csv_text(f, x->axis[0].label[x->cell[p->cell[0]].at[0]]);
            fprintf(f, ",\"%s\",%s", x->measure[m].name, s->scale == SCALE_RATIO ? "ratio" : "difference");
            for (int side = 0; side < 2; side++) csv_number(f, c->cell[p->cell[side]].median[m]);
            csv_number(f, a->judged ? s->estimate : (double)NAN);
            csv_number(f, a->judged ? s->low : (double)NAN);
            csv_number(f, a->judged ? s->high : (double)NAN);
            csv_number(f, tested ? s->p : (double)NAN);
            csv_number(f, tested ? s->p_all : (double)NAN);
            fprintf(f, ",%d,%d,%s", a->samples[0], a->samples[1], compare_word(c, p, m));
            csv_number(f, a->power);
            fprintf(f, a->needed ? ",%d\n" : ",\n", a->needed);
        }
}

/* ---- files ---- */

static enum error compared_write_words(const struct compared *c, const char *name,
                                       void (*print)(const struct compared *, FILE *)) {
    struct file_text text;
    TRY(file_text_open(&text));
    print(c, text.out);
    return file_text_save(&text, ERR_NONE, pool_printf(c->pool, "%s/%s", c->folder, name));
}

enum error compare_write(const struct compared *c) {
    struct json j = {0};
    if (c->x->tuned) TRY(compare_tuned_write(c->x, c->folder));
    TRY(json_save(&j, compare_json(c, &j), pool_printf(c->pool, "%s/results.json", c->folder)));
    TRY(compared_write_words(c, "results.csv", compare_csv));
    TRY(compared_write_words(c, "verdicts.csv", compare_verdicts));
    return compared_write_words(c, "results.md", compare_markdown);
}
