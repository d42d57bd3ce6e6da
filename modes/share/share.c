#include "modes/share/share.h"

#include "engine/base/clock.h"
#include "engine/settings/resolve.h"

static const struct share_row *const rows[] = {
#define SHARE(name) &share_##name,
#include "modes/share/shares.def"
    NULL};

const struct share_row *const *share_rows(void) {
    return rows;
}

/* ---- the configuration ---- */

void share_take(struct resolve *r, const struct share_row *row) {
    r->c->sharing.share = row;
    r->c->sharing.plan = row->plan;
    r->c->sharing.key = row->keys[0];
}

void shares_check(struct resolve *r) {
    for (int i = 0; rows[i]; i++)
        if (rows[i]->check) rows[i]->check(r);
}

/* ---- moves ---- */

struct span share_bucket(const struct mode *m, float *arena, int b) {
    const int64_t *part = m->part ? m->part + (int64_t)b * (m->standing->ranks + 1) : NULL;
    return (struct span){arena, m->cut->edge[b], m->cut->edge[b + 1], part};
}

enum error share_open_spare(struct mode *m) {
    int64_t most = 0;
    for (int b = 0; b < m->cut->count; b++) {
        int64_t n = m->cut->edge[b + 1] - m->cut->edge[b];
        if (n > most) most = n;
    }
    TRY_MEMORY(m->spare = memory_new((size_t)most * sizeof *m->spare));
    return ERR_NONE;
}

void share_release(float *arena, int64_t begin, int64_t end) {
    if (end > begin) memory_release(arena + begin, (size_t)(end - begin) * sizeof *arena);
}

enum error share_move(struct mode *m, enum move_by by, const struct span *span, struct dispatch how) {
    struct group *g = m->team.group;
    enum redop op = span->arena == m->t->arena.grads[0] ? REDOP_SUM : REDOP_AVERAGE;
    float *from = span->arena + span->begin;
    int64_t n = span->end - span->begin;
    switch (by) {
    case MOVE_ALL_REDUCE:
        return group_all_reduce(g, how, from, n, DTYPE_F32, op);
    case MOVE_REDUCE:
        return group_reduce(g, how, from, n, DTYPE_F32, op, 0);
    case MOVE_BROADCAST:
        return group_broadcast(g, how, from, n, DTYPE_F32, 0);
    case MOVE_REDUCE_SCATTER:
        return group_reduce_scatter(g, how, span->arena, span->part, DTYPE_F32, op);
    case MOVE_ALL_GATHER:
        return group_all_gather(g, how, span->arena, span->part, DTYPE_F32);
    case MOVE_NEIGHBOUR:
        return neighbour_mean(m, span);
    case MOVE_OWN:
        return own_meet(m, span, how);
    default:
        return FAIL(ERR_BUG, "a move that is not there: %d", (int)by);
    }
}

/* ---- what a row leaves out ---- */

static enum error do_nothing(struct mode *m) {
    (void)m;
    return ERR_NONE;
}

static void close_nothing(struct mode *m) {
    (void)m;
}

static enum error add_nothing(struct mode *m, struct mode_stats *out) {
    (void)m, (void)out;
    return ERR_NONE;
}

static void say_nothing(const struct mode *m, char *line, size_t size) {
    (void)m, (void)line, (void)size;
}

/* The optimizer's state, where every rank steps all of it. */
static enum error start_as_planned(struct mode *m) {
    return m->team.group && m->how->plan.update == UPDATE_BY_ALL ? team_share_state(&m->team, m->t) : ERR_NONE;
}

/* Shard 0 is the first computing rank's. */
static enum error buffers_as_planned(struct mode *m) {
    return team_share_buffers(&m->team, m->t, m->how->servers);
}

static void move_note(struct mode *m, const struct move *v) {
    if (*v->doing) mode_note(m, v->doing, m->t->at.step);
}

static enum error leave_as_planned(struct mode *m, int b) {
    const struct exchange_plan *p = &m->how->plan;
    const struct span bucket = share_bucket(m, m->t->arena.grads[0], b);
    for (int i = 0; i < p->nbefore; i++) {
        struct dispatch how;
        if (b == 0 && m->lane == LANE_INLINE) move_note(m, &p->before[i]);
        TRY(step_send(m, LABEL_GRADIENTS(b), &how));
        how.apart = m->t->arena.apart;
        TRY(share_move(m, p->before[i].by, &bucket, how));
    }
    return ERR_NONE;
}

