/* Carrier "nccl": NVIDIA's library, between the GPUs of several processes, on one host or more.
 *
 * One communicator for a group, one thread at a time: calls of both lanes of the group are done one after the other, in
 * the order of the calling thread, which is the same on all ranks. The ranks meet on the host before each call, so NCCL
 * never waits on a GPU for a rank that has not come: that is found out, and told, as on processors. After that the host
 * waits for the GPU with the group's deadline, and looks at what NCCL and the link know of failures.
 *
 * Nothing in NCCL may block the host: communicators are of the kind whose calls return before they are done
 * (ncclInProgress), and are asked until they are. A call that has failed never ends by itself; only ncclCommAbort, on
 * every rank, ends it. A failure of the group reaches every rank, so each does that by itself; the communicator is gone
 * then, and so is the group. */
#include "transport/carrier/carrier.h"

#include <stdio.h>

#ifdef ENGINE_HAVE_NCCL
#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/give_up.h"
#include "transport/carrier/nccl_impl.h"
#include "transport/link/tcp_address.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static struct nccl_carrier *nccl_of(struct carrier *cr) {
    return (struct nccl_carrier *)cr;
}

/* ---- what NCCL says ---- */

static enum error nccl_failed(const struct nccl_carrier *n, ncclResult_t rc, const char *what) {
    bool peer = rc == ncclRemoteError || rc == ncclSystemError;
    const char *last = nccl.GetLastError(NULL);
    return FAIL(peer ? ERR_PEER : ERR_DEVICE, "%s: %s%s%.200s%s%s", what, nccl.GetErrorString(rc),
                last && *last ? " (" : "", last ? last : "", last && *last ? ")" : "",
                n->carrier.group ? "" : "\nset NCCL_DEBUG=INFO to see why");
}

/* NCCL's own state: still at work, or what it ended with. */
static ncclResult_t nccl_state(struct nccl_carrier *n) {
    ncclResult_t state = ncclSuccess, rc = ncclSuccess;
    pthread_mutex_lock(&n->mutex);
    if (n->comm) rc = nccl.CommGetAsyncError(n->comm, &state);
    pthread_mutex_unlock(&n->mutex);
    return rc ? rc : state;
}

/* What the link of a group knows: its failure, and now and then whether a rank is lost. */
static enum error nccl_look(const struct nccl_carrier *n, int64_t now, int64_t *looked) {
    enum { LOOK = 100000000 };
    struct link *link = n->carrier.group ? n->carrier.group->link : NULL;
    if (link) TRY(link->ops->failure(link));
    if (!link || !link->ops->lost || now - *looked <= LOOK) return ERR_NONE;
    *looked = now;
    return link->ops->lost(link, LANE_INLINE);
}

/* Until NCCL has taken what it answered with rc, and the device has come to the mark (NULL: none). Each call is taken by a thread of NCCL's own, in some tens of microseconds; a nap would make that several times as
 * long. */
static enum error nccl_settle(struct nccl_carrier *n, ncclResult_t rc, const char *what,
                              const struct device_mark *end) {
    enum { BRIEF = 1000000 };
    int64_t start = clock_ns(), looked = start;
    if (rc == ncclSuccess) rc = nccl_state(n);
    while (rc == ncclInProgress || (rc == ncclSuccess && end && !n->carrier.runtime->passed(end))) {
        int64_t now = clock_ns();
        TRY(nccl_look(n, now, &looked));
        if (clock_seconds(now - start) > n->timeout)
            return FAIL(ERR_TIMEOUT, "%s has not ended within %g s%s", what, n->timeout,
                        n->carrier.group ? "" : "\nset NCCL_DEBUG=INFO to see what it waits for");
        if (now - start > BRIEF)
            clock_nap(200000);
        else
            sched_yield();
        rc = nccl_state(n);
    }
    return rc ? nccl_failed(n, rc, what) : ERR_NONE;
}

