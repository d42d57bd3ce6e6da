/* y = act(x w' + b) of each row and its gradients: three matrix products and what is fused around
 * them. Weights are read and their gradient is written where they lie: no copy of them is made in
 * another layout.
 *
 *   forward    y (rows, out) = x (rows, in) w' (in, out)
 *       or     y' (out, rows) = w (out, in) x' (in, rows), where transposing x and y is less work
 *              than transposing w; then y = act(y + b)
 *   backward   dz (rows, out) = dy where y > 0; db = sums of dz
 *              dw (out, in) = dz' (out, rows) x (rows, in)
 *       or     dw (in, out) = x' (in, rows) dz (rows, out), where the weights are kept transposed
 *              dx (rows, in) = dz (rows, out) w (out, in)
 *
 * Both ways of forward add in the same order: a sample's bits do not depend on how many there are.
 * In bf16 gemm rounds the factors on their way; the sum db has no factors and stays in f32.
 */
#include "engine/device/cpu/gemm.h"
#include "engine/device/cpu/kernels.h"

#include <math.h>
#include <string.h>

enum { MASK_GRAIN = 4096, BIAS_PART = 256 }; /* elements that are worth a thread; columns that are summed at a time */

struct linear {
    struct op op;
    int64_t rows, in, out;
    bool weights_left; /* forward's left factor */
};

struct pass { /* of one call: the scratch is (pack, z) */
    const struct linear *l;
    const struct op_args *a;
    float *z; /* y' (out, rows), or the gradient before the activation */
};

static size_t pack_bytes(const struct linear *l) {
    return gemm_pack_bytes(l->op.dev, l->op.desc.segments ? l->rows : 0);
}

static struct pass pass_of(const struct linear *l, const struct op_args *a) {
    return (struct pass){l, a, (float *)((char *)a->scratch + pack_bytes(l))};
}

/* ---- forward -------------------------------------------------------------------------------- */
static void bias_add(int64_t rows, int64_t cols, int64_t ld, const float *bias, enum activation act, float *y) {
    float least = act == ACT_RELU ? 0 : -INFINITY;
    for (int64_t i = 0; i < rows; i++, y += ld)
        for (int64_t j = 0; j < cols; j++) {
            float v = y[j] + bias[j];
            y[j] = least > v ? least : v;
        }
}

static void relu_rows(int64_t rows, int64_t cols, int64_t ld, float *y) {
    for (int64_t i = 0; i < rows; i++, y += ld)
        for (int64_t j = 0; j < cols; j++) y[j] = 0 > y[j] ? 0 : y[j];
}

/* What follows the product, in a part of y. */
static void finish_part(void *ctx, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const struct pass *p = ctx;
    const struct linear *l = p->l;
    enum activation act = l->op.desc.act;
    float *y = p->a->y + row * l->out + column;
    if (l->op.desc.linear.bias)
        bias_add(rows, columns, l->out, p->a->w[1] + column, act, y);
    else if (act == ACT_RELU)
        relu_rows(rows, columns, l->out, y);
}

/* Rows [begin, end) of y from y'. */
static void turn_rows(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct linear *l = p->l;
    transpose(l->out, end - begin, p->z + begin, l->rows, p->a->y + begin * l->out, l->out);
    finish_part(ctx, begin, end - begin, 0, l->out);
}

static enum error linear_forward(struct op *op, const struct op_args *a) {
    const struct linear *l = (const struct linear *)op;
    struct pass p = pass_of(l, a);
    bool transposed = op->desc.linear.transposed;
    struct gemm g = {
        .k = l->in, .lda = l->in, .ldb = l->in, .b_transposed = true, .precision = op->desc.precision, .ctx = &p};
    if (l->weights_left) {
        g.m = l->out, g.a = a->w[0];
        g.n = l->rows, g.b = a->x[0];
        g.c = p.z, g.ldc = l->rows;
    } else {
        g.m = l->rows, g.a = a->x[0];
        g.n = l->out, g.b = a->w[0];
        g.ldb = transposed ? l->out : l->in, g.b_transposed = !transposed;
        g.c = a->y, g.ldc = l->out;
        g.done = finish_part;
    }
    gemm_run(op->dev, &g, a->scratch);
    if (l->weights_left) cpu_parallel(op->dev, l->rows, ALIGN_FLOATS, turn_rows, &p);
    return ERR_NONE;
}

