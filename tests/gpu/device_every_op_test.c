/* Every op on a GPU against plain C, in every precision and layout that it takes: the cases of the processor's
 * devices, so a new one is found here too. Plain C gets what the GPU gets: inputs rounded to the type of
 * activations, weights to that of products. Memory is filled with NaN first, so that what is not written shows.
 * What the GPU does not take is counted and named: nothing is passed over in silence. */
#include "tests/gpu/gpu.h"
#include "tests/harness/op_run.h"

#include "engine/base/half.h"
#include "engine/device/runtime.h"

/* ---- types ---------------------------------------------------------------------------------- */
static bool is_half(enum precision p) {
    return p == PRECISION_BF16 || p == PRECISION_FP16;
}

static uint16_t narrow(enum precision p, float v) {
    return p == PRECISION_BF16 ? narrow_bf16(v) : narrow_f16(v);
}

static float widen(enum precision p, uint16_t h) {
    return p == PRECISION_BF16 ? widen_bf16(h) : widen_f16(h);
}

/* 10 bits of mantissa, to the nearest. */
static float round_tf32(float v) {
    uint32_t u = bits_of(v);
    return float_of((u + 0xfff + (u >> 13 & 1)) & ~(uint32_t)0x1fff);
}

static void round_all(enum precision p, float *v, int64_t n) {
    for (int64_t k = 0; k < n && is_half(p); k++) v[k] = widen(p, narrow(p, v[k]));
    for (int64_t k = 0; k < n && p == PRECISION_TF32; k++) v[k] = round_tf32(v[k]);
}

static bool has_products(enum op_kind kind) {
    return kind == OP_LINEAR || kind == OP_CONV2D || kind == OP_EMBEDDING;
}

/* Whether a tensor has the type of activations, whatever the precision. */
static bool is_activation_in(const struct op_desc *d, int tensor) {
    return (tensor <= X1 && !d->first) || tensor == DY;
}

static bool is_activation_out(int tensor) {
    return tensor <= DX1;
}

/* What the GPU will see, so that plain C sees it too. */
static void round_inputs(struct run *r, const struct op_desc *d) {
    for (int t = 0; t < INPUTS; t++) {
        bool product = d->kind == OP_LINEAR || d->kind == OP_CONV2D;
        bool weights = (t == W0 && has_products(d->kind)) || (t == W1 && product);
        if (is_activation_in(d, t) || weights) round_all(d->precision, r->in[t], r->in_size[t]);
    }
    if (d->kind == OP_LINEAR || d->kind == OP_CONV2D) /* x of data is rounded for the product */
        round_all(d->precision, r->in[X0], r->in_size[X0]);
}

/* ---- layouts -------------------------------------------------------------------------------- */
/* (n, c, h, w) to (n, h, w, c), or back. */
static void turn(int64_t n, const struct shape *s, float *image, bool to_last) {
    int64_t area = s->dim[1] * s->dim[2], channels = s->dim[0], each = channels * area;
    float *copy = memory(n * each * 4);
    memcpy(copy, image, (size_t)(n * each) * 4);
    for (int64_t k = 0; k < n * each; k++) {
        int64_t c = k / area % channels, place = k % area;
        int64_t last = k / each * each + place * channels + c;
        image[to_last ? last : k] = copy[to_last ? k : last];
    }
    memory_free(copy);
}

static void turn_inputs(struct run *r, const struct op_desc *d) {
    for (int t = X0; t <= X1; t++)
        if (d->x_layout == LAYOUT_LAST && r->in_size[t]) turn(d->n, &d->x, r->in[t], true);
    if (d->y_layout == LAYOUT_LAST && r->in_size[DY]) turn(d->n, &d->y, r->in[DY], true);
}

static void turn_outputs(struct run *r, const struct op_desc *d) {
    for (int t = DX0; t <= DX1; t++)
        if (d->x_layout == LAYOUT_LAST && r->out_size[t]) turn(d->n, &d->x, r->out[t], false);
    if (d->y_layout == LAYOUT_LAST && r->out_size[Y]) turn(d->n, &d->y, r->out[Y], false);
}

/* ---- one run on the GPU --------------------------------------------------------------------- */
enum { PIECES = 64 };
struct there { /* the memory of one run */
    struct device *dev;
    void *piece[PIECES];
    int count;
};

