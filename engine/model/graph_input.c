/* The batch in the device's memory, where ops cannot read the host's. There are two slots: while the ops of one batch run, LANE_COPY can bring the
 * next one. Marks keep the lanes apart: a slot is written when the last batch in it has been left, and read when it
 * is filled.
 *
 *   LANE_COPY      | batch 1 -> slot 1 |       | batch 2 -> slot 0 |
 *   LANE_COMPUTE   forward, backward of slot 0 | ... of slot 1     | ... of slot 0
 *
 * A batch that nobody has staged is brought when its forward begins. */
#include "engine/model/graph_run.h"

struct places { /* bytes into a slot */
    size_t x, labels, others, shares, target, ids, end;
};

static size_t aligned_bytes(size_t bytes) {
    return (bytes + DEVICE_ALIGNMENT - 1) / DEVICE_ALIGNMENT * DEVICE_ALIGNMENT;
}

static size_t label_bytes(const struct graph *g, int64_t n) {
    const struct shape *y = &g->m->output;
    return (size_t)(n * (shape_count(y) / shape_last(y))) * sizeof(int32_t);
}

static size_t target_bytes(const struct graph *g, int64_t n) {
    return g->loss != LOSS_CROSS_ENTROPY ? (size_t)(n * shape_count(&g->m->output)) * sizeof(float) : 0;
}

static size_t x_bytes(const struct graph *g, int64_t n) {
    return (size_t)(n * shape_count(&g->m->input)) * sizeof(float);
}

static struct places places_of(const struct graph *g, int64_t n) {
    struct places p = {0};
    p.labels = p.x + aligned_bytes(x_bytes(g, n));
    p.others = p.labels + aligned_bytes(label_bytes(g, n));
    p.shares = p.others + aligned_bytes(label_bytes(g, n));
    p.target = p.shares + aligned_bytes((size_t)n * sizeof(float));
    p.ids = p.target + aligned_bytes(target_bytes(g, n));
    p.end = p.ids + aligned_bytes((size_t)n * sizeof(uint64_t));
    return p;
}

enum error inputs_prepare(struct graph *g, int64_t n) {
    for (int i = 0; i < g->inputs; i++) {
        struct input_slot *in = &g->input[i];
        void *before = in->memory.base;
        TRY(arena_grow(g, &in->memory, places_of(g, n).end));
        if (in->memory.base != before) in->staged = NULL;
        if (!in->filled) TRY(g->runtime->mark_create(g->dev, &in->filled));
        if (!in->left) TRY(g->runtime->mark_create(g->dev, &in->left));
    }
    return ERR_NONE;
}

void inputs_free(struct graph *g) {
    for (int i = 0; i < g->inputs; i++) {
        struct input_slot *in = &g->input[i];
        device_free(g->dev, in->memory.base);
        if (in->filled) g->runtime->mark_free(in->filled);
        if (in->left) g->runtime->mark_free(in->left);
    }
}

static enum error input_bring(struct graph *g, void *to, const void *from, size_t bytes, const void **there) {
    *there = from ? to : NULL;
    return from && bytes ? g->runtime->write(g->dev, LANE_COPY, to, from, bytes) : ERR_NONE;
}

static enum error input_fill(struct graph *g, struct input_slot *in, const struct graph_batch *b) {
    struct places at = places_of(g, b->n);
    char *base = in->memory.base;
    const void *x, *labels, *others, *shares, *target, *ids;
    TRY(input_bring(g, base + at.x, b->x, x_bytes(g, b->n), &x));
    TRY(input_bring(g, base + at.labels, b->labels, label_bytes(g, b->n), &labels));
    TRY(input_bring(g, base + at.others, b->others, label_bytes(g, b->n), &others));
    TRY(input_bring(g, base + at.shares, b->shares, (size_t)b->n * sizeof(float), &shares));
    TRY(input_bring(g, base + at.target, b->target, target_bytes(g, b->n), &target));
    TRY(input_bring(g, base + at.ids, b->ids, (size_t)b->n * sizeof(uint64_t), &ids));
    in->there = (struct graph_batch){.n = b->n, .x = x, .labels = labels, .target = target, .ids = ids};
    in->there.others = others, in->there.shares = shares;
    return ERR_NONE;
}

/* Behind whatever reads the slot now. */
static enum error input_stage(struct graph *g, struct input_slot *in, const struct graph_batch *b) {
    TRY(g->runtime->follow(g->dev, LANE_COPY, in->left));
    TRY(input_fill(g, in, b));
    in->staged = b->x;
    return g->runtime->mark(g->dev, LANE_COPY, in->filled);
}

enum error graph_stage(struct graph *g, const struct graph_batch *b) {
    if (!g->inputs || !graph_plan(g, b->n, b->segments)) return ERR_NONE;
    return input_stage(g, &g->input[1 - g->slot], b);
}

bool graph_stages(const struct graph *g) {
    return g->inputs > 0;
}

enum error graph_staged(struct graph *g) {
    return g->runtime->wait(g->dev, LANE_COPY);
}

enum error input_take(struct graph *g, const struct graph_batch *b) {
    struct graph_batch *last = &graph_now(g)->last;
    *last = *b;
    last->segments = NULL; /* the plan has them */
    if (!g->inputs) return ERR_NONE;
    TRY(g->runtime->mark(g->dev, LANE_COMPUTE, g->input[g->slot].left));
    struct input_slot *in = &g->input[1 - g->slot];
    bool here = in->staged && in->staged == b->x && in->there.n == b->n;
    if (in->staged && !here) in = &g->input[g->slot]; /* another batch is on its way to that one */
    if (!here) TRY(input_stage(g, in, b));
    TRY(g->runtime->follow(g->dev, LANE_COMPUTE, in->filled));
    in->staged = NULL;
    g->slot = (int)(in - g->input);
    const struct graph_batch *there = &in->there;
    last->x = there->x, last->labels = there->labels;
    last->others = there->others, last->shares = there->shares;
    last->target = there->target, last->ids = there->ids;
    return ERR_NONE;
}
