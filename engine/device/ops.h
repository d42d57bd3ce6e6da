/* What a device must compute. An op is one differentiable operation whose shape is fixed when it is planned;
 * running it allocates nothing. Every op exists in plain C (device/ref), which is the specification; another
 * device overrides what it does better and is tested against it over every registered case. */
#pragma once
#include "engine/base/error.h"
#include "engine/device/segments.h"

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

enum op_kind {
#define OP(KIND, name, cpu, cuda) OP_##KIND,
#include "engine/device/ops.def"
    OP_KINDS
};

/* A separate op, or fused: a part of linear, conv2d, batchnorm and add. */
enum activation {
#define ACTIVATION(NAME, name, fused) ACT_##NAME,
#include "engine/device/activations.def"
};
const char *act_name(enum activation act);
/* Whether all kernels that have an activation after their sums take this one (or take none). */
bool act_is_fused(enum activation act);

enum pool_kind { POOL_MAX, POOL_AVG }; /* avg counts padding as PyTorch does (count_include_pad) */

/* What the factors of the products of linear, conv2d and attention are rounded to first; sums, and all that is
 * stored, are f32. */
enum precision {
    PRECISION_F32,
    PRECISION_BF16,
    PRECISION_FP16, /* with loss scaling: no CPU has it */
    PRECISION_TF32  /* f32 whose factors have 10 bits of mantissa: no CPU has it */
};
const char *precision_name(enum precision p);
/* How values lie in memory: images (blocked ones have channels that are a multiple of LAYOUT_BLOCK), and rows. Ops on
 * which layout has no bearing (activation, add) take either, the same for all that they read and write. Plain C knows
 * plain alone. */
enum layout {
    LAYOUT_PLAIN,   /* (n, c, h, w) */
    LAYOUT_BLOCKED, /* (n, c / LAYOUT_BLOCK, h, w, LAYOUT_BLOCK) */
    LAYOUT_LAST,    /* (n, h, w, c): accelerators */
    LAYOUT_ALIGNED /* rows, each a multiple of LAYOUT_ROW bytes after the one before it, as products of accelerators want
                       them. What lies between is anything */
};
enum { LAYOUT_BLOCK = 16, LAYOUT_ROW = 128 };
/* Elements from row to row of values of the shape, where an element has 'unit' bytes. */
int64_t shape_pitch(const struct shape *s, enum layout l, int64_t unit);

struct window { /* height, then width */
    int kernel[2], stride[2], pad[2];
};
struct op_desc {
    enum op_kind kind;
    int64_t n;         /* samples, at least 1 */
    struct shape x, y; /* of one sample; add: both inputs have shape x */
    enum activation act;
    float act_alpha; /* its parameter, if it has one */
    enum precision precision;
    enum layout x_layout, y_layout; /* and of their gradients */
    bool first;                     /* the input is data: backward need not give dx */
    bool joins; /* batchnorm, linear: x[1], which has y's shape and layout, is added before act. Not 'first' */
    /* The parts of the batch that sum for themselves: dw, the moments of batchnorm, losses. dw is their sum along the
     * tree; buffers follow the first of them. NULL: the batch is one. */
    const struct segments *segments;
    bool apart; /* dw[0] is (segments, w[0]): not summed, since another op has the same weights */
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
        int layer; /* distinguishes the streams of several dropouts */
    } dropout;
    struct {
        float eps, momentum; /* running = (1 - momentum) running + momentum batch; var unbiased, as PyTorch */
        bool bias;           /* layernorm: w1 is there */
    } norm;
    struct {
        int64_t vocabulary; /* a token is 0 to vocabulary - 1 */
    } embedding;
    struct {
        int64_t row;
    } select;
    struct {
        int heads;       /* x is (positions, 3 heads size), y (positions, heads size); head h's query is at h size */
        bool causal;     /* a position sees itself and those before it */
        int64_t context; /* causal, for inference: positions that a cache has room for; 0: there is no cache */
    } attention;
    struct {
        int64_t whole;
        float real;
    } own; /* parameters of an op whose row and kernels alone read them, and say what they are */
};

