/* A tcp store over a bad line: replies are lost, many come at once, nobody is there, a server is
 * stopped or gone, a port is taken. */
#include "tests/harness/timing.h"
#include "tests/unit/store_server.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* ---- a proxy that loses replies ---- */

struct loser {
    int listener, port;
    atomic_int swallow; /* the reply after which a connection is cut, instead of passing it on */
    useconds_t slow;    /* by which the first reply on each connection is late */
    atomic_bool stop;
    pthread_t id;
};

/* Copies one way; false: closed. */
static bool pump(int from, int to) {
    char buffer[65536];
    ssize_t n = recv(from, buffer, sizeof buffer, 0);
    return n > 0 && send(to, buffer, (size_t)n, MSG_NOSIGNAL) == n;
}

static void carry(struct loser *p, int inside) {
    int outside = raw();
    struct pollfd f[2] = {{.fd = inside, .events = POLLIN}, {.fd = outside, .events = POLLIN}};
    bool open = true, first = true;
    while (open && !p->stop) {
        if (poll(f, 2, 20) <= 0) continue;
        if (f[0].revents) open = pump(inside, outside);
        if (open && f[1].revents) {
            if (p->swallow > 0 && --p->swallow == 0) break;
            if (first) usleep(p->slow);
            first = false;
            open = pump(outside, inside);
        }
    }
    close(inside), close(outside);
}

static void *run_loser(void *arg) {
    struct loser *p = arg;
    while (!p->stop) {
        struct pollfd f = {.fd = p->listener, .events = POLLIN};
        if (poll(&f, 1, 20) == 1) carry(p, accept4(p->listener, NULL, NULL, SOCK_CLOEXEC));
    }
    return NULL;
}

static void loser_open(struct loser *p) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    *p = (struct loser){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(p->listener, (void *)&a, sizeof a), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(getsockname(p->listener, (void *)&a, &n), 0);
    p->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&p->id, NULL, run_loser, p), 0);
}

static void loser_close(struct loser *p) {
    p->stop = true;
    pthread_join(p->id, NULL);
    close(p->listener);
}

/* The reply is lost with the connection: the request is sent again. */
static void a_lost_reply(void **state) {
    struct loser p;
    struct store *s;
    char url[64], key[32], *value;
    size_t n;
    (void)state;
    loser_open(&p);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", p.port);
    assert_ok(store_open(&(struct store_params){.url = url, .token = "right", .timeout = 20}, &s));
    for (int i = 1; i <= 6; i++) { /* the reply itself, or to the proof on the line after it */
        p.swallow = 1 + i % 2;
        snprintf(key, sizeof key, "lost.%d", i);
        assert_ok(store_set(s, key, key, strlen(key)));
        p.swallow = 1;
        assert_ok(store_find(s, key, pool, &value, &n));
        assert_string_equal(value, key);
    }
    p.swallow = 1;
    assert_ok(store_delete(s, "lost.1"));
    store_close(s);
    loser_close(&p);
    assert_int_equal(keys_of("lost."), 5);
}

/* On a starved machine the handshake alone may take longer than one address is given at first. */
static void a_slow_line(void **state) {
    struct loser p;
    struct store *s;
    char url[64];
    (void)state;
    loser_open(&p);
    p.slow = 2100000;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", p.port);
    assert_ok(store_open(&(struct store_params){.url = url, .token = "right", .timeout = 60}, &s));
    store_close(s);
    loser_close(&p);
}

/* ---- many ---- */

static void *come(void *arg) {
    struct store *s;
    char key[32];
    bool *ok = arg;
    struct store_params p = {.url = server.url, .token = "right", .timeout = 20};
    if (store_open(&p, &s) != ERR_NONE) return NULL;
    snprintf(key, sizeof key, "came.%llu", (unsigned long long)store_member(s));
    *ok = store_set(s, key, NULL, 0) == ERR_NONE;
    store_close(s);
    return NULL;
}

static void many_come_at_once(void **state) {
    enum { MANY = 100 };
    pthread_t id[MANY];
    bool ok[MANY] = {0};
    (void)state;
    for (int i = 0; i < MANY; i++) assert_int_equal(pthread_create(&id[i], NULL, come, &ok[i]), 0);
    for (int i = 0; i < MANY; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < MANY; i++) assert_true(ok[i]);
    assert_int_equal(keys_of("came."), MANY);
}

/* ---- nobody there ---- */

static void nobody_serves(void **state) {
    struct loser p;
    struct store *s;
    char url[64];
    (void)state;
    loser_open(&p);
    loser_close(&p);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", p.port);
    int64_t began = clock_ns();
    assert_fails(ERR_TIMEOUT, store_open(&(struct store_params){.url = url, .timeout = 0.3}, &s));
    assert_non_null(strstr(error_message(), url));
    assert_non_null(strstr(error_message(), "could not be reached within 300 ms: Connection refused"));
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(3));
    struct store_params nowhere = {.url = "tcp://no-such-host.invalid:5", .timeout = 0.3};
    assert_fails(ERR_TIMEOUT, store_open(&nowhere, &s));
    assert_non_null(strstr(error_message(), "no-such-host.invalid"));
}

