/* The group: opens and closes it, and turns each public call into a struct collective for the lane it is meant for. */
#include "transport/group.h"
#include "transport/carrier/carrier.h"
#include "transport/core.h"
#include "transport/link/meeting.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory of this rank's own ---- */

struct held {
    void *memory;
    struct held *next;
};

/* Where memory of this rank's own lies: with a carrier its accelerator, if it has one, else the host (NULL). */
static struct device *held_device(const struct group *g) {
    return g->params.carrier ? g->params.device : NULL;
}

static enum error held_add(struct group *g, size_t bytes, bool sparse, void **out) {
    struct device *d = held_device(g);
    struct held *h = pool_alloc(g->pool, sizeof *h);
    enum error err = !h ? ERR_MEMORY : d || !sparse ? device_alloc(d, bytes, out) : memory_alloc_sparse(bytes, out);
    if (err) return group_fail_own(g, err);
    *h = (struct held){*out, g->held};
    g->held = h;
    return ERR_NONE;
}

static void held_free(const struct group *g) {
    for (const struct held *h = g->held; h; h = h->next) device_free(held_device(g), h->memory);
}

/* ---- opening and closing ---- */

/* Whether a rank has more than one term in sums of what lies apart. */
static bool group_has_several(const struct group *g) {
    return g->bands.pieces.n > g->bands.given.n;
}

static enum error group_find_algo(struct group *g) {
    const char *name = g->params.algorithm;
    enum order order = g->params.order;
    g->params.algorithm = "auto";
    if (!strcmp(name, "auto")) return ERR_NONE;
    TRY(algo_named(name, g->params.digest, &g->algo));
    const struct algo_ops *a = g->algo;
    TRY(algo_prepare(a, g->size));
    g->params.algorithm = a->name;
    const struct link_ops *link = link_find(g->params.link);
    if (a->native && link && !link->native)
        return FAIL(ERR_CONFIG,
                    "algorithm %s is done by the link, but link %s has no collectives of its own\n"
                    "comm.link: mpi, or comm.algorithm: auto",
                    name, link->row->name);
    if (!a->orders[order])
        return FAIL(ERR_CONFIG, "algorithm %s cannot add in %s order\ncomm.order: %s, or comm.algorithm: direct", name,
                    order == ORDER_RING ? "ring" : "tree", order == ORDER_RING ? "tree" : "ring");
    if (a->hosts_alike && !g->places.locals)
        return FAIL(ERR_CONFIG,
                    "algorithm %s: %d ranks on %d hosts\n"
                    "it needs the same number of ranks on every host, a power of two; or comm.algorithm: direct",
                    name, g->size, g->places.hosts);
    if (!algo_suits(a, order, &g->places, group_has_several(g)))
        return FAIL(
            ERR_CONFIG, "algorithm %s: %d ranks share a tree of %d leaves\nit needs %s; or comm.algorithm: direct",
            name, g->size, g->params.leaves ? g->params.leaves : g->size,
            a->even ? "a power of two of ranks" : "one subtree for each, as batch.shards gives to a power of two");
    return ERR_NONE;
}

static enum error group_check_params(const struct group_params *p) {
    if (p->size < 1 || p->size > RANKS_MOST || p->rank < 0 || p->rank >= p->size)
        return FAIL(ERR_CONFIG, "rank %d of %d\nfrom 1 to %d ranks are possible", p->rank, p->size, RANKS_MOST);
    if (p->idle < 0 || p->idle >= p->size) return FAIL(ERR_CONFIG, "%d of %d ranks give nothing", p->idle, p->size);
    if (p->leaves && (!is_power_of_two(p->leaves) || p->leaves > LEAVES_MAX || p->leaves < p->size - p->idle))
        return FAIL(ERR_BUG, "a tree of %d leaves for %d ranks", p->leaves, p->size - p->idle);
    if (!(p->timeout > 0) || isinf(p->timeout)) return FAIL(ERR_CONFIG, "a timeout of %g s", p->timeout);
    return ERR_NONE;
}

