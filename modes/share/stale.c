/* A parameter server that does not wait (dp.staleness, ps.staleness). A worker gives its gradient to the server
 * and goes on with the weights that it gets back; the server steps the optimizer for each gradient
 * by itself. Nobody waits for the slowest, and no gradient is of quite the weights that it is
 * applied to.
 *
 *   worker w    weights(u) -> gradient of its own shards, scaled as its part of the batch
 *               gradient   -> server
 *   server      update number v, from that gradient alone: v - u updates have come in between
 *               weights(v + 1) -> worker w, which begins its next step
 *
 * A step of the run is as many gradients as there are workers, whose ever they are, so the run has
 * the samples and the bytes of a synchronous one: (W-1) K in and as much out of the server's port
 * for each step, W counting the server. Both ways are busy at once: while weights leave, on the
 * communication lane, the next gradient comes in. The weights change only when they have left. Which worker may
 * exchange, and when, is the mailbox's (mailbox.h): there are as few assumptions about the link as in any other mode.
 *
 * Who is next:
 *
 *   in turn      workers 0, 1, ..., W-1, 0, ...: the same bits from run to run. Each gradient is as
 *                many updates old as there are other workers, and nobody is more than a step ahead
 *   of arrival   a worker gets its weights back when it is at most N steps ahead of the slowest
 *                (stale synchronous parallel, SSP); unbounded: always
 *
 * All ranks meet before an evaluation, a checkpoint and the end: there the server keeps the weights
 * back until all workers have done that step, then gives all the same. So what is saved is exact. A
 * stop is a meeting, too, at the first step that no worker has been let past yet. */
#include "modes/share/share.h"

#include "engine/base/clock.h"
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"
#include "modes/share/mailbox.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct worker {    /* as the server sees it */
    int64_t done;  /* steps whose gradient is applied */
    int64_t given; /* steps after which it has been given weights */
    int64_t from;  /* update that its weights are of */
};
struct share {
    struct trainer *t;
    struct group *group;
    struct mailbox *box;
    bool in_turn;
    int64_t bound; /* steps that a worker may be ahead */
    bool begun;
    int64_t updates, old, oldest;  /* old: of all gradients, in updates */
    int64_t stop_at;               /* step; 0: nobody has asked to stop */
    int64_t waited_ns, stepped_ns; /* of a worker */
    struct worker worker[];
};

static enum error stale_open(struct mode *m) {
    struct trainer *t = m->t;
    const struct run_config *c = t->config;
    struct share *a = m->share = memory_new(sizeof *a + (size_t)t->standing.workers * sizeof(struct worker));
    if (!a) return ERR_MEMORY;
    a->t = t;
    a->group = m->team.group;
    a->in_turn = c->deterministic != DETERMINISTIC_FALSE;
    a->bound = m->how->staleness < 0 ? INT64_MAX : m->how->staleness;
    return mailbox_create(a->group, c->comm.timeout, &a->box);
}

static void stale_close(struct mode *m) {
    if (m->share) mailbox_free(m->share->box);
    memory_free(m->share);
}

static enum error stale_stats(struct mode *m, struct mode_stats *out) {
    const struct share *a = m->share;
    out->updates = a->updates;
    out->old = a->old;
    out->oldest = a->oldest;
    out->waited_ns = a->waited_ns;
    out->stepped_ns = a->stepped_ns;
    return ERR_NONE;
}

static void stale_describe(const struct mode *m, char *line, size_t size) {
    const struct share *a = m->share;
    char bound[32] = "unbounded";
    if (a->bound != INT64_MAX) snprintf(bound, sizeof bound, "%lld", (long long)a->bound);
    snprintf(line, size, "each gradient by itself over %s%s, %s, staleness %s (gradients %s)",
             emulation_on(&a->t->config->comm.emulate.as) ? "emulated " : "", m->place->group.link, m->how->title,
             bound, a->in_turn ? "in turn" : "in order of arrival");
}

/* ---- the server ---- */

static int64_t least_done(const struct share *a) {
    int64_t least = INT64_MAX;
    for (int w = 0; w < a->t->standing.workers; w++)
        if (a->worker[w].done < least) least = a->worker[w].done;
    return least;
}

