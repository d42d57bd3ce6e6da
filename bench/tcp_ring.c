/* The yardstick of all-reduce over TCP on one host: a ring on raw sockets (nonblocking, one thread a rank, a poll loop),
 * ranks as processes. Run it in turn with 'engine bench comm --link tcp --algorithm ring'.
 *
 *     bench_tcp_ring [WORLD] [MAX_MB] [SECONDS a size]
 */
#include "engine/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD_MAX = 8, TRIES = 400, PIECE = 128 << 10 };

static void ring_die(const char *what) {
    fprintf(stderr, "bench_tcp_ring: %s: %s\n", what, strerror(errno));
    exit(74);
}

struct raw {                      /* a rank */
    int rank, world, right, left; /* right, left: its sockets */
    char scratch[PIECE];
};
struct step { /* what one step still has to send and to receive */
    const char *out;
    size_t out_left;
    float *in;
    size_t in_left, held; /* held: bytes in scratch that are not added yet */
    bool sums;
};

static bool step_send(const struct raw *r, struct step *s) {
    ssize_t n = s->out_left ? send(r->right, s->out, s->out_left, MSG_NOSIGNAL) : 0;
    if (n < 0 && errno != EAGAIN) ring_die("send");
    if (n <= 0) return false;
    s->out += n;
    s->out_left -= (size_t)n;
    return true;
}

/* Receives into place, or into scratch, from where whole elements are added. */
static bool step_receive(struct raw *r, struct step *s) {
    if (!s->in_left) return false;
    char *to = s->sums ? r->scratch + s->held : (char *)s->in;
    size_t room = s->sums && s->in_left > PIECE - s->held ? PIECE - s->held : s->in_left;
    ssize_t n = recv(r->left, to, room, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) ring_die("recv");
    if (n < 0) return false;
    s->in_left -= (size_t)n;
    if (!s->sums) {
        s->in = (float *)(void *)((char *)s->in + n);
        return true;
    }
    s->held += (size_t)n;
    size_t whole = s->held / 4;
    const float *more = (const float *)(const void *)r->scratch;
    for (size_t i = 0; i < whole; i++) s->in[i] = more[i] + s->in[i];
    s->in += whole;
    s->held -= whole * 4;
    memmove(r->scratch, r->scratch + whole * 4, s->held);
    return true;
}

static void step_run(struct raw *r, struct step s) {
    while (s.out_left || s.in_left) {
        bool moved = step_send(r, &s);
        moved |= step_receive(r, &s);
        if (moved) continue;
        struct pollfd f[2] = {{.fd = s.out_left ? r->right : -1, .events = POLLOUT},
                              {.fd = s.in_left ? r->left : -1, .events = POLLIN}};
        if (poll(f, 2, -1) < 0 && errno != EINTR) ring_die("poll");
    }
}

static void raw_all_reduce(struct raw *r, float *buf, int64_t count) {
    int n = r->world;
    for (int k = 0; k < 2 * (n - 1); k++) {
        int out = (r->rank - k + 2 * n + (k >= n - 1 ? n : 0)) % n, in = (out - 1 + n) % n;
        int64_t a = count * out / n, b = count * in / n;
        step_run(r, (struct step){.out = (const char *)(buf + a),
                                  .out_left = (size_t)(count * (out + 1) / n - a) * 4,
                                  .in = buf + b,
                                  .in_left = (size_t)(count * (in + 1) / n - b) * 4,
                                  .sums = k < n - 1});
    }
}

static int ring_by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Whether there is another try: rank 0 decides, and a sum of flags tells the others and lets all start at once. */
static bool raw_agree(struct raw *r, bool mine) {
    float flag[WORLD_MAX] = {0};
    for (int i = 0; i < r->world && r->rank == 0; i++) flag[i] = mine;
    raw_all_reduce(r, flag, r->world);
    return flag[0] > 0;
}

static void raw_measure(struct raw *r, float *buf, int64_t bytes, double seconds) {
    static double t[TRIES];
    int n = 0;
    for (int64_t start = clock_ns(); raw_agree(r, n < TRIES && (n < 5 || clock_seconds(clock_ns() - start) < seconds));
         n++) {
        int64_t began = clock_ns();
        raw_all_reduce(r, buf, bytes / 4);
        t[n] = clock_seconds(clock_ns() - began);
    }
    if (r->rank) return;
    qsort(t, (size_t)n, sizeof *t, ring_by_value);
    printf("%6d %10lld %12.1f us\n", r->world, (long long)bytes, t[n / 2] * 1e6);
    fflush(stdout);
}

/* Connects a pair of sockets over the loopback: pair[0] is one rank's right, pair[1] the next one's left. */
static void ring_connect_pair(int listener, int pair[2]) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    if (getsockname(listener, (struct sockaddr *)&a, &n)) ring_die("getsockname");
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pair[0], (struct sockaddr *)&a, n)) ring_die("connect");
    pair[1] = accept(listener, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) ||
            fcntl(pair[i], F_SETFL, O_NONBLOCK))
            ring_die("accept");
}

int main(int argc, char **argv) {
    static struct raw r;
    int ring[WORLD_MAX][2], world = argc > 1 ? atoi(argv[1]) : 2, mb = argc > 2 ? atoi(argv[2]) : 64, code = 0;
    double seconds = argc > 3 ? atof(argv[3]) : 0.5;
    if (world < 2 || world > WORLD_MAX || mb < 1 || mb > 1024) {
        fprintf(stderr, "usage: bench_tcp_ring [WORLD 2..8] [MAX_MB] [SECONDS]\n");
        return 64;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (const struct sockaddr *)&a, sizeof a) || listen(listener, WORLD_MAX)) ring_die("listen");
    for (int k = 0; k < world; k++) ring_connect_pair(listener, ring[k]);
    for (int k = 0; k < world; k++) {
        if (fork()) continue;
        float *buf = calloc((size_t)mb << 20, 1);
        if (!buf) ring_die("calloc");
        r = (struct raw){.rank = k, .world = world, .right = ring[k][0], .left = ring[(k + world - 1) % world][1]};
        for (int64_t bytes = 1024; bytes <= (int64_t)mb << 20; bytes *= 4) raw_measure(&r, buf, bytes, seconds);
        return 0;
    }
    for (int status; wait(&status) > 0;)
        if (status) code = 75;
    return code;
}
