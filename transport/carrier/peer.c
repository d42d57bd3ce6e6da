/* Carrier "peer": ranks are threads of one process, and each copies what it needs straight from the others' devices.
 * Nothing is sent: a rank that needs data reads it, after a mark that its owner has set.
 *
 *     every rank   sets the mark 'ready' on its lane, shows buffer and mark          meet
 *     who needs    follows the others' 'ready', copies, adds; sets 'done'            sync
 *     every rank   follows the 'done' of those that read its buffer                  sync
 *
 * So the host waits for nobody's device: all is in order on the lanes when a call returns. A reduce costs its root
 * (W-1) K bytes of copies and one sum; an all-reduce is a reduce-scatter and an all-gather: 2(W-1)/W K for every rank.
 * Of a long broadcast to several ranks each copies a part of its own from the root, and then the other parts from those
 * that have them: K bytes leave the root, where W-1 copies of all would take its port (W-1) K. Sums are made in the
 * group's order, of up to 16 MB at a time; parts that lie on the same unit (devices cuda:0,0) are read in place.
 *
 * A rank may leave because of a failure while others are about to look at its marks. So the ranks share a hall: who
 * looks says so, who leaves closes the hall first and waits for those that look, and for the copies from its memory
 * that have been asked for. The last sync of a call keeps a rank that leaves in peace from closing it too early. */
#include "transport/carrier/carrier.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* What the others see of a rank, on one lane. */
enum { READY, HALF, DONE, MARKS }; /* HALF: the sums of an all-reduce are there, or a broadcast's part */
struct stall {
    char *buf;
    struct device_mark *marks[MARKS];
};
struct stand {
    struct device *device;
    int unit;
    struct stall stalls[LANES];
    bool gone; /* under the hall's mutex: its marks are no more */
};
struct hall {
    pthread_mutex_t mutex; /* of leaving */
    _Atomic int looking, closed;
    int members;          /* that have not left: under the mutex */
    struct stand stand[]; /* of each rank */
};
struct peer_carrier {
    struct carrier carrier;
    struct hall *hall;
    struct slots slots[LANES];
};

static struct peer_carrier *peer_of(struct carrier *cr) {
    return (struct peer_carrier *)cr;
}

/* ---- the hall ---- */

static enum error peer_suits(const struct group *g) {
    if (!strcmp(g->params.link, "thread")) return ERR_NONE;
    return FAIL(ERR_DEVICE, "devices of different processes (link %s) cannot copy from each other", g->params.link);
}

static enum error hall_create(int size, struct hall **out) {
    TRY_MEMORY(*out = memory_new(sizeof(struct hall) + (size_t)size * sizeof(struct stand)));
    pthread_mutex_init(&(*out)->mutex, NULL);
    (*out)->members = size;
    return ERR_NONE;
}

static enum error hall_take_stand(struct peer_carrier *p) {
    struct carrier *cr = &p->carrier;
    struct stand *s = &p->hall->stand[cr->group->rank];
    s->device = cr->device;
    s->unit = cr->device->params.unit;
    for (int lane = 0; lane < LANES; lane++)
        for (int m = 0; m < MARKS; m++) TRY(cr->runtime->mark_create(cr->device, &s->stalls[lane].marks[m]));
    return ERR_NONE;
}

/* One kind of device knows nothing of another's memory. */
static enum error hall_check_devices(const struct peer_carrier *p) {
    const struct group *g = p->carrier.group;
    for (int r = 0; r < g->size; r++) {
        const struct device *d = p->hall->stand[r].device;
        if (d->ops != p->carrier.device->ops)
            return FAIL(ERR_DEVICE, "rank %d has a device of another kind (%s)", r, d->ops->name);
    }
    return ERR_NONE;
}

static bool hall_look(struct hall *h) {
    atomic_fetch_add(&h->looking, 1);
    if (!atomic_load(&h->closed)) return true;
    atomic_fetch_sub(&h->looking, 1);
    return false;
}

static void hall_look_away(struct hall *h) {
    atomic_fetch_sub(&h->looking, 1);
}

