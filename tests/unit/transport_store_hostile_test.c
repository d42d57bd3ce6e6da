/* A store on a port that anyone can reach: a real client goes on working beside every attack. */
#include "tests/harness/timing.h"
#include "tests/unit/store_server.h"
#include "transport/store/wire.h"

#include <errno.h>
#include <sys/random.h>

enum { GROWS_MOST = 8 << 10 }; /* KB */

/* A real client comes anew, works, and goes; all in reasonable time. */
static void assert_serves(void) {
    int64_t began = clock_ns(), sum;
    struct store *s = client();
    char *value;
    size_t n;
    assert_ok(store_add(s, "served", 1, &sum));
    assert_ok(store_set(s, "k", "v", 1));
    assert_ok(store_get(s, "k", 0, pool, &value, &n));
    assert_string_equal(value, "v");
    store_close(s);
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(10));
}

/* ---- by hand ---- */

static void put(int fd, const void *data, size_t n) {
    assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), n);
}

static bool take(int fd, void *data, size_t n) {
    for (char *p = data; n;) {
        ssize_t got = recv(fd, p, n, 0);
        if (got <= 0) return false;
        p += got, n -= (size_t)got;
    }
    return true;
}

static void assert_closed(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    if (n > 0 || (n < 0 && errno != ECONNRESET)) fail_msg("the connection is still open");
    close(fd);
}

static uint8_t last_proof[SHA256_BYTES]; /* of the last reply */

/* The head of the reply. */
static struct wire_reply take_reply(int fd) {
    struct wire_reply h;
    static uint8_t rest[4096];
    assert_true(take(fd, &h, sizeof h));
    assert_true(wire_is_reply(&h.start));
    assert_true(h.start.bytes - sizeof h <= sizeof rest);
    assert_true(take(fd, rest, h.start.bytes - sizeof h));
    memcpy(last_proof, rest + h.start.bytes - sizeof h - SHA256_BYTES, SHA256_BYTES);
    return h;
}

static struct wire_reply ask_raw(int fd, const uint8_t *message, size_t n) {
    put(fd, message, n);
    return take_reply(fd);
}

static size_t make(struct wire_request h, const struct request *q, const char *token, uint8_t *to) {
    size_t n = wire_request_size(q);
    wire_write_request(&h, q, to);
    wire_seal(token, to, n);
    return n;
}

static void hello(int fd, uint8_t nonce[WIRE_NONCE]) {
    uint8_t message[256];
    size_t n = make((struct wire_request){.start.kind = WIRE_HELLO}, &(struct request){.key = ""}, "", message);
    struct wire_reply h = ask_raw(fd, message, n);
    assert_int_equal(h.start.kind, ANSWER_OK);
    memcpy(nonce, h.nonce, WIRE_NONCE);
}

/* A connection on which the server has told its nonce. */
static int greeted(uint8_t nonce[WIRE_NONCE]) {
    int fd = raw();
    hello(fd, nonce);
    return fd;
}

static struct wire_request add_request(const uint8_t nonce[WIRE_NONCE], uint64_t number) {
    struct wire_request h = {.start.kind = WIRE_REQUEST + STORE_ADD, .client = 77, .number = number};
    memcpy(h.nonce, nonce, WIRE_NONCE);
    return h;
}

/* ---- strangers ---- */

static void garbage_is_closed(void **state) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    uint8_t noise[4096];
    (void)state;
    long before = server_kb();
    for (size_t n = 16; n < sizeof noise; n += 61) {
        assert_int_equal(getrandom(noise, n, 0), n);
        int fd = raw();
        put(fd, n % 2 ? (const void *)http : noise, n % 2 ? sizeof http : n);
        assert_closed(fd);
    }
    assert_serves();
    assert_true(server_kb() - before < GROWS_MOST);
}

/* Not of a stranger, whatever may follow; of a guest, up to what a value takes. */
static void a_length_is_not_believed(void **state) {
    static const uint32_t lengths[] = {0, 1, 100, WIRE_STRANGER_MAX + 1, 1 << 20, 1 << 30, UINT32_MAX};
    uint8_t message[256], nonce[WIRE_NONCE];
    (void)state;
    long before = server_kb();
    for (int proven = 0; proven < 2; proven++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            if (proven && lengths[i] == WIRE_STRANGER_MAX + 1) continue;
            int fd = greeted(nonce);
            struct wire_request h = add_request(nonce, 1);
            h.start.kind = WIRE_PROVE;
            size_t n = make(h, &(struct request){.key = ""}, "right", message);
            if (proven) assert_int_equal(ask_raw(fd, message, n).start.kind, ANSWER_OK);
            memcpy(message + offsetof(struct wire_start, bytes), &lengths[i], 4);
            put(fd, message, sizeof(struct wire_start));
            assert_closed(fd);
        }
    assert_serves();
    assert_true(server_kb() - before < GROWS_MOST);
}

