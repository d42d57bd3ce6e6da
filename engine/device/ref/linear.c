/* y = act(x w' + b [+ x1]) of each row, plain. */
#include "engine/device/bf16.h"
#include "engine/device/ref/ref.h"

#include "engine/base/onnx_graph.h"

#include <string.h>

struct pass {
    const struct op_desc *d;
    const struct op_args *a;
    int64_t rows, in, out;
};

static struct pass pass_of(const struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    return (struct pass){d, a, op_rows(d), shape_last(&d->x), shape_last(&d->y)};
}

/* The offset of the weight from input k to output o. */
static int64_t weight_at(const struct pass *p, int64_t o, int64_t k) {
    return p->d->linear.transposed ? k * p->out + o : o * p->in + k;
}

static double term_product(const struct pass *p, float a, float b) {
    if (p->d->precision == PRECISION_BF16) a = bf16_round(a), b = bf16_round(b);
    return (double)a * (double)b;
}

/* What the activation reads. */
static float input_of_act(const struct pass *p, int64_t i, int64_t o) {
    double sum = p->d->linear.bias ? (double)p->a->w[1][o] : 0;
    for (int64_t k = 0; k < p->in; k++)
        sum += term_product(p, p->a->x[0][i * p->in + k], p->a->w[0][weight_at(p, o, k)]);
    if (p->d->joins) sum += (double)p->a->x[1][i * p->out + o];
    return (float)sum;
}

static enum error linear_forward(struct op *op, const struct op_args *a) {
    struct pass p = pass_of(op, a);
    for (int64_t i = 0; i < p.rows; i++)
        for (int64_t o = 0; o < p.out; o++) a->y[i * p.out + o] = (float)act_value(p.d, (double)input_of_act(&p, i, o));
    return ERR_NONE;
}

/* The gradient before the activation, in scratch. */
static void act_backward_all(const struct pass *p) {
    float *dz = p->a->scratch;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t o = 0; o < p->out; o++) {
            int64_t at = i * p->out + o;
            double z = p->d->act == ACT_NONE ? 0 : (double)input_of_act(p, i, o);
            dz[at] = (float)(act_slope(p->d, z) * (double)p->a->dy[at]);
        }
}

static float after_act(const struct pass *p, int64_t i, int64_t o) {
    return ((const float *)p->a->scratch)[i * p->out + o];
}

/* dw of output o, and db: sums over the batch's rows. */
static void weights_backward(const struct pass *p, int64_t o) {
    const struct op_args *a = p->a;
    double bias = 0;
    for (int64_t i = 0; i < p->rows; i++) bias += (double)after_act(p, i, o);
    if (p->d->linear.bias) a->dw[1][o] = (float)bias;
    for (int64_t k = 0; k < p->in; k++) {
        float *dw = &a->dw[0][weight_at(p, o, k)];
        double sum = a->add_dw ? (double)*dw : 0;
        for (int64_t i = 0; i < p->rows; i++) sum += term_product(p, after_act(p, i, o), a->x[0][i * p->in + k]);
        *dw = (float)sum;
    }
}

static enum error linear_backward(struct op *op, const struct op_args *a) {
    struct pass p = pass_of(op, a);
    act_backward_all(&p);
    for (int64_t o = 0; o < p.out; o++) weights_backward(&p, o);
    for (int64_t i = 0; i < p.rows && a->dx[0]; i++)
        for (int64_t k = 0; k < p.in; k++) {
            double sum = 0;
            for (int64_t o = 0; o < p.out; o++)
                sum += term_product(&p, after_act(&p, i, o), a->w[0][weight_at(&p, o, k)]);
            a->dx[0][i * p.in + k] = (float)sum;
        }
    if (a->dx[1]) memcpy(a->dx[1], a->scratch, (size_t)op_ys(p.d) * sizeof(float));
    return ERR_NONE;
}

static enum error linear_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->scratch_bytes = (size_t)op_ys(d) * sizeof(float);
    return ERR_NONE;
}

static bool linear_takes(const struct op_desc *d) {
    return d->x_layout == LAYOUT_PLAIN && d->y_layout == LAYOUT_PLAIN;
}

static bool linear_fits(const struct op_desc *d) {
    return op_rows_fit(d, shape_last(&d->y));
}

static void linear_weights(const struct op_desc *d, int64_t count[2]) {
    count[0] = shape_last(&d->x) * shape_last(&d->y);
    count[1] = d->linear.bias ? shape_last(&d->y) : 0;
}

static double linear_products(const struct op_desc *d) {
    return (double)shape_count(&d->x) * (double)shape_last(&d->y);
}

static const char *linear_onnx(const struct onnx_form *f) {
    struct onnx_graph *g = f->g;
    bool turned = f->d->linear.transposed;
    if (f->d->x.ndim == 1)
        return onnx_node(g, "Gemm", f->name, ONNX_LIST(f->x[0], f->w[0], f->d->linear.bias ? f->w[1] : NULL),
                         ONNX_LIST(turned ? "transB=0" : "transB=1"));
    const char *weight =
        turned ? f->w[0]
               : onnx_node(g, "Transpose", onnx_name(g, f->name, "turned"), ONNX_LIST(f->w[0]), ONNX_LIST("perm=1,0"));
    if (!f->d->linear.bias) return onnx_binary(g, "MatMul", f->name, f->x[0], weight);
    return onnx_binary(g, "Add", f->name, onnx_binary(g, "MatMul", onnx_name(g, f->name, "product"), f->x[0], weight),
                       f->w[1]);
}

const struct op_row op_linear = {
    .name = "linear",
    .sees = SEES_ROW,
    .fuses = true,
    .fits = linear_fits,
    .weights = linear_weights,
    .products = linear_products,
    .onnx = linear_onnx,
    .plain = {.name = "ref",
              .takes = linear_takes,
              .plan = linear_plan,
              .forward = linear_forward,
              .backward = linear_backward,
              .joins = true},
};
