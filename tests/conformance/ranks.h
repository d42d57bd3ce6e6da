/* Ranks for tests of the transport: as threads (over either link) or as processes that run the test
 * program again. A rank must not use CMocka's asserts, which jump; it uses check(), and the test
 * asserts what the ranks found. */
#pragma once
#include "engine/device/runtime.h"
#include "transport/group.h"
#include "transport/launch/launch.h"
#include "transport/link/link.h"

#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORLD = 16, RANK_FD = 100 };

struct ranks; /* what all ranks of a run are given */
struct rank {
    const struct ranks *of;
    int index;
    struct device *device; /* of device_ops */
    struct group *group;   /* opened before fn, closed after it by whoever runs the rank; fn may close
                            it (NULL) */
    enum error err;        /* for fn's use: what the tested call gave */
    char message[700];     /* and its words */
    char wrong[900];       /* the first check that failed */
};
struct ranks {
    int world;
    const char *link, *algorithm;
    enum order order;
    int idle, leaves;
    double timeout;
    void (*fn)(struct rank *r);
    const void *user;
    double heartbeat;
    bool mail;
    size_t kept;
    enum secure secure;
    struct recorder *const *recorders; /* of each rank, or NULL */
    /* Ranks with accelerators: of which kind, which units; the first 'hosted' ranks have none. */
    const struct device_ops *devices;
    int units, hosted;
    const char *carrier, *expect; /* what is asked for, and what shall come of it */
    bool bitwise, loose;          /* loose: sums of floats need not have the bits of 'order' */
    bool may_not_open;            /* where a group did not open the caller sees it, in 'wrong' */
    struct emulation emulate;
    struct meeting *meeting;
    /* For far links (ranks_meet): */
    struct meeting *on_host[2]; /* of "hosts": the lower half of the ranks, the upper half */
    struct port *port[MAX_WORLD];
    struct seat_of seat[MAX_WORLD];
    struct roster roster;
};

__attribute__((format(printf, 3, 4))) static inline void rank_wrong(struct rank *r, const char *condition,
                                                                    const char *fmt, ...) {
    if (*r->wrong) return;
    int n = snprintf(r->wrong, sizeof r->wrong, "rank %d: %.99s: ", r->index, condition);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->wrong + n, sizeof r->wrong - (size_t)n, fmt, ap);
    va_end(ap);
}
#define check(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) rank_wrong(r, #condition, __VA_ARGS__);                                                      \
    } while (0)
#define check_ok(expr) check((expr) == ERR_NONE, "%s", error_message())

