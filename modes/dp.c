/* dp: the parameter server. One process, a thread a device; one rank is the server and holds the
 * only optimizer.
 *
 *   every rank      compute its gradients
 *   gradients       -> server, which adds them            group_reduce(gradients, root), by bucket
 *   server          updates the weights
 *   weights         -> every rank                         group_broadcast(weights, root)
 *
 * With dp.overlap the gradients of a bucket leave while backward still computes the layers before it.
 *
 * Bytes through the server's port: (W-1) K in and (W-1) K out, K being the gradients' bytes: it
 * grows with W, which is what ddp is there to avoid. Four kinds of server (dp.server):
 *
 *   shared     rank 0 computes and serves
 *   dedicated  one more rank, 0, only serves
 *   sharded    every rank serves a slice of the arena: reduce_scatter, update of the slice,
 *              all_gather: ddp's bytes, spread evenly
 *   cpu        as dedicated, in the host's memory, whatever the devices are
 *
 * The samples reach the ranks directly (each loads its own) or through the server's port as well
 * (dp.scatter: server). A server that does not wait for all (dp.staleness) is async.c's. */
#include "engine/base/clock.h"
#include "modes/async.h"
#include "modes/bucket.h"
#include "modes/scatter.h"
#include "modes/slices.h"
#include "modes/team.h"
#include "transport/launch/launch.h"

#include <stdio.h>
#include <string.h>

struct mode {
    struct trainer *t;
    struct team team;
    struct buckets buckets;
    struct scatter *scatter; /* samples come through the server; else NULL */
    enum dp_server server;
    struct slices slices;      /* sharded */
    const struct buckets *cut; /* these, or the slices' */
    int launched;              /* buckets that have left, this step */
    struct flight flight;
    bool overlap;
    struct async *async; /* dp.staleness; else NULL, as is the next */
    struct mailbox *box;
};

/* ---- starting the threads ---- */
struct place {
    struct group_params group; /* first: what team_open reads */
    struct mailbox *box;
};
struct start {
    const struct job *job;
    struct place place;
};

static enum error dp_rank(void *user, int rank) {
    const struct start *s = user;
    return trainer_run(s->job, rank, (void *)(uintptr_t)&s->place); /* read only */
}

static int group_ranks(const struct run_config *c) {
    return c->devices.count + dp_serves_apart(c);
}

static enum error dp_launch(const struct job *job, int *exit_code) {
    const struct run_config *c = &job->settings->config;
    *exit_code = 0;
    int size = group_ranks(c);
    struct meeting *meeting;
    TRY(meeting_create(size, &meeting));
    struct start s = {job, {.group = {.link = "thread", .size = size, .meeting = meeting}}};
    enum error err = ERR_NONE;
    if (dp_is_asynchronous(c))
        err = mailbox_create(c->devices.count, c->comm.timeout, &s.place.box);
    if (err == ERR_NONE) err = launch_threads(size, dp_rank, &s);
    mailbox_free(s.place.box);
    meeting_free(meeting);
    return err;
}

/* A sharded server has one bucket where nothing is to leave early. */
static enum error open_buckets(struct mode *m) {
    struct trainer *t = m->t;
    const struct bucket_config *c = &t->config->ddp.bucket;
    TRY(buckets_init(&m->buckets, t->model, c->first, c->cap));
    if (m->server == SERVER_SHARDED)
        TRY(slices_init(&m->slices, t, m->team.group, m->overlap ? c->first : INT64_MAX,
                        m->overlap ? c->cap : INT64_MAX));
    m->cut = m->server == SERVER_SHARDED ? &m->slices.buckets : &m->buckets;
    t->cuts = m->cut->edge + 1;
    t->ncuts = m->cut->count;
    return ERR_NONE;
}

static void describe(struct mode *m) {
    static const char *const servers[] = {"server shared with device 0", "dedicated server",
                                          "sharded server", "server on the CPU"};
    struct team *team = &m->team;
    const struct device_choice *d = &m->t->config->devices;
    if (m->async) {
        async_describe(m->async, servers[m->server], team->line, sizeof team->line);
        return;
    }
    size_t used = strlen(team->line);
    used += (size_t)snprintf(team->line + used, sizeof team->line - used, ", %s, %d bucket%s%s",
                             servers[m->server], m->cut->count, m->cut->count == 1 ? "" : "s",
                             m->overlap ? ", overlap on" : "");
    if (m->server == SERVER_DEDICATED && device_find(d->kind)->units && used < sizeof team->line)
        snprintf(team->line + used, sizeof team->line - used, " (%s:%d%s)", d->kind, d->server,
                 d->server == (d->listed ? d->unit[0] : 0) ? ", which computes too" : "");
}

static enum error dp_open(struct trainer *t, struct mode **out) {
    const struct run_config *c = t->config;
    void *memory;
    TRY(memory_alloc(sizeof(struct mode), &memory));
    struct mode *m = *out = memory;
    m->t = t;
    m->box = ((const struct place *)t->place)->box;
    m->server = (enum dp_server)c->dp.server;
    t->workers = c->devices.count;
    t->worker = t->rank - dp_serves_apart(c);
    t->owns_state = t->rank == 0;
    TRY(trainer_open_device(t));
    TRY(team_open(&m->team, t, "star", dp_serves_apart(c)));
    m->overlap = c->dp.overlap == DP_OVERLAP_ON;
    TRY(open_buckets(m));
    if (m->box) TRY(async_open(t, m->team.group, m->box, &m->async));
    describe(m);
    return ERR_NONE;
}

