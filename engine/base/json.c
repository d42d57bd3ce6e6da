/* JSON, both ways (RFC 8259). The reader is a recursive descent over memory. Values come to lie on
 * a stack as they are read; when an array or object closes, its children are the top of that stack
 * and move into the pool as one array, and the parent takes their place. */
#include "engine/base/json.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

void json_fini(struct json *j) {
    free(j->text);
    *j = (struct json){0};
}

static void json_append(struct json *j, const char *s, size_t n) {
    if (j->failed) return;
    if (j->length + n >= j->capacity) {
        size_t capacity = (j->length + n + 64) * 2;
        char *text = realloc(j->text, capacity);
        j->failed = !text;
        if (!text) return;
        j->text = text;
        j->capacity = capacity;
    }
    memcpy(j->text + j->length, s, n);
    j->length += n;
    j->text[j->length] = '\0';
}

static void put_quoted(struct json *j, const char *s) {
    json_append(j, "\"", 1);
    for (size_t n = strlen(s), step; n; s += step, n -= step) {
        char escape[8];
        step = text_utf8(s, n);
        if (*s == '"' || *s == '\\') {
            snprintf(escape, sizeof escape, "\\%c", *s);
            json_append(j, escape, 2);
        } else if (step == 1 && (unsigned char)*s < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*s);
            json_append(j, *s == '\n' ? "\\n" : *s == '\t' ? "\\t" : escape, *s == '\n' || *s == '\t' ? 2 : 6);
        } else if (step) {
            json_append(j, s, step);
        } else { /* no character: one byte becomes U+FFFD */
            json_append(j, "\xEF\xBF\xBD", 3);
            step = 1;
        }
    }
    json_append(j, "\"", 1);
}

static void put_key(struct json *j, const char *key) {
    if (j->comma) json_append(j, ",", 1);
    if (key) {
        put_quoted(j, key);
        json_append(j, ":", 1);
    }
    j->comma = true;
}

void json_raw(struct json *j, const char *key, const char *text) {
    put_key(j, key);
    json_append(j, text, strlen(text));
}

void json_open(struct json *j, const char *key, char bracket) {
    put_key(j, key);
    json_append(j, &bracket, 1);
    j->comma = false;
}

void json_close(struct json *j, char bracket) {
    json_append(j, &bracket, 1);
    j->comma = true;
}

void json_string(struct json *j, const char *key, const char *value) {
    put_key(j, key);
    if (value)
        put_quoted(j, value);
    else
        json_append(j, "null", 4);
}

void json_int(struct json *j, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    json_raw(j, key, text);
}

void json_real(struct json *j, const char *key, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    json_raw(j, key, isfinite(value) ? text : "null");
}

void json_bool(struct json *j, const char *key, bool value) {
    json_raw(j, key, value ? "true" : "false");
}

void json_items(struct json *j, const struct json_item *items) {
    for (const struct json_item *i = items; i->key; i++) {
        if (i->kind == JSON_ITEM_TEXT) json_string(j, i->key, i->text);
        if (i->kind == JSON_ITEM_INT) json_int(j, i->key, i->whole);
        if (i->kind == JSON_ITEM_REAL) json_real(j, i->key, i->real);
        if (i->kind == JSON_ITEM_BOOL) json_bool(j, i->key, i->truth);
    }
}

void json_texts(struct json *j, const char *key, const char *const *values, int64_t n) {
    json_array(j, key, i, n) json_string(j, NULL, values[i]);
}

void json_ints(struct json *j, const char *key, const int64_t *values, int64_t n) {
    json_array(j, key, i, n) json_int(j, NULL, values[i]);
}

void json_reals(struct json *j, const char *key, const double *values, int64_t n) {
    json_array(j, key, i, n) json_real(j, NULL, values[i]);
}

void json_item_object(struct json *j, const char *key, const struct json_item *items) {
    json_open(j, key, '{');
    json_items(j, items);
    json_close(j, '}');
}

