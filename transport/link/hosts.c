/* Link "hosts": ranks of one host meet in shared memory, ranks of different hosts over TCP. It is a link of each kind
 * in one: near, in which the ranks of this host have numbers of their own, and far, whose control joins all ranks, and
 * whose lanes join those of different hosts that exchange something. Messages by tags pass over far alone, so that one thread waits
 * for them in one place.
 *
 * Exchange. Of its two halves each may be near or far. The far ones are started, which hands the kernel what it takes;
 * the near ones run to their end; then the far ones are ended, both at once. That cannot block for ever: to start a far
 * half may wait for a port, but for no rank (tcp_line.c); a near half waits only for the same half at its peer, which that peer runs before it waits for anything far. So once all ranks
 * are in one step of an algorithm, the near halves end, then all ranks are in the far halves, where nobody waits for
 * order, and these end. By induction over the steps, all steps end.
 *
 * Failure. The far link has the verdict (tcp_health.c), since it joins all ranks. A failure that the near link finds is
 * told to it; the far link's is told to the near one, so that those who wait there wake up; and what callers get is the
 * far one's words, on all ranks of all hosts. */
#include "engine/base/memory.h"
#include "transport/link/board.h"
#include "transport/link/tcp.h"

#include <stdio.h>
#include <string.h>

struct hosts_link {
    struct link link;
    struct link *near;
    struct link *far;
    int host, rank;        /* this rank's host and its number there */
    int near_size, hosts;  /* ranks of this host; hosts */
    int *world;            /* near number -> rank */
    int *leader;           /* the first rank of each host */
    void **near_at[LANES]; /* of a meet */
    _Atomic bool opened;   /* the caller's callbacks may be asked */
};

extern const struct link_ops link_hosts;

static struct hosts_link *hosts_of(struct link *l) {
    return (struct hosts_link *)l;
}

static bool is_near(const struct hosts_link *h, int rank) {
    return h->link.params.roster->of[rank].host == h->host;
}

static int near_number(const struct hosts_link *h, int rank) {
    return h->link.params.roster->of[rank].local;
}

/* ---- failure ---- */

/* A near call's error is the group's: the far link knows its words, or is told them now. Whom the
 * near link has waited for may itself wait for a rank of another host. */
static enum error pass_on(struct hosts_link *h, int lane, enum error err) {
    if (!err) return ERR_NONE;
    char reason[REASON_MAX];
    error_words(reason, sizeof reason);
    return err == ERR_TIMEOUT && h->opened ? tcp_overdue(h->far, lane, reason) : tcp_fail(h->far, err, reason);
}

static void far_failed(void *user, enum error err, const char *reason) {
    struct hosts_link *h = user;
    const struct link_params *p = &h->link.params;
    err = h->near->ops->fail(h->near, err, reason);
    if (p->failed) p->failed(p->user, err, reason);
}

static enum error hosts_fail(struct link *l, enum error err, const char *reason) {
    return tcp_fail(hosts_of(l)->far, err, reason);
}

static enum error hosts_failure(struct link *l) {
    struct hosts_link *h = hosts_of(l);
    TRY(tcp_failure(h->far));
    return pass_on(h, 0, h->near->ops->failure(h->near));
}

/* What the parts ask their user, they ask this one's. */
static void hosts_describe(void *user, int lane, char out[DESCRIBED_MAX]) {
    const struct hosts_link *h = user;
    const struct link_params *p = &h->link.params;
    if (h->opened)
        p->describe(p->user, lane, out);
    else
        snprintf(out, DESCRIBED_MAX, "the group");
}

static enum error disagree_far(void *user, int lane, int peer, const struct call *mine, const struct call *theirs) {
    const struct link_params *p = &((struct hosts_link *)user)->link.params;
    return p->disagree(p->user, lane, peer, mine, theirs);
}

static enum error disagree_near(void *user, int lane, int peer, const struct call *mine, const struct call *theirs) {
    return disagree_far(user, lane, ((struct hosts_link *)user)->world[peer], mine, theirs);
}

/* ---- calls ---- */

