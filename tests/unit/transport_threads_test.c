/* Ranks as threads. */
#include "tests/harness/harness.h"

#include "transport/group.h"
#include "transport/launch/launch.h"
#include "transport/link/board.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- more ranks than look at each other one by one ---- */

enum { MANY = 256, FLOATS = 16 << 10 };

static enum error sums_are_right(struct group *g, float *v, int64_t n) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) v[i] = (float)((group_rank(g) + i) % 7);
    TRY(group_all_reduce(g, GROUP_INLINE, v, n, DTYPE_F32, REDOP_SUM));
    for (int64_t i = 0; i < n; i++) {
        int sum = 0;
        for (int r = 0; r < MANY; r++) sum += (int)((r + i) % 7);
        wrong += v[i] != (float)sum;
    }
    return wrong
               ? FAIL(ERR_RESULT, "rank %d: %lld of %lld sums are wrong", group_rank(g), (long long)wrong, (long long)n)
               : ERR_NONE;
}

/* Staged, in two phases, in lent memory; by a pipe from each rank to the next; a message by its tag. */
static enum error exchange_all(struct group *g) {
    enum { LAST = 3 };
    int me = group_rank(g), got = -1;
    void *shared;
    float *own = malloc(FLOATS * sizeof *own);
    enum error err = group_alloc(g, FLOATS * sizeof(float), &shared);
    for (int64_t n = 128; n <= FLOATS && !err; n *= 8) err = sums_are_right(g, shared, n);
    if (!err) err = sums_are_right(g, own, FLOATS);
    free(own);
    if (!err) err = group_barrier(g);
    if (!err && me < LAST) err = group_send(g, GROUP_INLINE, &me, 1, DTYPE_I32, me + 1);
    if (!err && me > 0 && me <= LAST) err = group_recv(g, GROUP_INLINE, &got, 1, DTYPE_I32, me - 1);
    return err || me == 0 || me > LAST || got == me - 1 ? err : FAIL(ERR_RESULT, "rank %d got %d", me, got);
}

static enum error mail_to_first(struct group *g) {
    int32_t value = group_rank(g), sum = 0;
    struct work *w;
    struct group_message m = {.buf = &value, .count = 1, .type = DTYPE_I32, .peer = 0, .tag = 5};
    if (value % 64 == 63) {
        TRY(group_post(g, &m, &w));
        TRY(work_wait(w));
    }
    m.peer = GROUP_ANY;
    for (int i = 0; group_rank(g) == 0 && i < MANY / 64; i++, sum += value) {
        TRY(group_take(g, &m, &w));
        TRY(work_wait(w));
    }
    return group_rank(g) || sum == 63 + 127 + 191 + 255 ? ERR_NONE : FAIL(ERR_RESULT, "messages bring %d", sum);
}

static enum error be_one_of_many(void *user, int rank) {
    struct group *g;
    struct group_params p = {.rank = rank,
                             .size = MANY,
                             .link = "thread",
                             .algorithm = "auto",
                             .timeout = 60,
                             .mail = true,
                             .meeting = user};
    TRY(group_open(&p, &g));
    enum error err = exchange_all(g);
    if (!err) err = mail_to_first(g);
    if (!err) err = group_barrier(g);
    group_close(g);
    return err;
}

static void many_ranks_sum(void **unused) {
    struct meeting *m;
    (void)unused;
    assert_ok(meeting_create(MANY, &m));
    assert_ok(launch_threads(MANY, be_one_of_many, m));
    assert_true(atomic_load(&m->board->gates[0].round.value) > 0);
    meeting_free(m);
}

/* All but one wait at the gate; it leaves, or never comes. */
static enum error wait_for_the_last(void *user, int rank) {
    struct group *g;
    struct group_params p = {
        .rank = rank, .size = MANY, .link = "thread", .algorithm = "auto", .timeout = 60, .meeting = user};
    TRY(group_open(&p, &g));
    enum error err = rank == 77 ? ERR_NONE : group_barrier(g);
    group_close(g);
    return err;
}

static void who_left_is_named_at_the_gate(void **unused) {
    struct meeting *m;
    (void)unused;
    assert_ok(meeting_create(MANY, &m));
    assert_int_equal(launch_threads(MANY, wait_for_the_last, m), ERR_PEER);
    assert_non_null(strstr(error_message(), "rank 77 has left"));
    meeting_free(m);
}

/* Ranks that find each other on one core go apart, and may go back. */
static enum error begin_on_one_core(void *user, int rank) {
    enum { TURNS = 4, CALLS = 4 };
    struct group *g;
    struct group_params p = {
        .rank = rank, .size = 2, .link = "thread", .algorithm = "auto", .timeout = 60, .meeting = user};
    cpu_set_t may, one, now;
    int first = 0;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof may, &may)) return FAIL(ERR_IO, "no affinity");
    while (!CPU_ISSET(first, &may)) first++;
    CPU_SET(first, &one);
    TRY(group_open(&p, &g));
    enum error err = ERR_NONE;
    for (int i = 0; i < TURNS * CALLS && !err;
         i++) { /* the last call of a turn finds that the others were on one core */
        bool last = i % CALLS == CALLS - 1;
        if (last) usleep(rank ? 25000 : 50000); /* rank 1 has the core alone, and waits for the other */
        if (sched_setaffinity(0, sizeof may, last ? &may : &one)) err = FAIL(ERR_IO, "cannot set the affinity");
        if (!err) err = group_barrier(g);
        if (!err && last && (sched_getaffinity(0, sizeof now, &now) || !CPU_EQUAL(&may, &now)))
            err = FAIL(ERR_BUG, "rank %d may use %d cores of %d", rank, CPU_COUNT(&now), CPU_COUNT(&may));
    }
    group_close(g);
    return err;
}

static void ranks_on_one_core_go_apart(void **unused) {
    struct meeting *m;
    (void)unused;
    assert_ok(meeting_create(2, &m));
    assert_ok(launch_threads(2, begin_on_one_core, m));
    meeting_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_run_at_once),
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(who_was_lost_tells_more),
        cmocka_unit_test(any_rank_may_fail),
        cmocka_unit_test(many_ranks_sum),
        cmocka_unit_test(who_left_is_named_at_the_gate),
        cmocka_unit_test(ranks_on_one_core_go_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