enum error nccl_issue(struct nccl_carrier *n, const struct collective *c, enum device_lane l, const char *what,
                      nccl_fn fn) {
    cudaStream_t stream = n->carrier.runtime->stream(n->carrier.device, l);
    pthread_mutex_lock(&n->mutex);
    bool gone = !n->comm;
    ncclResult_t rc = gone ? ncclSuccess : fn(n, c, stream);
    pthread_mutex_unlock(&n->mutex);
    if (!gone) return nccl_settle(n, rc, what, NULL);
    TRY(c->link->ops->failure(c->link));
    return FAIL(ERR_PEER, "%s: the communicator is gone", what);
}

/* ---- a GPU with several ranks ---- */

/* NCCL refuses two ranks of one host on one GPU. It takes them for ranks of different hosts when
 * they say so, and then for socket's ends: right, and slow. What the user has set stays. */
static void nccl_separate(const struct group *g) {
    static const char *const pairs[][2] = {
        {"NCCL_NET", "Socket"},    {"NCCL_IB_DISABLE", "1"},   {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_P2P_DISABLE", "1"},
        {"NCCL_SHM_DISABLE", "1"}, {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NVLS_ENABLE", "0"},    {"NCCL_ALGO", "Ring"},
        {"NCCL_PROTO", "Simple"},  {"NCCL_MAX_CTAS", "1"},     {"NCCL_RAS_ENABLE", "0"},
    };
    bool hosts = g->params.roster && g->params.roster->hosts > 1;
    char id[32];
    snprintf(id, sizeof id, "engine-rank-%d", g->rank);
    setenv("NCCL_HOSTID", id, 0);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!hosts || strcmp(pairs[i][0], "NCCL_SOCKET_IFNAME") != 0) setenv(pairs[i][0], pairs[i][1], 0);
}

/* What NCCL is to keep to, unless the user has set it. A sum in the switches of NVLink (NVLS) adds in an order of its
 * own, which may be another one the next time. Gives what else is to be told of it. */
static const char *nccl_set_environment(const struct group *g) {
    char name[ADDRESS_MAX], exactly[ADDRESS_MAX + 1];
    if (g->params.interface && address_interface(g->params.interface, name)) {
        snprintf(exactly, sizeof exactly, "=%s", name);
        setenv("NCCL_SOCKET_IFNAME", exactly, 0);
    }
    if (!g->params.repeatable) return "";
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (!strcmp(getenv("NCCL_NVLS_ENABLE"), "0") || g->params.bitwise) return "";
    return "; NCCL_NVLS_ENABLE is set: the same run again may give other bits";
}

/* A number for the GPU, which is the same for two ranks only on the same one: by its bus, since each process may count
 * the GPUs that it sees in its own way. */
static int64_t nccl_gpu_number(const struct group *g) {
    const struct device *d = g->params.device;
    struct device_unit about = {.bus = ""};
    if (d->ops->unit_about) d->ops->unit_about(d->params.unit, &about);
    if (!*about.bus) snprintf(about.bus, sizeof about.bus, "%d", d->params.unit);
    int64_t host = g->params.roster ? g->params.roster->of[g->rank].host : 0;
    return host << 32 | crc32c(0, about.bus, strlen(about.bus));
}

/* Settings are for all ranks or for none. */
static enum error nccl_find_shared(struct group *g, bool *shared) {
    int64_t *gpu = pool_alloc(g->pool, (size_t)g->size * sizeof *gpu);
    if (!gpu) return ERR_MEMORY;
    gpu[g->rank] = nccl_gpu_number(g);
    TRY(group_gather_all(g, gpu, 1));
    *shared = false;
    for (int a = 0; a < g->size; a++)
        for (int b = 0; b < a; b++) *shared = *shared || gpu[a] == gpu[b];
    return ERR_NONE;
}

/* ---- opening and closing ---- */

static enum error nccl_suits(const struct group *g) {
    if (strcmp(g->params.device->ops->name, "cuda") != 0) return FAIL(ERR_DEVICE, "its device is not a GPU of NVIDIA");
    if (!strcmp(g->params.link, "thread")) return FAIL(ERR_DEVICE, "ranks are threads of one process, not processes");
    return nccl_load();
}

static enum error nccl_join(struct nccl_carrier *n, const ncclUniqueId *id, int rank, int size) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    n->carrier.runtime->stream(n->carrier.device,
                               LANE_COMPUTE); /* makes it the calling thread's GPU: NCCL takes that */
    pthread_mutex_lock(&n->mutex);
    ncclResult_t rc = nccl.CommInitRankConfig(&n->comm, size, *id, rank, &config);
    pthread_mutex_unlock(&n->mutex);
    return nccl_settle(n, rc, "ncclCommInitRank", NULL);
}

