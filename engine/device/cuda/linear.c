/* y = act(x w' + b) or x w' + b + x1, and its gradients: three products of cuBLASLt, and what is fused around them. For it, whose
 * matrices lie by columns, the row-major x (rows, in) is an (in, rows), and so on:
 *
 *   forward    y (out, rows) = w (out, in) x (in, rows), bias, x1 and activation on its way out; z, which a gelu reads,
 *              is kept for backward
 *   backward   dz = dy times the slope of the activation; db = sums of its rows: own kernels. Where dz is dy the library
 *              sums db beside dw, whose product reads dz anyway; of f32 it might round the terms, so only of half types
 *              dw (in, out) = x (in, rows) dz' (rows, out)
 *       or     dw (out, in) = dz (out, rows) x' (rows, in), where the weights are kept transposed
 *              dx (in, rows) = w' (in, out) dz (out, rows)
 *
 * Where the library has no kernel for a product with all that on it, or only one that is less exact, the plain one is taken: y holds the bias before
 * it adds, and a kernel of our own follows. */
#include "engine/device/cuda/columns.h"
#include "engine/device/cuda/linear_launch.h"
#include "engine/device/cuda/matmul.h"
#include "engine/device/cuda/parts.h"
#include "engine/device/cuda/sequence_launch.h"
#include "engine/device/impl.h"

struct linear {
    struct op op;
    int64_t rows, in, out, before_ld, y_ld;
    struct matmul infer, train, dw, dx; /* train: infer's, unless z must be kept */
    bool own_infer, own_train;          /* the product is plain; bias and activation are ours */
    bool sums_bias;                     /* dw's product gives db, too */
    size_t x_bytes, dz_bytes;           /* the parts of scratch: x in low precision, dz, partial sums */
    size_t y_bytes;
};

static bool keeps_before(const struct op_desc *d) {
    return d->act == ACT_GELU_TANH;
}

static bool lowers_x(const struct op_desc *d) {
    return d->first && cuda_is_half(d);
}

/* ---- planning ------------------------------------------------------------------------------- */
static cublasLtEpilogue_t epilogue_of(const struct op_desc *d, bool train) {
    unsigned e = d->linear.bias ? CUBLASLT_EPILOGUE_BIAS : 0;
    if (d->act == ACT_RELU) e |= CUBLASLT_EPILOGUE_RELU;
    if (d->act == ACT_GELU_TANH) e |= train ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
    return e ? (cublasLtEpilogue_t)e : CUBLASLT_EPILOGUE_DEFAULT;
}

/* cuBLASLt's gelu may be an approximation that has fewer digits than f32. */
static bool epilogue_is_exact(const struct op_desc *d) {
    return d->act != ACT_GELU_TANH || d->precision != PRECISION_F32;
}

