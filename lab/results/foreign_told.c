#include "lab/results/foreign_told.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 1 << 22 };
static const double step_most = 9007199254740992; /* 2^53: whole numbers that a double tells apart */

void told_init(struct told *t) {
    *t = (struct told){.bytes = (double)NAN};
}

void told_fini(struct told *t) {
    free(t->row);
    told_init(t);
}

/* Whether one of the words is the name. */
static bool told_is_any(const char *words, const char *name, size_t n) {
    for (; *words; words += strspn(words, " ")) {
        size_t k = strcspn(words, " ");
        if (k == n && !memcmp(words, name, n)) return true;
        words += k;
    }
    return false;
}

int told_field_of(const char *name, size_t n) {
#define X(name, words) words,
    static const char *const words[TOLD_COUNT] = {TOLD_FIELDS(X)};
#undef X
    char plain[40];
    if (n >= sizeof plain) return -1;
    for (size_t i = 0; i < n; i++)
        plain[i] = isalnum((unsigned char)name[i]) ? (char)tolower((unsigned char)name[i]) : '_';
    for (int f = 0; f < TOLD_COUNT; f++)
        if (told_is_any(words[f], plain, n)) return f;
    return -1;
}

enum error told_add(struct told *t, double step, struct told_row **out) {
    if (!(step >= 0 && step <= step_most && step == floor(step)))
        return FAIL(ERR_DATA, "step %g is not a step number", step);
    if (t->n == ROWS_MOST) return FAIL(ERR_DATA, "more than %d lines of steps", ROWS_MOST);
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 256;
        struct told_row *more = realloc(t->row, room * sizeof *more);
        if (!more) return FAIL(ERR_MEMORY, "no memory for %zu lines of steps", room);
        t->row = more, t->room = room;
    }
    struct told_row *r = *out = &t->row[t->n];
    r->step = (int64_t)step, r->order = (int64_t)t->n++;
    for (int f = 0; f < TOLD_COUNT; f++) r->of[f] = (double)NAN;
    return ERR_NONE;
}

void told_put(struct told_row *r, int field, double value) {
    bool loss = field == TOLD_LOSS || field == TOLD_VAL_LOSS;
    r->of[field] = isfinite(value) ? value : loss ? (double)INFINITY : (double)NAN;
}

bool told_is_val(const struct told_row *r) {
    for (int i = TOLD_VAL_LOSS; i < TOLD_VAL_SAMPLES; i++)
        if (!isnan(r->of[i])) return true;
    return false;
}

bool told_is_step(const struct told_row *r) {
    return !isnan(r->of[TOLD_LOSS]) || !isnan(r->of[TOLD_MS]) || (!isnan(r->of[TOLD_TIME]) && !told_is_val(r));
}

static int told_by_step(const void *a, const void *b) {
    const struct told_row *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static enum error told_rows_merge(struct told_row *to, const struct told_row *from) {
    bool times = false; /* a step's time stays beside that of its validation */
    for (int f = 0; f < TOLD_COUNT; f++) {
        if (isnan(from->of[f]) || (f == TOLD_TIME && !isnan(to->of[f]))) continue;
        times |= f == TOLD_LOSS || f == TOLD_MS;
        if (!isnan(to->of[f]) && f != TOLD_EPOCH && f != TOLD_LR && f != TOLD_SAMPLES)
            return FAIL(
                ERR_DATA,
                "step %lld is reported twice\nnumber the steps through all epochs, and let only one rank report them",
                (long long)to->step);
        to->of[f] = from->of[f];
    }
    if (times && !isnan(from->of[TOLD_TIME])) to->of[TOLD_TIME] = from->of[TOLD_TIME];
    return ERR_NONE;
}

enum error told_settle(struct told *t) {
    size_t n = 0;
    if (t->n == 0) return ERR_NONE;
    qsort(t->row, t->n, sizeof *t->row, told_by_step);
    for (size_t i = 1; i < t->n; i++) {
        if (t->row[i].step == t->row[n].step)
            TRY(told_rows_merge(&t->row[n], &t->row[i]));
        else
            t->row[++n] = t->row[i];
    }
    t->n = n + 1;
    int64_t shift = t->row[0].step == 0 && told_is_step(&t->row[0]);
    for (size_t i = 0; i < t->n; i++) t->row[i].step += shift;
    return ERR_NONE;
}
