/* What a comparison says, in words and tables for people. */
#include "lab/compare.h"

#include "engine/base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

const char *compare_verdict(const struct compared *c, const struct compared_pair *p) {
    const struct measure *m = &c->x->measure[0];
    bool better = p->verdict == VERDICT_FASTER;
    if (p->verdict != VERDICT_FASTER && p->verdict != VERDICT_SLOWER) return verdict_text(p->verdict);
    if (m->kind == MEASURE_BYTES || m->kind == MEASURE_MEMORY) return better ? "less" : "more";
    if (m->kind >= MEASURE_TRAIN_LOSS && m->kind <= MEASURE_VAL_ACCURACY) return better ? "better" : "worse";
    return verdict_text(p->verdict);
}

const char *compare_bits(const struct compared *c, const struct compared_pair *p) {
    if (!p->held) return "-";
    if (p->same_losses && p->same_weights) return "yes";
    const char *tensor = p->tensor ? pool_printf(c->pool, ", first tensor %s", p->tensor) : "";
    const char *end = p->same_weights ? ", but the same weights at the end" : tensor;
    const char *words = p->same_losses ? pool_printf(c->pool, "no: the same losses, but other weights%s", tensor)
                        : p->step      ? pool_printf(c->pool, "no: step %lld, %.9g beside %.9g%s", (long long)p->step,
                                                     p->loss[0], p->loss[1], end)
                                       : pool_printf(c->pool, "no, but in each step that both have%s", end);
    return words ? words : "no";
}

/* ---- why there is no verdict ---- */

/* The pair without a verdict whose runs are copies (or are not), or that has no numbers; -1: none. */
static int untested(const struct compared *c, bool judged, bool copies) {
    for (int i = 0; i < c->x->npairs; i++) {
        const struct compared_pair *p = &c->pair[i];
        bool fewer = p->samples[0] < c->cell[p->cell[0]].nruns || p->samples[1] < c->cell[p->cell[1]].nruns;
        if (p->verdict == VERDICT_UNTESTED && p->judged == judged && (!judged || fewer == copies)) return i;
    }
    return -1;
}

static const char *words_of_copies(const struct compared *c, const struct compared_pair *p) {
    const struct experiment *x = c->x;
    bool seeds = false;
    for (int a = 1; a < x->naxes; a++) seeds |= !strcmp(x->axis[a].key, "seed");
    int side = p->samples[1] < p->samples[0], n = p->samples[side];
    int runs = c->cell[p->cell[side]].nruns;
    return pool_printf(c->pool,
                       "no verdict on %s: runs that end in the same weights are copies of one training and count "
                       "as one (here %d run%s as %d), too few to tell a difference from the luck of a seed; %s "
                       "see "
                       "in how many seeds it has the same sign",
                       x->measure[0].name, runs, runs == 1 ? "" : "s", n,
                       seeds ? "each seed is a row of its own, and rows are not put together in one test:"
                             : "train each side with several (matrix: {..., seed: [0, 1, 2, 3, 4]}) and");
}

const char *compare_untested(const struct compared *c) {
    const struct experiment *x = c->x;
    int copies = untested(c, true, true), few = untested(c, true, false);
    const char *text = "";
    if (copies >= 0)
        text = words_of_copies(c, &c->pair[copies]);
    else if (few >= 0)
        text = pool_printf(c->pool, "%d run%s a side: fewer than %d allow no verdict (%s)", x->repeats,
                           x->repeats == 1 ? "" : "s", EXPERIMENT_LEAST_RUNS,
                           !*c->folder                          ? "engine compare EXPERIMENT or --modes runs them"
                           : x->repeats < EXPERIMENT_LEAST_RUNS ? "--repeats auto takes enough"
                                                                : "some are missing");
    else if (untested(c, false, false) >= 0)
        text =
            pool_printf(c->pool, "no verdict on %s where runs are missing or have no such number", x->measure[0].name);
    return text ? text : "";
}

static const char *side_name(const struct compared *c, int cell) {
    return c->x->axis[0].label[c->x->cell[cell].at[0]];
}

/* Of one side against A. */
static const char *sentence_of(const struct compared *c, int side) {
    static const char *const order[] = {"faster", "less",         "better", "slower",  "more",
                                        "worse",  "inconclusive", "same",   "untested"};
    const struct experiment *x = c->x;
    int total = 0;
    const char *text = "";
    for (int i = 0; i < x->npairs; i++) total += x->cell[x->pair[i].cell[1]].at[0] == side;
    for (size_t w = 0; w < sizeof order / sizeof *order && text; w++) {
        int count = 0;
        for (int i = 0; i < x->npairs; i++)
            count += x->cell[x->pair[i].cell[1]].at[0] == side && !strcmp(compare_verdict(c, &c->pair[i]), order[w]);
        if (count && total == 1) return pool_printf(c->pool, "%s", order[w]);
        if (count) text = pool_printf(c->pool, "%s%s%s in %d", text, *text ? ", " : "", order[w], count);
    }
    return text && *text ? pool_printf(c->pool, "%s of %d", text, total) : "not measured";
}

