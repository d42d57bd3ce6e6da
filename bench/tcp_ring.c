/* All-reduce over TCP on one host: a ring on raw sockets (nonblocking, one thread, a poll loop)
 * beside the engine's ring, and what it takes by itself in tree order, over its link tcp; processes,
 * interleaved, medians.
 *
 *     bench_tcp_ring [WORLD] [MAX_MB] [SECONDS a size]
 */
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "transport/group.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD_MAX = 8, RIGHT_FD = 100, LEFT_FD, PARENT_FD, TRIES = 400, PIECE = 128 << 10 };
extern char **environ;

static void die(const char *what) {
    fprintf(stderr, "bench_tcp_ring: %s: %s\n", what, strerror(errno));
    exit(74);
}

/* ---- the ring on raw sockets ---- */

struct raw {
    int rank, world;
    char scratch[PIECE];
};

static void add(float *restrict a, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] + a[i];
}

/* What one step still has to send and to receive. */
struct step {
    const char *out;
    size_t out_left;
    float *in;
    size_t in_left, held; /* held: bytes in scratch that are not added yet */
    bool sums;
};

static bool send_some(struct step *s) {
    ssize_t n = s->out_left ? send(RIGHT_FD, s->out, s->out_left, MSG_NOSIGNAL) : 0;
    if (n < 0 && errno != EAGAIN) die("send");
    if (n <= 0) return false;
    s->out += n;
    s->out_left -= (size_t)n;
    return true;
}

static bool recv_some(struct raw *r, struct step *s) {
    if (!s->in_left) return false;
    char *to = s->sums ? r->scratch + s->held : (char *)s->in;
    size_t room = s->sums && s->in_left > PIECE - s->held ? PIECE - s->held : s->in_left;
    ssize_t n = recv(LEFT_FD, to, room, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) die("recv");
    if (n < 0) return false;
    s->in_left -= (size_t)n;
    if (!s->sums) {
        s->in = (float *)(void *)((char *)s->in + n);
        return true;
    }
    s->held += (size_t)n;
    size_t whole = s->held / 4;
    add(s->in, (const float *)(const void *)r->scratch, whole);
    s->in += whole;
    s->held -= whole * 4;
    memmove(r->scratch, r->scratch + whole * 4, s->held);
    return true;
}

static void step_run(struct raw *r, struct step s) {
    while (s.out_left || s.in_left) {
        bool moved = send_some(&s);
        moved |= recv_some(r, &s);
        if (moved) continue;
        struct pollfd f[2] = {{.fd = s.out_left ? RIGHT_FD : -1, .events = POLLOUT},
                              {.fd = s.in_left ? LEFT_FD : -1, .events = POLLIN}};
        if (poll(f, 2, -1) < 0 && errno != EINTR) die("poll");
    }
}

