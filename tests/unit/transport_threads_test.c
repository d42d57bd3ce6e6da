/* Ranks as threads. */
#include "tests/harness/harness.h"

#include "transport/launch/launch.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct shared {
    int size;
    pthread_barrier_t all;
    atomic_int seen; /* a bit a rank */
    atomic_bool named;
};

static enum error meet(void *user, int rank) {
    struct shared *s = user;
    char name[16], expected[16];
    snprintf(expected, sizeof expected, "rank %d", rank);
    pthread_barrier_wait(&s->all); /* returns only if all run at once; and all names are set by then */
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strcmp(name, expected)) s->named = false;
    atomic_fetch_or(&s->seen, 1 << rank);
    return ERR_NONE;
}

static void all_run_at_once(void **unused) {
    (void)unused;
    static const int sizes[] = {1, 2, 8};
    for (int i = 0; i < 3; i++) {
        struct shared s = {.size = sizes[i], .named = true};
        pthread_barrier_init(&s.all, NULL, (unsigned)s.size);
        assert_ok(launch_threads(s.size, meet, &s));
        pthread_barrier_destroy(&s.all);
        assert_int_equal(s.seen, (1 << s.size) - 1);
        assert_true(s.named);
    }
}

/* Rank 2 fails; the others fail when they learn of it, well after. */
static enum error fail_in_turn(void *user, int rank) {
    (void)user;
    if (rank == 2) return FAIL(ERR_DATA, "record %d is torn\nmend it", 42);
    usleep(100000);
    return FAIL(ERR_PEER, "rank %d lost rank 2", rank);
}

static void first_failure_wins(void **unused) {
    (void)unused;
    assert_int_equal(launch_threads(4, fail_in_turn, NULL), ERR_DATA);
    assert_string_equal(error_message(), "record 42 is torn");
    assert_string_equal(error_hint(), "mend it");
}

/* The others are quicker to end than rank 2, for which they do. */
static enum error fail_slowly(void *user, int rank) {
    (void)user;
    if (rank != 2) return FAIL(ERR_PEER, "rank %d lost rank 2", rank);
    usleep(100000);
    return FAIL(ERR_RESULT, "diverged");
}

static void who_was_lost_tells_more(void **unused) {
    (void)unused;
    assert_int_equal(launch_threads(4, fail_slowly, NULL), ERR_RESULT);
    assert_string_equal(error_message(), "diverged");
    assert_int_equal(launch_threads(2, fail_slowly, NULL), ERR_PEER);
}

static enum error fail_one(void *user, int rank) {
    return rank == *(int *)user ? FAIL(ERR_IO, "rank %d: disk", rank) : ERR_NONE;
}

static void any_rank_may_fail(void **unused) {
    (void)unused;
    for (int rank = 0; rank < 3; rank++) {
        char expected[32];
        snprintf(expected, sizeof expected, "rank %d: disk", rank);
        assert_int_equal(launch_threads(3, fail_one, &rank), ERR_IO);
        assert_string_equal(error_message(), expected);
        assert_string_equal(error_hint(), "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_run_at_once),
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(who_was_lost_tells_more),
        cmocka_unit_test(any_rank_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