enum error json_done(const struct json *j) {
    return j->failed ? FAIL(ERR_MEMORY, "cannot allocate %zu bytes of JSON", j->length) : ERR_NONE;
}

static enum error json_write(struct json *j, enum error err, const char *path,
                             enum error (*write)(const char *path, const void *data, size_t n)) {
    if (err == ERR_NONE) err = json_done(j);
    if (err == ERR_NONE) err = write(path, j->text, j->length);
    json_fini(j);
    return err;
}

enum error json_save(struct json *j, enum error err, const char *path) {
    return json_write(j, err, path, file_replace);
}

enum error json_place(struct json *j, enum error err, const char *path) {
    return json_write(j, err, path, file_place);
}

/* ---- reading ---- */

struct reader {
    const char *text;
    size_t n, at;
    struct json_limits limits;
    struct pool *pool;
    struct json_value *stack; /* read, and not yet owned by a parent */
    size_t height, room;
    int entries, depth;
};

static enum error json_wrong(const struct reader *r, const char *what) {
    return FAIL(ERR_DATA, "JSON: %s at byte %zu", what, r->at);
}

/* The next byte, or -1 at the end. */
static int json_peek(const struct reader *r) {
    return r->at < r->n ? (unsigned char)r->text[r->at] : -1;
}

static bool json_take(struct reader *r, char c) {
    if (json_peek(r) != c) return false;
    r->at++;
    return true;
}

static void skip_space(struct reader *r) {
    while (r->at < r->n && memchr(" \t\r\n", r->text[r->at], 4)) r->at++;
}

static enum error json_push(struct reader *r, struct json_value v) {
    if (r->height == r->room) {
        size_t room = r->room ? r->room * 2 : 64;
        struct json_value *stack = realloc(r->stack, room * sizeof *stack);
        if (!stack) return FAIL(ERR_MEMORY, "JSON: cannot allocate %zu values", room);
        r->stack = stack;
        r->room = room;
    }
    r->stack[r->height++] = v;
    return ERR_NONE;
}

static bool json_hex4(struct reader *r, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        int c = json_peek(r);
        const char *d = c > 0 ? strchr(digits, c | (c >= 'A' && c <= 'F' ? 0x20 : 0)) : NULL;
        if (!d) return false;
        *out = *out << 4 | (uint32_t)(d - digits);
        r->at++;
    }
    return true;
}

/* After "\u". A pair of surrogates is one character; one alone is none. */
static enum error read_unicode(struct reader *r, char **to) {
    uint32_t code, low;
    if (!json_hex4(r, &code)) return json_wrong(r, "four hexadecimal digits are missing");
    if (code >= 0xD800 && code < 0xDC00) {
        bool pair = json_take(r, '\\') && json_take(r, 'u') && json_hex4(r, &low) && low >= 0xDC00 && low < 0xE000;
        if (!pair) return json_wrong(r, "half a surrogate pair");
        code = 0x10000 + ((code & 0x3FF) << 10 | (low & 0x3FF));
    } else if (code >= 0xDC00 && code < 0xE000) {
        return json_wrong(r, "half a surrogate pair");
    }
    if (!code) return json_wrong(r, "NUL in a string");
    *to += utf8_put(code, *to);
    return ERR_NONE;
}

static enum error read_escape(struct reader *r, char **to) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    int c = json_peek(r);
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (!found && c != 'u') return json_wrong(r, "unknown escape");
    r->at++;
    if (!found) return read_unicode(r, to);
    *(*to)++ = meanings[found - letters];
    return ERR_NONE;
}

/* Bytes up to the closing quote, which is there; no escape makes a text longer. */
static enum error string_span(const struct reader *r, size_t *span) {
    for (size_t i = r->at; i < r->n; i++) {
        if (r->text[i] == '\\') {
            i++;
        } else if (r->text[i] == '"') {
            *span = i - r->at;
            return *span > (size_t)r->limits.text ? json_wrong(r, "a string is too long") : ERR_NONE;
        }
    }
    return json_wrong(r, "a string has no end");
}

