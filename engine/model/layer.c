/* The registry of layers, and what their plans are made of. */
#include "engine/model/layer.h"

#include <assert.h>

#define LAYER(name) extern const struct layer_ops layer_##name;
#include "engine/model/layers/layers.def"
#undef LAYER

static const struct layer_ops *const kinds[] = {
#define LAYER(name) &layer_##name,
#include "engine/model/layers/layers.def"
#undef LAYER
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const struct layer_ops *const *layer_kinds(int *count) {
    *count = KINDS;
    return kinds;
}

static const struct config_section *variant_at(int i) {
    return &kinds[i]->section;
}

static const struct config_field common_fields[] = {
    {"name", CONFIG_STRING, offsetof(struct layer_common, name),
     .help = "Name of the layer, of its parameters too; kind and ordinal when absent"},
    {"from", CONFIG_STRING, offsetof(struct layer_common, from),
     .help = "Layer whose output comes in ('input': the batch); the layer before when absent"},
    {"params", CONFIG_ENUM, offsetof(struct layer_common, params), "dotted",
     "Names of its parameters: NAME.weight, NAME_weight, or NAME alone", .choices = "dotted|underscored|bare"},
    {0},
};
static const struct config_section common = {
    .name = "layer",
    .fields = common_fields,
    .size = sizeof(struct layer_common),
    .help = "What every layer has",
};

const struct config_variants layer_variants = {
    .name = "kind",
    .count = KINDS,
    .at = variant_at,
    .common = &common,
};

void layer_plan_same(struct layer_plan *p, const struct shape *x, enum op_kind kind) {
    p->y = *x;
    p->op = (struct op_desc){.kind = kind, .x = *x, .y = *x};
}

void layer_plan_activation(struct layer_plan *p, const struct shape *x, enum activation act) {
    layer_plan_same(p, x, OP_ACTIVATION);
    p->op.act = act;
}

void layer_plan_param(struct layer_plan *p, struct layer_tensor t) {
    assert(p->nparams < LAYER_PARAMS);
    p->params[p->nparams++] = t;
}

void layer_plan_buffer(struct layer_plan *p, struct layer_tensor t) {
    assert(p->nbuffers < LAYER_BUFFERS);
    p->buffers[p->nbuffers++] = t;
}

struct shape layer_lead(struct shape s, int64_t ones) {
    struct shape out = {.ndim = s.ndim + (int)ones};
    assert(out.ndim <= SHAPE_MAX);
    for (int i = 0; i < out.ndim; i++) out.dim[i] = i < ones ? 1 : s.dim[i - ones];
    return out;
}
