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
#include "engine/settings/resolve.h"
#include "modes/ahead.h"
#include "modes/share/share.h"

/* Of units that have been added up: what others update by. All of it in arenas of further subtrees. */
static void gradients_go(struct mode *m, int upto) {
    const struct arenas *a = &m->t->arena;
    int me = m->t->rank;
    for (; m->gone < upto; m->gone++) {
        const struct span s = share_bucket(m, a->grads[0], m->gone);
        share_release(s.arena, s.begin, s.part[me]);
        share_release(s.arena, s.part[me + 1], s.end);
        for (int k = 1; k < a->leaving; k++) share_release(a->grads[k], s.begin, s.end);
    }
}

static enum error full_leave(struct mode *m, int b) {
    TRY(share_leave(m, b));
    TRY(flight_wait(&m->flight, PLAN_AHEAD));
    gradients_go(m, b - PLAN_AHEAD);
    return ERR_NONE;
}

static enum error full_land(struct mode *m) {
    TRY(step_land(m));
    gradients_go(m, m->cut->count);
    return ERR_NONE;
}

static enum error full_start(struct mode *m) {
    bool parts = m->how->plan.kept != WEIGHTS_KEPT;
    if (parts) TRY(ahead_scatter(m->ahead, m->t->arena.values));
    if (parts) TRY(ahead_scatter(m->ahead, m->t->arena.average));
    return slices_start(m);
}

static enum error full_gather(struct mode *m) {
    TRY(ahead_settle(m->ahead));
    TRY(ahead_collect(m->ahead, m->t->arena.values));
    return ahead_collect(m->ahead, m->t->arena.average);
}

static enum error full_settle(struct mode *m) {
    return ahead_settle(m->ahead);
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
    .open = slices_open, .close = slices_close, .start = full_start, .leave = full_leave, .land = full_land,           \
    .update = slices_update, .collect = slices_collect, .settle = full_settle, .describe = slices_describe
#define FULL_BEFORE                                                                                                    \
    .nbefore = 1, .before = {{MOVE_REDUCE_SCATTER, .doing = ""}}, .update = UPDATE_BY_OWNERS, .lean = true

const struct share_row share_full = {.plan = {FULL_BEFORE, .kept = WEIGHTS_A_LAYER, .nafter = 2,
                                              .after = {{MOVE_ALL_GATHER, .end = EACH_FORWARD, .doing = ""},
                                                        {MOVE_ALL_GATHER, .end = EACH_BACKWARD, .doing = ""}}},
                                     .subtrees = true,
                                     .check = full_check,
                                     .ops = {FULL_OPS, .spread = full_settle, .gather = full_gather}};
const struct share_row share_full_passing = {.plan = {FULL_BEFORE, .kept = WEIGHTS_A_PASS, .nafter = 1,
                                                      .after = {{MOVE_ALL_GATHER, .end = EACH_FORWARD, .doing = ""}}},
                                             .subtrees = true,
                                             .ops = {FULL_OPS, .spread = full_settle, .gather = full_gather}};
const struct share_row share_full_keeping = {
    .plan = {FULL_BEFORE, .nafter = 1, .after = {{MOVE_ALL_GATHER, .end = BEFORE_LAYER, .doing = ""}}},
    .subtrees = true,
    .ops = {FULL_OPS, .spread = slices_spread}};
