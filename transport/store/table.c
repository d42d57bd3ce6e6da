/* Keys in sorted order in one array: looked up by halving, and a prefix is a range. Inserting moves
 * pointers, which for the few hundred keys of a rendezvous is nothing. */
#include "transport/store/table.h"
#include "engine/base/text.h"

#include <stdio.h>
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
    char number[24];
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

void table_clear(struct store_table *t) {
    for (int i = 0; i < t->count; i++) entry_free(t->of[i]);
    t->count = 0;
    t->bytes = 0;
}

void table_free(struct store_table *t) {
    if (!t) return;
    table_clear(t);
    free(t->of);
    free(t);
}

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

static bool is_at(const struct store_table *t, int i, const char *key) {
    return i < t->count && !strcmp(t->of[i]->key, key);
}

struct bytes table_find(const struct store_table *t, const char *key) {
    int i = table_position(t, key);
    return is_at(t, i, key) ? (struct bytes){t->of[i]->value, t->of[i]->n} : (struct bytes){0};
}

/* ---- changes ---- */

static void remove_at(struct store_table *t, int i) {
    t->bytes -= strlen(t->of[i]->key) + t->of[i]->n;
    entry_free(t->of[i]);
    t->count--;
    memmove(t->of + i, t->of + i + 1, (size_t)(t->count - i) * sizeof *t->of);
}

/* A new entry, without a value. */
static bool insert_at(struct store_table *t, int i, const char *key) {
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
    bool there = is_at(t, i, key);
    if (!value.at) {
        if (there) remove_at(t, i);
        return ANSWER_OK;
    }
    size_t old = there ? t->of[i]->n : 0, added = value.n + (there ? 0 : strlen(key));
    if ((!there && t->count == STORE_KEYS_MAX) || t->bytes - old + added > TABLE_BYTES_MAX) return ANSWER_FULL;
    char *copy = malloc(value.n + 1);
    if (!copy || (!there && !insert_at(t, i, key))) {
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

/* ---- operations ---- */

static void table_change(struct store_table *t, const char *key, struct bytes value, struct store_answer *a) {
    a->status = table_put(t, key, value);
    a->changed = a->status == ANSWER_OK;
}

static void do_add(struct store_table *t, const struct request *q, struct store_answer *a) {
    struct bytes old = table_find(t, q->key);
    int64_t number = 0;
    if ((old.at && (strlen(old.at) != old.n || !text_int(old.at, &number))) ||
        __builtin_add_overflow(number, q->delta, &a->sum)) {
        a->status = ANSWER_NO_NUMBER;
        return;
    }
    int n = snprintf(t->number, sizeof t->number, "%lld", (long long)a->sum);
    table_change(t, q->key, (struct bytes){t->number, (size_t)n}, a);
}

static bool bytes_same(struct bytes a, struct bytes b) {
    return !a.at == !b.at && a.n == b.n && (a.n == 0 || !memcmp(a.at, b.at, a.n));
}

static void do_swap(struct store_table *t, const struct request *q, struct store_answer *a) {
    a->yes = bytes_same(table_find(t, q->key), q->expected);
    if (a->yes) table_change(t, q->key, q->value, a);
    a->value = table_find(t, q->key);
}

static void do_delete(struct store_table *t, const struct request *q, struct store_answer *a) {
    a->yes = table_find(t, q->key).at != NULL;
    if (a->yes) table_change(t, q->key, (struct bytes){0}, a);
}

/* Keys after the last one seen, as many as a page takes. */
static void do_list(struct store_table *t, const struct request *q, struct store_answer *a) {
    size_t n = 0, prefix = strlen(q->key);
    const char *after = q->value.at;
    int i = table_position(t, after && strcmp(after, q->key) > 0 ? after : q->key);
    for (; i < t->count && !strncmp(t->of[i]->key, q->key, prefix); i++) {
        const char *key = t->of[i]->key;
        size_t bytes = strlen(key) + 1;
        if (after && strcmp(key, after) <= 0) continue;
        a->yes = n + bytes > sizeof t->page;
        if (a->yes) break;
        memcpy(t->page + n, key, bytes);
        n += bytes;
    }
    a->value = (struct bytes){t->page, n};
}

void table_apply(struct store_table *t, const struct request *q, struct store_answer *a) {
    *a = (struct store_answer){0};
    switch (q->op) {
    case STORE_SET:
        table_change(t, q->key, q->value, a);
        break;
    case STORE_GET:
        a->value = table_find(t, q->key);
        if (q->wait && !a->value.at) a->status = ANSWER_NOT_THERE;
        break;
    case STORE_ADD:
        do_add(t, q, a);
        break;
    case STORE_SWAP:
        do_swap(t, q, a);
        break;
    case STORE_DELETE:
        do_delete(t, q, a);
        break;
    default:
        do_list(t, q, a);
    }
}
