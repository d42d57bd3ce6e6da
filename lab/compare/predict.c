/* What each cell of an experiment should have taken a step, beside what it took. Computing is measured once: by the
 * cell of the fewest devices that computes the same. All the others are predicted from it, from what they send, and from
 * the ports that they send it through; no cell is predicted from itself, and nothing is fitted to the times that are to
 * be predicted. */
#include "lab/compare/compare.h"
#include "lab/predict/link_fit.h"
#include "lab/predict/measured.h"
#include "lab/predict/planned.h"

#include <math.h>
#include <string.h>

struct predict_source { /* a cell whose step was measured */
    bool open, known;
    const char *why; /* nothing can be predicted from it */
    struct planned network;
    struct measured_step step;
};

static const struct run_config *predict_config_of(const struct compared *c, int cell) {
    return &c->x->cell[cell].settings.config;
}

/* ---- which cell stands for which ------------------------------------------------------------ */

/* Of named sides, which set several keys. */
static bool predict_sides_share(const struct compared *c, int a, int b) {
    enum { MOST = 256 };
    struct setting_difference d[MOST];
    int n = settings_differ(&c->x->cell[a], &c->x->cell[b], NULL, d, MOST);
    for (int i = 0; i < n; i++)
        if (d[i].computes) return false;
    return n < MOST;
}

static bool predict_computes_alike(const struct compared *c, int a, int b) {
    const struct experiment *x = c->x;
    const struct run_config *m = predict_config_of(c, a), *n = predict_config_of(c, b);
    for (int i = 0; i < x->naxes; i++) {
        bool shares = x->axis[i].named ? predict_sides_share(c, a, b) : setting_shares(x->axis[i].key);
        if (!shares && x->cell[a].at[i] != x->cell[b].at[i]) return false;
    }
    return !strcmp(m->devices.kind, n->devices.kind) && m->threads == n->threads;
}

/* -1: none that can tell has run. */
static int source_of(const struct compared *c, int cell) {
    int least = -1;
    for (int i = 0; i < c->x->ncells; i++) {
        if (c->x->cell[i].start.command || !predict_computes_alike(c, i, cell) || !(compare_step_ms(c, i) > 0) ||
            measured_refuse(predict_config_of(c, i)) != ERR_NONE)
            continue;
        if (least < 0 || predict_config_of(c, i)->devices.count < predict_config_of(c, least)->devices.count) least = i;
    }
    return least;
}

/* ---- its step ------------------------------------------------------------------------------- */

/* The number of devices whose threads run at once; 0: each device has its own processor. */
static int predict_cores_of(const struct compared *c, int cell) {
    const struct run_config *r = predict_config_of(c, cell);
    if (device_find(r->devices.kind)->units) return 0;
    int64_t cores = c->cell[cell].run[0].result.environment.cores;
    if (cores < 1) cores = device_host_cores();
    return cores > r->threads ? (int)(cores / r->threads) : 1;
}

/* The run in the middle, whose step is taken to be the cell's. */
static const struct run_result *predict_typical_run(const struct compared *c, int cell) {
    const struct compared_cell *runs = &c->cell[cell];
    double middle = compare_step_ms(c, cell), least = INFINITY;
    const struct run_result *best = &runs->run[0].result;
    for (int i = 0; i < runs->nruns; i++) {
        int64_t n;
        double off = fabs(run_result_step_ms(&runs->run[i].result, c->x->warmup, &n) - middle);
        if (off < least) least = off, best = &runs->run[i].result;
    }
    return best;
}

/* Reads the measured step of a cell. If that run was traced (log.trace), it is known when gradients are ready; else that follows from the work of each layer. */
static enum error read_source(const struct compared *c, int cell, struct predict_source *s) {
    struct config_errors *e;
    struct step_trace trace;
    struct run_result typical = *predict_typical_run(c, cell);
    typical.nsteps = typical.stretch = 0; /* the cell's median says more than this run's steps */
    typical.p50_ms = compare_step_ms(c, cell);
    TRY(config_errors_create(&e));
    enum error err = planned_open(predict_config_of(c, cell), "ref", e, &s->network);
    config_errors_free(e);
    if (err != ERR_NONE) return err;
    const struct measured_ask ask = {&typical,        predict_config_of(c, cell), s->network.model,
                                     s->network.plan, predict_cores_of(c, cell),  0.5};
    TRY(measured_read(&ask, c->pool, &s->step));
    if (step_trace_read(typical.dir, c->pool, &trace) == ERR_NONE) measured_take_trace(&s->step, &trace);
    return ERR_NONE;
}

