/* y = act(x w' + b) and its gradients: three matrix products and what is fused around them. Weights
 * are read and their gradient is written where they lie, (out, in): no copy of them is made in
 * another layout.
 *
 *   forward    y (n, out) = x (n, in) w' (in, out)
 *       or     y' (out, n) = w (out, in) x' (in, n), where transposing x and y is less work than
 * transposing w; then y = act(y + b) backward   dz (n, out) = dy where y > 0, and dz' (out, n); db
 * = sums of dz dw (out, in) = dz' (out, n) x (n, in) dx (n, in) = dz (n, out) w (out, in)
 *
 * Both ways of forward add in the same order: a sample's bits do not depend on how many there are.
 */
#include "engine/device/cpu/gemm.h"
#include "engine/device/cpu/kernels.h"

struct linear {
    struct op op;
    int64_t n, in, out;
    bool weights_left; /* forward's left factor */
};

struct pass { /* of one call: the scratch is (pack, z (n, out), z' (out, n)) */
    const struct linear *l;
    const struct op_args *a;
    float *z, *zt;
};

static size_t z_bytes(const struct linear *l) {
    return (size_t)align_floats(l->n * l->out) * sizeof(float);
}

static struct pass pass_of(const struct linear *l, const struct op_args *a) {
    char *z = (char *)a->scratch + gemm_pack_bytes(l->op.dev);
    return (struct pass){l, a, (float *)z, (float *)(z + z_bytes(l))};
}

/* ---- forward -------------------------------------------------------------------------------- */
/* Samples [begin, end): what follows the product. */
static void finish_samples(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct linear *l = p->l;
    const float *bias = l->op.desc.linear.bias ? p->a->w[1] : NULL;
    float *y = p->a->y + begin * l->out;
    if (l->weights_left) transpose(l->out, end - begin, p->zt + begin, l->n, y, l->out);
    kernel_bias_act(end - begin, l->out, bias, l->op.desc.act, y);
}

static enum error linear_forward(struct op *op, const struct op_args *a) {
    const struct linear *l = (const struct linear *)op;
    struct pass p = pass_of(l, a);
    struct gemm g = {.k = l->in, .lda = l->in, .ldb = l->in, .b_transposed = true};
    if (l->weights_left) {
        g.m = l->out, g.a = a->w[0];
        g.n = l->n, g.b = a->x[0];
        g.c = p.zt, g.ldc = l->n;
    } else {
        g.m = l->n, g.a = a->x[0];
        g.n = l->out, g.b = a->w[0];
        g.c = a->y, g.ldc = l->out;
    }
    gemm_run(op->dev, &g, a->scratch);
    cpu_parallel(op->dev, l->n, ALIGN_FLOATS, finish_samples, &p);
    return ERR_NONE;
}

/* ---- backward ------------------------------------------------------------------------------- */
static const float *dz_of(const struct pass *p) {
    return p->l->op.desc.act == ACT_RELU ? p->z : p->a->dy;
}

static void mask_samples(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct linear *l = p->l;
    int64_t at = begin * l->out;
    if (l->op.desc.act == ACT_RELU)
        kernel_relu_backward((end - begin) * l->out, p->a->y + at, p->a->dy + at, p->z + at);
    transpose(end - begin, l->out, dz_of(p) + at, l->out, p->zt + begin, l->n);
}

static void bias_columns(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    kernel_column_sums(p->l->n, end - begin, dz_of(p) + begin, p->l->out, p->a->dw[1] + begin);
}

static enum error linear_backward(struct op *op, const struct op_args *a) {
    const struct linear *l = (const struct linear *)op;
    struct pass p = pass_of(l, a);
    const float *dz = dz_of(&p);
    cpu_parallel(op->dev, l->n, ALIGN_FLOATS, mask_samples, &p);
    if (op->desc.linear.bias) cpu_parallel(op->dev, l->out, ALIGN_FLOATS, bias_columns, &p);
    struct gemm dw = {.m = l->out,
                      .n = l->in,
                      .k = l->n,
                      .a = p.zt,
                      .lda = l->n,
                      .b = a->x[0],
                      .ldb = l->in,
                      .c = a->dw[0],
                      .ldc = l->in};
    gemm_run(op->dev, &dw, a->scratch);
    if (!a->dx[0]) return ERR_NONE;
    struct gemm dx = {.m = l->n,
                      .n = l->in,
                      .k = l->out,
                      .a = dz,
                      .lda = l->out,
                      .b = a->w[0],
                      .ldb = l->in,
                      .c = a->dx[0],
                      .ldc = l->in};
    gemm_run(op->dev, &dx, a->scratch);
    return ERR_NONE;
}

static enum error linear_create(struct device *dev, const struct op_desc *d, struct op **out) {
    TRY(op_alloc(sizeof(struct linear), &cpu_linear, dev, d, out));
    struct linear *l = (struct linear *)*out;
    l->n = d->n;
    l->in = shape_count(&d->x);
    l->out = shape_count(&d->y);
    l->weights_left = l->n * (l->in + l->out) < l->in * l->out;
    l->op.scratch_bytes = gemm_pack_bytes(dev) + 2 * z_bytes(l);
    return ERR_NONE;
}

const struct op_impl cpu_linear = {
    .name = "gemm",
    .takes = op_takes_any,
    .create = linear_create,
    .forward = linear_forward,
    .backward = linear_backward,
    .free = op_release,
};