const char *compare_sentence(const struct compared *c) {
    const char *text = "";
    const struct experiment_axis *axis = &c->x->axis[0];
    for (int side = 1; side < axis->count && text; side++)
        text = pool_printf(c->pool, "%s%s%s against %s, %s: %s", text, *text ? "; " : "", axis->label[side],
                           axis->label[0], c->x->measure[0].name, sentence_of(c, side));
    return text ? text : "";
}

/* ---- the model ---- */

/* The reasons of the cells that nothing predicts: of one of them, where they are several. */
static const char *silence(const struct compared *c) {
    const char *why = NULL;
    bool several = false;
    for (int i = 0; i < c->x->ncells; i++) {
        const struct compared_prediction *p = &c->cell[i].predicted;
        if (!p->why || p->from == i) continue;
        several |= why && strcmp(why, p->why) != 0;
        if (!why) why = p->why;
    }
    return why ? pool_printf(c->pool, "%s%s", why, several ? ", and such" : "") : "";
}

static const char *accuracy(const struct compared *c) {
    const struct compared_model *m = &c->model;
    int from = 0;
    while (c->cell[from].predicted.why) from++;
    const char *source = c->x->cell[c->cell[from].predicted.from].label;
    const char *of =
        m->sources == 1 ? pool_printf(c->pool, "the step of '%s' alone", source) : "the cells of the fewest devices";
    return pool_printf(c->pool,
                       "%d step time%s predicted from %s: off by %.1f %% in the median, %.1f %% too "
                       "%s at worst ('%s')",
                       m->cells, m->cells == 1 ? "" : "s", of ? of : "", 100 * m->median, 100 * fabs(m->worst),
                       m->worst < 0 ? "short" : "long", c->x->cell[m->worst_cell].label);
}

const char *compare_model(const struct compared *c) {
    const struct compared_model *m = &c->model;
    if (!c->predicted || (!m->cells && !m->silent)) return "";
    if (!m->cells) {
        const char *none = pool_printf(c->pool, "no step time is predicted: %s", silence(c));
        return none ? none : "";
    }
    const char *text = isfinite(m->median) ? accuracy(c) : "what is predicted has not run yet";
    if (text && m->silent) text = pool_printf(c->pool, "%s; not predicted: %d (%s)", text, m->silent, silence(c));
    return text ? text : "";
}

/* ---- grids ---- */

enum { COLUMNS = 24, MEASURE_TEXT = 96 };
struct grid {
    struct pool *pool;
    int columns, rows, room;
    const char **text; /* the first row is the heading */
};

__attribute__((format(printf, 2, 3))) static void put(struct grid *g, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *kept = pool_printf(g->pool, "%s", text);
    if (g->columns < COLUMNS) g->text[g->rows * COLUMNS + g->columns++] = kept ? kept : "";
}

static const char *number_text(const struct measure *m, double v, char out[32]) {
    if (!isfinite(v)) return "-";
    if (!strcmp(m->unit, "bytes")) return text_of_bytes(v, out);
    snprintf(out, 32, fabs(v) < 1e6 ? "%.4g" : "%.0f", v);
    return out;
}

static const char *cell_text(const struct compared *c, int cell, char out[MEASURE_TEXT]) {
    char number[32], around[32];
    const struct measure *m = &c->x->measure[0];
    const struct compared_cell *v = &c->cell[cell];
    if (!isfinite(v->spread)) return strcpy(out, number_text(m, v->median[0], number));
    double half = v->spread * v->median[0] / 2;
    if (!strcmp(m->unit, "bytes"))
        text_of_bytes(half, around);
    else
        snprintf(around, sizeof around, fabs(half) < 100 ? "%.2g" : "%.0f", half);
    snprintf(out, MEASURE_TEXT, "%s ± %s", number_text(m, v->median[0], number), around);
    return out;
}

/* The last word of a key, where no other axis ends in it, is enough to know it. */
static const char *axis_name(const struct experiment *x, int axis) {
    const char *key = x->axis[axis].key, *dot = strrchr(key, '.');
    for (int a = 0; a < x->naxes && dot; a++) {
        const char *other = strrchr(x->axis[a].key, '.');
        if (a != axis && !strcmp(other ? other + 1 : x->axis[a].key, dot + 1)) return key;
    }
    return dot ? dot + 1 : key;
}

