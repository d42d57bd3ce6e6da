/* A layer is one file in layers/ and one line in layers.def: its schema, the shapes it gives, the
 * op that computes it. */
#pragma once
#include "engine/config/schema.h"
#include "engine/device/ops.h"

enum { LAYER_PARAMS = 2, LAYER_BUFFERS = 2, LAYER_INPUTS = 2 };
enum init {
    INIT_UNIFORM, /* U(-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default for linear and conv,
                     weights and bias */
    INIT_NORMAL,  /* N(0, deviation^2) */
    INIT_ZERO,
    INIT_ONE
};
struct layer_tensor { /* a parameter or buffer that the layer wants */
    const char *name; /* "weight", "bias", "running_mean": PyTorch's */
    struct shape shape;
    enum init init;
    int64_t fan_in;
    float deviation;
};
/* What a layer says of itself once its input is known. */
struct layer_plan {
    struct shape y;
    int nparams, nbuffers;
    struct layer_tensor params[LAYER_PARAMS], buffers[LAYER_BUFFERS];
    const char *tie;   /* layer before it whose first parameter serves as this one's; NULL: none */
    bool view;         /* y is x under another shape: no op */
    struct op_desc op; /* n, first and fusions are the graph's to fill */
};
struct layer_ops {
    struct config_section section; /* name (as in YAML), fields, size, shorthand, help */
    int inputs;                    /* 1, or 2: a second comes from the layer that its 'from' names */
    /* Checks that the input fits the config and fills the plan. ERR_CONFIG with a message for the
     * user. */
    enum error (*plan)(const void *config, const struct shape *x, struct layer_plan *out);
};
const struct layer_ops *const *layer_kinds(int *count);
extern const struct config_variants layer_variants; /* for schema: list of layers */

enum layer_naming { NAMING_DOTTED, NAMING_UNDERSCORED, NAMING_BARE };
struct layer_common { /* keys that every layer has */
    const char *name; /* NULL: kind and ordinal */
    const char *from; /* NULL: the layer before */
    int params;       /* enum layer_naming */
};

/* What plans are made of. same: y as x, by an op of this kind. */
void layer_plan_same(struct layer_plan *p, const struct shape *x, enum op_kind kind);
void layer_plan_activation(struct layer_plan *p, const struct shape *x, enum activation act);
void layer_plan_param(struct layer_plan *p, struct layer_tensor t);
/* The shape with so many dimensions of 1 before it, as some frameworks keep a parameter; the numbers
 * stay where they are. */
struct shape layer_lead(struct shape s, int64_t ones);
void layer_plan_buffer(struct layer_plan *p, struct layer_tensor t);

/* The whole of a layer that is an activation without a parameter. */
#define LAYER_ACTIVATION(kind, act, text)                                                                              \
    static enum error plan(const void *config, const struct shape *x, struct layer_plan *p) {                          \
        (void)config;                                                                                                  \
        layer_plan_activation(p, x, act);                                                                              \
        return ERR_NONE;                                                                                               \
    }                                                                                                                  \
    static const struct config_field fields[] = {{0}};                                                                 \
    const struct layer_ops layer_##kind = {                                                                            \
        .section = {.name = #kind, .fields = fields, .help = text}, .inputs = 1, .plan = plan}