static enum error plan_forward(struct linear *l, struct matmul *m, bool train, bool *own) {
    const struct op_desc *d = &l->op.desc;
    struct matmul_product p = {.m = l->out,
                               .n = l->rows,
                               .k = l->in,
                               .a_turned = !d->linear.transposed,
                               .d_ld = l->y_ld,
                               .precision = d->precision,
                               .epilogue = epilogue_of(d, train),
                               .aux_ld = train ? l->before_ld : 0};
    *own = !epilogue_is_exact(d);
    enum error err = *own ? ERR_CONFIG : matmul_init(m, cuda_of(&l->op), &p);
    if (err != ERR_CONFIG || p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return err;
    *own = true;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT, p.aux_ld = 0;
    return matmul_init(m, cuda_of(&l->op), &p);
}

/* The product with the sums of dz on it, where the library has one. */
static enum error plan_dw(struct linear *l, struct matmul_product *p) {
    const struct op_desc *d = &l->op.desc;
    if (!d->linear.bias || d->act != ACT_NONE || !cuda_is_half(d)) return matmul_init(&l->dw, cuda_of(&l->op), p);
    p->epilogue = d->linear.transposed ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    enum error err = matmul_init(&l->dw, cuda_of(&l->op), p);
    l->sums_bias = err == ERR_NONE;
    if (err != ERR_CONFIG) return err;
    p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return matmul_init(&l->dw, cuda_of(&l->op), p);
}

static enum error plan_backward(struct linear *l) {
    const struct op_desc *d = &l->op.desc;
    bool transposed = d->linear.transposed;
    int64_t dz_ld = d->act == ACT_NONE ? l->y_ld : 0;
    struct matmul_product dw = {.m = transposed ? l->out : l->in,
                                .n = transposed ? l->in : l->out,
                                .k = l->rows,
                                .a_ld = transposed ? dz_ld : 0,
                                .b_turned = true,
                                .b_ld = transposed ? 0 : dz_ld,
                                .precision = d->precision,
                                .d_f32 = true,
                                .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    struct matmul_product dx = {.m = l->in,
                                .n = l->rows,
                                .k = l->out,
                                .a_turned = transposed,
                                .b_ld = dz_ld,
                                .precision = d->precision,
                                .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    TRY(plan_dw(l, &dw));
    return d->first ? ERR_NONE : matmul_init(&l->dx, cuda_of(&l->op), &dx);
}

static enum error products_plan(struct linear *l) {
    TRY(plan_forward(l, &l->infer, false, &l->own_infer));
    if (keeps_before(&l->op.desc)) TRY(plan_forward(l, &l->train, true, &l->own_train));
    return plan_backward(l);
}

static void linear_fini(struct op *op) {
    struct linear *l = (struct linear *)op;
    matmul_fini(&l->infer);
    matmul_fini(&l->train);
    matmul_fini(&l->dw);
    matmul_fini(&l->dx);
}

static void size_up(struct linear *l) {
    const struct op_desc *d = &l->op.desc;
    int64_t unit = cuda_is_half(d) ? 2 : 4;
    l->rows = op_rows(d), l->in = shape_last(&d->x), l->out = shape_last(&d->y);
    l->before_ld = (l->out + 7) / 8 * 8; /* as cuBLASLt wants it */
    l->y_ld = shape_pitch(&d->y, d->y_layout, unit);
    l->y_bytes = (size_t)(l->rows * l->out * unit);
    if (lowers_x(d)) l->x_bytes = align_bytes((size_t)(l->rows * l->in * unit));
    if (d->act != ACT_NONE) l->dz_bytes = align_bytes((size_t)(l->rows * l->out * unit));
    if (keeps_before(d)) l->op.saved_bytes = (size_t)(l->rows * l->before_ld * unit);
    l->op.scratch_bytes = l->x_bytes + l->dz_bytes;
}

static enum error linear_plan(struct op *op) {
    struct linear *l = (struct linear *)op;
    size_up(l);
    TRY(products_plan(l));
    if (op->desc.linear.bias && !l->sums_bias) op->scratch_bytes += columns_bytes(l->rows, l->out);
    return ERR_NONE;
}

/* ---- forward -------------------------------------------------------------------------------- */
/* The factor x: in scratch where it has to be lowered first. */
static enum error factor_x(const struct linear *l, const struct op_args *a, const void **out) {
    struct device *dev = l->op.dev;
    *out = a->x[0];
    if (!lowers_x(&l->op.desc)) return ERR_NONE;
    *out = a->scratch;
    return cuda_lower(dev, LANE_COMPUTE, a->scratch, a->x[0], l->rows * l->in, l->op.desc.precision);
}

static const void *weight_of(const struct linear *l, const struct op_args *a, int which) {
    return cuda_is_half(&l->op.desc) ? a->w_low[which] : (const void *)a->w[which];
}

/* The bias (and x1) before a product that adds to y: it joins the sums in f32, and what is rounded is rounded once. */
static enum error bias_fill(const struct linear *l, const struct op_args *a) {
    struct rows_call r = {.kind = a->x[1] ? ROWS_ADD : ROWS_W,
                          .positions = 1,
                          .x = a->x[1],
                          .from = element_of(l->op.desc.precision),
                          .to = element_of(l->op.desc.precision),
                          .count = l->rows,
                          .width = l->out,
                          .w = a->w[1],
                          .y = a->y,
                          .y_ld = l->y_ld};
    CU(rows_move(&r, cuda_stream(&l->op)), "linear");
    return ERR_NONE;
}

static enum error product_finish(const struct linear *l, const struct op_args *a, void *before) {
    const struct op_desc *d = &l->op.desc;
    struct linear_finish f = {.type = element_of(d->precision),
                              .act = d->act,
                              .rows = l->rows,
                              .cols = l->out,
                              .y = a->y,
                              .before = before,
                              .before_ld = l->before_ld};
    if (d->act == ACT_NONE) return ERR_NONE;
    CU(linear_finish(&f, cuda_stream(&l->op)), "linear");
    return ERR_NONE;
}

static enum error linear_forward(struct op *op, const struct op_args *a) {
    struct linear *l = (struct linear *)op;
    bool train = a->training && keeps_before(&op->desc), bias = op->desc.linear.bias;
    bool own = train ? l->own_train : l->own_infer;
    struct matmul_args m = {.a = weight_of(l, a, 0), .d = a->y, .aux = train ? a->saved : NULL, .add = own && bias};
    if (!m.add) m.joined = a->x[1];
    if (bias) m.bias = weight_of(l, a, 1);
    TRY(factor_x(l, a, &m.b));
    if (m.add) TRY(bias_fill(l, a));
    TRY(matmul_run(train ? &l->train : &l->infer, cuda_of(op), &m));
    return own ? product_finish(l, a, m.aux) : ERR_NONE;
}

/* ---- backward ------------------------------------------------------------------------------- */
/* dz, and the gradient of the bias, where no product gives it. */
static enum error behind_act(const struct linear *l, const struct op_args *a, const void **dz) {
    const struct op_desc *d = &l->op.desc;
    char *scratch = (char *)a->scratch + l->x_bytes;
    float *partial = d->linear.bias && !l->sums_bias ? (float *)(scratch + l->dz_bytes) : NULL;
    cudaStream_t stream = cuda_stream(&l->op);
    *dz = d->act == ACT_NONE ? (const void *)a->dy : scratch;
    struct linear_behind b = {.type = element_of(d->precision),
                              .act = d->act,
                              .rows = l->rows,
                              .cols = l->out,
                              .dy = a->dy,
                              .dy_ld = l->y_ld,
                              .gate = keeps_before(d) ? a->saved : a->y,
                              .gate_ld = keeps_before(d) ? l->before_ld : l->out,
                              .dz = scratch,
                              .partial = partial};
    if (d->act != ACT_NONE || partial) CU(linear_behind(&b, stream), "linear");
    if (partial) CU(columns_finish(partial, column_groups(l->rows), l->out, a->dw[1], NULL, stream), "linear");
    return ERR_NONE;
}

static enum error linear_backward(struct op *op, const struct op_args *a) {
    struct linear *l = (struct linear *)op;
    const void *x, *dz;
    TRY(behind_act(l, a, &dz));
    if (a->dx[0]) {
        struct matmul_args dx = {.a = weight_of(l, a, 0), .b = dz, .d = a->dx[0]};
        TRY(matmul_run(&l->dx, cuda_of(op), &dx));
    }
    TRY(factor_x(l, a, &x));
    if (a->dx[1] && a->dx[1] != a->dy) TRY(cuda_copy(op->dev, LANE_COMPUTE, a->dx[1], op->dev, a->dy, l->y_bytes));
    bool transposed = op->desc.linear.transposed;
    struct matmul_args dw = {.a = transposed ? dz : x, .b = transposed ? x : dz, .d = a->dw[0], .add = a->add_dw};
    if (l->sums_bias) dw.bias = a->dw[1];
    return matmul_run(&l->dw, cuda_of(op), &dw);
}

static bool linear_takes(const struct op_desc *d) {
    bool aligned = d->y_layout == LAYOUT_ALIGNED && d->act == ACT_NONE;
    return d->x_layout == LAYOUT_PLAIN && (d->y_layout == LAYOUT_PLAIN || aligned) &&
           (act_is_fused(d->act) || d->act == ACT_GELU_TANH) &&
           !(d->joins && (d->first || d->act != ACT_NONE || d->y_layout != LAYOUT_PLAIN));
}

const struct op_impl cuda_linear = {
    .name = "cublaslt",
    .takes = linear_takes,
    .size = sizeof(struct linear),
    .plan = linear_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .fini = linear_fini,
    .aligns = true,
    .joins = true,
};
