/* What the machine can do at most, measured: the yardstick beside which layers are shown. */
#include "cli/bench_layers.h"

#include "engine/base/clock.h"

#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- multiply-adds in registers ---- */

/* Enough sums at once to hide the latency of each; what they end as is given, so that they are
 * computed. Each of 'rounds' is FMA_CHAINS multiply-adds of the level's width. */
enum { FMA_CHAINS = 12 };
typedef float (*fma_fn)(long rounds);

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float fma_512(long rounds) {
    __m512 sum[FMA_CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int i = 0; i < FMA_CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (long k = 0; k < rounds; k++)
#pragma GCC unroll 12
        for (int i = 0; i < FMA_CHAINS; i++) sum[i] = _mm512_fmadd_ps(sum[i], x, y);
    float all = 0;
    for (int i = 0; i < FMA_CHAINS; i++) all += _mm512_reduce_add_ps(sum[i]);
    return all;
}

__attribute__((target("avx2,fma"))) static float fma_256(long rounds) {
    __m256 sum[FMA_CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    for (int i = 0; i < FMA_CHAINS; i++) sum[i] = _mm256_set1_ps((float)i);
    for (long k = 0; k < rounds; k++)
#pragma GCC unroll 12
        for (int i = 0; i < FMA_CHAINS; i++) sum[i] = _mm256_fmadd_ps(sum[i], x, y);
    float all = 0, part[8];
    for (int i = 0; i < FMA_CHAINS; i++) {
        _mm256_storeu_ps(part, sum[i]);
        for (int k = 0; k < 8; k++) all += part[k];
    }
    return all;
}
#endif

/* Any machine: vectors of four, multiplied and added. */
static float fma_plain(long rounds) {
    typedef float vector __attribute__((vector_size(16)));
    vector sum[FMA_CHAINS], x = {0.999f, 0.999f, 0.999f, 0.999f},
                            y = {0.001f, 0.001f, 0.001f, 0.001f};
    for (int i = 0; i < FMA_CHAINS; i++) sum[i] = y;
    for (long k = 0; k < rounds; k++)
#pragma GCC unroll 12
        for (int i = 0; i < FMA_CHAINS; i++) sum[i] = sum[i] * x + y;
    float all = 0;
    for (int i = 0; i < FMA_CHAINS; i++)
        for (int k = 0; k < 4; k++) all += sum[i][k];
    return all;
}

static fma_fn choose_fma(int *lanes) {
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
    fma_fn fma_loop = choose_fma(&lanes);
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

enum { SIDE = 1024, GEMM_TRIES = 8 };

static enum error time_gemm(struct op *op, float *memory, int64_t (*now)(void), double *best) {
    const int64_t square = (int64_t)SIDE * SIDE;
    void *scratch, *saved;
    TRY(memory_alloc(op->scratch_bytes, &scratch));
    enum error err = memory_alloc(op->saved_bytes, &saved);
    struct op_args a = {.x = {memory},
                        .w = {memory + square},
                        .y = memory + 2 * square,
                        .scratch = scratch,
                        .saved = saved};
    int64_t end = clock_ns() + 500000000; /* plain C takes seconds */
    for (int i = 0; i < GEMM_TRIES && err == ERR_NONE && (!i || clock_ns() < end); i++) {
        int64_t mark = now();
        err = op_forward(op, &a);
        *best = fmin(*best, clock_seconds(now() - mark));
    }
    memory_free(saved);
    memory_free(scratch);
    return err;
}

enum error peak_gemm(struct device *dev, enum precision precision, int64_t (*now)(void),
                     double *out) {
    const struct shape row = {1, {SIDE}};
    struct op_desc d = {
        .kind = OP_LINEAR, .n = SIDE, .x = row, .y = row, .precision = precision, .first = true};
    struct op *op;
    void *memory;
    double best = INFINITY;
    TRY(op_create(dev, &d, &op));
    enum error err = memory_alloc(3 * sizeof(float) * SIDE * SIDE, &memory);
    if (err == ERR_NONE) {
        float *x = memory;
        for (int64_t i = 0; i < 2 * (int64_t)SIDE * SIDE; i++) x[i] = (float)(i % 17) / 16 - 0.5f;
        err = time_gemm(op, x, now, &best);
        memory_free(memory);
    }
    op_free(op);
    *out = 2.0 * SIDE * SIDE * SIDE / best;
    return err;
}
