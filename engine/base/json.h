/* JSON: a writer that appends to a growing text, and a strict, bounded reader (depth, entries,
 * size; no duplicate keys, no trailing text, UTF-8 checked) for files that may be hostile. */
#pragma once
#include "engine/base/memory.h"

/* ---- writing ---- */
struct json {   /* zero at first */
    char *text; /* NUL-terminated; owned; NULL: nothing was written */
    size_t length, capacity;
    bool comma, failed; /* failed: out of memory; text stays valid, json_done reports it */
};
void json_fini(struct json *j); /* frees the text: it is as at first */
/* key is NULL inside an array or at the top. */
void json_open(struct json *j, const char *key, char bracket /* '{' or '[' */);
void json_close(struct json *j, char bracket /* '}' or ']' */);
void json_string(struct json *j, const char *key, const char *value); /* NULL -> null */
void json_int(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value); /* %.9g; not finite -> null */
void json_bool(struct json *j, const char *key, bool value);
/* Several members, each by its type; and an object of them: json_object(j, NULL, JSON_TEXT("name", n), JSON_INT("at", 3)). */
struct json_item {
    const char *key; /* NULL after the last */
    enum { JSON_ITEM_TEXT, JSON_ITEM_INT, JSON_ITEM_REAL, JSON_ITEM_BOOL } kind;
    union {
        const char *text;
        int64_t whole;
        double real;
        bool truth;
    };
};
// clang-format off
#define JSON_TEXT(key, value) {key, JSON_ITEM_TEXT, {.text = value}}
#define JSON_INT(key, value) {key, JSON_ITEM_INT, {.whole = value}}
#define JSON_REAL(key, value) {key, JSON_ITEM_REAL, {.real = value}}
#define JSON_BOOL(key, value) {key, JSON_ITEM_BOOL, {.truth = value}}
// clang-format on
#define json_put(j, ...) json_items(j, (const struct json_item[]){__VA_ARGS__, {.key = NULL}})
#define json_object(j, name, ...) json_item_object(j, name, (const struct json_item[]){__VA_ARGS__, {.key = NULL}})
void json_items(struct json *j, const struct json_item *items);
void json_item_object(struct json *j, const char *key, const struct json_item *items);
/* The array of what the statement after it puts for each i below n, without a break:
 * json_array(j, "ranks", i, n) json_int(j, NULL, rank[i]); */
#define json_array(j, key, i, n) for (int i = (json_open(j, key, '['), 0); i < (n) || (json_close(j, ']'), false); i++)
/* Arrays of n. */
void json_texts(struct json *j, const char *key, const char *const *values, int64_t n);
void json_ints(struct json *j, const char *key, const int64_t *values, int64_t n);
void json_reals(struct json *j, const char *key, const double *values, int64_t n);
/* text is a value in JSON already. */
void json_raw(struct json *j, const char *key, const char *text);
MUST_CHECK enum error json_done(const struct json *j);
/* Writes a complete text into the file, old or new, and frees it in any case. err: what has gone wrong so far. */
MUST_CHECK enum error json_save(struct json *j, enum error err, const char *path);
/* The same by file_place: others sync it. */
MUST_CHECK enum error json_place(struct json *j, enum error err, const char *path);

/* ---- reading ---- */
enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };
struct json_value {
    enum json_kind kind;
    const char *key;  /* in an object; NUL-terminated */
    const char *text; /* a string's characters (NUL-terminated, none inside), a number's digits */
    double number;
    int64_t integer; /* valid when is_integer */
    bool is_integer, truth;
    int count;                         /* children */
    const struct json_value *children; /* array of count */
};
struct json_limits {
    int depth;   /* nesting, at most */
    int entries; /* values, at most */
    int text;    /* bytes of one string, at most */
};
/* Parses all of text[0..n); trailing white space is allowed. The tree lives in the pool. ERR_DATA
 * with the byte offset on anything wrong. */
MUST_CHECK enum error json_parse(const char *text, size_t n, struct json_limits limits, struct pool *pool,
                                 const struct json_value **out);
/* The same of a file of at most 'most' bytes. What is wrong with its text comes with the path before it. */
MUST_CHECK enum error json_read(const char *path, size_t most, struct json_limits limits, struct pool *pool,
                                const struct json_value **out);
/* The member, or NULL. */
const struct json_value *json_get(const struct json_value *object, const char *key);
/* A member that is a string, or NULL; one that is a whole number of [0, most]. */
const char *json_get_text(const struct json_value *object, const char *key);
bool json_get_int(const struct json_value *object, const char *key, int64_t most, int64_t *out);
/* What a lenient reader takes from an object (or NULL): a member of this kind, or NULL; a string, or ""; a number, or NaN;
 * true, or false for anything else. */
const struct json_value *json_member(const struct json_value *in, const char *key, enum json_kind kind);
const char *json_text(const struct json_value *in, const char *key);
double json_number(const struct json_value *in, const char *key);
bool json_truth(const struct json_value *in, const char *key);
