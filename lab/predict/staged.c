#include "lab/predict/staged.h"

#include "engine/base/memory.h"
#include "engine/model/state.h"
#include "engine/settings/run_config.h"
#include "lab/predict/planned.h"
#include "modes/bucket.h"
#include "modes/share/stages.h"

/* ---- which layers each stage has ------------------------------------------------------------ */

enum error staged_fit(struct run_config *c, const struct model *m) {
    int devices = c->devices.count, stages = stages_count(&c->pipeline, devices);
    if (stages < 1 || devices % stages)
        return FAIL(ERR_CONFIG,
                    "%d devices cannot be cut into stages as pipeline.stages asks: it takes a number that divides "
                    "that of the devices",
                    devices);
    c->sharing.stages = stages;
    return stages_suit(c, m);
}

struct staged_cut {
    int stages, copies, passes; /* passes: micro-batches of the copy that has most */
    int first[SIMULATE_STAGES + 1];
};

static enum error staged_cut_find(const struct staged_ask *a, struct staged_cut *out) {
    const struct run_config *c = a->config;
    int stages = c->sharing.stages;
    if (stages > SIMULATE_STAGES)
        return FAIL(ERR_CONFIG, "%d stages\nat most %d can be simulated", stages, SIMULATE_STAGES);
    *out = (struct staged_cut){.stages = stages, .copies = c->devices.count / stages};
    out->passes = leaves_cut(a->leaves, out->copies, 1) * (int)c->batch.accumulate;
    return stages_cut_by(c, a->model, out->stages, a->work, out->first);
}

static struct model_part staged_part_of(const struct staged_ask *a, const struct staged_cut *cut, int stage) {
    return model_part(a->model, cut->first[stage], cut->first[stage + 1]);
}

/* ---- what it computes and sends ------------------------------------------------------------- */

static enum error staged_check_tied(const struct model *m, const struct model_part *part) {
    for (int i = 0; i < m->nparams; i++)
        if (model_part_borrows(m, part, i))
            return FAIL(ERR_CONFIG,
                        "mode pipeline: weights that two stages share (%s) are not simulated\n"
                        "choose another mode, or a network without tied weights",
                        m->params[i].name);
    return ERR_NONE;
}

/* The buckets that have a part of this range. */
static int staged_messages(const struct buckets *b, const struct model_part *part) {
    int n = 0;
    for (int i = 0; i < b->count; i++) n += b->edge[i] < part->end && b->edge[i + 1] > part->begin;
    return n;
}

static enum error staged_shape_stage(const struct staged_ask *a, const struct staged_cut *cut, int s,
                                     const struct buckets *b, struct step_stages *out) {
    const struct model_part part = staged_part_of(a, cut, s);
    TRY(staged_check_tied(a->model, &part));
    for (int k = part.from; k < part.to; k++) out->forward[s] += a->work[k];
    out->bytes[s] = (double)(part.end - part.begin) * sizeof(float);
    out->messages[s] = staged_messages(b, &part);
    if (s + 1 < cut->stages) out->border[s] = (double)shape_count(&a->model->nodes[part.to].x);
    return ERR_NONE;
}

enum error staged_shape(const struct staged_ask *a, const struct measured_step *m, double batches,
                        const struct cutting *cutting, struct step_shape *out) {
    struct staged_cut cut;
    struct step_stages *stages = &out->stages;
    struct buckets b;
    double all = (double)a->leaves * (double)a->config->batch.accumulate; /* micro-batches */
    double samples = (double)m->batch * batches / all;
    TRY(staged_cut_find(a, &cut));
    TRY(buckets_init(&b, a->model, cutting));
    out->before = m->load * batches * cut.passes / all;
    out->backward = out->forward = 0;
    out->update = m->update;
    out->passes = cut.passes;
    out->buckets = 0;
    *stages = (struct step_stages){.count = cut.stages, .ahead = a->config->sharing.ahead};
    enum error err = ERR_NONE;
    for (int s = 0; s < cut.stages && err == ERR_NONE; s++) {
        err = staged_shape_stage(a, &cut, s, &b, stages);
        stages->backward[s] = stages->forward[s] * m->backward * batches / all;
        stages->forward[s] *= m->forward * batches / all;
        stages->border[s] *= samples * m->unit;
    }
    buckets_fini(&b);
    return err;
}

/* ---- what it holds -------------------------------------------------------------------------- */

/* Activations of the micro-batches between forward and backward, and what there is once. */
static enum error staged_beside(const struct staged_ask *a, const struct model_part *part, int kept, double *out) {
    const struct run_config *c = a->config;
    const struct device_params params = {.count = 1, .threads = 1, .no_winograd = !c->winograd};
    int64_t samples = c->batch.size / a->leaves / c->batch.accumulate;
    const struct segments one = {1, {0, samples > 0 ? samples : 1}};
    struct device *dev;
    struct plan *plan = NULL;
    TRY(device_find("ref")->open(&params, &dev));
    const struct plan_work work = {.m = a->model,
                                   .part = part,
                                   .dev = dev,
                                   .loss = (enum loss)c->loss.index,
                                   .precision = (enum precision)c->precision,
                                   .stretches = (int)c->recompute};
    enum error err = plan_create(&work, &one, &plan);
    if (err == ERR_NONE)
        *out = (double)plan->activations * kept + (double)plan->gradients + (double)plan->scratch +
               (double)a->model->buffer_floats * sizeof(float);
    plan_free(plan);
    dev->ops->close(dev);
    return err;
}

enum error staged_hold(const struct staged_ask *a, struct held *out) {
    const struct run_config *c = a->config;
    struct staged_cut cut;
    *out = (struct held){0};
    TRY(staged_cut_find(a, &cut));
    for (int s = 0; s < cut.stages; s++) {
        const struct model_part part = staged_part_of(a, &cut, s);
        const struct held_ask ask = {.plan = &share_stages.plan,
                                     .devices = 1,
                                     .owners = 1,
                                     .sums = held_sums(cut.passes),
                                     .slots = state_each(a->model, &c->optimizer.kind),
                                     .arena = (double)(part.end - part.begin) * sizeof(float)};
        struct held h = held_find(&ask);
        int kept = pipe_ahead(cut.stages, c->sharing.ahead, cut.passes, s) + 1;
        TRY(staged_beside(a, &part, kept, &h.of[HELD_ACTIVATIONS]));
        if (held_all(&h) > held_all(out)) *out = h;
    }
    return ERR_NONE;
}
