/* Full sharding: of every unit of the weights a rank has its part alone, and of the gradients and the optimizer's state of
 * it, too. That is ZeRO (arXiv:1910.02054), and what a rank keeps beyond its parts says which stage:
 *
 *   share_full           the weights of a layer while it computes: stage 3
 *   share_full_passing   all weights from the first layer's forward to the end of backward
 *   share_full_keeping   all weights: stage 2
 *
 * A step:
 *
 *   weights     all_gather       of each unit, ahead of the layers that need it: in forward (and in backward)
 *   gradients   reduce_scatter   of each unit, when they are final; what is others' then goes
 *   update      of this rank's parts                                     slices.c
 *
 * Gradients that leave in the last pass of a step are made there, so a rank never has more of them than PLAN_AHEAD units on
 * their way. Where it computes several passes (batch.accumulate; shards that are no power of two of the devices'), their
 * sums are made in memory of its own, which is as large as all gradients. */
#include "engine/base/clock.h"
#include "engine/settings/resolve.h"
#include "modes/ahead.h"
#include "modes/share/share.h"
#include "modes/spares.h"

#include <string.h>

/* Where gradients are on their way: backward makes them in memory of this rank alone, whose pages it leaves to the units
 * that come next as soon as they are copied here, where peers read them; and of the sum the rank copies its part back. */
enum { SLOTS = PLAN_AHEAD + 1 };
struct slots {
    float *memory; /* (SLOTS, subtrees that leave, each) */
    int64_t each;  /* floats of the largest unit */
    struct spares spares;
    struct unit *unit; /* (units); NULL: pages are given back */
    int paged;         /* this unit and those after it have no pages yet */
    int64_t part[];    /* of a unit, from its begin: (ranks + 1) */
};
struct unit {
    int reach; /* the last unit of the layers that have parameters in this one */
    bool tied; /* it has a parameter of two layers, of which the later one writes long before the unit leaves */
};

static float *slot_of(const struct mode *m, int b) {
    return m->slots->memory + (b % SLOTS) * m->t->arena.leaving * m->slots->each;
}

/* Notes what backward writes before unit u leaves. */
static void units_find(struct mode *m, struct unit *unit) {
    const struct model *model = m->t->model;
    for (int u = 0; u < m->cut->count; u++) unit[u].reach = u;
    for (int k = 0; k < model->nnodes; k++) {
        const struct model_node *n = &model->nodes[k];
        int lo = m->cut->count, hi = -1;
        for (int i = 0; i < n->plan.nparams; i++) {
            const struct tensor_info *p = &model->params[n->param[i]];
            struct bucket_range of = buckets_of_param(m->cut, p);
            bool lent = p->node != k;
            for (int u = of.lo; u <= of.hi && lent; u++) unit[u].tied = true;
            if (!lent) lo = of.lo < lo ? of.lo : lo, hi = of.hi > hi ? of.hi : hi;
        }
        for (int u = lo; u <= hi; u++) unit[u].reach = hi > unit[u].reach ? hi : unit[u].reach;
    }
}

/* Where units leave one by one in backward, and no gradient stays in the arena from one pass or step to the next. */
static enum error units_open(struct mode *m) {
    const struct trainer *t = m->t;
    bool stay = t->arena.leaving > 1 || t->feed.nlaps * t->config->batch.accumulate > 1 || t->tensors.frozen;
    if (stay || t->feed.members || !m->how->overlap) return ERR_NONE;
    size_t n = (size_t)m->cut->count;
    TRY_MEMORY(m->slots->unit = memory_new(n * sizeof *m->slots->unit));
    units_find(m, m->slots->unit);
    int *spare = memory_new(n * sizeof *spare);
    if (!spare) return ERR_MEMORY;
    m->slots->spares = (struct spares){m, t->arena.grads[0], spare, 0};
    m->slots->paged = m->slots->unit[0].reach + 1;
    return ERR_NONE;
}

/* The places between parameters are zero, whose squares are part of the norm. */
static void unit_clear(const struct mode *m, int u) {
    const struct model *model = m->t->model;
    const struct span s = share_bucket(m, m->t->arena.grads[0], u);
    int64_t at = HEADER_FLOATS;
    for (int i = 0; i <= model->nparams; i++) {
        int64_t to = i < model->nparams ? model->params[i].offset : model->arena_floats;
        int64_t begin = at > s.begin ? at : s.begin, end = to < s.end ? to : s.end;
        if (begin < end) memset(s.arena + begin, 0, (size_t)(end - begin) * sizeof *s.arena);
        if (i < model->nparams) at = to + model->params[i].count;
    }
}

/* Gives pages to all units up to this one. */
static enum error units_page(struct mode *m, int upto) {
    struct slots *s = m->slots;
    for (; s->paged <= upto && s->paged < m->cut->count; s->paged++) {
        if (s->unit[s->paged].tied) continue;
        TRY(spares_take(&s->spares, s->paged));
        unit_clear(m, s->paged);
    }
    return ERR_NONE;
}

/* Unit u has left: its pages become those of the units that the next layers write; after the last one, in the next step. */
static enum error unit_leave(struct mode *m, int u) {
    struct slots *s = m->slots;
    const struct span of = share_bucket(m, m->t->arena.grads[0], u);
    if (s->unit[u].tied)
        share_release(of.arena, of.begin, of.end);
    else
        spares_put(&s->spares, u);
    bool last = u == m->leaving - 1;
    if (last) s->paged = 0;
    return units_page(m, s->unit[last ? 0 : u + 1].reach);
}

