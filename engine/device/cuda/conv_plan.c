/* A plan is made of descriptors: tensors and a convolution make an operation, operations a graph; for a graph cuDNN
 * proposes engines with their settings, best first, and the first that suits becomes the plan. */
#include "engine/device/cuda/conv_plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 24, PROPOSALS = 48 };

struct conv_plan {
    struct conv_plan *next;
    cudnnHandle_t handle;
    enum conv_pass pass;
    struct conv_shape shape;
    int users;
    cudnnBackendDescriptor_t part[PARTS], plan; /* all that the plan was made of */
    int parts;
    cudnnStatus_t status; /* of the first call that failed */
    struct conv_about about;
};

/* ---- descriptors: after a failure the rest does nothing ------------------------------------- */
static bool plan_check(struct conv_plan *p, cudnnStatus_t status) {
    if (p->status == CUDNN_STATUS_SUCCESS) p->status = status;
    return p->status == CUDNN_STATUS_SUCCESS;
}

static cudnnBackendDescriptor_t descriptor_create(struct conv_plan *p, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = NULL;
    if (p->status != CUDNN_STATUS_SUCCESS || p->parts == PARTS) return NULL;
    if (plan_check(p, dnn.BackendCreateDescriptor(type, &d))) p->part[p->parts++] = d;
    return d;
}

static void descriptor_set(struct conv_plan *p, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    if (p->status == CUDNN_STATUS_SUCCESS) plan_check(p, dnn.BackendSetAttribute(d, name, type, count, value));
}

