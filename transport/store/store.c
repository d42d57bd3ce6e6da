/* The list of stores, and the operations: each is checked here, once for all kinds, made a request,
 * and its answer made a result or an error. */
#include "engine/base/text.h"
#include "transport/store/store_impl.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORE(name) extern const struct store_ops store_##name;
#include "transport/store/stores.def"
#undef STORE

static const struct store_ops *const kinds[] = {
#define STORE(name) &store_##name,
#include "transport/store/stores.def"
#undef STORE
};

/* ---- what kinds share ---- */

enum error store_name(struct store *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s->url, fmt, ap);
    va_end(ap);
    if (n >= 0) return ERR_NONE;
    s->url = NULL;
    return FAIL(ERR_MEMORY, "cannot allocate the address of a store");
}

bool store_key_ok(const char *key, size_t n, bool prefix) {
    if (n > STORE_KEY_MAX || (n == 0 && !prefix)) return false;
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~') return false;
    return true;
}

enum error store_keep(struct pool *pool, struct bytes *value) {
    if (!value->at || !pool) return ERR_NONE;
    value->at = pool_strndup(pool, value->at, value->n);
    return value->at ? ERR_NONE : ERR_MEMORY;
}

int64_t store_deadline(double seconds) {
    static const double most = 1e9; /* thirty years are for ever */
    return clock_ns() + (int64_t)((seconds < most ? seconds : most) * 1e9);
}

bool store_pause(int64_t *us, int64_t most, int64_t deadline) {
    int64_t now = clock_ns(), left = deadline - now;
    if (left <= 0) return false;
    int64_t ns = *us * 500 + now % (*us * 500); /* from half to all of it, as the clock has it */
    if (ns > left) ns = left;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    nanosleep(&t, NULL);
    *us = *us * 2 < most ? *us * 2 : most;
    return true;
}

/* ---- opening ---- */

static const struct store_ops *find_kind(const char *url, const char **where) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]->scheme);
        if (strncmp(url, kinds[i]->scheme, n) || url[n] != ':') continue;
        *where = url + n + 1;
        return kinds[i];
    }
    return NULL;
}

enum error store_open(const struct store_params *p, struct store **out) {
    const char *where, *url = p->url ? p->url : "";
    const struct store_ops *ops = find_kind(url, &where);
    if (!ops) return FAIL(ERR_CONFIG, "'%.200s' is not a store\nwrite file:///PATH or tcp://HOST:PORT", url);
    if (p->token && strlen(p->token) >= SECRET_SIZE)
        return FAIL(ERR_CONFIG, "a token of %zu characters\nat most %d are allowed", strlen(p->token), SECRET_MAX);
    if (p->run && strlen(p->run) > STORE_KEY_MAX)
        return FAIL(ERR_CONFIG, "the name of the run has %zu characters\nat most %d are allowed", strlen(p->run),
                    STORE_KEY_MAX);
    if (!(p->timeout > 0)) return FAIL(ERR_USAGE, "a store needs a timeout of more than 0 s");
    struct store *s;
    TRY(ops->open(p, where, store_deadline(p->timeout), &s));
    s->ops = ops;
    s->timeout = p->timeout;
    *out = s;
    return ERR_NONE;
}

void store_close(struct store *s) {
    if (!s) return;
    char *url = s->url;
    s->ops->close(s);
    free(url);
}

const char *store_url(const struct store *s) {
    return s->url;
}

const char *store_key(const struct store *s) {
    return s->key ? s->key : "";
}

bool store_turned_away(struct store *s, char out[128]) {
    return s->ops->turned_away && s->ops->turned_away(s, out);
}

uint64_t store_member(const struct store *s) {
    return s->ops->member ? s->ops->member(s) : 0;
}

bool store_sees(struct store *s, uint64_t member) {
    return s->ops->sees && s->ops->sees(s, member);
}

/* ---- operations ---- */

static enum error request_check(const struct request *q) {
    if (!store_key_ok(q->key, strlen(q->key), q->op == STORE_LIST))
        return FAIL(ERR_USAGE, "'%.300s' is not a key\na key has 1 to %d printable characters without a space", q->key,
                    STORE_KEY_MAX);
    if (q->value.n > STORE_VALUE_MAX || q->expected.n > STORE_VALUE_MAX)
        return FAIL(ERR_USAGE, "%zu bytes for the key '%s'\na store takes at most %d",
                    q->value.n > q->expected.n ? q->value.n : q->expected.n, q->key, STORE_VALUE_MAX);
    return ERR_NONE;
}

