/* Local SGD: ranks step alone, each by the gradient of its own samples, and every k steps
 * replace their weights by the mean of all ranks' (ddp.sync).
 *
 *   rank 0   step  step ... step  \            / step  step ... step  \
 *   rank 1   step  step ... step   > average  <  step  step ... step   > average
 *   rank 2   step  step ... step  /            \ step  step ... step  /
 *            k steps, no message                 k steps, no message
 *
 * A meeting is an all-reduce of the weights, bucket by bucket and in place: 2(W-1)/W of K bytes for
 * each rank, as one step of ddp takes for its gradients, so 2(W-1)/W K/k a step, and 1/k of the
 * messages. With state 'average' the optimizer's state, one or two times K, is averaged as well.
 * The sums of the k steps (loss, correct, samples) travel beside them, in a message of 24 k bytes: what is reported
 * of a step is about the whole batch, but is known only at the next meeting.
 *
 * With ddp.sync.outer the mean is not where the weights go but where they are drawn to (DiLoCo, Douillard et al. 2023,
 * arXiv:2311.08105): of theta, the weights at the last meeting, and the mean w of all ranks',
 *
 *   d = theta - w            the outer gradient
 *   b = momentum * b + d     begins as zero
 *   theta = theta - lr * (d + momentum * b)
 *
 * as torch.optim.SGD with nesterov. Every rank has the same theta, b and w, and so computes the same; no byte more
 * travels. It keeps two more sets of weights. A checkpoint is saved after a meeting, where theta are the weights, and has b.
 *
 * With comm.compress the weights stay where they are: each rank has its own d = theta - w, in the memory of the gradients,
 * which have been used. These are added as gradients are (compressed.c), and their mean is the d above; without an outer
 * step the weights become theta - d.
 *
 * It is another algorithm than ddp, with other results: in between, weights drift apart, and the
 * mean of what W ranks have learned in k steps is not what one would have learned by k steps of
 * their mean gradient. Order of additions and meetings are functions of the configuration, so a run
 * has the same bits each time. Ranks meet after steps k, 2k, 3k, ..., and wherever trainer_meets
 * says so. Buffers (batchnorm's statistics) stay rank 0's, as everywhere. */
#include "modes/share/share.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/device/runtime.h"
#include "engine/settings/exchange.h"
#include "engine/settings/resolve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SUM_LOSS, SUM_CORRECT, SUM_SAMPLES, SUMS };
struct share {
    struct mode *m;
    bool state;   /* the optimizer's is averaged, too */
    int64_t held; /* steps since the last meeting */
    double *sums; /* of each step, and after them whether a rank was asked to stop */
    struct step_sums *known;
    bool stop;
    float *theta; /* weights at the last meeting; NULL: nobody asks for them */
    bool began;   /* theta is what it says */
};

/* A checkpoint has rank 0's state alone. */
static void warn_of_resume(const struct share *l) {
    const struct trainer *t = l->m->t;
    if (t->rank > 0 || !t->job->resume || t->job->task != JOB_TRAIN) return;
    if (l->state || t->standing.ranks == 1 || t->arena.nslots == 0) return;
    log_warn("the optimizer's state in the checkpoint is rank 0's: all ranks continue from that state");
}

enum error average_open(struct mode *m) {
    struct trainer *t = m->t;
    struct share *l = m->share = memory_new(sizeof *l);
    if (!l) return ERR_MEMORY;
    *l = (struct share){.m = m, .state = t->config->ddp.sync.state == SYNC_AVERAGE};
    size_t most = (size_t)(m->how->every < t->steps ? m->how->every : t->steps);
    TRY_MEMORY(l->sums = memory_new((most * SUMS + 1) * sizeof *l->sums));
    TRY_MEMORY(l->known = memory_new(most * sizeof *l->known));
    m->standing->outer = t->config->ddp.sync.outer.lr > 0;
    if (m->standing->outer || m->how->compressed) {
        TRY_MEMORY(l->theta = memory_new((size_t)t->model->arena_floats * sizeof *l->theta));
    }
    warn_of_resume(l);
    if (m->how->plan.after[0].by != MOVE_ALL_REDUCE) TRY(share_open_spare(m));
    return ERR_NONE;
}

