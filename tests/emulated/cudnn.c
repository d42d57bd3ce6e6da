/* Handles and descriptors: which attributes there are, their types and counts, which must be set. A wrong one is
 * answered as cuDNN 9 answers it. */
#include "tests/emulated/cudnn_inside.h"
#include "tests/emulated/emulated.h"

#include <stdlib.h>
#include <string.h>

/* ---- attributes ----------------------------------------------------------------------------- */
static const struct rule {
    cudnnBackendDescriptorType_t owner;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; /* least 0: need not be set */
} rules[] = {
#define RULE(owner, name, type, least, most)                                                                           \
    {CUDNN_BACKEND_##owner##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, least, most},
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1) RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1) RULE(
        TENSOR, TENSOR_DIMENSIONS, INT64, 1, 8) RULE(TENSOR, TENSOR_STRIDES, INT64, 1,
                                                     8) RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1)
        RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 0, 1) RULE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1) RULE(
            CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE,
            1, 1) RULE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE,
                       1, 1) RULE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 1, 3)
            RULE(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 1,
                 3) RULE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 1, 3)
                RULE(CONVOLUTION, CONVOLUTION_DILATIONS,
                     INT64, 1, 3) RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE,
                                       0, 1) RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 0, 1)
                    RULE(POINTWISE, POINTWISE_NAN_PROPAGATION, NAN_PROPOGATION, 0, 1)
#define CONVOLUTION_RULES(owner, name, x, w, y)                                                                        \
    RULE(owner, name##_CONV_DESC, BACKEND_DESCRIPTOR, 1, 1)                                                            \
    RULE(owner, name##_##x, BACKEND_DESCRIPTOR, 1, 1)                                                                  \
    RULE(owner, name##_##w, BACKEND_DESCRIPTOR, 1, 1)                                                                  \
    RULE(owner, name##_##y, BACKEND_DESCRIPTOR, 1, 1)                                                                  \
    RULE(owner, name##_ALPHA, FLOAT, 0, 1)                                                                             \
    RULE(owner, name##_BETA, FLOAT, 0, 1)
                        CONVOLUTION_RULES(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD, X, W, Y)
                            CONVOLUTION_RULES(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA, DX,
                                              W, DY) CONVOLUTION_RULES(OPERATION_CONVOLUTION_BACKWARD_FILTER,
                                                                       OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY)
                                RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1,
                                     1) RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, 1)
                                    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR,
                                         0, 1) RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR,
                                                    1, 1) RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1)
                                        RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1,
                                             50) RULE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1,
                                                      1) RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1)
                                            RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, 1)
                                                RULE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR,
                                                     1, 1) RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 0, 64)
                                                    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 0, 64)
                                                        RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 0, 1)};
enum { RULES = sizeof rules / sizeof *rules };

static const struct rule *rule_of(const struct descriptor *d, cudnnBackendAttributeName_t name) {
    for (int i = 0; i < RULES; i++)
        if (rules[i].owner == d->type && rules[i].name == name) return &rules[i];
    return NULL;
}

static size_t value_bytes(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int); /* float, or an enum */
    }
}

const void *attribute_of(const struct descriptor *d, cudnnBackendAttributeName_t name, int64_t *count) {
    for (int i = 0; i < d->count; i++)
        if (d->at[i].name == name) {
            if (count) *count = d->at[i].count;
            return d->at[i].values;
        }
    if (count) *count = 0;
    return NULL;
}

int64_t number_of(const struct descriptor *d, cudnnBackendAttributeName_t name) {
    const int64_t *v = attribute_of(d, name, NULL);
    return v ? *v : 0;
}

int kind_of(const struct descriptor *d, cudnnBackendAttributeName_t name) {
    const int *v = attribute_of(d, name, NULL);
    return v ? *v : -1;
}

const struct descriptor *part_of(const struct descriptor *d, cudnnBackendAttributeName_t name) {
    const struct descriptor *const *v = attribute_of(d, name, NULL);
    return v ? *v : NULL;
}

/* ---- descriptors ---------------------------------------------------------------------------- */
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    if (emulated_fail(__func__)) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    bool known = type == CUDNN_BACKEND_ENGINE_DESCRIPTOR || type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    for (int i = 0; i < RULES; i++) known |= rules[i].owner == type;
    if (!known) return CUDNN_STATUS_NOT_SUPPORTED;
    struct descriptor *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    d->type = type;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    struct descriptor *d = descriptor;
    if (!d) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    for (int i = 0; i < d->count; i++) free(d->at[i].values);
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    struct descriptor *d = descriptor;
    if (emulated_fail(__func__)) return CUDNN_STATUS_INTERNAL_ERROR;
    if (!d || !values) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const struct rule *r = rule_of(d, name);
    if (d->final || !r) return CUDNN_STATUS_BAD_PARAM;
    if (r->type != type) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    if (count < 1 || count > r->most) return CUDNN_STATUS_BAD_PARAM;
    struct descriptor *const *parts = values;
    for (int64_t i = 0; i < count && type == CUDNN_TYPE_BACKEND_DESCRIPTOR; i++)
        if (!parts[i] || !parts[i]->final) return CUDNN_STATUS_BAD_PARAM;
    size_t bytes = (size_t)count * value_bytes(type);
    void *copy = malloc(bytes);
    if (!copy) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    memcpy(copy, values, bytes);
    int i = 0;
    while (i < d->count && d->at[i].name != name) i++;
    if (i < d->count) free(d->at[i].values);
    if (i == d->count) d->count++;
    d->at[i] = (struct attribute){name, count, copy};
    return CUDNN_STATUS_SUCCESS;
}