static enum error peer_open(struct group *g, struct carrier **out, char *why) {
    TRY(carrier_create(g, sizeof(struct peer_carrier), out));
    struct peer_carrier *p = peer_of(*out);
    struct hall *made = NULL;
    if (g->rank == 0) TRY(hall_create(g->size, &made));
    p->hall = made;
    int64_t hall = (int64_t)(intptr_t)made;
    TRY(group_broadcast(g, GROUP_INLINE, &hall, 1, DTYPE_I64, 0));
    p->hall = (struct hall *)(intptr_t)hall;
    TRY(hall_take_stand(p));
    TRY(group_barrier(g));
    if (!hall_look(p->hall)) return FAIL(ERR_PEER, "another rank has left");
    enum error err = hall_check_devices(p);
    hall_look_away(p->hall);
    snprintf(why, 256, "each copies what it needs straight from the others' memory");
    return err;
}

/* Nobody begins to look any more. What has been asked for ends by itself: nothing on a device waits
 * for what has not been asked for. */
static void hall_await_readers(struct peer_carrier *p) {
    struct hall *h = p->hall;
    const struct group *g = p->carrier.group;
    while (atomic_load(&h->looking)) sched_yield();
    for (int r = 0; r < g->size; r++)
        for (int lane = 0; lane < LANES && r != g->rank; lane++) {
            const struct device_mark *done = h->stand[r].stalls[lane].marks[DONE];
            while (!h->stand[r].gone && done && !p->carrier.runtime->passed(done)) sched_yield();
        }
}

static void hall_free_stand(struct peer_carrier *p) {
    const struct device_runtime *runtime = p->carrier.runtime;
    struct stand *s = &p->hall->stand[p->carrier.group->rank];
    for (int lane = 0; lane < LANES; lane++) {
        enum error err = runtime->wait(p->carrier.device, lane == LANE_COMM ? LANE_EXCHANGE : LANE_COMPUTE);
        (void)err; /* was reported before, or nobody needs it */
        for (int m = 0; m < MARKS; m++)
            if (s->stalls[lane].marks[m]) runtime->mark_free(s->stalls[lane].marks[m]);
        slots_free(&p->carrier, &p->slots[lane]);
    }
    s->gone = true;
}

static void hall_leave(struct peer_carrier *p) {
    struct hall *h = p->hall;
    pthread_mutex_lock(&h->mutex);
    atomic_store(&h->closed, 1);
    hall_await_readers(p);
    hall_free_stand(p);
    bool last = --h->members == 0;
    pthread_mutex_unlock(&h->mutex);
    if (!last) return;
    pthread_mutex_destroy(&h->mutex);
    memory_free(h);
}

static void peer_close(struct carrier *cr) {
    if (peer_of(cr)->hall) hall_leave(peer_of(cr));
    carrier_free(cr);
}

/* ---- what a rank does while it looks ---- */

struct call_of_peer {
    struct peer_carrier *p;
    struct collective *c;
    enum device_lane l;
    int64_t piece; /* elements that are added at once */
};

static const struct stand *peer_stand(const struct call_of_peer *k, int rank) {
    return &k->p->hall->stand[rank];
}

static const struct stall *peer_stall(const struct call_of_peer *k, int rank) {
    return &peer_stand(k, rank)->stalls[k->c->lane];
}

static enum error peer_follow(const struct call_of_peer *k, const struct device_mark *m) {
    return k->p->carrier.runtime->follow(k->p->carrier.device, k->l, m);
}

static enum error peer_mark(const struct call_of_peer *k, struct device_mark *m) {
    return k->p->carrier.runtime->mark(k->p->carrier.device, k->l, m);
}

static enum error peer_copy(const struct call_of_peer *k, int from, void *to, int64_t lo, int64_t hi) {
    const struct carrier *cr = &k->p->carrier;
    if (hi <= lo) return ERR_NONE;
    return cr->runtime->copy(cr->device, k->l, to, peer_stand(k, from)->device,
                             element(k->c, peer_stall(k, from)->buf, lo), bytes_of(k->c, hi - lo));
}