static enum error group_check_roster(const struct group_params *p, struct pool *pool) {
    if (!p->roster) return ERR_NONE;
    if (p->roster->size != p->size || p->roster->hosts < 1 || p->roster->hosts > p->size)
        return FAIL(ERR_BUG, "a roster of %d ranks on %d hosts for a group of %d", p->roster->size, p->roster->hosts,
                    p->size);
    int *locals = pool_alloc(pool, (size_t)p->roster->hosts * sizeof *locals);
    if (!locals) return ERR_MEMORY;
    for (int r = 0; r < p->size; r++) {
        const struct seat_of *s = &p->roster->of[r];
        if (s->host < 0 || s->host >= p->roster->hosts || s->local != locals[s->host]++)
            return FAIL(ERR_BUG, "rank %d as local rank %d of host %d of %d", r, s->local, s->host, p->roster->hosts);
    }
    return ERR_NONE;
}

static enum error group_open_link(struct group *g) {
    const struct group_params *p = &g->params;
    const struct link_ops *ops = link_find(p->link);
    const struct link_params lp = {.rank = p->rank,
                                   .size = p->size,
                                   .timeout = p->timeout,
                                   .heartbeat = p->heartbeat > 0 ? p->heartbeat : 10,
                                   .meeting = p->meeting,
                                   .roster = p->roster,
                                   .port = p->port,
                                   .mail = p->mail,
                                   .secure = p->secure,
                                   .group = p->id,
                                   .user = g,
                                   .describe = call_describe,
                                   .disagree = call_disagree};
    if (!ops) return FAIL(ERR_CONFIG, "no link '%s'", p->link);
    g->params.link = ops->row->name;
    TRY(ops->open(&lp, &g->link));
    return emulation_on(&p->emulate) ? link_emulate(g->link, &p->emulate) : ERR_NONE;
}

/* What "auto" means: where ranks reach each other's memory, direct moves a ring's bytes in two steps. */
static const struct algo_ops *group_automatic(const struct group *g) {
    return g->link->ops->slot ? algo_find("direct") : NULL;
}

/* What calls are run with, known from the link. */
static void group_survey(struct group *g) {
    const struct link *l = g->link;
    g->terrain = terrain_plan(&g->places, l->alpha, l->beta, l->ops->slot != NULL,
                              l->ops->sync_near && !emulation_on(&g->params.emulate));
    if (!g->algo) g->algo = group_automatic(g);
    algo_choices(&g->terrain, g->params.order, group_has_several(g), g->choices);
}

static enum error group_open_lanes(struct group *g) {
    int pieces = g->bands.pieces.n, terms = pieces > g->size ? pieces : g->size;
    for (int i = 0; i < LANES; i++) {
        void *scratch;
        TRY(memory_reserve((size_t)terms * g->terrain.part_bytes, &scratch));
        g->lanes[i].scratch = scratch;
        TRY(lane_lists_create(&g->lanes[i].lists, g->size, terms, g->pool));
    }
    return ERR_NONE;
}

/* The first call: everybody is there and wants the same. */
static enum error group_meet(struct group *g) {
    struct collective c = {.kind = KIND_OPEN, .lane = LANE_INLINE};
    return call_run(g, &c, true);
}

static int64_t proof_term(int rank, int64_t i) {
    return (rank + 1) * (i + 3) % 1009;
}

/* A plug-in's sums are believed once: whole numbers, of which no rank has a round share. */
static enum error group_prove(struct group *g) {
    int64_t n = 17 * (int64_t)g->size + 1, wrong = -1, sum = 0;
    if (!g->algo || !g->algo->mark || g->size == 1) return ERR_NONE;
    int64_t *x = memory_new((size_t)n * sizeof sum);
    if (!x) return ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) x[i] = proof_term(g->rank, i);
    enum error err = group_all_reduce(g, GROUP_INLINE, x, n, DTYPE_I64, REDOP_SUM);
    for (int64_t i = n - 1; i >= 0 && err == ERR_NONE; i--) {
        int64_t want = 0;
        for (int r = 0; r < g->size; r++) want += proof_term(r, i);
        if (x[i] != want) wrong = i, sum = want;
    }
    if (wrong >= 0)
        err = group_fail(g, ERR_BUG,
                         "plug-in '%s' adds wrongly: element %lld of %lld is %lld on rank %d of %d, and the sum is "
                         "%lld\nengine check tells more",
                         g->algo->name, (long long)wrong, (long long)n, (long long)x[wrong], g->rank, g->size,
                         (long long)sum);
    memory_free(x);
    return err;
}

