#include "engine/base/give_up.h"
#include "engine/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool done;
static struct { /* before 'done', under the lock; then it stays */
    enum error err;
    double seconds;
    char words[2048], hint[1024];
} last;

static void *wait_for_end(void *none) {
    (void)none;
    clock_nap((int64_t)(last.seconds * 1e9));
    fprintf(stderr, "error: %s%s%s\n", last.words, *last.hint ? "\nhint: " : "", last.hint);
    _exit(error_exit_code(last.err));
}

void give_up(enum error err, double seconds) {
    pthread_t thread;
    pthread_mutex_lock(&lock);
    bool first = !given_up();
    if (first) {
        last.err = err;
        last.seconds = seconds;
        snprintf(last.words, sizeof last.words, "%s", error_message());
        snprintf(last.hint, sizeof last.hint, "%s", error_hint());
        atomic_store(&done, true);
    }
    pthread_mutex_unlock(&lock);
    if (first && pthread_create(&thread, NULL, wait_for_end, NULL) == 0) pthread_detach(thread);
}

bool given_up(void) {
    return atomic_load(&done);
}

enum error given_up_error(void) {
    if (!given_up()) return ERR_NONE;
    return FAIL(last.err, "%s\n%s", last.words, last.hint);
}

void given_up_exit(int code) {
    if (!given_up()) return;
    fflush(NULL);
    _exit(code);
}
