/* Slices: ranks step the optimizer on parts of the arena, each its own, and keep the state of these parts
 * alone. Where all ranks do, it is the first stage of ZeRO (arXiv:1910.02054): ddp's optimizer.shard and dp's
 * server: sharded. Where some do, they are the parameter servers of mode ps, and the others have empty parts.
 *
 *   gradients   reduce_scatter   every owner has the sum of its parts, one of each bucket
 *   update      of these parts
 *   weights     all_gather       every rank has them all again, each layer's before the next forward computes with them
 *
 * Where nothing of a bucket's update depends on the other buckets (no clipping), servers apart do all three bucket by bucket
 * (sharing.streams), so that a port sends weights of some buckets while it still receives gradients of others.
 *
 * An all-reduce is just these two exchanges, so where all ranks are owners the bytes are the same; the state of the
 * optimizer is 1/W of it on each rank, and so is the work of a step. Of W workers and k servers apart, each worker
 * sends and receives K bytes, and each server W K / k. Parts are whole blocks of the norm, and
 * whatever is measured of several parts is added in the order of the arena: the bits are those of
 * one rank that steps all. */
#include "modes/share/share.h"

#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/settings/resolve.h"
#include "engine/train/stop.h"
#include "modes/ahead.h"

#include <stdio.h>
#include <string.h>

struct share {
    struct trainer *t;
    struct group *group;
    struct buckets buckets; /* ends at multiples of NORM_BLOCK */
    int64_t *part;          /* of bucket b rank r has [part(b)[r], part(b)[r + 1]) of the arena */
    struct slice *own;      /* of each bucket this rank's part: the trainer's slices */
};

static int64_t *part(const struct share *s, int b) {
    return s->part + (int64_t)b * (s->t->standing.ranks + 1);
}

/* Cuts bucket b among the owners. Blocks that are left over go to those who have the fewest so far: has is (ranks). */
static void cut_bucket(struct share *s, const struct sharing *how, int b, int64_t *has) {
    int size = s->t->standing.ranks, owners = sharing_owners(how, size);
    int64_t begin = s->buckets.edge[b], end = s->buckets.edge[b + 1], *to = part(s, b), *give = to + 1;
    int64_t blocks = (end - begin + NORM_BLOCK - 1) / NORM_BLOCK;
    for (int i = 0; i < owners; i++) {
        int r = sharing_owner(how, size, i);
        has[r] += give[r] = blocks / owners;
    }
    for (int64_t left = blocks % owners; left > 0; left--) {
        int least = sharing_owner(how, size, 0);
        for (int i = 1; i < owners; i++) {
            int r = sharing_owner(how, size, i);
            if (has[r] < has[least]) least = r;
        }
        give[least]++, has[least]++;
    }
    to[0] = begin;
    for (int r = 0; r < size; r++) { /* a number of blocks becomes an end */
        to[r + 1] = to[r] + give[r] * NORM_BLOCK;
        if (to[r + 1] > end) to[r + 1] = end;
    }
}

enum error slices_open(struct mode *m) {
    int64_t at = 0;
    struct trainer *t = m->t;
    struct share *s = m->share = memory_new(sizeof *s);
    if (!s) return ERR_MEMORY;
    *s = (struct share){.t = t, .group = m->team.group};
    TRY(buckets_init(&s->buckets, t->model, &m->how->cut));
    buckets_align(&s->buckets, NORM_BLOCK);
    m->cut = &s->buckets;
    size_t n = (size_t)s->buckets.count;
    TRY_MEMORY(m->part = s->part = memory_new(n * (size_t)(t->standing.ranks + 1) * sizeof *s->part));
    TRY_MEMORY(s->own = memory_new(n * sizeof *s->own));
    int64_t *room = memory_new((size_t)t->standing.ranks * sizeof *room);
    if (!room) return ERR_MEMORY;
    for (int b = 0; b < s->buckets.count; b++) {
        cut_bucket(s, m->how, b, room);
        s->own[b] = (struct slice){part(s, b)[t->rank], part(s, b)[t->rank + 1], at};
        at += s->own[b].end - s->own[b].begin;
    }
    memory_free(room);
    m->standing->slices = s->own;
    m->standing->nslices = s->buckets.count;
    return ahead_open(m, &m->ahead);
}

void slices_close(struct mode *m) {
    struct share *s = m->share;
    if (!s) return;
    ahead_close(m->ahead);
    buckets_fini(&s->buckets);
    memory_free(s->part);
    memory_free(s->own);
    memory_free(s);
}