/* Those of a subgroup's ranks are lent while it opens. */
static enum error group_take_numbers(struct group *g) {
    size_t bytes = (size_t)g->size * sizeof *g->params.emulate.number;
    if (!g->params.emulate.number) return ERR_NONE;
    int *own = pool_alloc(g->pool, bytes);
    if (!own) return ERR_MEMORY;
    memcpy(own, g->params.emulate.number, bytes);
    g->params.emulate.number = own;
    return ERR_NONE;
}

enum error group_open(const struct group_params *p, struct group **out) {
    const struct placing placing = {{p->order, p->leaves, p->idle}, p->rank, p->size, p->roster};
    enum error err;
    TRY(group_check_params(p));
    struct group *g = memory_new(sizeof *g);
    if (!g) return ERR_MEMORY;
    g->rank = p->rank;
    g->size = p->size;
    g->params = *p;
    g->finished.group = g;
    snprintf(g->name, sizeof g->name, "rank %d", p->rank);
    TRY_GOTO(err, pool_create(&g->pool), failed);
    TRY_GOTO(err, group_take_numbers(g), failed);
    TRY_GOTO(err, group_check_roster(p, g->pool), failed);
    TRY_GOTO(err, places_plan(&g->places, &g->bands, &placing, g->pool), failed);
    TRY_GOTO(err, group_find_algo(g), failed);
    TRY_GOTO(err, group_open_link(g), failed);
    group_survey(g);
    TRY_GOTO(err, group_open_lanes(g), failed);
    TRY_GOTO(err, group_meet(g), failed);
    TRY_GOTO(err, carrier_open(g), failed);
    if (p->mail && p->size > 1) TRY_GOTO(err, mail_open(g), failed);
    TRY_GOTO(err, group_prove(g), failed);
    *out = g;
    return ERR_NONE;
failed:
    group_close(g);
    return err;
}

void group_close(struct group *g) {
    if (!g) return;
    queue_stop(g);
    mail_close(g);
    carrier_close(g);
    if (g->link) g->link->ops->close(g->link);
    held_free(g);
    for (int i = 0; i < LANES; i++) memory_free(g->lanes[i].scratch);
    meeting_free(g->meeting);
    memory_free(g->roster);
    pool_free(g->pool);
    memory_free(g);
}

int group_rank(const struct group *g) {
    return g->rank;
}

int group_size(const struct group *g) {
    return g->size;
}

int group_position(const struct group *g) {
    return g->places.place[g->rank];
}

const char *group_guard(const struct group *g) {
    return g->link->guard;
}

const char *group_choice(const struct group *g, size_t bytes, const char **why) {
    const struct algo_ops *algo =
        g->algo ? g->algo : algo_cheapest(&g->terrain, g->params.order, KIND_ALL_REDUCE, group_has_several(g), bytes);
    if (g->size == 1)
        *why = "one rank has nothing to exchange";
    else if (!g->algo)
        *why = g->choices;
    else if (algo->small_at_once && link_stages(g->link, g->size, bytes))
        *why = "so small that each rank sums all of it after one exchange";
    else
        *why = algo->why;
    return algo->name;
}

/* On one host hierarchical is direct. */
int group_others(const struct group *g, const char **names, int most) {
    int all, n = 0;
    const struct algo_ops *const *list = algo_list(&all);
    for (int i = 0; i < all && n < most && g->size > 1; i++) {
        const struct algo_ops *a = list[i];
        bool near = a->hosts_alike && g->places.hosts == 1;
        if (a->native || a == g->algo || near) continue;
        if (algo_suits(a, g->params.order, &g->places, group_has_several(g))) names[n++] = a->name;
    }
    return n;
}

void group_use(struct group *g, const char *algorithm) {
    g->algo = strcmp(algorithm, "auto") ? algo_find(algorithm) : group_automatic(g);
}

/* ---- memory that peers can read ---- */

static enum error memory_of_group(struct group *g, size_t bytes, bool sparse, void **out) {
    struct collective c = {.kind = KIND_ALLOC, .lane = LANE_INLINE, .sum = {.type = DTYPE_U8, .count = (int64_t)bytes}};
    TRY(call_check(g, &c));
    TRY(call_run(g, &c, true));
    if (g->params.carrier || !g->link->ops->alloc) return held_add(g, bytes, sparse, out);
    return g->link->ops->alloc(g->link, bytes, sparse, out);
}