enum error average_start(struct mode *m) {
    struct trainer *t = m->t;
    int64_t at = 0;
    TRY(team_share_state(&m->team, t));
    if (!t->arena.outer) return ERR_NONE;
    while (at < t->model->arena_floats && t->arena.outer[at] == 0) at++;
    if (t->rank == 0 && t->job->resume && at == t->model->arena_floats)
        log_warn("the checkpoint has no momentum of an outer step: it begins at zero");
    return group_broadcast(m->team.group, GROUP_INLINE, t->arena.outer, t->model->arena_floats, DTYPE_F32, 0);
}

void average_close(struct mode *m) {
    struct share *l = m->share;
    if (!l) return;
    memory_free(m->spare);
    memory_free(l->sums);
    memory_free(l->known);
    memory_free(l->theta);
    memory_free(l);
}

void average_describe(const struct mode *m, char *line, size_t size) {
    const struct share *l = m->share;
    const struct trainer *t = l->m->t;
    const struct outer_config *outer = &t->config->ddp.sync.outer;
    enum move_by by = m->how->plan.after[0].by;
    const char *with = by == MOVE_ALL_REDUCE ? "" : file_last_part(t->config->ddp.sync.with);
    const char *how = by == MOVE_OWN ? "shared by plug-in " : by == MOVE_NEIGHBOUR ? "averaged with a " : "averaged";
    text_append(line, size, ", weights %s%.64s every ", how, with);
    if (m->how->every > 1) text_append(line, size, "%lld ", (long long)m->how->every);
    text_append(line, size, "step%s", m->how->every > 1 ? "s" : "");
    if (t->arena.nslots > 0) text_append(line, size, ", optimizer state %s", l->state ? "too" : "local");
    if (outer->lr > 0) text_append(line, size, ", outer step (lr %g, momentum %g)", outer->lr, outer->momentum);
    int64_t often = trainer_meets_every(t);
    if (often > 0 && often < m->how->every)
        text_append(line, size, ", and all meet every %lld steps to evaluate or save", (long long)often);
}

/* ---- a step alone ---- */

/* Without samples (a last batch smaller than the devices) there is nothing to learn from, but a NaN
 * that was planted. */
static enum error step_alone(struct trainer *t) {
    float samples, first;
    TRY(device_read(t->device, &samples, t->arena.grads[0] + HEADER_SAMPLES, sizeof samples));
    TRY(device_read(t->device, &first, t->arena.grads[0] + t->model->params[0].offset, sizeof first));
    return samples > 0 || isnan(first) ? trainer_update_all(t) : trainer_take_sums(t);
}

static void hold_sums(struct share *l) {
    const struct step_sums *s = &l->m->t->sums;
    double *to = l->sums + SUMS * l->held++;
    to[SUM_SAMPLES] = (double)s->samples;
    to[SUM_CORRECT] = (double)s->correct;
    to[SUM_LOSS] = s->samples > 0 ? (double)s->loss * (double)s->samples : 0;
    l->stop = l->stop || s->stop;
}

/* ---- a meeting ---- */

/* d: how far the weights have come from theta; the header of the gradients' arena is not ours. */
static void outer_gradient(const struct share *l, float *d) {
    const float *w = l->m->t->arena.values;
    for (int64_t i = HEADER_FLOATS; i < l->m->t->model->arena_floats; i++) d[i] = l->theta[i] - w[i];
}

