/* What the dashboard's server takes for a request, and what it does with those who want to harm it:
 * the thread itself, on a port of its own, asked by hand. */
#include "cli/dashboard/impl.h"
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "tests/harness/timing.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- reading ---- */
static const struct http_rules loopback = {0}, open_to_all = {.name = "gpu7.example", .host = "gpu7"};

static int status_of(const char *head, const struct http_rules *rules) {
    struct http_request r;
    const char *wrong = NULL;
    int status = http_read(head, strlen(head), rules, &r, &wrong);
    if (status != 200) assert_true(wrong && *wrong && *http_reason(status));
    return status;
}

static int target(const char *line) {
    char head[512];
    snprintf(head, sizeof head, "%s\r\nHost: localhost\r\n\r\n", line);
    return status_of(head, &loopback);
}

static void targets(void **state) {
    (void)state;
    static const char *const good[] = {"GET / HTTP/1.1",
                                       "GET /api/run HTTP/1.1",
                                       "GET /api/ranks HTTP/1.0",
                                       "GET /api/metrics HTTP/1.1",
                                       "GET /api/metrics?since=120 HTTP/1.1",
                                       "GET /api/runs HTTP/1.1",
                                       "GET /api/runs?since=1790000000000 HTTP/1.1",
                                       "GET /?run=0123456789abcdef HTTP/1.1",
                                       "GET /api/metrics?run=0123456789abcdef&since=7 HTTP/1.1"};
    static const char *const missing[] = {"GET /../../etc/passwd HTTP/1.1", "GET /api/../run HTTP/1.1",
                                          "GET /%2e%2e/ HTTP/1.1",          "GET /api/metrics/ HTTP/1.1",
                                          "GET //api/run HTTP/1.1",         "GET * HTTP/1.1",
                                          "GET http://localhost/ HTTP/1.1", "GET /favicon.ico HTTP/1.1",
                                          "GET /api/run# HTTP/1.1",         "GET /resolved.yaml HTTP/1.1"};
    static const char *const bad[] = {"GET",
                                      "GET /",
                                      "",
                                      " / HTTP/1.1",
                                      "GET / HTTP/1.12",
                                      "GET / http/1.1",
                                      "GET  HTTP/1.1x",
                                      "GET /api/metrics?since= HTTP/1.1",
                                      "GET /api/metrics?since=-1 HTTP/1.1",
                                      "GET /api/metrics?since=1x HTTP/1.1",
                                      "GET /api/metrics?since=99999999999999999999 HTTP/1.1",
                                      "GET /api/metrics?to=1 HTTP/1.1",
                                      "GET /?since=1 HTTP/1.1",
                                      "GET /?run= HTTP/1.1",
                                      "GET /?run=../../etc/passwd HTTP/1.1",
                                      "GET /?run=0123456789abcdeF HTTP/1.1",
                                      "GET /?run=0123456789abcdef0 HTTP/1.1",
                                      "GET /?run=0123456789abcdef& HTTP/1.1",
                                      "GET /?run=0123456789abcdef&since=1 HTTP/1.1",
                                      "GET /api/runs?run=0123456789abcdef HTTP/1.1",
                                      "GET /api/runs?since=-1 HTTP/1.1",
                                      "GET /api/metrics?since=1&run=0123456789abcdef HTTP/1.1",
                                      "GET /api/metrics?run=0123456789abcdef&run=0123456789abcdef HTTP/1.1",
                                      "GET /\x01 HTTP/1.1",
                                      "GET /\xff HTTP/1.1"};
    static const char *const methods[] = {"POST / HTTP/1.1", "HEAD / HTTP/1.1", "get / HTTP/1.1", "OPTIONS / HTTP/1.1",
                                          "DELETE /api/run HTTP/1.1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_int_equal(target(good[i]), 200);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) assert_int_equal(target(missing[i]), 404);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (target(bad[i]) != 400) fail_msg("taken: '%s'", bad[i]);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) assert_int_equal(target(methods[i]), 405);
    assert_int_equal(target("GET / HTTP/2.0"), 505);
    struct http_request r;
    const char *wrong, *head = "GET /api/metrics?since=120 HTTP/1.1\r\nHost: [::1]:80\r\n\r\n";
    assert_int_equal(http_read(head, strlen(head), &loopback, &r, &wrong), 200);
    assert_int_equal(r.page, HTTP_METRICS);
    assert_int_equal(r.since, 120);
    assert_string_equal(r.run, "");
    head = "GET /api/metrics?run=0123456789abcdef&since=7 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_int_equal(http_read(head, strlen(head), &loopback, &r, &wrong), 200);
    assert_string_equal(r.run, "0123456789abcdef");
    assert_int_equal(r.since, 7);
}

static int with_headers(const char *headers, const struct http_rules *rules) {
    char head[1024];
    snprintf(head, sizeof head, "GET /api/run HTTP/1.1\r\n%s\r\n", headers);
    return status_of(head, rules);
}

static void headers(void **state) {
    (void)state;
    static const char *const ours[] = {"Host: localhost:8080\r\n", "host:  LOCALHOST \r\n",
                                       "Host: 127.0.0.1\r\nAccept: */*\r\n", "Host: [::1]:8080\r\n",
                                       "Host: 10.1.2.3:80\r\nContent-Length: 0\r\n"};
    /* a name that somebody has pointed here is not ours */
    static const char *const others[] = {"Host: evil.example\r\n",
                                         "Host: evil.example:8080\r\n",
                                         "Host: localhost.evil.example\r\n",
                                         "Host: 127.0.0.1.nip.io\r\n",
                                         "Host: localhost@evil\r\n",
                                         "Host:\r\n",
                                         "Host: [::1\r\n",
                                         "Host: [::1]x\r\n",
                                         "Host: localhost:80a\r\n",
                                         "Host: gpu7.example\r\n",
                                         "Host: [evil]\r\n",
                                         "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"};
    static const char *const bad[] = {"",
                                      "Host: localhost\r\nHost: localhost\r\n",
                                      "Host: localhost\r\nHost: evil.example\r\n",
                                      "Host: localhost\r\nContent-Length: 5\r\n",
                                      "Host: localhost\r\nTransfer-Encoding: chunked\r\n",
                                      "Host: localhost\r\n folded: x\r\n",
                                      "Host: localhost\r\n: x\r\n",
                                      "Host : localhost\r\n",
                                      "Host: localhost\r\nno colon\r\n",
                                      "Host: localhost\r\nX: a\nY: b\r\n",
                                      "Host: localhost\r\nX: \x7f\r\n"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) assert_int_equal(with_headers(ours[i], &loopback), 200);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (with_headers(others[i], &loopback) != 403) fail_msg("not refused: %s", others[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (with_headers(bad[i], &loopback) != 400) fail_msg("taken: %s", bad[i]);
    assert_int_equal(with_headers("Host: gpu7.example:8080\r\n", &open_to_all), 200);
    assert_int_equal(with_headers("Host: GPU7\r\n", &open_to_all), 200);
    assert_int_equal(with_headers("Host: evil.example\r\n", &open_to_all), 403);
}

/* Every beginning of a request, and every request with one byte changed: an answer, and never more
 * than what is there read (the copy ends where the text does). */
static void anything_is_answered(void **state) {
    (void)state;
    static const char head[] =
        "GET /api/metrics?run=0123456789abcdef&since=1 HTTP/1.1\r\nHost: [::1]:80\r\nA: b\r\n\r\n";
    enum { N = sizeof head - 1 };
    struct http_request r;
    const char *wrong;
    for (size_t n = 0; n <= N; n++) {
        char *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, head, n);
        assert_int_equal(http_head_end(copy, n), n == N ? N : 0);
        int status = http_read(copy, n, &loopback, &r, &wrong);
        assert_true(n == N ? status == 200 : *http_reason(status));
        for (int byte = 0; n == N && byte < 256 * N; byte++) {
            memcpy(copy, head, n);
            copy[byte / 256] = (char)(byte % 256);
            assert_true(*http_reason(http_read(copy, n, &loopback, &r, &wrong)));
        }
        free(copy);
    }
}

/* ---- serving ---- */
static struct board_server *server;
static int port;
static atomic_int answers;

static int say_much(void *user, const struct http_request *r, struct board_answer *a, FILE *body) {
    (void)user;
    answers++;
    a->next = -1;
    for (int i = 0; i < (r->page == HTTP_METRICS ? 100000 : 1); i++) fputs("a line\n", body);
    return r->page == HTTP_RUNS ? 404 : 200;
}

static int set_up(void **state) {
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a) | listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    port = ntohs(a.sin_port);
    assert_ok(board_server_start(fd, &loopback, say_much, NULL, &server));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    int64_t began = clock_ns();
    board_server_stop(server);
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(2));
    return 0;
}

