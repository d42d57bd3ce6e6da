/* A door that anyone can reach, here a store's: a real client goes on working beside every attack. */
#include "tests/harness/timing.h"
#include "tests/unit/proxy.h"
#include "tests/unit/store_server.h"
#include "transport/door/visit.h"
#include "transport/store/wire.h"

#include <errno.h>
#include <sys/random.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* with memory of their own */
enum { GROWS_MOST = 256 << 10 };                                  /* KB */
#else
enum { GROWS_MOST = 8 << 10 };
#endif
static int attacks = 20; /* of each kind; ENGINE_ATTACKS sets it */

/* A real client comes anew, works, and goes; all in reasonable time. */
static void assert_serves(void) {
    int64_t began = clock_ns();
    struct store *s = client();
    char *value;
    size_t n;
    assert_ok(store_set(s, "k", "v", 1));
    assert_ok(store_get(s, "k", 0, pool, &value, &n));
    assert_string_equal(value, "v");
    store_close(s);
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(10));
}

static void put(int fd, const void *data, size_t n) {
    (void)!send(fd, data, n, MSG_NOSIGNAL);
}

static void assert_closed(int fd) {
    char bytes[256];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) { /* an alert */
    }
    if (n < 0 && errno != ECONNRESET) fail_msg("the connection is still open");
    close(fd);
}

/* ---- by hand, but with the key ---- */

static int64_t soon(void) {
    return clock_ns() + 5000000000;
}

static struct visit *visit(const char *key) {
    struct visit *v;
    assert_ok(visit_create(&v));
    assert_int_equal(visit_connect(v, server.url, key, soon()), 0);
    return v;
}

static size_t make(struct visit *v, const struct wire_request *h, const struct request *q) {
    size_t n = wire_request_size(q);
    wire_write_request(h, q, visit_room(v, n));
    return n;
}

static struct door_head ask(struct visit *v, struct wire_reply *reply) {
    struct door_head head;
    assert_int_equal(visit_ask(v, WIRE_MAX, soon()), 0);
    const uint8_t *bytes = visit_reply(v, &head);
    if (reply && head.bytes >= sizeof *reply) memcpy(reply, bytes, sizeof *reply);
    return head;
}

static const struct request nothing = {.op = STORE_GET, .key = ""};

static struct visit *greeted(uint64_t client_id) {
    struct visit *v = visit("right");
    make(v, &(struct wire_request){.head.kind = WIRE_GREETING, .client = client_id}, &nothing);
    assert_int_equal(ask(v, NULL).kind, ANSWER_OK);
    return v;
}

/* ---- strangers ---- */

static void garbage_is_closed(void **state) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    uint8_t noise[4096];
    (void)state;
    long before = server_kb();
    for (size_t n = 16; n < sizeof noise; n += 61) {
        assert_int_equal(getrandom(noise, n, 0), n);
        if (n % 3 == 0)
            memcpy(noise, (uint8_t[]){22, 3, 1, 15, 160}, 5); /* the head of a record, which may be longer */
        int fd = raw();
        put(fd, n % 2 ? (const void *)http : noise, n % 2 ? sizeof http : n);
        shutdown(fd, SHUT_WR);
        assert_closed(fd);
    }
    assert_serves();
    assert_true(server_kb() - before < GROWS_MOST);
}

/* A ClientHello may be long: a stranger's may not. */
static void a_stranger_sends_little(void **state) {
    uint8_t record[5 + 16384] = {22, 3, 1, 64, 0, 1, 0, 255, 255};
    int fd = raw();
    (void)state;
    for (int i = 0; i < 4; i++) put(fd, record, sizeof record);
    assert_closed(fd);
    assert_serves();
}

/* Those who only connect, and those who stop within a hello: a real client still gets in. */
static void a_thousand_connections(void **state) {
    enum { MANY = 1000 };
    static int fd[MANY];
    static const uint8_t hello[] = {22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3};
    int first = raw();
    (void)state;
    long before = server_kb();
    for (int i = 0; i < MANY; i++) {
        fd[i] = raw();
        if (i % 3) put(fd[i], hello, i % 3 == 1 ? 3 : sizeof hello);
        if (i % 100 == 99) assert_serves();
    }
    long grown = server_kb() - before;
    assert_closed(first); /* who was there longest had to go */
    for (int i = 0; i < MANY; i++) close(fd[i]);
    assert_serves();
    if (grown >= GROWS_MOST) fail_msg("the server grew by %ld KB", grown);
}

static void silence_is_timed(void **state) {
    struct timeval limit = {13, 0};
    int fd = raw();
    int64_t began = clock_ns();
    (void)state;
    put(fd, "\26\3\1", 3);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_closed(fd);
    double took = clock_seconds(clock_ns() - began);
    assert_true(took > 8 && took < timing_limit(12.5));
}

