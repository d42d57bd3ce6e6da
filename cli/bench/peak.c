/* The yardstick beside which layers are shown: the rate of a large product of matrices on the device. */
#include "cli/bench/layers.h"

#include "engine/base/clock.h"
#include "engine/device/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 1024, SIDE_APART = 4096, GEMM_TRIES = 8 };

int peak_side(const struct device *dev) {
    return device_runtime(dev)->apart ? SIDE_APART : SIDE;
}

struct product { /* its factors and the rest, in the device's memory */
    struct device *dev;
    struct op *op;
    int64_t side;
    void *f32, *low, *scratch, *saved; /* x, w, y; w and x as activations are */
    struct op_args a;
};

static enum error product_fill(struct product *p, enum precision precision) {
    int64_t square = p->side * p->side;
    float *x = malloc((size_t)square * 2 * sizeof *x);
    if (!x) return FAIL(ERR_MEMORY, "no memory for a product of %lld", (long long)p->side);
    for (int64_t i = 0; i < 2 * square; i++) x[i] = (float)(i % 17) / 16 - 0.5f;
    enum error err = device_write(p->dev, p->f32, x, (size_t)square * 2 * sizeof *x);
    if (err == ERR_NONE && p->a.w_low[0])
        err = device_runtime(p->dev)->lower(p->dev, LANE_COMPUTE, p->low, p->f32, 2 * square, precision);
    if (err == ERR_NONE) err = device_wait(p->dev);
    free(x);
    return err;
}

static enum error product_open(struct product *p, enum precision precision) {
    int64_t square = p->side * p->side;
    size_t unit = device_unit(p->dev, precision), bytes = (size_t)square * sizeof(float);
    TRY(device_alloc(p->dev, 3 * bytes, &p->f32));
    bool lowered = device_runtime(p->dev)->apart;
    TRY(device_alloc(p->dev, lowered ? 2 * (size_t)square * unit : 1, &p->low));
    TRY(device_alloc(p->dev, p->op->scratch_bytes, &p->scratch));
    TRY(device_alloc(p->dev, p->op->saved_bytes, &p->saved));
    float *f32 = p->f32;
    char *low = p->low;
    p->a = (struct op_args){
        .x = {f32}, .w = {f32 + square}, .y = f32 + 2 * square, .scratch = p->scratch, .saved = p->saved};
    if (lowered) p->a.x[0] = p->low, p->a.w_low[0] = low + (size_t)square * unit;
    return product_fill(p, precision);
}

static void product_close(struct product *p) {
    device_free(p->dev, p->f32);
    device_free(p->dev, p->low);
    device_free(p->dev, p->scratch);
    device_free(p->dev, p->saved);
    op_free(p->op);
}

static enum error product_time(struct product *p, int64_t (*now)(void), double *best) {
    int64_t end = clock_ns() + 500000000; /* plain C takes seconds */
    for (int i = 0; i < GEMM_TRIES && (!i || clock_ns() < end); i++) {
        int64_t mark = now();
        TRY(op_forward(p->op, &p->a));
        TRY(device_wait(p->dev));
        *best = fmin(*best, clock_seconds(now() - mark));
    }
    return ERR_NONE;
}

enum error peak_gemm(struct device *dev, enum precision precision, int64_t (*now)(void), double *out) {
    struct product p = {.dev = dev, .side = peak_side(dev)};
    const struct shape row = {1, {p.side}};
    struct op_desc d = {.kind = OP_LINEAR,
                        .n = p.side,
                        .x = row,
                        .y = row,
                        .precision = precision,
                        .first = !device_runtime(dev)->apart};
    double best = INFINITY, side = (double)p.side;
    TRY(op_create(dev, &d, &p.op));
    enum error err = product_open(&p, precision);
    if (err == ERR_NONE) err = product_time(&p, now, &best);
    product_close(&p);
    *out = 2.0 * side * side * side / best;
    return err;
}
