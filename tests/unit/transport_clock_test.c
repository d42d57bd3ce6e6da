/* The wall clock is set back by an hour while ranks work and while they wait for each other: all
 * deadlines are kept, since they go by the monotonic clock. The calls below stand before the C
 * library's, for nng, too, whose own timeouts go by the wall clock. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "tests/conformance/ranks.h"
#include "tests/harness/timing.h"
#include "tests/unit/proxy.h"
#include "transport/launch/rendezvous.h"
#include "transport/store/store.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#define BEFORE_LIBRARY __attribute__((visibility("default")))

/* ---- a wall clock of this process's own ---- */

static _Atomic int64_t set_back; /* s */

BEFORE_LIBRARY int clock_gettime(clockid_t id, struct timespec *out) {
    int err = (int)syscall(SYS_clock_gettime, id, out);
    if (id == CLOCK_REALTIME) out->tv_sec -= set_back;
    return err;
}

/* Conditions that go by the monotonic clock. Of a condition only its place is known. */
enum { CONDITIONS = 4096 };
static struct {
    pthread_mutex_t lock;
    const void *at[CONDITIONS];
    int count;
} monotonic = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_monotonic(const pthread_cond_t *c) {
    bool found = false;
    pthread_mutex_lock(&monotonic.lock);
    for (int i = 0; i < monotonic.count && !found; i++) found = monotonic.at[i] == c;
    pthread_mutex_unlock(&monotonic.lock);
    return found;
}

static void forget(const pthread_cond_t *c) {
    pthread_mutex_lock(&monotonic.lock);
    for (int i = 0; i < monotonic.count; i++)
        if (monotonic.at[i] == c) monotonic.at[i--] = monotonic.at[--monotonic.count];
    pthread_mutex_unlock(&monotonic.lock);
}

BEFORE_LIBRARY int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a) {
    int (*real)(pthread_cond_t *, const pthread_condattr_t *) = NULL;
    clockid_t id = CLOCK_REALTIME;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_init");
    if (a) pthread_condattr_getclock(a, &id);
    forget(c);
    pthread_mutex_lock(&monotonic.lock);
    if (id == CLOCK_MONOTONIC && monotonic.count < CONDITIONS) monotonic.at[monotonic.count++] = c;
    pthread_mutex_unlock(&monotonic.lock);
    return real(c, a);
}

/* Waits by the set clock in slices, after each of which it is as if somebody had woken it. */
BEFORE_LIBRARY int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until) {
    int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) = NULL;
    struct timespec now, slice;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (is_monotonic(c)) return real(c, m, until);
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec)) return ETIMEDOUT;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &slice);
    slice.tv_nsec += 10000000;
    if (slice.tv_nsec >= 1000000000) slice.tv_sec++, slice.tv_nsec -= 1000000000;
    int err = real(c, m, &slice);
    return err == ETIMEDOUT ? 0 : err;
}

static void *set_back_later(void *arg) {
    struct timespec nap = {.tv_nsec = 700000000};
    nanosleep(&nap, NULL);
    set_back = 3600;
    return arg;
}

static pthread_t soon(void) {
    pthread_t id;
    set_back = 0;
    assert_int_equal(pthread_create(&id, NULL, set_back_later, NULL), 0);
    return id;
}

/* ---- waiting for who does not come ---- */

static void assert_took(int64_t start, double least, double most) {
    double took = clock_seconds(clock_ns() - start);
    if (took < least || took > timing_limit(most)) fail_msg("it took %.2f s", took);
}

static void joining_ends(void **state) {
    struct store *s;
    struct pool *pool;
    struct attendant *members;
    struct store_params p = {.url = "tcp://127.0.0.1:0", .serve = true, .token = "t", .timeout = 20};
    (void)state;
    assert_ok(pool_create(&pool));
    assert_ok(store_open(&p, &s));
    struct rendezvous r = {.store = s, .what = "rank", .round = "r", .index = 0, .count = 2, .who = "me", .timeout = 3};
    pthread_t id = soon();
    int64_t start = clock_ns();
    assert_fails(ERR_TIMEOUT, rendezvous_meet(&r, pool, &members));
    assert_took(start, 2.5, 6);
    pthread_join(id, NULL);
    store_close(s);
    pool_free(pool);
}

/* What listens there takes connections and says nothing. */
static void a_dumb_store_is_given_up(void **state) {
    struct sockaddr_in own = proxy_address(0);
    socklen_t size = sizeof own;
    char url[64];
    struct store *s;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&own, size) | listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &size), 0);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(own.sin_port));
    struct store_params p = {.url = url, .token = "t", .timeout = 3};
    pthread_t id = soon();
    int64_t start = clock_ns();
    assert_fails(ERR_TIMEOUT, store_open(&p, &s));
    assert_took(start, 2.5, 6);
    pthread_join(id, NULL);
    close(fd);
}

static void a_silent_stranger_has_to_go(void **state) {
    struct port *port;
    struct timeval patience = {.tv_sec = 15};
    char byte;
    (void)state;
    assert_ok(port_open(&(struct port_params){.key = "k"}, &port));
    struct sockaddr_in to = proxy_address(atoi(strrchr(port_address(port), ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    pthread_t id = soon();
    int64_t start = clock_ns();
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    assert_took(start, 8, 14);
    pthread_join(id, NULL);
    close(fd);
    port_close(port);
}

/* ---- a cable that is cut after the clock was set ---- */

static struct proxy cable;

static void work_until_cut(struct rank *r) {
    static float buf[2][1000];
    int64_t start = clock_ns();
    enum error err = ERR_NONE;
    while (!err && clock_seconds(clock_ns() - start) < 30) {
        if (clock_seconds(clock_ns() - start) > 1.5) cable.dumb = true;
        err = group_all_reduce(r->group, GROUP_INLINE, buf[r->index], 1000, DTYPE_F32, REDOP_SUM);
    }
    rank_result(r, err);
    check(clock_seconds(clock_ns() - start) < timing_limit(8), "took too long");
}

static void the_heart_goes_on_beating(void **state) {
    struct ranks p = {.world = 2, .link = "tcp", .heartbeat = 1, .fn = work_until_cut};
    struct rank r[2];
    (void)state;
    ranks_meet(&p);
    proxy_open(&cable, p.seat[0].address, sizeof p.seat[0].address);
    pthread_t id = soon();
    ranks_run(&p, r);
    pthread_join(id, NULL);
    proxy_close(&cable);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].err, ERR_PEER);
        if (!strstr(r[i].message, "is silent for 3 s")) fail_msg("'%s'", r[i].message);
    }
}

int main(void) {
    log_set_level(LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(joining_ends), cmocka_unit_test(a_dumb_store_is_given_up),
                                       cmocka_unit_test(a_silent_stranger_has_to_go),
                                       cmocka_unit_test(the_heart_goes_on_beating)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