/* Those who only connect, and those who stop within a message: a real client still gets in. */
static void a_thousand_connections(void **state) {
    enum { MANY = 1000 };
    static int fd[MANY];
    uint8_t message[256], nonce[WIRE_NONCE];
    int first = greeted(nonce);
    size_t n = make(add_request(nonce, 1), &(struct request){.op = STORE_ADD, .key = "crowd"}, "right", message);
    (void)state;
    long before = server_kb();
    for (int i = 0; i < MANY; i++) {
        fd[i] = raw();
        if (i % 3) put(fd[i], message, i % 3 == 1 ? 10 : n - 1);
        if (i % 100 == 99) assert_serves();
    }
    long grown = server_kb() - before;
    assert_closed(first); /* who was there longest had to go */
    for (int i = 0; i < MANY; i++) close(fd[i]);
    assert_serves();
    if (grown >= GROWS_MOST) fail_msg("the server grew by %ld KB", grown);
}

static void silence_is_timed(void **state) {
    uint8_t nonce[WIRE_NONCE];
    struct timeval limit = {13, 0};
    int fd = greeted(nonce);
    int64_t began = clock_ns();
    (void)state;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_closed(fd);
    double took = clock_seconds(clock_ns() - began);
    assert_true(took > 8 && took < timing_limit(12.5));
}

/* Well sealed requests without end, of which no reply is ever read. */
static void a_flood(void **state) {
    uint8_t message[256], nonce[WIRE_NONCE];
    int fd = greeted(nonce), sent = 0;
    (void)state;
    long before = server_kb();
    struct wire_request h = add_request(nonce, 1);
    h.start.kind = WIRE_REQUEST + STORE_GET;
    size_t n = make(h, &(struct request){.op = STORE_GET, .key = "flood"}, "right", message);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 20000; i++) sent += send(fd, message, n, MSG_NOSIGNAL) == (ssize_t)n;
    assert_true(sent > 10);
    assert_serves();
    assert_true(server_kb() - before < GROWS_MOST);
    close(fd);
}

/* ---- who knows how to speak, but not the token ---- */

static void the_token_is_needed(void **state) {
    struct store *s;
    static const char *const wrong[] = {"", "wrong", "righ", "right "};
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

/* With an HMAC one could guess the secret without the server. */
static void strangers_get_no_proof(void **state) {
    static const uint8_t none[SHA256_BYTES];
    uint8_t message[256], nonce[WIRE_NONCE], other[WIRE_NONCE] = {0};
    static const char *const secrets[] = {"wrong", "right", "right"};
    static const uint32_t statuses[] = {WIRE_REFUSED, WIRE_STALE, ANSWER_OK};
    (void)state;
    for (int i = 0; i < 3; i++) {
        int fd = greeted(nonce);
        assert_memory_equal(last_proof, none, SHA256_BYTES);
        struct wire_request h = add_request(i == 1 ? other : nonce, 1);
        h.start.kind = WIRE_PROVE;
        size_t n = make(h, &(struct request){.key = ""}, secrets[i], message);
        assert_int_equal(ask_raw(fd, message, n).start.kind, statuses[i]);
        if (i < 2)
            assert_memory_equal(last_proof, none, SHA256_BYTES);
        else
            assert_memory_not_equal(last_proof, none, SHA256_BYTES);
        close(fd);
    }
}

static void other_versions_are_told(void **state) {
    uint8_t message[256], nonce[WIRE_NONCE];
    uint32_t version = WIRE_VERSION + 1;
    int fd = greeted(nonce);
    (void)state;
    (void)make(add_request(nonce, 1), &(struct request){.op = STORE_ADD, .key = "version"}, "right", message);
    memcpy(message + offsetof(struct wire_start, version), &version, sizeof version);
    put(fd, message, sizeof(struct wire_start)); /* the rest may be anything */
    assert_int_equal(take_reply(fd).start.kind, WIRE_OTHER);
    assert_closed(fd);
    assert_int_equal(number_at("version"), 0);
}

/* One bit of a good request at a time: none is done. */
static void flipped_bits(void **state) {
    uint8_t message[256], nonce[WIRE_NONCE];
    (void)state;
    close(greeted(nonce));
    size_t n =
        make(add_request(nonce, 1), &(struct request){.op = STORE_ADD, .key = "bits", .delta = 1}, "right", message);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        int fd = raw();
        uint8_t bad[256];
        struct wire_reply h;
        memcpy(bad, message, n);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        put(fd, bad, n);
        shutdown(fd, SHUT_WR); /* where a longer one is announced, it ends here */
        if (take(fd, &h, sizeof h)) {
            /* Of its kind the right bit makes it a hello, which is for everybody. */
            bool greeting = bit >= 96 && bit < 128 && h.start.kind == ANSWER_OK && h.sum == 0;
            assert_true(h.start.kind >= WIRE_REFUSED || greeting);
        } else {
            assert_true(bit < 32 || (bit >= 64 && bit < 96)); /* magic, length */
        }
        close(fd);
    }
    assert_int_equal(number_at("bits"), 0);
}

