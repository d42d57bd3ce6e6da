/* Planning a graph for one batch size.
 *
 * 1. Lower the nodes to steps: graph_lower.c.
 * 2. Plan the ops on the device: they tell what they save and how much scratch they want.
 * 3. Lay out the activations, each at a place of its own, since backward needs them, or what of them is not recomputed:
 * graph_stretches.c.
 * 4. Lay out the gradients. Steps run backwards, so a tensor's gradient lives from its last reader
 * (which writes it first) to its producer (which takes it in). A further reader writes to a
 * temporary that lives in its own step, and the sum is taken, unless its op adds to the gradient by itself: the order
 * is that of the steps, always the same. Each gets the lowest place where nothing that lives at the same time lies (first
 * fit).
 * Where an input's gradient is the output's, element by element (add, activations, dropout, what a step joins), it takes
 * the output's place; both inputs of an add do, if the one that lives longer is not added to before the
 * other is done with. What the loss alone reads is replaced by its gradient, among the activations, where the loss can do
 * so: for a large vocabulary no other tensor is as large.
 *
 * Gradients that lead to no parameter that is trained are not computed. */
#include "engine/model/graph_plan.h"

#include <assert.h>
#include <stdlib.h>

/* ---- 2. ops ------------------------------------------------------------------------------- */

int64_t plan_lines(const struct plan *p, int64_t bytes) {
    return (bytes + p->line - 1) / p->line * p->line;
}

/* Takes the next place of an arena; op_create has checked that one tensor's bytes fit in 63 bits.
 */
enum error plan_place(const struct plan *p, int64_t *total, int64_t bytes, int64_t *out) {
    *out = *total;
    if (bytes > INT64_MAX / 4 - *total)
        return FAIL(ERR_MEMORY, "the activations do not fit in memory\nmake batch.size smaller");
    *total += plan_lines(p, bytes);
    return ERR_NONE;
}

/* What needs no gradient is f32 whatever the precision, and an op reads one type. */
static enum error types_check(const struct plan *p, const struct plan_step *step) {
    for (int i = 0; i < step->ninputs && !step->desc.first; i++)
        if (p->tensors[step->in[i]].unit != p->unit)
            return FAIL(ERR_CONFIG, "it reads data beside what layers have computed, which is not possible with "
                                    "activations of 2 bytes\nuse precision f32 or tf32");
    return ERR_NONE;
}

static enum error ops_create(const struct model *m, struct device *dev, struct plan *p) {
    for (int s = 0; s < p->nsteps; s++) {
        struct plan_step *step = &p->steps[s];
        enum error err = types_check(p, step);
        if (err == ERR_NONE) err = op_create(dev, &step->desc, &step->op);
        if (err != ERR_NONE && step->node != NODE_LOSS) return error_prefix(err, "%s: ", m->nodes[step->node].name);
        if (err != ERR_NONE) return err;
        struct plan_tensor *x = &p->tensors[step->in[0]];
        x->replaced = x->judged && x->wants_grad && step->op->slopes;
        if (step->op->scratch_bytes > p->scratch) p->scratch = step->op->scratch_bytes;
        p->flops += op_flops(&step->desc, false) + op_flops(&step->desc, true);
    }
    return ERR_NONE;
}

/* Steps of the same weights have the same place. */
static enum error apart_place(const struct model *m, struct plan *p) {
    for (int s = 0; s < p->nsteps; s++) {
        struct plan_step *step = &p->steps[s];
        step->apart = -1;
        if (!step->desc.apart) continue;
        int param = m->nodes[step->node].param[0];
        for (int k = 0; k < s; k++)
            if (p->steps[k].desc.apart && m->nodes[p->steps[k].node].param[0] == param) step->apart = p->steps[k].apart;
        if (step->apart >= 0) continue;
        int64_t bytes = m->params[param].count * p->segments.count * (int64_t)sizeof(float);
        TRY(plan_place(p, &p->apart, bytes, &step->apart));
    }
    return ERR_NONE;
}

/* ---- 4. gradients ------------------------------------------------------------------------- */

struct span { /* memory that lives while the steps first >= s >= last run backwards */
    int first, last;
    int64_t at, bytes;
};
struct spans {
    struct span *of;
    int *tensor; /* by tensor: which is its gradient's */
    int count;
    int64_t end; /* of all */
};

/* The lowest place that nothing alive at the same time touches: whatever it meets, it moves behind.
 */
static int64_t span_place(struct spans *all, struct span s) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < all->count; i++) {
            const struct span *o = &all->of[i];
            bool together = s.first >= o->last && o->first >= s.last;
            if (!together || s.at >= o->at + o->bytes || o->at >= s.at + s.bytes) continue;
            s.at = o->at + o->bytes;
            moved = true;
        }
    }
    all->of[all->count++] = s;
    if (all->end < s.at + s.bytes) all->end = s.at + s.bytes;
    return s.at;
}

static int64_t gradient_bytes(const struct plan *p, const struct plan_tensor *t) {
    return plan_lines(p, p->n * t->count * p->unit);
}

static bool is_read_between(const struct plan *p, int tensor, int after, int before) {
    for (int s = after + 1; s < before; s++)
        for (int i = 0; i < p->steps[s].ninputs; i++)
            if (p->steps[s].in[i] == tensor) return true;
    return false;
}

/* Whether both inputs of a step may have their gradients in its own's place: nobody writes to one of them before the
 * other has been read for the last time, by the later of the two producers. */