/* ---- finalize ------------------------------------------------------------------------------- */
static cudnnStatus_t tensor_check(const struct descriptor *d) {
    int64_t dims, strides, alignment = number_of(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    const int64_t *size = attribute_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS, &dims);
    attribute_of(d, CUDNN_ATTR_TENSOR_STRIDES, &strides);
    bool good = dims == strides && alignment > 0 && !(alignment & (alignment - 1));
    for (int64_t i = 0; i < dims; i++) good &= size[i] > 0;
    return good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t convolution_check(const struct descriptor *d) {
    static const cudnnBackendAttributeName_t lists[] = {
        CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
        CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS};
    for (int i = 0; i < 4; i++) {
        int64_t count;
        attribute_of(d, lists[i], &count);
        if (count != number_of(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)) return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t plan_check(struct descriptor *d) {
    const struct descriptor *settings = part_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    d->engine = settings->engine, d->graph = settings->graph;
    return d->engine->space < 0 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t pack_check(const struct descriptor *d) {
    int64_t ids, pointers;
    attribute_of(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids);
    attribute_of(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers);
    return ids == pointers ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t check(struct descriptor *d) {
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return tensor_check(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return convolution_check(d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return work_check(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return plan_check(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return pack_check(d);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    struct descriptor *d = descriptor;
    if (emulated_fail(__func__)) return CUDNN_STATUS_INTERNAL_ERROR;
    if (!d) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (d->final) return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < RULES; i++) {
        int64_t count;
        attribute_of(d, rules[i].name, &count);
        if (rules[i].owner == d->type && count < rules[i].least) return CUDNN_STATUS_BAD_PARAM;
    }
    cudnnStatus_t status = check(d);
    d->final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- what cuDNN tells ----------------------------------------------------------------------- */
/* Fills the caller's descriptors with proposals; without room only tells how many there are. */
static cudnnStatus_t proposals(const struct descriptor *d, int64_t room, int64_t *count,
                               struct descriptor *const *out) {
    const struct engine *engines[8];
    const struct descriptor *graph = part_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int there = engines_for(graph, (cudnnBackendHeurMode_t)kind_of(d, CUDNN_ATTR_ENGINEHEUR_MODE), engines);
    *count = room && room < there ? room : there;
    for (int i = 0; i < *count && room; i++) {
        if (out[i]->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || out[i]->final) return CUDNN_STATUS_BAD_PARAM;
        out[i]->engine = engines[i], out[i]->graph = graph, out[i]->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t notes(const struct descriptor *d, int64_t room, int64_t *count, cudnnBackendNumericalNote_t *out) {
    *count = 0;
    for (int i = 0; i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT && *count < room; i++)
        if (d->engine->notes >> i & 1) out[(*count)++] = (cudnnBackendNumericalNote_t)i;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *out) {
    const struct descriptor *d = descriptor;
    if (emulated_fail(__func__)) return CUDNN_STATUS_INTERNAL_ERROR;
    if (!d || !count) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (!d->final) return CUDNN_STATUS_NOT_INITIALIZED;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
        return type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? proposals(d, room, count, out)
                                                     : CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
        struct descriptor *to = room == 1 ? *(struct descriptor **)out : NULL;
        if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || !to || to->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
            return CUDNN_STATUS_BAD_PARAM;
        to->engine = d->engine, to->graph = d->graph, to->final = true, *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return type == CUDNN_TYPE_NUMERICAL_NOTE ? notes(d, room, count, out) : CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
        if (type != CUDNN_TYPE_INT64 || room != 1) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
        *(int64_t *)out = d->engine->number, *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        if (type != CUDNN_TYPE_INT64 || room != 1) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
        *(int64_t *)out = d->engine->space, *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    const struct descriptor *p = plan, *v = pack;
    if (emulated_fail(__func__)) return CUDNN_STATUS_EXECUTION_FAILED;
    if (!handle || !p || !v || p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return CUDNN_STATUS_BAD_PARAM;
    if (!p->final || !v->final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    return work_run(handle, p, v);
}

/* ---- handles -------------------------------------------------------------------------------- */
cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
    int gpu;
    if (emulated_fail(__func__) || cudaGetDevice(&gpu) != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
    *out = calloc(1, sizeof **out);
    return *out ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    if (emulated_fail(__func__) || !handle) return CUDNN_STATUS_BAD_PARAM;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status / 1000) {
    case 0:
        return "CUDNN_STATUS_SUCCESS";
    case 1:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
        return "CUDNN_STATUS_BAD_PARAM";
    case 3:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}
