/* Weights ahead of their use. A pass asks for the weights of one layer after another, in an order that never changes; so
 * while a layer computes, the gathers of the next ones are under way, the most urgent first:
 *
 *   forward    | layer 1 | layer 2 | layer 3 | ...        layer 2's weights are waited for before it, if at all
 *   lane       |  2  |  3  |   4    |   5                 the gathers
 *
 * Where weights are kept, each bucket is gathered once, as soon as it is updated, and that is all (pull ahead). Where they
 * are not, gathers follow a program, which is a list of visits to buckets: forward through the layers, and back. A visit
 * brings its bucket, and the bucket goes again when a later layer is asked for, unless its next visit is near:
 *
 *   visits     5  4  3  2  1  0 | 0  1  2  3  4  5         there at a time: the one in use, and PLAN_AHEAD more
 *
 * Where weights stay for the whole pass, all visits of forward begin as soon as the update has ended.
 *
 * A bucket with weights that two layers share (tied) is visited for both. All ranks make the same gathers in the same
 * order, though one may compute more passes than another, or none: the program then runs without it. That is why what a
 * visit brings depends on the visit alone, and never on what a rank happens to have.
 *
 * An arena is address space: the pages of a bucket that goes become those of one that comes (spares.c). */
#include "modes/ahead.h"

#include "engine/base/clock.h"
#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"
#include "modes/share/share.h"
#include "modes/spares.h"

#include <limits.h>

struct visit {
    int bucket;
    bool brings, leaves; /* leaves: the bucket goes when a later layer is asked for */
};
struct halt { /* of a layer: its visits in a pass */
    int visit, count;
};
struct ahead {
    struct mode *m;
    struct graph_source source;
    struct pool *pool;
    enum weights_kept kept;
    enum move_by by;
    enum lane lane;
    int window;           /* visits that are on their way beside those in use; of what stays for a pass, all */
    struct visit *visit;  /* forward's, then backward's */
    struct halt *halt[2]; /* of each node: in forward, in backward */
    int visits, forward;  /* all; those of forward */
    int *order;           /* of buckets, as forward needs them */
    struct spares spares; /* of the arena whose program runs: */
    int begun, done, end; /* visits that have begun to bring, that are over, that there are */
    bool early;           /* it began before its pass did */
    bool whole;           /* rank 0 has more than its parts */
    int *holder;          /* of each bucket, the last visit that brought it, + 1; 0: it is not here */
    int64_t *number;      /* of each bucket, its last gather among those of the flight */
    struct flight flight;
};

/* ---- the program, once ---- */

/* Gives the visit, which is the last one where that is to the same bucket. */
static int visit_add(struct ahead *a, int bucket, int from) {
    if (a->visits > from && a->visit[a->visits - 1].bucket == bucket) return a->visits - 1;
    a->visit[a->visits] = (struct visit){bucket, true, true};
    return a->visits++;
}

static struct bucket_range param_buckets(const struct ahead *a, int param) {
    return buckets_of_param(a->m->cut, &a->m->t->model->params[param]);
}

/* Forward goes down through the arena, and so it does through a layer's parameters. */
static void node_visit(struct ahead *a, int node, bool backward) {
    const struct model_node *n = &a->m->t->model->nodes[node];
    struct halt *halt = &a->halt[backward][node];
    int from = backward ? a->forward : 0, count = n->plan.nparams, first = -1;
    for (int i = 0; i < count; i++) {
        struct bucket_range of = param_buckets(a, n->param[backward ? i : count - 1 - i]);
        for (int b = of.lo; b <= of.hi; b++) {
            int v = visit_add(a, backward ? b : of.lo + of.hi - b, from);
            if (first < 0) first = v;
        }
    }
    *halt = (struct halt){first, first < 0 ? 0 : a->visits - first};
}

/* A bucket that is needed again soon stays. */
static void visits_join(struct ahead *a) {
    int near = a->kept == WEIGHTS_A_LAYER ? a->window + 1 : a->visits;
    for (int v = 0; v < a->visits; v++)
        for (int next = v + 1; next < a->visits && next <= v + near; next++) {
            if (a->visit[next].bucket != a->visit[v].bucket) continue;
            a->visit[v].leaves = a->visit[next].brings = false;
            break;
        }
}