static bool inputs_share(const struct plan *p, int s) {
    const struct plan_step *step = &p->steps[s];
    int one = p->tensors[step->in[0]].producer, two = p->tensors[step->in[1]].producer;
    int later = one > two ? one : two;
    bool writes = op_row(p->steps[later].desc.kind)->elementwise || p->steps[later].desc.joins;
    return op_row(step->desc.kind)->same_dx && !writes && !is_read_between(p, step->in[0], later, s) &&
           !is_read_between(p, step->in[1], later, s);
}

/* Where the gradient of tensor t begins to live at step s: in the place of the step's own output if
 * that is free to be written to. What lives at s and beyond lies elsewhere already, so that place may
 * live on. */
static int64_t gradient_begin(struct plan *p, struct spans *all, int t, int s, bool *taken) {
    const struct plan_step *step = &p->steps[s];
    struct plan_tensor *tensor = &p->tensors[t];
    bool elementwise = op_row(step->desc.kind)->elementwise || (step->desc.joins && t == step->in[1]);
    if (elementwise && (!*taken || inputs_share(p, s))) {
        int *last = &all->of[all->tensor[step->out]].last;
        if (!*taken || tensor->producer < *last) *last = tensor->producer;
        *taken = true;
        all->tensor[t] = all->tensor[step->out];
        return tensor->dy = p->tensors[step->out].dy;
    }
    all->tensor[t] = all->count;
    struct span span = {.first = s, .last = tensor->producer, .bytes = gradient_bytes(p, tensor)};
    return tensor->dy = span_place(all, span);
}

static void gradients_place(struct plan *p, struct spans *all) {
    struct plan_tensor *out = &p->tensors[p->output];
    for (int t = 0; t < p->ntensors; t++) p->tensors[t].dy = -1;
    if (!plan_judges(p) && out->wants_grad) { /* which comes from the next part */
        all->tensor[p->output] = all->count;
        out->dy =
            span_place(all, (struct span){.first = p->nsteps, .last = out->producer, .bytes = gradient_bytes(p, out)});
    }
    for (int s = p->nsteps - 1; s >= 0; s--) {
        struct plan_step *step = &p->steps[s];
        bool taken = false;
        for (int i = 0; i < LAYER_INPUTS; i++) step->dx[i] = -1;
        if (p->tensors[step->in[0]].replaced) continue;
        for (int i = 0; i < step->ninputs && !step->desc.first; i++) {
            const struct plan_tensor *t = &p->tensors[step->in[i]];
            bool begins = t->wants_grad && t->dy < 0;
            struct span beside = {.first = s, .last = s, .bytes = gradient_bytes(p, t)};
            bool adds = t->wants_grad && !begins, itself = adds && i == 0 && step->op->adds_dx;
            step->add_dx |= itself;
            step->add[i] = adds && !itself;
            step->dx[i] = begins   ? gradient_begin(p, all, step->in[i], s, &taken)
                          : itself ? t->dy
                                   : span_place(all, beside);
        }
    }
}

static enum error gradients_layout(struct plan *p) {
    struct spans all = {.of = calloc((size_t)p->nsteps * LAYER_INPUTS + 1, sizeof(struct span)),
                        .tensor = calloc((size_t)p->ntensors, sizeof(int))};
    int64_t total = 0, at; /* if all lived at once it must not overflow either */
    enum error err =
        all.of && all.tensor ? ERR_NONE : FAIL(ERR_MEMORY, "cannot allocate a plan of %d steps", p->nsteps);
    for (int s = 0; s < p->nsteps && err == ERR_NONE; s++)
        for (int i = 0; i < p->steps[s].ninputs && err == ERR_NONE; i++)
            err = plan_place(p, &total, gradient_bytes(p, &p->tensors[p->steps[s].in[i]]), &at);
    if (err == ERR_NONE) gradients_place(p, &all);
    p->gradients = all.end;
    free(all.of);
    free(all.tensor);
    return err;
}

/* ---- the plan ----------------------------------------------------------------------------- */

enum error plan_create(const struct plan_work *w, const struct segments *segments, struct plan **out) {
    struct plan *p = calloc(1, sizeof *p);
    if (!p) return FAIL(ERR_MEMORY, "cannot allocate a plan of %d layers", w->m->nnodes);
    p->segments = *segments;
    p->n = segments->begin[segments->count];
    assert(p->n > 0);
    p->unit = (int64_t)device_unit(w->dev, w->precision);
    p->line = device_runtime(w->dev)->alignment;
    enum error err = plan_lower(w, p);
    if (err == ERR_NONE) err = few_plan(w, p);
    if (err == ERR_NONE) err = apart_place(w->m, p);
    if (err == ERR_NONE) err = ops_create(w->m, w->dev, p);
    if (err == ERR_NONE) err = plan_stretches(p, w->stretches);
    if (err == ERR_NONE) err = gradients_layout(p);
    if (err == ERR_NONE)
        *out = p;
    else
        plan_free(p);
    return err;
}

void plan_free(struct plan *p) {
    if (!p) return;
    for (int s = 0; s < p->nsteps; s++) {
        op_free(p->steps[s].op);
        if (p->steps[s].few && p->steps[s].desc.kind == OP_LINEAR) few_free(p->steps[s].few);
    }
    free(p->steps);
    free(p->tensors);
    free(p);
}
