/* Scalars: the schema's types, read from text and described in words. */
#include "engine/config/value.h"

#include "engine/base/text.h"
#include <math.h>
#include <string.h>

/* ---- words ---- */

/* Which of "a|b|c" the text is, or -1. */
static int word_index(const char *choices, const char *text) {
    size_t length = strlen(text);
    int index = 0;
    for (const char *c = choices; c; index++) {
        size_t n = strcspn(c, "|");
        if (n == length && !memcmp(c, text, n)) return index;
        c = c[n] ? c + n + 1 : NULL;
    }
    return -1;
}

int value_words(const char *choices, struct pool *pool, const char *names[WORDS_MAX]) {
    int count = 0;
    for (const char *c = choices; c && count < WORDS_MAX;) {
        size_t n = strcspn(c, "|");
        if (!(names[count++] = pool_strndup(pool, c, n))) return -1;
        c = c[n] ? c + n + 1 : NULL;
    }
    return count;
}

const char *value_join(const char *const *names, int n, struct pool *pool) {
    const char *all = n ? names[0] : "";
    for (int i = 1; i < n && all; i++) all = pool_printf(pool, "%s, %s", all, names[i]);
    return all;
}

/* ---- reading ---- */

static bool value_has_maximum(const struct config_field *f) {
    return f->max >= f->min && !(f->min == 0 && f->max == 0) && f->max < 9e18;
}

static bool value_has_minimum(const struct config_field *f) {
    return !(f->min == 0 && f->max == 0);
}

static enum value_fault in_range(const struct config_field *f, double value) {
    if (value_has_minimum(f) && value < f->min) return VALUE_WRONG;
    return value_has_maximum(f) && value > f->max ? VALUE_ABOVE : VALUE_RIGHT;
}

/* "5ep" "0.5ep" "200st" "off" "end" */
static enum value_fault read_span(const struct config_field *f, const char *text, struct config_span *out) {
    int word = f->choices ? word_index(f->choices, text) : -1;
    if (word >= 0) {
        *out = (struct config_span){0, word ? SPAN_END : SPAN_OFF};
        return VALUE_RIGHT;
    }
    char number[32];
    size_t n = strlen(text);
    if (n < 3 || n >= sizeof number) return VALUE_WRONG;
    bool steps = !strcmp(text + n - 2, "st");
    if (!steps && strcmp(text + n - 2, "ep") != 0) return VALUE_WRONG;
    memcpy(number, text, n - 2);
    number[n - 2] = '\0';
    double value;
    if (!text_real(number, &value) || value < 0 || value > 1e15) return VALUE_WRONG;
    if (steps && value != floor(value)) return VALUE_WRONG;
    *out = (struct config_span){value, steps ? SPAN_STEPS : SPAN_EPOCHS};
    return in_range(f, value);
}

/* A span, or "60s" "5min" "1.5h": a number alone is no time, since its unit would have to be guessed. */
static enum value_fault read_length(const struct config_field *f, const char *text, struct config_span *out) {
    double seconds, number;
    if (text_real(text, &number) || !text_seconds(text, &seconds)) return read_span(f, text, out);
    *out = (struct config_span){seconds, SPAN_SECONDS};
    return in_range(f, seconds);
}

static enum value_fault read_integer(const struct config_field *f, const char *text, int64_t *out) {
    bool read = f->type == CONFIG_BYTES ? text_bytes(text, out) : text_int(text, out);
    return read ? in_range(f, (double)*out) : VALUE_WRONG;
}

/* "50%" is 0.5 */
static bool share_read(const char *text, double *out) {
    char number[32];
    size_t n = strlen(text);
    if (n < 2 || n > sizeof number || text[n - 1] != '%') return text_real(text, out);
    memcpy(number, text, n - 1);
    number[n - 1] = '\0';
    if (!text_real(number, out)) return false;
    *out /= 100;
    return true;
}

static enum value_fault read_real(const struct config_field *f, const char *text, double *out) {
    bool read = f->type == CONFIG_SECONDS ? text_seconds(text, out)
                : f->type == CONFIG_RATE  ? text_rate(text, out)
                : f->type == CONFIG_SHARE ? share_read(text, out)
                                          : text_real(text, out);
    return read ? in_range(f, *out) : VALUE_WRONG;
}

