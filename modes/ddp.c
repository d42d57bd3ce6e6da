/* ddp: distributed data parallel. One process a device, each with weights and an optimizer of its
 * own. Gradients are summed over the processes in buckets, while backward still computes the layers
 * before them, and every process makes the same update:
 *
 *   backward of the last layer ... of the first layer
 *        |grad_ready       |grad_ready            |
 *        bucket 0 full     bucket 1 full          last bucket
 *        `- all-reduce     `- all-reduce          `- all-reduce -> wait for all -> update
 *           on the communication lane, in bucket order on every rank
 *
 * Bytes: every rank sends and receives 2(W-1)/W of the gradients, however many ranks there are;
 * only the number of messages grows with W. The weights never travel after the start: equal sums
 * and equal optimizers keep them equal.
 *
 * With ddp.sync ranks step alone and average their weights now and then: see local.h.
 * With optimizer.shard a bucket is reduce-scattered, every rank steps its own slices, and the
 * weights are gathered: see slices.h. */
#include "engine/base/clock.h"
#include "modes/bucket.h"
#include "modes/compress.h"
#include "modes/ddp_launch.h"
#include "modes/local.h"
#include "modes/slices.h"
#include "modes/team.h"

#include <stdio.h>
#include <string.h>

struct mode {
    struct trainer *t;
    struct team team;
    struct buckets buckets;
    const struct buckets *cut; /* these, or the slices' */
    int launched;              /* buckets whose all-reduce has begun, this step */
    struct flight flight;
    struct slices slices;
    bool sharded;
    struct compress *compress; /* NULL: gradients travel as they are */
    struct local *local;       /* NULL: they travel in every step */
    int64_t dense, packed;     /* bytes that gradients would have taken, and took */
};

/* Which of its host's devices this rank has. */
static void find_seat(struct trainer *t) {
    const struct roster *roster = ((const struct group_params *)t->place)->roster;
    for (int r = 0; roster && r < roster->size; r++)
        t->seats += roster->of[r].host == roster->of[t->rank].host;
    if (roster) t->seat = roster->of[t->rank].local;
}

static enum error open_buckets(struct mode *m) {
    struct trainer *t = m->t;
    const struct bucket_config *c = &t->config->ddp.bucket;
    TRY(buckets_init(&m->buckets, t->model, c->first, c->cap));
    if (m->sharded) TRY(slices_init(&m->slices, t, m->team.group, c->first, c->cap));
    TRY(compress_open(t, m->team.group, &m->buckets, &m->compress));
    TRY(local_open(t, &m->team, &m->buckets, &m->local));
    m->cut = m->sharded && !m->compress ? &m->slices.buckets : &m->buckets;
    t->cuts = m->cut->edge + 1;
    t->ncuts = m->cut->count;
    return ERR_NONE;
}

static void describe(struct mode *m) {
    struct team *team = &m->team;
    size_t used = strlen(team->line);
    snprintf(team->line + used, sizeof team->line - used, ", %d bucket%s%s", m->cut->count,
             m->cut->count == 1 ? "" : "s",
             m->local                    ? ""
             : m->t->config->ddp.overlap ? ", overlap on"
                                         : ", overlap off");
    used = strlen(team->line);
    if (m->local) local_describe(m->local, team->line + used, sizeof team->line - used);
    if (m->compress)
        used += (size_t)snprintf(team->line + used, sizeof team->line - used,
                                 ", gradients compressed (%s)", m->compress->name);
    if (m->sharded) slices_describe(&m->slices, team->line + used, sizeof team->line - used);
}

static enum error ddp_open(struct trainer *t, struct mode **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct mode), &memory));
    struct mode *m = *out = memory;
    m->t = t;
    t->workers = t->config->devices.count;
    t->owns_state = true;
    t->worker = t->rank; /* where no roster says otherwise */
    find_seat(t);
    TRY(trainer_open_device(t));
    TRY(team_open(&m->team, t, "auto", 0));
    t->worker = group_position(m->team.group);
    m->sharded = t->config->optimizer.shard;
    TRY(open_buckets(m));
    describe(m);
    return ERR_NONE;
}

static enum error ddp_start(struct mode *m) {
    TRY(team_share_start(&m->team, m->t, !m->sharded));
    return m->sharded ? slices_start(&m->slices) : ERR_NONE;
}

/* ---- one step ---- */
static enum error launch_bucket(struct mode *m, enum lane lane) {
    int b = m->launched++;
    const int64_t *edge = m->cut->edge + b;
    struct work **work;
    if (m->compress) return compress_send(m->compress, b, lane);
    TRY(flight_next(&m->flight, &work));
    group_label(m->team.group, LABEL_GRADIENTS(b));
    if (m->sharded) return slices_reduce(&m->slices, b, lane, work);
    return group_all_reduce(m->team.group, lane, m->t->grads[0] + edge[0], edge[1] - edge[0],
                            DTYPE_F32, REDOP_SUM, work);
}

