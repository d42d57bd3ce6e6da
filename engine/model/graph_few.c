/* Weights that an embedding of the batch's tokens shares with a later linear layer, where a pass has several segments.
 *
 * A segment's gradient of them is the linear layer's, to which the rows of its tokens are added in order; the gradient is
 * the sum of the segments' along the tree. Only rows that the batch has a token for differ from the tree's sum of the linear
 * layer alone, which its op writes in one pass. So these few rows alone are kept by segment:
 *
 *   linear     dw                   = the tree's sum over segments: its own op
 *              kept (segments, few) = of each segment by itself, from those columns of dy alone
 *   embedding  kept                += dy of the tokens
 *              dw, few rows         = the tree's sum over segments
 *
 * GPT-2's vocabulary has 50,257 rows; a batch of 4 x 256 tokens names at most 1,024 of them. */
#include "engine/base/vector.h"
#include "engine/device/threads.h"
#include "engine/model/graph_run.h"

#include <string.h>

struct few {
    struct op *linear;     /* with 'most' outputs */
    int64_t most, count;   /* rows: of any batch, of the last one */
    int64_t all, width;    /* the weights' rows, and their length */
    float *dy, *kept;      /* dy: (rows of the layer, most); kept: (segments, most, width) */
    int32_t *row, *number; /* (most): which they are; (all): which of them a row is, from 1 on; 0: none */
};

/* ---- planning ---------------------------------------------------------------------------------- */

/* The only other step that has the weights of 'later', if it is an embedding of the batch; else NULL. */
static struct plan_step *few_partner(const struct plan_work *w, struct plan *p, const struct plan_step *later) {
    struct plan_step *first = NULL;
    if (later->desc.kind != OP_LINEAR || later->desc.act != ACT_NONE) return NULL;
    for (int s = 0; s < p->nsteps; s++) {
        struct plan_step *step = &p->steps[s];
        bool same = step->desc.apart && w->m->nodes[step->node].param[0] == w->m->nodes[later->node].param[0];
        if (step == later || !same) continue;
        if (first || step->desc.kind != OP_EMBEDDING || step->in[0] != TENSOR_BATCH || w->part->from) return NULL;
        first = step;
    }
    return first;
}

static enum error few_create(const struct plan_work *w, struct plan *p, const struct plan_step *later, struct few *f) {
    struct op_desc d = later->desc;
    d.y.dim[d.y.ndim - 1] = f->most;
    d.linear.bias = false;
    int64_t dy = align_floats(p->n * shape_count(&d.y)), kept = p->segments.count * f->most * f->width;
    TRY_MEMORY(f->dy = memory_new((size_t)(dy + kept + f->most + f->all) * sizeof(float)));
    f->kept = f->dy + dy, f->row = (int32_t *)(void *)(f->kept + kept), f->number = f->row + f->most;
    TRY(op_create(w->dev, &d, &f->linear));
    if (f->linear->scratch_bytes > p->scratch) p->scratch = f->linear->scratch_bytes;
    return ERR_NONE;
}

/* Where few rows are no fewer than all, nothing is gained. */
enum error few_plan(const struct plan_work *w, struct plan *p) {
    for (int s = 0; s < p->nsteps; s++) {
        struct plan_step *later = &p->steps[s], *first = later->desc.apart ? few_partner(w, p, later) : NULL;
        if (!first) continue;
        int64_t all = first->desc.embedding.vocabulary, most = p->n * shape_count(&first->desc.x);
        struct few f = {.most = most, .all = all, .width = shape_last(&first->desc.y)};
        if (most >= all) continue;
        TRY_MEMORY(later->few = memory_new(sizeof f));
        *later->few = f, first->few = later->few;
        TRY(few_create(w, p, later, later->few));
        later->desc.apart = first->desc.apart = false;
        first->desc.segments = NULL; /* its own backward does not run */
    }
    return ERR_NONE;
}

void few_free(struct few *f) {
    op_free(f->linear);
    memory_free(f->dy);
    memory_free(f);
}

/* ---- running ----------------------------------------------------------------------------------- */

/* Numbers the rows that the batch has tokens for, in the order in which they come. */
static void few_number(struct few *f, const float *tokens) {
    memset(f->number, 0, (size_t)f->all * sizeof *f->number);
    f->count = 0;
    for (int64_t i = 0; i < f->most; i++) {
        int32_t row = (int32_t)tokens[i], *number = &f->number[row];
        if (!*number) f->row[f->count++] = row, *number = (int32_t)f->count;
    }
}

struct gather {
    const struct few *f;
    const float *dy;
};
static void gather_columns(void *ctx, int64_t begin, int64_t end) {
    const struct gather *t = ctx;
    const struct few *f = t->f;
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < f->count; k++) f->dy[i * f->most + k] = t->dy[i * f->all + f->row[k]];
}

static enum error few_linear(struct graph *g, struct few *f, const struct plan_step *s, const struct op_args *a) {
    struct gather t = {f, a->dy};
    struct op_args few = *a;
    few.dy = f->dy, few.dx[0] = NULL, few.dw[0] = f->kept;
    threads_share(g->dev->threads, graph_now(g)->plan->n * shape_count(&s->desc.y) / f->all, 1, gather_columns, &t);
    TRY(op_backward(f->linear, &few));
    return op_backward(s->op, a);
}

enum error apart_sum(struct graph *g, float *of, int64_t each, int segments) {
    for (int apart = 1; apart < segments; apart *= 2)
        for (int i = 0; i < segments; i += 2 * apart)
            TRY(device_add(g->dev, of + i * each, of + (i + apart) * each, each));
    return ERR_NONE;
}

static enum error few_embedding(struct graph *g, const struct few *f, const struct plan *p, const struct op_args *a) {
    int64_t each = f->most / p->n, n = f->width;
    for (int i = 0; i < p->segments.count; i++)
        for (int64_t k = p->segments.begin[i] * each; k < p->segments.begin[i + 1] * each; k++)
            floats_add(f->kept + (i * f->most + f->number[(int64_t)a->x[0][k]] - 1) * n, a->dy + k * n, n);
    TRY(apart_sum(g, f->kept, f->most * n, p->segments.count));
    for (int64_t k = 0; k < f->count; k++) memcpy(a->dw[0] + f->row[k] * n, f->kept + k * n, (size_t)n * sizeof(float));
    return ERR_NONE;
}

enum error few_backward(struct graph *g, const struct member_arenas *m, const struct plan_step *s,
                        const struct op_args *a) {
    if (s->desc.kind == OP_EMBEDDING) return few_embedding(g, s->few, m->plan, a);
    few_number(s->few, m->last.x);
    return few_linear(g, s->few, s, a);
}
