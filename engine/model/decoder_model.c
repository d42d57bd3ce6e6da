/* Only attention looks at other positions, and the output is wanted at the last position alone. So what follows the
 * last attention has one row: 'select' takes it from all that is read there.
 *
 *   embedding ... attention | select    | linear | add | ... linear
 *          \_______________ | select ___________/
 *          all rows                       one row */
#include "engine/model/decoder_model.h"

#include <stdlib.h>

extern const struct layer_ops layer_select;

bool node_sees_before(const struct model_node *node) {
    return !node->plan.view && op_row(node->plan.op.kind)->sees == SEES_BEFORE;
}

static int last_attention(const struct model *m) {
    int last = m->nnodes - 1;
    while (last >= 0 && !node_sees_before(&m->nodes[last])) last--;
    return last;
}

bool model_is_causal(const struct model *m) {
    int last = last_attention(m);
    for (int k = 0; k < m->nnodes; k++) {
        const struct model_node *node = &m->nodes[k];
        const struct op_desc *op = &node->plan.op;
        enum op_sight sees = node->plan.view ? SEES_ROW : op_row(op->kind)->sees;
        bool reads_batch = node->input[0] < 0 || (node->layer->joins && node->input[1] < 0);
        bool placed = k < last || last < 0; /* knows which row it has */
        if (reads_batch != (sees == SEES_TOKEN)) return false;
        if (node->plan.view && !shape_equal(&node->x, &node->plan.y)) return false;
        bool fits = sees == SEES_BEFORE                        ? op->attention.causal
                    : sees == SEES_TOKEN || sees == SEES_PLACE ? placed
                                                               : sees == SEES_ROW;
        if (!fits) return false;
    }
    return m->input.ndim == 1 && m->output.ndim == 2;
}

struct cut {
    const struct model *from;
    struct model *to;
    int64_t rows, context;
    int last;    /* node that is the last with all rows */
    int *select; /* by node up to 'last': the node that has its last row; 0: none yet */
};

static struct shape with_rows(struct shape s, int64_t rows) {
    s.dim[0] = rows;
    return s;
}

static struct shape one_row(const struct shape *s) {
    return (struct shape){.ndim = 1, .dim = {shape_last(s)}};
}

static void node_shape(struct model_node *node, struct shape x, struct shape y) {
    node->x = node->plan.op.x = x;
    node->plan.y = node->plan.op.y = y;
}

static void add_whole(struct cut *c, const struct model_node *from) {
    struct model_node *node = &c->to->nodes[c->to->nnodes++];
    *node = *from;
    node_shape(node, with_rows(from->x, c->rows), with_rows(from->plan.y, c->rows));
    if (node_sees_before(node)) node->plan.op.attention.context = c->context;
}

/* The node that has the last row of node k. */
static int selected(struct cut *c, int k) {
    if (c->select[k]) return c->select[k];
    struct model_node *node = &c->to->nodes[c->select[k] = c->to->nnodes++];
    const struct shape *x = &c->to->nodes[k].plan.y;
    *node = (struct model_node){.name = c->from->nodes[k].name, .layer = &layer_select, .input = {k}, .tied = -1};
    node->plan.op = (struct op_desc){.kind = OP_SELECT, .select = {c->rows - 1}};
    node_shape(node, *x, one_row(x));
    return c->select[k];
}

/* place: by node behind the last attention, its new number. */
static void add_last_row(struct cut *c, int k, int *place) {
    struct model_node node = c->from->nodes[k];
    for (int i = 0; i <= node.layer->joins; i++)
        node.input[i] = node.input[i] > c->last ? place[node.input[i]] : selected(c, node.input[i]);
    if (node.tied > c->last) node.tied = place[node.tied];
    node_shape(&node, one_row(&node.x), one_row(&node.plan.y));
    place[k] = c->to->nnodes;
    c->to->nodes[c->to->nnodes++] = node;
}

enum error model_of_rows(const struct model *m, int64_t rows, int64_t context, struct model **out) {
    int last = last_attention(m), all = 2 * m->nnodes + 1;
    if (last < 0 || rows == 1) last = m->nnodes - 1;
    struct model *to = malloc(sizeof *to + (size_t)all * sizeof *to->nodes);
    int *numbers = calloc((size_t)all, sizeof *numbers), *place = numbers + m->nnodes;
    if (!to || !numbers) {
        free(to), free(numbers);
        return FAIL(ERR_MEMORY, "cannot allocate a model of %d layers", m->nnodes);
    }
    *to = *m;
    to->nodes = (struct model_node *)(to + 1);
    to->nnodes = 0;
    struct cut c = {m, to, rows, context, last, numbers};
    for (int k = 0; k < m->nnodes; k++)
        if (k <= last)
            add_whole(&c, &m->nodes[k]);
        else
            add_last_row(&c, k, place);
    if (last == m->nnodes - 1 && node_sees_before(&m->nodes[last])) (void)selected(&c, last);
    to->input = with_rows(m->input, rows);
    to->output = to->nodes[to->nnodes - 1].plan.y;
    free(numbers);
    *out = to;
    return ERR_NONE;
}
