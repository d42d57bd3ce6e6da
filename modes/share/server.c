/* The parameter server: rank 0 holds the only optimizer.
 *
 *   gradients   -> server, which adds them            reduce, by bucket
 *   server      updates the weights
 *   weights     -> every rank                         broadcast
 *
 * Bytes through the server's port: (W-1) K in and (W-1) K out, K being the gradients' bytes: it
 * grows with W, which is what an all-reduce avoids. */
#include "modes/share/share.h"

#include "engine/base/clock.h"
#include "engine/settings/run_config.h"

#include <stdio.h>
#include <string.h>

static enum error leave(struct mode *m, int b) {
    const int64_t *edge = m->cut->edge + b;
    struct dispatch how;
    if (b == 0 && !m->how->overlap) mode_note(m, "gradients to the server", m->t->at.step);
    TRY(step_send(m, LABEL_GRADIENTS(b), &how));
    how.apart = m->t->arena.apart;
    return group_reduce(m->team.group, how, m->t->arena.grads[0] + edge[0], edge[1] - edge[0], DTYPE_F32, REDOP_SUM, 0);
}

static enum error land(struct mode *m) {
    mode_note(m, "gradients to the server", m->t->at.step);
    return step_land(m);
}

static enum error serve(struct mode *m, int64_t *mark) {
    mode_note(m, "update", m->t->at.step);
    TRY(trainer_update_all(m->t));
    TRY(trainer_put_sums(m->t));
    trainer_phase(m->t, PHASE_UPDATE, mark);
    return ERR_NONE;
}

static enum error update(struct mode *m) {
    struct trainer *t = m->t;
    int64_t mark = clock_ns();
    if (t->rank == 0) TRY(serve(m, &mark));
    TRY(group_broadcast(m->team.group, GROUP_INLINE, t->arena.values, t->tensors.upto, DTYPE_F32, 0));
    trainer_phase(t, PHASE_COMM, &mark);
    return trainer_get_sums(t);
}

static enum error spread(struct mode *m) {
    return group_broadcast(m->team.group, GROUP_INLINE, m->t->arena.average, m->t->model->arena_floats, DTYPE_F32, 0);
}

/* A server of its own on an accelerator: which one that is. */
static void describe(const struct mode *m, char *line, size_t size) {
    const struct device_choice *d = &m->t->config->devices;
    size_t used = strlen(line);
    if (!m->how->servers || m->how->on_host || !device_find(d->kind)->units) return;
    snprintf(line + used, size - used, " (%s:%d%s)", d->kind, d->server,
             d->server == (d->listed ? d->unit[0] : 0) ? ", which computes too" : "");
}

const struct share_ops share_server = {
    .subtrees = true, .leave = leave, .land = land, .update = update, .spread = spread, .describe = describe};
