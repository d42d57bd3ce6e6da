/* A comparison as tables for people, on a terminal and in Markdown. */
#include "lab/compare/compare.h"

#include "engine/base/text.h"
#include "lab/draw/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- grids ---- */

enum { COLUMNS = 24, MEASURE_TEXT = 96 };
struct compare_grid {
    struct pool *pool;
    const char **row; /* that is being filled, up to 'column' */
    int column, rows; /* rows: below the heading */
    const char *heads[COLUMNS];
    struct table t;
};

__attribute__((format(printf, 2, 3))) static void put(struct compare_grid *g, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (g->column < COLUMNS) g->row[g->column++] = pool_vprintf(g->pool, fmt, ap);
    va_end(ap);
}

static void grid_begin(struct compare_grid *g, struct pool *pool) {
    *g = (struct compare_grid){.pool = pool, .rows = 0};
    g->row = g->heads;
}

/* After its heads: room for rows. */
static bool grid_rows(struct compare_grid *g, int rows) {
    if (table_init(&g->t, "", g->column, rows, g->pool) != ERR_NONE) return false;
    memcpy(table_row(&g->t, 0), g->heads, (size_t)g->column * sizeof *g->heads);
    g->t.words = g->t.columns;
    return true;
}

static void grid_next(struct compare_grid *g) {
    g->row = table_row(&g->t, ++g->rows), g->column = 0;
}

const char *compare_value(const struct measure *m, double v, char out[32]) {
    if (!isfinite(v)) return isinf(v) ? "never" : "-";
    if (!strcmp(m->unit, "bytes")) return text_of_bytes(v, out);
    if (m->scale == SCALE_DIFFERENCE) return snprintf(out, 32, "%.2f %%", 100 * v), out;
    snprintf(out, 32, fabs(v) < 1e6 ? "%.4g" : "%.0f", v);
    return out;
}

static const char *side_name(const struct compared *c, int cell) {
    return c->x->axis[0].label[c->x->cell[cell].at[0]];
}

static const char *grid_cell_text(const struct compared *c, int cell, int measure, char out[MEASURE_TEXT]) {
    char number[32], around[32];
    const struct measure *m = &c->x->measure[measure];
    const struct compared_cell *v = &c->cell[cell];
    if (measure || !isfinite(v->spread)) return strcpy(out, compare_value(m, v->median[measure], number));
    double half = v->spread * v->median[0] / 2 * (m->scale == SCALE_DIFFERENCE ? 100 : 1);
    if (!strcmp(m->unit, "bytes"))
        text_of_bytes(half, around);
    else
        snprintf(around, sizeof around, fabs(half) < 100 ? "%.2g" : "%.0f", half);
    snprintf(out, MEASURE_TEXT, "%s ± %s", compare_value(m, v->median[0], number), around);
    return out;
}

/* The last word of a key, where no other axis ends in it, is enough to know it. */
static const char *grid_axis_name(const struct experiment *x, int axis) {
    const char *key = x->axis[axis].key, *dot = strrchr(key, '.');
    for (int a = 0; a < x->naxes && dot; a++) {
        const char *other = strrchr(x->axis[a].key, '.');
        if (a != axis && !strcmp(other ? other + 1 : x->axis[a].key, dot + 1)) return key;
    }
    return dot ? dot + 1 : key;
}

static const char *grid_speedup_text(double v, char out[32]) {
    snprintf(out, 32, v < 0.1 ? "%.2g" : "%.2f", v);
    return out;
}

/* The column is for verdicts on step times; where none is predicted, there is none. */
static bool grid_has_model(const struct compared *c) {
    return c->predicted && c->model.cells && c->x->measure[0].kind == MEASURE_STEP_TIME;
}

static const char *grid_model_text(const struct compared *c, int cell, char out[32]) {
    const struct compared_prediction *p = &c->cell[cell].predicted;
    if (p->from == cell) return "measured";
    if (p->why) return "-";
    snprintf(out, 32, "%.4g", p->step * 1e3);
    return out;
}

/* The name of a side stands in the heading where all rows have the same one. */
static void put_side_heading(const struct compared *c, struct compare_grid *g, int side, bool varies,
                             const char *unit) {
    const char letter = (char)('A' + side);
    if (varies) put(g, "%c is", letter);
    if (*c->folder && !varies)
        put(g, "%c: %s%s%s", letter, c->x->axis[0].label[side], *unit ? " " : "", unit);
    else
        put(g, "%c%s%s", letter, *unit ? " " : "", unit);
}

static void put_heading(const struct compared *c, struct compare_grid *g, const char *unit) {
    const struct experiment *x = c->x;
    put_side_heading(c, g, 0, x->all_pairs, unit);
    put_side_heading(c, g, 1, x->axis[0].count > 2, unit);
    put(g, "B against A [%g %%]", x->confidence * 100);
    put(g, "p (Holm)");
    put(g, "verdict");
}