static enum error fail_answer(const struct store *s, const struct request *q, double timeout,
                              const struct store_answer *a) {
    char time[32];
    switch (a->status) {
    case ANSWER_OK:
        return ERR_NONE;
    case ANSWER_NOT_THERE:
        return FAIL(ERR_TIMEOUT, "the key '%s' did not come to the store %s within %s", q->key, s->url,
                    text_of_seconds(timeout, time));
    case ANSWER_NO_NUMBER:
        return FAIL(ERR_DATA, "the key '%s' holds no number to which %lld can be added", q->key, (long long)q->delta);
    case ANSWER_FULL:
        return FAIL(ERR_CREATE, "the store %s is full: no room for the key '%s'\nit takes %d keys", s->url, q->key,
                    STORE_KEYS_MAX);
    default:
        return FAIL(ERR_MEMORY, "the store %s has no memory for the key '%s'", s->url, q->key);
    }
}

static enum error store_ask(struct store *s, const struct request *q, double timeout, struct pool *pool,
                            struct store_answer *a) {
    *a = (struct store_answer){0};
    if (!(timeout > 0)) timeout = s->timeout;
    TRY(request_check(q));
    TRY(s->ops->call(s, q, store_deadline(timeout), pool, a));
    return fail_answer(s, q, timeout, a);
}

enum error store_set(struct store *s, const char *key, const void *value, size_t n) {
    struct request q = {.op = STORE_SET, .key = key, .value = {n ? value : "", n}};
    struct store_answer a;
    return store_ask(s, &q, 0, NULL, &a);
}

/* Values are chars with a 0 byte after them, in memory of the caller's pool. */
static char *text_of(const struct store_answer *a) {
    return (char *)(uintptr_t)a->value.at;
}

enum error store_get(struct store *s, const char *key, double timeout, struct pool *pool, char **value, size_t *n) {
    struct request q = {.op = STORE_GET, .wait = true, .key = key};
    struct store_answer a;
    TRY(store_ask(s, &q, timeout, pool, &a));
    *value = text_of(&a);
    *n = a.value.n;
    return ERR_NONE;
}

enum error store_find(struct store *s, const char *key, struct pool *pool, char **value, size_t *n) {
    struct request q = {.op = STORE_GET, .key = key};
    struct store_answer a;
    TRY(store_ask(s, &q, 0, pool, &a));
    *value = text_of(&a);
    *n = a.value.n;
    return ERR_NONE;
}

enum error store_add(struct store *s, const char *key, int64_t delta, int64_t *out) {
    struct request q = {.op = STORE_ADD, .key = key, .delta = delta};
    struct store_answer a;
    TRY(store_ask(s, &q, 0, NULL, &a));
    *out = a.sum;
    return ERR_NONE;
}

enum error store_swap(struct store *s, const char *key, const char *expected, const char *desired, struct pool *pool,
                      bool *swapped, char **now) {
    struct request q = {.op = STORE_SWAP,
                        .key = key,
                        .value = {desired, strlen(desired)},
                        .expected = {expected, expected ? strlen(expected) : 0}};
    struct store_answer a;
    TRY(store_ask(s, &q, 0, pool, &a));
    *swapped = a.yes;
    *now = text_of(&a);
    return ERR_NONE;
}

enum error store_delete(struct store *s, const char *key, bool *found) {
    struct request q = {.op = STORE_DELETE, .key = key};
    struct store_answer a;
    TRY(store_ask(s, &q, 0, NULL, &a));
    if (found) *found = a.yes;
    return ERR_NONE;
}

/* ---- lists come in pages ---- */

/* The keys of a page after those that are there, in an array that the pool holds. */
static enum error keys_add(struct pool *pool, const struct store_answer *page, char ***keys, int *count) {
    const char *end = (const char *)page->value.at + page->value.n;
    int more = 0;
    for (const char *key = page->value.at; key < end; key += strlen(key) + 1) more++;
    char **all = pool_alloc(pool, ((size_t)*count + (size_t)more + 1) * sizeof *all);
    if (!all) return ERR_MEMORY;
    if (*count) memcpy(all, *keys, (size_t)*count * sizeof *all);
    for (char *key = text_of(page); key < end; key += strlen(key) + 1) all[(*count)++] = key;
    *keys = all;
    return ERR_NONE;
}

enum error store_list(struct store *s, const char *prefix, struct pool *pool, char ***keys, int *count) {
    struct store_answer page = {.yes = true};
    *count = 0;
    for (int seen = -1; page.yes && *count > seen;) {
        seen = *count;
        struct request q = {.op = STORE_LIST, .key = prefix};
        if (seen) q.value = (struct bytes){(*keys)[seen - 1], strlen((*keys)[seen - 1])};
        TRY(store_ask(s, &q, 0, pool, &page));
        TRY(keys_add(pool, &page, keys, count));
        if (*count > STORE_KEYS_MAX)
            return FAIL(ERR_DATA, "the store %s lists more than %d keys", s->url, STORE_KEYS_MAX);
    }
    return ERR_NONE;
}