/* ---- backward ------------------------------------------------------------------------------- */
static const float *dz_of(const struct pass *p) {
    return p->l->op.desc.act == ACT_RELU ? p->z : p->a->dy;
}

static void mask_part(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    kernel_relu_backward(end - begin, p->a->y + begin, p->a->dy + begin, p->z + begin);
}

static void bias_columns(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct linear *l = p->l;
    const struct segments s = op_segments(&l->op.desc);
    for (int64_t j = begin; j < end; j += BIAS_PART) {
        float slots[SEGMENT_SLOTS][BIAS_PART];
        int64_t columns = end - j < BIAS_PART ? end - j : BIAS_PART, each = l->rows / l->op.desc.n;
        for (int i = 0; i < s.count; i++) {
            const float *dz = dz_of(p) + s.begin[i] * each * l->out + j;
            kernel_column_sums(segment_size(&s, i) * each, columns, dz, l->out, slots[segment_slot(i)]);
            slots_add(slots[0], BIAS_PART, i, columns);
        }
        memcpy(p->a->dw[1] + j, slots[0], (size_t)columns * sizeof(float));
    }
}

static void weights_backward(const struct pass *p) {
    const struct linear *l = p->l;
    bool transposed = l->op.desc.linear.transposed;
    struct gemm dw = {.m = transposed ? l->in : l->out,
                      .n = transposed ? l->out : l->in,
                      .k = l->rows,
                      .a = transposed ? p->a->x[0] : dz_of(p),
                      .a_transposed = true,
                      .b = transposed ? dz_of(p) : p->a->x[0],
                      .c = p->a->dw[0],
                      .add = p->a->add_dw,
                      .segments = l->op.desc.segments,
                      .each = l->rows / l->op.desc.n,
                      .precision = l->op.desc.precision};
    dw.lda = dw.m, dw.ldb = dw.ldc = dw.n;
    gemm_run(l->op.dev, &dw, p->a->scratch);
}

static void input_backward(const struct pass *p) {
    const struct linear *l = p->l;
    bool transposed = l->op.desc.linear.transposed;
    struct gemm dx = {.m = l->rows,
                      .n = l->in,
                      .k = l->out,
                      .a = dz_of(p),
                      .lda = l->out,
                      .b = p->a->w[0],
                      .ldb = transposed ? l->out : l->in,
                      .b_transposed = transposed,
                      .c = p->a->dx[0],
                      .ldc = l->in,
                      .precision = l->op.desc.precision};
    gemm_run(l->op.dev, &dx, p->a->scratch);
}

static enum error linear_backward(struct op *op, const struct op_args *a) {
    const struct linear *l = (const struct linear *)op;
    struct pass p = pass_of(l, a);
    if (op->desc.act == ACT_RELU) cpu_parallel(op->dev, l->rows * l->out, MASK_GRAIN, mask_part, &p);
    if (op->desc.linear.bias) cpu_parallel(op->dev, l->out, ALIGN_FLOATS, bias_columns, &p);
    weights_backward(&p);
    if (a->dx[0]) input_backward(&p);
    return ERR_NONE;
}

static enum error linear_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct linear *l = (struct linear *)op;
    l->rows = op_rows(d);
    l->in = shape_last(&d->x);
    l->out = shape_last(&d->y);
    l->weights_left = !d->linear.transposed && l->rows * (l->in + l->out) < l->in * l->out;
    l->op.scratch_bytes = pack_bytes(l);
    if (l->weights_left || d->act == ACT_RELU) /* z: a vocabulary's head has none, and needs none */
        l->op.scratch_bytes += (size_t)(l->rows * l->out) * sizeof(float);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_linear) = {
    .name = "gemm",
    .size = sizeof(struct linear),
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .segments = op_takes_any,
};
