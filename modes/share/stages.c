/* Stages: a rank has a part of the model, and its micro-batches pass through the ranks with the other parts (the essay:
 * modes/pipeline.c). Which forwards come before which backwards follows from how many come before the first one
 * (standing.ahead); a pass asks for its input when it begins, and gives away its output when it ends (graph_ends).
 *
 * A rank adds the gradients of its micro-batches as any rank adds those of its shards; where there are several copies of
 * the network, the ranks with the same stage add theirs along the same tree. Each updates its part. What depends on the
 * whole gradient (its norm, the norms of tensors) each measures of its part, and they tell each other; a block of the
 * norm that reaches from one part into the next is first brought together on the rank of the earlier layers. */
#include "modes/share/stages.h"
#include "engine/settings/run_config.h"

#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/settings/resolve.h"

#include <stdio.h>
#include <string.h>

static struct stages *stages_of(const struct mode *m) {
    return (struct stages *)m->share;
}

static bool is_last(const struct stages *s) {
    return s->stage == s->count - 1;
}

int stages_user(const struct stages *s, int param, int step) {
    const struct model *m = s->m->t->model;
    for (int k = s->stage + step; k >= 0 && k < s->count; k += step)
        if (model_uses(m, s->part[k].from, s->part[k].to, param)) return k;
    return -1;
}

/* ---- opening ---- */

static enum error make_parts(struct stages *s) {
    int first[RUN_DEVICES_MAX + 1] = {0};
    TRY_MEMORY(s->part = memory_new((size_t)s->count * sizeof *s->part));
    TRY(stages_cut(s->m, s->count, first, &s->how));
    for (int k = 0; k < s->count; k++) s->part[k] = model_part(s->m->t->model, first[k], first[k + 1]);
    return ERR_NONE;
}

/* The buckets of the whole arena, of which this part's range is left. */
static enum error make_buckets(struct stages *s) {
    struct buckets *b = &s->buckets;
    int count = 0;
    TRY(buckets_init(b, s->m->t->model, &s->m->how->cut));
    b->edge[0] = s->own.begin;
    for (int i = 1; i <= b->count; i++)
        if (b->edge[i] > s->own.begin && b->edge[i] < s->own.end) b->edge[++count] = b->edge[i];
    if (s->own.end > s->own.begin) b->edge[++count] = s->own.end;
    b->count = s->peers ? count : 0;
    return ERR_NONE;
}

static void take_standing(struct stages *s) {
    struct standing *to = s->m->standing;
    to->part = &s->part[s->stage];
    to->ends = &s->ends;
    to->ahead = s->m->how->ahead ? INT64_MAX : s->count - 1 - s->stage;
    to->run = s->copy;
    to->runs = s->copies;
    to->slices = &s->own;
    to->nslices = s->own.end > s->own.begin;
    to->owns_state = to->nslices > 0;
}

static enum error stages_open(struct mode *m) {
    TRY_MEMORY(m->share = memory_new(sizeof(struct stages)));
    struct stages *s = stages_of(m);
    int ranks = m->standing->ranks, rank = m->t->rank;
    *s = (struct stages){.m = m, .count = m->how->stages, .copies = ranks / m->how->stages};
    s->stage = rank % s->count;
    s->copy = rank / s->count;
    if (m->standing->worker != rank)
        return FAIL(ERR_CONFIG, "mode pipeline: ranks that follow each other must be on one host or on the next one");
    TRY(make_parts(s));
    s->own = (struct slice){s->part[s->stage].begin, s->part[s->stage].end, 0};
    if (s->copies > 1) TRY(group_split(m->team.group, s->stage, s->copy, &m->team.peers));
    s->peers = m->team.peers;
    TRY(make_buckets(s));
    TRY(relay_open(s));
    m->cut = &s->buckets;
    size_t blocks = (size_t)(m->t->model->arena_floats / NORM_BLOCK + 1), told = HEADER_FLOATS + blocks;
    TRY_MEMORY(s->told = memory_new(told * sizeof *s->told + (size_t)s->count * NORM_BLOCK * sizeof *s->border));
    s->border = (float *)(void *)(s->told + told);
    take_standing(s);
    return ERR_NONE;
}

static void stages_close(struct mode *m) {
    struct stages *s = stages_of(m);
    if (!s) return;
    relay_close(s->relay);
    memory_free(s->part);
    memory_free(s->told);
    buckets_fini(&s->buckets);
    memory_free(s);
}

/* "3 stages by the measured times of layers: flatten1, linear2, relu2; 2 copies; 1f1b, 4 micro-batches, of each step
 * 33 % waiting" */
static void stages_describe(const struct mode *m, char *line, size_t size) {
    const struct stages *s = stages_of(m);
    const struct batch_config *b = &m->t->config->batch;
    int64_t passes = leaves_cut((int)b->shards, s->copies, 1) * b->accumulate;
    text_append(line, size, "; %d stages %s:", s->count, s->how);
    for (int k = 0; k < s->count; k++)
        text_append(line, size, "%s %s", k ? "," : "", m->t->model->nodes[s->part[k].from].name);
    text_append(line, size, "; %s, %lld micro-batches, bubble %.3g %%", m->how->ahead ? "gpipe" : "1f1b",
                (long long)passes, 100 * sharing_bubble(s->count, passes));
}

/* ---- a step ---- */

