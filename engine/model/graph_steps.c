/* The ops of a plan, for measurements. */
#include "engine/model/graph_run.h"

int graph_steps(const struct graph *g, const struct graph_batch *b) {
    const struct plan *p = graph_plan(g, b->n, b->segments);
    return p ? p->nsteps : 0;
}

void plan_step_bytes(const struct model *m, const struct plan_step *s, int64_t n, double unit, double bytes[2]) {
    int joins = s->desc.joins, own = s->ninputs - joins;
    double each = (double)(n * shape_count(&s->desc.x)), x = each * own, y = (double)(n * shape_count(&s->desc.y));
    double w = 0, joined = joins * y * unit, slope = s->desc.act != ACT_NONE ? joined : 0;
    for (int i = 0; i < s->nparams; i++) w += (double)m->params[m->nodes[s->node].param[i]].count;
    double read = x * (s->desc.first ? sizeof(float) : unit);
    bytes[0] = read + joined + y * unit + w * unit;
    bytes[1] = read + y * unit + w * (unit + sizeof(float)) + (s->desc.first ? 0 : x * unit) + slope;
    if (op_row(s->desc.kind)->same_dx) bytes[1] = s->desc.act == ACT_NONE ? 0 : 3 * y * unit; /* dy becomes both dx */
    if (s->add_dx) bytes[1] += each * unit;
    for (int i = 0; i < s->ninputs; i++) bytes[1] += s->add[i] ? 3 * (i < own ? each : y) * unit : 0;
}

void graph_step(const struct graph *g, const struct graph_batch *b, int step, struct graph_step *out) {
    const struct plan_step *s = &graph_plan(g, b->n, b->segments)->steps[step];
    *out = (struct graph_step){
        .name = s->node == NODE_LOSS ? "loss" : g->m->nodes[s->node].name,
        .impl = s->op->impl->name,
        .desc = &s->desc,
        .inputs = s->ninputs,
    };
    for (int pass = 0; pass < 2; pass++) out->flops[pass] = op_flops(&s->desc, pass) * (double)b->n;
    plan_step_bytes(g->m, s, b->n, (double)device_unit(g->dev, s->desc.precision), out->bytes);
}