enum error group_alloc(struct group *g, size_t bytes, void **out) {
    return memory_of_group(g, bytes, false, out);
}

static enum error allocator_alloc(void *ctx, size_t bytes, void **out) {
    return group_alloc(ctx, bytes, out);
}

static enum error allocator_alloc_sparse(void *ctx, size_t bytes, void **out) {
    return memory_of_group(ctx, bytes, true, out);
}

static void allocator_free(void *ctx, void *p) {
    (void)ctx, (void)p; /* peers may still read it; it goes with the meeting, or the group */
}

struct allocator group_allocator(struct group *g, bool sparse) {
    return (struct allocator){
        .alloc = sparse ? allocator_alloc_sparse : allocator_alloc, .free = allocator_free, .ctx = g};
}

/* ---- calls ---- */

static enum error group_start(struct group *g, struct dispatch how, struct collective *c) {
    c->lane = (int)how.lane;
    c->sum.order = g->params.order;
    c->sum.ranks = g->size - c->sum.first;
    c->apart = how.apart;
    c->band = how.apart ? &g->bands.pieces : c->sum.first ? &g->bands.given : &g->bands.all;
    c->sum.terms = c->band->n;
    c->sum.adds = c->band->adds;
    c->label = how.label;
    if ((unsigned)how.lane > LANE_AHEAD || (how.lane != LANE_INLINE && !how.work))
        return group_fail(g, ERR_BUG, "lane %d, or no place for its work", (int)how.lane);
    TRY(call_check(g, c));
    c->there = g->carrier && carrier_holds(g, c);
    if (c->there && how.lane == LANE_AHEAD)
        return group_fail(g, ERR_BUG, "%s: a buffer on an accelerator cannot travel ahead", kind_name(c->kind));
    if (how.lane != LANE_INLINE) return queue_submit(g, c, how.work);
    if (c->there && g->carrier->ops->sole) queue_drain(g);
    TRY(call_run(g, c, true));
    atomic_fetch_add_explicit(&g->lanes[LANE_INLINE].collectives, 1, memory_order_relaxed);
    if (how.work) *how.work = &g->finished;
    return ERR_NONE;
}

static struct collective call_whole(enum kind kind, const void *buf, int64_t count, enum dtype t, int root) {
    return (struct collective){.kind = kind,
                               .buf = (char *)(uintptr_t)buf, /* of a send: only read */
                               .sum = {.count = count, .type = t},
                               .root = root};
}

static struct collective call_in_parts(const struct group *g, enum kind kind, void *buf, const int64_t *part,
                                       enum dtype t, int root) {
    struct collective c = call_whole(kind, buf, part[g->size], t, root);
    c.part = part;
    return c;
}

enum error group_all_reduce(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t,
                            enum redop op) {
    struct collective c = call_whole(KIND_ALL_REDUCE, buf, count, t, 0);
    c.sum.op = op;
    return group_start(g, how, &c);
}

enum error group_mix(struct group *g, struct dispatch how, const struct mixing *m, float *buf, int64_t count) {
    struct collective c = call_whole(KIND_ALL_REDUCE, buf, count, DTYPE_F32, 0);
    TRY(algo_meets(m->by, &c.algo));
    c.mixing = *m;
    return group_start(g, how, &c);
}

enum error group_reduce(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t, enum redop op,
                        int root) {
    struct collective c = call_whole(KIND_REDUCE, buf, count, t, root);
    c.sum.op = op;
    c.sum.first = g->params.idle;
    return group_start(g, how, &c);
}

enum error group_broadcast(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t, int root) {
    struct collective c = call_whole(KIND_BROADCAST, buf, count, t, root);
    return group_start(g, how, &c);
}

enum error group_reduce_scatter(struct group *g, struct dispatch how, void *buf, const int64_t *part, enum dtype t,
                                enum redop op) {
    struct collective c = call_in_parts(g, KIND_REDUCE_SCATTER, buf, part, t, 0);
    c.own = how.own;
    c.sum.op = op;
    c.sum.first = g->params.idle;
    return group_start(g, how, &c);
}

enum error group_all_gather(struct group *g, struct dispatch how, void *buf, const int64_t *part, enum dtype t) {
    struct collective c = call_in_parts(g, KIND_ALL_GATHER, buf, part, t, 0);
    c.sum.first = how.givers ? g->params.idle : 0;
    return group_start(g, how, &c);
}

