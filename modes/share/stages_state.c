/* What lies in parts on the ranks of a pipeline: given to them when a run begins, and brought together on rank 0 for a
 * checkpoint. The first copy of the network does so, and gives the others what it has. */
#include "modes/share/stages.h"

#include "engine/model/state.h"

#include <string.h>

/* n floats of stage k, between its rank, where they lie at 'own', and rank 0, where they lie at 'whole'. */
static enum error move_floats(struct stages *s, int k, float *own, float *whole, int64_t n, bool collect) {
    int rank = s->m->t->rank;
    if (n == 0 || (rank != 0 && rank != k)) return ERR_NONE;
    if (k == 0) {
        if (own != whole) memcpy(collect ? whole : own, collect ? own : whole, (size_t)n * sizeof *own);
        return ERR_NONE;
    }
    bool sends = collect == (rank == k);
    float *buf = rank == k ? own : whole;
    int peer = rank == k ? 0 : k;
    return sends ? group_send(s->m->team.group, GROUP_INLINE, buf, n, DTYPE_F32, peer)
                 : group_recv(s->m->team.group, GROUP_INLINE, buf, n, DTYPE_F32, peer);
}

/* Every stage's own range of an arena, which is where it is in the whole. */
static enum error move_values(struct stages *s, float *arena, bool collect) {
    for (int k = 0; k < s->count && arena; k++) {
        float *at = arena + s->part[k].begin;
        TRY(move_floats(s, k, at, at, s->part[k].end - s->part[k].begin, collect));
    }
    return ERR_NONE;
}

/* A slot of the optimizer holds what the stage's slice has. */
static enum error move_slots(struct stages *s, bool collect) {
    struct trainer *t = s->m->t;
    for (int i = 0; i < t->arena.nslots; i++)
        for (int k = 0; k < s->count; k++) {
            const struct model_part *p = &s->part[k];
            int64_t begin = state_place(t->model, t->optim, i, p->begin);
            TRY(move_floats(s, k, t->arena.slots[i], t->arena.whole[i] + begin,
                            state_place(t->model, t->optim, i, p->end) - begin, collect));
        }
    return ERR_NONE;
}

/* The other copies of this stage receive what the first has. */
static enum error copy_floats(struct stages *s, float *v, int64_t n) {
    return s->peers && n ? group_broadcast(s->peers, GROUP_INLINE, v, n, DTYPE_F32, 0) : ERR_NONE;
}

static int owner_of(const struct stages *s, int param) {
    int owner = 0;
    while (s->part[owner].params <= param || s->part[owner].param > param) owner++;
    return owner;
}

enum error stages_lend(struct stages *s, float *arena) {
    const struct model *m = s->m->t->model;
    for (int i = 0; i < m->nparams && arena; i++)
        for (int k = 1; k < s->count; k++) {
            if (!model_part_borrows(m, &s->part[k], i)) continue;
            float *at = arena + m->params[i].offset;
            int owner = owner_of(s, i);
            if (s->stage == owner)
                TRY(group_send(s->m->team.group, GROUP_INLINE, at, m->params[i].count, DTYPE_F32, stages_rank(s, k)));
            if (s->stage == k)
                TRY(group_recv(s->m->team.group, GROUP_INLINE, at, m->params[i].count, DTYPE_F32,
                               stages_rank(s, owner)));
        }
    return ERR_NONE;
}

/* Rank 0 has no more than its own stage. */
static void give_back(float *arena, const struct stages *s) {
    if (!arena || s->m->t->rank > 0) return;
    share_release(arena, 0, s->own.begin);
    share_release(arena, s->own.end, s->m->t->model->arena_floats);
}

void stages_give_back(struct stages *s) {
    if (!s->whole) return;
    s->whole = false;
    give_back(s->m->t->arena.values, s);
    give_back(s->m->t->arena.average, s);
}

static enum error start_arena(struct stages *s, float *arena) {
    if (!arena) return ERR_NONE;
    TRY(move_values(s, arena, false));
    TRY(copy_floats(s, arena + s->own.begin, s->own.end - s->own.begin));
    return stages_lend(s, arena);
}

/* Rank 0 has the state of a checkpoint, or there is none yet. */
enum error stages_start(struct mode *m) {
    struct stages *s = (struct stages *)m->share;
    struct trainer *t = m->t;
    double there = t->arena.whole[0] != NULL;
    TRY(start_arena(s, t->arena.values));
    TRY(start_arena(s, t->arena.average));
    s->whole = true;
    TRY(team_share_buffers(&m->team, t, 0));
    TRY(team_sum(&m->team, &there, 1));
    if (there <= 0) return ERR_NONE;
    TRY(move_slots(s, false));
    for (int i = 0; i < t->arena.nslots; i++)
        TRY(copy_floats(s, t->arena.slots[i],
                        state_place(t->model, t->optim, i, s->own.end) -
                            state_place(t->model, t->optim, i, s->own.begin)));
    return ERR_NONE;
}

enum error stages_collect(struct mode *m) {
    return move_slots((struct stages *)m->share, true);
}

enum error stages_gather(struct mode *m) {
    struct stages *s = (struct stages *)m->share;
    s->whole = true;
    TRY(move_values(s, m->t->arena.values, true));
    return move_values(s, m->t->arena.average, true);
}

/* Each stage's buffers are those of its first copy, which computes shard 0. */
enum error stages_buffers(struct mode *m) {
    struct stages *s = (struct stages *)m->share;
    for (int k = 0; k < s->count; k++) {
        const int64_t *range = s->part[k].buffers;
        if (range[1] > range[0])
            TRY(group_broadcast(m->team.group, GROUP_INLINE, m->t->arena.buffers + range[0], range[1] - range[0],
                                DTYPE_F32, k));
    }
    return ERR_NONE;
}
