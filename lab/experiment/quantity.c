#include "lab/experiment/quantity.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const words[] = {"",     "speedup", "efficiency", "spread",  "predicted", "effect", "low",
                                    "high", "p",       "power",      "weights", "losses",    "verdict"};
enum { WORDS = sizeof words / sizeof *words };

__attribute__((format(printf, 2, 3))) static bool refuse(char wrong[CHECK_WRONG], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(wrong, CHECK_WRONG, fmt, ap);
    va_end(ap);
    return false;
}

static bool quantity_is_text(const char *name, const char *text, int n) {
    return strlen(name) == (size_t)n && !memcmp(name, text, (size_t)n);
}

/* ---- reading ---- */

static bool find_metric(const struct experiment *x, const char *text, struct quantity *q) {
    int n = (int)strlen(text);
    for (int i = 1; i < WORDS; i++)
        if (!strcmp(words[i], text)) return q->kind = (enum quantity_kind)i, true;
    const struct measure *m = measure_find(text, n);
    for (int i = 0; i < x->nmeasures; i++)
        if (!strcmp(x->measure[i].name, text)) m = &x->measure[i];
    if (m) q->kind = QUANTITY_MEASURE, q->measure = *m;
    return m != NULL;
}

/* A value goes before a letter that it may be. */
static int quantity_side_of(const struct experiment *x, const char *text, int n) {
    for (int i = 0; i < x->axis[0].count; i++)
        if (quantity_is_text(x->axis[0].label[i], text, n)) return i;
    int letter = n == 1 && isupper((unsigned char)*text) ? *text - 'A' : -1;
    return letter < x->axis[0].count ? letter : -1;
}

/* The last one of that name, if it is the only one or has it in full. */
static int quantity_axis_of(const struct experiment *x, const char *text, int n) {
    int found = -1, count = 0;
    for (int a = 0; a < x->naxes; a++) {
        const char *key = x->axis[a].key, *dot = strrchr(key, '.');
        if (quantity_is_text(key, text, n)) return a;
        if (dot && quantity_is_text(dot + 1, text, n)) found = a, count++;
    }
    return count == 1 ? found : -1;
}

/* The number of the axis' value that is text[0..n); -1: it has none. */
static int quantity_axis_value(const struct experiment_axis *axis, const char *text, int n) {
    for (int i = 0; i < axis->count; i++)
        if (quantity_is_text(axis->label[i], text, n)) return i;
    return -1;
}

/* "devices=cpu:8,bandwidth=1Gbit" */
static bool quantity_read_fixed(const struct experiment *x, const char *text, int n, struct quantity *q,
                                char wrong[CHECK_WRONG]) {
    const char *end = text + n;
    while (text < end) {
        while (text < end && *text == ' ') text++;
        int length = (int)strcspn(text, ",]"), key = (int)strcspn(text, "=,]");
        int axis = quantity_axis_of(x, text, key);
        if (axis < 0) return refuse(wrong, "the matrix has no axis '%.*s'", key, text);
        if (key == length) return refuse(wrong, "'%.*s' is wanted as AXIS=VALUE", length, text);
        int value = quantity_axis_value(&x->axis[axis], text + key + 1, length - key - 1);
        if (value < 0)
            return refuse(wrong, "'%s' has no value '%.*s'", x->axis[axis].key, length - key - 1, text + key + 1);
        q->at[axis] = value;
        text += length + 1;
    }
    return true;
}

static bool quantity_is_answer(enum quantity_kind kind) {
    return (kind >= QUANTITY_EFFECT && kind <= QUANTITY_POWER) || kind == QUANTITY_VERDICT;
}

/* The place where the metric of an answer begins, which is one of the experiment's; without one it is the first metric, and the answer is all that follows the side. */
static int quantity_find_asked(const struct experiment *x, const char *text, int from, int dot, struct quantity *q) {
    for (int i = from; i < dot; i++)
        for (int m = 0; m < x->nmeasures && text[i] == '.'; m++)
            if (quantity_is_text(x->measure[m].name, text + i + 1, dot - i - 1)) return q->asked = m, i;
    return dot;
}

/* A side may hold points itself, so it is what stands before a name of a metric. */
bool quantity_read(const struct experiment *x, const char *text, struct quantity *out, char wrong[CHECK_WRONG]) {
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    int n = (int)strlen(text), from = close ? (int)(close - text) : 0, dot = -1;
    *out = (struct quantity){0};
    for (int a = 0; a < EXPERIMENT_AXES; a++) out->at[a] = -1;
    for (int i = n - 1; i > from && dot < 0; i--)
        if (text[i] == '.' && find_metric(x, text + i + 1, out)) dot = i;
    if (dot < 0) return refuse(wrong, "SIDE.METRIC is wanted, not '%.80s'", text);
    if (quantity_is_answer(out->kind)) dot = quantity_find_asked(x, text, from, dot, out);
    if (close && dot != close + 1 - text) return refuse(wrong, "a metric is wanted after '%.*s'", from + 1, text);
    int side = open && close ? (int)(open - text) : dot;
    out->at[0] = quantity_side_of(x, text, side);
    if (out->at[0] < 0) return refuse(wrong, "the first axis has no value '%.*s'", side < 80 ? side : 80, text);
    return !close || quantity_read_fixed(x, open + 1, (int)(close - open - 1), out, wrong);
}

bool quantity_timed(const struct experiment *x, const struct quantity *q) {
    if (q->kind == QUANTITY_MEASURE) return measure_timed(&q->measure);
    if (quantity_is_answer(q->kind)) return measure_timed(&x->measure[q->asked]);
    return q->kind <= QUANTITY_PREDICTED;
}

bool quantity_conditions(const struct experiment *x, const struct check *check, int axis[CHECK_CONDITIONS],
                         char wrong[CHECK_WRONG]) {
    for (int i = 0; i < check->nconditions; i++) {
        const char *key = check->condition[i].axis;
        axis[i] = quantity_axis_of(x, key, (int)strlen(key));
        if (axis[i] < 0) return refuse(wrong, "the matrix has no axis '%.80s'", key);
    }
    return true;
}

/* ---- places ---- */

int quantity_cell(const struct experiment *x, const struct quantity *q, int place) {
    for (int i = 0; i < x->ncells; i++) {
        bool mine = true;
        for (int a = 0; a < x->naxes; a++) {
            int at = q->at[a] >= 0 ? q->at[a] : place >= 0 ? x->cell[place].at[a] : -1;
            if (at < 0 && x->axis[a].count == 1) at = 0;
            mine &= x->cell[i].at[a] == at;
        }
        if (mine) return i;
    }
    return -1;
}

bool quantity_stands(const struct experiment *x, const struct quantity *q, const struct check *check,
                     const int axis[CHECK_CONDITIONS], int cell) {
    const int *at = x->cell[cell].at;
    for (int a = 0; a < x->naxes; a++)
        if (q->at[a] >= 0 && q->at[a] != at[a]) return false;
    for (int i = 0; i < check->nconditions; i++) {
        const char *mine = x->axis[axis[i]].label[at[axis[i]]];
        if (!relation_of_words(mine, check->condition[i].op, check->condition[i].value)) return false;
    }
    return true;
}
