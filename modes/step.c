/* The step, the same in every mode: compute; let each bucket of gradients leave when backward has
 * made it final; when all have become sums, update; have the weights where they are needed.
 *
 *   backward of the last layer ... of the first layer
 *        |ready                |ready               |
 *        bucket 0 full         bucket 1 full        last bucket full
 *        `- leave              `- leave             `- leave -> land -> update
 *
 * With overlap buckets leave on the communication lane, while backward computes the layers before
 * them; without it they leave one after another when it has ended. What leaving, landing and
 * updating are is the share's (share/); where the ranks are is the place's (place/). */
#include "modes/step.h"

#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/settings/run_config.h"
#include "modes/scatter.h"
#include "modes/share/share.h"
#include "modes/tries.h"

#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

/* Which of the computing devices this rank has, and which of its host's. */
static void find_standing(struct mode *m) {
    const struct trainer *t = m->t;
    const struct roster *roster = m->place->group.roster;
    struct standing *s = m->standing;
    s->ranks = m->place->group.size;
    s->workers = t->config->devices.count;
    s->worker = t->rank < m->how->servers ? -1 : t->rank - m->how->servers;
    s->run = s->worker;
    s->runs = s->workers;
    s->owns_state = t->rank == 0 || m->how->plan.update != UPDATE_BY_ROOT;
    if (roster) s->seat = roster->of[t->rank].local;
    for (int r = 0; roster && r < roster->size; r++) { /* servers, the first, have none */
        if (roster->of[r].host != roster->of[t->rank].host) continue;
        s->seats += r >= m->how->servers;
        s->seat -= r < m->how->servers;
    }
}

/* The group orders the ranks of several hosts by itself. */
static enum error join_group(struct mode *m) {
    TRY(team_open(&m->team, m->t, m->place));
    m->standing->allocator = group_allocator(m->team.group, m->how->plan.lean);
    if (m->place->group.roster && !m->how->servers)
        m->standing->worker = m->standing->run = group_position(m->team.group);
    m->standing->subtrees = m->team.subtrees && m->how->share->subtrees && !m->how->compressed;
    return buckets_init(&m->buckets, m->t->model, &m->how->cut);
}

/* The next steps have these buckets. */
static void take_cut(struct mode *m, const struct buckets *cut) {
    m->cut = cut;
    if (m->how->plan.nbefore) m->leaving = m->how->compressed ? cut->count : buckets_before(cut, m->t->tensors.upto);
    m->standing->ncuts = cut->count;
    m->standing->cuts = cut->count ? cut->edge + 1 : NULL;
}

static enum error open_tries(struct mode *m) {
    const struct tries_of of = {m->t, m->team.group, &m->place->group, m->leaving > 0};
    TRY(tries_open(&of, &m->tries));
    m->standing->cuts_most = tries_most(m->tries, m->cut->count);
    return ERR_NONE;
}

static void mode_line(struct mode *m) {
    char *line = m->team.line;
    size_t size = sizeof m->team.line;
    text_append(line, size, "%s%s, %d bucket%s%s", *m->how->title ? ", " : "", m->how->title, m->cut->count,
                m->cut->count == 1 ? "" : "s",
                !m->leaving       ? ""
                : m->how->overlap ? ", overlap on"
                                  : ", overlap off");
    m->ops.describe(m, line, size);
}

static enum error mode_open(struct trainer *t, struct standing *standing, struct mode **out) {
    struct mode *m = *out = memory_new(sizeof *m);
    if (!m) return ERR_MEMORY;
    *m = (struct mode){
        .t = t, .standing = standing, .how = &t->config->sharing, .place = t->place ? t->place : &place_alone};
    m->ops = share_ops_of(m->how->compressed ? &share_compressed : m->how->share);
    m->lane = m->how->overlap ? LANE_COMM : LANE_INLINE;
    find_standing(m);
    TRY(trainer_open_device(t));
    m->cut = &m->buckets;
    if (m->how->place != PLACE_ALONE) TRY(join_group(m));
    TRY(m->ops.open(m));
    take_cut(m, m->cut);
    mode_line(m);
    return open_tries(m);
}

/* ---- one step ---- */

static enum error let_leave(struct mode *m, int64_t upto) {
    while (m->left < m->leaving && m->cut->edge[m->left + 1] <= upto) TRY(m->ops.leave(m, m->left++));
    return ERR_NONE;
}

/* Called by backward when the gradients below 'upto' are final. */
static enum error gradients_ready(void *user, int64_t upto) {
    struct mode *m = user;
    bool backward;
    char doing[64];
    snprintf(doing, sizeof doing, "backward of %s", graph_where(m->t->graph, &backward));
    mode_note(m, doing, m->t->at.step);
    return let_leave(m, upto);
}

/* A rank computes in one of these ways, in every step. */
static enum error compute_beside(struct mode *m) {
    mode_note(m, "forward", m->t->at.step);
    return trainer_compute(m->t, gradients_ready, m);
}

static enum error first_compute(struct mode *m) {
    mode_note(m, "forward and backward", m->t->at.step);
    return trainer_compute(m->t, NULL, NULL);
}

static enum error compute_nothing(struct mode *m) {
    (void)m;
    return ERR_NONE;
}

static enum error serve_samples(struct mode *m) {
    return scatter_serve(m->scatter);
}

