#include "modes/local.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <math.h>
#include <stdio.h>

enum { SUM_LOSS, SUM_CORRECT, SUM_SAMPLES, SUMS };
struct local {
    struct trainer *t;
    struct team *team;
    const struct buckets *cut;
    int64_t every, most; /* steps between two meetings */
    bool state;          /* the optimizer's is averaged, too */
    int64_t held;        /* steps since the last meeting */
    double *sums;        /* of each, and behind them whether a rank was asked to stop */
    struct step_sums *known;
    bool stop;
};

/* A checkpoint has rank 0's state alone. */
static void warn_of_resume(const struct local *l) {
    const struct trainer *t = l->t;
    if (t->rank > 0 || !t->job->resume || t->job->task != JOB_TRAIN) return;
    if (l->state || t->ranks == 1 || t->optim->nslots == 0) return;
    log_warn("the optimizer's state in the checkpoint is rank 0's: all ranks go on from that one");
}

enum error local_open(struct trainer *t, struct team *team, const struct buckets *cut,
                      struct local **out) {
    const struct sync_config *c = &t->config->ddp.sync;
    void *memory;
    *out = NULL;
    if (c->every == 1) return ERR_NONE;
    TRY(memory_alloc(sizeof **out, &memory));
    struct local *l = *out = memory;
    *l = (struct local){.t = t,
                        .team = team,
                        .cut = cut,
                        .every = c->every,
                        .most = c->every < t->steps ? c->every : t->steps,
                        .state = c->state == SYNC_AVERAGE};
    TRY(memory_alloc((size_t)(l->most * SUMS + 1) * sizeof *l->sums, &memory));
    l->sums = memory;
    TRY(memory_alloc((size_t)l->most * sizeof *l->known, &memory));
    l->known = memory;
    t->alone = true;
    warn_of_resume(l);
    return ERR_NONE;
}

void local_close(struct local *l) {
    if (!l) return;
    memory_free(l->sums);
    memory_free(l->known);
    memory_free(l);
}

void local_describe(const struct local *l, char *out, size_t size) {
    bool has_state = l->t->optim->nslots > 0;
    snprintf(out, size, ", weights averaged every %lld steps%s", (long long)l->every,
             !has_state ? ""
             : l->state ? ", optimizer state too"
                        : ", optimizer state local");
}

/* ---- a step alone ---- */

/* Without samples (a last batch smaller than the devices) there is nothing to learn from, but a NaN
 * that was planted. */
static enum error update(struct trainer *t) {
    bool planted = isnan(t->grads[0][t->model->params[0].offset]);
    bool learns = t->grads[0][HEADER_SAMPLES] > 0 || planted;
    return learns ? trainer_update_all(t) : trainer_take_sums(t);
}

static void hold_sums(struct local *l) {
    const struct step_sums *s = &l->t->sums;
    double *to = l->sums + SUMS * l->held++;
    to[SUM_SAMPLES] = (double)s->samples;
    to[SUM_CORRECT] = (double)s->correct;
    to[SUM_LOSS] = s->samples > 0 ? (double)s->loss * (double)s->samples : 0;
    l->stop = l->stop || s->stop;
}

/* ---- a meeting ---- */

static enum error average(struct local *l, float *arena) {
    for (int b = 0; b < l->cut->count; b++) {
        const int64_t *edge = l->cut->edge + b;
        if (arena == l->t->values) group_label(l->team->group, LABEL_WEIGHTS(b));
        TRY(group_all_reduce(l->team->group, LANE_INLINE, arena + edge[0], edge[1] - edge[0],
                             DTYPE_F32, REDOP_AVERAGE, NULL));
    }
    return ERR_NONE;
}

/* All ranks learn what the steps since the last meeting have come to. */
static enum error share_sums(struct local *l) {
    struct trainer *t = l->t;
    double *stop = l->sums + SUMS * l->held;
    *stop = l->stop;
    TRY(team_sum(l->team, l->sums, (int)(SUMS * l->held + 1)));
    for (int64_t i = 0; i < l->held; i++) {
        const double *of = l->sums + SUMS * i;
        l->known[i] = (struct step_sums){.loss = (float)(of[SUM_LOSS] / of[SUM_SAMPLES]),
                                         .correct = (float)of[SUM_CORRECT],
                                         .samples = (float)of[SUM_SAMPLES],
                                         .stop = *stop > 0};
    }
    t->known = l->known, t->nknown = l->held;
    t->sums = l->known[l->held - 1];
    l->held = 0, l->stop = false;
    return ERR_NONE;
}

static enum error meet(struct local *l) {
    struct trainer *t = l->t;
    group_note(l->team->group, "average of the weights", t->at.step);
    TRY(average(l, t->values));
    for (int i = 0; l->state && i < t->optim->nslots; i++) TRY(average(l, t->slots[i]));
    return share_sums(l);
}

enum error local_step(struct local *l) {
    struct trainer *t = l->t;
    group_note(l->team->group, "forward and backward", t->at.step);
    TRY(trainer_compute(t, NULL, NULL));
    int64_t mark = clock_ns();
    TRY(update(t));
    hold_sums(l);
    trainer_phase(t, PHASE_UPDATE, &mark);
    t->nknown = 0;
    if ((t->at.step + 1) % l->every != 0 && !trainer_meets(t, t->at.step + 1)) return ERR_NONE;
    TRY(meet(l));
    trainer_phase(t, PHASE_COMM, &mark);
    return ERR_NONE;
}
