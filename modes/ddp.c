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
 * and equal optimizers keep them equal. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/train/stop.h"
#include "modes/bucket.h"
#include "modes/team.h"
#include "transport/launch/launch.h"

#include <stdio.h>
#include <string.h>

struct mode {
    struct trainer *t;
    struct team team;
    struct buckets buckets;
    struct work **work; /* of each bucket */
    int launched;       /* buckets whose all-reduce has begun, this step */
};

/* ---- starting the processes ---- */
static enum error ddp_rank(const struct job *job) {
    struct meeting *meeting;
    TRY(meeting_join(job->meeting_fd, job->settings->config.devices.count, &meeting));
    enum error err = trainer_run(job, job->rank, meeting);
    meeting_free(meeting);
    return err;
}

static void tell_loss(const struct job *job, const struct launch_result *r) {
    char how[64];
    if (r->signal)
        snprintf(how, sizeof how, "was killed by signal %d%s", r->signal,
                 r->signal == 9 ? " (out of memory?)" : "");
    else
        snprintf(how, sizeof how, "ended with code %d", r->exit_code);
    log_error("rank %d %s; the others were ended %.2f s later", r->first, how, r->seconds);
    if (r->lines[0]) log_line(LOG_ERROR, "last lines of rank %d:\n%s", r->first, r->lines);
    log_info("logs: %s/rank*.log - to go on from the last checkpoint: engine run %s", job->run_dir,
             job->run_dir);
}

static enum error ddp_launch(const struct job *job, int *exit_code) {
    *exit_code = 0;
    if (job->rank >= 0) return ddp_rank(job);
    int size = job->settings->config.devices.count;
    struct meeting *meeting;
    TRY(meeting_create_shared(size, &meeting));
    char resume[4200];
    snprintf(resume, sizeof resume, "checkpoint.resume=%s", job->resume ? job->resume : "never");
    const char *argv[9] = {"engine", "run", job->run_dir, "--set", resume};
    int argc = 5;
    if (job->json) argv[argc++] = "--json";
    if (job->quiet) argv[argc++] = "--quiet";
    if (!job->progress) argv[argc++] = "--no-progress";
    struct launch_params p = {.size = size,
                              .argv = argv,
                              .meeting = meeting,
                              .log_folder = job->run_dir,
                              .log = stderr,
                              .grace = 0.5};
    struct launch_result result;
    enum error err = launch_processes(&p, &result);
    meeting_free(meeting);
    *exit_code = result.exit_code;
    if (result.first < 0) return err;
    tell_loss(job, &result);
    *exit_code = result.signal ? error_exit_code(ERR_PEER) : result.exit_code;
    return ERR_NONE;
}

static enum error ddp_open(struct trainer *t, struct mode **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct mode), &memory));
    struct mode *m = *out = memory;
    m->t = t;
    t->worker = t->rank;
    t->workers = t->config->devices.count;
    t->owns_state = true;
    TRY(team_open(&m->team, t, (struct group_params){.link = "shm", .size = t->workers}));
    TRY(buckets_init(&m->buckets, t->model, t->config->ddp.bucket.first,
                     t->config->ddp.bucket.cap));
    TRY(memory_alloc((size_t)m->buckets.count * sizeof(struct work *), &memory));
    m->work = memory;
    size_t used = strlen(m->team.line);
    snprintf(m->team.line + used, sizeof m->team.line - used, ", %d bucket%s, overlap %s",
             m->buckets.count, m->buckets.count == 1 ? "" : "s",
             t->config->ddp.overlap ? "on" : "off");
    return ERR_NONE;
}

static enum error ddp_start(struct mode *m) {
    return team_share_start(&m->team, m->t, true);
}

/* ---- one step ---- */
static enum error launch_bucket(struct mode *m, enum lane lane) {
    int b = m->launched++;
    const int64_t *edge = m->buckets.edge + b;
    return group_all_reduce(m->team.group, lane, m->t->grads[0] + edge[0], edge[1] - edge[0],
                            DTYPE_F32, REDOP_SUM, &m->work[b]);
}

/* From backward: the gradients below 'upto' are final. Buckets leave in order, on every rank the
 * same. */
static enum error bucket_ready(void *user, int64_t upto) {
    struct mode *m = user;
    bool backward;
    char doing[64];
    snprintf(doing, sizeof doing, "backward of %s", graph_where(m->t->graph, &backward));
    group_note(m->team.group, doing, m->t->at.step);
    while (m->launched < m->buckets.count && m->buckets.edge[m->launched + 1] <= upto)
        TRY(launch_bucket(m, LANE_COMM));
    return ERR_NONE;
}

static enum error ddp_step(struct mode *m) {
    struct trainer *t = m->t;
    m->launched = 0;
    group_note(m->team.group, "forward", t->at.step);
    TRY(trainer_compute(t, t->config->ddp.overlap ? bucket_ready : NULL, m));
    int64_t mark = clock_ns();
    while (m->launched < m->buckets.count) TRY(launch_bucket(m, LANE_INLINE));
    for (int b = 0; b < m->buckets.count; b++) TRY(work_wait(m->work[b]));
    trainer_phase(t, PHASE_COMM, &mark);
    group_note(m->team.group, "update", t->at.step);
    trainer_take_sums(t);
    trainer_norm(t, 0, t->model->arena_floats);
    trainer_update(t, 0, t->model->arena_floats);
    trainer_phase(t, PHASE_UPDATE, &mark);
    return ERR_NONE;
}

/* ---- the rest is the group's ---- */
static enum error ddp_sum(struct mode *m, double *v, int n) {
    return team_sum(&m->team, v, n);
}

static enum error ddp_share_buffers(struct mode *m) {
    return team_share_buffers(&m->team, m->t, 0); /* shard 0 is rank 0's */
}

static enum error ddp_collect(struct mode *m) {
    (void)m; /* rank 0 holds it all, as every rank does */
    return ERR_NONE;
}

static void ddp_abort(struct mode *m, const char *reason) {
    if (m->team.group) group_abort(m->team.group, reason);
}

static void ddp_note(struct mode *m, const char *doing, int64_t step) {
    group_note(m->team.group, doing, step);
}

static void ddp_stats(struct mode *m, struct mode_stats *out) {
    team_stats(&m->team, out);
}

static const char *ddp_describe(struct mode *m) {
    return m->team.line;
}

static void ddp_close(struct mode *m) {
    team_close(&m->team);
    buckets_fini(&m->buckets);
    memory_free(m->work);
    memory_free(m);
}

const struct mode_ops mode_ddp = {
    .name = "ddp",
    .summary = "a process a device; gradients all-reduced in buckets beside backward",
    .launch = ddp_launch,
    .open = ddp_open,
    .start = ddp_start,
    .step = ddp_step,
    .sum = ddp_sum,
    .share_buffers = ddp_share_buffers,
    .collect = ddp_collect,
    .abort = ddp_abort,
    .note = ddp_note,
    .stats = ddp_stats,
    .describe = ddp_describe,
    .close = ddp_close,
};
