/* What a device must compute. An op is one differentiable operation whose shape is fixed when it is planned;
 * running it allocates nothing. Every op exists in plain C (device/ref), which is the specification; another
 * device overrides what it does better and is tested against it over every registered case. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

enum { SHAPE_MAX = 4 };
/* One sample's shape: {features} or {channels, height, width}; a batch of n samples is (n, shape), row-major. */
struct shape {
    int ndim;
    int64_t dim[SHAPE_MAX];
};
int64_t shape_count(const struct shape *s);
bool shape_equal(const struct shape *a, const struct shape *b);
char *shape_text(const struct shape *s, char out[96]); /* "6x14x14" */

/*  kind            what y is                                                 parameters w[0], w[1]      */
#define OPS(X)                                                                                     \
    X(LINEAR, "linear")               /* act(x w0' + w1)                      (out, in), (out)           */ \
    X(CONV2D, "conv2d")               /* pool(act(x * w0 + w1))               (out, in/groups, kh, kw), (out) */ \
    X(POOL2D, "pool2d")               /* max or mean of each window                                      */ \
    X(RELU, "relu")                   /* max(x, 0)                                                       */ \
    X(GELU, "gelu")                   /* x (1 + erf(x / sqrt 2)) / 2                                     */ \
    X(DROPOUT, "dropout")             /* x m / (1 - p), m drawn by counter; x when not training          */ \
    X(BATCHNORM, "batchnorm")         /* act((x - mean) / sqrt(var + eps) w0 + w1)  (channels) twice     */ \
    X(ADD, "add")                     /* act(x0 + x1)                                                    */ \
    X(CROSS_ENTROPY, "cross_entropy") /* y = softmax(x); loss -log y[label]                              */ \
    X(MSE, "mse")                     /* loss mean over features of (x - target)^2                       */
enum op_kind {
#define X(name, text) OP_##name,
    OPS(X)
#undef X
        OP_KINDS
};
const char *op_kind_name(enum op_kind kind);

enum activation { ACT_NONE, ACT_RELU }; /* fused behind linear, conv2d, batchnorm, add */
enum pool_kind { POOL_MAX, POOL_AVG };  /* avg counts padding as PyTorch does (count_include_pad) */

struct window { /* height, then width */
    int kernel[2], stride[2], pad[2];
};
struct op_desc {
    enum op_kind kind;
    int64_t n;         /* samples, at least 1 */
    struct shape x, y; /* of one sample; add: both inputs have shape x */
    enum activation act;
    bool first; /* the input is data: backward need not give dx */
    struct {
        bool bias;
    } linear;
    struct {
        struct window window;
        int groups;
        bool bias;
        bool maxpool; /* a 2x2 max-pool of stride 2 follows act inside this op; y is its output */
    } conv;
    struct {
        enum pool_kind kind;
        struct window window;
    } pool;
    struct {
        float p;
        int layer; /* tells the streams of several dropouts apart */
    } dropout;
    struct {
        float eps, momentum; /* running = (1 - momentum) running + momentum batch; var unbiased, as PyTorch */
    } norm;
};

/* What an op works on; pointers that the kind or the pass does not name are NULL. All float data is f32. */
struct op_args {
    const float *x[2]; /* (n, x) */
    float *y;          /* (n, y); in backward: what forward wrote */
    const float *dy;   /* (n, y) */
    float *dx[2];      /* (n, x); overwritten; dx[0] is NULL when desc.first */
    const float *w[2];
    float *dw[2];      /* overwritten, never added to */
    float *buffer[2];  /* batchnorm: running mean and variance, (channels) */
    void *saved;       /* op->saved_bytes, written by forward, read by the backward that follows */
    void *scratch;     /* op->scratch_bytes, shared with other ops, ALIGNMENT-aligned */
    bool training;     /* false: batchnorm uses its buffers, dropout passes through, nothing is saved */
    bool update_buffers;
    uint64_t seed;          /* dropout */
    const uint64_t *ids;    /* dropout: (n) counter of each sample, unique in the run */
    const int32_t *labels;  /* losses: (n) classes; mse with labels: one-hot target */
    const float *target;    /* mse: (n, x) when labels is NULL */
    float scale;            /* losses: what the gradient of a sample's loss is multiplied by */
    double *sums;           /* losses: sums[0] += sum of sample losses, sums[1] += samples whose largest
                               output (the first, if several) is the label; summed in sample order */
};

struct device;
struct op;
struct op_impl {
    const char *name; /* "ref", "brgemm": shown by bench and in tests */
    /* Whether this implementation takes the description as it stands (fusions included). */
    bool (*takes)(const struct op_desc *d);
    /* Gives a planned op; *out is set only on success. May be slow, may allocate. */
    enum error (*create)(struct device *dev, const struct op_desc *d, struct op **out);
    /* Run on the calling thread (and the device's own). Allocate nothing. forward of a loss adds to sums;
     * backward of a loss writes dx from what forward left in y (cross-entropy) or x (mse). */
    enum error (*forward)(struct op *op, const struct op_args *a);
    enum error (*backward)(struct op *op, const struct op_args *a);
    void (*free)(struct op *op);
};
/* Implementations begin their private state with this. */
struct op {
    const struct op_impl *impl;
    struct device *dev;
    struct op_desc desc;
    size_t saved_bytes, scratch_bytes;
};