static int dial(void) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {10, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

/* All until the server closes, or -1 when it did not for a long time. */
static ssize_t hear(int fd, char *to, size_t room) {
    size_t n = 0;
    for (ssize_t got; (got = recv(fd, to + n, room - n - 1, 0)) != 0; n += (size_t)got)
        if (got < 0) return errno == ECONNRESET ? (ssize_t)n : -1;
    to[n] = '\0';
    return (ssize_t)n;
}

static char text[1 << 20];
static const char get[] = "GET /api/run HTTP/1.1\r\nHost: localhost\r\n\r\n";

static void ask(const char *request, const char *expected) {
    int fd = dial();
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    assert_true(hear(fd, text, sizeof text) > 0);
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
    close(fd);
}

static void answers_and_refuses(void **state) {
    (void)state;
    ask(get, "HTTP/1.1 200 OK\r\n");
    assert_non_null(strstr(text, "Content-Security-Policy: default-src 'none'"));
    assert_non_null(strstr(text, "\r\n\r\na line\n"));
    ask("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 405 ");
    assert_non_null(strstr(text, "Allow: GET\r\n"));
    ask("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404 ");
    ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 403 ");
    ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    assert_non_null(strstr(text, "<!doctype html>"));
    ask("GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404 ");
    assert_non_null(strstr(text, "\r\n\r\n404 Not Found: no such run\n"));
    assert_null(strstr(text, "a line"));
    ask("GET /api/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    assert_true(strlen(text) > 700000);
    assert_true(board_server_idle(server) < 5);
}

/* As slowly as it likes, in single bytes; and with more behind the request than belongs there. */
static void pieces(void **state) {
    (void)state;
    int fd = dial();
    for (size_t i = 0; i < sizeof get - 1; i++) assert_int_equal(send(fd, get + i, 1, MSG_NOSIGNAL), 1);
    assert_true(hear(fd, text, sizeof text) > 0);
    assert_int_equal(strncmp(text, "HTTP/1.1 200", 12), 0);
    close(fd);
    char twice[2 * sizeof get];
    snprintf(twice, sizeof twice, "%s%s", get, get);
    int before = answers;
    ask(twice, "HTTP/1.1 200");
    assert_int_equal(answers, before + 1);
}

static void too_long(void **state) {
    (void)state;
    char *head = malloc(2 * HTTP_HEAD);
    assert_non_null(head);
    memset(head, 'a', 2 * HTTP_HEAD);
    memcpy(head, "GET / HTTP/1.1\r\nX: ", 19);
    int fd = dial();
    (void)!send(fd, head, 2 * HTTP_HEAD, MSG_NOSIGNAL);
    assert_true(hear(fd, text, sizeof text) >= 12);
    assert_int_equal(strncmp(text, "HTTP/1.1 431", 12), 0);
    close(fd);
    free(head);
}

static int descriptors(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* Hundreds who say nothing, or ask and never take the answer: the server keeps a few of them, and
 * who comes then is served at once. */
static void silent_crowds(void **state) {
    (void)state;
    enum { CROWD = 300 };
    static int crowd[CROWD];
    static const char much[] = "GET /api/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int before = descriptors();
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = dial();
        if (i % 2) (void)!send(crowd[i], much, sizeof much - 1, MSG_NOSIGNAL);
    }
    int64_t began = clock_ns();
    ask(get, "HTTP/1.1 200");
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(3));
    assert_true(descriptors() - before <= CROWD + 20);
    for (int i = 0; i < CROWD; i++) close(crowd[i]);
    ask(get, "HTTP/1.1 200");
}

/* Without a descriptor to spare it waits, and does not spin; then it goes on. */
static void no_descriptors(void **state) {
    (void)state;
    enum { MOST = 256 };
    int held[MOST], n = 0, waiting = dial();
    struct timespec before, after, pause = {.tv_nsec = 500000000};
    struct rlimit was;
    getrlimit(RLIMIT_NOFILE, &was);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){MOST, was.rlim_max});
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* that one has been let in */
    int fd = dial();
    while (n < MOST && (held[n] = dup(0)) >= 0) n++;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double cpu = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    while (n > 0) close(held[--n]);
    setrlimit(RLIMIT_NOFILE, &was);
    assert_true(cpu < 0.2 || !timing_checked());
    assert_int_equal(send(fd, get, sizeof get - 1, MSG_NOSIGNAL), sizeof get - 1);
    assert_true(hear(fd, text, sizeof text) > 0);
    close(fd), close(waiting);
}

