/* Operation graphs: which are supported, which engines are proposed for them. Those that a careful caller refuses come
 * first. */
#include "tests/emulated/cudnn_inside.h"
#include "tests/emulated/emulated.h"

#include <stddef.h>

/* ---- operations ----------------------------------------------------------------------------- */
static bool convolution_parts(const struct descriptor *op, struct work *w) {
    w->pass = op->type;
    switch (op->type) {
#define PARTS(kind, name, xs, ws, ys)                                                                                  \
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR:                                                      \
        w->x = part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##xs);                                            \
        w->w = part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##ws);                                            \
        w->y = part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##ys);                                            \
        w->convolution = part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC);                             \
        return true
        PARTS(FORWARD, FORWARD, X, W, Y);
        PARTS(BACKWARD_DATA, BWD_DATA, DX, W, DY);
        PARTS(BACKWARD_FILTER, BWD_FILTER, X, DW, DY);
#undef PARTS
    default:
        return false;
    }
}

/* x (n, c, h, w), filters (k, c / groups, r, s): that is how groups are told; y (n, k, places). */
cudnnStatus_t work_check(const struct descriptor *op) {
    struct work w = {0};
    int64_t dims[3];
    convolution_parts(op, &w);
    const int64_t *x = attribute_of(w.x, CUDNN_ATTR_TENSOR_DIMENSIONS, &dims[0]);
    const int64_t *k = attribute_of(w.w, CUDNN_ATTR_TENSOR_DIMENSIONS, &dims[1]);
    const int64_t *y = attribute_of(w.y, CUDNN_ATTR_TENSOR_DIMENSIONS, &dims[2]);
    const int64_t *before = attribute_of(w.convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, NULL);
    const int64_t *after = attribute_of(w.convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, NULL);
    const int64_t *stride = attribute_of(w.convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, NULL);
    const int64_t *apart = attribute_of(w.convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, NULL);
    for (int i = 0; i < 3; i++)
        if (dims[i] != 4) return CUDNN_STATUS_BAD_PARAM;
    if (number_of(w.convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 || x[0] != y[0] || y[1] != k[0] ||
        x[1] % k[1] || k[0] % (x[1] / k[1]))
        return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < 2; i++) {
        int64_t reach = (k[2 + i] - 1) * apart[i] + 1;
        if (y[2 + i] != (x[2 + i] + before[i] + after[i] - reach) / stride[i] + 1) return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- graphs --------------------------------------------------------------------------------- */
static int type_of(const struct descriptor *tensor) {
    return kind_of(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
}

/* Whether 'op' takes up what w gives between operations: w then gives what op gives. */
static bool follows(struct work *w, const struct descriptor *op) {
    if (op->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return false;
    const struct descriptor *how = part_of(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const struct descriptor *bias = part_of(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const bool *between = attribute_of(w->y, CUDNN_ATTR_TENSOR_IS_VIRTUAL, NULL);
    int mode = kind_of(how, CUDNN_ATTR_POINTWISE_MODE);
    if (!between || !*between || type_of(w->y) != CUDNN_DATA_FLOAT ||
        part_of(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != w->y ||
        kind_of(how, CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT)
        return false;
    if (mode != CUDNN_POINTWISE_ADD || !bias || w->bias) return false;
    w->bias = bias;
    w->y = part_of(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    return true;
}

static bool one_a_channel(const struct descriptor *bias, const struct descriptor *y) {
    int64_t count;
    const int64_t *b = attribute_of(bias, CUDNN_ATTR_TENSOR_DIMENSIONS, &count);
    const int64_t *to = attribute_of(y, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL);
    return count == 4 && b[0] == 1 && b[1] == to[1] && b[2] == 1 && b[3] == 1;
}

bool work_of(const struct descriptor *graph, struct work *w) {
    int64_t count;
    const struct descriptor *const *ops = attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, &count);
    *w = (struct work){0};
    if (!convolution_parts(ops[0], w)) return false;
    if (count > 1 && w->pass != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) return false;
    for (int64_t i = 1; i < count; i++)
        if (!follows(w, ops[i])) return false;
    const bool *open = attribute_of(w->y, CUDNN_ATTR_TENSOR_IS_VIRTUAL, NULL);
    int type = type_of(w->x);
    bool known = type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
    /* images of 2 bytes want a bias of theirs */
    bool bias = !w->bias || (type_of(w->bias) == type && one_a_channel(w->bias, w->y));
    return known && bias && !(open && *open) && type_of(w->w) == type && type_of(w->y) == type &&
           kind_of(w->convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
           kind_of(w->convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION;
}

/* ---- engines -------------------------------------------------------------------------------- */
enum {
    CORES = 1 << CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
    DOWN = 1 << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    LESS = 1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    LUCK = 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
};
static const struct engine lucky = {25, 0, CORES | LUCK, RESULTS_LOST}, rough = {63, 0, CORES | LESS, RESULTS_LOST},
                           down = {30, 4096, CORES | DOWN, FACTORS_BF16}, cores32 = {58, 131, CORES, FACTORS_TF32},
                           cores16 = {62, 131, CORES, FACTORS_AS_THEY_ARE}, stubborn = {71, -1, CORES, RESULTS_LOST},
                           vast = {2, INT64_C(1) << 40, 0, RESULTS_LOST}, refuses = {70, -1, 0, RESULTS_LOST},
                           plain = {0, 0, 1 << CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, FACTORS_AS_THEY_ARE},
                           roomy = {28, 1294, 0, FACTORS_AS_THEY_ARE};

/* Grouped ones are found by the fallback alone. */
int engines_for(const struct descriptor *graph, cudnnBackendHeurMode_t mode, const struct engine *out[8]) {
    struct work w;
    int count = 0;
    if (!work_of(graph, &w) || emulated_fail(__func__)) return 0;
    const int64_t *x = attribute_of(w.x, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL);
    const int64_t *k = attribute_of(w.w, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL);
    bool half = type_of(w.x) != CUDNN_DATA_FLOAT, groups = x[1] != k[1];
    if (mode == CUDNN_HEUR_MODE_FALLBACK) {
        out[count++] = &vast;
        out[count++] = &plain;
        return count;
    }
    out[count++] = &lucky;
    out[count++] = &rough;
    out[count++] = &down;
    if (groups) return count;
    out[count++] = &stubborn;
    out[count++] = half ? &cores16 : &cores32;
    out[count++] = &refuses;
    out[count++] = &vast;
    out[count++] = &roomy;
    return count;
}
