/* The threads of a device share loops: each element once, parts that the numbers decide, and no wake-up lost however
 * long anybody sleeps in between. */
#include "tests/harness/harness.h"

#include "engine/device/device.h"
#include "engine/device/runtime.h"
#include "engine/device/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
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
    int who[ELEMENTS];
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
        l->who[i] = threads_self();
        atomic_fetch_add(&l->seen[i], 1);
    }
}

static void check_once(const struct loop *l, int threads) {
    for (int64_t i = 0; i < ELEMENTS; i++) {
        assert_int_equal(atomic_load(&l->seen[i]), i < l->count);
        if (i < l->count) assert_in_range(l->who[i], i ? l->who[i - 1] : 0, threads - 1); /* in their order */
    }
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
                if (count >= threads * grain) assert_int_equal(l.who[count - 1], threads - 1); /* all have a part */
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
    assert_int_equal(atomic_load(&begun), MOST - 1);
    threads_free(t);
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

static void look_at_signals(void *ctx, int64_t first, int64_t end) {
    sigset_t blocked;
    (void)end;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    ((int *)ctx)[first] = sigismember(&blocked, SIGTERM);
}

static void helpers_take_no_signals(void **state) {
    int blocked[2] = {-1, -1};
    (void)state;
    struct threads *t = open_threads(2);
    threads_share(t, 2, 1, look_at_signals, blocked);
    assert_int_equal(blocked[0], 0);
    assert_int_equal(blocked[1], 1);
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
        cmocka_unit_test(each_element_once),  cmocka_unit_test(every_helper_begins),
        cmocka_unit_test(no_wake_up_is_lost), cmocka_unit_test(helpers_take_no_signals),
        cmocka_unit_test(updates_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
