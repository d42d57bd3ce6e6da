/* Link "hosts": ranks of one host meet in shared memory, ranks of different hosts over TCP. It is the link over TCP
 * (tcp_impl.h), whose control joins all ranks, and whose lanes join those of different hosts that exchange something;
 * within it is a link of the ranks of this host, in which they have numbers of their own. Messages by tags pass over TCP
 * alone, so that one thread waits for them in one place.
 *
 * Exchange. Of its two halves each may be inside the host or between hosts. Those between hosts are started, which
 * hands the kernel what it takes; those inside run to their end; then the former are ended, both at once. That cannot
 * block for ever: to start one may wait for a port, but for no rank (tcp_line.c); one inside waits only for the same
 * half at its peer, which that peer runs before it waits for anything between hosts. So once all ranks are in one step
 * of an algorithm, the halves inside end, then all ranks are in those between hosts, where nobody waits for order, and
 * these end. By induction over the steps, all steps end.
 *
 * Failure. Control has the verdict (tcp_health.c), since it joins all ranks. A failure that the link inside finds is
 * told to it; the verdict is told to the link inside, so that those who wait there wake up; and what callers get is the
 * verdict's words, on all ranks of all hosts. */
#include "engine/base/memory.h"
#include "transport/link/board.h"
#include "transport/link/tcp_impl.h"

/* What the link over TCP carries along for this one. */
struct hosts {
    struct tcp *tcp; /* NULL while only the link inside is open */
    struct link *inside;
    int host, local;  /* this rank's host and its number there */
    int ranks, hosts; /* of this host; in all */
    int *world;       /* number inside -> rank */
    int *leader;      /* the first rank of each host */
};

extern const struct link_ops link_hosts;

static struct hosts *hosts_of(struct link *l) {
    return tcp_of(l)->carried;
}

static bool rank_is_inside(const struct link *l, int rank) {
    const struct seat_of *seat = l->params.roster->of;
    return seat[rank].host == seat[l->params.rank].host;
}

/* ---- failure ---- */

/* An error of the link inside is the group's: control knows its words, or is told them now. Whom the ranks inside have
 * waited for may itself wait for a rank of another host. */
static enum error inside_pass_on(struct link *l, int lane, enum error err) {
    if (!err) return ERR_NONE;
    char reason[REASON_MAX];
    error_words(reason, sizeof reason);
    return err == ERR_TIMEOUT && tcp_of(l)->opened ? tcp_overdue(l, lane, reason) : tcp_fail(l, err, reason);
}

static enum error hosts_failure(struct link *l) {
    struct link *inside = hosts_of(l)->inside;
    TRY(tcp_failure(l));
    return inside_pass_on(l, 0, inside->ops->failure(inside));
}

/* What the link inside asks its user, it asks this one's. */
static void inside_describe(void *user, int lane, char out[DESCRIBED_MAX]) {
    tcp_describe(((struct hosts *)user)->tcp, lane, out);
}

static enum error inside_disagree(void *user, int lane, int peer, const struct call *mine, const struct call *theirs) {
    const struct hosts *h = user;
    const struct link_params *p = &h->tcp->link.params;
    return p->disagree(p->user, lane, h->world[peer], mine, theirs);
}

/* ---- calls ---- */

static enum error hosts_meet(struct link *l, int lane, const struct call *c, void *mine, void **at) {
    struct hosts *h = hosts_of(l);
    TRY(hosts_failure(l));
    h->inside->patient[lane] = l->patient[lane];
    tcp_publish(l, lane, c);
    TRY(inside_pass_on(l, lane, h->inside->ops->meet(h->inside, lane, c, mine, at)));
    for (int r = l->params.size - 1, local = h->ranks; r >= 0; r--) at[r] = rank_is_inside(l, r) ? at[--local] : NULL;
    return ERR_NONE;
}

static enum error hosts_sync_near(struct link *l, int lane) {
    struct link *inside = hosts_of(l)->inside;
    return inside_pass_on(l, lane, inside->ops->sync(inside, lane));
}

static struct circle hosts_leaders(const struct hosts *h) {
    return (struct circle){h->leader, h->hosts, h->host};
}

/* The ranks of each host, then the hosts by their first ranks, then the ranks of each host. */
static enum error hosts_sync(struct link *l, int lane) {
    const struct hosts *h = hosts_of(l);
    TRY(hosts_sync_near(l, lane));
    if (h->local == 0) TRY(tcp_gather(l, lane, hosts_leaders(h)));
    return hosts_sync_near(l, lane);
}

