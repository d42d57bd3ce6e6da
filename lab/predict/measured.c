#include "lab/predict/measured.h"

#include "engine/model/state.h"
#include "engine/settings/run_config.h"
#include "engine/settings/sharing.h"
#include "lab/predict/planned.h"
#include "modes/bucket.h"

#include <math.h>

/* ---- where gradients become ready ----------------------------------------------------------- */

/* Backward goes through the steps from the last; what it computes there takes its share of the time. A pass costs a
 * little for every step, too, which matters where products are small or none. */
static double measured_weight_of(const struct plan_step *s, double all, int steps) {
    return op_flops(&s->desc, true) + 0.02 * all / steps;
}

static void measured_find_ready(const struct model *m, const struct plan *plan, double *ready) {
    double all = 0, total = 0, done = 0;
    for (int i = 0; i < plan->nsteps; i++) all += op_flops(&plan->steps[i].desc, true);
    for (int i = 0; i < plan->nsteps; i++) total += measured_weight_of(&plan->steps[i], all, plan->nsteps);
    for (int i = 0; i < m->nparams; i++) ready[i] = 1;
    for (int s = plan->nsteps - 1; s >= 0; s--) {
        done += measured_weight_of(&plan->steps[s], all, plan->nsteps);
        for (int i = 0; i < m->nparams; i++)
            if (m->params[i].node == plan->steps[s].node && total > 0) ready[i] = done / total;
    }
    for (int i = 1; i < m->nparams; i++) ready[i] = fmin(1, fmax(ready[i], ready[i - 1]));
}

void measured_find_work(const struct model *m, const struct plan *plan, double *work) {
    double all = 0, total = 0;
    for (int i = 0; i < plan->nsteps; i++) all += op_flops(&plan->steps[i].desc, true);
    for (int i = 0; i < plan->nsteps; i++) total += measured_weight_of(&plan->steps[i], all, plan->nsteps);
    for (int k = 0; k < m->nnodes; k++) work[k] = 0;
    for (int i = 0; i < plan->nsteps && total > 0; i++) {
        int node = plan->steps[i].node == NODE_LOSS ? m->nnodes - 1 : plan->steps[i].node;
        work[node] += measured_weight_of(&plan->steps[i], all, plan->nsteps) / total;
    }
}

/* ---- what the run says ---------------------------------------------------------------------- */

/* The typical time of a step, of those in metrics.jsonl; if these are too few, what the summary says. */
static double measured_typical(const struct run_result *r, double quantile) {
    enum { FEW = 20 };
    int64_t n;
    double ms = run_result_quantile_ms(r, 0, quantile, &n);
    return (n >= FEW ? ms : r->p50_ms) * 1e-3;
}

/* The phases are means over all steps, the first and the disturbed among them. */
static double measured_scale_of(const struct run_result *r, double steps, double quantile) {
    double mean = 0, step = measured_typical(r, quantile);
    for (int p = 0; p < PHASES; p++) mean += r->time_s[p] / steps;
    return mean > 0 && step > 0 ? fmin(1, step / mean) : 1;
}

