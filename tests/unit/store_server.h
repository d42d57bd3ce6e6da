/* A tcp store served by a process of its own, so that its memory can be looked at and it can be
 * stopped; for tests of what others do to it. A test program begins with serve_if_asked. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "transport/store/store.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pool *pool;
static struct {
    pid_t pid;
    int in, out; /* it ends when 'in' is closed */
    char url[100];
    int port;
} server;

static inline void serve_if_asked(int argc, char **argv) {
    struct store *s;
    char byte;
    if (argc != 2 || strcmp(argv[1], "--serve")) return;
    struct store_params p = {.url = "tcp://127.0.0.1:0", .serve = true, .token = "right", .run = "A", .timeout = 20};
    if (store_open(&p, &s) != ERR_NONE) {
        fprintf(stderr, "%s\n", error_message());
        exit(1);
    }
    dprintf(STDOUT_FILENO, "%s\n", store_url(s));
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    store_close(s);
    exit(0);
}

static inline int start_server(void **state) {
    int in[2], out[2];
    char *argv[] = {(char[]){"test"}, (char[]){"--serve"}, NULL}, *environment[] = {NULL};
    posix_spawn_file_actions_t files;
    (void)state;
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&server.pid, "/proc/self/exe", &files, NULL, argv, environment), 0);
    posix_spawn_file_actions_destroy(&files);
    close(in[0]), close(out[1]);
    server.in = in[1], server.out = out[0];
    ssize_t n = read(server.out, server.url, sizeof server.url - 1);
    assert_true(n > 0 && server.url[n - 1] == '\n');
    server.url[n - 1] = '\0';
    server.port = atoi(strrchr(server.url, ':') + 1);
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

/* It must have outlived everything, and end as it should, soon. */
static inline int stop_server(void **state) {
    int how = -1;
    int64_t began = clock_ns();
    (void)state;
    close(server.in);
    waitpid(server.pid, &how, 0);
    close(server.out);
    pool_free(pool);
    return how == 0 && clock_seconds(clock_ns() - began) < 5 ? 0 : -1;
}

static inline long server_kb(void) {
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)server.pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6)) kb = atol(line + 6);
    fclose(f);
    return kb;
}

static inline struct store *client(void) {
    struct store *s;
    struct store_params p = {.url = server.url, .token = "right", .run = "A", .timeout = 20};
    assert_ok(store_open(&p, &s));
    return s;
}

/* How many of its keys begin so. */
static inline int keys_of(const char *prefix) {
    struct store *s = client();
    char **keys;
    int count;
    assert_ok(store_list(s, prefix, pool, &keys, &count));
    store_close(s);
    return count;
}

/* A connection to it, by hand. */
static inline int raw(void) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)server.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {5, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (void *)&a, sizeof a), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}