static void *there_alloc(struct there *m, int64_t bytes) {
    void *p = NULL, *nan = memory(bytes);
    if (!bytes) {
        memory_free(nan);
        return NULL;
    }
    memset(nan, 0xff, (size_t)bytes);
    assert_true(m->count < PIECES);
    assert_ok(device_alloc(m->dev, (size_t)bytes, &p));
    assert_ok(device_write(m->dev, p, nan, (size_t)bytes));
    assert_ok(device_wait(m->dev));
    memory_free(nan);
    return m->piece[m->count++] = p;
}

static void *there_bytes(struct there *m, const void *from, int64_t bytes) {
    void *p = there_alloc(m, bytes);
    if (p) assert_ok(device_write(m->dev, p, from, (size_t)bytes));
    assert_ok(device_wait(m->dev));
    return p;
}

/* How a tensor lies there: rows of 'width' that are 'pitch' apart, or all of it without gaps. */
struct there_form {
    enum precision p; /* of whose activations it has the type */
    int64_t width, pitch;
};
static const struct there_form plain_f32 = {PRECISION_F32, 1, 1};

static int64_t unit_of(enum precision p) {
    return is_half(p) ? 2 : 4;
}

/* Of x, y and their gradients. */
static struct there_form form_of(const struct shape *s, enum layout l, enum precision p) {
    return (struct there_form){p, shape_last(s), shape_pitch(s, l, unit_of(p))};
}

static int64_t form_bytes(struct there_form f, int64_t n) {
    return n / f.width * f.pitch * unit_of(f.p);
}

/* The n floats of the host; between rows there is NaN. */
static void *there_put(struct there *m, const float *from, int64_t n, struct there_form f) {
    char *low = memory(form_bytes(f, n));
    memset(low, 0xff, (size_t)form_bytes(f, n));
    for (int64_t k = 0; k < n; k++) {
        int64_t at = k / f.width * f.pitch + k % f.width;
        if (is_half(f.p))
            ((uint16_t *)low)[at] = narrow(f.p, from[k]);
        else
            ((float *)low)[at] = from[k];
    }
    void *to = there_bytes(m, low, form_bytes(f, n));
    memory_free(low);
    return to;
}

static void back(struct there *m, float *to, const void *from, int64_t n, struct there_form f) {
    if (n == 0) return;
    char *low = memory(form_bytes(f, n));
    assert_ok(device_read(m->dev, low, from, (size_t)form_bytes(f, n)));
    for (int64_t k = 0; k < n; k++) {
        int64_t at = k / f.width * f.pitch + k % f.width;
        to[k] = is_half(f.p) ? widen(f.p, ((uint16_t *)low)[at]) : ((float *)low)[at];
    }
    memory_free(low);
}

static struct there_form form_in(const struct op_desc *d, int tensor) {
    enum precision p = is_activation_in(d, tensor) ? d->precision : PRECISION_F32;
    if (tensor > X1 && tensor != DY) return plain_f32;
    return tensor == DY || (tensor == X1 && d->joins) ? form_of(&d->y, d->y_layout, p) : form_of(&d->x, d->x_layout, p);
}

static struct there_form form_out(const struct op_desc *d, int tensor) {
    if (!is_activation_out(tensor)) return plain_f32;
    return tensor == Y || (tensor == DX1 && d->joins) ? form_of(&d->y, d->y_layout, d->precision)
                                                      : form_of(&d->x, d->x_layout, d->precision);
}

/* The run's arguments, all in the GPU's memory. */
static struct op_args move_there(struct run *r, const struct op *op, struct there *m, void **out) {
    const struct op_desc *d = &op->desc;
    struct op_args a = args_of(r, there_alloc(m, (int64_t)op->saved_bytes), there_alloc(m, (int64_t)op->scratch_bytes));
    void *in[INPUTS], *low[2];
    for (int t = 0; t < INPUTS; t++) in[t] = there_put(m, r->in[t], r->in_size[t], form_in(d, t));
    for (int i = 0; i < 2; i++)
        low[i] = is_half(d->precision)
                     ? there_put(m, r->in[W0 + i], r->in_size[W0 + i], (struct there_form){d->precision, 1, 1})
                     : NULL;
    for (int t = 0; t < OUTPUTS; t++)
        out[t] = t >= MEAN || (t == DW0 && r->c->add) ? there_bytes(m, r->out[t], r->out_size[t] * 4)
                                                      : there_alloc(m, form_bytes(form_out(d, t), r->out_size[t]));
    a.y = op->y_unread && a.training ? NULL : out[Y];
    a.dy = in[DY];
    for (int i = 0; i < 2; i++) {
        a.x[i] = in[X0 + i], a.w[i] = in[W0 + i], a.w_low[i] = low[i];
        a.dx[i] = out[DX0 + i], a.dw[i] = out[DW0 + i], a.buffer[i] = out[MEAN + i];
    }
    a.ids = there_bytes(m, r->ids, d->n * 8);
    if (a.labels) a.labels = there_bytes(m, r->labels, op_rows(d) * 4);
    if (a.others) a.others = there_bytes(m, r->others, op_rows(d) * 4);
    if (a.shares) a.shares = there_bytes(m, r->shares, d->n * 4);
    if (a.class_weights) a.class_weights = there_bytes(m, r->class_weights, shape_last(&d->x) * 4);
    if (a.target) a.target = in[TARGET];
    a.sums = there_bytes(m, r->sums, sizeof r->sums);
    if (a.top) a.top = a.sums + 2;
    return a;
}