enum error measured_read(const struct measured_ask *ask, struct pool *pool, struct measured_step *out) {
    const struct run_result *r = ask->run;
    const struct run_config *c = ask->config;
    const struct model *m = ask->model;
    const struct plan *plan = ask->plan;
    if (run_result_stretch(r) < 1 || r->devices < 1 || r->ranks < 1)
        return FAIL(ERR_DATA, "'%s' has taken no step", r->dir);
    double crowd = ask->cores && r->devices > ask->cores ? (double)r->devices / ask->cores : 1;
    double steps = (double)run_result_stretch(r), each = measured_scale_of(r, steps, ask->quantile) / steps,
           whole = each * (double)r->devices / crowd;
    enum update_by by = c->sharing.plan.update;
    *out = (struct measured_step){
        .load = r->time_s[PHASE_LOAD] * whole,
        .forward = r->time_s[PHASE_FORWARD] * whole,
        .backward = r->time_s[PHASE_BACKWARD] * whole,
        .work = 1.0 / (double)c->devices.count,
        .batch = c->batch.size,
        .passes = (int64_t)planned_passes(c) * c->devices.count,
        .samples = plan->n,
        .unit = (double)plan->unit,
        .model = m,
        .activations = (double)(plan->activations + plan->gradients),
        .scratch = (double)plan->scratch,
        .slots = state_each(m, &c->optimizer.kind),
    };
    /* Times are means over the ranks: of a server's, over many that do not update. */
    double parts = c->sharing.plan.staged ? c->sharing.stages : (double)r->ranks;
    double updates = (by == UPDATE_BY_ALL ? 1 : parts) / (by == UPDATE_BY_ROOT ? 1 : crowd);
    out->update = r->time_s[PHASE_UPDATE] * each * updates;
    out->ready = pool_alloc(pool, ((size_t)m->nparams + 1) * sizeof *out->ready);
    out->by_layer = pool_alloc(pool, (size_t)m->nnodes * sizeof *out->by_layer);
    if (!out->ready || !out->by_layer) return ERR_MEMORY;
    measured_find_work(m, plan, out->by_layer);
    measured_find_ready(m, plan, out->ready);
    return ERR_NONE;
}

void measured_take_trace(struct measured_step *m, const struct step_trace *t) {
    m->traced = step_trace_ready(t, m->model, m->ready);
}

struct measured_step measured_grow(const struct measured_step *m, double times) {
    struct measured_step out = *m;
    out.load *= times;
    out.forward *= times;
    out.backward *= times;
    out.activations *= times;
    return out;
}

/* ---- what a device does --------------------------------------------------------------------- */

static double measured_passes_of(const struct measured_step *m, double share) {
    return fmax(1, (double)m->passes * share);
}

enum error measured_shape(const struct measured_step *m, double share, const struct cutting *cut,
                          struct step_shape *out) {
    struct buckets b;
    double last = 1 / measured_passes_of(m, share), backward = m->backward * share;
    TRY(buckets_init(&b, m->model, cut));
    enum error err = ERR_NONE;
    if (b.count > SIMULATE_BUCKETS)
        err = FAIL(ERR_CONFIG, "%d buckets\nat most %d can be simulated: larger ones", b.count, SIMULATE_BUCKETS);
    out->before = (m->load + m->forward) * share + backward * (1 - last);
    out->backward = backward * last;
    out->forward = m->forward * share;
    out->passes = (int)llround(measured_passes_of(m, share));
    out->update = m->update;
    out->buckets = err == ERR_NONE ? b.count : 0;
    out->stages.count = 0;
    for (int i = 0, p = 0; i < out->buckets; i++) {
        double ready = 1;
        for (; p < m->model->nparams && m->model->params[p].offset < b.edge[i + 1]; p++) ready = m->ready[p];
        if (p && m->model->params[p - 1].offset < b.edge[i]) ready = m->ready[p - 1]; /* it lies within that one */
        out->bytes[i] = (double)(b.edge[i + 1] - b.edge[i]) * sizeof(float);
        out->ready[i] = ready;
    }
    buckets_fini(&b);
    return err;
}

double measured_beside(const struct measured_step *m, double share) {
    double samples = fmin(1, (double)m->passes * share); /* of a pass, as it was measured */
    return (double)m->model->buffer_floats * sizeof(float) + m->activations * samples + m->scratch;
}

double measured_memory(const struct measured_step *m, double share, double state) {
    double arena = (double)m->model->arena_floats * sizeof(float);
    double sums = floor(log2(measured_passes_of(m, share))) + 1; /* gradients of which are kept at once */
    return arena * (1 + sums + m->slots * state) + measured_beside(m, share);
}

void measured_json(const struct measured_step *m, struct json *j) {
    json_put(j, JSON_REAL("load_s", m->load), JSON_REAL("forward_s", m->forward), JSON_REAL("backward_s", m->backward),
             JSON_REAL("update_s", m->update),
             JSON_INT("gradient_bytes", m->model->arena_floats * (int64_t)sizeof(float)),
             JSON_INT("traced_steps", m->traced));
}
