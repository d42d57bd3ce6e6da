/* hash: the store of one process, for its threads. Each opening gives a store of its own. */
#include "transport/condition.h"
#include "transport/store/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct hash {
    struct store store;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct table *table;
};

static void hash_close(struct store *s) {
    struct hash *h = (struct hash *)s;
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    table_free(h->table);
    free(h);
}

static enum error hash_open(const struct store_params *p, const char *where, int64_t deadline, struct store **out) {
    (void)p, (void)deadline;
    if (*where) return FAIL(ERR_CONFIG, "'hash:%.200s': a store in memory has no name", where);
    struct hash *h = calloc(1, sizeof *h);
    if (!h) return FAIL(ERR_MEMORY, "cannot allocate a store");
    pthread_mutex_init(&h->lock, NULL);
    condition_init(&h->changed);
    enum error err = store_name(&h->store, "hash:");
    if (!err) err = table_create(&h->table);
    if (err) {
        free(h->store.url);
        hash_close(&h->store);
        return err;
    }
    *out = &h->store;
    return ERR_NONE;
}

static enum error hash_call(struct store *s, const struct request *q, int64_t deadline, struct pool *pool,
                            struct answer *a) {
    struct hash *h = (struct hash *)s;
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};
    int late = 0;
    pthread_mutex_lock(&h->lock);
    for (table_apply(h->table, q, a); a->status == ANSWER_NOT_THERE && !late; table_apply(h->table, q, a))
        late = pthread_cond_timedwait(&h->changed, &h->lock, &until);
    if (a->changed) pthread_cond_broadcast(&h->changed);
    enum error err = store_keep(pool, &a->value);
    pthread_mutex_unlock(&h->lock);
    return err;
}

const struct store_ops store_hash = {.scheme = "hash", .open = hash_open, .call = hash_call, .close = hash_close};
