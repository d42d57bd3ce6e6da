/* A fake libnccl.so.2 over the real nccl.h, for emulated GPUs: ranks are processes or threads of one
 * host. Sums are made from rank 0 on. As with the real one, communicators that do not block answer
 * ncclInProgress and have to be asked until they are done, work runs in the order of its stream, a
 * call that has failed never ends, and ncclCommAbort ends it.
 *
 * FAKE_NCCL_FAULT=KIND[:n][@rank] (the n-th call of a process, from 1; all ranks, or one):
 *   init_forever     the communicator never comes about
 *   remote_error:n   from that call on the communicator has failed; the call does not end
 *   hang:n           the call does not end, and nobody says why
 *   slow             every call is in progress for long
 * What a program may not do (another thread's call at the same time, a communicator that is gone or
 * still in progress, memory or streams of another GPU) ends it, with words. */
#include "tests/emulated/nccl.h"
#include "tests/emulated/emulated.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum call_kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
struct call {
    enum call_kind kind;
    const char *send;
    char *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
};
enum state { JOINING, READY, GONE };
struct ncclComm {
    int rank, size, gpu;
    int ask, late; /* how often it is still in progress, and then well although it has failed */
    _Atomic int state, aborted, using, running, outstanding;
    bool failed, forever;
    struct wire *wire;
    char name[64];
    struct parcel *next; /* what is handed to the stream when it is in progress no more */
    cudaStream_t stream;
    struct ncclComm *before; /* all there have been: those that are gone are known */
};
struct parcel { /* calls that are one piece of work */
    struct ncclComm *comm;
    bool hangs;
    int n;
    struct call calls[];
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *all;
static _Atomic int issued;

static __thread struct { /* the open group of a thread */
    int depth, n, room;
    struct ncclComm *comm;
    cudaStream_t stream;
    struct call *calls;
} group;

__attribute__((noreturn, format(printf, 1, 2))) static void misuse(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "fake NCCL: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    abort();
}

/* ---- faults ---- */

static bool fault(const char *kind, int rank, int call) {
    const char *text = getenv("FAKE_NCCL_FAULT"), *at, *who;
    size_t n = strlen(kind);
    if (!text || strncmp(text, kind, n) != 0 || (text[n] && !strchr(":@", text[n]))) return false;
    at = strchr(text, ':');
    who = strchr(text, '@');
    return (!who || atoi(who + 1) == rank) && (!at || !call || call >= atoi(at + 1));
}

static int polls(const struct ncclComm *c) {
    return fault("slow", c->rank, 0) ? 200 : 2;
}

/* ---- one user at a time ---- */

static void enter(struct ncclComm *c, const char *what, bool settled) {
    if (!c) misuse("%s without a communicator", what);
    if (atomic_load(&c->state) == GONE) misuse("%s on a communicator that is gone", what);
    if (settled && (c->ask || atomic_load(&c->state) != READY))
        misuse("%s on a communicator that is in progress", what);
    if (atomic_exchange(&c->using, 1)) misuse("%s while another thread uses the communicator", what);
}

static void leave(struct ncclComm *c) {
    atomic_store(&c->using, 0);
}

/* ---- the work itself, on the stream's thread ---- */

static bool moved(struct ncclComm *c, struct move *m, int n) {
    return wire_move(c->wire, c->rank, m, n, &c->aborted);
}

/* Everybody's 'bytes' at from + r * stride go to rank r; what comes from r lands at to + r * bytes. */
static bool to_all(struct ncclComm *c, const char *from, size_t stride, size_t bytes, char *to) {
    struct move m[2 * RANKS_MAX];
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        char *part = (char *)(uintptr_t)from + (size_t)r * stride;
        if (r == c->rank) {
            emulated_copy(to + (size_t)r * bytes, part, bytes);
            continue;
        }
        m[n++] = (struct move){r, true, part, bytes};
        m[n++] = (struct move){r, false, to + (size_t)r * bytes, bytes};
    }
    return moved(c, m, n);
}

