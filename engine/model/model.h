/* A model: layers in order with their shapes, parameters and buffers. It knows no device, no batch
 * and no memory. Parameters lie in one arena in ready order (the last layer's first), so that what
 * is ready together is a byte range.
 *
 *   offset 0        HEADER_FLOATS: what rides with the gradients and the values: base/header.h
 *   then            parameters, each aligned to ALIGN_FLOATS; the gaps stay zero
 */
#pragma once
#include "engine/base/header.h"
#include "engine/model/layer.h"

struct threads;       /* engine/device/threads.h */
struct tensor_info {  /* a named parameter or buffer: where it lies in its arena */
    const char *name; /* "conv1.weight" */
    struct shape shape;
    int64_t offset, count; /* floats */
    enum init init;
    int64_t fan_in;
    float deviation;
    int node;
};
struct model_node {
    const char *name;
    const struct layer_ops *layer;
    int input[LAYER_INPUTS]; /* node whose y is read; -1: the batch */
    struct shape x;
    struct layer_plan plan;
    int naming;                                     /* enum layer_naming */
    int tied;                                       /* node before it that owns param[0]; -1: this one does */
    int param[LAYER_PARAMS], buffer[LAYER_BUFFERS]; /* into model->params / buffers, -1: none */
};
struct model {
    const char *name;
    struct shape input, output;
    int nnodes, nparams, nbuffers;
    struct model_node *nodes;
    struct tensor_info *params; /* in ready order: ascending offset */
    struct tensor_info *buffers;
    int64_t arena_floats, buffer_floats; /* arena_floats includes the header */
    int64_t parameters;                  /* true count, without gaps and header */
    struct pool *pool;
};

/* The value of the config's 'model' key: a zoo name, {zoo: name, ...its parameters}, or {layers: [...]}. 'classes' is
 * the value of $classes in a zoo file. Errors go to e at their places; ERR_CONFIG then. */
MUST_CHECK enum error model_create(struct node *spec, const struct shape *input, int64_t classes,
                                   struct config_errors *e, struct model **out);
void model_free(struct model *m);
/* Checks a spec for errors that do not depend on the data: unknown networks, layers, keys, values. Errors go to e;
 * ERR_CONFIG then. */
MUST_CHECK enum error model_check(const struct node *spec, struct config_errors *e);

/* First weights and buffers: pure functions of (seed, tensor, element). threads: of a device, which share the work; NULL:
 * the calling one alone. */
void model_init(const struct model *m, struct threads *threads, uint64_t seed, float *values, float *buffers);

/* The zoo: YAML texts compiled in from configs/models/. */
struct zoo_model {
    const char *name, *text;
};
const struct zoo_model *zoo_models(int *count);
const struct zoo_model *zoo_find(const char *name); /* NULL: there is none */
struct zoo_about { /* what a zoo file says of itself; texts and nodes live in the pool */
    const char *about;
    struct shape input; /* what it is made for, where no data says otherwise */
    int64_t classes;
    const struct node *parameters; /* a map of defaults, or NULL */
};
MUST_CHECK enum error zoo_about(const struct zoo_model *zoo, struct pool *pool, struct zoo_about *out);
/* "3x32x32"; false: not of that form. */
bool shape_read(const char *text, struct shape *out);