/* Accepts one connection, and answers nonsense. */
static void *answer_nonsense(void *arg) {
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    char buffer[512];
    int fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);
    if (recv(fd, buffer, sizeof buffer, 0) > 0) (void)!send(fd, http, sizeof http, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void what_is_there_is_no_store(void **state) {
    struct store *s;
    char url[64];
    pthread_t id;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    (void)state;
    assert_int_equal(bind(listener, (void *)&a, sizeof a) | listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (void *)&a, &n), 0);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(a.sin_port));
    assert_int_equal(pthread_create(&id, NULL, answer_nonsense, &listener), 0);
    assert_fails(ERR_PEER, store_open(&(struct store_params){.url = url, .timeout = 5}, &s));
    assert_non_null(strstr(error_message(), "no store of this program"));
    pthread_join(id, NULL);
    assert_fails(ERR_TIMEOUT, store_open(&(struct store_params){.url = url, .timeout = 0.3}, &s));
    assert_non_null(strstr(error_message(), "does not answer like a store")); /* says nothing */
    close(listener);
}

static void a_stopped_server(void **state) {
    struct store *s = client();
    char *value, said[300];
    size_t n;
    int64_t began = clock_ns();
    (void)state;
    kill(server.pid, SIGSTOP);
    enum error err = store_get(s, "stopped", 0.3, pool, &value, &n);
    snprintf(said, sizeof said, "%s", error_message());
    kill(server.pid, SIGCONT);
    assert_int_equal(err, ERR_TIMEOUT);
    assert_non_null(strstr(said, "'stopped'"));
    assert_non_null(strstr(said, "did not answer"));
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(4));
    assert_ok(store_set(s, "stopped", "no", 2));
    store_close(s);
}

static void a_server_that_went(void **state) {
    struct store *first, *second, *s;
    char url[100], *value;
    size_t n;
    (void)state;
    struct store_params p = {.url = "tcp://127.0.0.1:0", .serve = true, .token = "t", .timeout = 0.5};
    assert_ok(store_open(&p, &first));
    snprintf(url, sizeof url, "%s", store_url(first));
    p.url = url;
    p.serve = false;
    assert_ok(store_open(&p, &s));
    assert_ok(store_set(s, "k", "v", 1));
    store_close(first);
    int64_t began = clock_ns();
    assert_fails(ERR_PEER, store_get(s, "k", 1000, pool, &value, &n));
    assert_non_null(strstr(error_message(), "was lost: its server has ended"));
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(3));
    p.serve = true; /* another one in its place is not the same store */
    assert_ok(store_open(&p, &second));
    assert_fails(ERR_PEER, store_set(s, "k", "w", 1));
    assert_non_null(strstr(error_message(), "another one is served"));
    store_close(s);
    store_close(second);
}

static void ports_and_addresses(void **state) {
    struct store *s, *six = NULL;
    struct store_params p = {.url = server.url, .serve = true, .token = "right", .timeout = 5};
    char pid[32];
    (void)state;
    assert_fails(ERR_CREATE, store_open(&p, &s));
    snprintf(pid, sizeof pid, "process %d (", (int)server.pid);
    assert_non_null(strstr(error_message(), server.url + strlen("tcp://")));
    assert_non_null(strstr(error_message(), pid));

    p = (struct store_params){.url = "tcp://0.0.0.0:0", .serve = true, .timeout = 5};
    assert_fails(ERR_CONFIG, store_open(&p, &s)); /* no token */
    p.token = "";
    assert_fails(ERR_CONFIG, store_open(&p, &s));
    p.token = "t";
    assert_ok(store_open(&p, &s));
    assert_ok(store_set(s, "k", "v", 1));
    store_close(s);
    p = (struct store_params){.url = "tcp://localhost:0", .serve = true, .timeout = 5};
    assert_ok(store_open(&p, &s)); /* loopback needs none */
    p.url = store_url(s);
    p.serve = false;
    assert_ok(store_open(&p, &six));
    store_close(six);
    store_close(s);
    p = (struct store_params){.url = "tcp://[::1]:0", .serve = true, .timeout = 5};
    if (store_open(&p, &six) != ERR_NONE) {
        print_message("no IPv6 here: %s\n", error_message());
        return;
    }
    assert_non_null(strstr(store_url(six), "tcp://[::1]:"));
    assert_ok(store_set(six, "k", "v", 1));
    store_close(six);
}

int main(int argc, char **argv) {
    serve_if_asked(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_reply),        cmocka_unit_test(many_come_at_once),
        cmocka_unit_test(nobody_serves),       cmocka_unit_test(what_is_there_is_no_store),
        cmocka_unit_test(a_stopped_server),    cmocka_unit_test(a_server_that_went),
        cmocka_unit_test(ports_and_addresses), cmocka_unit_test(a_slow_line),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