/* At most so many visits in a pass. */
static size_t visits_most(const struct ahead *a) {
    size_t most = 0;
    for (int k = 0; k < a->m->t->model->nnodes; k++)
        for (int i = 0; i < a->m->t->model->nodes[k].plan.nparams; i++) {
            struct bucket_range of = param_buckets(a, a->m->t->model->nodes[k].param[i]);
            most += (size_t)(of.hi - of.lo + 1);
        }
    return most;
}

static enum error program_make(struct ahead *a) {
    int buckets = a->m->cut->count, nodes = a->m->t->model->nnodes, norder = 0;
    a->visit = pool_alloc(a->pool, 2 * visits_most(a) * sizeof *a->visit);
    for (int i = 0; i < 2; i++) a->halt[i] = pool_alloc(a->pool, (size_t)nodes * sizeof *a->halt[i]);
    a->order = pool_alloc(a->pool, (size_t)buckets * sizeof *a->order);
    a->holder = pool_alloc(a->pool, (size_t)buckets * sizeof *a->holder);
    a->number = pool_alloc(a->pool, (size_t)buckets * sizeof *a->number);
    a->spares = (struct spares){.m = a->m, .bucket = pool_alloc(a->pool, (size_t)buckets * sizeof *a->spares.bucket)};
    if (!a->spares.bucket) return ERR_MEMORY;
    if (!a->visit || !a->halt[0] || !a->halt[1] || !a->order || !a->holder || !a->number) return ERR_MEMORY;
    for (int k = 0; k < nodes; k++) node_visit(a, k, false);
    a->forward = a->visits;
    for (int k = nodes - 1; k >= 0 && a->kept != WEIGHTS_KEPT; k--) node_visit(a, k, true);
    for (int v = 0; v < a->forward; v++) /* holder: which buckets are in the order already */
        if (!a->holder[a->visit[v].bucket]++) a->order[norder++] = a->visit[v].bucket;
    for (int b = buckets - 1; b >= 0; b--)
        if (!a->holder[b]) a->order[norder++] = b;
    for (int b = 0; b < buckets; b++) a->holder[b] = 0;
    visits_join(a);
    return ERR_NONE;
}

/* ---- buckets come and go ---- */

static enum error bucket_bring(struct ahead *a, int b) {
    const struct span bucket = share_bucket(a->m, a->spares.arena, b);
    struct dispatch how = {.lane = a->lane, .label = LABEL_WEIGHTS(b), .givers = true};
    TRY(flight_next(&a->flight, &how.work));
    a->number[b] = a->flight.begun;
    return share_move(a->m, a->by, &bucket, how);
}

static enum error bucket_await(struct ahead *a, int b) {
    return flight_wait(&a->flight, (int)(a->flight.begun - a->number[b]));
}

static enum error visits_begin(struct ahead *a, int upto) {
    for (; a->begun < upto && a->begun < a->end; a->begun++) {
        const struct visit *v = &a->visit[a->begun];
        if (v->brings) TRY(spares_take(&a->spares, v->bucket));
        if (v->brings) TRY(bucket_bring(a, v->bucket));
        a->holder[v->bucket] = a->begun + 1;
    }
    return ERR_NONE;
}

static enum error bucket_drop(struct ahead *a, int b) {
    TRY(bucket_await(a, b));
    spares_put(&a->spares, b);
    a->holder[b] = 0;
    return ERR_NONE;
}

static enum error visits_leave(struct ahead *a, int upto) {
    for (; a->done < upto; a->done++) {
        const struct visit *v = &a->visit[a->done];
        if (v->leaves && a->holder[v->bucket] == a->done + 1) TRY(bucket_drop(a, v->bucket));
    }
    return ERR_NONE;
}

/* What is left of the program, whoever needs it. */
static enum error program_end(struct ahead *a) {
    while (!a->early && a->done < a->end) {
        TRY(visits_begin(a, a->done + 1 + a->window));
        TRY(visits_leave(a, a->done + 1));
    }
    TRY(flight_land(&a->flight));
    for (int b = 0; b < a->m->cut->count && a->kept != WEIGHTS_KEPT; b++)
        if (a->holder[b]) TRY(bucket_drop(a, b));
    a->begun = a->done = a->end = 0;
    a->early = false;
    return ERR_NONE;
}

static void whole_drop(struct ahead *a) {
    float *const arena[] = {a->m->t->arena.values, a->m->t->arena.average};
    for (int i = 0; i < 2; i++)
        for (int b = 0; a->whole && arena[i] && b < a->m->cut->count; b++) bucket_release(a->m, arena[i], b);
    a->whole = false;
}