static void cut_messages(void **state) {
    uint8_t message[256], nonce[WIRE_NONCE];
    (void)state;
    close(greeted(nonce));
    size_t n =
        make(add_request(nonce, 1), &(struct request){.op = STORE_ADD, .key = "cut", .delta = 1}, "right", message);
    for (size_t cut = 0; cut < n; cut++) {
        int fd = raw();
        put(fd, message, cut);
        shutdown(fd, SHUT_WR);
        assert_closed(fd);
    }
    assert_int_equal(number_at("cut"), 0);
}

/* Lengths that do not add up, kinds that do not exist, keys that are none, all well sealed. */
static void sealed_nonsense(void **state) {
    uint8_t message[1024], nonce[WIRE_NONCE];
    static const size_t fields[] = {offsetof(struct wire_request, start.kind), offsetof(struct wire_request, has),
                                    offsetof(struct wire_request, key), offsetof(struct wire_request, value),
                                    offsetof(struct wire_request, expected)};
    static const uint32_t values[] = {0, 1, 3, 5, 8, 200, 1000, 1u << 31, UINT32_MAX};
    int bad = 0;
    (void)state;
    close(greeted(nonce));
    for (size_t f = 0; f < 5; f++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct request q = {.op = STORE_SWAP, .key = "k", .value = {"abc", 3}};
            struct wire_request h = add_request(nonce, 100 * f + v + 2);
            h.start.kind = WIRE_REQUEST + STORE_SWAP;
            size_t n = make(h, &q, "right", message);
            int fd = raw();
            memcpy(message + fields[f], &values[v], 4);
            wire_seal("right", message, n);
            uint32_t status = ask_raw(fd, message, n).start.kind;
            bad += status == WIRE_BAD;
            assert_true(status < ANSWER_STATUSES || status == WIRE_BAD);
            close(fd);
        }
    assert_true(bad > 25);
    assert_serves();
}

/* ---- the same again ---- */

static void replays_change_nothing(void **state) {
    uint8_t first[256], second[256], nonce[WIRE_NONCE];
    struct request q = {.op = STORE_ADD, .key = "replay", .delta = 5};
    int fd = greeted(nonce);
    (void)state;
    struct wire_request h = add_request(nonce, 1001);
    size_t n = make(h, &q, "right", first);
    h.number = 1002;
    make(h, &q, "right", second);
    assert_int_equal(ask_raw(fd, first, n).sum, 5);
    for (int i = 0; i < 3; i++) {
        struct wire_reply again = ask_raw(fd, first, n);
        assert_int_equal(again.start.kind, ANSWER_OK);
        assert_int_equal(again.sum, 5); /* answered alike */
    }
    assert_int_equal(ask_raw(fd, second, n).sum, 10);
    assert_int_equal(ask_raw(fd, first, n).start.kind, WIRE_OLD);
    close(fd);
    fd = raw(); /* nor over another connection */
    assert_int_equal(ask_raw(fd, second, n).sum, 10);
    h.nonce[3] ^= 1; /* nor to another server */
    n = make(h, &q, "right", first);
    assert_int_equal(ask_raw(fd, first, n).start.kind, WIRE_STALE);
    close(fd);
    assert_int_equal(number_at("replay"), 10);
}

int main(int argc, char **argv) {
    serve_if_asked(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_closed),
        cmocka_unit_test(a_length_is_not_believed),
        cmocka_unit_test(a_flood),
        cmocka_unit_test(the_token_is_needed),
        cmocka_unit_test(strangers_get_no_proof),
        cmocka_unit_test(other_versions_are_told),
        cmocka_unit_test(flipped_bits),
        cmocka_unit_test(cut_messages),
        cmocka_unit_test(sealed_nonsense),
        cmocka_unit_test(replays_change_nothing),
        cmocka_unit_test(a_thousand_connections),
        cmocka_unit_test(silence_is_timed),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
