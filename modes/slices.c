#include "modes/slices.h"

#include "engine/base/clock.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

static int64_t *part(const struct slices *s, int b) {
    return s->part + (int64_t)b * (s->t->ranks + 1);
}

/* Cuts bucket b among the ranks. Blocks that are left over go to those who have the fewest so far.
 */
static void cut(struct slices *s, int b, int64_t *has) {
    int size = s->t->ranks;
    int64_t begin = s->buckets.edge[b], end = s->buckets.edge[b + 1], *to = part(s, b);
    int64_t blocks = (end - begin + NORM_BLOCK - 1) / NORM_BLOCK, give[RUN_DEVICES_MAX];
    for (int r = 0; r < size; r++) has[r] += give[r] = blocks / size;
    for (int64_t left = blocks % size; left > 0; left--) {
        int least = 0;
        for (int r = 1; r < size; r++)
            if (has[r] < has[least]) least = r;
        give[least]++, has[least]++;
    }
    to[0] = begin;
    for (int r = 0; r < size; r++) {
        to[r + 1] = to[r] + give[r] * NORM_BLOCK;
        if (to[r + 1] > end) to[r + 1] = end;
    }
}

enum error slices_init(struct slices *s, struct trainer *t, struct group *g, int64_t first,
                       int64_t cap) {
    void *memory;
    int64_t has[RUN_DEVICES_MAX] = {0}, at = 0;
    *s = (struct slices){.t = t, .group = g};
    TRY(buckets_init(&s->buckets, t->model, first, cap));
    buckets_align(&s->buckets, NORM_BLOCK);
    size_t n = (size_t)s->buckets.count;
    TRY(memory_alloc(n * (size_t)(t->ranks + 1) * sizeof *s->part, &memory));
    s->part = memory;
    TRY(memory_alloc(n * sizeof *s->own, &memory));
    s->own = memory;
    for (int b = 0; b < s->buckets.count; b++) {
        cut(s, b, has);
        s->own[b] = (struct slice){part(s, b)[t->rank], part(s, b)[t->rank + 1], at};
        at += s->own[b].end - s->own[b].begin;
    }
    t->owns_state = true;
    t->slices = s->own;
    t->nslices = s->buckets.count;
    return ERR_NONE;
}

void slices_fini(struct slices *s) {
    buckets_fini(&s->buckets);
    memory_free(s->part);
    memory_free(s->own);
}

void slices_describe(const struct slices *s, char *out, size_t size) {
    char each[32];
    const struct slice *last = &s->own[s->buckets.count - 1];
    int64_t floats = (last->at + last->end - last->begin) * s->t->optim->nslots;
    snprintf(out, size, ", optimizer state in %d slices of %s", s->t->ranks,
             text_of_bytes((double)floats * sizeof(float), each));
}

/* ---- a step ---- */

enum error slices_reduce(struct slices *s, int b, enum lane lane, struct work **out) {
    return group_reduce_scatter(s->group, lane, s->t->grads[0], part(s, b), DTYPE_F32, REDOP_SUM,
                                out);
}

/* What each rank has measured of its own parts, zero elsewhere: the sum is exact. */
static enum error exchange(struct slices *s, double *v, int64_t n, int64_t *mark) {
    if (n == 0) return ERR_NONE;
    trainer_phase(s->t, PHASE_UPDATE, mark);
    TRY(group_all_reduce(s->group, LANE_INLINE, v, n, DTYPE_F64, REDOP_SUM, NULL));
    trainer_phase(s->t, PHASE_COMM, mark);
    return ERR_NONE;
}

enum error slices_update(struct slices *s, enum lane lane) {
    struct trainer *t = s->t;
    int64_t mark = clock_ns(), blocks = trainer_norm_blocks(t);
    bool has_header = s->own[0].begin == 0 && s->own[0].end > 0;
    struct work **work;
    if (has_header) TRY(trainer_take_sums(t));
    TRY(trainer_norm(t));
    TRY(exchange(s, t->partials, blocks, &mark));
    TRY(trainer_measure(t));
    TRY(exchange(s, t->squares, t->nsquares, &mark));
    if (has_header) TRY(trainer_put_sums(t));
    for (int b = 0; b < s->buckets.count; b++) {
        TRY(trainer_update(t, b));
        trainer_phase(t, PHASE_UPDATE, &mark);
        group_label(s->group, LABEL_WEIGHTS(b));
        TRY(flight_next(&s->flight, &work));
        TRY(group_all_gather(s->group, lane, t->values, part(s, b), DTYPE_F32, work));
        trainer_phase(t, PHASE_COMM, &mark);
    }
    TRY(flight_land(&s->flight));
    TRY(trainer_get_sums(t));
    trainer_phase(t, PHASE_COMM, &mark);
    return ERR_NONE;
}

/* ---- the state, whole on rank 0 for a checkpoint ---- */

/* Of slot i, between rank r's slice of bucket b and its place in the whole. */
static enum error move_slice(struct slices *s, int i, int r, int b, bool collect) {
    struct trainer *t = s->t;
    int64_t begin = part(s, b)[r], n = part(s, b)[r + 1] - begin;
    float *mine = t->slots[i] + s->own[b].at, *there = t->whole[i] ? t->whole[i] + begin : NULL;
    if (n == 0) return ERR_NONE;
    if (t->rank == 0 && r == 0)
        return collect ? device_read(t->device, there, mine, (size_t)n * sizeof *mine)
                       : device_write(t->device, mine, there, (size_t)n * sizeof *mine);
    bool sends = collect == (t->rank == r);
    float *buf = t->rank == r ? mine : there;
    int peer = t->rank == r ? 0 : r;
    return sends ? group_send(s->group, LANE_INLINE, buf, n, DTYPE_F32, peer, NULL)
                 : group_recv(s->group, LANE_INLINE, buf, n, DTYPE_F32, peer, NULL);
}

static enum error move_all(struct slices *s, bool collect) {
    for (int i = 0; i < s->t->optim->nslots; i++)
        for (int r = 0; r < s->t->ranks; r++)
            for (int b = 0; b < s->buckets.count; b++)
                if (s->t->rank == 0 || s->t->rank == r) TRY(move_slice(s, i, r, b, collect));
    return ERR_NONE;
}

enum error slices_start(struct slices *s) {
    double there = s->t->whole[0] != NULL;
    TRY(group_all_reduce(s->group, LANE_INLINE, &there, 1, DTYPE_F64, REDOP_SUM, NULL));
    return there > 0 ? move_all(s, false) : ERR_NONE;
}

enum error slices_collect(struct slices *s) {
    return move_all(s, true);
}