/* Elements [lo, hi) of term i: where they lie, or copied to a slot. */
static enum error peer_find_term(const struct call_of_peer *k, int i, int64_t lo, int64_t hi, const float **out) {
    const struct band *b = k->c->band;
    int rank = b->rank[i];
    *out = (const float *)(const void *)term(k->c, b, i, peer_stall(k, rank)->buf, lo);
    if (peer_stand(k, rank)->unit == peer_stand(k, k->c->rank)->unit) return ERR_NONE;
    char *slot = (char *)k->p->slots[k->c->lane].memory + bytes_of(k->c, i * k->piece);
    int64_t skip = b->piece[i] * k->c->apart;
    *out = (const float *)(const void *)slot;
    return peer_copy(k, rank, slot, skip + lo, skip + hi);
}

/* Adds elements [lo, hi) of all that give, to this rank's buffer. */
static enum error peer_add(const struct call_of_peer *k, int64_t lo, int64_t hi) {
    struct collective *c = k->c;
    const struct band *b = c->band;
    const float **in = (const float **)(void *)c->lists->in;
    for (int i = 0; i < b->n; i++)
        if (hi > lo) TRY(peer_follow(k, peer_stall(k, b->rank[i])->marks[READY]));
    for (int64_t at = lo; at < hi; at += k->piece) {
        int64_t end = hi - at < k->piece ? hi : at + k->piece;
        for (int i = 0; i < b->n; i++) TRY(peer_find_term(k, i, at, end, &in[i]));
        TRY(carrier_sum(&k->p->carrier, k->l, c, (struct element_range){at, end}, in,
                        (float *)(void *)element(c, c->buf, at)));
    }
    return ERR_NONE;
}

/* Copies from rank r, after that mark. */
static enum error peer_fetch_from(const struct call_of_peer *k, int r, struct element_range part, int mark) {
    if (part.hi <= part.lo) return ERR_NONE;
    TRY(peer_follow(k, peer_stall(k, r)->marks[mark]));
    return peer_copy(k, r, element(k->c, k->c->buf, part.lo), part.lo, part.hi);
}

/* Copies what the others have for this rank. */
static enum error peer_fetch(const struct call_of_peer *k, enum kind kind, int mark) {
    const struct collective *c = k->c;
    for (int i = 1; i < c->size; i++) { /* not all from rank 0 at once */
        int r = (c->rank + i) % c->size;
        TRY(peer_fetch_from(k, r, collective_range(c, kind, r, c->rank), mark));
    }
    return ERR_NONE;
}

/* ---- a broadcast in parts ---- */

static bool peer_spreads(const struct collective *c) {
    enum { LONG = 256 << 10 };
    return c->kind == KIND_BROADCAST && c->size > 2 && bytes_of(c, c->sum.count) >= LONG;
}

/* What rank r copies from the root: the ranks after the root have the parts, in their order. */
static struct element_range peer_spread_part(const struct collective *c, int r) {
    int64_t line = ALIGNMENT / (int64_t)dtype_size(c->sum.type), lines = c->sum.count / line;
    int i = (r - c->root + c->size) % c->size - 1, last = c->size - 2;
    if (i < 0) return (struct element_range){0, 0};
    return (struct element_range){order_chunk(lines, last + 1, i) * line,
                                  i == last ? c->sum.count : order_chunk(lines, last + 1, i + 1) * line};
}

static enum error peer_spread_others(const struct call_of_peer *k) {
    const struct collective *c = k->c;
    for (int i = 1; i < c->size && c->rank != c->root; i++) {
        int r = (c->rank + i) % c->size;
        TRY(peer_fetch_from(k, r, peer_spread_part(c, r), HALF));
    }
    return ERR_NONE;
}

static void peer_count(struct collective *c) {
    const struct element_range own = peer_spread_part(c, c->rank);
    bool root = c->rank == c->root;
    if (peer_spreads(c))
        collective_count(c, root ? c->sum.count : (c->size - 2) * (own.hi - own.lo), root ? 0 : c->sum.count);
    else
        collective_count_ideal(c, c->kind);
}

/* ---- what others read ---- */

static bool peer_reads(const struct collective *c, int from, int to) {
    if (peer_spreads(c)) return from != to && to != c->root;
    return collective_flows(c, c->kind, from, to);
}

/* What is asked of this lane next may change the buffer. */
static enum error peer_follow_readers(const struct call_of_peer *k) {
    for (int r = 0; r < k->c->size; r++)
        if (peer_reads(k->c, k->c->rank, r)) TRY(peer_follow(k, peer_stall(k, r)->marks[DONE]));
    return ERR_NONE;
}

