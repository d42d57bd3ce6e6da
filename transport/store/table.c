/* Keys in sorted order in one array: looked up by halving, and a prefix is a range. Inserting moves
 * pointers, which for the few hundred keys of a rendezvous is nothing. */
#include "transport/store/table.h"

#include <stdlib.h>
#include <string.h>

struct table_entry {
    size_t n;
    char *value; /* with a 0 byte after it */
    char key[];
};
struct store_table {
    struct table_entry **of;
    int count, room;
    size_t bytes;
    char page[TABLE_PAGE];
};

enum error table_create(struct store_table **out) {
    struct store_table *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "cannot allocate a store");
    *out = t;
    return ERR_NONE;
}

static void entry_free(struct table_entry *e) {
    free(e->value);
    free(e);
}

void table_free(struct store_table *t) {
    if (!t) return;
    for (int i = 0; i < t->count; i++) entry_free(t->of[i]);
    free(t->of);
    free(t);
}

/* ---- looking ---- */

/* The first entry whose key is not before this one. */
static int table_position(const struct store_table *t, const char *key) {
    int lo = 0, hi = t->count;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (strcmp(t->of[middle]->key, key) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

int table_range(const struct store_table *t, const char *prefix, int *count) {
    int first = table_position(t, prefix), lo = first, hi = t->count;
    size_t n = strlen(prefix);
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (strncmp(t->of[middle]->key, prefix, n) == 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    *count = lo - first;
    return first;
}

const char *table_at(const struct store_table *t, int i, struct bytes *value) {
    *value = (struct bytes){t->of[i]->value, t->of[i]->n};
    return t->of[i]->key;
}

static bool entry_is_at(const struct store_table *t, int i, const char *key) {
    return i < t->count && !strcmp(t->of[i]->key, key);
}

struct bytes table_find(const struct store_table *t, const char *key) {
    int i = table_position(t, key);
    return entry_is_at(t, i, key) ? (struct bytes){t->of[i]->value, t->of[i]->n} : (struct bytes){0};
}

char *table_page(struct store_table *t) {
    return t->page;
}

/* ---- changes ---- */

/* A new entry, without a value. */
static bool entry_insert(struct store_table *t, int i, const char *key) {
    if (t->count == t->room) {
        int room = t->room ? 2 * t->room : 64;
        struct table_entry **more = realloc(t->of, (size_t)room * sizeof(struct table_entry *));
        if (!more) return false;
        t->of = more, t->room = room;
    }
    size_t n = strlen(key);
    struct table_entry *e = calloc(1, sizeof *e + n + 1);
    if (!e) return false;
    memcpy(e->key, key, n);
    memmove(t->of + i + 1, t->of + i, (size_t)(t->count - i) * sizeof *t->of);
    t->of[i] = e;
    t->count++;
    t->bytes += n;
    return true;
}

enum answer_status table_put(struct store_table *t, const char *key, struct bytes value) {
    int i = table_position(t, key);
    bool there = entry_is_at(t, i, key);
    size_t old = there ? t->of[i]->n : 0, added = value.n + (there ? 0 : strlen(key));
    if ((!there && t->count == STORE_KEYS_MAX) || t->bytes - old + added > TABLE_BYTES_MAX) return ANSWER_FULL;
    char *copy = malloc(value.n + 1);
    if (!copy || (!there && !entry_insert(t, i, key))) {
        free(copy);
        return ANSWER_MEMORY;
    }
    memcpy(copy, value.at, value.n);
    copy[value.n] = '\0';
    struct table_entry *e = t->of[i];
    free(e->value);
    t->bytes += value.n - old;
    e->value = copy, e->n = value.n;
    return ANSWER_OK;
}

static void table_delete(struct store_table *t, const char *prefix) {
    int count, first = table_range(t, prefix, &count);
    for (int i = first; i < first + count; i++) {
        t->bytes -= strlen(t->of[i]->key) + t->of[i]->n;
        entry_free(t->of[i]);
    }
    t->count -= count;
    memmove(t->of + first, t->of + first + count, (size_t)(t->count - first) * sizeof *t->of);
}

/* ---- operations ---- */

static void table_list(struct store_table *t, const char *prefix, struct store_answer *a) {
    int count, first = table_range(t, prefix, &count);
    size_t n = 0;
    for (int i = first; i < first + count; i++) {
        size_t bytes = strlen(t->of[i]->key) + 1;
        if (n + bytes > sizeof t->page) {
            a->status = ANSWER_FULL;
            return;
        }
        memcpy(t->page + n, t->of[i]->key, bytes);
        n += bytes;
    }
    a->value = (struct bytes){t->page, n};
}

void table_apply(struct store_table *t, const struct request *q, struct store_answer *a) {
    *a = (struct store_answer){0};
    switch (q->op) {
    case STORE_SET:
        a->status = table_put(t, q->key, q->value);
        a->changed = a->status == ANSWER_OK;
        break;
    case STORE_GET:
        a->value = table_find(t, q->key);
        if (q->wait && !a->value.at) a->status = ANSWER_NOT_THERE;
        break;
    case STORE_DELETE:
        table_delete(t, q->key);
        break;
    default:
        table_list(t, q->key, a);
    }
}