static const char *speedup_text(double v, char out[32]) {
    snprintf(out, 32, v < 0.1 ? "%.2g" : "%.2f", v);
    return out;
}

/* The column is for verdicts on step times; where none is predicted, there is none. */
static bool has_model(const struct compared *c) {
    return c->predicted && c->model.cells && c->x->measure[0].kind == MEASURE_STEP_TIME;
}

static const char *model_text(const struct compared *c, int cell, char out[32]) {
    const struct compared_prediction *p = &c->cell[cell].predicted;
    if (p->from == cell) return "measured";
    if (p->why) return "-";
    snprintf(out, 32, "%.4g", p->step * 1e3);
    return out;
}

static void put_heading(const struct compared *c, struct grid *g, bool many, bool scaled) {
    const struct experiment *x = c->x;
    const char *unit = !strcmp(x->measure[0].unit, "bytes") ? "" : x->measure[0].unit;
    for (int a = 1; a < x->naxes; a++) put(g, "%s", axis_name(x, a));
    if (*c->folder)
        put(g, "A: %s %s", x->axis[0].label[0], unit);
    else
        put(g, "A %s", unit);
    if (many) put(g, "B is");
    if (*c->folder && !many)
        put(g, "B: %s %s", x->axis[0].label[1], unit);
    else
        put(g, "B %s", unit);
    put(g, "B against A [%g %%]", x->confidence * 100);
    put(g, "p (Holm)");
    put(g, "verdict");
    put(g, "same bits");
    if (scaled) put(g, "speed-up A / B");
    if (has_model(c)) put(g, "predicted A / B ms");
}

static void put_pair(const struct compared *c, const struct compared_pair *p, struct grid *g, bool many, bool scaled) {
    char text[MEASURE_TEXT], other[32];
    const struct experiment *x = c->x;
    const struct comparison *s = &p->statistics;
    const int *at = x->cell[p->cell[1]].at;
    for (int a = 1; a < x->naxes; a++) put(g, "%s", x->axis[a].label[at[a]]);
    put(g, "%s", cell_text(c, p->cell[0], text));
    if (many) put(g, "%s", side_name(c, p->cell[1]));
    put(g, "%s", cell_text(c, p->cell[1], text));
    bool verdict = p->verdict == VERDICT_FASTER || p->verdict == VERDICT_SLOWER;
    if (compare_has_interval(p))
        put(g, "%.3f× [%.3f, %.3f]", s->ratio, s->interval.low, s->interval.high);
    else if (p->judged)
        put(g, "%.3f×", s->ratio);
    else
        put(g, "-");
    if (p->verdict != VERDICT_UNTESTED)
        put(g, "%.2g", s->p_all);
    else
        put(g, "-");
    const char *who = side_name(c, p->cell[1]); /* "5ms slower" would be read as an amount */
    if (*who >= '0' && *who <= '9') who = "B";
    put(g, "%s%s%s", verdict ? who : "", verdict ? " " : "", compare_verdict(c, p));
    put(g, "%s", compare_bits(c, p));
    if (scaled)
        put(g, "%s / %s", speedup_text(c->cell[p->cell[0]].speedup, text),
            speedup_text(c->cell[p->cell[1]].speedup, other));
    if (has_model(c)) put(g, "%s / %s", model_text(c, p->cell[0], text), model_text(c, p->cell[1], other));
}

static bool make_grid(const struct compared *c, struct grid *g) {
    const struct experiment *x = c->x;
    bool many = x->axis[0].count > 2, scaled = false;
    *g = (struct grid){.pool = c->pool, .room = x->npairs + 1};
    g->text = pool_alloc(c->pool, sizeof *g->text * COLUMNS * (size_t)g->room);
    if (!g->text) return false;
    for (int i = 0; i < x->ncells; i++) scaled |= isfinite(c->cell[i].speedup);
    put_heading(c, g, many, scaled);
    int columns = g->columns;
    for (int i = 0; i < x->npairs; i++) {
        g->rows++, g->columns = 0;
        put_pair(c, &c->pair[i], g, many, scaled);
    }
    g->columns = columns, g->rows++;
    return true;
}