/* ---- what the graph asks for ---- */

static enum error ahead_pass(void *user, const float *values, bool trains) {
    struct ahead *a = user;
    if (a->kept == WEIGHTS_KEPT) return ERR_NONE;
    if (!a->early || values != a->spares.arena) TRY(program_end(a));
    whole_drop(a);
    spares_use(&a->spares, (float *)(uintptr_t)values); /* an arena of the trainer's, whose gathers write to it */
    a->early = false;
    a->end = trains ? a->visits : a->forward;
    return visits_begin(a, 1 + a->window);
}

static enum error ahead_need(void *user, int node, enum graph_pass pass) {
    struct ahead *a = user;
    const struct halt h = a->halt[pass != PASS_FORWARD && a->kept != WEIGHTS_KEPT][node];
    int64_t begin = clock_ns();
    if (a->kept != WEIGHTS_KEPT) {
        if (pass != PASS_AGAIN) TRY(visits_leave(a, h.visit));
        TRY(visits_begin(a, h.visit + h.count + a->window));
    }
    for (int v = h.visit; v < h.visit + h.count; v++) TRY(bucket_await(a, a->visit[v].bucket));
    trainer_waited(a->m->t, clock_ns() - begin);
    return ERR_NONE;
}

/* ---- what the share asks for ---- */

const int *ahead_order(const struct ahead *a) {
    return a->order;
}

enum error ahead_updated(struct ahead *a, int b) {
    return a->kept == WEIGHTS_KEPT ? bucket_bring(a, b) : ERR_NONE;
}

enum error ahead_began(struct ahead *a) {
    if (a->kept == WEIGHTS_KEPT) return a->lane == LANE_AHEAD ? ERR_NONE : flight_land(&a->flight);
    spares_use(&a->spares, a->m->t->arena.values);
    a->end = a->forward;
    a->early = true;
    bool meets = a->window > PLAN_AHEAD && trainer_meets(a->m->t, a->m->t->at.step + 1); /* maybe for the last time */
    return visits_begin(a, meets ? PLAN_AHEAD : a->window);
}

enum error ahead_land(struct ahead *a) {
    return flight_land(&a->flight);
}

enum error ahead_settle(struct ahead *a) {
    TRY(program_end(a));
    whole_drop(a);
    spares_use(&a->spares, a->m->t->arena.values);
    return ERR_NONE;
}

enum error ahead_collect(struct ahead *a, float *arena) {
    for (int b = 0; arena && b < a->m->cut->count; b++)
        TRY(group_gather(a->m->team.group, GROUP_INLINE, arena, share_bucket(a->m, arena, b).part, DTYPE_F32, 0));
    a->whole = a->m->t->rank == 0;
    return ERR_NONE;
}

enum error ahead_scatter(struct ahead *a, float *arena) {
    for (int b = 0; arena && b < a->m->cut->count; b++) {
        TRY(group_scatter(a->m->team.group, GROUP_INLINE, arena, share_bucket(a->m, arena, b).part, DTYPE_F32, 0));
        bucket_release(a->m, arena, b);
        TRY(bucket_overlay(a->m, arena, b));
    }
    return ERR_NONE;
}

enum error ahead_open(struct mode *m, struct ahead **out) {
    struct pool *pool;
    const struct move *move = &m->how->plan.after[0];
    bool apart = device_find(m->t->config->devices.kind)->runtime->apart; /* of all ranks: a server's own is the host */
    TRY(pool_create(&pool));
    struct ahead *a = pool_alloc(pool, sizeof *a);
    if (!a) {
        pool_free(pool);
        return ERR_MEMORY;
    }
    *out = a;
    *a = (struct ahead){.m = m, .pool = pool, .kept = m->how->plan.kept, .by = move->by};
    a->lane = m->lane == LANE_INLINE || apart ? m->lane : LANE_AHEAD;
    a->window = a->lane != LANE_AHEAD ? 0 : a->kept == WEIGHTS_A_PASS ? INT_MAX / 2 : PLAN_AHEAD;
    a->source = (struct graph_source){ahead_pass, ahead_need, a->kept == WEIGHTS_A_LAYER, a};
    if (a->kept != WEIGHTS_KEPT || (a->lane == LANE_AHEAD && !m->how->streams)) m->standing->source = &a->source;
    return program_make(a);
}

void ahead_close(struct ahead *a) {
    if (a) pool_free(a->pool);
}