static void put_first_heading(const struct compared *c, struct compare_grid *g, bool scaled) {
    const struct experiment *x = c->x;
    for (int a = 1; a < x->naxes; a++) put(g, "%s", grid_axis_name(x, a));
    put_heading(c, g, !strcmp(x->measure[0].unit, "bytes") ? "" : x->measure[0].unit);
    put(g, "same bits");
    if (scaled) put(g, "speed-up A / B");
    if (grid_has_model(c)) put(g, "predicted A / B ms");
}

/* Effect, p, verdict. */
static void grid_put_answer(const struct compared *c, const struct compared_pair *p, int measure,
                            struct compare_grid *g) {
    const struct compared_answer *a = &p->answer[measure];
    bool verdict = a->verdict == VERDICT_FASTER || a->verdict == VERDICT_SLOWER || compare_is_slight(c, a);
    put(g, "%s", compare_effect(c, p, measure));
    if (compare_is_tested(a))
        put(g, "%.2g", a->statistics.p_all);
    else
        put(g, "-");
    const char *who = side_name(c, p->cell[1]); /* "5ms slower" would be read as an amount */
    if (*who >= '0' && *who <= '9') who = "B";
    put(g, "%s%s%s%s", verdict ? who : "", verdict ? " " : "", compare_verdict(c, p, measure),
        a->equal ? " (equal bits)" : "");
}

static void put_sides(const struct compared *c, const struct compared_pair *p, int measure, struct compare_grid *g) {
    char text[MEASURE_TEXT];
    const struct experiment *x = c->x;
    for (int side = 0; side < 2; side++) {
        if (side ? x->axis[0].count > 2 : x->all_pairs) put(g, "%s", side_name(c, p->cell[side]));
        put(g, "%s", grid_cell_text(c, p->cell[side], measure, text));
    }
    grid_put_answer(c, p, measure, g);
}

static void grid_put_place(const struct compared *c, const struct compared_pair *p, struct compare_grid *g) {
    const struct experiment *x = c->x;
    const int *at = x->cell[p->cell[1]].at;
    for (int a = 1; a < x->naxes; a++) put(g, "%s", x->axis[a].label[at[a]]);
}

static void grid_put_pair(const struct compared *c, const struct compared_pair *p, struct compare_grid *g,
                          bool scaled) {
    char text[32], other[32];
    grid_put_place(c, p, g);
    put_sides(c, p, 0, g);
    put(g, "%s", compare_bits(c, p));
    if (scaled)
        put(g, "%s / %s", grid_speedup_text(c->cell[p->cell[0]].speedup, text),
            grid_speedup_text(c->cell[p->cell[1]].speedup, other));
    if (grid_has_model(c))
        put(g, "%s / %s", grid_model_text(c, p->cell[0], text), grid_model_text(c, p->cell[1], other));
}

/* The first measure, and what else there is to say of a pair. */
static bool make_grid(const struct compared *c, struct compare_grid *g) {
    const struct experiment *x = c->x;
    bool scaled = false;
    grid_begin(g, c->pool);
    for (int i = 0; i < x->ncells; i++) scaled |= isfinite(c->cell[i].speedup);
    put_first_heading(c, g, scaled);
    if (!grid_rows(g, x->npairs)) return false;
    for (int i = 0; i < x->npairs; i++) {
        grid_next(g);
        grid_put_pair(c, &c->pair[i], g, scaled);
    }
    return true;
}

/* The other measures, a row for each pair. */
static bool make_other_grid(const struct compared *c, struct compare_grid *g) {
    const struct experiment *x = c->x;
    grid_begin(g, c->pool);
    put(g, "metric");
    for (int a = 1; a < x->naxes; a++) put(g, "%s", grid_axis_name(x, a));
    put_heading(c, g, "");
    if (x->nmeasures < 2 || !grid_rows(g, x->npairs * (x->nmeasures - 1))) return false;
    for (int m = 1; m < x->nmeasures; m++)
        for (int i = 0; i < x->npairs; i++) {
            const char *unit = x->measure[m].unit;
            grid_next(g);
            put(g, "%s%s%s", x->measure[m].name, *unit && strcmp(unit, "bytes") != 0 ? ", " : "",
                strcmp(unit, "bytes") != 0 ? unit : "");
            grid_put_place(c, &c->pair[i], g);
            put_sides(c, &c->pair[i], m, g);
        }
    return true;
}

/* ---- all ---- */