/* ---- who knows how to speak, but not the token ---- */

static void the_token_is_needed(void **state) {
    static const char *const wrong[] = {"", "wrong", "righ", "right "};
    struct store *s;
    (void)state;
    for (int i = 0; i < 4; i++) {
        int64_t began = clock_ns();
        struct store_params p = {.url = server.url, .token = wrong[i], .timeout = 10};
        assert_fails(ERR_CONFIG, store_open(&p, &s));
        assert_non_null(strstr(error_message(), server.url));
        assert_non_null(strstr(error_message(), "refused the token"));
        assert_true(clock_seconds(clock_ns() - began) < timing_limit(5));
    }
    assert_serves();
}

/* A server without a token refuses who has one, with the same words. */
static void nor_is_one_too_many_taken(void **state) {
    struct store *open, *s;
    struct store_params p = {.url = "tcp://127.0.0.1:0", .serve = true, .timeout = 5};
    (void)state;
    assert_ok(store_open(&p, &open));
    p = (struct store_params){.url = store_url(open), .token = "right", .timeout = 5};
    assert_fails(ERR_CONFIG, store_open(&p, &s));
    assert_non_null(strstr(error_message(), "refused the token"));
    store_close(open);
}

/* ---- who holds the token, and speaks nonsense ---- */

static void other_versions_are_named(void **state) {
    uint32_t version = DOOR_VERSION + 1;
    struct visit *v = greeted(1);
    (void)state;
    make(v, &(struct wire_request){.head.kind = WIRE_REQUEST + STORE_SET, .client = 1},
         &(struct request){.op = STORE_SET, .key = "version", .value = {"1", 1}});
    memcpy(visit_room(v, 0) + offsetof(struct door_head, version), &version, sizeof version);
    assert_int_equal(ask(v, NULL).kind, DOOR_OTHER);
    visit_free(v);
    assert_int_equal(keys_of("version"), 0);
}

/* Lengths that do not add up, kinds that do not exist, keys that are none, another client's number. */
static void nonsense_is_refused(void **state) {
    static const size_t fields[] = {offsetof(struct wire_request, head.kind), offsetof(struct wire_request, key),
                                    offsetof(struct wire_request, value), offsetof(struct wire_request, client)};
    static const uint32_t values[] = {0, 1, 3, 5, 8, 200, 1000, 1u << 31, UINT32_MAX};
    int bad = 0;
    (void)state;
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct visit *g = greeted(77);
            make(g, &(struct wire_request){.head.kind = WIRE_REQUEST + STORE_SET, .client = 77},
                 &(struct request){.op = STORE_SET, .key = "k", .value = {"abc", 3}});
            memcpy(visit_room(g, 0) + fields[f], &values[v], 4);
            uint32_t status = ask(g, NULL).kind;
            bad += status == DOOR_BAD;
            assert_true(status < ANSWER_STATUSES || status == DOOR_BAD);
            visit_free(g);
        }
    assert_true(bad > 30);
    assert_serves();
}

/* A length is not believed: not beyond what a value takes. */
static void impossible_lengths(void **state) {
    static const uint32_t lengths[] = {0, 1, 15, WIRE_MAX + 1, 1 << 30, UINT32_MAX};
    (void)state;
    long before = server_kb();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct tls *t;
        struct door_head head = door_head(WIRE_GREETING, lengths[i]);
        uint8_t bytes[4096];
        void *out;
        int fd = raw();
        assert_ok(tls_create("right", true, &t));
        for (enum tls_step step; (step = tls_shake(t)) != TLS_OPEN;) {
            size_t n = tls_pending(t, &out);
            put(fd, out, n);
            tls_sent(t, n);
            assert_int_equal(step, TLS_MORE);
            ssize_t got = recv(fd, bytes, sizeof bytes, 0);
            assert_true(got > 0 && tls_put(t, bytes, (size_t)got));
        }
        assert_true(tls_write(t, &head, sizeof head));
        size_t n = tls_pending(t, &out);
        put(fd, out, n);
        assert_closed(fd);
        tls_free(t);
    }
    assert_serves();
    assert_true(server_kb() - before < GROWS_MOST);
}