static enum error read_string(struct reader *r, const char **out) {
    size_t span = 0, step;
    if (!json_take(r, '"')) return json_wrong(r, "a string is missing");
    TRY(string_span(r, &span));
    char *to = pool_alloc(r->pool, span + 1);
    if (!to) return ERR_MEMORY;
    *out = to;
    while (!json_take(r, '"')) {
        const char *p = r->text + r->at;
        if (json_take(r, '\\')) {
            TRY(read_escape(r, &to));
            continue;
        }
        if ((unsigned char)*p < 0x20) return json_wrong(r, "control character in a string");
        if (!(step = text_utf8(p, r->n - r->at))) return json_wrong(r, "bad UTF-8");
        memcpy(to, p, step);
        to += step;
        r->at += step;
    }
    return ERR_NONE;
}

static bool take_digits(struct reader *r) {
    size_t from = r->at;
    while (json_peek(r) >= '0' && json_peek(r) <= '9') r->at++;
    return r->at > from;
}

static enum error read_number(struct reader *r, struct json_value *v) {
    size_t from = r->at;
    json_take(r, '-');
    if (!json_take(r, '0') && !take_digits(r)) return json_wrong(r, "a value is missing");
    v->is_integer = true;
    if (json_take(r, '.')) {
        v->is_integer = false;
        if (!take_digits(r)) return json_wrong(r, "digits are missing");
    }
    if (json_take(r, 'e') || json_take(r, 'E')) {
        v->is_integer = false;
        if (!json_take(r, '+')) json_take(r, '-');
        if (!take_digits(r)) return json_wrong(r, "digits are missing");
    }
    if (r->at - from > (size_t)r->limits.text) return json_wrong(r, "a number is too long");
    v->kind = JSON_NUMBER;
    TRY_MEMORY(v->text = pool_strndup(r->pool, r->text + from, r->at - from));
    v->number = strtod(v->text, NULL);
    if (!isfinite(v->number)) return json_wrong(r, "a number is too large");
    errno = 0;
    if (v->is_integer) v->integer = strtoll(v->text, NULL, 10);
    v->is_integer = v->is_integer && !errno;
    return ERR_NONE;
}

static enum error read_word(struct reader *r, struct json_value *v) {
    static const struct {
        const char *text;
        enum json_kind kind;
        bool truth;
    } words[] = {{"true", JSON_BOOL, true}, {"false", JSON_BOOL, false}, {"null", JSON_NULL, false}};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i].text);
        if (r->n - r->at < n || memcmp(r->text + r->at, words[i].text, n) != 0) continue;
        r->at += n;
        v->kind = words[i].kind;
        v->truth = words[i].truth;
        return ERR_NONE;
    }
    return json_wrong(r, "a value is missing");
}