static bool worker_meets(const struct share *a, const struct worker *w) {
    return w->done == a->stop_at || trainer_meets(a->t, w->done);
}

static bool may_go_on(const struct share *a, const struct worker *w, int64_t least) {
    return worker_meets(a, w) ? least == w->done : w->done - least <= a->bound;
}

/* Gives the weights to all workers that may go on, and with them the sums of the step so far. */
static enum error give_weights(struct share *a, const struct step_sums *sums) {
    struct trainer *t = a->t;
    int64_t least = least_done(a), n = t->model->arena_floats;
    struct step_sums all = *sums;
    all.stop = a->stop_at && least == a->stop_at;
    trainer_set_sums(t, &all);
    TRY(trainer_put_sums(t));
    for (int i = 0; i < t->standing.workers; i++) {
        struct worker *w = &a->worker[i];
        if (w->given == w->done || !may_go_on(a, w, least)) continue;
        group_note(a->group, "weights to workers", t->at.step);
        TRY(mailbox_give(a->box, i, t->arena.values, n, worker_meets(a, w)));
        w->given = w->done;
        w->from = a->updates;
    }
    return ERR_NONE;
}

static void stop_choose(struct share *a) {
    for (int w = 0; w < a->t->standing.workers; w++)
        if (a->worker[w].given >= a->stop_at) a->stop_at = a->worker[w].given + 1;
}

/* The gradient of one worker, number i of this step. */
static enum error take_gradient(struct share *a, int i, struct worker **out) {
    struct trainer *t = a->t;
    int w = -1;
    int64_t mark = clock_ns();
    group_note(a->group, "waiting for a gradient", t->at.step);
    TRY(mailbox_take(a->box, a->in_turn ? i : MAILBOX_ANY, &w));
    TRY(group_recv(a->group, GROUP_INLINE, t->arena.grads[0], t->model->arena_floats, DTYPE_F32, w + 1));
    TRY(mailbox_settle(a->box));
    trainer_phase(t, PHASE_COMM, &mark);
    *out = &a->worker[w];
    return ERR_NONE;
}

static enum error update_apply(struct share *a, int i, struct worker *w, struct step_sums *sums) {
    struct trainer *t = a->t;
    int64_t old = a->updates - w->from, mark = clock_ns();
    group_note(a->group, "update", t->at.step);
    trainer_count_updates(t, t->at.step * (t->standing.workers - 1) + i);
    TRY(trainer_update_all(t));
    a->updates++;
    a->old += old;
    if (old > a->oldest) a->oldest = old;
    w->done++;
    sums->loss += t->sums.loss;
    sums->correct += t->sums.correct;
    sums->samples += t->sums.samples;
    if (t->sums.stop && !a->stop_at) stop_choose(a);
    trainer_phase(t, PHASE_UPDATE, &mark);
    return ERR_NONE;
}

static void stale_begin(struct share *a) {
    int64_t step = a->t->at.step;
    if (a->begun && !trainer_meets(a->t, step)) return;
    for (int w = 0; w < a->t->standing.workers; w++)
        a->worker[w] = (struct worker){.done = step, .given = step, .from = a->updates};
    mailbox_begin(a->box, step + 1);
    a->begun = true;
}

/* A loss that is not finite ends the run: who waits for weights then waits in vain. */
static enum error server_serve(struct share *a) {
    struct trainer *t = a->t;
    struct step_sums sums = {0};
    stale_begin(a);
    for (int i = 0; i < t->standing.workers && isfinite(sums.loss); i++) {
        struct worker *w = NULL;
        TRY(take_gradient(a, i, &w));
        TRY(update_apply(a, i, w, &sums));
        if (isfinite(sums.loss)) TRY(give_weights(a, &sums));
    }
    sums.stop = t->at.step + 1 == a->stop_at;
    trainer_set_sums(t, &sums);
    if (!isfinite(sums.loss)) return mailbox_settle(a->box);
    return sums.stop || trainer_meets(t, t->at.step + 1) ? mailbox_meet(a->box) : ERR_NONE;
}

/* ---- a worker ---- */