static enum error dp_start(struct mode *m) {
    TRY(team_share_start(&m->team, m->t, false));
    if (m->server == SERVER_SHARDED) TRY(slices_start(&m->slices));
    if (m->t->config->dp.scatter == SCATTER_SERVER)
        TRY(scatter_open(m->t, m->team.group, &m->scatter));
    return ERR_NONE;
}

/* ---- one step ---- */
static enum error launch_bucket(struct mode *m, enum lane lane) {
    int b = m->launched++;
    const int64_t *edge = m->cut->edge + b;
    struct work **work;
    TRY(flight_next(&m->flight, &work));
    group_label(m->team.group, LABEL_GRADIENTS(b));
    if (m->server == SERVER_SHARDED) return slices_reduce(&m->slices, b, lane, work);
    return group_reduce(m->team.group, lane, m->t->grads[0] + edge[0], edge[1] - edge[0], DTYPE_F32,
                        REDOP_SUM, 0, work);
}

/* From backward: the gradients below 'upto' are final. */
static enum error bucket_ready(void *user, int64_t upto) {
    struct mode *m = user;
    while (m->launched < m->cut->count && m->cut->edge[m->launched + 1] <= upto)
        TRY(launch_bucket(m, LANE_COMM));
    return ERR_NONE;
}

static enum error compute(struct mode *m) {
    struct trainer *t = m->t;
    group_note(m->team.group, "forward and backward", t->at.step);
    m->launched = 0;
    if (t->worker >= 0) return trainer_compute(t, m->overlap ? bucket_ready : NULL, m);
    return m->scatter ? scatter_serve(m->scatter) : ERR_NONE;
}

/* All gradients to who serves them. */
static enum error send_gradients(struct mode *m) {
    int64_t mark = clock_ns();
    group_note(m->team.group, "gradients to the server", m->t->at.step);
    while (m->launched < m->cut->count) TRY(launch_bucket(m, m->overlap ? LANE_COMM : LANE_INLINE));
    TRY(flight_land(&m->flight));
    trainer_phase(m->t, PHASE_COMM, &mark);
    return ERR_NONE;
}

static enum error serve(struct mode *m) {
    struct trainer *t = m->t;
    int64_t n = t->model->arena_floats, mark = clock_ns();
    if (t->rank == 0) {
        group_note(m->team.group, "update", t->at.step);
        TRY(trainer_update_all(t));
        TRY(trainer_put_sums(t));
        trainer_phase(t, PHASE_UPDATE, &mark);
    }
    TRY(group_broadcast(m->team.group, LANE_INLINE, t->values, n, DTYPE_F32, 0, NULL));
    trainer_phase(t, PHASE_COMM, &mark);
    return ERR_NONE;
}

static enum error dp_step(struct mode *m) {
    struct trainer *t = m->t;
    if (m->async) return async_step(m->async);
    TRY(compute(m));
    TRY(send_gradients(m));
    if (m->server == SERVER_SHARDED) {
        group_note(m->team.group, "update", t->at.step);
        TRY(slices_update(&m->slices, m->overlap ? LANE_COMM : LANE_INLINE));
    } else {
        TRY(serve(m));
    }
    TRY(trainer_get_sums(t));
    return ERR_NONE;
}

/* ---- the rest is the group's ---- */
static enum error dp_sum(struct mode *m, double *v, int n) {
    return team_sum(&m->team, v, n);
}

static enum error dp_share_buffers(struct mode *m) {
    return team_share_buffers(&m->team, m->t, dp_serves_apart(m->t->config));
}

static enum error dp_collect(struct mode *m) {
    return m->server == SERVER_SHARDED ? slices_collect(&m->slices) : ERR_NONE;
}

static void dp_abort(struct mode *m, const char *reason) {
    team_abort(&m->team, reason);
    mailbox_break(m->box);
}

static void dp_note(struct mode *m, const char *doing, int64_t step) {
    group_note(m->team.group, doing, step);
}

static void dp_stats(struct mode *m, struct mode_stats *out) {
    team_stats(&m->team, out);
    if (m->async) async_stats(m->async, out);
}

static enum error dp_watch(struct mode *m, struct trace_clock *clock) {
    if (m->async) TRY(async_settle(m->async));
    return team_watch(&m->team, m->t, clock);
}

static const char *dp_describe(struct mode *m) {
    return m->team.line;
}

static void dp_close(struct mode *m) {
    scatter_close(m->scatter);
    async_close(m->async);
    team_close(&m->team);
    buckets_fini(&m->buckets);
    slices_fini(&m->slices);
    memory_free(m);
}

const struct mode_ops mode_dp = {
    .name = "dp",
    .summary =
        "parameter server: a thread a device, one server adds, updates and sends weights back",
    .launch = dp_launch,
    .open = dp_open,
    .start = dp_start,
    .step = dp_step,
    .sum = dp_sum,
    .share_buffers = dp_share_buffers,
    .collect = dp_collect,
    .abort = dp_abort,
    .note = dp_note,
    .stats = dp_stats,
    .watch = dp_watch,
    .describe = dp_describe,
    .close = dp_close,
};
