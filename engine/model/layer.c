/* The registry of layers, and what their plans are made of. */
#include "engine/model/layer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define LAYER(name) extern const struct layer_ops layer_##name;
#include "engine/model/layers/layers.def"

enum {
#define LAYER(name) KIND_##name,
#include "engine/model/layers/layers.def"
    KINDS
};
static const struct layer_ops *kinds[KINDS + LAYERS_ADDED] = {
#define LAYER(name) &layer_##name,
#include "engine/model/layers/layers.def"
};

static const struct config_section *variant_at(int i) {
    return &kinds[i]->section;
}

static const struct config_field common_fields[] = {
    {"name", CONFIG_STRING, offsetof(struct layer_common, name),
     .help = "Name of the layer, of its parameters too; kind and ordinal when absent"},
    {"from", CONFIG_STRING, offsetof(struct layer_common, from),
     .help = "Layer whose output is the input ('input': the batch); default: the previous layer"},
    {"params", CONFIG_ENUM, offsetof(struct layer_common, params), "dotted",
     "Names of its parameters: NAME.weight, NAME_weight, or only NAME", .choices = "dotted|underscored|bare"},
    {0},
};
const struct config_section layer_common_section = {
    .name = "layer",
    .fields = common_fields,
    .size = sizeof(struct layer_common),
    .help = "What every layer has",
};

static struct config_variants layer_variants = {
    .name = "kind",
    .count = KINDS,
    .at = variant_at,
    .common = &layer_common_section,
    .topic = "layers",
};

const struct layer_ops *const *layer_kinds(int *count) {
    *count = layer_variants.count;
    return kinds;
}

void layer_register(const struct layer_ops *layer) {
    assert(layer_variants.count < KINDS + LAYERS_ADDED);
    kinds[layer_variants.count++] = layer;
}

static const struct config_field layers_fields[] = {
    {"layers", CONFIG_VARIANTS, 0, .help = "The layers in order", .extra = &layer_variants},
    {0},
};
const struct config_section layers_section = {
    .name = "model", .fields = layers_fields, .size = sizeof(struct config_list), .help = "Layers"};

const struct layer_ops *layer_find(const char *name) {
    for (int i = 0; i < layer_variants.count; i++)
        if (!strcmp(kinds[i]->section.name, name)) return kinds[i];
    for (int i = 0; i < layer_variants.count; i++)
        if (config_also(kinds[i]->section.also, name)) return kinds[i];
    return NULL;
}

/* ---- what comes in ---- */

/* How an input of one kind becomes one of another. */
static const char *const ways[INPUTS][INPUTS] = {
    [INPUT_FEATURES] = {[INPUT_SEQUENCE] = "embedding before it makes a sequence of tokens, tokens one of an image",
                        [INPUT_IMAGE] = "put it before flatten"},
    [INPUT_SEQUENCE] = {[INPUT_FEATURES] = "meanpool or select before it makes features of a sequence",
                        [INPUT_IMAGE] = "put it before tokens"},
    [INPUT_IMAGE] = {[INPUT_FEATURES] = "flatten or meanpool before it makes features of an image",
                     [INPUT_SEQUENCE] = "tokens before it makes a sequence of an image"},
};

enum error layer_takes(const struct layer_ops *layer, const struct shape *x) {
    static const enum layer_input of_ndim[SHAPE_MAX + 1] = {[2] = INPUT_SEQUENCE, [3] = INPUT_IMAGE};
    enum layer_input got = of_ndim[x->ndim];
    char takes[160] = "", hint[256] = "";
    size_t t = 0, h = 0;
    if (x->ndim > 3) return FAIL(ERR_CONFIG, "a sample has three dimensions at most");
    if (layer->out[got] || (got == INPUT_FEATURES && layer->out[INPUT_TOKENS])) return ERR_NONE;
    for (int i = 0; i < INPUTS; i++) {
        if (!layer->out[i]) continue;
        const char *way = layer->instead ? NULL : ways[got][i];
        t += (size_t)snprintf(takes + t, sizeof takes - t, "%s%s", t ? " or " : "", layer_inputs[i].words);
        if (way) h += (size_t)snprintf(hint + h, sizeof hint - h, "%s%s", h ? ", " : "", way);
    }
    return FAIL(ERR_CONFIG, "%s takes %s, not %s\n%s", layer->section.name, takes, layer_inputs[got].words,
                layer->instead ? layer->instead : hint);
}

/* ---- plans ---- */

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

void layer_plan_affine(struct layer_plan *p, struct shape weight, int64_t out, int64_t fan_in, double deviation,
                       bool bias) {
    bool normal = deviation > 0;
    layer_plan_param(p, (struct layer_tensor){"weight", weight, normal ? INIT_NORMAL : INIT_UNIFORM, fan_in,
                                              normal ? (float)deviation : 0});
    if (bias)
        layer_plan_param(
            p, (struct layer_tensor){"bias", {.ndim = 1, .dim = {out}}, normal ? INIT_ZERO : INIT_UNIFORM, fan_in});
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
