#include "tests/harness/table_store.h"

#include "tests/harness/harness.h"
#include "transport/store/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct table_store {
    struct store store; /* comes first: a store is one of these */
    struct store_table *table;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct table_count count;
};

static void count_request(struct table_store *s, const struct request *q, const struct store_answer *a) {
    s->count.requests++;
    s->count.lists += q->op == STORE_LIST;
    s->count.bytes += (long)(strlen(q->key) + q->value.n + q->expected.n + a->value.n);
}

static enum error table_store_call(struct store *store, const struct request *q, int64_t deadline, struct pool *pool,
                                   struct store_answer *a) {
    struct table_store *s = (struct table_store *)store;
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};
    enum error err = ERR_NONE;
    int why = 0;
    pthread_mutex_lock(&s->lock);
    table_apply(s->table, q, a);
    while (a->status == ANSWER_NOT_THERE && why != ETIMEDOUT) {
        why = pthread_cond_timedwait(&s->changed, &s->lock, &until);
        table_apply(s->table, q, a);
    }
    count_request(s, q, a);
    if (a->changed) pthread_cond_broadcast(&s->changed);
    if (pool) err = store_keep(pool, &a->value);
    pthread_mutex_unlock(&s->lock);
    return err;
}

static void table_store_close(struct store *store) {
    struct table_store *s = (struct table_store *)store;
    table_free(s->table);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct store *table_store_open(struct table_store **out) {
    static const struct store_ops ops = {.scheme = "table", .call = table_store_call, .close = table_store_close};
    struct table_store *s = calloc(1, sizeof *s);
    pthread_condattr_t monotonic;
    assert_non_null(s);
    s->store = (struct store){.ops = &ops, .timeout = 60};
    assert_ok(store_name(&s->store, "table:"));
    assert_ok(table_create(&s->table));
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = s;
    return &s->store;
}

struct table_count table_store_count(struct table_store *s) {
    pthread_mutex_lock(&s->lock);
    struct table_count count = s->count;
    pthread_mutex_unlock(&s->lock);
    return count;
}
