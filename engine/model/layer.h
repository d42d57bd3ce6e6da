/* A layer is one file in layers/ and one line in layers.def: its schema and what else help, manual and docs/layers.md
 * say of it, the shapes it gives, the op that computes it. */
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
/* The properties of a layer once its input is known. */
struct layer_plan {
    struct shape y;
    int nparams, nbuffers;
    struct layer_tensor params[LAYER_PARAMS], buffers[LAYER_BUFFERS];
    const char *tie;   /* layer before it whose first parameter serves as this one's; NULL: none */
    bool view;         /* y is x under another shape: no op */
    struct op_desc op; /* n, first and fusions are the graph's to fill */
};
/* The possible inputs of a layer, and the names of their dimensions. */
enum layer_input {
    INPUT_FEATURES, /* F */
    INPUT_TOKENS,   /* T: whole numbers; a shape alone does not tell them from features */
    INPUT_SEQUENCE, /* T, F */
    INPUT_IMAGE,    /* C, H, W */
    INPUTS
};
struct layer_ops {
    struct config_section section; /* name (as in YAML), fields, size, shorthand, help; also: PyTorch's name */
    /* The dimensions of what goes out for each kind of input, in the names of the input's dimensions and of
     * parameters: "T, units". A quotient is rounded down. NULL: this kind does not fit, and is refused. */
    const char *out[INPUTS];
    const char *instead;      /* the hint where the input does not fit; NULL: how to make one that does */
    const char *formula;      /* of y, from x and the parameters by their names */
    const char *example, *of; /* an item of 'layers', and the shape of an input for it: "3x32x32" */
    bool joins;               /* it has a second input, from the layer that its 'from' names */
    bool moments;             /* as its op's row (op_row.moments): a shard needs several samples */
    /* Checks that the input, of a kind that fits, agrees with the config and fills the plan. ERR_CONFIG with a message
     * for the user. */
    enum error (*plan)(const void *config, const struct shape *x, struct layer_plan *out);
};
/* 'out' of a layer that gives the shape it gets, whatever that is. */
#define LAYER_SAME                                                                                                     \
    { [INPUT_FEATURES] = "F", [INPUT_SEQUENCE] = "T, F", [INPUT_IMAGE] = "C, H, W" }
const struct layer_ops *const *layer_kinds(int *count);
/* A layer besides those of layers.def. Before any configuration is read; at most LAYERS_ADDED in a process. */
enum { LAYERS_ADDED = 4 };
void layer_register(const struct layer_ops *layer);
/* The layer of this name, or that PyTorch calls so; NULL: there is none. */
const struct layer_ops *layer_find(const char *name);
extern const struct config_section layers_section; /* the key 'layers' alone, read into a struct config_list */
extern const struct config_section layer_common_section;
/* ERR_CONFIG where what comes in is of a kind that the layer does not take. */
MUST_CHECK enum error layer_takes(const struct layer_ops *layer, const struct shape *x);

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
/* A weight of that shape and, if there is one, a bias of 'out' floats: both as PyTorch has them, or where a deviation is
 * given normal weights and biases of 0. */
void layer_plan_affine(struct layer_plan *p, struct shape weight, int64_t out, int64_t fan_in, double deviation,
                       bool bias);
/* The shape with that number of dimensions of 1 before it, as some frameworks keep a parameter; the numbers
 * stay where they are. */
struct shape layer_lead(struct shape s, int64_t ones);
void layer_plan_buffer(struct layer_plan *p, struct layer_tensor t);

/* ---- the description of a layer (layer_tell.c) ---- */

struct layer_input_name {
    const char *words, *dims; /* "an image", "C, H, W" */
};
extern const struct layer_input_name layer_inputs[INPUTS];

enum { LAYER_FACTS = 8 };
struct layer_fact { /* "formula", "y = max(x, 0)" */
    const char *name, *text;
};
/* Of a layer all but its sentence and its parameters: shapes, formula, PyTorch's name, an example and what that makes,
 * for which it is planned here. Texts live in the pool. */
MUST_CHECK enum error layer_tell(const struct layer_ops *layer, struct pool *pool, struct layer_fact facts[LAYER_FACTS],
                                 int *count);
/* What layer_tell plans: the example alone. x: its input. */
MUST_CHECK enum error layer_example(const struct layer_ops *layer, struct pool *pool, struct shape *x,
                                    struct layer_plan *out);
extern const char layer_dimensions[]; /* what the letters of shapes stand for */

/* The whole of a layer that is an activation without a parameter. */
#define LAYER_ACTIVATION(kind, act, text, torch, of_x)                                                                 \
    static enum error plan(const void *config, const struct shape *x, struct layer_plan *p) {                          \
        (void)config;                                                                                                  \
        layer_plan_activation(p, x, act);                                                                              \
        return ERR_NONE;                                                                                               \
    }                                                                                                                  \
    static const struct config_field fields[] = {{0}};                                                                 \
    const struct layer_ops layer_##kind = {.section = {.name = #kind, .fields = fields, .help = text, .also = torch},  \
                                           .out = LAYER_SAME,                                                          \
                                           .formula = of_x,                                                            \
                                           .example = "- " #kind,                                                      \
                                           .of = "64",                                                                 \
                                           .plan = plan}