/* The weights become the new theta. */
static void outer_step(const struct share *l, const float *d) {
    const struct trainer *t = l->m->t;
    const struct outer_config *c = &t->config->ddp.sync.outer;
    float lr = (float)c->lr, momentum = (float)c->momentum, *b = t->arena.outer, *w = t->arena.values;
    for (int64_t i = HEADER_FLOATS; i < t->model->arena_floats; i++) {
        if (b) b[i] = momentum * b[i] + d[i];
        w[i] = l->theta[i] = l->theta[i] - (b ? lr * (d[i] + momentum * b[i]) : d[i]);
    }
}

static enum error average_arena(struct share *l, float *arena, enum move_by by) {
    bool weights = arena == l->m->t->arena.values;
    for (int b = 0; b < l->m->cut->count; b++) {
        const struct span bucket = share_bucket(l->m, arena, b);
        TRY(share_move(l->m, by, &bucket, (struct dispatch){.label = weights ? LABEL_WEIGHTS(b) : 0}));
    }
    return ERR_NONE;
}

/* Starts to share the sums of the steps since the last meeting among all ranks: on a long link they travel beside the
 * weights, and add no latency to them. */
static enum error sums_leave(struct share *l, struct work **work) {
    struct group *g = l->m->team.group;
    l->sums[SUMS * l->held] = l->stop;
    if (!g) return ERR_NONE;
    return group_all_reduce(g, GROUP_ON(LANE_AHEAD, work), l->sums, SUMS * l->held + 1, DTYPE_F64, REDOP_SUM);
}

static enum error sums_land(struct share *l, struct work *work) {
    if (work) TRY(work_wait(work));
    bool stop = l->sums[SUMS * l->held] > 0;
    for (int64_t i = 0; i < l->held; i++) {
        const double *of = l->sums + SUMS * i;
        l->known[i] = (struct step_sums){.loss = (float)(of[SUM_LOSS] / of[SUM_SAMPLES]),
                                         .correct = (float)of[SUM_CORRECT],
                                         .samples = (float)of[SUM_SAMPLES],
                                         .stop = stop};
    }
    l->m->learned = (struct learned){l->known, l->held};
    trainer_set_sums(l->m->t, &l->known[l->held - 1]);
    l->held = 0, l->stop = false;
    return ERR_NONE;
}

/* d becomes the mean of all ranks'. */
static enum error outer_gradient_average(struct share *l, float *d) {
    float ranks = (float)l->m->standing->ranks;
    outer_gradient(l, d);
    TRY(compressed_sum(l->m));
    for (int64_t i = HEADER_FLOATS; i < l->m->t->model->arena_floats; i++) d[i] /= ranks;
    return ERR_NONE;
}

static enum error weights_average(struct share *l, enum move_by by) {
    struct trainer *t = l->m->t;
    float *d = t->arena.grads[0];
    struct work *sums = NULL;
    TRY(sums_leave(l, &sums));
    group_note(l->m->team.group, l->m->how->plan.after[0].doing, t->at.step);
    if (l->m->packed)
        TRY(outer_gradient_average(l, d));
    else
        TRY(average_arena(l, t->arena.values, by));
    if (l->theta && !l->m->packed) outer_gradient(l, d);
    if (l->theta) outer_step(l, d);
    for (int i = 0; l->state && i < t->arena.nslots; i++) TRY(average_arena(l, t->arena.slots[i], by));
    return sums_land(l, sums);
}

enum error average_update(struct mode *m) {
    struct share *l = m->share;
    struct trainer *t = m->t;
    int64_t mark = clock_ns(), done = t->at.step + 1;
    bool all = trainer_meets(t, done);
    if (l->theta && !l->began) memcpy(l->theta, t->arena.values, (size_t)t->model->arena_floats * sizeof *l->theta);
    l->began = true;
    TRY(step_alone(t));
    hold_sums(l);
    trainer_phase(t, PHASE_UPDATE, &mark);
    m->learned.count = 0;
    if (!all && done % m->how->every != 0) return ERR_NONE;
    TRY(weights_average(l, all ? MOVE_ALL_REDUCE : m->how->plan.after[0].by));
    trainer_phase(t, PHASE_COMM, &mark);
    return ERR_NONE;
}