static enum error land_as_planned(struct mode *m) {
    if (m->how->plan.nbefore) move_note(m, &m->how->plan.before[0]);
    return step_land(m);
}

/* Brings all ranks the weights that only the root has updated: they are one message, whose header has the sums of the step. */
static enum error bring_weights(struct mode *m, int64_t *mark) {
    const struct exchange_plan *p = &m->how->plan;
    const struct span all = {.arena = m->t->arena.values, .end = m->t->tensors.upto};
    for (int i = 0; i < p->nafter; i++) TRY(share_move(m, p->after[i].by, &all, GROUP_INLINE));
    trainer_phase(m->t, PHASE_COMM, mark);
    return trainer_get_sums(m->t);
}

/* The weights of a bucket travel while the root updates the next one. The header follows them, since the root knows the
 * sums of the step only when all is asked for. */
static enum error update_by_bucket(struct mode *m) {
    struct trainer *t = m->t;
    int64_t mark = clock_ns();
    int at = 0, changed = buckets_before(m->cut, t->tensors.upto);
    mode_note(m, "update, bucket by bucket", t->at.step);
    if (t->rank == 0) TRY(trainer_update_begin(t));
    for (int b = 0; b < changed; b++) {
        struct span bucket = share_bucket(m, t->arena.values, b);
        struct dispatch how;
        if (b == 0) bucket.begin = HEADER_FLOATS;
        if (t->rank == 0) TRY(trainer_update_until(t, bucket.end, &at));
        TRY(step_send(m, LABEL_WEIGHTS(b), &how));
        TRY(share_move(m, m->how->plan.after[0].by, &bucket, how));
    }
    if (t->rank == 0) {
        TRY(trainer_update_end(t));
        TRY(trainer_put_sums(t));
        trainer_phase(t, PHASE_UPDATE, &mark);
    }
    TRY(group_broadcast(m->team.group, GROUP_INLINE, t->arena.values, HEADER_FLOATS, DTYPE_F32, 0));
    TRY(step_land(m));
    trainer_phase(t, PHASE_COMM, &mark);
    return trainer_get_sums(t);
}

static enum error update_as_planned(struct mode *m) {
    struct trainer *t = m->t;
    bool root = m->how->plan.update == UPDATE_BY_ROOT;
    int64_t mark = clock_ns();
    if (root && !m->how->plan.after[0].whole) return update_by_bucket(m);
    if (!root || t->rank == 0) {
        mode_note(m, "update", t->at.step);
        TRY(trainer_update_all(t));
        if (root) TRY(trainer_put_sums(t));
        trainer_phase(t, PHASE_UPDATE, &mark);
    }
    return root ? bring_weights(m, &mark) : ERR_NONE;
}

static enum error spread_as_planned(struct mode *m) {
    if (m->how->plan.update != UPDATE_BY_ROOT || !m->t->arena.average) return ERR_NONE;
    return group_broadcast(m->team.group, GROUP_INLINE, m->t->arena.average, m->t->model->arena_floats, DTYPE_F32, 0);
}

struct share_ops share_ops_of(const struct share_row *row) {
    struct share_ops ops = row->ops;
    if (!ops.open) ops.open = do_nothing;
    if (!ops.close) ops.close = close_nothing;
    if (!ops.start) ops.start = start_as_planned;
    if (!ops.buffers) ops.buffers = buffers_as_planned;
    if (!ops.leave) ops.leave = leave_as_planned;
    if (!ops.land) ops.land = land_as_planned;
    if (!ops.update) ops.update = update_as_planned;
    if (!ops.collect) ops.collect = do_nothing;
    if (!ops.spread) ops.spread = spread_as_planned;
    if (!ops.gather) ops.gather = do_nothing;
    if (!ops.settle) ops.settle = do_nothing;
    if (!ops.stats) ops.stats = add_nothing;
    if (!ops.describe) ops.describe = say_nothing;
    return ops;
}