static void add_up(const struct ncclComm *c, char *terms, const struct call *k, void *to) {
    size_t bytes = k->count * wire_size(k->type);
    ncclRedOp_t op = k->op == ncclAvg ? ncclSum : k->op;
    if (k->op == ncclAvg) wire_scale(terms, k->count * (size_t)c->size, k->type, 1.0 / c->size);
    for (int r = 1; r < c->size; r++) wire_combine(terms, terms + (size_t)r * bytes, k->count, k->type, op);
    emulated_copy(to, terms, bytes);
}

static bool reduce_to_root(struct ncclComm *c, const struct call *k, char *terms) {
    struct move m[RANKS_MAX];
    size_t bytes = k->count * wire_size(k->type);
    int n = 0;
    if (c->rank != k->peer) {
        m[n++] = (struct move){k->peer, true, (char *)(uintptr_t)k->send, bytes};
        return moved(c, m, n);
    }
    emulated_copy(terms + (size_t)c->rank * bytes, k->send, bytes);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) m[n++] = (struct move){r, false, terms + (size_t)r * bytes, bytes};
    if (!moved(c, m, n)) return false;
    add_up(c, terms, k, k->recv);
    return true;
}

static bool broadcast(struct ncclComm *c, const struct call *k) {
    struct move m[RANKS_MAX];
    size_t bytes = k->count * wire_size(k->type);
    int n = 0;
    if (c->rank != k->peer) m[n++] = (struct move){k->peer, false, k->recv, bytes};
    for (int r = 0; c->rank == k->peer && r < c->size; r++)
        if (r != c->rank) m[n++] = (struct move){r, true, (char *)(uintptr_t)k->send, bytes};
    if (c->rank == k->peer) emulated_copy(k->recv, k->send, bytes);
    return moved(c, m, n);
}

static bool run_call(struct ncclComm *c, const struct call *k) {
    size_t bytes = k->count * wire_size(k->type);
    char *terms = malloc(bytes * (size_t)c->size + 1);
    bool good;
    if (!terms) abort();
    switch (k->kind) {
    case ALL_REDUCE:
    case REDUCE_SCATTER:
        good = to_all(c, k->send, k->kind == ALL_REDUCE ? 0 : bytes, bytes, terms);
        if (good) add_up(c, terms, k, k->recv);
        break;
    case REDUCE:
        good = reduce_to_root(c, k, terms);
        break;
    case BROADCAST:
        good = broadcast(c, k);
        break;
    default: /* ALL_GATHER */
        good = to_all(c, k->send, 0, bytes, k->recv);
    }
    free(terms);
    return good;
}

static bool run_messages(struct ncclComm *c, const struct parcel *p) {
    struct move *m = calloc((size_t)p->n + 1, sizeof *m);
    int n = 0;
    if (!m) abort();
    for (int i = 0; i < p->n; i++) {
        const struct call *k = &p->calls[i];
        bool sends = k->kind == SEND;
        if (k->kind < SEND) continue;
        m[n++] =
            (struct move){k->peer, sends, sends ? (char *)(uintptr_t)k->send : k->recv, k->count * wire_size(k->type)};
    }
    bool good = moved(c, m, n);
    free(m);
    return good;
}

static void run_parcel(void *arg) {
    struct parcel *p = *(struct parcel **)arg;
    struct ncclComm *c = p->comm;
    if (atomic_exchange(&c->running, 1)) misuse("work of one communicator on two streams at once");
    if (fault("slow", c->rank, 0)) usleep(20000);
    emulated_hang("a collective");
    while (p->hangs && !atomic_load(&c->aborted)) usleep(1000);
    bool good = !atomic_load(&c->aborted);
    for (int i = 0; i < p->n && good; i++)
        if (p->calls[i].kind < SEND) good = run_call(c, &p->calls[i]);
    if (good) run_messages(c, p);
    free(p);
    atomic_store(&c->running, 0);
    atomic_fetch_sub(&c->outstanding, 1);
}