static enum value_fault read_bool(const char *text, bool *out) {
    *out = !strcmp(text, "true");
    return *out || !strcmp(text, "false") ? VALUE_RIGHT : VALUE_WRONG;
}

const char *value_length(const struct config_field *f, const char *text, struct pool *pool) {
    static const char *const units[][2] = {{"e", "ep"}, {"sec", "s"},   {"s", "st"}, {"it", "st"},
                                           {"b", "st"}, {"min", "min"}, {"h", "h"}};
    size_t n = strspn(text, "0123456789.");
    const char *unit = text + n + strspn(text + n, " _");
    if ((f->type != CONFIG_SPAN && f->type != CONFIG_LENGTH) || n == 0) return NULL;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strncasecmp(unit, units[i][0], strlen(units[i][0])) != 0) continue;
        char *length = pool_printf(pool, "%.*s%s", (int)n, text, units[i][1]);
        struct config_span span;
        return length && strcmp(length, text) != 0 && value_read(f, length, &span) == VALUE_RIGHT ? length : NULL;
    }
    return NULL;
}

/* ---- the types ---- */

enum value_form { FORM_NONE, FORM_BOOL, FORM_INTEGER, FORM_REAL, FORM_TEXT, FORM_WORD, FORM_SPAN };
static const struct value_kind {
    enum value_form form; /* of one value */
    bool list, bounded;   /* it takes several; its words name the range */
    const char *words;    /* for errors and help; NULL: "a map of keys" */
} kinds[] = {
    [CONFIG_BOOL] = {FORM_BOOL, .words = "true or false"},
    [CONFIG_INT] = {FORM_INTEGER, .bounded = true, .words = "an integer"},
    [CONFIG_REAL] = {FORM_REAL, .bounded = true, .words = "a number"},
    [CONFIG_STRING] = {FORM_TEXT, .words = "a text"},
    [CONFIG_PATH] = {FORM_TEXT, .words = "a path, seen from the configuration's folder"},
    [CONFIG_ENUM] = {FORM_WORD},
    [CONFIG_BYTES] = {FORM_INTEGER, .words = "a size such as 64KB or 25MB"},
    [CONFIG_SECONDS] = {FORM_REAL, .words = "a time such as 250ms, 10s or 2m"},
    [CONFIG_RATE] = {FORM_REAL, .words = "a rate such as 1Gbit or 250MB (a second)"},
    [CONFIG_SHARE] = {FORM_REAL, .words = "a share such as 50% or 0.5"},
    [CONFIG_SPAN] = {FORM_SPAN, .words = "a length such as 5ep (epochs) or 200st (steps)"},
    [CONFIG_LENGTH] = {FORM_SPAN, .words = "a length such as 5ep (epochs), 200st (steps) or 60s (time)"},
    [CONFIG_INTS] = {FORM_INTEGER, true, true, "an integer"},
    [CONFIG_REALS] = {FORM_REAL, true, true, "a number"},
    [CONFIG_SPANS] = {FORM_SPAN, true, .words = "a list of lengths such as [3ep, 5ep]"},
    [CONFIG_ENUMS] = {FORM_WORD, true},
    [CONFIG_STRINGS] = {FORM_TEXT, true, .words = "a text, or a list of them"},
    [CONFIG_SECTIONS] = {.words = "a list of maps"},
    [CONFIG_VARIANTS] = {.words = "a list"},
    [CONFIG_NODE] = {.words = "a text"},
};

