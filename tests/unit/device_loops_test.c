/* The threads of a device share loops: each element once, pieces that the numbers decide, no wake-up lost however long
 * anybody sleeps in between, and no wait for a helper that has not come. */
#include "tests/harness/harness.h"

#include "engine/device/device.h"
#include "engine/device/runtime.h"
#include "engine/device/threads.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOST = 5, ELEMENTS = 1000 };

static atomic_int begun;

static void begin(const void *user) {
    assert_string_equal(user, "here");
    atomic_fetch_add(&begun, 1);
}

static struct threads *open_threads(int count) {
    struct threads *t;
    assert_ok(threads_create(count, begin, "here", &t));
    return t;
}

struct loop {
    int64_t count, grain;
    int64_t from[ELEMENTS]; /* where its part begins */
    _Atomic int seen[ELEMENTS];
    long nap[MOST]; /* ns that each sleeps in its part */
};

static void rest(long ns) {
    if (ns) nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void take(void *ctx, int64_t first, int64_t end) {
    struct loop *l = ctx;
    assert_true(first % l->grain == 0 && (end % l->grain == 0 || end == l->count));
    rest(l->nap[threads_self()]);
    for (int64_t i = first; i < end; i++) {
        l->from[i] = first;
        atomic_fetch_add(&l->seen[i], 1);
    }
}

/* As many even parts as threads where there are enough grains, each in a few pieces, the largest of which is half of it,
 * whoever did them; one thread does all at once. */
static void check_once(const struct loop *l, int threads) {
    int64_t grains = (l->count + l->grain - 1) / l->grain, parts = grains < threads ? grains : threads;
    int64_t most = parts > 1 ? ((grains + parts - 1) / parts + 1) / 2 : grains, pieces = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) {
        assert_int_equal(atomic_load(&l->seen[i]), i < l->count);
        if (i >= l->count) continue;
        assert_true(i - l->from[i] < most * l->grain);
        pieces += l->from[i] == i;
    }
    for (int64_t part = 0; part < parts; part++) {
        int64_t begin = grains * part / parts * l->grain;
        assert_int_equal(l->from[begin], begin);
    }
    assert_in_range(pieces, parts, 4 * parts);
}

static void each_element_once(void **state) {
    static struct loop l;
    (void)state;
    for (int threads = 1; threads <= MOST; threads++) {
        struct threads *t = open_threads(threads);
        assert_true((t == NULL) == (threads == 1));
        for (int64_t count = 1; count <= ELEMENTS; count += count / 3 + 1)
            for (int64_t grain = 1; grain <= 512; grain *= 8) {
                memset(&l, 0, sizeof l);
                l.count = count, l.grain = grain;
                threads_share(t, count, grain, take, &l);
                check_once(&l, threads);
            }
        threads_free(t);
    }
}

static void every_helper_begins(void **state) {
    static struct loop l = {.count = MOST, .grain = 1};
    (void)state;
    atomic_store(&begun, 0);
    struct threads *t = open_threads(MOST);
    threads_share(t, MOST, 1, take, &l);
    threads_free(t);
    assert_int_equal(atomic_load(&begun), MOST - 1);
}

static sem_t come;

static void begin_late(const void *user) {
    (void)user;
    while (sem_wait(&come) != 0) {
    }
}

/* Were anybody waited for, this test would have no end. */
static void a_late_helper_holds_nobody_up(void **state) {
    static struct loop l;
    struct threads *t;
    (void)state;
    sem_init(&come, 0, 0);
    assert_ok(threads_create(3, begin_late, NULL, &t));
    for (int round = 0; round < 3; round++) {
        memset(&l, 0, sizeof l);
        l.count = ELEMENTS, l.grain = 1;
        threads_share(t, ELEMENTS, 1, take, &l);
        check_once(&l, 3);
        if (round == 1) sem_post(&come);
    }
    sem_post(&come);
    threads_free(t);
    sem_destroy(&come);
}

