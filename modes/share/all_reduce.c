/* Every rank adds up the gradients of all, and makes the same update: equal sums and equal
 * optimizers keep the weights equal, so they never travel after the start.
 *
 *   gradients   all-reduce, by bucket
 *   update      on every rank
 *
 * Bytes: every rank sends and receives 2(W-1)/W of the gradients, however many ranks there are; only
 * the number of messages grows with W. */
#include "modes/share/share.h"

#include "engine/base/clock.h"

static enum error start(struct mode *m) {
    return team_share_state(&m->team, m->t);
}

static enum error leave(struct mode *m, int b) {
    const int64_t *edge = m->cut->edge + b;
    struct dispatch how;
    TRY(step_send(m, LABEL_GRADIENTS(b), &how));
    how.apart = m->t->arena.apart;
    return group_all_reduce(m->team.group, how, m->t->arena.grads[0] + edge[0], edge[1] - edge[0], DTYPE_F32,
                            REDOP_SUM);
}

static enum error update(struct mode *m) {
    int64_t mark = clock_ns();
    mode_note(m, "update", m->t->at.step);
    TRY(trainer_update_all(m->t));
    trainer_phase(m->t, PHASE_UPDATE, &mark);
    return ERR_NONE;
}

const struct share_ops share_all_reduce = {
    .start = start, .subtrees = true, .leave = leave, .land = step_land, .update = update};
