/* The list of carriers, which of them a group takes, and what surrounds a call that is carried. */
#include "transport/carrier/carrier.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "transport/link/words.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define CARRIER(name) extern const struct carrier_ops carrier_##name;
#include "transport/carrier/carriers.def"

static const struct carrier_ops *const kinds[] = {
#define CARRIER(name) &carrier_##name,
#include "transport/carrier/carriers.def"
};
enum { CARRIERS = sizeof kinds / sizeof *kinds };

const struct carrier_ops *const *carrier_list(int *count) {
    *count = CARRIERS;
    return kinds;
}

static int carrier_index(const char *name) {
    for (int i = 0; i < CARRIERS; i++)
        if (!strcmp(kinds[i]->name, name)) return i;
    return -1;
}

/* ---- which one ---- */

static enum error carrier_suits(const struct group *g, const struct carrier_ops *ops) {
    if (!ops->suits) return ERR_NONE;
    if (!device_runtime(g->params.device)->apart) return FAIL(ERR_DEVICE, "it has no accelerator");
    if (emulation_on(&g->params.emulate)) return FAIL(ERR_DEVICE, "emulated links are the host's");
    return ops->suits(g);
}

/* What each rank can use, a bit for each carrier, and whether it has an accelerator, in the bit CARRIERS; and why this
 * one cannot use 'wanted'. */
static enum error carriers_survey(struct group *g, int wanted, int64_t *able, char why[256]) {
    able[g->rank] = (int64_t)device_runtime(g->params.device)->apart << CARRIERS;
    for (int i = 0; i < CARRIERS; i++) {
        enum error err = carrier_suits(g, kinds[i]);
        if (!err)
            able[g->rank] |= (int64_t)1 << i;
        else if (i == wanted)
            snprintf(why, 256, "%s", error_message());
    }
    return group_gather_all(g, able, 1);
}

/* The first rank that lacks the bit; -1: all have it. */
static int rank_that_lacks(const struct group *g, const int64_t *able, int bit) {
    for (int r = 0; r < g->size; r++)
        if (!(able[r] >> bit & 1)) return r;
    return -1;
}

static enum error carrier_refuse(const struct group *g, int kind, int rank, const char *why) {
    bool own = rank == g->rank;
    return FAIL(ERR_DEVICE, "rank %d cannot use comm.backend %s%s%s%s", rank, kinds[kind]->name, own ? ": " : "",
                own ? why : "; its own message says why", own ? "\ncomm.backend: host needs nothing of the kind" : "");
}

/* All ranks choose the same carrier, since they know the same of all. */
static enum error carrier_choose(struct group *g, int *out) {
    int64_t *able = pool_alloc(g->pool, (size_t)g->size * sizeof *able);
    char why[256] = "";
    bool automatic = !strcmp(g->params.carrier, "auto");
    bool threads = !strcmp(g->params.link, "thread");
    int wanted = automatic ? carrier_index(threads ? "peer" : "nccl") : carrier_index(g->params.carrier);
    if (wanted < 0) return FAIL(ERR_CONFIG, "no carrier '%s'", g->params.carrier);
    if (!able) return ERR_MEMORY;
    TRY(carriers_survey(g, wanted, able, why));
    int lacks = rank_that_lacks(g, able, wanted);
    *out = wanted;
    if (lacks < 0) return ERR_NONE;
    if (!automatic) return carrier_refuse(g, wanted, lacks, why);
    *out = carrier_index("staged");
    bool expected = emulation_on(&g->params.emulate) || rank_that_lacks(g, able, CARRIERS) >= 0;
    snprintf(g->carried, sizeof g->carried, "rank %d has no %s%s%.120s", lacks, kinds[wanted]->name,
             lacks == g->rank ? ": " : "", lacks == g->rank ? why : "");
    if (emulation_on(&g->params.emulate)) snprintf(g->carried, sizeof g->carried, "emulated links are the host's");
    if (!expected && g->rank == 0) log_warn("gradients pass through the host's memory: %s", g->carried);
    return ERR_NONE;
}

static enum error carrier_open_kind(struct group *g, int kind, struct carrier **out) {
    char why[256] = "";
    enum error err = kinds[kind]->open(g, out, why);
    if (*out) (*out)->ops = kinds[kind];
    if (*why) snprintf(g->carried, sizeof g->carried, "%s", why);
    if (!err || g->link->ops->failure(g->link)) return err;
    return group_fail_own(g, err);
}

enum error carrier_open(struct group *g) {
    int kind, staged = carrier_index("staged");
    if (!g->params.carrier) return ERR_NONE;
    TRY(carrier_choose(g, &kind));
    g->params.carrier = kinds[kind]->name;
    TRY(carrier_open_kind(g, staged, &g->staged));
    if (kind == staged || g->size == 1) {
        g->carrier = g->staged;
        return ERR_NONE;
    }
    return carrier_open_kind(g, kind, &g->carrier);
}