static enum error nccl_join_group(struct nccl_carrier *n) {
    struct group *g = n->carrier.group;
    ncclUniqueId id = {0};
    ncclResult_t rc = g->rank == 0 ? nccl.GetUniqueId(&id) : ncclSuccess;
    if (rc) return nccl_failed(n, rc, "ncclGetUniqueId");
    TRY(group_broadcast(g, GROUP_INLINE, &id, sizeof id, DTYPE_U8, 0));
    return nccl_join(n, &id, g->rank, g->size);
}

static enum error nccl_open(struct group *g, struct carrier **out, char *why) {
    char version[32];
    bool shared;
    TRY(carrier_create(g, sizeof(struct nccl_carrier), out));
    struct nccl_carrier *n = nccl_of(*out);
    pthread_mutex_init(&n->mutex, NULL);
    n->bitwise = g->params.bitwise;
    n->timeout = g->params.timeout;
    TRY(nccl_find_shared(g, &shared));
    if (shared) nccl_separate(g);
    const char *more = nccl_set_environment(g);
    TRY(nccl_join_group(n));
    nccl_version(version, NULL, 0);
    snprintf(why, 256, "%s%s%s%s", version, n->bitwise ? ", which only moves: sums are the engine's" : "",
             shared ? "; ranks share a GPU, so through sockets (NCCL_HOSTID): right, but slow" : "", more);
    return ERR_NONE;
}

static void nccl_abandon(struct carrier *cr) {
    enum { TO_TELL = 5 };
    struct nccl_carrier *n = nccl_of(cr);
    pthread_mutex_lock(&n->mutex);
    ncclComm_t comm = n->comm;
    n->comm = NULL;
    pthread_mutex_unlock(&n->mutex);
    if (!comm || given_up() || nccl_abort(comm)) return;
    give_up(FAIL(ERR_TIMEOUT, "rank %d: ncclCommAbort does not end: %s", cr->group->rank, error_message()), TO_TELL);
}

/* In peace all ranks come here together; a rank that does not is not waited for long. */
static enum error nccl_finalize(struct nccl_carrier *n) {
    struct group *g = n->carrier.group;
    if (n->timeout > 10) n->timeout = 10;
    TRY(g->link->ops->failure(g->link));
    pthread_mutex_lock(&n->mutex);
    ncclResult_t rc = nccl.CommFinalize(n->comm);
    pthread_mutex_unlock(&n->mutex);
    return nccl_settle(n, rc, "ncclCommFinalize", NULL);
}

static void nccl_close(struct carrier *cr) {
    struct nccl_carrier *n = nccl_of(cr);
    if (n->comm && nccl_finalize(n) == ERR_NONE) {
        ncclResult_t rc = nccl.CommDestroy(n->comm);
        (void)rc; /* all that it has done is done */
        n->comm = NULL;
    }
    nccl_abandon(cr);
    slots_free(cr, &n->slots);
    pthread_mutex_destroy(&n->mutex);
    carrier_free(cr);
}

/* ---- calls ---- */

