/* Lines of JSON, and tables with commas: what a command prints or writes of its steps. */
#include "lab/results/foreign_told.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINES_MOST = 1 << 29, COLUMNS_MOST = 256 };
static const struct json_limits limits = {4, 1024, 65536};

/* ---- JSON ---- */

/* Python's NaN and Infinity are no JSON: an empty text stands for them. */
static void lines_quote_nan(char *line, size_t n) {
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) quoted = !quoted;
        for (int k = 0; k < 3 && !quoted; k++) {
            size_t w = strlen(words[k]);
            if (n - i < w || memcmp(line + i, words[k], w) != 0) continue;
            memset(line + i, ' ', w);
            memcpy(line + i++, "\"\"", 2);
        }
    }
}

static void lines_put_number(struct told_row *r, const char *name, const struct json_value *v) {
    bool none = v->kind == JSON_NULL || (v->kind == JSON_STRING && !*v->text);
    int field = v->kind == JSON_NUMBER || none ? told_field_of(name, strlen(name)) : -1;
    if (field >= 0 && isnan(r->of[field])) told_put(r, field, none ? (double)NAN : v->number);
}

/* "val": {"loss": 2} is val_loss. */
static void lines_put_members(struct told_row *r, const struct json_value *object) {
    char name[80];
    for (int i = 0; i < object->count; i++) {
        const struct json_value *v = &object->children[i];
        if (v->kind != JSON_OBJECT) lines_put_number(r, v->key, v);
        for (int k = 0; v->kind == JSON_OBJECT && k < v->count; k++) {
            snprintf(name, sizeof name, "%.30s_%.40s", v->key, v->children[k].key);
            lines_put_number(r, name, &v->children[k]);
        }
    }
}

/* Takes facts of the whole run, which may stand in any line. */
static enum error lines_take_facts(struct told *t, const struct json_value *root) {
    const struct json_value *bytes = json_get(root, "bytes");
    const char *weights = json_get_text(root, "weights_sha256");
    if (weights && (strlen(weights) != 64 || strspn(weights, "0123456789abcdef") != 64))
        return FAIL(ERR_DATA, "weights_sha256 is '%.80s'\nit must have 64 digits of 0 to 9 and a to f", weights);
    if (weights) snprintf(t->weights, sizeof t->weights, "%s", weights);
    if (bytes && bytes->kind == JSON_NUMBER && bytes->number >= 0) t->bytes = bytes->number;
    return ERR_NONE;
}

static enum error lines_take_object(struct told *t, const struct json_value *root) {
    const struct json_value *step = json_get(root, "step");
    struct told_row *r;
    TRY(lines_take_facts(t, root));
    if (!step || step->kind != JSON_NUMBER || json_get(root, "event")) {
        t->lines++;
        return ERR_NONE;
    }
    TRY(told_add(t, step->number, &r));
    lines_put_members(r, root);
    return ERR_NONE;
}

/* Takes a line's JSON object, if it has one. all: every line must have one; number: of the line, for messages. */
static enum error take_line(struct told *t, char *line, size_t n, bool all, int64_t number) {
    const struct json_value *root;
    struct pool *pool;
    size_t blank = strspn(line, " \t\r");
    if (blank >= n || (line[blank] != '{' && !all)) return ERR_NONE;
    TRY(pool_create(&pool));
    lines_quote_nan(line, n);
    enum error err = json_parse(line, n, limits, pool, &root);
    if (err == ERR_NONE && root->kind == JSON_OBJECT)
        err = lines_take_object(t, root);
    else if (err != ERR_MEMORY && !all) {
        if (!t->not_json) t->not_json = number;
        err = ERR_NONE;
    } else if (err == ERR_NONE)
        err = FAIL(ERR_DATA, "no object {...}");
    pool_free(pool);
    return err == ERR_NONE ? err : error_prefix(err, "line %lld: ", (long long)number);
}

static enum error read_lines(char *text, size_t n, bool all, struct told *t) {
    int64_t number = 0;
    for (char *line = text, *end = text + n; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        *stop = '\0'; /* there is a byte after the last one */
        TRY(take_line(t, line, (size_t)(stop - line), all, ++number));
        line = stop + 1;
    }
    return ERR_NONE;
}

/* ---- commas ---- */

/* The next field, without its quotes, in place; NULL after the last. */
static char *lines_next_field(char **rest) {
    char *field = *rest, *end;
    if (!field) return NULL;
    field += strspn(field, " \t");
    bool quoted = *field == '"';
    end = quoted ? strchr(++field, '"') : field + strcspn(field, ",");
    if (!end) end = field + strlen(field);
    char *comma = end + strcspn(end, ",");
    *rest = *comma ? comma + 1 : NULL;
    while (!quoted && end > field && strchr(" \t\r", end[-1])) end--;
    *end = '\0';
    return field;
}

struct told_columns {
    int n, step; /* step: which column it is; -1 */
    int field[COLUMNS_MOST];
};

static void lines_read_head(char *line, struct told_columns *c) {
    char *rest = line;
    *c = (struct told_columns){.step = -1};
    for (char *name; c->n < COLUMNS_MOST && (name = lines_next_field(&rest)); c->n++) {
        if (!strcmp(name, "step")) c->step = c->n;
        c->field[c->n] = told_field_of(name, strlen(name));
    }
}

static enum error lines_read_row(struct told *t, char *line, const struct told_columns *c) {
    double value[COLUMNS_MOST], step = (double)NAN;
    bool told[COLUMNS_MOST] = {false};
    char *rest = line, *text;
    struct told_row *r;
    int n = 0;
    for (; n < c->n && (text = lines_next_field(&rest)); n++) {
        value[n] = (double)NAN;
        told[n] = c->field[n] >= 0 && *text;
        if ((!told[n] && n != c->step) || !*text || !strcmp(text, "nan") || !strcmp(text, "inf")) continue;
        if (!text_real(text, &value[n])) return FAIL(ERR_DATA, "'%.40s' is no number", text);
        if (n == c->step) step = value[n];
    }
    if (n == 0 || isnan(step)) return ERR_NONE;
    TRY(told_add(t, step, &r));
    for (int i = 0; i < n; i++)
        if (told[i]) told_put(r, c->field[i], value[i]);
    return ERR_NONE;
}

static enum error lines_read_table(char *text, struct told *t) {
    struct told_columns c = {.step = -1};
    int64_t number = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        if (++number == 1)
            lines_read_head(line, &c);
        else if (*line) {
            enum error err = lines_read_row(t, line, &c);
            if (err != ERR_NONE) return error_prefix(err, "line %lld: ", (long long)number);
        }
        if (c.step < 0) return ERR_NONE;
    }
    return ERR_NONE;
}

/* ---- files ---- */

static enum error lines_read_text(const char *path, bool lines, bool all, struct told *t) {
    struct pool *pool;
    char *text;
    size_t n;
    TRY(pool_create(&pool));
    enum error err = file_read(path, LINES_MOST, pool, &text, &n);
    if (err == ERR_NONE) {
        bool table = !lines || (all && text[strspn(text, " \t\r\n")] != '{');
        err = table ? lines_read_table(text, t) : read_lines(text, n, all, t);
        if (err != ERR_NONE) err = error_prefix(err, "%s: ", path);
    }
    pool_free(pool);
    return err;
}

enum error told_lines(const char *path, bool all, struct told *t) {
    return lines_read_text(path, true, all, t);
}

enum error told_csv(const char *path, struct told *t) {
    return lines_read_text(path, false, false, t);
}