void slices_describe(const struct mode *m, char *line, size_t size) {
    char each[32];
    const struct share *s = m->share;
    const struct slice *last = &s->own[s->buckets.count - 1];
    int64_t floats = (last->at + last->end - last->begin) * s->t->arena.nslots;
    if (*m->how->title) return; /* which says it already */
    text_append(line, size, ", optimizer state in %d slices of %s", s->t->standing.ranks,
                text_of_bytes((double)floats * sizeof(float), each));
}

/* ---- a step ---- */

/* What each rank has measured of its own parts, zero elsewhere: the sum is exact. */
static enum error slices_sum(struct share *s, double *v, int64_t n, int64_t *mark) {
    if (n == 0) return ERR_NONE;
    trainer_phase(s->t, PHASE_UPDATE, mark);
    TRY(group_all_reduce(s->group, GROUP_INLINE, v, n, DTYPE_F64, REDOP_SUM));
    trainer_phase(s->t, PHASE_COMM, mark);
    return ERR_NONE;
}

static enum error slices_land(struct mode *m) {
    return m->how->streams ? ERR_NONE : step_land(m);
}

/* Takes the step's sums, on the rank whose part has the header: rank 0. The other servers, which give nothing to sums,
 * tell it whether they are asked to stop. */
static enum error slices_take_sums(struct mode *m) {
    struct share *s = m->share;
    struct trainer *t = m->t;
    float asked = stop_signal() != 0, asks = 0;
    if (t->rank > 0 && t->rank < m->how->servers) return group_send(s->group, GROUP_INLINE, &asked, 1, DTYPE_F32, 0);
    if (t->rank > 0) return ERR_NONE;
    TRY(trainer_take_sums(t));
    struct step_sums sums = t->sums;
    for (int r = 1; r < m->how->servers; r++) {
        TRY(group_recv(s->group, GROUP_INLINE, &asks, 1, DTYPE_F32, r));
        sums.stop |= asks > 0;
    }
    trainer_set_sums(t, &sums);
    return ERR_NONE;
}

/* Bucket by bucket: its weights travel while the gradients of those after it do, the other way through each port. */
static enum error slices_stream(struct mode *m) {
    struct share *s = m->share;
    struct trainer *t = m->t;
    int64_t mark = clock_ns();
    int changed = buckets_before(&s->buckets, t->tensors.upto);
    mode_note(m, "update, bucket by bucket", t->at.step);
    for (int b = 0; b < changed; b++) {
        const struct span bucket = share_bucket(m, t->arena.values, b);
        struct dispatch how = {.lane = LANE_INLINE, .label = LABEL_WEIGHTS(b), .givers = b > 0};
        TRY(flight_wait(&m->flight, changed - b - 1));
        trainer_phase(t, PHASE_COMM, &mark);
        if (b == 0) TRY(slices_take_sums(m));
        if (b == 0) TRY(trainer_measure(t));
        if (b == 0 && t->rank == 0) TRY(trainer_put_sums(t));
        TRY(trainer_update(t, b));
        trainer_phase(t, PHASE_UPDATE, &mark);
        TRY(share_move(m, m->how->plan.after[0].by, &bucket, how));
        trainer_phase(t, PHASE_COMM, &mark);
    }
    return trainer_get_sums(t);
}

/* The sums of the step, which rank 0 has, for all; the weights come when they are needed. */
static enum error slices_tell_sums(struct mode *m) {
    struct trainer *t = m->t;
    if (t->rank == 0) TRY(trainer_put_sums(t));
    TRY(group_broadcast(m->team.group, GROUP_INLINE, t->arena.values, HEADER_FLOATS, DTYPE_F32, 0));
    return trainer_get_sums(t);
}

/* The weights of a bucket travel while the next is updated, those that forward needs first before all others. */
enum error slices_update(struct mode *m) {
    if (m->how->streams) return slices_stream(m);
    struct share *s = m->share;
    struct trainer *t = m->t;
    int64_t mark = clock_ns(), blocks = trainer_norm_blocks(t);
    int changed = buckets_before(&s->buckets, t->tensors.upto);
    mode_note(m, "update", t->at.step);
    TRY(ahead_settle(m->ahead)); /* of the step before */
    trainer_phase(t, PHASE_COMM, &mark);
    TRY(slices_take_sums(m));
    TRY(trainer_norm(t));
    TRY(slices_sum(s, t->measured.partials, blocks, &mark));
    TRY(trainer_measure(t));
    TRY(slices_sum(s, t->measured.squares, t->measured.nsquares, &mark));
    trainer_phase(t, PHASE_UPDATE, &mark);
    TRY(slices_tell_sums(m));
    trainer_phase(t, PHASE_COMM, &mark);
    for (int i = 0; i < s->buckets.count; i++) {
        int b = ahead_order(m->ahead)[i];
        if (b >= changed) continue;
        TRY(trainer_update(t, b));
        trainer_phase(t, PHASE_UPDATE, &mark);
        TRY(ahead_updated(m->ahead, b));
        trainer_phase(t, PHASE_COMM, &mark);
    }
    TRY(ahead_began(m->ahead));
    trainer_phase(t, PHASE_COMM, &mark);
    return ERR_NONE;
}