static enum error worker_exchange(struct share *a) {
    struct trainer *t = a->t;
    struct work *work;
    int64_t n = t->model->arena_floats;
    group_note(a->group, "waiting for the server", t->at.step);
    TRY(mailbox_offer(a->box, t->at.step + 1));
    group_note(a->group, "gradient to the server", t->at.step);
    TRY(group_send(a->group, GROUP_INLINE, t->arena.grads[0], n, DTYPE_F32, 0));
    group_note(a->group, "waiting for weights", t->at.step);
    TRY(mailbox_await_weights(a->box));
    TRY(group_recv(a->group, GROUP_COMM(&work), t->arena.values, n, DTYPE_F32, 0));
    TRY(work_wait(work));
    TRY(trainer_get_sums(t));
    bool meets = t->sums.stop || trainer_meets(t, t->at.step + 1);
    return meets ? mailbox_await_all(a->box) : ERR_NONE;
}

static enum error work_on(struct mode *m) {
    struct share *a = m->share;
    int64_t mark = clock_ns(), computed = mark;
    TRY(worker_exchange(a));
    trainer_phase(a->t, PHASE_COMM, &mark);
    a->waited_ns += mark - computed;
    a->stepped_ns += mark - m->began;
    return ERR_NONE;
}

static enum error stale_update(struct mode *m) {
    return m->t->standing.worker < 0 ? server_serve(m->share) : work_on(m);
}

static enum error stale_settle(struct mode *m) {
    return mailbox_settle(m->share->box);
}

/* ---- the configuration ---- */

void share_take_stale(struct resolve *r, const char *key, int64_t bound) {
    struct sharing *s = &r->c->sharing;
    share_take(r, &share_stale);
    s->key = key;
    s->staleness = bound;
    s->overlap = s->streams = false;
    s->owners = 0;
    s->cut = (struct cutting){INT64_MAX, INT64_MAX}; /* a gradient is one message */
}

/* A key that the staleness excludes, with both places. */
static void refuse_beside(struct resolve *r, const char *why, const char *path, const char *value, const char *hint) {
    const char *key = r->c->sharing.key;
    config_error(r->e, resolve_find(r, key), false, "'%s': %s, but %s is '%s' (%s)\n%s, or %s: 0", key, why, path,
                 value, resolve_place(r, resolve_find(r, path)), hint, key);
}

static void stale_check(struct resolve *r) {
    const struct run_config *c = r->c;
    if (c->sharing.share != &share_stale) return;
    if (!c->sharing.servers && c->sharing.place == PLACE_THREADS)
        refuse_beside(r, "a server that does not wait must be dedicated", "dp.server",
                      c->dp.server == SERVER_SHARED ? "shared" : "sharded", "use dp.server: dedicated");
    if (c->sharing.brought)
        refuse_beside(r, "devices are not in the same step", "dp.scatter", "server", "use dp.scatter: direct");
    if (c->sharing.place == PLACE_THREADS && c->dp.overlap == DP_OVERLAP_ON)
        refuse_beside(r, "a gradient travels when it is complete", "dp.overlap", resolve_find(r, "dp.overlap")->text,
                      "use dp.overlap: auto");
    if (c->ema.decay > 0) refuse_beside(r, "each gradient is an update of its own", "ema", "on", "use ema: off");
    if (c->sync_batchnorm)
        refuse_beside(r, "devices are not in the same step", "sync_batchnorm", "true", "use sync_batchnorm: false");
    if (c->deterministic == DETERMINISTIC_BITWISE)
        refuse_beside(r, "what comes out depends on the number of devices", "deterministic", "bitwise",
                      "use deterministic: true (in turn) or false (in order of arrival)");
    if (c->train.until_metric && !strcmp(c->train.until_metric, "train.loss"))
        refuse_beside(r, "devices are not in the same step", "train.until", "train.loss",
                      "use train.until: {val.loss: ...}");
    if (device_find(c->devices.kind)->runtime->apart)
        refuse_beside(r, "gradients are served in the host's memory", "devices", c->devices_text, "use devices: cpu");
}

const struct share_row share_stale = {.plan = {.update = UPDATE_BY_ROOT, .by_turns = true},
                                      .keys = {"dp.staleness", "ps.staleness"},
                                      .without = "0",
                                      .check = stale_check,
                                      .ops = {.open = stale_open,
                                              .close = stale_close,
                                              .update = stale_update,
                                              .settle = stale_settle,
                                              .stats = stale_stats,
                                              .describe = stale_describe}};
