#include "lab/predict/step_trace.h"
#include "engine/base/quantile.h"

#include <math.h>
#include <stdlib.h>

/* ---- reading ---- */

static void trace_take_phase(struct traced_step *s, const struct trace_event *e) {
    if ((int)e->kind >= PHASES || e->lane != TRACE_COMPUTE || e->end > s->end) return;
    s->phase[e->kind] += e->end - e->begin;
    if (e->kind == TRACE_BACKWARD) s->backward_begin = e->begin, s->backward_end = e->end;
}

/* Events are in the order of time, so a step's own stand between it and the next. */
static enum error read_steps(const struct trace_rank *r, struct pool *pool, struct traced_step **out, int *n) {
    int most = 0;
    *n = 0;
    for (int i = 0; i < r->nevents; i++) most += r->events[i].kind == TRACE_STEP;
    TRY_MEMORY(*out = pool_alloc(pool, ((size_t)most + 1) * sizeof **out));
    for (int i = 0; i < r->nevents; i++) {
        const struct trace_event *e = &r->events[i];
        struct traced_step *last = *n ? &(*out)[*n - 1] : NULL;
        if (e->kind == TRACE_STEP && (!last || e->step > last->step)) {
            (*out)[(*n)++] = (struct traced_step){.step = e->step, .begin = e->begin, .end = e->end, .first_event = i};
            last = &(*out)[*n - 1];
        }
        if (!last || e->step != last->step) continue;
        last->event_after = i + 1;
        trace_take_phase(last, e);
    }
    return ERR_NONE;
}

static enum error trace_read_buckets(const struct trace_rank *r, struct pool *pool, struct traced_step *step, int n) {
    struct trace_bucket *b;
    int count, at = 0;
    TRY(trace_buckets(r, pool, &b, &count));
    for (int i = 0; i < n; i++) {
        while (at < count && b[at].step < step[i].step) at++;
        step[i].bucket = b + at;
        while (at < count && b[at].step == step[i].step) at++, step[i].nbuckets++;
    }
    return ERR_NONE;
}

enum error step_trace_read(const char *run_dir, struct pool *pool, struct step_trace *out) {
    *out = (struct step_trace){0};
    TRY(trace_read_all(run_dir, pool, &out->rank, &out->nranks));
    out->step = pool_alloc(pool, ((size_t)out->nranks + 1) * sizeof *out->step);
    out->nsteps = pool_alloc(pool, ((size_t)out->nranks + 1) * sizeof *out->nsteps);
    if (!out->step || !out->nsteps) return ERR_MEMORY;
    for (int i = 0; i < out->nranks; i++) {
        TRY(read_steps(&out->rank[i], pool, &out->step[i], &out->nsteps[i]));
        TRY(trace_read_buckets(&out->rank[i], pool, out->step[i], out->nsteps[i]));
    }
    return ERR_NONE;
}

/* ---- looking up ---- */

const struct traced_step *step_trace_find(const struct step_trace *t, int rank, int64_t step) {
    for (int i = 0; i < t->nsteps[rank]; i++)
        if (t->step[rank][i].step == step) return &t->step[rank][i];
    return NULL;
}

static bool trace_all_have(const struct step_trace *t, int64_t step) {
    for (int r = 0; r < t->nranks; r++)
        if (!step_trace_find(t, r, step)) return false;
    return true;
}

static int trace_by_duration(const void *a, const void *b) {
    const struct traced_step *const *x = a, *const *y = b;
    int64_t d = ((*x)->end - (*x)->begin) - ((*y)->end - (*y)->begin);
    if (d) return d < 0 ? -1 : 1;
    return ((*x)->step > (*y)->step) - ((*x)->step < (*y)->step);
}

int64_t step_trace_typical(const struct step_trace *t) {
    int n = 0;
    if (t->nranks == 0 || t->nsteps[0] == 0) return 0;
    const struct traced_step **by = malloc((size_t)t->nsteps[0] * sizeof *by);
    if (!by) return 0;
    for (int i = 0; i < t->nsteps[0]; i++)
        if (trace_all_have(t, t->step[0][i].step)) by[n++] = &t->step[0][i];
    qsort(by, (size_t)n, sizeof *by, trace_by_duration);
    int64_t step = n ? by[n / 2]->step : 0;
    free(by);
    return step;
}

/* ---- when gradients are ready ---- */

/* Takes when a step's gradients were ready into column 'sample' of all (parameters, most). False: the step does not say. */
static bool trace_take_ready(const struct trace_rank *r, const struct traced_step *s, const struct model *m,
                             double *all, int sample, int most) {
    int64_t whole = s->backward_end - s->backward_begin, end;
    int p = 0;
    if (whole <= 0) return false;
    for (int i = s->first_event; i < s->event_after; i++) {
        const struct trace_event *e = &r->events[i];
        if (e->kind != TRACE_READY) continue;
        double share = (double)(e->begin - s->backward_begin) / (double)whole;
        for (; p < m->nparams; p++) {
            end = p + 1 < m->nparams ? m->params[p + 1].offset : m->arena_floats;
            if (end * (int64_t)sizeof(float) > e->bytes) break;
            all[(size_t)p * (size_t)most + (size_t)sample] = fmin(1, fmax(0, share));
        }
    }
    return p == m->nparams;
}

static int trace_take_all(const struct step_trace *t, const struct model *m, double *all, int most) {
    int n = 0;
    for (int r = 0; r < t->nranks; r++)
        for (int i = 0; i < t->nsteps[r] && n < most && !t->rank[r].accel; i++)
            n += trace_take_ready(&t->rank[r], &t->step[r][i], m, all, n, most);
    return n;
}

int step_trace_ready(const struct step_trace *t, const struct model *m, double *ready) {
    enum { SAMPLES = 1000 };
    int most = 0;
    for (int r = 0; r < t->nranks; r++) most += t->nsteps[r] < SAMPLES ? t->nsteps[r] : SAMPLES;
    most = most < SAMPLES ? most : SAMPLES;
    if (most == 0 || m->nparams == 0) return 0;
    double *all = malloc((size_t)m->nparams * (size_t)most * sizeof *all);
    if (!all) return 0;
    int n = trace_take_all(t, m, all, most);
    for (int p = 0; p < m->nparams && n; p++) ready[p] = quantile_of(all + (size_t)p * (size_t)most, n, 0.5);
    for (int p = 1; p < m->nparams && n; p++) ready[p] = fmax(ready[p], ready[p - 1]);
    free(all);
    return n;
}