static enum error hosts_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                 const struct incoming *in) {
    const struct seat_of *seat = l->params.roster->of;
    struct link *inside = hosts_of(l)->inside;
    bool calls = lane < LANES, out_inside = calls && out && rank_is_inside(l, out->peer);
    bool in_inside = calls && in && rank_is_inside(l, in->peer), between = (out && !out_inside) || (in && !in_inside);
    struct outgoing o = out_inside ? *out : (struct outgoing){0};
    struct incoming i = in_inside ? *in : (struct incoming){0};
    enum error err = ERR_NONE;
    if (between) TRY(tcp_begin(l, lane, label, out_inside ? NULL : out, in_inside ? NULL : in));
    o.peer = seat[o.peer].local;
    i.peer = seat[i.peer].local;
    if (out_inside || in_inside) {
        inside->patient[lane] = l->patient[lane];
        err = inside_pass_on(l, lane,
                             inside->ops->exchange(inside, lane, label, out_inside ? &o : NULL, in_inside ? &i : NULL));
    }
    return err || !between ? err : tcp_end(l, lane);
}

static enum error hosts_alloc(struct link *l, size_t bytes, bool sparse, void **out) {
    struct link *inside = hosts_of(l)->inside;
    return inside_pass_on(l, 0, inside->ops->alloc(inside, bytes, sparse, out));
}

/* Looks after the ranks of this host; the streams report the deaths of others. */
static enum error hosts_lost(struct link *l, int lane) {
    struct link *inside = hosts_of(l)->inside;
    return inside_pass_on(l, lane, inside->ops->lost(inside, lane));
}

static void hosts_note(struct link *l, const char *doing, int64_t step) {
    struct link *inside = hosts_of(l)->inside;
    inside->ops->note(inside, doing, step);
    tcp_note(l, doing, step);
}

/* ---- opening and closing ---- */

static enum error hosts_create(const struct link_params *p, struct hosts **out) {
    size_t n = (size_t)p->size;
    struct hosts *h = memory_new(sizeof *h + 2 * n * sizeof(int));
    if (!h) return ERR_MEMORY;
    h->world = (int *)(h + 1);
    h->leader = h->world + n;
    const struct seat_of *seat = p->roster->of;
    h->host = seat[p->rank].host;
    h->local = seat[p->rank].local;
    for (int r = 0; r < p->size; r++) {
        if (seat[r].host == h->host) h->world[h->ranks++] = r;
        if (seat[r].host == h->hosts) h->leader[h->hosts++] = r;
    }
    *out = h;
    return ERR_NONE;
}

static enum error inside_open(struct hosts *h, const struct link_params *all) {
    struct link_params p = {.rank = h->local,
                            .size = h->ranks,
                            .timeout = all->timeout,
                            .meeting = all->meeting,
                            .names = h->world,
                            .user = h,
                            .describe = inside_describe,
                            .disagree = inside_disagree};
    return link_find(p.meeting->fd < 0 ? "thread" : "shm")->open(&p, &h->inside);
}

/* The first rank of the host tells the others what it has measured with those of other hosts. */
static enum error hosts_share_measure(struct link *l) {
    const struct hosts *h = hosts_of(l);
    const struct link_ops *ops = h->inside->ops;
    struct call label = {.what = UINT64_MAX};
    if (h->local == 0) TRY(tcp_measure(l, hosts_leaders(h)));
    double v[2] = {l->alpha, l->beta};
    struct outgoing out = {.data = v, .bytes = sizeof v};
    struct incoming in = {.bytes = sizeof v, .sink = sink_copy, .ctx = v};
    if (h->local > 0) TRY(ops->exchange(h->inside, 0, &label, NULL, &in));
    for (out.peer = 1; h->local == 0 && out.peer < h->ranks; out.peer++)
        TRY(ops->exchange(h->inside, 0, &label, &out, NULL));
    l->alpha = v[0];
    l->beta = v[1];
    tcp_of(l)->opened = true;
    return ERR_NONE;
}

static void hosts_free(struct hosts *h) {
    if (h->tcp) tcp_close(&h->tcp->link);
    if (h->inside) h->inside->ops->close(h->inside);
    memory_free(h);
}

static void hosts_close(struct link *l) {
    hosts_free(hosts_of(l));
}

static enum error hosts_open(const struct link_params *p, struct link **out) {
    struct hosts *h;
    struct link *l;
    enum error err;
    if (!p->meeting) return FAIL(ERR_CONFIG, "link hosts needs a meeting of the ranks of this host");
    TRY(tcp_check_params(p));
    TRY(hosts_create(p, &h));
    TRY_GOTO(err, inside_open(h, p), failed);
    TRY_GOTO(err, tcp_open(p, &link_hosts, h->inside, &l), failed);
    h->tcp = tcp_of(l);
    h->tcp->carried = h;
    TRY_GOTO(err, inside_pass_on(l, 0, hosts_share_measure(l)), failed);
    *out = l;
    return ERR_NONE;
failed:
    hosts_free(h);
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
    .fail = tcp_fail,
    .failure = hosts_failure,
    .lost = hosts_lost,
    .note = hosts_note,
    .arrival = tcp_arrival,
    .poke = tcp_poke,
    .left = tcp_left,
};