/* From backward: the gradients below 'upto' are final. Buckets leave in order, on every rank the
 * same. */
static enum error bucket_ready(void *user, int64_t upto) {
    struct mode *m = user;
    bool backward;
    char doing[64];
    snprintf(doing, sizeof doing, "backward of %s", graph_where(m->t->graph, &backward));
    group_note(m->team.group, doing, m->t->at.step);
    while (m->launched < m->cut->count && m->cut->edge[m->launched + 1] <= upto)
        TRY(launch_bucket(m, LANE_COMM));
    return ERR_NONE;
}

/* Compressed gradients: what remains to be exchanged, and the sums. */
static enum error unpack(struct mode *m) {
    enum lane lane = m->t->config->ddp.overlap ? LANE_COMM : LANE_INLINE;
    for (int b = 0; b < m->cut->count; b++) TRY(compress_turn(m->compress, b, lane));
    for (int b = 0; b < m->cut->count; b++) TRY(compress_receive(m->compress, b));
    return ERR_NONE;
}

/* Of this step's gradients. */
static void count_bytes(struct mode *m, int64_t sent_before) {
    struct mode_stats now;
    double bytes = (double)m->t->model->arena_floats * sizeof(float);
    team_stats(&m->team, &now);
    m->packed += now.sent - sent_before;
    m->dense += (int64_t)(bytes * 2 * (m->t->ranks - 1) / m->t->ranks);
}

static enum error ddp_step(struct mode *m) {
    struct trainer *t = m->t;
    struct mode_stats before;
    if (m->local) return local_step(m->local);
    team_stats(&m->team, &before);
    m->launched = 0;
    group_note(m->team.group, "forward", t->at.step);
    TRY(trainer_compute(t, t->config->ddp.overlap ? bucket_ready : NULL, m));
    int64_t mark = clock_ns();
    while (m->launched < m->cut->count) TRY(launch_bucket(m, LANE_INLINE));
    TRY(m->compress ? unpack(m) : flight_land(&m->flight));
    trainer_phase(t, PHASE_COMM, &mark);
    if (m->compress) count_bytes(m, before.sent);
    group_note(m->team.group, "update", t->at.step);
    if (m->sharded)
        return slices_update(&m->slices, t->config->ddp.overlap ? LANE_COMM : LANE_INLINE);
    TRY(trainer_update_all(t));
    trainer_phase(t, PHASE_UPDATE, &mark);
    return ERR_NONE;
}

/* ---- the rest is the group's ---- */
static enum error ddp_sum(struct mode *m, double *v, int n) {
    return team_sum(&m->team, v, n);
}

static enum error ddp_share_buffers(struct mode *m) {
    return team_share_buffers(&m->team, m->t, 0); /* shard 0 is rank 0's: position 0 */
}

static enum error ddp_collect(struct mode *m) {
    return m->sharded ? slices_collect(&m->slices) : ERR_NONE; /* else rank 0 has it all */
}

static void ddp_abort(struct mode *m, const char *reason) {
    team_abort(&m->team, reason);
}

static void ddp_note(struct mode *m, const char *doing, int64_t step) {
    group_note(m->team.group, doing, step);
}

static void ddp_stats(struct mode *m, struct mode_stats *out) {
    team_stats(&m->team, out);
    out->dense = m->dense, out->packed = m->packed;
}

static enum error ddp_watch(struct mode *m, struct trace_clock *clock) {
    return team_watch(&m->team, m->t, clock);
}

static const char *ddp_describe(struct mode *m) {
    return m->team.line;
}

static void ddp_close(struct mode *m) {
    compress_close(m->compress);
    local_close(m->local);
    team_close(&m->team);
    buckets_fini(&m->buckets);
    slices_fini(&m->slices);
    memory_free(m);
}

/* A process of its own for each rank: this is one, or starts them. */
static enum error launch(const struct job *job, int *exit_code) {
    *exit_code = 0;
    if (job->process.rank >= 0) return ddp_rank(job);
    if (job->settings->config.launched.by) return ddp_joined(job);
    return ddp_start_ranks(job, exit_code);
}

const struct mode_ops mode_ddp = {
    .name = "ddp",
    .summary = "a process a device; gradients all-reduced in buckets beside backward",
    .launch = launch,
    .open = ddp_open,
    .start = ddp_start,
    .step = ddp_step,
    .sum = ddp_sum,
    .share_buffers = ddp_share_buffers,
    .collect = ddp_collect,
    .abort = ddp_abort,
    .note = ddp_note,
    .stats = ddp_stats,
    .watch = ddp_watch,
    .describe = ddp_describe,
    .close = ddp_close,
};