static enum error slots_open(struct mode *m) {
    const struct arenas *a = &m->t->arena;
    void *memory;
    TRY_MEMORY(m->slots = memory_new(sizeof(struct slots) + (size_t)(m->standing->ranks + 1) * sizeof(int64_t)));
    for (int b = 0; b < m->cut->count; b++) {
        int64_t n = align_floats(m->cut->edge[b + 1] - m->cut->edge[b]);
        if (n > m->slots->each) m->slots->each = n;
        for (int k = 0; k < a->leaving; k++)
            TRY(memory_overlay(a->grads[k] + m->cut->edge[b], (size_t)n * sizeof(float)));
    }
    size_t floats = (size_t)SLOTS * (size_t)a->leaving * (size_t)m->slots->each;
    TRY(group_alloc(m->team.group, floats * sizeof(float), &memory));
    m->slots->memory = memory;
    return m->cut->count > 1 ? units_open(m) : ERR_NONE; /* one unit would leave and come at once */
}

static void full_close(struct mode *m) {
    if (m->slots) memory_free(m->slots->unit);
    if (m->slots) memory_free(m->slots->spares.bucket);
    memory_free(m->slots);
    slices_close(m);
}

/* The sums of units below 'upto' have landed. */
static void sums_take(struct mode *m, int upto) {
    for (; m->taken < upto; m->taken++) {
        const struct span s = share_bucket(m, m->t->arena.grads[0], m->taken);
        const int64_t *own = s.part + m->t->rank;
        memcpy(s.arena + own[0], slot_of(m, m->taken) + own[0] - s.begin, (size_t)(own[1] - own[0]) * sizeof(float));
    }
}

static enum error full_leave(struct mode *m, int b) {
    const struct arenas *a = &m->t->arena;
    const struct span s = share_bucket(m, a->grads[0], b);
    int64_t *part = m->slots->part;
    struct dispatch how;
    int64_t begin = clock_ns();
    TRY(flight_wait(&m->flight, PLAN_AHEAD));
    trainer_waited(m->t, clock_ns() - begin);
    sums_take(m, b - PLAN_AHEAD);
    for (int k = 0; k < a->leaving; k++) {
        memcpy(slot_of(m, b) + k * m->slots->each, a->grads[k] + s.begin, (size_t)(s.end - s.begin) * sizeof(float));
        if (m->cut->count > 1 && !m->slots->unit) share_release(a->grads[k], s.begin, s.end);
    }
    if (m->slots->unit) TRY(unit_leave(m, b));
    for (int r = 0; r <= m->standing->ranks; r++) part[r] = s.part[r] - s.begin;
    TRY(step_send(m, LABEL_GRADIENTS(b), &how));
    how.apart = a->apart ? m->slots->each : 0;
    return group_reduce_scatter(m->team.group, how, slot_of(m, b), part, DTYPE_F32, REDOP_SUM);
}

static enum error full_land(struct mode *m) {
    TRY(step_land(m));
    sums_take(m, m->leaving);
    return ERR_NONE;
}

static enum error full_start(struct mode *m) {
    bool parts = m->how->plan.kept != WEIGHTS_KEPT;
    TRY(slots_open(m));
    if (parts) TRY(ahead_scatter(m->ahead, m->t->arena.values));
    if (parts) TRY(ahead_scatter(m->ahead, m->t->arena.average));
    return slices_start(m);
}

static enum error full_gather(struct mode *m) {
    TRY(ahead_settle(m->ahead));
    TRY(ahead_collect(m->ahead, m->t->arena.values));
    return ahead_collect(m->ahead, m->t->arena.average);
}

static void full_check(struct resolve *r) {
    bool fully = r->c->sharing.plan.lean, parts = r->c->sharing.plan.kept != WEIGHTS_KEPT;
    resolve_clash(
        r, fully && device_find(r->c->devices.kind)->runtime->apart, "mode",
        "mode '{mode}' gives memory back page by page, which memory of devices '{devices}' ({at devices}) cannot\n"
        "use mode ddp with optimizer.shard");
    resolve_clash(r, parts && r->c->sync_batchnorm, "sync_batchnorm",
                  "sync_batchnorm computes all shards layer by layer together, for which weights have to stay "
                  "({at fsdp.reshard})\nuse fsdp.reshard: never");
}

#define FULL_OPS                                                                                                       \
    .open = slices_open, .close = full_close, .start = full_start, .leave = full_leave, .land = full_land,             \
    .update = slices_update, .collect = slices_collect, .settle = slices_settle, .stats = slices_stats,                \
    .describe = slices_describe
#define FULL_BEFORE                                                                                                    \
    .nbefore = 1, .before = {{MOVE_REDUCE_SCATTER, .doing = ""}}, .update = UPDATE_BY_OWNERS, .lean = true

const struct share_row share_full = {.plan = {FULL_BEFORE, .kept = WEIGHTS_A_LAYER, .nafter = 2,
                                              .after = {{MOVE_ALL_GATHER, .end = EACH_FORWARD, .doing = ""},
                                                        {MOVE_ALL_GATHER, .end = EACH_BACKWARD, .doing = ""}}},
                                     .subtrees = true,
                                     .check = full_check,
                                     .ops = {FULL_OPS, .spread = slices_settle, .gather = full_gather}};
const struct share_row share_full_passing = {.plan = {FULL_BEFORE, .kept = WEIGHTS_A_PASS, .nafter = 1,
                                                      .after = {{MOVE_ALL_GATHER, .end = EACH_FORWARD, .doing = ""}}},
                                             .subtrees = true,
                                             .ops = {FULL_OPS, .spread = slices_settle, .gather = full_gather}};
const struct share_row share_full_keeping = {
    .plan = {FULL_BEFORE, .nafter = 1, .after = {{MOVE_ALL_GATHER, .end = BEFORE_LAYER, .doing = ""}}},
    .subtrees = true,
    .ops = {FULL_OPS, .spread = slices_spread}};