/* ---- the configuration ---- */

static void refuse_sync(struct resolve *r, const char *key, const char *why, const char *hint) {
    config_error(r->e, resolve_find(r, "ddp.sync.every"), false,
                 "ddp.sync: weights are averaged every %lld steps, but %s (%s)\n%s", (long long)r->c->ddp.sync.every,
                 why, resolve_place(r, resolve_find(r, key)), hint);
}

/* What means the gradient of the whole batch, which then nobody has. */
static void average_check(struct resolve *r) {
    const struct run_config *c = r->c;
    const struct device_ops *kind = device_find(c->devices.kind);
    if (c->ddp.sync.state == SYNC_AVERAGE) resolve_needs(r, "ddp.sync.state", "ddp.sync.every");
    resolve_clash(
        r, c->ddp.sync.state == SYNC_AVERAGE && optim_of(&c->optimizer.kind)->state, "ddp.sync.state",
        "means of rows and columns make no mean of what they stand for, and optimizer '{optimizer.name}' keeps "
        "no more ({at optimizer.name})\nleave ddp.sync.state out, or use another optimizer");
    resolve_clash(r, c->ddp.sync.outer.lr > 0 && c->ddp.sync.every == 1, "ddp.sync.outer.lr",
                  "an outer step is taken where devices meet after several steps, but ddp.sync.every is 1\n"
                  "set ddp.sync.every: 50, or leave ddp.sync.outer out");
    resolve_clash(r, c->ddp.sync.outer.lr > 0 && strcmp(c->ddp.sync.with, "all") != 0, "ddp.sync.outer.lr",
                  "an outer step is taken by all devices from one mean, but ddp.sync.with is '{ddp.sync.with}' "
                  "({at ddp.sync.with})\nuse ddp.sync.with: all, or leave ddp.sync.outer out");
    if (c->ddp.sync.every == 1 && !strcmp(c->ddp.sync.with, "all")) return;
    if (!c->sharing.plan.alone) refuse_sync(r, "mode", "mode is not 'ddp'", "use mode ddp, or ddp.sync: 1");
    if (c->deterministic == DETERMINISTIC_BITWISE)
        refuse_sync(r, "deterministic", "deterministic is 'bitwise'",
                    "what comes out depends on the number of devices: use deterministic: true");
    if (c->ema.decay > 0)
        refuse_sync(r, "ema.decay", "ema averages the weights of every step, which differ from device to device",
                    "use ema: off, or ddp.sync: 1");
    if (c->optimizer.shard)
        refuse_sync(r, "optimizer.shard", "optimizer.shard has each rank step a part of them",
                    "use optimizer.shard: false");
    if (c->sharing.compressed && strcmp(c->ddp.sync.with, "all") != 0)
        refuse_sync(r, "comm.compress", "comm.compress is for a mean of all devices",
                    "use comm.compress: none, or ddp.sync.with: all");
    if (c->sync_batchnorm)
        refuse_sync(r, "sync_batchnorm", "sync_batchnorm has ranks meet in every step", "use sync_batchnorm: false");
    if (kind && kind->runtime->apart && (strcmp(c->ddp.sync.with, "all") != 0 || c->ddp.sync.outer.lr > 0))
        refuse_sync(r, "devices", "accelerators know no other meeting than the mean of all",
                    "use devices: cpu:N, or leave out ddp.sync.with and ddp.sync.outer");
}

const struct share_row share_average = {.plan = {.update = UPDATE_BY_ALL,
                                                 .nafter = 1,
                                                 .after = {{MOVE_ALL_REDUCE, .doing = "average of the weights"}},
                                                 .alone = true},
                                        .keys = {"ddp.sync"},
                                        .without = "1",
                                        .check = average_check,
                                        .ops = AVERAGE_OPS};
