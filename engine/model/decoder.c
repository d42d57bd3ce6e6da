/* Two graphs share the parameters and the caches of keys and values.
 *
 *   whole   all positions of the tokens at once: a prompt, which fills the caches
 *   one     one position more: all that it needs of those before it is in the caches
 *
 * Positions are absolute. So when a full window moves on by a token, each token gets another position, no key and no
 * value stays what it was, and 'whole' computes all of them, with no cache to fill: nothing less would be exact. Both
 * graphs compute all that follows the last attention for one row (decoder_model.c).
 *
 * The bits are those of a whole input, since no row's sums depend on how many rows there are, and attention adds along
 * the keys one by one.
 *
 * A network that is not causal, or a device whose attention takes no cache, has one graph of the whole input, with
 * zeros behind the tokens.
 *
 * A position is little work, and more threads than one can make it slower, most of all on a busy machine. The first
 * passes of each graph find out. */
#include "engine/model/decoder.h"

#include "engine/base/clock.h"
#include "engine/model/decoder_model.h"
#include "engine/model/graph_run.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 4 };
struct pace { /* of passes on the calling thread alone, and on all of the device's */
    int64_t alone, all;
    int passes;
};
struct part {
    struct model *model;
    struct graph *graph;
    int64_t rows;
    struct pace pace;
};
struct decoder {
    const struct model *m;
    struct device *dev;
    enum precision precision;
    const float *values;
    float *buffers;
    bool causal;
    int64_t context, vocabulary;
    float *tokens; /* of the last call, then zeros: (context) */
    int64_t held;  /* of these: positions that the caches hold */
    void **caches; /* by node; NULL: it has none */
    struct part whole, one;
};

/* ---- how many threads ---- */

/* The first pass of all is slow for other reasons, and does not count. */
static bool is_alone(const struct pace *p) {
    return p->passes <= TRIES || p->all >= p->alone;
}

static void pace_note(struct pace *p, int64_t ns) {
    if (p->passes > 0 && p->passes <= TRIES) p->alone += ns;
    if (p->passes > TRIES && p->passes <= 2 * TRIES && !is_alone(p)) p->all += ns;
    if (p->passes <= 2 * TRIES) p->passes++;
}

static enum error part_forward(struct decoder *d, struct part *p, const struct graph_batch *b) {
    struct threads *all = d->dev->threads;
    if (is_alone(&p->pace)) d->dev->threads = NULL;
    int64_t began = clock_ns();
    enum error err = graph_forward(p->graph, b, d->values, d->buffers, NULL);
    pace_note(&p->pace, clock_ns() - began);
    d->dev->threads = all;
    return err;
}

/* ---- the parts ---- */

static void part_close(struct part *p) {
    graph_free(p->graph);
    free(p->model);
    *p = (struct part){0};
}

static enum error caches_open(struct decoder *d, const struct plan *p) {
    for (int s = 0; s < p->nsteps; s++) {
        const struct plan_step *step = &p->steps[s];
        if (!step->op->cache_bytes || d->caches[step->node]) continue;
        TRY(device_alloc(d->dev, step->op->cache_bytes, &d->caches[step->node]));
    }
    return ERR_NONE;
}

/* For so many rows, with caches where 'context' is above 0. */
static enum error part_open(struct decoder *d, struct part *p, int64_t rows, int64_t context) {
    if (p->graph && p->rows == rows) return ERR_NONE;
    part_close(p);
    p->rows = rows;
    if (d->causal) TRY(model_of_rows(d->m, rows, context, &p->model));
    TRY(graph_create(p->model ? p->model : d->m, d->dev, LOSS_CROSS_ENTROPY, d->precision, &p->graph));
    TRY(graph_prepare(p->graph, 1, NULL));
    if (context) TRY(caches_open(d, graph_plan(p->graph, 1, NULL)));
    graph_caches(p->graph, d->caches);
    return ERR_NONE;
}

/* The output at this row, of those that the part has outputs at. */
static enum error part_run(struct decoder *d, struct part *p, int64_t at, int64_t row, const float **y) {
    const struct graph_batch batch = {.n = 1, .x = d->tokens + at, .at = at};
    TRY(part_forward(d, p, &batch));
    TRY(graph_output(p->graph, y));
    bool many = !p->model || shape_count(&p->model->output) > d->vocabulary;
    if (many) *y += row * d->vocabulary;
    return ERR_NONE;
}

/* ---- the decoder ---- */

/* Whether the device's attention has caches, of all of the model's. */
static bool takes_caches(const struct model *m, struct device *dev) {
    for (int k = 0; k < m->nnodes; k++) {
        struct op_desc op = m->nodes[k].plan.op;
        if (!node_sees_before(&m->nodes[k])) continue;
        op.n = 1;
        op.attention.context = op.x.dim[0];
        if (!op_takes(dev, &op)) return false;
    }
    return true;
}

enum error decoder_create(const struct model *m, struct device *dev, enum precision precision, const float *values,
                          float *buffers, struct decoder **out) {
    struct decoder *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "cannot allocate a decoder");
    *d = (struct decoder){.m = m, .dev = dev, .precision = precision, .values = values, .buffers = buffers};
    d->causal = model_is_causal(m) && takes_caches(m, dev);
    d->context = shape_count(&m->input);
    d->vocabulary = shape_last(&m->output);
    d->tokens = calloc((size_t)d->context, sizeof *d->tokens);
    d->caches = calloc((size_t)m->nnodes, sizeof *d->caches);
    *out = d;
    if (d->tokens && d->caches) return ERR_NONE;
    decoder_free(d);
    *out = NULL;
    return FAIL(ERR_MEMORY, "cannot allocate a decoder");
}

void decoder_free(struct decoder *d) {
    if (!d) return;
    part_close(&d->whole);
    part_close(&d->one);
    for (int k = 0; d->caches && k < d->m->nnodes; k++) device_free(d->dev, d->caches[k]);
    free(d->caches);
    free(d->tokens);
    free(d);
}

/* Positions of these tokens that the caches hold. */
static int64_t held_of(const struct decoder *d, const float *tokens, int64_t count) {
    int64_t same = 0;
    while (same < count && same < d->held && d->tokens[same] == tokens[same]) same++;
    return same;
}

enum error decoder_run(struct decoder *d, const float *tokens, int64_t count, const float **y) {
    bool one = d->causal && held_of(d, tokens, count) >= count - 1;
    int64_t rows = d->causal ? count : d->context, context = rows < d->context ? d->context : 0;
    memcpy(d->tokens, tokens, (size_t)count * sizeof *tokens);
    memset(d->tokens + count, 0, (size_t)(d->context - count) * sizeof *tokens);
    d->held = 0; /* until it has gone well */
    TRY(one ? part_open(d, &d->one, 1, d->context) : part_open(d, &d->whole, rows, context));
    TRY(part_run(d, one ? &d->one : &d->whole, one ? count - 1 : 0, one ? 0 : count - 1, y));
    d->held = one || context ? count : 0;
    return ERR_NONE;
}