static void raw_ring(struct raw *r, float *buf, int64_t count) {
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

/* ---- one rank ---- */

struct bench {
    struct raw raw;
    struct group *ring, *automatic;
    float *buf;
    double seconds; /* a size */
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum error once(struct bench *b, int which, int64_t count, double *seconds) {
    float flag[WORLD_MAX] = {0};
    raw_ring(&b->raw, flag, b->raw.world); /* all start at once */
    int64_t start = clock_ns();
    if (which == 0)
        raw_ring(&b->raw, b->buf, count);
    else
        TRY(group_all_reduce(which == 1 ? b->ring : b->automatic, GROUP_INLINE, b->buf, count, DTYPE_F32, REDOP_SUM));
    *seconds = clock_seconds(clock_ns() - start);
    return ERR_NONE;
}

/* Rank 0 says when it is enough. */
static bool go_on(struct bench *b, int64_t start, int tries) {
    bool mine = tries < 5 || clock_seconds(clock_ns() - start) < b->seconds;
    float flag[WORLD_MAX] = {0};
    for (int i = 0; i < b->raw.world && b->raw.rank == 0; i++) flag[i] = mine;
    raw_ring(&b->raw, flag, b->raw.world);
    return flag[0] > 0 && tries < TRIES;
}

static enum error measure(struct bench *b, int64_t bytes) {
    static double t[3][TRIES];
    int n = 0;
    memset(b->buf, 0, (size_t)bytes);
    for (int64_t start = clock_ns(); go_on(b, start, n); n++)
        for (int w = 0; w < 3; w++) TRY(once(b, w, bytes / 4, &t[w][n]));
    if (b->raw.rank) return ERR_NONE;
    for (int w = 0; w < 3; w++) qsort(t[w], (size_t)n, sizeof(double), by_value);
    double raw = t[0][n / 2], ring = t[1][n / 2], direct = t[2][n / 2];
    printf("%6d %10lld %12.1f %12.1f %12.1f %8.2f %8.2f\n", b->raw.world, (long long)bytes, raw * 1e6, ring * 1e6,
           direct * 1e6, raw / ring, raw / direct);
    fflush(stdout);
    return ERR_NONE;
}

static enum error open_groups(struct bench *b, struct port *port) {
    static struct seat_of seat[WORLD_MAX];
    struct roster roster = {.size = b->raw.world, .hosts = 1, .of = seat};
    static struct roster kept;
    snprintf(seat[0].address, ADDRESS_MAX, "%s", port_address(port));
    if (write(PARENT_FD, seat[0].address, ADDRESS_MAX) != ADDRESS_MAX) die("write");
    for (int r = 0; r < b->raw.world; r++) {
        seat[r].local = r;
        if (recv(PARENT_FD, seat[r].address, ADDRESS_MAX, MSG_WAITALL) != ADDRESS_MAX) die("recv");
    }
    kept = roster;
    struct group_params p = {.rank = b->raw.rank,
                             .size = b->raw.world,
                             .link = "tcp",
                             .algorithm = "ring",
                             .order = ORDER_RING,
                             .timeout = 60,
                             .roster = &kept,
                             .port = port,
                             .id = 1};
    TRY(group_open(&p, &b->ring));
    p.algorithm = "auto";
    p.order = ORDER_TREE;
    p.id = 2;
    return group_open(&p, &b->automatic);
}

static enum error run_rank(struct bench *b, int64_t most) {
    struct port *port;
    void *buf;
    TRY(port_open(&(struct port_params){0}, &port));
    TRY(open_groups(b, port));
    TRY(memory_alloc((size_t)most, &buf));
    b->buf = buf;
    if (b->raw.rank == 0)
        printf("%6s %10s %12s %12s %12s %8s %8s\n", "world", "bytes", "raw_us", "ring_us", "auto_us", "ring", "auto");
    for (int64_t bytes = 1024; bytes <= most; bytes *= 4) TRY(measure(b, bytes));
    group_close(b->ring);
    group_close(b->automatic);
    port_close(port);
    memory_free(buf);
    return ERR_NONE;
}

/* ---- the parent ---- */

static void connect_pair(int listener, int pair[2]) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    int one = 1;
    if (getsockname(listener, (struct sockaddr *)&a, &n)) die("getsockname");
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(pair[0], (struct sockaddr *)&a, n)) die("connect");
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (pair[1] < 0) die("accept");
    for (int i = 0; i < 2; i++) {
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(pair[i], F_SETFL, O_NONBLOCK);
    }
}

static pid_t spawn(int rank, char **argv, int right, int left, int parent) {
    char number[16], *again[] = {argv[0], argv[1], argv[2], argv[3], (char[]){"rank"}, number, NULL};
    posix_spawn_file_actions_t files;
    pid_t pid;
    snprintf(number, sizeof number, "%d", rank);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, right, RIGHT_FD);
    posix_spawn_file_actions_adddup2(&files, left, LEFT_FD);
    posix_spawn_file_actions_adddup2(&files, parent, PARENT_FD);
    if (posix_spawn(&pid, "/proc/self/exe", &files, NULL, again, environ)) die("posix_spawn");
    posix_spawn_file_actions_destroy(&files);
    return pid;
}

static int run_all(int world, char **argv) {
    int ring[WORLD_MAX][2], talk[WORLD_MAX][2], code = 0;
    char address[WORLD_MAX][ADDRESS_MAX];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 8)) die("listen");
    for (int r = 0; r < world; r++) {
        connect_pair(listener, ring[r]); /* [0]: rank r's right; [1]: rank r + 1's left */
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk[r])) die("socketpair");
    }
    for (int r = 0; r < world; r++) {
        spawn(r, argv, ring[r][0], ring[(r + world - 1) % world][1], talk[r][1]);
        close(talk[r][1]);
    }
    for (int r = 0; r < world; r++)
        if (recv(talk[r][0], address[r], ADDRESS_MAX, MSG_WAITALL) != ADDRESS_MAX) die("a rank");
    for (int r = 0; r < world; r++)
        if (write(talk[r][0], address, (size_t)world * ADDRESS_MAX) < 0) die("write");
    for (int status; wait(&status) > 0;)
        if (status) code = 75;
    return code;
}

int main(int argc, char **argv) {
    char *full[] = {argv[0], argc > 1 ? argv[1] : (char[]){"2"}, argc > 2 ? argv[2] : (char[]){"64"},
                    argc > 3 ? argv[3] : (char[]){"0.5"}, NULL};
    int world = atoi(full[1]), mb = atoi(full[2]);
    if (world < 2 || world > WORLD_MAX || mb < 1 || mb > 1024) {
        fprintf(stderr, "usage: bench_tcp_ring [WORLD 2..8] [MAX_MB] [SECONDS]\n");
        return 64;
    }
    if (argc < 6) return run_all(world, full);
    struct bench b = {.raw = {.rank = atoi(argv[5]), .world = world}, .seconds = atof(full[3])};
    enum error err = run_rank(&b, (int64_t)mb << 20);
    if (err) fprintf(stderr, "bench_tcp_ring: %s\n", error_message());
    return error_exit_code(err);
}
