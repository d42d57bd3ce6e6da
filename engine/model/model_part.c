#include "engine/model/model_part.h"

/* The node whose memory this node's output is; -1: the batch. */
int model_root(const struct model *m, int node) {
    while (node >= 0 && m->nodes[node].plan.view) node = m->nodes[node].input[0];
    return node;
}

/* Whether devices may compute a layer in one op with that before it (engine/model/graph_lower.c), where bits may depend on
 * that: an activation, or a pool behind it. */
static bool is_joined(const struct model_node *node) {
    const struct op_row *row = op_row(node->plan.op.kind);
    return !node->plan.view && (row->activates || node->plan.op.kind == OP_POOL2D);
}

bool model_part_begins(const struct model *m, int node) {
    int input = model_root(m, node - 1);
    if (node == 0 || input < 0 || is_joined(&m->nodes[node])) return node == 0;
    for (int k = node; k < m->nnodes; k++)
        for (int i = 0; i <= m->nodes[k].layer->joins; i++) {
            int root = model_root(m, m->nodes[k].input[i]);
            if (root < node && root != input) return false;
        }
    return true;
}

bool model_uses(const struct model *m, int from, int to, int param) {
    for (int k = from; k < to; k++)
        for (int i = 0; i < m->nodes[k].plan.nparams; i++)
            if (m->nodes[k].param[i] == param) return true;
    return false;
}

/* Parameters of later layers come first. */
static void part_find_params(const struct model *m, struct model_part *p) {
    while (p->param < m->nparams && m->params[p->param].node >= p->to) p->param++;
    p->params = p->param;
    while (p->params < m->nparams && m->params[p->params].node >= p->from) p->params++;
    if (p->to < m->nnodes) p->begin = p->param < m->nparams ? m->params[p->param].offset : m->arena_floats;
    p->end = p->params < m->nparams ? m->params[p->params].offset : m->arena_floats;
}

static void part_find_buffers(const struct model *m, struct model_part *p) {
    p->buffers[0] = p->buffers[1] = m->buffer_floats;
    for (int i = m->nbuffers - 1; i >= 0; i--) {
        if (m->buffers[i].node >= p->to) p->buffers[1] = m->buffers[i].offset;
        if (m->buffers[i].node >= p->from) p->buffers[0] = m->buffers[i].offset;
    }
}

struct model_part model_part(const struct model *m, int from, int to) {
    struct model_part p = {.from = from, .to = to, .input = model_root(m, from - 1)};
    part_find_params(m, &p);
    part_find_buffers(m, &p);
    return p;
}