static enum error hosts_meet(struct link *l, int lane, const struct call *c, void *mine, void **at) {
    struct hosts_link *h = hosts_of(l);
    void **near_at = h->near_at[lane];
    TRY(hosts_failure(l));
    h->near->patient[lane] = h->link.patient[lane];
    tcp_publish(h->far, lane, c);
    TRY(pass_on(h, lane, h->near->ops->meet(h->near, lane, c, mine, near_at)));
    for (int r = 0; r < l->params.size; r++) at[r] = is_near(h, r) ? near_at[near_number(h, r)] : NULL;
    return ERR_NONE;
}

static enum error hosts_sync_near(struct link *l, int lane) {
    struct hosts_link *h = hosts_of(l);
    return pass_on(h, lane, h->near->ops->sync(h->near, lane));
}

static struct circle hosts_leaders(const struct hosts_link *h) {
    return (struct circle){h->leader, h->hosts, h->host};
}

/* The ranks of each host, then the hosts by their first ranks, then the ranks of each host. */
static enum error hosts_sync(struct link *l, int lane) {
    struct hosts_link *h = hosts_of(l);
    TRY(hosts_sync_near(l, lane));
    if (h->rank == 0) TRY(tcp_gather(h->far, lane, hosts_leaders(h)));
    return hosts_sync_near(l, lane);
}

static enum error hosts_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                 const struct incoming *in) {
    struct hosts_link *h = hosts_of(l);
    bool calls = lane < LANES, out_near = calls && out && is_near(h, out->peer);
    bool in_near = calls && in && is_near(h, in->peer);
    struct outgoing o;
    struct incoming i;
    bool far = (out && !out_near) || (in && !in_near);
    enum error err = ERR_NONE;
    if (calls) h->near->patient[lane] = h->link.patient[lane];
    if (far) TRY(tcp_begin(h->far, lane, label, out_near ? NULL : out, in_near ? NULL : in));
    if (out_near) {
        o = *out;
        o.peer = near_number(h, out->peer);
    }
    if (in_near) {
        i = *in;
        i.peer = near_number(h, in->peer);
    }
    if (out_near || in_near)
        err = pass_on(h, lane, h->near->ops->exchange(h->near, lane, label, out_near ? &o : NULL, in_near ? &i : NULL));
    if (!far) return err;
    return err ? err : tcp_end(h->far, lane);
}

static enum error hosts_alloc(struct link *l, size_t bytes, void **out) {
    struct hosts_link *h = hosts_of(l);
    TRY(pass_on(h, 0, h->near->ops->alloc(h->near, bytes, out)));
    return hosts_sync(l, 0);
}

/* Of the ranks here; the others' deaths are told by the streams. */
static enum error hosts_lost(struct link *l, int lane) {
    struct hosts_link *h = hosts_of(l);
    return pass_on(h, lane, h->near->ops->lost(h->near, lane));
}

static enum error hosts_arrival(struct link *l, int *peer) {
    return tcp_arrival(hosts_of(l)->far, peer);
}

static void hosts_poke(struct link *l) {
    tcp_poke(hosts_of(l)->far);
}

static bool hosts_left(struct link *l, int rank) {
    return tcp_left(hosts_of(l)->far, rank);
}

static void hosts_note(struct link *l, const char *doing, int64_t step) {
    struct hosts_link *h = hosts_of(l);
    h->near->ops->note(h->near, doing, step);
    tcp_note(h->far, doing, step);
}

/* ---- opening and closing ---- */

static enum error count_ranks(struct hosts_link *h) {
    const struct link_params *p = &h->link.params;
    size_t n = (size_t)p->size;
    void *memory;
    TRY(memory_alloc(n * (LANES * sizeof(void *) + 2 * sizeof(int)), &memory));
    for (int i = 0; i < LANES; i++) h->near_at[i] = (void **)memory + (size_t)i * n;
    h->world = (int *)(void *)(h->near_at[0] + LANES * n);
    h->leader = h->world + n;
    const struct seat_of *seat = p->roster->of;
    h->host = seat[p->rank].host;
    h->rank = seat[p->rank].local;
    for (int r = 0; r < p->size; r++) {
        if (seat[r].host == h->host) h->world[h->near_size++] = r;
        if (seat[r].host == h->hosts) h->leader[h->hosts++] = r;
    }
    return ERR_NONE;
}