const char *group_carrier(const struct group *g, const char **why) {
    *why = g->size == 1 ? "one rank has nothing to exchange" : g->carried;
    return g->carrier ? g->carrier->ops->name : NULL;
}

void carrier_close(struct group *g) {
    if (g->carrier && g->carrier != g->staged) g->carrier->ops->close(g->carrier);
    if (g->staged) g->staged->ops->close(g->staged);
}

bool carrier_holds(const struct group *g, const struct collective *c) {
    const struct device *d = g->params.device;
    return device_holds(d, c->buf) || (c->send && device_holds(d, c->send));
}

/* ---- one call ---- */

struct carrier *carrier_for(const struct group *g, const struct collective *c) {
    const struct carrier_ops *ops = g->carrier->ops;
    return !kind_has_peer(c->kind) && (!ops->takes || ops->takes(g->carrier, c)) ? g->carrier : g->staged;
}

static enum device_lane carrier_lane(const struct carrier *cr, const struct collective *c) {
    return cr->ops->sole || c->lane == LANE_COMM ? LANE_EXCHANGE : LANE_COMPUTE;
}

/* The lane of the device, after what the buffer waits for. */
static enum error carrier_begin(struct carrier *cr, struct collective *c, enum device_lane *l) {
    *l = carrier_lane(cr, c);
    if (c->lane == LANE_INLINE && *l == LANE_EXCHANGE) { /* the caller's thread: it may */
        TRY(cr->runtime->mark(cr->device, LANE_COMPUTE, cr->end[LANE_COMPUTE]));
        c->ready = cr->end[LANE_COMPUTE];
    }
    return c->ready ? cr->runtime->follow(cr->device, *l, c->ready) : ERR_NONE;
}

static enum error carrier_failed(struct carrier *cr, enum error err) {
    struct group *g = cr->group;
    if (!g->link->ops->failure(g->link)) err = group_fail_own(g, err);
    if (g->carrier->ops->abandon) g->carrier->ops->abandon(g->carrier);
    return err;
}

/* What has an end of its own is only asked for: the device goes from one call to the next without the host. */
enum error carrier_run(struct carrier *cr, struct collective *c) {
    enum device_lane l;
    enum error err = carrier_begin(cr, c, &l);
    if (!err) err = cr->ops->run(cr, c, l);
    if (!err && c->end)
        err = cr->runtime->mark(cr->device, l, c->end);
    else if (!err && l == LANE_EXCHANGE)
        err = carrier_wait(cr, c, l);
    c->under_way = !err && c->end;
    return err ? carrier_failed(cr, err) : ERR_NONE;
}

enum error carrier_alone(struct group *g, struct collective *c) {
    struct device *d = g->params.device;
    const struct device_runtime *runtime = device_runtime(d);
    if (c->kind != KIND_ALL_TO_ALL) return ERR_NONE;
    if (c->ready) TRY(runtime->follow(d, LANE_EXCHANGE, c->ready));
    enum device_lane l = c->ready ? LANE_EXCHANGE : LANE_COMPUTE;
    TRY(runtime->copy(d, l, element(c, c->buf, c->part[0]), d, element(c, c->send, c->send_part[0]),
                      bytes_of(c, c->part[1] - c->part[0])));
    return c->ready ? runtime->wait(d, l) : ERR_NONE;
}

/* ---- for those who write one ---- */

enum error carrier_create(struct group *g, size_t bytes, struct carrier **out) {
    struct carrier *cr = *out = memory_new(bytes);
    if (!cr) return ERR_MEMORY;
    *cr = (struct carrier){.group = g, .device = g->params.device, .runtime = device_runtime(g->params.device)};
    for (int l = 0; l < DEVICE_LANES; l++) TRY(cr->runtime->mark_create(cr->device, &cr->end[l]));
    return ERR_NONE;
}

void carrier_free(struct carrier *cr) {
    for (int l = 0; l < DEVICE_LANES; l++)
        if (cr->end[l]) cr->runtime->mark_free(cr->end[l]);
    memory_free(cr);
}

enum error carrier_meet(struct carrier *cr, struct collective *c) {
    const struct link_ops *ops = cr->group->link->ops;
    TRY(ops->meet(c->link, c->lane, &c->call, c->buf, c->at));
    return ops->lazy ? ops->sync(c->link, c->lane) : ERR_NONE;
}

