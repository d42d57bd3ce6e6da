/* conv_direct at every level of instructions that this machine has: how far it is from doubles at the sizes of the model
 * zoo's layers, and that neither threads nor, in f32, levels with fused multiply-adds change a bit. */
#include "engine/device/bf16.h"
#include "tests/harness/levels.h"
#include "tests/harness/op_run.h"

/* ---- layers: images of whole blocks are blocked ---------------------------------------------- */
#define LAYER(samples, xs, ys, win, g, xl, ...)                                                                        \
    {                                                                                                                  \
        .name = #xs " " #ys " " #win, .d = {                                                                           \
            .kind = OP_CONV2D,                                                                                         \
            .n = samples,                                                                                              \
            .x = xs,                                                                                                   \
            .y = ys,                                                                                                   \
            .x_layout = xl,                                                                                            \
            .y_layout = LAYOUT_BLOCKED,                                                                                \
            .conv = {.window = win, .groups = g, .bias = true},                                                        \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
static const struct op_case layers[] = {
    LAYER(8, CHW(64, 32, 32), CHW(128, 16, 16), SQUARE(3, 2, 1), 1, LAYOUT_BLOCKED, RELU),
    LAYER(8, CHW(256, 8, 8), CHW(512, 4, 4), SQUARE(3, 2, 1), 1, LAYOUT_BLOCKED, ),
    LAYER(8, CHW(64, 32, 32), CHW(128, 16, 16), SQUARE(1, 2, 0), 1, LAYOUT_BLOCKED, ),
    LAYER(2, CHW(256, 28, 28), CHW(80, 28, 28), SQUARE(1, 1, 0), 1, LAYOUT_BLOCKED, RELU),
    LAYER(2, CHW(3, 64, 64), CHW(64, 32, 32), SQUARE(7, 2, 3), 1, LAYOUT_PLAIN, FIRST),
    LAYER(4, CHW(3, 32, 32), CHW(192, 8, 8), SQUARE(4, 4, 0), 1, LAYOUT_PLAIN, FIRST),
    LAYER(3, CHW(64, 14, 13), CHW(96, 5, 5), SQUARE(5, 3, 2), 2, LAYOUT_BLOCKED, ),
    LAYER(3, CHW(48, 20, 21), CHW(48, 20, 21), SQUARE(3, 1, 1), 48, LAYOUT_BLOCKED, ),
    /* counts of samples and channels that make no pairs, too */
    LAYER(5, CHW(64, 17, 16), CHW(80, 9, 8), SQUARE(3, 2, 1), 1, LAYOUT_BLOCKED, RELU, BF16),
    LAYER(4, CHW(256, 14, 14), CHW(48, 14, 14), SQUARE(1, 1, 0), 1, LAYOUT_BLOCKED, BF16),
    LAYER(1, CHW(64, 16, 16), CHW(128, 8, 8), SQUARE(1, 2, 0), 1, LAYOUT_BLOCKED, BF16),
    LAYER(3, CHW(3, 32, 32), CHW(64, 16, 16), SQUARE(7, 2, 3), 1, LAYOUT_PLAIN, FIRST, BF16),
    LAYER(2, CHW(3, 32, 32), CHW(48, 8, 8), SQUARE(4, 4, 0), 1, LAYOUT_PLAIN, FIRST, BF16),
    LAYER(3, CHW(64, 14, 13), CHW(96, 5, 5), SQUARE(5, 3, 2), 2, LAYOUT_BLOCKED, BF16),
    LAYER(3, CHW(48, 10, 11), CHW(48, 10, 11), SQUARE(3, 1, 1), 48, LAYOUT_BLOCKED, BF16),
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* Inputs as ReLU leaves them; layouts have no bearing on random numbers. */
static void layer_run(struct run *r, const struct op_case *c, const struct cpu_level *level, int threads) {
    struct device *dev = open_at(level, threads);
    struct op *op = NULL;
    run_init(r, c);
    for (int64_t k = 0; k < r->in_size[X0]; k++) r->in[X0][k] = fmaxf(r->in[X0][k], 0);
    assert_ok(op_make(impl_at(level, OP_CONV2D, "direct"), dev, &c->d, &op));
    void *saved = memory((int64_t)op->saved_bytes), *scratch = memory((int64_t)op->scratch_bytes);
    memset(scratch, 0xff, op->scratch_bytes);
    struct op_args a = args_of(r, saved, scratch);
    assert_ok(op_forward(op, &a));
    assert_ok(op_backward(op, &a));
    memory_free(saved);
    memory_free(scratch);
    op_free(op);
    dev->ops->close(dev);
}

/* ---- the same in doubles ---------------------------------------------------------------------- */
static int64_t at(const struct shape *s, enum layout layout, int64_t n, int64_t c, int64_t y, int64_t x) {
    int64_t area = s->dim[1] * s->dim[2], place = y * s->dim[2] + x;
    if (layout == LAYOUT_PLAIN) return (n * s->dim[0] + c) * area + place;
    return ((n * s->dim[0] + c) / LAYOUT_BLOCK * area + place) * LAYOUT_BLOCK + c % LAYOUT_BLOCK;
}

struct exact { /* sums, in doubles */
    double *y, *dx, *dw;
};

/* A factor as products take it. */
static double factor(const struct op_desc *d, float value) {
    return d->precision == PRECISION_BF16 ? (double)bf16_round(value) : (double)value;
}

/* Adds the products of one output. */
static void output_add(const struct run *r, struct exact *e, int64_t n, int64_t o, int64_t oy, int64_t ox) {
    const struct op_desc *d = &r->c->d;
    const struct window *w = &d->conv.window;
    int64_t in = d->x.dim[0] / d->conv.groups, first = o / (d->y.dim[0] / d->conv.groups) * in;
    int64_t to = at(&d->y, d->y_layout, n, o, oy, ox);
    double dz = d->act == ACT_RELU && !(r->out[Y][to] > 0) ? 0 : factor(d, r->in[DY][to]);
    e->y[to] = (double)r->in[W1][o];
    for (int64_t c = 0; c < in; c++)
        for (int ky = 0; ky < w->kernel[0]; ky++)
            for (int kx = 0; kx < w->kernel[1]; kx++) {
                int64_t y = oy * w->stride[0] + ky - w->pad[0], x = ox * w->stride[1] + kx - w->pad[1];
                if (y < 0 || x < 0 || y >= d->x.dim[1] || x >= d->x.dim[2]) continue;
                int64_t from = at(&d->x, d->x_layout, n, first + c, y, x);
                int64_t weight = ((o * in + c) * w->kernel[0] + ky) * w->kernel[1] + kx;
                double pixel = factor(d, r->in[X0][from]), tap = factor(d, r->in[W0][weight]);
                e->y[to] += pixel * tap;
                e->dx[from] += dz * tap;
                e->dw[weight] += dz * pixel;
            }
    if (d->act == ACT_RELU) e->y[to] = fmax(e->y[to], 0);
}

/* The r.m.s. error, as a part of the r.m.s. */
static double error_in(const float *got, const double *exact, int64_t n) {
    double off = 0, all = 0;
    for (int64_t k = 0; k < n; k++) {
        off += pow((double)got[k] - exact[k], 2);
        all += exact[k] * exact[k];
    }
    return n ? sqrt(off / all) : 0;
}

static void exact_of(const struct run *r, struct exact *e) {
    const struct op_desc *d = &r->c->d;
    *e = (struct exact){memory(r->out_size[Y] * 8), memory(op_xs(d) * 8), memory(r->out_size[DW0] * 8)};
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t o = 0; o < d->y.dim[0]; o++)
            for (int64_t y = 0; y < d->y.dim[1]; y++)
                for (int64_t x = 0; x < d->y.dim[2]; x++) output_add(r, e, n, o, y, x);
}

/* One chain of multiply-adds over as many terms would be off by up to 2e-6. */
static void check_errors(const struct op_case *c, const struct cpu_level *level) {
    const double most = 6e-7;
    struct run r;
    struct exact e;
    layer_run(&r, c, level, 1);
    exact_of(&r, &e);
    double y = error_in(r.out[Y], e.y, r.out_size[Y]), dx = error_in(r.out[DX0], e.dx, r.out_size[DX0]);
    double dw = error_in(r.out[DW0], e.dw, r.out_size[DW0]);
    print_message("%s, %s: off by %.1e in y, %.1e in dx, %.1e in dw\n", level->name, c->name, y, dx, dw);
    assert_true(y < most && dx < most && dw < most);
    memory_free(e.y);
    memory_free(e.dx);
    memory_free(e.dw);
    run_fini(&r);
}

static void errors_are_those_of_short_chains(void **state) {
    (void)state;
    int count;
    const struct cpu_level *const *levels = cpu_levels(&count);
    for (int i = 0; i < LAYERS; i++) {
        bool bf16 = layers[i].d.precision == PRECISION_BF16; /* whose kernels are not the same at all levels */
        for (int level = 0; level < (bf16 ? count : 1); level++) check_errors(&layers[i], levels[level]);
    }
}

/* ---- the same bits ---------------------------------------------------------------------------- */
static void check_bits(const struct op_case *c, const struct cpu_level *level, int threads, const char *what) {
    int count;
    struct run a, b;
    layer_run(&a, c, cpu_levels(&count)[0], 1);
    layer_run(&b, c, level, threads);
    compare_bits(&a, &b, what);
    run_fini(&a);
    run_fini(&b);
}

static void levels_give_the_same_bits(void **state) {
    (void)state;
    int all, fused = levels_fused();
    const struct cpu_level *const *levels = cpu_levels(&all);
    for (int level = 1; level < fused; level++)
        for (int i = 0; i < LAYERS && layers[i].d.precision == PRECISION_F32; i++)
            check_bits(&layers[i], levels[level], 1, levels[level]->name);
}

static void threads_give_the_same_bits(void **state) {
    (void)state;
    int count;
    const struct cpu_level *const *levels = cpu_levels(&count);
    for (int i = 0; i < LAYERS; i++) check_bits(&layers[i], levels[0], 3, "1 and 3 threads");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_those_of_short_chains),
        cmocka_unit_test(levels_give_the_same_bits),
        cmocka_unit_test(threads_give_the_same_bits),
    };
    return cmocka_run_group_tests_name("convolutions", tests, NULL, NULL);
}
