/* Ports: where they listen, whom they let in, and that strangers do no harm. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "tests/conformance/ranks.h"
#include "tests/harness/timing.h"
#include "tests/unit/proxy.h"
#include "transport/door/visit.h"
#include "transport/link/tcp_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' not in '%s'", part, text);
}

static struct hello good(void) {
    return (struct hello){.head = door_head(HELLO_KIND, sizeof(struct hello)), .group = 7, .from = 1, .size = 2};
}

static int try_dial(const char *address) {
    struct sockaddr_in to = proxy_address(atoi(strrchr(address, ':') + 1));
    struct timeval patience = {.tv_sec = 3};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

static int dial(const char *address) {
    int fd = try_dial(address);
    assert_true(fd >= 0);
    return fd;
}

static void put(int fd, const void *data, size_t n) {
    (void)!send(fd, data, n, MSG_NOSIGNAL);
}

/* Whether the port hangs up, within the 3 s of dial. */
static bool hangs_up(int fd) {
    char buf[256];
    ssize_t n;
    while ((n = recv(fd, buf, sizeof buf, 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
}

/* ---- strangers ---- */

enum { REFUSED = UINT16_MAX }; /* by TLS */

/* The door's answer to a hello. */
static uint32_t greet(const char *address, const char *key, struct hello h) {
    struct visit *v;
    struct door_head head = {.kind = UINT32_MAX};
    int64_t soon = clock_ns() + 3000000000;
    assert_ok(visit_create(&v));
    int rv = visit_connect(v, address, key, soon);
    if (!rv) memcpy(visit_room(v, sizeof h), &h, sizeof h);
    if (!rv) rv = visit_ask(v, DOOR_STRANGER_MAX, soon);
    if (!rv) (void)visit_reply(v, &head);
    visit_free(v);
    return rv == NNG_EPEERAUTH ? REFUSED : head.kind;
}

static void assert_dropped(const char *address, const void *data, size_t n) {
    int fd = dial(address);
    put(fd, data, n);
    assert_true(hangs_up(fd));
    close(fd);
}

static void strangers_are_dropped(void **state) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a long one\r\n\r\n"
                               "and more than a hello holds";
    struct hello other = good();
    uint8_t huge[4096];
    struct port *p;
    (void)state;
    assert_ok(port_open(&(struct port_params){.key = "right"}, &p));
    const char *address = port_address(p);
    memset(huge, 255, sizeof huge);
    assert_dropped(address, http, sizeof http);
    assert_dropped(address, huge, sizeof huge);
    assert_dropped(address, &other, sizeof other); /* not proven */
    assert_int_equal(greet(address, "right", good()), 0);
    assert_int_equal(greet(address, "wrong", good()), REFUSED);
    assert_int_equal(greet(address, "", good()), REFUSED);
    other.kind = 77;
    assert_int_equal(greet(address, "right", other), DOOR_BAD);
    other = good(), other.head.version = 1;
    assert_int_equal(greet(address, "right", other), DOOR_OTHER);
    other = good(), other.head.kind = 5; /* a store's */
    assert_int_equal(greet(address, "right", other), DOOR_BAD);
    port_close(p);
}

/* ---- strangers while ranks work ---- */

static struct {
    char address[2][ADDRESS_MAX];
    _Atomic bool stop;
    _Atomic int dialed;
} flood;

/* Hundreds of connections to both ports, silent or with garbage; most are kept open. */
static void *flood_main(void *arg) {
    enum { MANY = 500 };
    static int fd[MANY];
    static const char *const words[] = {"", "x", "\377\377\377\377\377\377\377\377", "engelinkengelink"};
    (void)arg;
    int n = 0;
    for (int i = 0; i < MANY && !flood.stop; i++, n++) {
        while ((fd[i] = try_dial(flood.address[i % 2])) < 0 && !flood.stop) usleep(1000);
        if (fd[i] < 0) break; /* the ranks have failed, and their ports are closed */
        put(fd[i], words[i % 4], strlen(words[i % 4]));
        if (i % 16 == 0) put(fd[i], "\26\3\1\1\0\1\0\0\374\3\3", 11); /* never says more of its hello */
        flood.dialed++;
    }
    while (!flood.stop) usleep(1000);
    for (int i = 0; i < n; i++) close(fd[i]);
    return NULL;
}

static void work_on(struct rank *r) {
    static int64_t buf[2][30000];
    int64_t *mine = buf[r->index];
    for (int k = 0;; k++) {
        for (int i = 0; i < 30000; i++) mine[i] = i + k;
        int64_t n = k % 3 ? 30000 : 100;
        check_ok(group_all_reduce(r->group, GROUP_INLINE, mine, n, DTYPE_I64, REDOP_SUM));
        for (int i = 0; i < n; i++) check(mine[i] == 2 * (i + k), "element %d", i);
        int64_t go_on[1] = {flood.dialed < 500};
        check_ok(group_all_reduce(r->group, GROUP_INLINE, go_on, 1, DTYPE_I64, REDOP_MAX));
        if (*r->wrong || (!go_on[0] && k >= 200)) return;
    }
}

/* A group is opened while the flood comes, and works all the time. */
static void a_flood_does_no_harm(void **state) {
    struct ranks p = {.world = 2, .link = "tcp", .fn = work_on};
    pthread_t id;
    (void)state;
    ranks_meet(&p);
    for (int i = 0; i < 2; i++) strcpy(flood.address[i], p.seat[i].address);
    assert_int_equal(pthread_create(&id, NULL, flood_main, NULL), 0);
    ranks_run(&p, NULL);
    flood.stop = true;
    pthread_join(id, NULL);
}

/* ---- ranks that do not fit ---- */

static enum error open_at(struct ranks *p, const char *token, uint64_t id, double timeout) {
    struct group *g;
    struct port *own;
    struct group_params gp = rank_params(p, 1);
    assert_ok(port_open(&(struct port_params){.key = token}, &own));
    gp.port = own;
    gp.id = id;
    gp.timeout = timeout;
    enum error err = group_open(&gp, &g);
    port_close(own);
    return err;
}

static void wrong_ranks_do_not_join(void **state) {
    struct ranks p = {.world = 2, .link = "tcp"};
    (void)state;
    ranks_meet(&p);
    assert_int_equal(open_at(&p, "another token", 7, 5), ERR_PEER);
    assert_has(error_message(), "rank 0 at tcp://127.0.0.1:");
    assert_has(error_message(), "does not hold this run's token");
    int64_t start = clock_ns();
    assert_int_equal(open_at(&p, "a token", 8, 0.3), ERR_TIMEOUT); /* nobody opens group 8 */
    assert_true(clock_seconds(clock_ns() - start) < timing_limit(3));
    port_close(p.port[0]);
    p.port[0] = NULL;
    assert_int_equal(open_at(&p, "a token", 7, 0.3), ERR_TIMEOUT);
    assert_has(error_message(), "cannot reach rank 0 at tcp://127.0.0.1:");
    assert_has(error_message(), "within 0.3 s: Connection refused");
    strcpy(p.seat[0].address, "carrier pigeon");
    assert_int_equal(open_at(&p, "a token", 7, 0.3), ERR_DATA);
    ranks_part(&p);
}

/* ---- streams that their dialer has given up ---- */

static void *open_and_wait(void *arg) {
    struct rank *r = arg;
    struct group_params p = rank_params(r->of, r->index);
    rank_result(r, group_open(&p, &r->group));
    return NULL;
}

/* A control stream of rank 1. Its descriptor; the visit is the caller's. */
static int dial_control(const char *address, int64_t when, struct stream *s) {
    struct hello h = good();
    struct visit *v;
    int fd;
    h.kind = CONTROL;
    h.dialed = when;
    assert_ok(visit_create(&v));
    assert_int_equal(visit_connect(v, address, "a token", clock_ns() + 3000000000), 0);
    memcpy(visit_room(v, sizeof h), &h, sizeof h);
    assert_int_equal(visit_ask(v, DOOR_STRANGER_MAX, clock_ns() + 3000000000), 0);
    assert_ok(visit_end(v, s));
    visit_free(v);
    assert_ok(stream_descriptor(s->s, &fd));
    return fd;
}

static void frame_comes(int fd) {
    struct tcp_frame frame;
    struct timeval patience = {.tv_sec = 3};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    assert_int_equal(recv(fd, &frame, sizeof frame, MSG_WAITALL), sizeof frame);
}

/* The one that was dialed last is the neighbour's, also where one before it comes after it, and ends. */
static void the_stream_that_was_dialed_last_stays(void **state) {
    struct ranks p = {.world = 2, .link = "tcp", .timeout = 2, .heartbeat = 0.5};
    struct rank r = {.of = &p};
    struct stream last, before;
    pthread_t id;
    (void)state;
    ranks_meet(&p);
    assert_int_equal(pthread_create(&id, NULL, open_and_wait, &r), 0);
    int fd = dial_control(p.seat[0].address, 1000, &last);
    frame_comes(fd); /* it has come in */
    (void)dial_control(p.seat[0].address, 10, &before);
    nap(0.05);
    nng_stream_free(before.s);
    for (int i = 0; i < 4; i++) frame_comes(fd);
    nng_stream_free(last.s);
    pthread_join(id, NULL);
    assert_int_equal(r.err, ERR_TIMEOUT); /* rank 1 itself has not come */
    ranks_part(&p);
}

/* ---- addresses ---- */

static void nothing(struct rank *r) {
    check_ok(group_barrier(r->group));
}

static void ipv6(void **state) {
    struct ranks p = {.world = 3, .link = "tcp", .fn = nothing};
    struct port *port;
    (void)state;
    if (port_open(&(struct port_params){.interface = "::1"}, &port) != ERR_NONE) {
        print_message("no IPv6 here: skipped\n");
        skip();
    }
    assert_has(port_address(port), "tcp://[::1]:");
    port_close(port);
    ranks_meet(&p);
    for (int i = 0; i < 3; i++) {
        port_close(p.port[i]);
        assert_ok(port_open(&(struct port_params){.interface = "::1"}, &p.port[i]));
        strcpy(p.seat[i].address, port_address(p.port[i]));
    }
    ranks_run(&p, NULL);
}

static void where_ports_listen(void **state) {
    struct port *p;
    char address[ADDRESS_MAX];
    (void)state;
    assert_ok(port_open(&(struct port_params){0}, &p));
    assert_has(port_address(p), "tcp://127.0.0.1:");
    port_close(p);
    assert_ok(port_open(&(struct port_params){.interface = "lo"}, &p));
    assert_has(port_address(p), "tcp://127.0.0.1:");
    port_close(p);
    assert_fails(ERR_CONFIG, port_open(&(struct port_params){.interface = "no such"}, &p));
    assert_has(error_message(), "'no such' is neither an address nor an interface");
    assert_fails(ERR_CONFIG, port_open(&(struct port_params){.interface = "0.0.0.0"}, &p));
    assert_has(error_message(), "there is no token");
    assert_fails(ERR_CREATE, port_open(&(struct port_params){.interface = "192.0.2.1", .key = "t"}, &p));
    assert_has(error_message(), "cannot serve a rank's port at 192.0.2.1");

    assert_ok(port_address_towards("127.0.0.1:29500", address));
    assert_string_equal(address, "127.0.0.1");
    assert_ok(port_address_towards("localhost:1", address));
    static const char *const wrong[] = {"", ":", "host", "host:", ":5", "[]:1", "a b c:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(ERR_CONFIG, port_address_towards(wrong[i], address));
}

int main(void) {
    log_set_level(LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_dropped),   cmocka_unit_test(a_flood_does_no_harm),
        cmocka_unit_test(wrong_ranks_do_not_join), cmocka_unit_test(ipv6),
        cmocka_unit_test(where_ports_listen),      cmocka_unit_test(the_stream_that_was_dialed_last_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