/* Prints, for runs that had finished before, which run each side is and in which keys it differs from A. */
static void grid_print_finished(const struct compared *c, FILE *f) {
    const struct experiment *x = c->x;
    for (int i = 0; i < x->ncells; i++) fprintf(f, "%s%s is %s", i ? ", " : "", x->axis[0].label[i], x->cell[i].label);
    fprintf(f, "; first %lld step%s left out, %s\n", (long long)x->warmup, x->warmup == 1 ? "" : "s",
            x->measure[0].name);
    for (int k = 0; k < x->npairs; k++) {
        const struct compared_pair *p = &c->pair[k];
        const char *b = x->axis[0].label[p->cell[1]];
        for (int i = 0; i < p->ndiffers; i++)
            fprintf(f, "%s%s%s: %s, %s", i ? "; " : b, i ? "" : " differs from A in ", p->differs[i].key,
                    p->differs[i].a, p->differs[i].b);
        fprintf(f, p->ndiffers ? "\n" : "%s has the settings of A\n", b);
    }
}

static void grid_print_title(const struct compared *c, FILE *f) {
    const struct experiment *x = c->x;
    if (!*c->folder) {
        grid_print_finished(c, f);
        return;
    }
    fprintf(f, "%s: %s scaling, %d interleaved run%s a cell%s, first %lld step%s left out, %s\n", x->name,
            x->weak ? "weak" : "strong", c->repeats, c->repeats == 1 ? "" : "s",
            x->nseeds ? c->repeats == 1 ? " with one seed" : ", each with its own seed" : "", (long long)x->warmup,
            x->warmup == 1 ? "" : "s", x->measure[0].name);
}

static void grid_print_legend(const struct compared *c, FILE *f) {
    const char *better = c->x->measure[0].scale == SCALE_DIFFERENCE ? "0 pt (points of a share)" : "1×";
    fprintf(f, "B against A: above %s B is better%s\n", better,
            isfinite(c->cell[0].spread) ? "; ±: half of the distance between the quartiles of a cell's runs" : "");
}

static void grid_print_bits(const struct compared *c, FILE *f, const char *start) {
    int same = 0, held = 0, comparable = 0, commands = 0;
    for (int i = 0; i < c->x->npairs; i++) {
        const struct compared_pair *p = &c->pair[i];
        const struct experiment_cell *b = &c->x->cell[p->cell[1]], *a = &c->x->cell[p->cell[0]];
        commands += settings_of_command(a->setting, a->nsettings) || settings_of_command(b->setting, b->nsettings);
        comparable += p->comparable, held += p->held;
        same += p->held && p->same_losses && p->same_weights;
    }
    fprintf(f, "%ssame losses and weights", start);
    if (held)
        fprintf(f, ", bit for bit: %s (%d of %d pairs%s)\n", same == held ? "yes" : "no", same, held,
                c->same_bits ? "; the same in all cells" : "");
    else if (comparable)
        fputs(": not known, since no pair has runs on both sides\n", f);
    else if (commands)
        fputs(": not compared, since a command reported no weights_sha256\n", f);
    else
        fprintf(f, ": not compared, since '%s' changes the computation\n", c->x->axis[0].key);
}

static void grid_print_doubts(const struct compared *c, FILE *f, const char *start) {
    const char *why = compare_untested(c);
    if (*why) fprintf(f, "%s%s\n", start, why);
    for (int i = 0; i < c->nnotes; i++) fprintf(f, "%s%s\n", start, c->note[i]);
    if (!c->complete) fprintf(f, "%swarning: some runs are missing\n", start);
    for (int i = 0; i < c->nwarnings; i++) fprintf(f, "%swarning: %s\n", start, c->warning[i]);
    for (int i = 0; i < c->x->ngates; i++)
        fprintf(f, "%sgate %s: %s\n", start,
                !c->gate[i].judged  ? "open"
                : c->gate[i].passed ? "passed"
                                    : "FAILED",
                c->gate[i].words);
}

static void grid_print_all(const struct compared *c, void (*write)(const struct table *, FILE *), const char *between,
                           const char *start, FILE *f) {
    struct compare_grid g;
    grid_print_title(c, f);
    fputc('\n', f);
    if (make_grid(c, &g)) write(&g.t, f);
    if (make_other_grid(c, &g)) write(&g.t, f);
    grid_print_legend(c, f);
    fputc('\n', f);
    compare_tuned_table(c->x, write, f);
    fprintf(f, "%s\n%s", compare_sentence(c), between);
    for (int i = 0; i < c->x->ncells && c->x->tuned; i++) fprintf(f, "%stuned: %s\n", start, compare_tuned(c->x, i));
    grid_print_bits(c, f, start);
    if (*compare_model(c)) fprintf(f, "%smodel: %s\n", start, compare_model(c));
    grid_print_doubts(c, f, start);
}

void compare_table(const struct compared *c, FILE *f) {
    grid_print_all(c, table_text, "", "", f);
}

void compare_markdown(const struct compared *c, FILE *f) {
    fputs("# ", f);
    grid_print_all(c, table_markdown, "\n", "- ", f);
}