/* An op whose row has 'moments' (batchnorm) over several batches, each pass in two parts: measure gives (channels, 2) sums of this batch; apply
 * takes those of all, with their count of values a channel.
 *   forward   mean, sum of squared deviations from it       mean, variance
 *   backward  sum of dy, sum of dy (x - mean)               the same; dw and db are this batch's alone */
enum norm_pass { NORM_MEASURE, NORM_APPLY };
struct norm_sync {
    enum norm_pass pass;
    double *sums;
    double count;
};

enum { LOSS_TOP = 5, LOSS_SUMS = 3 };

/* What an op works on; pointers that the kind or the pass does not name are NULL. All float data is f32; tokens
 * are whole numbers in it, below 2^24.
 * All of it lies in the device's memory (but 'sync', which only host devices know). Where an activation of the
 * precision has two bytes (device_unit), x, y, dy and dx hold that type, whatever the pointer says. Always f32: the x
 * of a 'first' op, w, dw, buffers, target. What such an op saves is its own affair. */
struct op_args {
    const float *x[2]; /* (n, x) */
    float *y;          /* (n, y); in backward: what forward wrote */
    const float *dy;   /* (n, y) */
    float *dx[2];      /* (n, x); overwritten; dx[0] is NULL when desc.first; activation, dropout, add: may be
                          dy itself, of add both, and dx[1] where an op joins */
    const float *w[2];
    const void *w_low[2]; /* w in the type of activations, where that is not f32; else NULL */
    float *dw[2];         /* overwritten */
    void *
        cache; /* attention with a context: op->cache_bytes, zero at first. Keys and values of the positions before 'at',
                    to which forward adds those of x */
    int64_t at;       /* the position of x's first row; 0 where x has several */
    bool add_dw;      /* linear, embedding: dw[0] is added to: another op has the same weights */
    bool add_dx;      /* ops that say adds_dx: dx[0] is added to, and may be dy itself */
    float *buffer[2]; /* batchnorm: running mean and variance, (channels) */
    void *saved;      /* op->saved_bytes, written by forward, read by the backward that follows */
    void *scratch;    /* op->scratch_bytes, shared with other ops, ALIGNMENT-aligned */
    bool training;    /* false: batchnorm uses its buffers, dropout passes through, nothing is saved */
    bool update_buffers;
    struct norm_sync *sync; /* batchnorm in training: NULL: by this batch alone */
    uint64_t seed;          /* dropout */
    const uint64_t *ids;    /* dropout: (n) counter of each sample, unique in the run */
    /* Losses: (n, rows of x) classes, one-hot vectors as targets. A sample that is mixed of two has 'others' as well:
     * the part shares[i] of sample i's target is of its labels, the rest of its others. others NULL: all of it. What
     * sums[1] and top count goes by labels. Cross-entropy: the loss of a row is -sum of w[k] q[k] log p[k], where q is
     * the target, smoothed, p is softmax(x) and w are class_weights (NULL: 1 each), as PyTorch's without its division
     * by the weights of the batch. */
    const int32_t *labels, *others;
    const float *shares;        /* (n), with others */
    const float *class_weights; /* cross-entropy: (classes) */
    float smoothing;            /* cross-entropy: the part of a target that is spread over all classes */
    const float *target; /* mse, bce: (n, x) when labels is NULL; bce: each in [0, 1], as whoever reads them checks */
    float scale;         /* losses: what the gradient of a sample's loss is multiplied by */
    double *sums;        /* losses: sums[0] += sum of sample losses, sums[1] += for each sample the part of
                               its rows whose largest output (the first, if several) is the label; in order */
    double *top;         /* losses with labels: += rows of which the label is among the LOSS_TOP largest outputs, of
                    equals the first; a label whose output is no number never is. NULL: nobody asks.
                    Segment i's sums and top are LOSS_SUMS * i further */
};