static enum error stages_leave(struct mode *m, int b) {
    const struct span bucket = share_bucket(m, m->t->arena.grads[0], b);
    struct dispatch how;
    TRY(step_send(m, LABEL_GRADIENTS(b), &how));
    how.apart = m->t->arena.apart;
    return group_all_reduce(stages_of(m)->peers, how, bucket.arena + bucket.begin, bucket.end - bucket.begin, DTYPE_F32,
                            REDOP_SUM);
}

/* Of the norm's block in which a stage's part begins. */
static int64_t block_begin(const struct stages *s, int stage) {
    return s->part[stage].begin / NORM_BLOCK * NORM_BLOCK;
}

/* Brings the begin of the block in which this part begins, which later parts have. */
static enum error share_borders(struct stages *s) {
    struct trainer *t = s->m->t;
    float *g = t->arena.grads[0];
    int64_t n = (int64_t)(s->count - 1) * NORM_BLOCK;
    memset(s->border, 0, (size_t)n * sizeof *s->border);
    for (int k = 0; k + 1 < s->count && s->copy == 0; k++) {
        int64_t low = block_begin(s, k), from = s->own.begin > low ? s->own.begin : low,
                to = s->own.end < s->part[k].begin ? s->own.end : s->part[k].begin;
        if (to > from) memcpy(s->border + k * NORM_BLOCK + (from - low), g + from, (size_t)(to - from) * sizeof *g);
    }
    TRY(group_all_reduce(s->m->team.group, GROUP_INLINE, s->border, n, DTYPE_F32, REDOP_SUM));
    int64_t low = block_begin(s, s->stage);
    if (!is_last(s)) memcpy(g + low, s->border + s->stage * NORM_BLOCK, (size_t)(s->own.begin - low) * sizeof *g);
    return ERR_NONE;
}

/* The sums of the step, which the last stage has, and the partial sums of squares, which each has of its part: all are
 * told by the first copy, and exact, since everybody else adds zero. Any rank may want to end. */
static enum error share_sums(struct stages *s) {
    struct trainer *t = s->m->t;
    int64_t blocks = trainer_norm_blocks(t);
    const struct step_sums *own = &t->sums;
    double *v = s->told, *partials = v + HEADER_FLOATS;
    memset(v, 0, (size_t)(HEADER_FLOATS + blocks) * sizeof *v);
    if (s->copy == 0 && is_last(s))
        v[HEADER_LOSS] = (double)own->loss, v[HEADER_CORRECT] = (double)own->correct,
        v[HEADER_SAMPLES] = (double)own->samples, v[HEADER_STOP] = own->stop;
    v[HEADER_STOP] += trainer_wants_end(t);
    if (s->copy == 0 && blocks) memcpy(partials, t->measured.partials, (size_t)blocks * sizeof *v);
    TRY(team_sum(&s->m->team, v, (int)(HEADER_FLOATS + blocks)));
    const struct step_sums sums = {(float)v[HEADER_LOSS], (float)v[HEADER_CORRECT], (float)v[HEADER_SAMPLES],
                                   v[HEADER_STOP] > 0, false};
    trainer_set_sums(t, &sums);
    if (blocks) memcpy(t->measured.partials, partials, (size_t)blocks * sizeof *v);
    return ERR_NONE;
}

static enum error share_squares(struct stages *s) {
    struct trainer *t = s->m->t;
    if (t->measured.nsquares == 0) return ERR_NONE;
    if (s->copy > 0) memset(t->measured.squares, 0, (size_t)t->measured.nsquares * sizeof *t->measured.squares);
    return team_sum(&s->m->team, t->measured.squares, (int)t->measured.nsquares);
}

static enum error stages_update(struct mode *m) {
    struct stages *s = stages_of(m);
    struct trainer *t = m->t;
    int64_t mark = clock_ns();
    mode_note(m, "update", t->at.step);
    stages_give_back(s);
    if (is_last(s)) TRY(trainer_take_sums(t));
    if (trainer_norm_blocks(t)) TRY(share_borders(s));
    TRY(trainer_norm(t));
    TRY(share_sums(s));
    trainer_phase(t, PHASE_COMM, &mark);
    TRY(trainer_measure(t));
    TRY(share_squares(s));
    if (m->standing->nslices) TRY(trainer_update(t, 0));
    trainer_phase(t, PHASE_UPDATE, &mark);
    TRY(stages_lend(s, t->arena.values));
    trainer_phase(t, PHASE_COMM, &mark);
    s->stepped_ns += clock_ns() - m->began;
    return ERR_NONE;
}

static enum error stages_spread(struct mode *m) {
    return stages_lend(stages_of(m), m->t->arena.average);
}

static enum error stages_settle(struct mode *m) {
    return relay_settle(stages_of(m)->relay);
}

static enum error stages_stats(struct mode *m, struct mode_stats *out) {
    const struct stages *s = stages_of(m);
    out->stepped_ns = s->stepped_ns;
    out->waited_ns = relay_waited(s->relay);
    return ERR_NONE;
}

const struct share_row share_stages = {.plan = {.nbefore = 1,
                                                .before = {{MOVE_ALL_REDUCE, .doing = "all-reduce of the copies"}},
                                                .update = UPDATE_BY_OWNERS,
                                                .lean = true,
                                                .staged = true},
                                       .subtrees = true,
                                       .ops = {.open = stages_open,
                                               .close = stages_close,
                                               .start = stages_start,
                                               .buffers = stages_buffers,
                                               .leave = stages_leave,
                                               .update = stages_update,
                                               .collect = stages_collect,
                                               .gather = stages_gather,
                                               .spread = stages_spread,
                                               .settle = stages_settle,
                                               .stats = stages_stats,
                                               .describe = stages_describe}};