static enum error check_params(const struct link_params *p) {
    if (!p->port || !p->roster || !p->meeting)
        return FAIL(ERR_CONFIG,
                    "link hosts needs a port of each rank, a roster of all, and a meeting of the ranks of this host");
    if (p->roster->size != p->size)
        return FAIL(ERR_MISMATCH, "a roster of %d ranks for a group of %d", p->roster->size, p->size);
    return ERR_NONE;
}

static enum error open_near(struct hosts_link *h) {
    struct link_params p = h->link.params;
    p.rank = h->rank;
    p.size = h->near_size;
    p.names = h->world;
    p.user = h;
    p.describe = hosts_describe;
    p.disagree = disagree_near;
    p.failed = NULL;
    p.mail = false;
    p.roster = NULL;
    p.port = NULL;
    const struct link_ops *ops = link_find(p.meeting->fd < 0 ? "thread" : "shm");
    return ops->open(&p, &h->near);
}

static enum error open_far(struct hosts_link *h) {
    struct link_params p = h->link.params;
    p.user = h;
    p.describe = hosts_describe;
    p.disagree = disagree_far;
    p.failed = far_failed;
    TRY(tcp_open(&p, &link_hosts, &h->far));
    h->link.guard = h->far->guard;
    if (h->rank == 0) TRY(tcp_measure(h->far, hosts_leaders(h)));
    return ERR_NONE;
}

/* The first rank of the host tells the others what it has measured with those of other hosts. */
static enum error share_measure(struct hosts_link *h) {
    double v[2] = {h->far->alpha, h->far->beta};
    struct call label = {.what = UINT64_MAX};
    struct outgoing out = {.data = v, .bytes = sizeof v};
    struct incoming in = {.bytes = sizeof v, .sink = sink_copy, .ctx = v};
    if (h->rank > 0) TRY(h->near->ops->exchange(h->near, 0, &label, NULL, &in));
    for (out.peer = 1; h->rank == 0 && out.peer < h->near_size; out.peer++)
        TRY(h->near->ops->exchange(h->near, 0, &label, &out, NULL));
    h->link.alpha = v[0];
    h->link.beta = v[1];
    return ERR_NONE;
}

static void set_opened(struct hosts_link *h) {
    h->opened = true;
    tcp_opened(h->far);
}

static void hosts_close(struct link *l) {
    struct hosts_link *h = hosts_of(l);
    if (h->far) tcp_close(h->far);
    if (h->near) h->near->ops->close(h->near);
    memory_free(h->near_at[0]);
    memory_free(h);
}

static enum error hosts_open(const struct link_params *p, struct link **out) {
    void *memory;
    enum error err;
    TRY(check_params(p));
    TRY(memory_alloc(sizeof(struct hosts_link), &memory));
    struct hosts_link *h = memory;
    h->link.ops = &link_hosts;
    h->link.params = *p;
    TRY_GOTO(err, count_ranks(h), failed);
    TRY_GOTO(err, open_near(h), failed);
    TRY_GOTO(err, open_far(h), failed);
    TRY_GOTO(err, share_measure(h), failed);
    set_opened(h);
    *out = &h->link;
    return ERR_NONE;
failed:
    hosts_close(&h->link);
    return err;
}

const struct link_ops link_hosts = {
    .row = &link_rows[COMM_LINK_HOSTS],
    .summary = "shared memory within hosts, TCP between them",
    .lazy = true,
    .open = hosts_open,
    .close = hosts_close,
    .meet = hosts_meet,
    .sync = hosts_sync,
    .sync_near = hosts_sync_near,
    .exchange = hosts_exchange,
    .alloc = hosts_alloc,
    .fail = hosts_fail,
    .failure = hosts_failure,
    .lost = hosts_lost,
    .note = hosts_note,
    .arrival = hosts_arrival,
    .poke = hosts_poke,
    .left = hosts_left,
};