/* Words of a member that are no words. */
static void meetings_of_nobody(void **state) {
    struct {
        struct store_words head;
        char texts[8];
    } words[] = {{{1, 2, 2, 0, 0}, "a\0b"},    {{1, UINT32_MAX, 2, 0, 0}, "a\0b"},
                 {{1, 0, 0, 0, 0}, "a\0b"},    {{1, 0, UINT32_MAX, 0, 0}, "a\0b"},
                 {{1, 0, 2, 0, 0}, "aaaaaaa"}, {{1, 0, 2, 0, 0}, "a\0b\0c\0d"}};
    (void)state;
    static const size_t lengths[] = {4, 4, 4, 4, 8, 6};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t cut = 0; cut < 2; cut++) {
            struct visit *v = greeted(78);
            size_t n = cut ? sizeof(struct store_words) / 2 : sizeof(struct store_words) + lengths[i];
            make(v, &(struct wire_request){.head.kind = WIRE_REQUEST + STORE_MEET, .client = 78},
                 &(struct request){.op = STORE_MEET, .key = "nobody.rank", .value = {&words[i], n}});
            assert_int_equal(ask(v, NULL).kind, DOOR_BAD);
            visit_free(v);
        }
    assert_int_equal(keys_of("nobody"), 0);
    assert_serves();
}

/* ---- in the middle ---- */

static enum error work_through(const char *url, double timeout) {
    struct store *s;
    char key[40];
    struct store_params p = {.url = url, .token = "right", .run = "A", .timeout = timeout};
    TRY(store_open(&p, &s));
    snprintf(key, sizeof key, "attacked.%llu", (unsigned long long)store_member(s));
    enum error err = store_set(s, key, "1", 1);
    if (!err) err = store_set(s, "text", "plainly readable", 16);
    store_close(s);
    return err;
}

/* Nothing that is stored can be read on the way. */
static void nothing_is_readable(void **state) {
    static char seen[1 << 20];
    char url[100];
    size_t n = 0;
    struct proxy p = {.seen = seen};
    (void)state;
    snprintf(url, sizeof url, "%s", server.url);
    proxy_open(&p, url, sizeof url);
    assert_ok(work_through(url, 10));
    proxy_close(&p);
    n = p.n_seen;
    assert_true(n > 500);
    assert_null(memmem(seen, n, "plainly", 7));
    assert_null(memmem(seen, n, "attacked", 8));
    assert_null(memmem(seen, n, "right", 5));
}

/* Every piece of a join and of the requests after it is mistreated: each time the work is done, on another connection,
 * or fails with words; and nothing wrong is taken. */
static void attacks_in_the_middle(void **state) {
    static const char *const names[] = {"", "changed", "dropped", "repeated", "swapped", "cut", "replayed"};
    unsigned seed = 1;
    int before = keys_of("attacked.");
    struct proxy earlier = {.record = true};
    char url[100];
    int good = 0, all = 0;
    (void)state;
    snprintf(url, sizeof url, "%s", server.url);
    proxy_open(&earlier, url, sizeof url);
    assert_ok(work_through(url, 10));
    proxy_close(&earlier);
    long kb = server_kb();
    for (enum attack a = ATTACK_FLIP; a < ATTACKS; a++) {
        int done = 0;
        for (int i = 0; i < attacks; i++, all++) {
            struct proxy p = {.attack = a, .at = 1 + i % 10, .bit = (unsigned)rand_r(&seed)};
            memcpy(p.old, earlier.old, sizeof p.old);
            p.n_old = (size_t)earlier.n_old;
            snprintf(url, sizeof url, "%s", server.url);
            proxy_open(&p, url, sizeof url);
            enum error err = work_through(url, 0.4);
            if (err && !*error_message()) fail_msg("attack %d, piece %d: an error without words", (int)a, 1 + i % 10);
            if (err && err != ERR_TIMEOUT && err != ERR_PEER && err != ERR_CONFIG)
                fail_msg("attack %d, piece %d: %s", (int)a, 1 + i % 10, error_message());
            done += !err;
            proxy_close(&p);
        }
        print_message("%d %s: %d went on, %d failed by name\n", attacks, names[a], done, attacks - done);
        good += done;
    }
    int after = keys_of("attacked.") - before;
    assert_true(after >= good + 1 && after <= all + 1);
    assert_serves();
    long grown = server_kb() - kb;
    print_message("the server grew by %ld KB\n", grown);
    assert_true(grown < GROWS_MOST);
}

int main(int argc, char **argv) {
    const char *asked = getenv("ENGINE_ATTACKS");
    serve_if_asked(argc, argv);
    if (asked) attacks = atoi(asked);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_closed),        cmocka_unit_test(a_stranger_sends_little),
        cmocka_unit_test(the_token_is_needed),      cmocka_unit_test(nor_is_one_too_many_taken),
        cmocka_unit_test(other_versions_are_named), cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(impossible_lengths),       cmocka_unit_test(meetings_of_nobody),
        cmocka_unit_test(nothing_is_readable),      cmocka_unit_test(attacks_in_the_middle),
        cmocka_unit_test(a_thousand_connections),   cmocka_unit_test(silence_is_timed),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