/* What else may have gone wrong, now and then. */
static enum error carrier_look_around(struct carrier *cr, const struct collective *c, struct carrier_patience *p) {
    enum { LOOK = 100000000 };
    struct group *g = cr->group;
    char doing[DESCRIBED_MAX];
    int64_t now = clock_ns();
    double timeout = g->params.timeout, own = cr->device->params.timeout;
    if (!p->begun && (!c->ready || cr->runtime->passed(c->ready))) p->begun = now;
    double waited = clock_seconds(now - (p->begun ? p->begun : p->start));
    if (now - p->looked >= LOOK && g->link->ops->lost) {
        p->looked = now;
        TRY(g->link->ops->lost(g->link, c->lane));
    }
    if (!p->begun) /* the device has not come to the call: it computes, or it hangs */
        return waited < (own > 0 ? own : timeout) ? ERR_NONE
                                                  : cr->runtime->give_up(cr->device, carrier_lane(cr, c), waited);
    if (waited < timeout / 6) return ERR_NONE;
    call_describe(g, c->lane, doing);
    if (waited >= timeout)
        return group_fail(g, ERR_TIMEOUT, "rank %d: %s has not ended on its device within %g s, by carrier %s", g->rank,
                          doing, timeout, cr->ops->name);
    if (!p->warned) log_warn("rank %d: %s has not ended on its device for %.3g s", g->rank, doing, waited);
    p->warned = true;
    return ERR_NONE;
}

/* Short waits are looked through, long ones slept. */
static void carrier_pause(const struct carrier_patience *p, bool patient) {
    enum { BRIEF = 20000, SHORT = 2000000 };
    int64_t waited = clock_ns() - p->start;
    if (patient && waited < BRIEF)
        clock_relax();
    else if (patient && waited < SHORT)
        sched_yield();
    else
        clock_nap(waited < SHORT ? 20000 : 200000);
}

/* Whether the mark is passed, or where 'until' is set until it is. */
static enum error carrier_await(struct carrier *cr, const struct collective *c, const struct device_mark *mark,
                                struct carrier_patience *p, bool until, bool *passed) {
    struct link *link = cr->group->link;
    if (!p->start) p->start = p->looked = clock_ns();
    while (!(*passed = cr->runtime->passed(mark))) {
        TRY(link->ops->failure(link));
        if (cr->ops->check) TRY(cr->ops->check(cr));
        TRY(carrier_look_around(cr, c, p));
        if (!until) break;
        carrier_pause(p, link->patient[c->lane]);
    }
    return ERR_NONE;
}

enum error carrier_wait(struct carrier *cr, const struct collective *c, enum device_lane l) {
    struct carrier_patience p = {0};
    bool passed;
    TRY(cr->runtime->mark(cr->device, l, cr->end[l]));
    TRY(carrier_await(cr, c, cr->end[l], &p, true, &passed));
    return cr->runtime->wait(cr->device, l); /* has been reached: what the device has to complain of */
}

enum error carrier_look(struct carrier *cr, struct collective *c, struct carrier_patience *p, bool patient) {
    bool passed = false;
    enum error err = carrier_await(cr, c, c->end, p, patient, &passed);
    /* a mark counts as passed after an error, which every later call reports */
    if (!err && passed) err = cr->runtime->mark(cr->device, carrier_lane(cr, c), c->end);
    if (!err && !passed) return ERR_NONE;
    c->under_way = false;
    *p = (struct carrier_patience){0};
    return err ? carrier_failed(cr, err) : ERR_NONE;
}

/* ---- sums ---- */

void slots_free(struct carrier *cr, struct slots *s) {
    if (!s->host)
        device_free(cr->device, s->memory);
    else if (s->memory)
        cr->runtime->host_free(cr->device, s->memory);
    *s = (struct slots){.host = s->host};
}

enum error slots_reserve(struct carrier *cr, enum device_lane l, struct slots *s, size_t bytes) {
    if (bytes <= s->bytes) return ERR_NONE;
    TRY(cr->runtime->wait(cr->device, l)); /* the old ones may still be read */
    slots_free(cr, s);
    TRY((s->host ? cr->runtime->host_alloc : device_alloc)(cr->device, bytes, &s->memory));
    s->bytes = bytes;
    return ERR_NONE;
}

/* In ORDER_RING the rank that stands at a chunk's number gives the first term. */
enum error carrier_sum(struct carrier *cr, enum device_lane l, const struct collective *c, struct element_range r,
                       const float *const *in, float *to) {
    const struct sum *s = &c->sum;
    const float **terms = (const float **)(void *)c->lists->out;
    if (r.hi <= r.lo) return ERR_NONE;
    if (s->order == ORDER_TREE) return cr->runtime->sum(cr->device, l, to, in, s->terms, s->adds, r.hi - r.lo);
    for (int k = 0; k < s->ranks; k++) {
        int64_t begin = order_chunk(s->count, s->ranks, k), end = order_chunk(s->count, s->ranks, k + 1);
        if (begin < r.lo) begin = r.lo;
        if (end > r.hi) end = r.hi;
        if (begin >= end) continue;
        for (int i = 0; i < s->ranks; i++) terms[i] = in[(k + i) % s->ranks] + (begin - r.lo);
        TRY(cr->runtime->sum(cr->device, l, to + (begin - r.lo), terms, s->ranks, NULL, end - begin));
    }
    return ERR_NONE;
}
