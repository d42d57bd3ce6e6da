/* What a device must compute. An op is one differentiable operation whose shape is fixed when it is planned;
 * running it allocates nothing. Every op exists in plain C (device/ref), which is the specification; another
 * device overrides what it does better and is tested against it over every registered case. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

enum { SHAPE_MAX = 4 };
/* One sample's shape: {features}, {positions, features} (a sequence) or {channels, height, width} (an
 * image); a batch of n samples is (n, shape), row-major. */
struct shape {
    int ndim;
    int64_t dim[SHAPE_MAX];
};
int64_t shape_count(const struct shape *s);
int64_t shape_last(const struct shape *s); /* the last dimension: a row's length */
bool shape_equal(const struct shape *a, const struct shape *b);
char *shape_text(const struct shape *s, char out[96]); /* "6x14x14" */

/* A row is the last dimension: features of a sample, or of one position of a sequence.
 *  kind            what y is                                                 parameters w[0], w[1]      */
#define OPS(X)                                                                                     \
    X(LINEAR, "linear") /* act(x w0' + w1), row by row          (out, in), (out)           */      \
    X(CONV2D, "conv2d") /* pool(act(x * w0 + w1))               (out, in/groups, kh, kw), (out) */ \
    X(POOL2D, "pool2d") /* max or mean of each window                                      */      \
    X(MEAN, "mean")     /* of each channel over the image, of each feature over positions  */      \
    X(ACTIVATION,                                                                                  \
      "activation")       /* act(x)                                                          */    \
    X(DROPOUT, "dropout") /* x m / (1 - p), m drawn by counter; x when not training          */    \
    X(BATCHNORM,                                                                                   \
      "batchnorm") /* act((x - mean) / sqrt(var + eps) w0 + w1)  (channels) twice     */           \
    X(LAYERNORM,                                                                                   \
      "layernorm") /* (x - mean) / sqrt(var + eps) w0 + w1 of each row   (features) twice */       \
    X(RMSNORM, "rmsnorm") /* x / sqrt(mean of squares + eps) w0 of each row     (features)    */   \
    X(ADD, "add")         /* act(x0 + x1)                                                    */    \
    X(EMBEDDING,                                                                                   \
      "embedding")          /* w0[x]; x: tokens, y: a row each      (vocabulary, features)     */  \
    X(POSITION, "position") /* x + w0                               (positions, features)      */  \
    X(PREPEND, "prepend")   /* w0, then the rows of x               (features)                 */  \
    X(SELECT, "select")     /* one row of x                                                    */  \
    X(TOKENS, "tokens")     /* an image as a sequence of its pixels: (c, h, w) -> (h w, c)     */  \
    X(ATTENTION,                                                                                   \
      "attention")        /* of each head: softmax(q k' / sqrt(size)) v; x: rows (q, k, v)   */    \
    X(REORDER, "reorder") /* x in the other layout                                           */    \
    X(CROSS_ENTROPY,                                                                               \
      "cross_entropy") /* y = softmax(x), row by row; loss: mean over rows of -log y[label] */     \
    X(MSE, "mse")      /* loss mean over features of (x - target)^2                       */
enum op_kind {
#define X(name, text) OP_##name,
    OPS(X)
#undef X
        OP_KINDS
};
const char *op_kind_name(enum op_kind kind);

/* An op of its own, or fused behind linear, conv2d, batchnorm and add. */
enum activation {
    ACT_NONE,
    ACT_RELU,      /* max(x, 0) */
    ACT_GELU,      /* x (1 + erf(x / sqrt 2)) / 2 */
    ACT_GELU_TANH, /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    ACT_SILU,      /* x / (1 + e^-x) */
    ACT_SIGMOID,   /* 1 / (1 + e^-x) */
    ACT_TANH
};
enum pool_kind { POOL_MAX, POOL_AVG }; /* avg counts padding as PyTorch does (count_include_pad) */

/* What the factors of the products of linear, conv2d and attention are rounded to first; sums, and all that is
 * stored, are f32. */
enum precision {
    PRECISION_F32,
    PRECISION_BF16,
    PRECISION_FP16, /* with loss scaling: no CPU has it */
    PRECISION_TF32  /* f32 whose factors have 10 bits of mantissa: no CPU has it */
};
/* How an image lies in memory. Channels of blocked ones are a multiple of LAYOUT_BLOCK. Ops on which layout has
 * no bearing (activation, add) take either, the same for all that they read and write. Plain C knows plain alone. */