/* replaces: forward of a loss puts the gradient where x was. */
static void run_there(struct run *r, struct op *op, bool replaces) {
    const struct op_desc *d = &op->desc;
    struct there m = {.dev = op->dev};
    void *out[OUTPUTS];
    turn_inputs(r, d);
    for (int64_t k = 0; k < r->out_size[MEAN]; k++) r->out[MEAN][k] = 0.5f, r->out[VAR][k] = 2;
    for (int64_t k = 0; k < r->out_size[DW0] && r->c->add; k++) r->out[DW0][k] = added;
    r->sums[0] = r->sums[1] = r->sums[2] = 1;
    struct op_args a = move_there(r, op, &m, out), forward = a;
    if (replaces) out[DX0] = (void *)(uintptr_t)a.x[0];
    forward.dx[0] = replaces ? out[DX0] : NULL;
    assert_ok(op_forward(op, &forward));
    if (!r->c->eval && !replaces) assert_ok(op_backward(op, &a));
    assert_ok(device_wait(op->dev));
    for (int t = 0; t < OUTPUTS; t++) back(&m, r->out[t], out[t], r->out_size[t], form_out(d, t));
    assert_ok(device_read(op->dev, r->sums, a.sums, sizeof r->sums));
    turn_outputs(r, d);
    for (int i = 0; i < m.count; i++) device_free(op->dev, m.piece[i]);
}

/* ---- the same in plain C -------------------------------------------------------------------- */
static void run_here(struct run *r, struct device *ref, const struct op_desc *like) {
    struct op_desc d = r->c->d;
    struct op *op = NULL;
    d.precision = PRECISION_F32; /* the inputs are rounded already */
    assert_ok(op_create(ref, &d, &op));
    round_inputs(r, like);
    void *saved = memory((int64_t)op->saved_bytes), *scratch = memory((int64_t)op->scratch_bytes);
    for (int64_t k = 0; k < r->out_size[MEAN]; k++) r->out[MEAN][k] = 0.5f, r->out[VAR][k] = 2;
    for (int64_t k = 0; k < r->out_size[DW0] && r->c->add; k++) r->out[DW0][k] = added;
    r->sums[0] = r->sums[1] = r->sums[2] = 1;
    struct op_args a = args_of(r, saved, scratch);
    assert_ok(op_forward(op, &a));
    if (!r->c->eval) assert_ok(op_backward(op, &a));
    memory_free(saved);
    memory_free(scratch);
    op_free(op);
}

/* ---- the comparison ------------------------------------------------------------------------- */
/* The mean squared error, as a part of the mean square. Half types: the result is rounded (2^-9 or 2^-12 of it
 * at most), and so are some values in between. */
static double bound_of(const struct op_desc *d) {
    bool moves = d->kind == OP_REORDER || d->kind == OP_SELECT || d->kind == OP_TOKENS;
    switch (d->precision) {
    case PRECISION_BF16:
        return moves ? 2e-6 : 4e-5;
    case PRECISION_FP16:
        return moves ? 4e-8 : 1e-6;
    case PRECISION_TF32:
        return 1e-6;
    default:
        return moves ? 0 : 2e-11;
    }
}

/* Cross-entropy's y in training is the device's own affair. */
static bool is_compared(const struct op_case *c, int t) {
    return !(t == Y && c->d.kind == OP_CROSS_ENTROPY && !c->eval);
}