enum value_fault value_read(const struct config_field *f, const char *text, void *out) {
    int word = f->choices ? word_index(f->choices, text) : -1;
    switch (kinds[f->type].form) {
    case FORM_BOOL:
        return read_bool(text, out);
    case FORM_INTEGER:
        if (word < 0) return read_integer(f, text, out);
        *(int64_t *)out = (int64_t)f->word;
        return VALUE_RIGHT;
    case FORM_REAL:
        if (word < 0) return read_real(f, text, out);
        *(double *)out = f->word;
        return VALUE_RIGHT;
    case FORM_TEXT:
        *(const char **)out = text;
        if (f->type == CONFIG_PATH) return *text ? VALUE_RIGHT : VALUE_WRONG;
        return f->choices && word < 0 ? VALUE_WRONG : VALUE_RIGHT;
    case FORM_WORD:
        *(int *)out = word;
        return word < 0 ? VALUE_WRONG : VALUE_RIGHT;
    case FORM_SPAN:
        return f->type == CONFIG_LENGTH ? read_length(f, text, out) : read_span(f, text, out);
    default:
        return VALUE_WRONG;
    }
}

size_t value_size(enum config_type type) {
    static const size_t sizes[] = {[FORM_NONE] = 0,
                                   [FORM_BOOL] = sizeof(bool),
                                   [FORM_INTEGER] = sizeof(int64_t),
                                   [FORM_REAL] = sizeof(double),
                                   [FORM_TEXT] = sizeof(const char *),
                                   [FORM_WORD] = sizeof(int),
                                   [FORM_SPAN] = sizeof(struct config_span)};
    return sizes[kinds[type].form];
}

bool value_is_list(enum config_type type) {
    return kinds[type].list;
}

/* ---- telling ---- */

/* " >= 1", " > 0", " from 0 to 1", "". An upper bound too large to be met by accident is left out.
 */
static const char *range_text(const struct config_field *f, struct pool *pool) {
    bool least = value_has_minimum(f), most = value_has_maximum(f) && f->max < 1e6;
    if (!least) return "";
    bool above_zero = f->min > 0 && f->min < 1e-9; /* how a table says "> 0" */
    if (most && above_zero) return pool_printf(pool, " > 0 and <= %.12g", f->max);
    if (most) return pool_printf(pool, " from %.12g to %.12g", f->min, f->max);
    return above_zero ? " > 0" : pool_printf(pool, " >= %.12g", f->min);
}

bool value_is_path(const struct config_field *f, const char *text) {
    const struct config_path *p = f->extra;
    double number;
    if (f->type != CONFIG_PATH || (f->choices && word_index(f->choices, text) >= 0)) return false;
    if (p && p->before && strncmp(text, p->before, strlen(p->before)) != 0) return false;
    return !(p && p->or &&share_read(text, &number));
}

static const char *basic_type(const struct config_field *f, struct pool *pool) {
    const struct value_kind *kind = &kinds[f->type];
    const struct config_path *p = f->type == CONFIG_PATH ? f->extra : NULL;
    const char *bounds = kind->bounded ? range_text(f, pool) : "";
    if (p && p->before) return "a text";
    if (p && p->or) return pool_printf(pool, "a path, or %s such as 2000 or 20%%", p->or);
    if (!kind->bounded) return kind->words ? kind->words : "a map of keys";
    return bounds ? pool_printf(pool, "%s%s%s", kind->words, bounds, kind->list ? ", or a list of them" : "") : NULL;
}

const char *value_type(const struct config_field *f, struct pool *pool) {
    const char *names[WORDS_MAX];
    int n = f->choices ? value_words(f->choices, pool, names) : 0;
    if (n < 0) return NULL;
    bool words = f->type == CONFIG_ENUM || f->type == CONFIG_ENUMS;
    if (words || (f->type == CONFIG_STRING && n)) {
        const char *all = value_join(names, n, pool);
        const char *more = f->type == CONFIG_ENUMS ? ", or a list of them" : "";
        return all ? pool_printf(pool, "one of %s%s", all, more) : NULL;
    }
    const char *type = basic_type(f, pool);
    for (int i = 0; i < n && type; i++) type = pool_printf(pool, "%s or %s", names[i], type);
    return type;
}

/* ---- sections ---- */

const struct config_field *section_inline(const struct config_section *s) {
    for (const struct config_field *f = s->fields; f->key; f++)
        if (!*f->key) return f;
    return NULL;
}

const char *section_shorthand(const struct config_section *s) {
    if (s->shorthand) return s->shorthand;
    const struct config_field *f = section_inline(s);
    return f ? ((const struct config_variants *)f->extra)->name : NULL;
}