/* ---- taking calls ---- */

static void check_call(const struct ncclComm *c, const struct call *k, cudaStream_t stream) {
    bool gives = k->kind != RECV && k->kind != BROADCAST, takes = k->kind != SEND;
    if (emulated_stream_gpu(stream) != c->gpu)
        misuse("a stream of GPU %d, a communicator of GPU %d", emulated_stream_gpu(stream), c->gpu);
    if (k->count &&
        ((gives && emulated_gpu(k->send) != c->gpu) || (takes && k->kind != REDUCE && emulated_gpu(k->recv) != c->gpu)))
        misuse("memory that is not of GPU %d, which the communicator is of", c->gpu);
    if (k->peer < 0 || k->peer >= c->size) misuse("rank %d of %d", k->peer, c->size);
    if (k->kind >= SEND && k->peer == c->rank) misuse("a message to itself");
}

static void hand_over(struct ncclComm *c) {
    struct parcel *p = c->next;
    c->next = NULL;
    if (!p) return;
    atomic_fetch_add(&c->outstanding, 1);
    emulated_submit(c->stream, run_parcel, &p, sizeof(struct parcel *));
}

/* One piece of work; in progress until it has been asked for. */
static ncclResult_t take(struct ncclComm *c, cudaStream_t stream, const struct call *calls, int n) {
    struct parcel *p = malloc(sizeof *p + (size_t)n * sizeof *calls);
    int number = atomic_fetch_add(&issued, 1) + 1;
    if (!p) abort();
    enter(c, "a call", true);
    *p = (struct parcel){.comm = c, .n = n};
    memcpy(p->calls, calls, (size_t)n * sizeof *calls);
    for (int i = 0; i < n; i++) check_call(c, &calls[i], stream);
    c->failed = fault("remote_error", c->rank, number);
    c->late = 20;
    p->hangs = c->failed || fault("hang", c->rank, number);
    c->next = p;
    c->stream = stream;
    c->ask = polls(c);
    leave(c);
    return ncclInProgress;
}