static void compare_there(const struct run *got, const struct run *expected, const struct op_desc *d,
                          const char *impl) {
    const struct op_case *c = got->c;
    for (int t = 0; t < OUTPUTS; t++) {
        double e = is_compared(c, t) ? error_of(got->out[t], expected->out[t], got->out_size[t]) : 0;
        if (!(e <= bound_of(d)))
            fail_msg("%s by %s in %s, layouts %d and %d: %s is off by %g", c->name, impl, precision_name(d->precision),
                     (int)d->x_layout, (int)d->y_layout, output_names[t], e);
    }
    double most = is_half(d->precision) ? 1e-3 : 1e-5;
    if (!(fabs(got->sums[0] - expected->sums[0]) <= most * fabs(expected->sums[0])))
        fail_msg("%s by %s in %s: the loss is %g, not %g", c->name, impl, precision_name(d->precision), got->sums[0],
                 expected->sums[0]);
    if (!(fabs(got->sums[1] - expected->sums[1]) <= 1e-12 * fabs(expected->sums[1])))
        fail_msg("%s by %s: %g right answers, not %g", c->name, impl, got->sums[1], expected->sums[1]);
    if (got->sums[2] != expected->sums[2])
        fail_msg("%s by %s: %g labels are in the top, not %g", c->name, impl, got->sums[2], expected->sums[2]);
}

static void check_on(struct device *dev, struct device *ref, const struct op_case *c, const struct op_desc *d) {
    struct op *op = NULL;
    struct run expected, first, again;
    if (op_create(dev, d, &op) != ERR_NONE)
        fail_msg("%s in %s: %s", c->name, precision_name(d->precision), error_message());
    run_init(&expected, c);
    run_here(&expected, ref, d);
    run_init(&first, c);
    run_init(&again, c);
    round_inputs(&first, d);
    round_inputs(&again, d);
    run_there(&first, op, false);
    run_there(&again, op, op->slopes && first.out_size[DX0]);
    compare_there(&first, &expected, d, op->impl->name);
    compare_bits(&first, &again, op->impl->name);
    run_fini(&expected);
    run_fini(&first);
    run_fini(&again);
    op_free(op);
}

static bool layout_fits(const struct op_desc *d, enum layout x, enum layout y) {
    if (x == LAYOUT_LAST && d->x.ndim != 3) return false;
    if (y == LAYOUT_LAST && d->y.ndim != 3) return false;
    if (x == LAYOUT_ALIGNED || y == LAYOUT_ALIGNED) return d->x.ndim != 3 && d->y.ndim != 3;
    if (d->kind == OP_REORDER) return x != y;
    return x == y || d->x.ndim != 3 || d->y.ndim != 3;
}

/* How many variants of the case the GPU takes. */
static int check_variants(struct device *dev, struct device *ref, const struct op_case *c, int *aligned) {
    static const enum layout layouts[] = {LAYOUT_PLAIN, LAYOUT_LAST, LAYOUT_ALIGNED};
    int taken = 0;
    for (int v = 0; v < 9 * (int)(PRECISION_TF32 + 1); v++) {
        struct op_desc d = c->d;
        d.precision = (enum precision)(v / 9);
        d.x_layout = layouts[v % 3], d.y_layout = layouts[v / 3 % 3];
        if (!layout_fits(&d, d.x_layout, d.y_layout) || !op_takes(dev, &d)) continue;
        if (getenv("ENGINE_EMULATED_JITTER") && v / 9 > PRECISION_BF16)
            continue; /* what comes late is not seen by its type */
        check_on(dev, ref, c, &d);
        taken++;
        *aligned += d.x_layout == LAYOUT_ALIGNED || d.y_layout == LAYOUT_ALIGNED;
    }
    return taken;
}

/* What no GPU needs to take: the graph has fused ones as ops of their own. */
static bool may_refuse(const struct op_desc *d) {
    bool fused = d->act != ACT_NONE && d->kind != OP_ACTIVATION;
    return fused || (d->kind == OP_CONV2D && d->conv.maxpool);
}

static void every_op_agrees_with_plain_c(void **state) {
    struct device *dev = gpu_open(0), *ref = open_device("ref", 1);
    int missing = 0, taken = 0, aligned = 0;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const char *only = getenv("ENGINE_TEST_CASE");
        if (only && strncmp(cases[i].name, only, strlen(only)) != 0) continue;
        int variants = check_variants(dev, ref, &cases[i], &aligned);
        taken += variants;
        if (variants || may_refuse(&cases[i].d)) continue;
        print_error("%s: the GPU takes it in no precision\n", cases[i].name);
        missing++;
    }
    print_message("%d variants of %d cases, %d of them with aligned rows\n", taken, CASES, aligned);
    ref->ops->close(ref);
    dev->ops->close(dev);
    assert_int_equal(missing, 0);
    assert_true(aligned > 0 || getenv("ENGINE_TEST_CASE"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_agrees_with_plain_c),
    };
    return gpu_run_tests(tests);
}