static enum error mode_start(struct mode *m) {
    if (!m->standing->part) TRY(team_share_start(&m->team, m->t));
    TRY(m->ops.start(m));
    if (m->how->brought) TRY(scatter_open(m->t, m->team.group, &m->scatter));
    if (m->standing->worker < 0)
        m->compute = m->scatter ? serve_samples : compute_nothing;
    else
        m->compute = m->leaving && m->how->overlap ? compute_beside : first_compute;
    return ERR_NONE;
}

/* Lets the buckets leave that have not, and waits until this rank's gradients are the sums of all ranks. */
static enum error exchange_gradients(struct mode *m) {
    int64_t mark = clock_ns();
    TRY(let_leave(m, INT64_MAX));
    TRY(m->ops.land(m));
    trainer_phase(m->t, PHASE_COMM, &mark);
    return ERR_NONE;
}

static enum error mode_run(struct mode *m, struct learned *out) {
    m->began = clock_ns();
    m->left = m->taken = 0;
    m->learned = (struct learned){&m->t->sums, 1};
    TRY(m->compute(m));
    TRY(exchange_gradients(m));
    TRY(m->ops.update(m));
    *out = m->learned;
    return ERR_NONE;
}

static enum error mode_bring(struct mode *m, const struct step_batch **out) {
    return scatter_next(m->scatter, out);
}

enum error step_send(struct mode *m, int64_t label, struct dispatch *out) {
    *out = (struct dispatch){.lane = m->lane, .label = label};
    return flight_next(&m->flight, &out->work);
}

enum error step_land(struct mode *m) {
    return flight_land(&m->flight);
}

/* ---- between steps ---- */

static enum error mode_sum(struct mode *m, double *v, int n) {
    return team_sum(&m->team, v, n);
}

static enum error mode_share_buffers(struct mode *m) {
    return m->ops.buffers(m);
}

static enum error mode_share_average(struct mode *m) {
    return m->ops.spread(m);
}

static enum error mode_collect(struct mode *m) {
    return m->ops.collect(m);
}

static enum error mode_gather(struct mode *m) {
    return m->ops.gather(m);
}

static void mode_abort(struct mode *m, const char *reason) {
    team_abort(&m->team, reason);
}

void mode_note(struct mode *m, const char *doing, int64_t step) {
    if (m->team.group) group_note(m->team.group, doing, step);
}

/* Bytes of this rank's weights: of all, or of those that its part of the model has or borrows. */
static double arena_bytes(const struct mode *m) {
    const struct model *model = m->t->model;
    const struct model_part *part = m->standing->part;
    int64_t floats = part ? part->end - part->begin : model->arena_floats;
    for (int i = 0; part && i < model->nparams; i++)
        if (model_part_borrows(model, part, i)) floats += model->params[i].count;
    return (double)floats * sizeof(float);
}

/* What this rank holds. A running mean of the weights counts as weights. */
static enum error mode_hold(const struct mode *m, struct held *out) {
    const struct trainer *t = m->t;
    const struct buckets *b = m->cut;
    double *bytes = memory_new((size_t)(b->count + 1) * sizeof(double));
    if (!bytes) return ERR_MEMORY;
    for (int i = 0; i < b->count; i++) bytes[i] = (double)(b->edge[i + 1] - b->edge[i]) * sizeof(float);
    const struct held_ask ask = {.plan = &m->how->plan,
                                 .devices = m->standing->part ? 1 : m->standing->workers,
                                 .owners = 1,
                                 .sums = trainer_sums_held(t),
                                 .arena = arena_bytes(m),
                                 .bytes = bytes,
                                 .buckets = b->count};
    *out = held_find(&ask);
    memory_free(bytes);
    if (t->arena.average) out->of[HELD_WEIGHTS] *= 2;
    out->of[HELD_OPTIMIZER] = (double)t->arena.state_bytes;
    return ERR_NONE;
}

static enum error mode_stats(struct mode *m, struct mode_stats *out) {
    *out = (struct mode_stats){0};
    TRY(m->ops.stats(m, out));
    team_stats(&m->team, out);
    return ERR_NONE;
}

static enum error mode_watch(struct mode *m, struct trace_clock *clock) {
    TRY(m->ops.settle(m));
    return team_watch(&m->team, m->t, clock);
}

static void mode_trials(const struct mode *m, struct trials *out) {
    tries_tell(m->tries, out);
}

static void mode_take(struct mode *m, enum tunable what, int i) {
    struct trials trials;
    tries_tell(m->tries, &trials);
    if (what == TUNABLE_BUCKET)
        take_cut(m, tries_cut(m->tries, i));
    else
        group_use(m->team.group, trials.name[what][i]);
}

static const char *mode_describe(struct mode *m) {
    return m->team.line;
}

static void mode_close(struct mode *m) {
    team_close(&m->team); /* first: what is in flight when a run fails uses what the others own */
    scatter_close(m->scatter);
    m->ops.close(m);
    tries_close(m->tries);
    buckets_fini(&m->buckets);
    memory_free(m);
}

const struct step_ops mode_step = {.open = mode_open,
                                   .start = mode_start,
                                   .run = mode_run,
                                   .bring = mode_bring,
                                   .sum = mode_sum,
                                   .share_buffers = mode_share_buffers,
                                   .share_average = mode_share_average,
                                   .collect = mode_collect,
                                   .gather = mode_gather,
                                   .abort = mode_abort,
                                   .note = mode_note,
                                   .stats = mode_stats,
                                   .hold = mode_hold,
                                   .watch = mode_watch,
                                   .trials = mode_trials,
                                   .take = mode_take,
                                   .describe = mode_describe,
                                   .close = mode_close};