struct device;
struct op;
struct op_impl {
    const char *name; /* "ref", "brgemm": shown by bench and in tests */
    /* Whether this implementation takes the description as it stands (fusions included). NULL: op_takes_plain. */
    bool (*takes)(const struct op_desc *d);
    size_t size; /* of its private state, which begins with struct op; 0: it has none */
    /* Completes an op that is zero but for impl, dev and desc. May be slow, may allocate what fini frees, also after
     * an error. NULL: nothing is left to do. */
    enum error (*plan)(struct op *op);
    /* Run on the calling thread (and the device's own). Allocate nothing. On a host device running does not change the op:
     * several threads may run one at a time, each with its own memory. forward of a loss adds to sums;
     * backward of a loss writes dx from what forward left in y (cross-entropy) or x (mse, bce), or, where y is
     * unread, from x and what was saved. */
    enum error (*forward)(struct op *op, const struct op_args *a);
    enum error (*backward)(struct op *op, const struct op_args *a);
    void (*fini)(struct op *op); /* NULL: nothing to free but the op */
    /* Whether it takes the description's segments, in one pass; else, as where it is NULL, each has its own op. */
    bool (*segments)(const struct op_desc *d);
    bool aligns, joins; /* LAYOUT_ALIGNED, and op_desc.joins, are a matter of 'takes'; else they are never taken */
};
/* What a row of y depends on, of the rows of x: for those that compute a sequence position by position. */
enum op_sight {
    SEES_MORE,  /* on any, or there are no rows */
    SEES_ROW,   /* on its own alone */
    SEES_TOKEN, /* on its own, which is a token */
    SEES_PLACE, /* on its own, and on which one it is: w[0] has a row for each place */
    SEES_BEFORE /* on those up to its own, where attention.causal is set; attention.context asks for a cache */
};
struct onnx_graph; /* engine/base/onnx_graph.h */
struct onnx_form {
    struct onnx_graph *g;
    const struct op_desc *d;
    const char *name;     /* to be y's */
    const char *const *x; /* names of inputs */
    const char *const *w; /* of parameters from 0 on, of buffers from 2 on */
};
/* A kind of op: all that is known of it, on every device. Its file in device/ref defines it. */
struct op_row {
    const char *name;
    enum op_sight sees;
    bool elementwise; /* an element of y depends on those at its place alone: dx may be dy itself */
    bool same_dx;     /* elementwise, of two inputs: both may have dy itself as their dx */
    bool activates;   /* y is act(x): an op that fuses may compute it after its sum */
    bool fuses;       /* takes an activation after its sum (op_desc.act) */
    bool pools;       /* takes a 2x2 max-pool after its activation (conv.maxpool) */
    bool turns;       /* its device's layout of images is worth a reorder before and after it */
    bool moments; /* normalises by the moments of its batch, and takes a norm_sync where several batches share them */
    bool loss;
    /* Whether the shapes suit each other and the parameters. NULL: y has the shape of x. */
    bool (*fits)(const struct op_desc *d);
    /* Floats of w[0] and w[1], which are 0 before. A batch of several segments is then computed segment by segment,
     * unless an implementation takes them. NULL: it has no weights. */
    void (*weights)(const struct op_desc *d, int64_t count[2]);
    /* Products of one sample, forward. NULL: so few that they do not count. */
    double (*products)(const struct op_desc *d);
    /* The op as ONNX operators. Gives the name of y; NULL: there is no such form (ERR_CONFIG has been recorded) or no
     * memory. Where a row has none, a network that has the op cannot be exported. */
    const char *(*onnx)(const struct onnx_form *f);
    struct op_impl plain; /* in plain C: the specification */
};
const struct op_row *op_row(enum op_kind kind);
/* A kind besides those of ops.def, which every device in the host's memory computes by plain C. Before any op is
 * created; at most OPS_ADDED in a process. */
enum { OPS_ADDED = 4 };
enum op_kind op_register(const struct op_row *row);
/* Operations of one sample, two for each product. Backward has as many again for dw, and for dx unless the input is
 * data. */
double op_flops(const struct op_desc *d, bool backward);

/* Implementations begin their private state with this. */
struct op {
    const struct op_impl *impl;
    struct device *dev;
    struct op_desc desc;
    size_t saved_bytes, scratch_bytes;
    size_t cache_bytes; /* what a cache is, all ops with the same heads, features and context agree on */
    bool adds_dx;       /* backward can add to dx[0]: op_args.add_dx */
    bool y_unread;      /* losses: backward does not read y, so it may be NULL, and then is not written */
    bool slopes; /* losses: forward writes dx as well, where it is given; that may be x itself, and y NULL. There is no
                   backward then */
};