static int json_by_key(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorting keeps this fast for the largest hostile object. */
static enum error check_keys(struct reader *r, const struct json_value *v, int count) {
    if (count < 2) return ERR_NONE;
    const char **keys = malloc((size_t)count * sizeof *keys);
    if (!keys) return FAIL(ERR_MEMORY, "JSON: cannot allocate %d keys", count);
    for (int i = 0; i < count; i++) keys[i] = v[i].key;
    qsort(keys, (size_t)count, sizeof *keys, json_by_key);
    enum error err = ERR_NONE;
    for (int i = 1; i < count && err == ERR_NONE; i++)
        if (!strcmp(keys[i - 1], keys[i]))
            err =
                FAIL(ERR_DATA, "JSON: the key '%.80s' comes twice in the object that ends at byte %zu", keys[i], r->at);
    free(keys);
    return err;
}

/* The stack from 'base' up becomes v's children. */
static enum error json_adopt(struct reader *r, size_t base, struct json_value *v) {
    size_t count = r->height - base, bytes = count * sizeof *r->stack;
    struct json_value *children = pool_alloc(r->pool, bytes);
    if (!children) return ERR_MEMORY;
    if (count) memcpy(children, r->stack + base, bytes);
    r->height = base;
    v->children = children;
    v->count = (int)count;
    return v->kind == JSON_OBJECT ? check_keys(r, children, v->count) : ERR_NONE;
}

static enum error read_value(struct reader *r, struct json_value *v);

static enum error read_container(struct reader *r, struct json_value *v) {
    size_t base = r->height;
    char end = json_take(r, '{') ? '}' : ']';
    v->kind = end == '}' ? JSON_OBJECT : JSON_ARRAY;
    if (end == ']') r->at++;
    if (++r->depth > r->limits.depth) return json_wrong(r, "too deep");
    skip_space(r);
    for (bool more = !json_take(r, end); more;) {
        struct json_value child = {0};
        skip_space(r);
        if (end == '}') {
            TRY(read_string(r, &child.key));
            skip_space(r);
            if (!json_take(r, ':')) return json_wrong(r, "':' is missing");
        }
        TRY(read_value(r, &child));
        TRY(json_push(r, child));
        skip_space(r);
        more = json_take(r, ',');
        if (!more && !json_take(r, end)) return json_wrong(r, "',' or a closing bracket is missing");
    }
    r->depth--;
    return json_adopt(r, base, v);
}

static enum error read_value(struct reader *r, struct json_value *v) {
    if (++r->entries > r->limits.entries) return json_wrong(r, "too many values");
    skip_space(r);
    int c = json_peek(r);
    if (c == '{' || c == '[') return read_container(r, v);
    if (c == '"') {
        v->kind = JSON_STRING;
        return read_string(r, &v->text);
    }
    return c == '-' || (c >= '0' && c <= '9') ? read_number(r, v) : read_word(r, v);
}

enum error json_parse(const char *text, size_t n, struct json_limits limits, struct pool *pool,
                      const struct json_value **out) {
    struct reader r = {.text = text, .n = n, .limits = limits, .pool = pool};
    struct json_value *root = pool_alloc(pool, sizeof *root);
    if (!root) return ERR_MEMORY;
    enum error err = read_value(&r, root);
    free(r.stack);
    TRY(err);
    skip_space(&r);
    if (r.at < n) return json_wrong(&r, "more text after the value");
    *out = root;
    return ERR_NONE;
}

enum error json_read(const char *path, size_t most, struct json_limits limits, struct pool *pool,
                     const struct json_value **out) {
    char *text;
    size_t n;
    TRY(file_read(path, most, pool, &text, &n));
    enum error err = json_parse(text, n, limits, pool, out);
    return err == ERR_NONE ? err : error_prefix(err, "%s: ", path);
}

const struct json_value *json_get(const struct json_value *object, const char *key) {
    if (!object || object->kind != JSON_OBJECT) return NULL;
    for (int i = 0; i < object->count; i++)
        if (!strcmp(object->children[i].key, key)) return &object->children[i];
    return NULL;
}

const char *json_get_text(const struct json_value *object, const char *key) {
    const struct json_value *v = json_get(object, key);
    return v && v->kind == JSON_STRING ? v->text : NULL;
}

bool json_get_int(const struct json_value *object, const char *key, int64_t most, int64_t *out) {
    const struct json_value *v = json_get(object, key);
    if (!v || v->kind != JSON_NUMBER || !v->is_integer || v->integer < 0 || v->integer > most) return false;
    *out = v->integer;
    return true;
}

const struct json_value *json_member(const struct json_value *in, const char *key, enum json_kind kind) {
    const struct json_value *v = json_get(in, key);
    return v && v->kind == kind ? v : NULL;
}

const char *json_text(const struct json_value *in, const char *key) {
    const char *text = json_get_text(in, key);
    return text ? text : "";
}

double json_number(const struct json_value *in, const char *key) {
    const struct json_value *v = json_member(in, key, JSON_NUMBER);
    return v ? v->number : (double)NAN;
}

bool json_truth(const struct json_value *in, const char *key) {
    const struct json_value *v = json_member(in, key, JSON_BOOL);
    return v && v->truth;
}