enum layout {
    LAYOUT_PLAIN,   /* (n, c, h, w) */
    LAYOUT_BLOCKED, /* (n, c / LAYOUT_BLOCK, h, w, LAYOUT_BLOCK) */
    LAYOUT_LAST     /* (n, h, w, c): accelerators */
};
enum { LAYOUT_BLOCK = 16 };

struct window { /* height, then width */
    int kernel[2], stride[2], pad[2];
};
struct op_desc {
    enum op_kind kind;
    int64_t n;         /* samples, at least 1 */
    struct shape x, y; /* of one sample; add: both inputs have shape x */
    enum activation act;
    enum precision precision;
    enum layout x_layout, y_layout; /* of images, and of their gradients */
    bool first;                     /* the input is data: backward need not give dx */
    struct {
        bool bias;
        bool transposed; /* w0 is (in, out): x w0, as GPT-2 keeps its weights */
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
        float eps,
            momentum; /* running = (1 - momentum) running + momentum batch; var unbiased, as PyTorch */
        bool bias;    /* layernorm: w1 is there */
    } norm;
    struct {
        int64_t vocabulary; /* a token is 0 to vocabulary - 1 */
    } embedding;
    struct {
        int64_t row;
    } select;
    struct {
        int heads; /* x is (positions, 3 heads size), y (positions, heads size); head h's query is at h size */
        bool causal; /* a position sees itself and those before it */
    } attention;
};

/* Batchnorm over several batches, each pass in two parts: measure gives (channels, 2) sums of this batch; apply
 * takes those of all, with their count of values a channel.
 *   forward   mean, sum of squared deviations from it       mean, variance
 *   backward  sum of dy, sum of dy (x - mean)               the same; dw and db are this batch's alone */
enum norm_pass { NORM_MEASURE, NORM_APPLY };
struct norm_sync {
    enum norm_pass pass;
    double *sums;
    double count;
};

enum { LOSS_TOP = 5 };

/* What an op works on; pointers that the kind or the pass does not name are NULL. All float data is f32; tokens
 * are whole numbers in it, below 2^24.
 * All of it lies in the device's memory (but 'sync', which only host devices know). Where an activation of the
 * precision has two bytes (device_unit), x, y, dy and dx hold that type, whatever the pointer says. Always f32: the x
 * of a 'first' op, w, dw, buffers, target. What such an op saves is its own affair. */
struct op_args {
    const float *x[2]; /* (n, x) */
    float *y;          /* (n, y); in backward: what forward wrote */
    const float *dy;   /* (n, y) */
    float *dx
        [2]; /* (n, x); overwritten; dx[0] is NULL when desc.first; activation, dropout, add: may be
                          dy itself, of add both */
    const float *w[2];
    const void *w_low[2]; /* w in the type of activations, where that is not f32; else NULL */
    float *dw[2];         /* overwritten */
    bool add_dw;      /* linear, embedding: dw[0] is added to: another op has the same weights */
    float *buffer[2]; /* batchnorm: running mean and variance, (channels) */
    void *saved;      /* op->saved_bytes, written by forward, read by the backward that follows */
    void *scratch;    /* op->scratch_bytes, shared with other ops, ALIGNMENT-aligned */
    bool training; /* false: batchnorm uses its buffers, dropout passes through, nothing is saved */
    bool update_buffers;
    struct norm_sync *sync; /* batchnorm in training: NULL: by this batch alone */
    uint64_t seed;          /* dropout */
    const uint64_t *ids;    /* dropout: (n) counter of each sample, unique in the run */
    const int32_t *labels;  /* losses: (n, rows of x) classes; mse with labels: one-hot target */
    const float *target;    /* mse: (n, x) when labels is NULL */
    float scale;            /* losses: what the gradient of a sample's loss is multiplied by */
    double *sums; /* losses: sums[0] += sum of sample losses, sums[1] += for each sample the part of
                               its rows whose largest output (the first, if several) is the label; in order */
    double *
        top; /* losses with labels: += rows of which the label is among the LOSS_TOP largest outputs, of
                    equals the first; a label whose output is no number never is. NULL: nobody asks */
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
     * backward of a loss writes dx from what forward left in y (cross-entropy) or x (mse), or, where y is
     * unread, from x and what was saved. */
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
    bool
        y_unread; /* losses: backward does not read y, so it may be NULL, and then is not written */
};
