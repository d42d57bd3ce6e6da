/* dp: the parameter server. One process, a thread a device; one rank is the server and holds the
 * only optimizer.
 *
 *   every rank      compute its gradients
 *   gradients       -> server, which adds them            group_reduce(gradients, root)
 *   server          updates the weights
 *   weights         -> every rank                         group_broadcast(weights, root)
 *
 * Bytes through the server's port: (W-1) K in and (W-1) K out, K being the gradients' bytes: it
 * grows with W, which is what ddp is there to avoid. Three kinds of server (dp.server):
 *
 *   shared     rank 0 computes and serves
 *   dedicated  one more rank, 0, only serves
 *   sharded    every rank serves a slice of the arena: reduce_scatter, update of the slice,
 *              all_gather: ddp's bytes, spread evenly
 *
 * The samples reach the ranks directly (each loads its own) or through the server's port as well
 * (dp.scatter: server). */
#include "engine/base/clock.h"
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
    struct slices slices; /* sharded: of one bucket */
};

/* ---- starting the threads ---- */
struct start {
    const struct job *job;
    struct group_params group;
};

static enum error dp_rank(void *user, int rank) {
    const struct start *s = user;
    return trainer_run(s->job, rank, (void *)(uintptr_t)&s->group); /* read only */
}

static int group_ranks(const struct run_config *c) {
    return c->devices.count + (c->dp.server == SERVER_DEDICATED);
}

static enum error dp_launch(const struct job *job, int *exit_code) {
    *exit_code = 0;
    int size = group_ranks(&job->settings->config);
    struct meeting *meeting;
    TRY(meeting_create(size, &meeting));
    struct start s = {job, {.link = "thread", .size = size, .meeting = meeting}};
    enum error err = launch_threads(size, dp_rank, &s);
    meeting_free(meeting);
    return err;
}

static enum error dp_open(struct trainer *t, struct mode **out) {
    const struct run_config *c = t->config;
    void *memory;
    TRY(memory_alloc(sizeof(struct mode), &memory));
    struct mode *m = *out = memory;
    m->t = t;
    m->server = (enum dp_server)c->dp.server;
    t->workers = c->devices.count;
    t->worker = m->server == SERVER_DEDICATED ? t->rank - 1 : t->rank;
    t->owns_state = t->rank == 0;
    TRY(team_open(&m->team, t, "star", m->server == SERVER_DEDICATED));
    TRY(buckets_init(&m->buckets, t->model, c->ddp.bucket.first, c->ddp.bucket.cap));
    if (m->server == SERVER_SHARDED)
        TRY(slices_init(&m->slices, t, m->team.group, INT64_MAX, INT64_MAX));
    size_t used = strlen(m->team.line);
    static const char *const servers[] = {"server shared with device 0", "dedicated server",
                                          "sharded server"};
    snprintf(m->team.line + used, sizeof m->team.line - used, ", %s", servers[m->server]);
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
static enum error serve(struct mode *m) {
    struct trainer *t = m->t;
    int64_t n = t->model->arena_floats, mark = clock_ns();
    const int64_t *edge = m->buckets.edge;
    for (int b = 0; b < m->buckets.count; b++)
        TRY(group_reduce(m->team.group, LANE_INLINE, t->grads[0] + edge[b], edge[b + 1] - edge[b],
                         DTYPE_F32, REDOP_SUM, 0, NULL));
    trainer_phase(t, PHASE_COMM, &mark);
    if (t->rank == 0) {
        group_note(m->team.group, "update", t->at.step);
        trainer_update_all(t);
        trainer_put_sums(t);
        trainer_phase(t, PHASE_UPDATE, &mark);
    }
    TRY(group_broadcast(m->team.group, LANE_INLINE, t->values, n, DTYPE_F32, 0, NULL));
    trainer_phase(t, PHASE_COMM, &mark);
    return ERR_NONE;
}

static enum error serve_slices(struct mode *m) {
    int64_t mark = clock_ns();
    TRY(slices_reduce(&m->slices, 0, LANE_INLINE, NULL));
    trainer_phase(m->t, PHASE_COMM, &mark);
    group_note(m->team.group, "update", m->t->at.step);
    return slices_update(&m->slices, LANE_INLINE);
}

static enum error dp_step(struct mode *m) {
    struct trainer *t = m->t;
    group_note(m->team.group, "forward and backward", t->at.step);
    if (t->worker >= 0)
        TRY(trainer_compute(t, NULL, NULL));
    else
        TRY(m->scatter ? scatter_serve(m->scatter) : ERR_NONE);
    group_note(m->team.group, "gradients to the server", t->at.step);
    TRY(m->server == SERVER_SHARDED ? serve_slices(m) : serve(m));
    trainer_get_sums(t);
    return ERR_NONE;
}

/* ---- the rest is the group's ---- */
static enum error dp_sum(struct mode *m, double *v, int n) {
    return team_sum(&m->team, v, n);
}

static enum error dp_share_buffers(struct mode *m) {
    return team_share_buffers(&m->team, m->t, m->server == SERVER_DEDICATED ? 1 : 0);
}

static enum error dp_collect(struct mode *m) {
    return m->server == SERVER_SHARDED ? slices_collect(&m->slices) : ERR_NONE;
}

static void dp_abort(struct mode *m, const char *reason) {
    team_abort(&m->team, reason);
}

static void dp_note(struct mode *m, const char *doing, int64_t step) {
    group_note(m->team.group, doing, step);
}

static void dp_stats(struct mode *m, struct mode_stats *out) {
    team_stats(&m->team, out);
}

static const char *dp_describe(struct mode *m) {
    return m->team.line;
}

static void dp_close(struct mode *m) {
    scatter_close(m->scatter);
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
    .describe = dp_describe,
    .close = dp_close,
};