static void descriptor_set_part(struct conv_plan *p, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                cudnnBackendDescriptor_t value) {
    descriptor_set(p, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void descriptor_finish(struct conv_plan *p, cudnnBackendDescriptor_t d) {
    if (p->status == CUDNN_STATUS_SUCCESS) plan_check(p, dnn.BackendFinalize(d));
}

/* An image or filter of 'type' that lies channels last. Number 'uid' is how a run names it; one that is only handed
 * from operation to operation is virtual. */
static cudnnBackendDescriptor_t tensor_describe(struct conv_plan *p, int64_t uid, cudnnDataType_t type,
                                                const int64_t size[4], bool is_virtual) {
    cudnnBackendDescriptor_t d = descriptor_create(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t c = size[1], h = size[2], w = size[3], alignment = 16;
    int64_t stride[] = {h * w * c, 1, w * c, c};
    descriptor_set(p, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    descriptor_set(p, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    descriptor_set(p, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    descriptor_set(p, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    descriptor_set(p, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual) descriptor_set(p, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    descriptor_finish(p, d);
    return d;
}

/* ---- operations ----------------------------------------------------------------------------- */
static const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;

static cudnnBackendDescriptor_t convolution_describe(struct conv_plan *p) {
    const struct conv_shape *s = &p->shape;
    cudnnBackendDescriptor_t d = descriptor_create(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t axes = 2, dilation[] = {1, 1};
    descriptor_set(p, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    descriptor_set(p, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    descriptor_set(p, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    descriptor_set(p, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, s->pad);
    descriptor_set(p, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, s->pad);
    descriptor_set(p, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, s->stride);
    descriptor_set(p, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    descriptor_finish(p, d);
    return d;
}

/* The names of a pass's operation and of its attributes. */
static const struct {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t convolution, tensor[3], alpha, beta;
} words[CONV_PASSES] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                   {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CONV_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnBackendDescriptor_t convolution_make(struct conv_plan *p, cudnnBackendDescriptor_t y) {
    const struct conv_shape *s = &p->shape;
    int64_t xs[] = {s->n, s->x[0], s->x[1], s->x[2]};
    int64_t ws[] = {s->y[0], s->x[0] / s->groups, s->kernel[0], s->kernel[1]};
    cudnnBackendDescriptor_t x = tensor_describe(p, CONV_X, s->type, xs, false);
    cudnnBackendDescriptor_t w = tensor_describe(p, CONV_W, s->type, ws, false), c = convolution_describe(p);
    cudnnBackendDescriptor_t d = descriptor_create(p, words[p->pass].kind);
    float one = 1, zero = 0;
    descriptor_set_part(p, d, words[p->pass].convolution, c);
    descriptor_set_part(p, d, words[p->pass].tensor[CONV_X], x);
    descriptor_set_part(p, d, words[p->pass].tensor[CONV_W], w);
    descriptor_set_part(p, d, words[p->pass].tensor[CONV_Y], y);
    descriptor_set(p, d, words[p->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    descriptor_set(p, d, words[p->pass].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    descriptor_finish(p, d);
    return d;
}

/* y = x + bias */
static cudnnBackendDescriptor_t bias_add(struct conv_plan *p, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t bias,
                                         cudnnBackendDescriptor_t y) {
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    cudnnBackendDescriptor_t how = descriptor_create(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    descriptor_set(p, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    descriptor_set(p, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    descriptor_finish(p, how);
    cudnnBackendDescriptor_t d = descriptor_create(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    descriptor_set_part(p, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    descriptor_set_part(p, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    descriptor_set_part(p, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
    descriptor_set_part(p, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    descriptor_finish(p, d);
    return d;
}

/* The convolution and its bias; between the two values stay f32. The bias is of the images' type: with an f32 one cuDNN 9
 * has no engine for images of 2 bytes. */
static cudnnBackendDescriptor_t graph_make(struct conv_plan *p) {
    enum { BETWEEN = 100 };
    const struct conv_shape *s = &p->shape;
    int64_t ys[] = {s->n, s->y[0], s->y[1], s->y[2]}, bs[] = {1, s->y[0], 1, 1}, count = 1;
    cudnnBackendDescriptor_t y = tensor_describe(p, CONV_Y, s->type, ys, false), product = y, ops[2];
    if (s->bias) product = tensor_describe(p, BETWEEN, f32, ys, true);
    ops[0] = convolution_make(p, product);
    if (s->bias) ops[count++] = bias_add(p, product, tensor_describe(p, CONV_BIAS, s->type, bs, false), y);
    cudnnBackendDescriptor_t d = descriptor_create(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    descriptor_set(p, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops);
    descriptor_set(p, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->handle);
    descriptor_finish(p, d);
    return d;
}

/* ---- proposals ------------------------------------------------------------------------------ */
/* A proposal's engine and its notes; false: they cannot be had. */
static bool engine_about(cudnnBackendDescriptor_t proposal, struct conv_about *out) {
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (dnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)) return false;
    bool got = !dnn.BackendGetAttribute(proposal, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                        &engine) &&
               !dnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes);
    *out = (struct conv_about){.engine = -1};
    for (int64_t i = 0; got && i < count; i++) out->notes |= 1U << notes[i];
    got = got &&
          !dnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &out->engine);
    dnn.BackendDestroyDescriptor(engine);
    return got;
}

/* Sums are f32 in any precision; of f32 alone the factors must be left as they are too: tensor cores round them. */
static bool proposal_suits(const struct conv_shape *s, cudnnBackendDescriptor_t proposal, struct conv_about *about) {
    unsigned never = 1U << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                     1U << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                     1U << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (s->exact) never |= 1U << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return engine_about(proposal, about) && !(about->notes & never);
}

/* CONV_SPACE, or what the images themselves take: engines that pad 3 channels to 8 want that. */
static int64_t space_limit(const struct conv_shape *s) {
    int64_t unit = s->type == CUDNN_DATA_FLOAT ? 4 : 2, images = 0;
    images += s->n * s->x[0] * s->x[1] * s->x[2] * unit;
    images += s->n * s->y[0] * s->y[1] * s->y[2] * unit;
    return images > CONV_SPACE ? images : CONV_SPACE;
}

/* Whether the proposal can be run, in the memory that there is. */
static bool becomes_plan(struct conv_plan *p, cudnnBackendDescriptor_t proposal) {
    cudnnBackendDescriptor_t d = NULL;
    int64_t count = 0;
    if (dnn.BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d)) return false;
    if (!dnn.BackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->handle) &&
        !dnn.BackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &proposal) &&
        !dnn.BackendFinalize(d) &&
        !dnn.BackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                 &p->about.space) &&
        p->about.space <= space_limit(&p->shape)) {
        p->plan = d;
        return true;
    }
    dnn.BackendDestroyDescriptor(d);
    return false;
}

/* Tries those of one way of proposing; the chosen one stays with the plan. */
static bool plan_choose(struct conv_plan *p, cudnnBackendDescriptor_t ops, cudnnBackendHeurMode_t mode) {
    cudnnBackendDescriptor_t d = descriptor_create(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), each[PROPOSALS];
    int64_t made = 0, count = 0;
    if (!d ||
        dnn.BackendSetAttribute(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &ops) ||
        dnn.BackendSetAttribute(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) ||
        dnn.BackendFinalize(d))
        return false;
    while (made < PROPOSALS && !dnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &each[made])) made++;
    if (dnn.BackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &count, each))
        count = 0;
    int64_t chosen = -1;
    for (int64_t i = 0; i < count && i < made && chosen < 0; i++)
        if (proposal_suits(&p->shape, each[i], &p->about) && becomes_plan(p, each[i])) chosen = i;
    for (int64_t i = 0; i < made; i++)
        if (i != chosen) dnn.BackendDestroyDescriptor(each[i]);
    if (chosen >= 0) p->part[p->parts++] = each[chosen];
    return chosen >= 0;
}

/* ---- plans of the process ------------------------------------------------------------------- */
static struct {
    pthread_mutex_t lock;
    struct conv_plan *first;
} plans = {PTHREAD_MUTEX_INITIALIZER, NULL};

static void plan_free(struct conv_plan *p) {
    if (p->plan) dnn.BackendDestroyDescriptor(p->plan);
    while (p->parts) dnn.BackendDestroyDescriptor(p->part[--p->parts]);
    free(p);
}

static struct conv_plan *plan_find(const struct cuda *c, enum conv_pass pass, const struct conv_shape *s) {
    struct conv_plan *p;
    pthread_mutex_lock(&plans.lock);
    for (p = plans.first; p; p = p->next)
        if (p->handle == c->dnn && p->pass == pass && !memcmp(&p->shape, s, sizeof *s)) break;
    if (p) p->users++;
    pthread_mutex_unlock(&plans.lock);
    return p;
}

static enum error plan_make(struct conv_plan *p) {
    static const char *const names[] = {"a convolution", "a convolution's gradient", "a filter's gradient"};
    cudnnBackendDescriptor_t ops = graph_make(p);
    if (plan_choose(p, ops, CUDNN_HEUR_MODE_A) || plan_choose(p, ops, CUDNN_HEUR_MODE_FALLBACK)) return ERR_NONE;
    if (p->status != CUDNN_STATUS_SUCCESS && CUDNN_STATUS_CATEGORY(p->status) != CUDNN_STATUS_NOT_SUPPORTED)
        return cudnn_failed(p->status, names[p->pass]);
    return FAIL(ERR_CONFIG,
                "cuDNN has no way to compute %s of this shape that gives the same bits each time\n"
                "another precision, or a multiple of 8 channels, may have one",
                names[p->pass]);
}

enum error conv_plan_get(struct cuda *c, enum conv_pass pass, const struct conv_shape *s, struct conv_plan **out) {
    struct conv_plan *p = plan_find(c, pass, s);
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) return FAIL(ERR_MEMORY, "cannot allocate %zu bytes for a plan", sizeof *p);
        p->handle = c->dnn, p->pass = pass, p->shape = *s, p->users = 1;
        enum error err = plan_make(p);
        if (err) {
            plan_free(p);
            return err;
        }
        pthread_mutex_lock(&plans.lock);
        p->next = plans.first;
        plans.first = p;
        pthread_mutex_unlock(&plans.lock);
    }
    *out = p;
    return ERR_NONE;
}

void conv_plan_put(struct conv_plan *p) {
    if (!p) return;
    pthread_mutex_lock(&plans.lock);
    bool last = --p->users == 0;
    for (struct conv_plan **at = &plans.first; last && *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    pthread_mutex_unlock(&plans.lock);
    if (last) plan_free(p);
}

size_t conv_plan_space(const struct conv_plan *p) {
    return p ? (size_t)p->about.space : 0;
}

void conv_plan_about(const struct conv_plan *p, struct conv_about *out) {
    *out = p->about;
}

/* ---- runs ----------------------------------------------------------------------------------- */
static cudnnStatus_t pack_make(const struct conv_plan *p, void *const at[CONV_TENSORS], void *space,
                               cudnnBackendDescriptor_t *out) {
    static const int64_t uids[] = {CONV_X, CONV_W, CONV_Y, CONV_BIAS};
    int64_t count = p->shape.bias ? CONV_TENSORS : CONV_BIAS;
    cudnnStatus_t s = dnn.BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, out);
    if (s) return s;
    s = dnn.BackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
    if (!s) s = dnn.BackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, at);
    if (!s) s = dnn.BackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &space);
    return s ? s : dnn.BackendFinalize(*out);
}

enum error conv_run(struct conv_run *r, const struct conv_plan *p, void *const at[CONV_TENSORS], void *space) {
    if (!r->pack || r->space != space || memcmp(r->at, at, sizeof r->at) != 0) {
        conv_run_fini(r);
        cudnnStatus_t made = pack_make(p, at, space, &r->pack);
        if (made) return cudnn_failed(made, "a convolution's tensors");
        memcpy(r->at, at, sizeof r->at);
        r->space = space;
    }
    cudnnStatus_t ran = dnn.BackendExecute(p->handle, p->plan, r->pack);
    return ran ? cudnn_failed(ran, "a convolution") : ERR_NONE;
}

void conv_run_fini(struct conv_run *r) {
    if (r->pack) dnn.BackendDestroyDescriptor(r->pack);
    *r = (struct conv_run){0};
}
