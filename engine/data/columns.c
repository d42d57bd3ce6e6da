/* Columns and their categories. */
#include "engine/data/columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MOST = 1 << 16 };

static int columns_by_bytes(const void *cell, const void *category) {
    return strcmp(cell, *(const char *const *)category);
}

int64_t column_category(const struct table_column *c, const char *cell) {
    const char **at = bsearch(cell, c->category, (size_t)c->count, sizeof *at, columns_by_bytes);
    return at ? at - c->category : -1;
}

char *column_words(int64_t place, const char *name, char out[96]) {
    if (name)
        snprintf(out, 96, "column %lld '%.40s'", (long long)place + 1, name);
    else
        snprintf(out, 96, "column %lld", (long long)place + 1);
    return out;
}

static enum error name_values(struct columns *c, struct pool *pool) {
    int64_t k = 0;
    if (!(c->name = pool_alloc(pool, (size_t)(c->values + 1) * sizeof *c->name))) return ERR_MEMORY;
    for (int64_t i = 0; i < c->inputs; i++) {
        const struct table_column *from = &c->column[i];
        if (!from->count) c->name[k++] = from->name;
        for (int64_t n = 0; n < from->count; n++)
            if (!(c->name[k++] = pool_printf(pool, "%s=%s", from->name, from->category[n]))) return ERR_MEMORY;
    }
    c->name[k] = c->column[c->inputs].name;
    return ERR_NONE;
}

enum error columns_settle(struct columns *c, const char *path, struct pool *pool) {
    c->values = 0;
    for (int64_t i = 0; i < c->inputs; i++) c->values += column_values(&c->column[i]);
    if (c->values > VALUES_MOST)
        return FAIL(ERR_DATA,
                    "%s: its columns give %lld values a sample, more than %d\nleave out columns of many categories: "
                    "data.without: [NAME]",
                    path, (long long)c->values, VALUES_MOST);
    return c->column[c->inputs].name ? name_values(c, pool) : ERR_NONE;
}

/* ---- categories while a file is read ---- */
void categories_free(struct categories *c) {
    for (int64_t i = 0; i < c->count; i++) free(c->list[i].text);
    free(c->list);
    *c = (struct categories){0};
}

static enum error categories_grow(struct categories *c) {
    if (c->count < c->room) return ERR_NONE;
    int64_t room = c->room ? 2 * c->room : 8;
    struct category *more = realloc(c->list, (size_t)room * sizeof *more);
    if (!more) return FAIL(ERR_MEMORY, "no memory for %lld categories", (long long)room);
    c->list = more;
    c->room = room;
    return ERR_NONE;
}

/* The index of a text in the sorted list, or where it would be. */
static int64_t category_place(const struct categories *c, const char *cell) {
    int64_t low = 0, high = c->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (strcmp(c->list[middle].text, cell) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum error categories_take(struct categories *c, const char *cell, int64_t most, int64_t *out) {
    int64_t at = category_place(c, cell);
    if (at < c->count && !strcmp(c->list[at].text, cell)) {
        *out = c->list[at].number;
        return ERR_NONE;
    }
    if (c->count == most) return FAIL(ERR_DATA, "more than %lld categories", (long long)most);
    TRY(categories_grow(c));
    char *copy = strdup(cell);
    if (!copy) return FAIL(ERR_MEMORY, "no memory for a category");
    memmove(&c->list[at + 1], &c->list[at], (size_t)(c->count - at) * sizeof *c->list);
    c->list[at] = (struct category){copy, c->count};
    *out = c->count++;
    return ERR_NONE;
}

enum error categories_give(const struct categories *c, struct pool *pool, struct table_column *to, int64_t **sorted) {
    to->category = pool_alloc(pool, (size_t)c->count * sizeof *to->category);
    *sorted = pool_alloc(pool, (size_t)c->count * sizeof **sorted);
    if (!to->category || !*sorted) return ERR_MEMORY;
    for (int64_t i = 0; i < c->count; i++) {
        TRY_MEMORY(to->category[i] = pool_strndup(pool, c->list[i].text, strlen(c->list[i].text)));
        (*sorted)[c->list[i].number] = i;
    }
    to->count = c->count;
    return ERR_NONE;
}
