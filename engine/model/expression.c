/* One function climbs the table of operators by their level; what it reads between them are
 * primaries. The first thing that is wrong stops all of it. */
#include "engine/model/expression.h"

#include "engine/base/real.h"
#include "engine/base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 32, WORD_MAX = 64 };

struct value {
    bool is_word;
    double number;
    char word[WORD_MAX];
};
struct reader {
    const char *at;
    const struct expression_names *names;
    int depth;
    bool failed, missing;
    char *message;
};

static void reader_fail(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void reader_fail(struct reader *r, const char *fmt, ...) {
    va_list ap;
    if (r->failed) return;
    r->failed = true;
    va_start(ap, fmt);
    vsnprintf(r->message, EXPRESSION_TEXT, fmt, ap);
    va_end(ap);
}

/* ---- operators ---------------------------------------------------------------------------- */

enum operator_kind {
    OPERATOR_OR,
    OPERATOR_AND,
    OPERATOR_EQUAL,
    OPERATOR_UNEQUAL,
    OPERATOR_AT_MOST,
    OPERATOR_AT_LEAST,
    OPERATOR_LESS,
    OPERATOR_MORE,
    OPERATOR_PLUS,
    OPERATOR_MINUS,
    OPERATOR_TIMES,
    OPERATOR_BY,
    OPERATOR_REST,
    OPERATOR_POWER,
    OPERATORS
};
static const struct {
    const char *text;
    int level;
} operators[OPERATORS] = {
    [OPERATOR_OR] = {"or", 1},      [OPERATOR_AND] = {"and", 2},    [OPERATOR_EQUAL] = {"==", 3},
    [OPERATOR_UNEQUAL] = {"!=", 3}, [OPERATOR_AT_MOST] = {"<=", 3}, [OPERATOR_AT_LEAST] = {">=", 3},
    [OPERATOR_LESS] = {"<", 3},     [OPERATOR_MORE] = {">", 3},     [OPERATOR_PLUS] = {"+", 4},
    [OPERATOR_MINUS] = {"-", 4},    [OPERATOR_TIMES] = {"*", 5},    [OPERATOR_BY] = {"/", 5},
    [OPERATOR_REST] = {"%", 5},     [OPERATOR_POWER] = {"^", 6},
};

static void skip_spaces(struct reader *r) {
    while (*r->at == ' ') r->at++;
}

/* The operator at the reader's place, not taken yet; OPERATORS: none. */
static enum operator_kind operator_next(struct reader *r) {
    skip_spaces(r);
    for (int i = 0; i < OPERATORS; i++)
        if (!strncmp(r->at, operators[i].text, strlen(operators[i].text))) return (enum operator_kind)i;
    return OPERATORS;
}

static double numbers_compute(enum operator_kind kind, double a, double b) {
    switch (kind) {
    case OPERATOR_OR:
        return a != 0 || b != 0;
    case OPERATOR_AND:
        return a != 0 && b != 0;
    case OPERATOR_AT_MOST:
        return a <= b;
    case OPERATOR_AT_LEAST:
        return a >= b;
    case OPERATOR_LESS:
        return a < b;
    case OPERATOR_MORE:
        return a > b;
    case OPERATOR_PLUS:
        return a + b;
    case OPERATOR_MINUS:
        return a - b;
    case OPERATOR_TIMES:
        return a * b;
    case OPERATOR_BY:
        return a / b;
    case OPERATOR_REST:
        return fmod(a, b);
    default:
        return real_pow(a, b);
    }
}

static void value_apply(struct reader *r, enum operator_kind kind, struct value *a, const struct value *b) {
    if (kind == OPERATOR_EQUAL || kind == OPERATOR_UNEQUAL) {
        bool equal = a->is_word == b->is_word && (a->is_word ? !strcmp(a->word, b->word) : a->number == b->number);
        *a = (struct value){.number = equal == (kind == OPERATOR_EQUAL)};
    } else if (a->is_word || b->is_word) {
        reader_fail(r, "'%s' takes numbers, and '%s' is a word", operators[kind].text, a->is_word ? a->word : b->word);
    } else {
        a->number = numbers_compute(kind, a->number, b->number);
        if (!isfinite(a->number)) reader_fail(r, "the result of '%s' is not a number", operators[kind].text);
    }
}

/* ---- values ------------------------------------------------------------------------------- */

static struct value read_level(struct reader *r, int level);

size_t word_length(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

static struct value value_of(struct reader *r, const char *text) {
    struct value v = {0};
    if (text_real(text, &v.number)) return v;
    v.is_word = true;
    if (snprintf(v.word, sizeof v.word, "%s", text) >= (int)sizeof v.word)
        reader_fail(r, "'%.20s...' is too long to be compared", text);
    return v;
}

static struct value read_name(struct reader *r) {
    const char *name = ++r->at;
    size_t n = word_length(name);
    r->at += n;
    const char *text = n ? r->names->find(r->names->user, name, n) : NULL;
    if (text) return value_of(r, text);
    if (!r->failed) r->missing = n > 0;
    reader_fail(r, n ? "nothing is named '%.*s'" : "a parameter's name must follow '$'%.*s", (int)n, name);
    return (struct value){0};
}

static struct value read_inner(struct reader *r) {
    struct value v = read_level(r, 1);
    skip_spaces(r);
    if (!*r->at) reader_fail(r, "a ')' is missing");
    if (*r->at != ')') reader_fail(r, "'%.20s' was not expected", r->at);
    r->at += *r->at == ')';
    return v;
}

static struct value read_number(struct reader *r) {
    char text[WORD_MAX];
    size_t n = strspn(r->at, "0123456789.");
    struct value v = {0};
    snprintf(text, sizeof text, "%.*s", (int)n, r->at);
    if (n >= sizeof text || !text_real(text, &v.number)) reader_fail(r, "a number was expected at '%.20s'", r->at);
    r->at += n;
    return v;
}

static struct value read_sqrt(struct reader *r) {
    r->at += strlen("sqrt(");
    struct value v = read_inner(r);
    if (v.is_word || v.number < 0) reader_fail(r, "sqrt takes a number that is not below 0");
    v.number = sqrt(v.number);
    return v;
}

static struct value read_primary(struct reader *r) {
    skip_spaces(r);
    char text[WORD_MAX];
    size_t n = word_length(r->at);
    if (*r->at == '$') return read_name(r);
    if (!strncmp(r->at, "sqrt(", 5)) return read_sqrt(r);
    if (*r->at == '(') {
        r->at++;
        return read_inner(r);
    }
    if (*r->at == '-') {
        r->at++;
        struct value zero = {0}, v = read_level(r, operators[OPERATOR_POWER].level);
        value_apply(r, OPERATOR_MINUS, &zero, &v);
        return zero;
    }
    if (!isalpha((unsigned char)*r->at) || n >= sizeof text) return read_number(r);
    snprintf(text, sizeof text, "%.*s", (int)n, r->at);
    r->at += n;
    return value_of(r, text);
}

static struct value read_level(struct reader *r, int level) {
    if (r->depth++ >= DEPTH_MAX) reader_fail(r, "too many brackets");
    struct value a = {0};
    if (!r->failed) a = read_primary(r);
    for (enum operator_kind kind; !r->failed && (kind = operator_next(r)) != OPERATORS;) {
        if (operators[kind].level < level) break;
        r->at += strlen(operators[kind].text);
        struct value b = read_level(r, operators[kind].level + 1);
        if (!r->failed) value_apply(r, kind, &a, &b);
    }
    r->depth--;
    return a;
}

/* ---- results ------------------------------------------------------------------------------ */

static bool expression_run(const char *text, const struct expression_names *names, struct value *out,
                           char message[EXPRESSION_TEXT], bool *missing) {
    struct reader r = {.at = text, .names = names, .message = message};
    *out = read_level(&r, 1);
    skip_spaces(&r);
    if (*r.at) reader_fail(&r, "'%.20s' was not expected", r.at);
    *missing = r.missing;
    return !r.failed;
}

bool expression_text(const char *text, const struct expression_names *names, char out[EXPRESSION_TEXT], bool *missing) {
    const double whole = 1e15; /* up to here doubles are whole numbers exactly */
    struct value v;
    if (!expression_run(text, names, &v, out, missing)) return false;
    if (v.is_word)
        snprintf(out, EXPRESSION_TEXT, "%s", v.word);
    else if (v.number == floor(v.number) && fabs(v.number) < whole)
        snprintf(out, EXPRESSION_TEXT, "%lld", (long long)v.number);
    else
        snprintf(out, EXPRESSION_TEXT, "%.9g", v.number);
    return true;
}

bool expression_truth(const char *text, const struct expression_names *names, bool *truth,
                      char message[EXPRESSION_TEXT], bool *missing) {
    struct value v;
    if (!expression_run(text, names, &v, message, missing)) return false;
    *truth = !v.is_word && v.number != 0;
    if (v.is_word) snprintf(message, EXPRESSION_TEXT, "'%s' is neither true nor false", v.word);
    return !v.is_word;
}
