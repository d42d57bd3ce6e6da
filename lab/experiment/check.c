#include "lab/experiment/check.h"

#include "engine/base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_texts[RELATIONS] = {">=", "<=", "==", "!=", ">", "<"};

/* ---- reading ---- */

struct check_reader {
    const char *at;
    char *wrong; /* what; "" when nothing is */
};

static void check_blanks_skip(struct check_reader *r) {
    while (isspace((unsigned char)*r->at)) r->at++;
}

static void check_refuse(struct check_reader *r, const char *what, const char *at, int n) {
    if (!*r->wrong) snprintf(r->wrong, CHECK_WRONG, "%s '%.*s'", what, n < 80 ? n : 80, at);
}

static enum relation check_read_op(struct check_reader *r) {
    check_blanks_skip(r);
    for (int i = 0; i < RELATIONS; i++)
        if (!strncmp(r->at, op_texts[i], strlen(op_texts[i]))) {
            r->at += strlen(op_texts[i]);
            return (enum relation)i;
        }
    check_refuse(r, "one of > >= < <= == != is expected at", r->at, (int)strlen(r->at));
    return IS_EQ;
}

static void check_text_keep(struct check_reader *r, char out[CHECK_TEXT], const char *from, int n) {
    if (n >= CHECK_TEXT) check_refuse(r, "too long:", from, n);
    snprintf(out, CHECK_TEXT, "%.*s", n, from);
}

/* The length of the quantity that begins there; text in [brackets] may hold operators. */
static int check_quantity_length(const char *from) {
    int n = (int)strcspn(from, " \t*<>=!@[");
    if (from[n] != '[') return n;
    n += (int)strcspn(from + n, "]");
    return n + (int)strcspn(from + n, " \t*<>=!@");
}

static void check_read_quantity(struct check_reader *r, struct check_term *t) {
    int n = check_quantity_length(r->at);
    if (n == 0) check_refuse(r, "a quantity is expected at", r->at, (int)strlen(r->at));
    check_text_keep(r, t->quantity, r->at, n);
    r->at += n;
    check_blanks_skip(r);
    char sign = *r->at, *end;
    if ((sign != '+' && sign != '-') || !isspace((unsigned char)r->at[1])) return;
    r->at++;
    check_blanks_skip(r);
    t->plus = isdigit((unsigned char)*r->at) ? strtod(r->at, &end) : (double)NAN;
    if (isnan(t->plus)) {
        check_refuse(r, "a number is expected at", r->at, (int)strlen(r->at));
        return;
    }
    if (sign == '-') t->plus = -t->plus;
    r->at = end;
}

static void check_read_term(struct check_reader *r, struct check_term *t) {
    check_blanks_skip(r);
    char *end;
    *t = (struct check_term){.factor = 1};
    bool digit = isdigit((unsigned char)r->at[*r->at == '-']);
    double number = digit ? strtod(r->at, &end) : 0;
    bool counts = digit && (isspace((unsigned char)*end) || !*end || strchr("*<>=!@", *end));
    if (!counts) {
        check_read_quantity(r, t);
        return;
    }
    t->factor = number;
    r->at = end;
    check_blanks_skip(r);
    if (*r->at != '*') return;
    r->at++;
    check_blanks_skip(r);
    check_read_quantity(r, t);
}

static void check_read_condition(struct check_reader *r, struct check_condition *c) {
    check_blanks_skip(r);
    const char *key = r->at;
    int n = (int)strcspn(key, " \t<>=!");
    check_text_keep(r, c->axis, key, n);
    r->at += n;
    c->op = check_read_op(r);
    check_blanks_skip(r);
    n = (int)strcspn(r->at, ",");
    int used = n;
    while (used > 0 && isspace((unsigned char)r->at[used - 1])) used--;
    check_text_keep(r, c->value, r->at, used);
    r->at += n;
    if (!used) check_refuse(r, "a value is expected after", key, (int)(r->at - key));
}

bool check_read(const char *text, struct check *out, char wrong[CHECK_WRONG]) {
    struct check_reader r = {text, wrong};
    *wrong = '\0';
    *out = (struct check){0};
    check_read_term(&r, &out->term[0]);
    out->op = check_read_op(&r);
    check_read_term(&r, &out->term[1]);
    check_blanks_skip(&r);
    bool more = *r.at == '@';
    while (more && !*wrong && out->nconditions < CHECK_CONDITIONS) {
        r.at++;
        check_read_condition(&r, &out->condition[out->nconditions++]);
        more = *r.at == ',';
    }
    if (*r.at) check_refuse(&r, "not understood:", r.at, (int)strlen(r.at));
    return !*wrong;
}

/* ---- relations ---- */

static bool check_relation_holds(double a, enum relation op, double b) {
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

static bool check_number_of(const char *text, double *out) {
    int64_t bytes;
    const char *colon = strrchr(text, ':');
    if (!strcmp(text, "off") || !strcmp(text, "unlimited")) return *out = INFINITY, true;
    if (text_real(colon ? colon + 1 : text, out) || text_rate(text, out)) return true;
    if (text_bytes(text, &bytes)) return *out = (double)bytes, true;
    return text_seconds(text, out);
}

bool relation_of_words(const char *a, enum relation op, const char *b) {
    double x, y;
    bool same = !strcmp(a, b);
    if (check_number_of(a, &x) && check_number_of(b, &y)) return check_relation_holds(x, op, y);
    return op == IS_EQ ? same : op == IS_NE && !same;
}

/* -1: none of them belong together. */
static int check_texts_hold(const struct check_value *a, enum relation op, const struct check_value *b) {
    int pairs = 0, good = 0;
    for (int i = 0; i < a->ntexts; i++)
        for (int k = 0; k < b->ntexts; k++) {
            if (a->of[i] != b->of[k] && a->of[i] && b->of[k]) continue;
            pairs++, good += (strcmp(a->text[i], b->text[k]) == 0) == (op == IS_EQ);
        }
    return pairs ? good == pairs : -1;
}

int check_holds(const struct check_value *a, enum relation op, const struct check_value *b) {
    bool texts = a->ntexts > 0;
    if (texts != (b->ntexts > 0)) return -1;
    if (texts && op != IS_EQ && op != IS_NE) return -1;
    if (texts) return check_texts_hold(a, op, b);
    if (isnan(a->number) || isnan(b->number)) return -1;
    return check_relation_holds(a->number, op, b->number);
}