/* Characters, not bytes: ± and × are two bytes. */
static int width_of(const char *s) {
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static void print_grid(const struct grid *g, FILE *f) {
    int width[COLUMNS] = {0};
    for (int r = 0; r < g->rows; r++)
        for (int k = 0; k < g->columns; k++) {
            int w = width_of(g->text[r * COLUMNS + k]);
            if (w > width[k]) width[k] = w;
        }
    for (int r = 0; r < g->rows; r++)
        for (int k = 0; k < g->columns; k++) {
            const char *text = g->text[r * COLUMNS + k];
            bool last = k + 1 == g->columns;
            fprintf(f, "%s%*s", text, last ? 0 : width[k] - width_of(text) + 2, "");
            if (last) fputc('\n', f);
        }
}

static void print_rows(const struct grid *g, FILE *f) {
    for (int r = 0; r < g->rows; r++) {
        for (int k = 0; k < g->columns; k++) {
            fputs("| ", f);
            for (const char *t = g->text[r * COLUMNS + k]; *t; t++) {
                if (*t == '|') fputc('\\', f);
                fputc(*t, f);
            }
            fputc(' ', f);
        }
        fputs("|\n", f);
        for (int k = 0; r == 0 && k < g->columns; k++) fputs("|---", f);
        if (r == 0) fputs("|\n", f);
    }
}

/* ---- all ---- */

/* Of two runs that were there: which they are, and what a reader may not know of them. */
static void print_two(const struct compared *c, FILE *f) {
    const struct compared_pair *p = &c->pair[0];
    fprintf(f, "A is %s, B is %s; first %lld step%s left out, %s\n", c->x->cell[0].label, c->x->cell[1].label,
            (long long)c->x->warmup, c->x->warmup == 1 ? "" : "s", c->x->measure[0].name);
    for (int i = 0; i < p->ndiffers; i++)
        fprintf(f, "%s%s: %s, %s", i ? "; " : "they differ in ", p->differs[i].key, p->differs[i].a, p->differs[i].b);
    fputs(p->ndiffers ? "\n" : "their settings are the same\n", f);
}

static void print_title(const struct compared *c, FILE *f) {
    const struct experiment *x = c->x;
    if (!*c->folder) {
        print_two(c, f);
        return;
    }
    fprintf(f, "%s: %s scaling, %d interleaved run%s a cell, first %lld step%s left out, %s\n", x->name,
            x->weak ? "weak" : "strong", x->repeats, x->repeats == 1 ? "" : "s", (long long)x->warmup,
            x->warmup == 1 ? "" : "s", x->measure[0].name);
}

static void print_bits(const struct compared *c, FILE *f, const char *start) {
    int same = 0, held = 0, comparable = 0;
    for (int i = 0; i < c->x->npairs; i++) {
        const struct compared_pair *p = &c->pair[i];
        comparable += p->comparable, held += p->held;
        same += p->held && p->same_losses && p->same_weights;
    }
    fprintf(f, "%ssame losses and weights", start);
    if (held)
        fprintf(f, ", bit for bit: %s (%d of %d pairs%s)\n", same == held ? "yes" : "no", same, held,
                c->same_bits ? "; the same in all cells" : "");
    else if (comparable)
        fputs(": not known, since no pair has runs on both sides\n", f);
    else
        fprintf(f, ": '%s' changes what is computed, so they are not compared\n", c->x->axis[0].key);
}

static void print_model(const struct compared *c, FILE *f, const char *start) {
    const char *words = compare_model(c);
    if (*words) fprintf(f, "%smodel: %s\n", start, words);
}

static void print_doubts(const struct compared *c, FILE *f, const char *start) {
    const char *why = compare_untested(c);
    if (*why) fprintf(f, "%s%s\n", start, why);
    if (!c->complete) fprintf(f, "%swarning: not all runs are there\n", start);
    for (int i = 0; i < c->nwarnings; i++) fprintf(f, "%swarning: %s\n", start, c->warning[i]);
    for (int i = 0; i < c->x->ngates; i++)
        fprintf(f, "%sgate %s: %s\n", start,
                !c->gate[i].judged  ? "open"
                : c->gate[i].passed ? "passed"
                                    : "FAILED",
                c->gate[i].words);
}

void compare_table(const struct compared *c, FILE *f) {
    struct grid g;
    print_title(c, f);
    fputc('\n', f);
    if (make_grid(c, &g)) print_grid(&g, f);
    fprintf(f, "\n%s\n", compare_sentence(c));
    print_bits(c, f, "");
    print_model(c, f, "");
    print_doubts(c, f, "");
}

void compare_markdown(const struct compared *c, FILE *f) {
    struct grid g;
    fputs("# ", f);
    print_title(c, f);
    fputc('\n', f);
    if (make_grid(c, &g)) print_rows(&g, f);
    fprintf(f, "\n%s\n\n", compare_sentence(c));
    print_bits(c, f, "- ");
    print_model(c, f, "- ");
    print_doubts(c, f, "- ");
}