enum error group_gather_all(struct group *g, void *all, int n) {
    int64_t *part = memory_new((size_t)(g->size + 1) * sizeof *part);
    if (!part) return ERR_MEMORY;
    for (int r = 0; r <= g->size; r++) part[r] = (int64_t)r * n;
    enum error err = group_all_gather(g, GROUP_INLINE, all, part, DTYPE_I64);
    memory_free(part);
    return err;
}

enum error group_scatter(struct group *g, struct dispatch how, void *buf, const int64_t *part, enum dtype t, int root) {
    struct collective c = call_in_parts(g, KIND_SCATTER, buf, part, t, root);
    c.own = how.own;
    return group_start(g, how, &c);
}

enum error group_gather(struct group *g, struct dispatch how, void *buf, const int64_t *part, enum dtype t, int root) {
    struct collective c = call_in_parts(g, KIND_GATHER, buf, part, t, root);
    c.own = root == g->rank ? NULL : how.own;
    return group_start(g, how, &c);
}

enum error group_all_to_all(struct group *g, struct dispatch how, const void *send, const int64_t *to, void *recv,
                            const int64_t *from, enum dtype t) {
    struct collective c = call_in_parts(g, KIND_ALL_TO_ALL, recv, from, t, 0);
    c.send = send;
    c.send_part = to;
    return group_start(g, how, &c);
}

enum error group_send(struct group *g, struct dispatch how, const void *buf, int64_t count, enum dtype t, int peer) {
    struct collective c = call_whole(KIND_SEND, buf, count, t, peer);
    return group_start(g, how, &c);
}

enum error group_recv(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t, int peer) {
    struct collective c = call_whole(KIND_RECV, buf, count, t, peer);
    return group_start(g, how, &c);
}

enum error group_swap(struct group *g, struct dispatch how, const void *send, void *recv, int64_t count, enum dtype t,
                      int peer) {
    struct collective c = call_whole(KIND_RECV, recv, count, t, peer);
    c.send = send;
    return group_start(g, how, &c);
}

static enum error message_check(struct group *g, const struct group_message *m, int lane, struct collective *c) {
    *c = call_whole(lane == LANE_IN ? KIND_RECV : KIND_SEND, m->buf, m->count, m->type, m->peer);
    c->lane = lane;
    c->tag = m->tag;
    if (!g->params.mail) return group_fail(g, ERR_BUG, "rank %d: the group was opened without messages", g->rank);
    return call_check(g, c);
}

enum error group_post(struct group *g, const struct group_message *m, struct work **out) {
    struct collective c;
    TRY(message_check(g, m, LANE_OUT, &c));
    return queue_submit(g, &c, out);
}

enum error group_take(struct group *g, const struct group_message *m, struct work **out) {
    struct collective c;
    TRY(message_check(g, m, LANE_IN, &c));
    return mail_ask(g, &c, m->source, out);
}

enum error group_barrier_on(struct group *g, struct dispatch how) {
    struct collective c = {.kind = KIND_BARRIER};
    return group_start(g, how, &c);
}

/* ---- what others see of this rank ---- */

void group_abort(struct group *g, const char *reason) {
    enum error err = group_fail(g, ERR_PEER, "rank %d: %s", g->rank, reason);
    (void)err; /* the next call tells */
}

enum error group_late(struct group *g, const char *words) {
    return group_fail(g, ERR_TIMEOUT, "%s", words);
}

void group_note(struct group *g, const char *doing, int64_t step) {
    g->link->ops->note(g->link, doing, step);
    recorder_note(g->params.recorder, doing, step);
}

void group_watch(struct group *g, group_watch_fn watch, void *user) {
    if (watch) g->watcher = user; /* else: the lane may be about to tell the one before */
    atomic_store(&g->watch, watch);
}

void group_get_stats(const struct group *g, struct group_stats *out) {
    *out = (struct group_stats){0};
    for (int i = 0; i < ALL_LANES; i++) {
        const struct lane_state *l = &g->lanes[i];
        out->sent += atomic_load_explicit(&l->traffic.sent, memory_order_relaxed);
        out->received += atomic_load_explicit(&l->traffic.received, memory_order_relaxed);
        out->collectives += atomic_load_explicit(&l->collectives, memory_order_relaxed);
        out->busy_ns += atomic_load_explicit(&l->busy_ns, memory_order_relaxed);
    }
}
