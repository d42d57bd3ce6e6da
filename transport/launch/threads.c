/* Ranks as threads of this process. */
#include "engine/base/memory.h"
#include "engine/base/text.h"
#include "transport/launch/launch.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct crew {
    rank_fn fn;
    void *user;
    pthread_mutex_t gate; /* held until all threads are there: with one missing the others would
                             wait for it in vain */
    bool cancelled;
    pthread_mutex_t telling;
    enum error error; /* of the first that failed, with its message and hint; of those that failed
                         because another did (ERR_PEER) only when there is no other */
    char failure[ERROR_WORDS];
};
struct rank_thread {
    struct crew *crew;
    int rank;
    pthread_t thread;
};

static bool gate_pass(struct crew *c) {
    pthread_mutex_lock(&c->gate);
    bool go = !c->cancelled;
    pthread_mutex_unlock(&c->gate);
    return go;
}

static void crew_tell(struct crew *c, enum error err) {
    pthread_mutex_lock(&c->telling);
    if (c->error == ERR_NONE || (c->error == ERR_PEER && err != ERR_PEER)) {
        c->error = err;
        error_words(c->failure, sizeof c->failure);
    }
    pthread_mutex_unlock(&c->telling);
}

static void *rank_main(void *arg) {
    struct rank_thread *t = arg;
    struct crew *c = t->crew;
    text_plain_numbers();
    if (!gate_pass(c)) return NULL;
    enum error err = c->fn(c->user, t->rank);
    if (err != ERR_NONE) crew_tell(c, err);
    return NULL;
}

/* Gives how many threads run; fewer than size is a failure of the system. */
static int crew_start(struct crew *c, struct rank_thread *threads, int size, int *why) {
    int started = 0;
    pthread_mutex_lock(&c->gate);
    for (; started < size; started++) {
        struct rank_thread *t = &threads[started];
        *t = (struct rank_thread){.crew = c, .rank = started};
        *why = pthread_create(&t->thread, NULL, rank_main, t);
        if (*why) break;
        char name[32]; /* the kernel takes 15 characters */
        snprintf(name, sizeof name, "rank %d", started);
        pthread_setname_np(t->thread, name);
    }
    c->cancelled = started < size;
    pthread_mutex_unlock(&c->gate);
    return started;
}

enum error launch_threads(int size, rank_fn fn, void *user) {
    assert(size > 0);
    size_t bytes;
    TRY(memory_size((size_t)size, sizeof(struct rank_thread), "threads", &bytes));
    struct rank_thread *threads = memory_new(bytes);
    if (!threads) return ERR_MEMORY;
    struct crew crew = {
        .fn = fn, .user = user, .gate = PTHREAD_MUTEX_INITIALIZER, .telling = PTHREAD_MUTEX_INITIALIZER};
    int why = 0, started = crew_start(&crew, threads, size, &why);
    for (int r = 0; r < started; r++) pthread_join(threads[r].thread, NULL);
    memory_free(threads);
    if (started < size) return FAIL(ERR_MEMORY, "cannot start thread %d of %d: %s", started + 1, size, strerror(why));
    return crew.error == ERR_NONE ? ERR_NONE : FAIL(crew.error, "%s", crew.failure);
}
