#include "engine/data/unreadable.h"

#include "engine/data/loader.h"
#include "engine/device/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct answer {
    struct unreadable found;
    char key[SHA256_TEXT];
    struct answer *next;
} * answers;
static pthread_mutex_t answers_lock = PTHREAD_MUTEX_INITIALIZER; /* held during a search, so that others wait for it */

struct search {
    struct unreadable *found;
    int64_t n;
    unreadable_try_fn *try;
    void *ctx;
    _Atomic int64_t next;
    pthread_mutex_t lock; /* guards found and what follows */
    enum error err;       /* that ends the search */
    char words[ERROR_WORDS];
};

static void unreadable_free(struct unreadable *u) {
    for (int64_t i = 0; i < u->count; i++) free(u->sample[i].why);
    free(u->sample);
}

static enum error unreadable_add(struct unreadable *u, int64_t index) {
    bool full = (u->count & (u->count - 1)) == 0; /* room is a power of two */
    size_t room = u->count ? 2 * (size_t)u->count : 1;
    struct unreadable_sample *more = full ? realloc(u->sample, room * sizeof *more) : u->sample;
    if (more) u->sample = more;
    char *why = more ? strdup(error_message()) : NULL;
    if (!why) return FAIL(ERR_MEMORY, "no memory for the names of %lld files", (long long)u->count);
    u->sample[u->count++] = (struct unreadable_sample){index, why};
    return ERR_NONE;
}

static void search_note(struct search *s, int64_t i, enum error err) {
    pthread_mutex_lock(&s->lock);
    if (err == ERR_DATA) err = unreadable_add(s->found, i);
    if (err != ERR_NONE && s->err == ERR_NONE) {
        s->err = err;
        error_words(s->words, sizeof s->words);
        atomic_store(&s->next, s->n);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Every thread takes the next sample until none is left, since pictures differ much in size. */
static void search_run(void *ctx, int64_t begin, int64_t end) {
    struct search *s = ctx;
    (void)begin, (void)end;
    for (int64_t i; (i = atomic_fetch_add(&s->next, 1)) < s->n;) {
        enum error err = s->try(s->ctx, i);
        if (err != ERR_NONE) search_note(s, i, err);
    }
}

static void thread_begin(const void *user) {
    (void)user;
}

static int sample_compare(const void *a, const void *b) {
    const struct unreadable_sample *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

static enum error search_all(struct search *s) {
    struct threads *threads;
    int count = loader_cores();
    TRY(threads_create(count, thread_begin, NULL, &threads));
    pthread_mutex_init(&s->lock, NULL);
    threads_share(threads, count, 1, search_run, s);
    threads_free(threads);
    pthread_mutex_destroy(&s->lock);
    if (s->found->count) qsort(s->found->sample, (size_t)s->found->count, sizeof *s->found->sample, sample_compare);
    return s->err == ERR_NONE ? ERR_NONE : FAIL(s->err, "%s", s->words);
}

/* Searches all files for unreadable ones, and makes the answer that is remembered under the key. */
static enum error answer_make(const char *key, struct search *s, struct answer **out) {
    struct answer *a = calloc(1, sizeof *a);
    if (!a) return FAIL(ERR_MEMORY, "no memory to check %lld samples", (long long)s->n);
    memcpy(a->key, key, SHA256_TEXT);
    s->found = &a->found;
    enum error err = search_all(s);
    if (err == ERR_NONE) {
        *out = a;
        return ERR_NONE;
    }
    unreadable_free(&a->found);
    free(a);
    return err;
}

enum error unreadable_find(const char key[SHA256_TEXT], int64_t n, unreadable_try_fn *try, void *ctx,
                           const struct unreadable **out) {
    struct search s = {.n = n, .try = try, .ctx = ctx};
    enum error err = ERR_NONE;
    pthread_mutex_lock(&answers_lock);
    struct answer *a = answers;
    while (a && strcmp(a->key, key) != 0) a = a->next;
    if (!a && (err = answer_make(key, &s, &a)) == ERR_NONE) {
        a->next = answers;
        answers = a;
    }
    if (a) *out = &a->found;
    pthread_mutex_unlock(&answers_lock);
    return err;
}