static ncclResult_t call(struct call k, struct ncclComm *c, cudaStream_t stream) {
    if (!group.depth) return take(c, stream, &k, 1);
    if (group.n && (group.comm != c || group.stream != stream))
        misuse("a group of calls on several communicators or streams");
    if (group.n == group.room) {
        group.room = group.room ? 2 * group.room : 16;
        group.calls = realloc(group.calls, (size_t)group.room * sizeof k);
        if (!group.calls) abort();
    }
    group.comm = c;
    group.stream = stream;
    group.calls[group.n++] = k;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (!group.depth) misuse("a group ends that has not begun");
    if (--group.depth || !group.n) return ncclSuccess;
    int n = group.n;
    group.n = 0;
    ncclResult_t rc = take(group.comm, group.stream, group.calls, n);
    free(group.calls);
    group.calls = NULL;
    group.room = 0;
    return rc;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream) {
    return call((struct call){ALL_REDUCE, send, recv, count, type, op, 0}, c, stream);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t stream) {
    return call((struct call){REDUCE, send, recv, count, type, op, root}, c, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream) {
    return call((struct call){BROADCAST, send, recv, count, type, ncclSum, root}, c, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream) {
    return call((struct call){ALL_GATHER, send, recv, count, type, ncclSum, 0}, c, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream) {
    return call((struct call){REDUCE_SCATTER, send, recv, count, type, op, 0}, c, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t stream) {
    return call((struct call){SEND, send, NULL, count, type, ncclSum, peer}, c, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
    return call((struct call){RECV, NULL, recv, count, type, ncclSum, peer}, c, stream);
}

/* ---- communicators ---- */

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static _Atomic int count;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, 64, "/fake-nccl.%d.%d", (int)getpid(), atomic_fetch_add(&count, 1));
    struct wire *w = wire_create(id->internal);
    if (!w) return ncclSystemError;
    wire_leave(w);
    return ncclSuccess;
}

/* The host that a rank says it is on, and its GPU. */
static uint64_t place(int gpu) {
    const char *host = getenv("NCCL_HOSTID");
    uint64_t h = 0xcbf29ce484222325u;
    char bus[32] = "";
    (void)cudaDeviceGetPCIBusId(bus, sizeof bus, gpu);
    for (; host && *host; host++) h = (h ^ (unsigned char)*host) * 0x100000001b3u;
    for (const char *p = bus; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    return h;
}

/* FAKE_NCCL_SETTINGS=file: what this NCCL has been told by the environment. */
static void tell_settings(void) {
    static const char *const names[] = {"NCCL_NVLS_ENABLE", "NCCL_SOCKET_IFNAME"};
    const char *path = getenv("FAKE_NCCL_SETTINGS");
    FILE *f = path ? fopen(path, "w") : NULL;
    for (size_t i = 0; f && i < sizeof names / sizeof *names; i++)
        fprintf(f, "%s=%s\n", names[i], getenv(names[i]) ? getenv(names[i]) : "");
    if (f) fclose(f);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    int gpu;
    if (!config || config->blocking != 0) misuse("a communicator that blocks");
    if (size < 1 || size > RANKS_MAX || rank < 0 || rank >= size) return ncclInvalidArgument;
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c || cudaGetDevice(&gpu) != cudaSuccess) return ncclSystemError;
    memcpy(c->name, id.internal, sizeof c->name - 1);
    c->wire = wire_join(c->name);
    if (!c->wire) return ncclSystemError;
    c->rank = rank, c->size = size, c->gpu = gpu;
    if (rank == 0) tell_settings();
    c->ask = polls(c);
    c->forever = fault("init_forever", rank, 0);
    c->wire->gpu[rank] = place(gpu);
    if (atomic_fetch_add(&c->wire->joined, 1) + 1 == size) wire_forget(c->name);
    pthread_mutex_lock(&lock);
    c->before = all;
    all = c;
    pthread_mutex_unlock(&lock);
    *out = c;
    return ncclInProgress;
}

static ncclResult_t joined(struct ncclComm *c) {
    if (c->forever || atomic_load(&c->wire->joined) < c->size) return ncclInProgress;
    for (int a = 0; a < c->size; a++)
        for (int b = 0; b < a; b++)
            if (c->wire->gpu[a] == c->wire->gpu[b]) return ncclInvalidUsage;
    atomic_store(&c->state, READY);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out) {
    enter(c, "ncclCommGetAsyncError", false);
    if (c->ask > 0) {
        c->ask--;
        *out = ncclInProgress;
    } else if (atomic_load(&c->state) == JOINING) {
        *out = joined(c);
    } else {
        hand_over(c);
        *out = c->failed && c->late-- <= 0 ? ncclRemoteError : ncclSuccess;
    }
    leave(c);
    return ncclSuccess;
}

static void end(struct ncclComm *c) {
    while (atomic_load(&c->outstanding)) usleep(200);
    free(c->next);
    c->next = NULL;
    wire_forget(c->name); /* where some have never come */
    wire_leave(c->wire);
    atomic_store(&c->state, GONE);
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    enter(c, "ncclCommFinalize", true);
    c->ask = polls(c);
    leave(c);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    enter(c, "ncclCommDestroy", true);
    end(c);
    leave(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
    enter(c, "ncclCommAbort", false);
    atomic_store(&c->aborted, 1);
    end(c);
    leave(c);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc) {
    static const char *const words[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)rc < sizeof words / sizeof *words ? words[rc] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c) {
    (void)c;
    return "a fault of the fake NCCL";
}
