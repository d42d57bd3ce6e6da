/* What the machine can do at most, measured: the yardstick beside which layers are shown. */
#include "cli/bench/layers.h"

#include "engine/base/clock.h"
#include "engine/device/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* ---- multiply-adds in registers ---- */

/* Enough sums at once to hide the latency of each; what they end as is given, so that they are
 * computed. Each of 'rounds' is FMA_CHAINS multiply-adds of the level's width. */
enum { FMA_CHAINS = 12 };
typedef float (*fma_fn)(long rounds);

/* The loop of one width of vectors: sum * x + y in each chain by 'fma', whose instructions the attribute allows. */
#define FMA_LOOP(name, attribute, vector, fma)                                                                         \
    attribute static float name(long rounds) {                                                                         \
        vector sum[FMA_CHAINS], x = (vector){0} + 0.999f, y = (vector){0} + 0.001f;                                    \
        float part[sizeof(vector) / sizeof(float)], all = 0;                                                           \
        for (int i = 0; i < FMA_CHAINS; i++) sum[i] = y + (float)i;                                                    \
        for (long k = 0; k < rounds; k++)                                                                              \
            _Pragma("GCC unroll 12") for (int i = 0; i < FMA_CHAINS; i++) sum[i] = fma(sum[i], x, y);                  \
        for (int i = 0; i < FMA_CHAINS; i++) {                                                                         \
            memcpy(part, &sum[i], sizeof part);                                                                        \
            for (size_t k = 0; k < sizeof part / sizeof *part; k++) all += part[k];                                    \
        }                                                                                                              \
        return all;                                                                                                    \
    }

#if defined(__x86_64__)
FMA_LOOP(fma_512, __attribute__((target("avx512f"))), __m512, _mm512_fmadd_ps)
FMA_LOOP(fma_256, __attribute__((target("avx2,fma"))), __m256, _mm256_fmadd_ps)
#endif

/* Any machine: vectors of four, multiplied and added, in one instruction where all of its kind have it. */
typedef float vector4 __attribute__((vector_size(16)));
static inline vector4 peak_fma_of(vector4 sum, vector4 x, vector4 y) {
#if defined(__aarch64__)
    return (vector4)vfmaq_f32((float32x4_t)y, (float32x4_t)sum, (float32x4_t)x);
#else
    return sum * x + y;
#endif
}
FMA_LOOP(fma_plain, , vector4, peak_fma_of)

static fma_fn peak_choose_fma(int *lanes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return *lanes = 16, fma_512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return *lanes = 8, fma_256;
#endif
    return *lanes = 4, fma_plain;
}

double peak_fma(void) {
    enum { TRIES = 9 };
    const long rounds = 400000;
    int lanes;
    volatile float sink;
    fma_fn fma_loop = peak_choose_fma(&lanes);
    double best = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        int64_t mark = clock_thread_ns();
        sink = fma_loop(rounds);
        best = fmin(best, clock_seconds(clock_thread_ns() - mark));
    }
    (void)sink;
    return 2.0 * (double)rounds * FMA_CHAINS * lanes / best;
}

/* ---- a large product ---- */

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