/* ---- metrics ---- */
static void put(const char *path, const char *what, const char *how) {
    FILE *f = fopen(path, how);
    assert_non_null(f);
    fputs(what, f);
    assert_int_equal(fclose(f), 0);
}

static int64_t metrics_from(int64_t since, const char *expected, bool all) {
    char *got = NULL;
    size_t n;
    bool last;
    FILE *out = open_memstream(&got, &n);
    const struct board_state s = {.run_dir = scratch_folder()};
    assert_non_null(out);
    assert_true(board_metrics(&s, &since, &last, out));
    assert_int_equal(fclose(out), 0);
    assert_string_equal(got, expected);
    assert_int_equal(last, all);
    free(got);
    return since;
}

static void metrics_come_in_whole_lines(void **state) {
    (void)state;
    const char *path = scratch_path("metrics.jsonl");
    (void)unlink(path);
    assert_int_equal(metrics_from(0, "", true), 0);
    put(path, "{\"a\":1}\n{\"b\"", "w");
    assert_int_equal(metrics_from(0, "{\"a\":1}\n", false), 8);
    assert_int_equal(metrics_from(8, "", true), 8);
    put(path, ":2}\n", "a");
    assert_int_equal(metrics_from(8, "{\"b\":2}\n", true), 16);
    assert_int_equal(metrics_from(16, "", true), 16);
    put(path, "{}\n", "w"); /* another file: from its beginning */
    assert_int_equal(metrics_from(16, "{}\n", true), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets),
        cmocka_unit_test(headers),
        cmocka_unit_test(anything_is_answered),
        cmocka_unit_test(metrics_come_in_whole_lines),
        cmocka_unit_test_setup_teardown(answers_and_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silent_crowds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_descriptors, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("dashboard", tests, NULL, NULL);
}