static enum error nccl_check(struct carrier *cr) {
    ncclResult_t rc = nccl_state(nccl_of(cr));
    bool well = rc == ncclSuccess || rc == ncclInProgress;
    return well ? ERR_NONE : nccl_failed(nccl_of(cr), rc, "NCCL");
}

static enum error nccl_run(struct carrier *cr, struct collective *c, enum device_lane l) {
    TRY(carrier_meet(cr, c));
    collective_count_ideal(c, c->kind);
    return nccl_move(nccl_of(cr), c, l);
}

/* ---- without a group ---- */

static void nccl_software(struct device_software *out) {
    *out = (struct device_software){.name = "NCCL"};
    if (nccl_load() != ERR_NONE)
        snprintf(out->missing, sizeof out->missing, "%s\n%s", error_message(), error_hint());
    else
        nccl_version(out->version, out->where, sizeof out->where);
}

static enum error nccl_try(struct nccl_carrier *n, struct collective *c) {
    const struct carrier *cr = &n->carrier;
    ncclUniqueId id;
    TRY(nccl_settle(n, nccl.GetUniqueId(&id), "ncclGetUniqueId", NULL));
    TRY(nccl_join(n, &id, 0, 1));
    TRY(nccl_move(n, c, LANE_COMPUTE));
    TRY(cr->runtime->mark(cr->device, LANE_COMPUTE, cr->end[LANE_COMPUTE]));
    TRY(nccl_settle(n, ncclSuccess, "ncclAllReduce", cr->end[LANE_COMPUTE]));
    return device_wait(cr->device);
}

/* What hangs on the GPU would keep whoever waits for it, so it is asked, and aborted in the end. */
static enum error nccl_probe(struct device *dev) {
    enum { FLOATS = 1000, SECONDS = 30 };
    struct nccl_carrier n = {.carrier = {.device = dev, .runtime = device_runtime(dev)},
                             .mutex = PTHREAD_MUTEX_INITIALIZER,
                             .timeout = SECONDS};
    struct device_mark **end = &n.carrier.end[LANE_COMPUTE];
    void *there;
    TRY(nccl_load());
    TRY(device_alloc(dev, FLOATS * sizeof(float), &there));
    struct collective c = {.kind = KIND_ALL_REDUCE, .sum = {.type = DTYPE_F32, .count = FLOATS}, .buf = there};
    enum error err = n.carrier.runtime->mark_create(dev, end);
    if (!err) err = nccl_try(&n, &c);
    if (n.comm && !nccl_abort(n.comm) && !err) /* nothing else ends what is under way */
        err = FAIL(ERR_TIMEOUT, "ncclCommAbort does not end");
    if (*end) n.carrier.runtime->mark_free(*end);
    device_free(dev, there);
    return err;
}

#else

static const char missing[] = "this program was built without NCCL";

static enum error nccl_suits(const struct group *g) {
    (void)g;
    return FAIL(ERR_DEVICE, "%s", missing);
}

static void nccl_software(struct device_software *out) {
    *out = (struct device_software){.name = "NCCL"};
    snprintf(out->missing, sizeof out->missing, "%s", missing);
}

static enum error nccl_probe(struct device *dev) {
    (void)dev;
    return FAIL(ERR_DEVICE, "%s", missing);
}
#define nccl_open NULL
#define nccl_close NULL
#define nccl_takes NULL
#define nccl_run NULL
#define nccl_check NULL
#define nccl_abandon NULL
#endif

const struct carrier_ops carrier_nccl = {
    .name = "nccl",
    .summary = "NVIDIA's library, between the GPUs of several processes",
    .software = nccl_software,
    .probe = nccl_probe,
    .sole = true,
    .suits = nccl_suits,
    .open = nccl_open,
    .close = nccl_close,
    .takes = nccl_takes,
    .run = nccl_run,
    .check = nccl_check,
    .abandon = nccl_abandon,
};