static inline void nap(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* Keeps what a call gave. */
static inline void rank_result(struct rank *r, enum error err) {
    r->err = err;
    snprintf(r->message, sizeof r->message, "%s", err ? error_message() : "");
}

static inline struct group_params rank_params(const struct ranks *p, int rank) {
    return (struct group_params){.rank = rank,
                                 .size = p->world,
                                 .link = p->link,
                                 .algorithm = p->algorithm ? p->algorithm : "auto",
                                 .order = p->order,
                                 .idle = p->idle,
                                 .leaves = p->leaves,
                                 .timeout = p->timeout > 0 ? p->timeout : 60,
                                 .heartbeat = p->heartbeat,
                                 .mail = p->mail,
                                 .kept = p->kept,
                                 .secure = p->secure,
                                 .recorder = p->recorders ? p->recorders[rank] : NULL,
                                 .carrier = p->carrier,
                                 .bitwise = p->bitwise,
                                 .emulate = p->emulate,
                                 .id = 7,
                                 .port = p->port[rank],
                                 .roster = p->roster.of ? &p->roster : NULL,
                                 .meeting = p->on_host[0] ? p->on_host[p->seat[rank].host] : p->meeting};
}

static inline void rank_join(struct rank *r, struct meeting *meeting) {
    struct group_params p = rank_params(r->of, r->index);
    if (meeting) p.meeting = meeting;
    p.device = r->device;
    enum error err = group_open(&p, &r->group);
    if (err) {
        rank_result(r, err);
        check(false, "group_open: %s", error_message());
        return;
    }
    r->of->fn(r);
    group_close(r->group);
}

static inline void rank_run(struct rank *r, struct meeting *meeting) {
    const struct ranks *of = r->of;
    if (of->devices && r->index >= of->hosted) {
        struct device_params p = {
            .index = r->index, .count = of->world, .unit = r->index % (of->units ? of->units : 1), .threads = 1};
        enum error err = of->devices->open(&p, &r->device);
        check(err == ERR_NONE, "%s", error_message());
        if (err) return;
    }
    rank_join(r, meeting);
    if (r->device) r->device->ops->close(r->device);
}

/* Over shm each thread maps the board for itself, as a process does. */
static inline void *rank_thread(void *arg) {
    struct rank *r = arg;
    struct meeting *own = NULL;
    int fd = r->of->meeting ? meeting_fd(r->of->meeting) : -1;
    if (fd >= 0 && meeting_join(fd, r->of->world, &own) != ERR_NONE)
        check(false, "%s", error_message());
    else
        rank_run(r, own);
    meeting_free(own);
    return NULL;
}

/* A port for each rank, and a roster: of one host, or for "hosts" of two. */
static inline void ranks_place(struct ranks *p) {
    int half = strcmp(p->link, "hosts") ? p->world : (p->world + 1) / 2;
    for (int i = 0; i < p->world; i++) {
        struct seat_of *s = &p->seat[i];
        assert_ok(port_open(&(struct port_params){.key = "a token"}, &p->port[i]));
        *s = (struct seat_of){.host = i / half, .local = i % half};
        snprintf(s->address, sizeof s->address, "%s", port_address(p->port[i]));
    }
    p->roster = (struct roster){.size = p->world, .hosts = half < p->world ? 2 : 1, .of = p->seat};
}

/* What the ranks need to meet over p's link; given back by ranks_part. */
static inline void ranks_meet(struct ranks *p) {
    const struct link_ops *ops = link_find(p->link);
    if (link_is_far(ops)) ranks_place(p);
    if (!strcmp(p->link, "hosts")) {
        int lower = (p->world + 1) / 2;
        assert_ok(meeting_create(lower, &p->on_host[0]));
        if (p->world > lower) assert_ok(meeting_create(p->world - lower, &p->on_host[1]));
    } else if (!link_is_far(ops)) {
        assert_ok((strcmp(p->link, "shm") ? meeting_create : meeting_create_shared)(p->world, &p->meeting));
    }
}

static inline void ranks_part(struct ranks *p) {
    for (int i = 0; i < p->world; i++) port_close(p->port[i]);
    for (int h = 0; h < 2; h++) meeting_free(p->on_host[h]);
    meeting_free(p->meeting);
}

/* Runs the threads of ranks that have met. */
static inline void ranks_run(struct ranks *p, struct rank *out) {
    struct rank r[MAX_WORLD] = {0};
    pthread_t id[MAX_WORLD];
    for (int i = 0; i < p->world; i++) {
        r[i] = (struct rank){.of = p, .index = i};
        assert_int_equal(pthread_create(&id[i], NULL, rank_thread, &r[i]), 0);
    }
    for (int i = 0; i < p->world; i++) pthread_join(id[i], NULL);
    ranks_part(p);
    bool forgiven = false;
    for (int i = 0; i < p->world; i++) forgiven |= p->may_not_open && strstr(r[i].wrong, "group_open: ");
    for (int i = 0; i < p->world; i++) {
        if (*r[i].wrong && !forgiven)
            fail_msg("%s %s order %d world %d: %s", p->link, p->algorithm, (int)p->order, p->world, r[i].wrong);
        r[i].of = NULL;
        if (out) out[i] = r[i];
    }
}

/* Runs p->fn in p->world threads; out, where given, holds what they found. Asserts that no check
 * failed. */
static inline void run_ranks(struct ranks p, struct rank *out) {
    ranks_meet(&p);
    ranks_run(&p, out);
}

/* Starts this program again as rank 'rank' of 'world': argv is PROGRAM --rank RANK WORLD CASE. */
static inline pid_t spawn_rank(const struct meeting *m, int rank, int world, const char *name) {
    char a[16], b[16], *argv[] = {(char[]){"test"}, (char[]){"--rank"}, a, b, NULL, NULL};
    char copy[32];
    pid_t pid = -1;
    posix_spawn_file_actions_t files;
    snprintf(a, sizeof a, "%d", rank);
    snprintf(b, sizeof b, "%d", world);
    snprintf(copy, sizeof copy, "%s", name);
    argv[4] = copy;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, meeting_fd(m), RANK_FD);
    int err = posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    assert_int_equal(err, 0);
    return pid;
}
