#include "lab/gate.h"

#include "engine/base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum relation { IS_GE, IS_LE, IS_EQ, IS_NE, IS_GT, IS_LT, RELATIONS };
static const char *const op_texts[RELATIONS] = {">=", "<=", "==", "!=", ">", "<"};
enum { CONDITIONS = 8 };
struct term {
    double factor;
    const struct measure *measure; /* NULL: the factor alone */
    int side;
};
struct gate {
    struct term term[2];
    enum relation op;
    int nconditions;
    struct condition {
        int axis;
        enum relation op;
        char value[EXPERIMENT_LABEL];
    } condition[CONDITIONS];
};

/* ---- reading ---- */

struct reader {
    const struct experiment *x;
    const char *at;
    char wrong[256]; /* what; "" when nothing is */
};

static void skip(struct reader *r) {
    while (isspace((unsigned char)*r->at)) r->at++;
}

static void refuse(struct reader *r, const char *what, const char *at, int n) {
    if (!*r->wrong) snprintf(r->wrong, sizeof r->wrong, "%s '%.*s'", what, n < 80 ? n : 80, at);
}

static enum relation read_op(struct reader *r) {
    skip(r);
    for (int i = 0; i < RELATIONS; i++)
        if (!strncmp(r->at, op_texts[i], strlen(op_texts[i]))) {
            r->at += strlen(op_texts[i]);
            return (enum relation)i;
        }
    refuse(r, "one of > >= < <= == != is wanted at", r->at, (int)strlen(r->at));
    return IS_EQ;
}

static int side_of(const struct experiment *x, const char *text, int n) {
    for (int i = 0; i < x->axis[0].count; i++)
        if (strlen(x->axis[0].label[i]) == (size_t)n &&
            !memcmp(x->axis[0].label[i], text, (size_t)n))
            return i;
    return n == 1 && *text == 'A' ? 0 : n == 1 && *text == 'B' && x->axis[0].count == 2 ? 1 : -1;
}

static const struct measure *measure_named(const struct experiment *x, const char *text, int n) {
    for (int i = 0; i < x->nmeasures; i++)
        if (strlen(x->measure[i].name) == (size_t)n && !memcmp(x->measure[i].name, text, (size_t)n))
            return &x->measure[i];
    return measure_find(text, n);
}

/* SIDE.METRIC: a side may hold points itself, so it is what stands before a name of a measure. */
static void read_quantity(struct reader *r, struct term *t) {
    const char *from = r->at;
    int n = (int)strcspn(from, " \t*<>=!@"), dot = -1;
    for (int i = n - 1; i > 0 && dot < 0; i--)
        if (from[i] == '.' && measure_named(r->x, from + i + 1, n - i - 1)) dot = i;
    r->at += n;
    if (dot < 0) {
        refuse(r, "SIDE.METRIC is wanted, not", from, n);
        return;
    }
    t->measure = measure_named(r->x, from + dot + 1, n - dot - 1);
    t->side = side_of(r->x, from, dot);
    if (t->side < 0) refuse(r, "the first axis has no value", from, dot);
}

static void read_term(struct reader *r, struct term *t) {
    skip(r);
    char *end;
    *t = (struct term){.factor = 1};
    double number = isdigit((unsigned char)*r->at) ? strtod(r->at, &end) : 0;
    bool counts = isdigit((unsigned char)*r->at) &&
                  (isspace((unsigned char)*end) || !*end || strchr("*<>=!@", *end));
    if (!counts) {
        read_quantity(r, t);
        return;
    }
    t->factor = number;
    r->at = end;
    skip(r);
    if (*r->at != '*') return;
    r->at++;
    skip(r);
    read_quantity(r, t);
}

static void read_condition(struct reader *r, struct condition *c) {
    skip(r);
    const char *key = r->at;
    int n = (int)strcspn(key, " \t<>=!");
    c->axis = -1;
    for (int a = 0; a < r->x->naxes; a++)
        if (strlen(r->x->axis[a].key) == (size_t)n && !memcmp(r->x->axis[a].key, key, (size_t)n))
            c->axis = a;
    if (c->axis < 0) refuse(r, "the matrix has no axis", key, n);
    r->at += n;
    c->op = read_op(r);
    skip(r);
    n = (int)strcspn(r->at, ",");
    int used = n;
    while (used > 0 && isspace((unsigned char)r->at[used - 1])) used--;
    snprintf(c->value, sizeof c->value, "%.*s", used, r->at);
    r->at += n;
    if (!used) refuse(r, "a value is wanted behind", key, (int)(r->at - key));
}