/* Sleepers on both sides: the caller between loops and within its part, helpers within theirs, each for less and for
 * more than a wait spins. A wake-up that was lost would be a test without an end. */
static void no_wake_up_is_lost(void **state) {
    static const long naps[] = {0, 30000, 600000};
    static struct loop l;
    (void)state;
    struct threads *t = open_threads(3);
    for (int round = 0; round < 400; round++) {
        memset(&l, 0, sizeof l);
        l.count = ELEMENTS, l.grain = 1;
        for (int k = 0; k < 3; k++) l.nap[k] = naps[round / (k == 0 ? 1 : k == 1 ? 3 : 9) % 3];
        rest(naps[round / 27 % 3]);
        threads_share(t, ELEMENTS, 1, take, &l);
        check_once(&l, 3);
    }
    memset(&l, 0, sizeof l);
    l.count = 3, l.grain = 1;
    for (int round = 0; round < 20000; round++) threads_share(t, 3, 1, take, &l);
    for (int i = 0; i < 3; i++) assert_int_equal(atomic_load(&l.seen[i]), 20000);
    threads_free(t);
}

struct look {
    int blocked[2];
    _Atomic int looking;
};

/* Each part is begun before one of them ends, so the helper does one. */
static void look_at_signals(void *ctx, int64_t first, int64_t end) {
    struct look *l = ctx;
    sigset_t blocked;
    (void)first, (void)end;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    l->blocked[threads_self()] = sigismember(&blocked, SIGTERM);
    atomic_fetch_add(&l->looking, 1);
    while (atomic_load(&l->looking) < 2) rest(30000);
}

static void helpers_take_no_signals(void **state) {
    struct look l = {{-1, -1}, 0};
    (void)state;
    struct threads *t = open_threads(2);
    threads_share(t, 2, 1, look_at_signals, &l);
    assert_int_equal(l.blocked[0], 0);
    assert_int_equal(l.blocked[1], 1);
    threads_free(t);
}

/* ---- what the host's runtime shares among them ---- */

static void step_loop(const float *number, const struct rule_span *s) {
    for (int64_t i = 0; i < s->n; i++) {
        s->slot[0][i] += number[0] * s->g[i];
        s->w[i] -= s->slot[0][i];
    }
}

/* Spans of different rules' numbers, one without weights, none on a grain's edge: each element is stepped once. */
static void updates_are_shared(void **state) {
    enum { N = 30011 };
    static const struct formula formula = {"test", step_loop};
    static const struct rule rule = {.step = &formula, .number = {{1}, {2}}};
    static float w[N], g[N], slot[N];
    struct device *d;
    (void)state;
    const struct device_params params = {.count = 1, .threads = 3};
    assert_ok(device_find("cpu")->open(&params, &d));
    for (int i = 0; i < N; i++) w[i] = (float)i, g[i] = 1;
    const struct rule_span spans[] = {{.w = w, .g = g, .slot = {slot}, .n = 7},
                                      {.w = w + 7, .g = g + 7, .slot = {slot + 7}, .n = 20000, .kind = 1},
                                      {.w = w + 20007, .g = g + 20007, .slot = {slot + 20007}, .n = 0},
                                      {.w = w + 20007, .g = g + 20007, .slot = {slot + 20007}, .n = N - 20007}};
    assert_ok(device_runtime(d)->update(d, &rule, spans, 4));
    for (int i = 0; i < N; i++) {
        float step = i >= 7 && i < 20007 ? 2 : 1;
        assert_true(slot[i] == step && w[i] == (float)i - step);
    }
    assert_ok(device_add(d, w, slot, N));
    for (int i = 0; i < N; i++) assert_true(w[i] == (float)i);
    d->ops->close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_once),       cmocka_unit_test(every_helper_begins),
        cmocka_unit_test(no_wake_up_is_lost),      cmocka_unit_test(a_late_helper_holds_nobody_up),
        cmocka_unit_test(helpers_take_no_signals), cmocka_unit_test(updates_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