/* ---- a call ---- */

typedef enum error (*looking_fn)(const struct call_of_peer *k);

/* The mark tells whoever leaves also what has been asked for in vain. */
static enum error peer_while_looking(const struct call_of_peer *k, looking_fn fn, struct device_mark *done) {
    struct link *link = k->c->link;
    if (!hall_look(k->p->hall)) {
        TRY(link->ops->failure(link));
        return FAIL(ERR_PEER, "another rank has left");
    }
    enum error err = fn(k), marked = done ? peer_mark(k, done) : ERR_NONE;
    hall_look_away(k->p->hall);
    return err ? err : marked;
}

static enum error peer_mark_half(const struct call_of_peer *k) {
    return peer_mark(k, k->p->hall->stand[k->c->rank].stalls[k->c->lane].marks[HALF]);
}

static enum error peer_first_half(const struct call_of_peer *k) {
    const struct collective *c = k->c;
    const struct element_range own = collective_range(c, c->kind, c->rank, c->rank);
    if (peer_spreads(c)) {
        TRY(peer_fetch_from(k, c->root, peer_spread_part(c, c->rank), READY));
        return peer_mark_half(k);
    }
    if (!kind_adds(c->kind)) return peer_fetch(k, c->kind, READY);
    TRY(peer_add(k, own.lo, own.hi));
    return c->kind == KIND_ALL_REDUCE ? peer_mark_half(k) : ERR_NONE;
}

/* The other half of an all_reduce, or of a broadcast in parts. */
static enum error peer_second_half(const struct call_of_peer *k) {
    return peer_spreads(k->c) ? peer_spread_others(k) : peer_fetch(k, KIND_ALL_GATHER, HALF);
}

static bool peer_takes(const struct carrier *cr, const struct collective *c) {
    (void)cr;
    if (kind_adds(c->kind)) return c->sum.type == DTYPE_F32 && c->sum.op == REDOP_SUM;
    return c->kind == KIND_BROADCAST || c->kind == KIND_ALL_GATHER;
}

/* Slots for what comes from other units; before the call, since it may wait. */
static enum error peer_reserve(struct call_of_peer *k) {
    enum { MOST = SLOT_PIECE / sizeof(float), LINE_FLOATS = 64 };
    struct peer_carrier *p = k->p;
    const struct element_range own = collective_range(k->c, k->c->kind, k->c->rank, k->c->rank);
    int64_t n = kind_adds(k->c->kind) ? own.hi - own.lo : 0;
    bool here = true;
    for (int r = 0; r < k->c->size; r++) here = here && peer_stand(k, r)->unit == peer_stand(k, k->c->rank)->unit;
    k->piece = n < MOST ? (n + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS : MOST;
    if (n == 0 || here) return ERR_NONE;
    return slots_reserve(&p->carrier, k->l, &p->slots[k->c->lane], bytes_of(k->c, k->c->band->n * k->piece));
}

static enum error peer_run(struct carrier *cr, struct collective *c, enum device_lane l) {
    struct call_of_peer k = {.p = peer_of(cr), .c = c, .l = l};
    const struct link_ops *link = c->link->ops;
    struct stall *mine = &k.p->hall->stand[c->rank].stalls[c->lane];
    TRY(peer_reserve(&k));
    mine->buf = c->buf;
    TRY(peer_mark(&k, mine->marks[READY]));
    TRY(carrier_meet(cr, c));
    peer_count(c);
    TRY(peer_while_looking(&k, peer_first_half, mine->marks[DONE]));
    TRY(link->sync(c->link, c->lane));
    if (c->kind == KIND_ALL_REDUCE || peer_spreads(c)) {
        TRY(peer_while_looking(&k, peer_second_half, mine->marks[DONE]));
        TRY(link->sync(c->link, c->lane));
    }
    TRY(peer_while_looking(&k, peer_follow_readers, NULL));
    return link->sync(c->link, c->lane);
}

const struct carrier_ops carrier_peer = {
    .name = "peer",
    .summary = "devices of one process copy from each other",
    .suits = peer_suits,
    .open = peer_open,
    .close = peer_close,
    .takes = peer_takes,
    .run = peer_run,
};