static bool read_gate(const struct experiment *x, const char *text, struct gate *out,
                      struct reader *r) {
    *r = (struct reader){.x = x, .at = text};
    *out = (struct gate){0};
    read_term(r, &out->term[0]);
    out->op = read_op(r);
    read_term(r, &out->term[1]);
    skip(r);
    bool more = *r->at == '@';
    while (more && !*r->wrong && out->nconditions < CONDITIONS) {
        r->at++;
        read_condition(r, &out->condition[out->nconditions++]);
        more = *r->at == ',';
    }
    if (*r->at) refuse(r, "not understood:", r->at, (int)strlen(r->at));
    if (!out->term[0].measure)
        refuse(r, "SIDE.METRIC is wanted first, not", text, (int)strlen(text));
    return !*r->wrong;
}

/* ---- where it stands ---- */

static bool holds(double a, enum relation op, double b) {
    switch (op) {
    case IS_GE:
        return a >= b;
    case IS_LE:
        return a <= b;
    case IS_EQ:
        return a == b;
    case IS_NE:
        return a != b;
    case IS_GT:
        return a > b;
    default:
        return a < b;
    }
}

/* "cpu:4" is 4, "1Gbit" a rate, "off" and "unlimited" more than any. */
static bool number_of(const char *text, double *out) {
    int64_t bytes;
    const char *colon = strrchr(text, ':');
    if (!strcmp(text, "off") || !strcmp(text, "unlimited")) return *out = INFINITY, true;
    if (text_real(colon ? colon + 1 : text, out) || text_rate(text, out)) return true;
    if (text_bytes(text, &bytes)) return *out = (double)bytes, true;
    return text_seconds(text, out);
}

static bool is_met(const struct experiment *x, const struct condition *c, int cell) {
    const char *mine = x->axis[c->axis].label[x->cell[cell].at[c->axis]];
    double a, b;
    bool same = !strcmp(mine, c->value);
    if (number_of(mine, &a) && number_of(c->value, &b)) return holds(a, c->op, b);
    return c->op == IS_EQ ? same : c->op == IS_NE && !same;
}

/* The cells of both terms at the place of 'cell', which is one of its first side's. */
static bool stands(const struct experiment *x, const struct gate *g, int cell, int out[2]) {
    if (x->cell[cell].at[0] != g->term[0].side) return false;
    for (int i = 0; i < g->nconditions; i++)
        if (!is_met(x, &g->condition[i], cell)) return false;
    out[0] = cell;
    out[1] = g->term[1].measure ? experiment_beside(x, cell, g->term[1].side) : cell;
    return out[1] >= 0;
}

enum error gate_check(const struct experiment *x, int gate, struct config_errors *e) {
    struct gate g;
    struct reader r;
    const struct experiment_gate *at = &x->gate[gate];
    int cells[2];
    bool anywhere = false;
    if (!read_gate(x, at->text, &g, &r)) {
        config_error(
            e, at->place, false,
            "gate '%s': %s\nas in 'ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4'",
            at->text, r.wrong);
        return ERR_CONFIG;
    }
    for (int i = 0; i < x->ncells; i++) anywhere |= stands(x, &g, i, cells);
    if (anywhere) return ERR_NONE;
    config_error(e, at->place, false,
                 "gate '%s' holds for no cell of the matrix: it can never fail", at->text);
    return ERR_CONFIG;
}

/* ---- judging ---- */

static double value_of(const struct compared *c, const struct term *t, int cell) {
    double v[STATISTICS_RUNS];
    const struct compared_cell *runs = &c->cell[cell];
    if (!t->measure) return t->factor;
    for (int i = 0; i < runs->nruns; i++)
        v[i] = measure_of(t->measure, &runs->run[i].result, c->x->warmup);
    for (int i = 0; i < runs->nruns; i++)
        if (isnan(v[i])) return v[i];
    return runs->nruns ? t->factor * statistics_median(v, runs->nruns) : (double)NAN;
}

void gate_judge(const struct compared *c, int gate, struct compared_gate *out) {
    const char *text = c->x->gate[gate].text;
    struct gate g;
    struct reader r;
    int cells[2], places = 0;
    *out = (struct compared_gate){.judged = true, .passed = true, .words = text};
    if (!read_gate(c->x, text, &g, &r)) return;
    for (int i = 0; i < c->x->ncells; i++) {
        if (!stands(c->x, &g, i, cells)) continue;
        double a = value_of(c, &g.term[0], cells[0]), b = value_of(c, &g.term[1], cells[1]);
        places++;
        if (isnan(a) || isnan(b)) {
            out->judged = false;
        } else if (holds(a, g.op, b)) {
            out->passed = false;
            out->words = pool_printf(c->pool, "%s: %s has %.6g, the limit is %.6g", text,
                                     c->x->cell[cells[0]].label, a, b);
            return;
        }
    }
    if (!out->judged)
        out->words =
            pool_printf(c->pool, "%s: not judged, runs or their numbers are missing", text);
    else
        out->words =
            pool_printf(c->pool, "%s: no, in %d place%s", text, places, places == 1 ? "" : "s");
}