static void open_source(const struct compared *c, int cell, struct predict_source *s) {
    if (s->open) return;
    s->open = true;
    s->known = read_source(c, cell, s) == ERR_NONE;
    if (!s->known) s->why = pool_say(c->pool, "%s", error_message());
}

/* ---- a cell's ------------------------------------------------------------------------------- */

/* Describes the ports that a cell emulates: "emulated 1Gbit, 50us", or "emulated links" that differ; "": nothing is
 * sent. */
static const char *predict_port_text(const struct compared *c, int cell) {
    const struct emulation *e = &predict_config_of(c, cell)->comm.emulate.as;
    const struct experiment_cell *x = &c->x->cell[cell];
    if (predict_config_of(c, cell)->devices.count == 1) return "";
    if (emulation_varies(e) || e->up > 0) return "emulated links";
    return pool_say(c->pool, "emulated%s%s%s%s", e->bandwidth > 0 ? " " : "",
                    e->bandwidth > 0 ? result_setting_of(x->setting, x->nsettings, "comm.emulate.bandwidth") : "",
                    e->latency > 0 ? ", " : "",
                    e->latency > 0 ? result_setting_of(x->setting, x->nsettings, "comm.emulate.latency") : "");
}

static void predict_from(struct compared *c, int cell, const struct predict_source *s) {
    struct compared_prediction *p = &c->cell[cell].predicted;
    const struct run_config *r = predict_config_of(c, cell);
    struct simulated simulated;
    if (!s->known) {
        p->why = s->why;
        return;
    }
    bool fitted = link_fit_needed(c->x, cell);
    struct link_fit fit = {0};
    enum error err = fitted ? link_fit_read(c->x, c->folder, cell, &fit) : ERR_NONE;
    if (err == ERR_NONE)
        err = measured_predict(&s->step, r, fitted ? &fit.wire : NULL, predict_cores_of(c, p->from), &simulated,
                               &p->formula);
    if (err != ERR_NONE) {
        p->why = pool_say(c->pool, "%s", error_message());
        p->formula = (double)NAN;
        return;
    }
    p->why = NULL;
    p->port = fitted ? fit.words : predict_port_text(c, cell);
    p->fit_error = fitted ? fit.off : (double)NAN;
    p->step = simulated.step;
    p->residual = p->step * 1e3 / compare_step_ms(c, cell) - 1;
}

static void predict_cell(struct compared *c, int cell, struct predict_source *sources) {
    const double none = (double)NAN;
    struct compared_prediction *p = &c->cell[cell].predicted;
    const struct run_config *r = predict_config_of(c, cell);
    *p = (struct compared_prediction){none, none, none, none, source_of(c, cell), "", NULL};
    if (c->x->cell[cell].start.command)
        p->from = -1, p->why = "an external command";
    else if (p->from == cell)
        p->why = "the others are predicted from it";
    else if (measured_refuse(r) != ERR_NONE)
        p->why = pool_say(c->pool, "%s", error_message());
    else if (p->from < 0)
        p->why = "no cell with the same computation has run";
    else if (link_fit_needed(c->x, cell) && !c->x->model_fit)
        p->why = "links are neither emulated (comm.emulate) nor measured (model_fit: true)";
    if (p->why) return;
    open_source(c, p->from, &sources[p->from]);
    predict_from(c, cell, &sources[p->from]);
}

/* ---- all ------------------------------------------------------------------------------------ */

static void predict_sum_up(struct compared *c) {
    double off[EXPERIMENT_CELLS];
    bool used[EXPERIMENT_CELLS] = {false};
    struct compared_model *m = &c->model;
    int n = 0;
    *m = (struct compared_model){.median = (double)NAN, .worst = (double)NAN};
    for (int i = 0; i < c->x->ncells; i++) {
        const struct compared_prediction *p = &c->cell[i].predicted;
        if (p->why) {
            m->silent += p->from != i;
            continue;
        }
        m->cells++;
        m->sources += !used[p->from];
        used[p->from] = true;
        if (!isfinite(p->residual)) continue;
        if (n == 0 || fabs(p->residual) > fabs(m->worst)) m->worst = p->residual, m->worst_cell = i;
        off[n++] = fabs(p->residual);
    }
    if (n) m->median = statistics_median(off, n);
}

void compare_predict(struct compared *c) {
    struct predict_source *sources = pool_alloc(c->pool, sizeof *sources * (size_t)c->x->ncells);
    if (!sources) return;
    for (int i = 0; i < c->x->ncells; i++) predict_cell(c, i, sources);
    for (int i = 0; i < c->x->ncells; i++) planned_close(&sources[i].network);
    predict_sum_up(c);
    c->predicted = true;
}