/* ---- the state, whole on rank 0 for a checkpoint ---- */

/* Of slot i, between rank r's slice of bucket b and its place in the whole. */
static enum error move_slice(struct share *s, int i, int r, int b, bool collect) {
    struct trainer *t = s->t;
    int64_t begin = part(s, b)[r], n = part(s, b)[r + 1] - begin;
    float *mine = t->arena.slots[i] + s->own[b].at, *there = t->arena.whole[i] ? t->arena.whole[i] + begin : NULL;
    if (n == 0) return ERR_NONE;
    if (t->rank == 0 && r == 0)
        return collect ? device_read(t->device, there, mine, (size_t)n * sizeof *mine)
                       : device_write(t->device, mine, there, (size_t)n * sizeof *mine);
    bool sends = collect == (t->rank == r);
    float *buf = t->rank == r ? mine : there;
    int peer = t->rank == r ? 0 : r;
    return sends ? group_send(s->group, GROUP_INLINE, buf, n, DTYPE_F32, peer)
                 : group_recv(s->group, GROUP_INLINE, buf, n, DTYPE_F32, peer);
}

static enum error move_all(struct share *s, bool collect) {
    for (int i = 0; i < s->t->arena.nslots; i++)
        for (int r = 0; r < s->t->standing.ranks; r++)
            for (int b = 0; b < s->buckets.count; b++)
                if (s->t->rank == 0 || s->t->rank == r) TRY(move_slice(s, i, r, b, collect));
    return ERR_NONE;
}

enum error slices_start(struct mode *m) {
    struct share *s = m->share;
    double there = s->t->arena.whole[0] != NULL;
    TRY(group_all_reduce(s->group, GROUP_INLINE, &there, 1, DTYPE_F64, REDOP_SUM));
    return there > 0 ? move_all(s, false) : ERR_NONE;
}

enum error slices_collect(struct mode *m) {
    return move_all(m->share, true);
}

/* Servers that compute nothing have received no weights but their own. */
enum error slices_spread(struct mode *m) {
    struct share *s = m->share;
    TRY(ahead_settle(m->ahead));
    float *arena[] = {s->t->arena.average, m->how->servers ? s->t->arena.values : NULL};
    for (int i = 0; i < 2; i++)
        for (int b = 0; arena[i] && b < s->buckets.count; b++)
            TRY(group_all_gather(s->group, GROUP_INLINE, arena[i], part(s, b), DTYPE_F32));
    return ERR_NONE;
}

enum error slices_settle(struct mode *m) {
    return ahead_settle(m->ahead);
}

enum error slices_stats(struct mode *m, struct mode_stats *out) {
    (void)out;
    return ahead_land(m->ahead);
}

static void slices_check(struct resolve *r) {
    enum place_kind place = r->c->sharing.place;
    resolve_clash(r, r->c->optimizer.shard && place != PLACE_PROCESSES, "optimizer.shard",
                  place == PLACE_THREADS ? "'optimizer.shard' is for mode ddp, but mode is '{mode}' ({at mode})\n"
                                           "in mode dp that is dp.server: sharded"
                                         : "'optimizer.shard' is for mode ddp, but mode is '{mode}' ({at mode})\n"
                                           "one device has nobody to share the optimizer with");
}

const struct share_row share_slices = {.plan = {.nbefore = 1,
                                                .before = {{MOVE_REDUCE_SCATTER, .doing = ""}},
                                                .update = UPDATE_BY_OWNERS,
                                                .nafter = 1,
                                                .after = {{MOVE_ALL_GATHER, .end = BEFORE_LAYER, .doing = ""}}},
                                       .subtrees = true,
                                       .check = slices_check,
                                       .ops = {.open = slices_open,
                                               .close = slices_close,
                                               .start = slices_start,
                                               .land = slices_land,
                                               .update = slices_update,
                                               .collect = slices_collect,
                                               .spread = slices_spread,
                                               .settle = slices_settle,
                                               .stats = slices_stats,
                                               .describe = slices_describe}};
