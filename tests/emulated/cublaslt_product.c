/* Products by columns: a column of d is a sum of columns of a. */
#include "tests/emulated/cublaslt_product.h"

#include "engine/base/half.h"
#include "tests/emulated/emulated.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 512, COLUMNS = 4 }; /* of a piece of d */

static float element(cudaDataType_t type, const void *from, int64_t at) {
    if (type == CUDA_R_32F) return ((const float *)from)[at];
    uint16_t half = ((const uint16_t *)from)[at];
    return type == CUDA_R_16BF ? widen_bf16(half) : widen_f16(half);
}

static void touch(cudaDataType_t type, const void *p, int64_t at, bool writes) {
    size_t unit = type == CUDA_R_32F ? 4 : 2;
    emulated_touch((const char *)p + (size_t)at * unit, unit, writes);
}

static void put(cudaDataType_t type, void *to, int64_t at, float v) {
    touch(type, to, at, true);
    if (type == CUDA_R_32F)
        ((float *)to)[at] = v;
    else
        ((uint16_t *)to)[at] = type == CUDA_R_16BF ? narrow_bf16(v) : narrow_f16(v);
}

/* 10 bits of mantissa, to the nearest. */
static float round_tf32(float v) {
    uint32_t u = bits_of(v);
    return isfinite(v) ? float_of((u + 0xfff + (u >> 13 & 1)) & ~(uint32_t)0x1fff) : v;
}

/* The factor as f32, (rows, cols) by columns and without gaps, as the product reads it. */
static float *factor(const struct product_job *p, const struct matrix *m, const void *from, bool turned, int batch) {
    int64_t rows = turned ? m->cols : m->rows, cols = turned ? m->rows : m->cols, first = batch * m->apart;
    float *to = malloc((size_t)(rows * cols) * sizeof *to);
    for (int64_t j = 0; j < cols && to; j++)
        for (int64_t i = 0; i < rows; i++) {
            int64_t at = first + (turned ? i * m->ld + j : j * m->ld + i);
            float v = element(m->type, from, at);
            touch(m->type, from, at, false);
            to[j * rows + i] = p->tf32 ? round_tf32(v) : v;
        }
    return to;
}

/* As a GPU's instruction gives it: the first 11 bits are right. */
static float tanh_approximate(float x) {
    return float_of(bits_of(tanhf(x)) & ~(uint32_t)0x1fff);
}

/* What happens to a sum on its way out. */
static void finish(const struct product_job *p, int64_t first, int64_t i, int64_t j, float sum) {
    const struct matrix *d = &p->d;
    int64_t at = first + j * d->ld + i;
    float v = p->alpha * sum;
    if (p->beta != 0) {
        touch(d->type, p->from_c, at, false);
        v += p->beta * element(d->type, p->from_c, at);
    }
    if (p->epilogue & CUBLASLT_EPILOGUE_BIAS) v += element(d->type, p->bias, i);
    if (p->epilogue & 128) put(d->type, p->aux, j * p->aux_ld + i, v);
    if (p->epilogue & CUBLASLT_EPILOGUE_RELU) v = v < 0 ? 0 : v;
    if (p->epilogue & CUBLASLT_EPILOGUE_GELU)
        v = 0.5f * v * (1 + tanh_approximate(0.7978845608028654f * (v + 0.044715f * v * v * v)));
    put(d->type, p->to, at, v);
}

/* A piece of d, of 'rows' by 'cols'. */
static void piece(const struct product_job *p, const float *a, const float *b, int64_t first, int64_t row, int64_t rows,
                  int64_t col, int64_t cols) {
    float sum[COLUMNS][ROWS];
    int64_t m = p->d.rows;
    memset(sum, 0, sizeof sum);
    for (int64_t l = 0; l < p->k; l++)
        for (int64_t j = 0; j < cols; j++) {
            float by = b[(col + j) * p->k + l];
            const float *from = a + l * m + row;
            for (int64_t i = 0; i < rows; i++) sum[j][i] += from[i] * by;
        }
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++) finish(p, first, row + i, col + j, sum[j][i]);
}

/* The sums over k: n of them, each of 'k' elements that lie 'apart'. */
static void sum_factor(const struct product_job *p, const float *from, int64_t n, int64_t each, int64_t apart) {
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int64_t l = 0; l < p->k; l++) sum += from[i * each + l * apart];
        put(p->d.type, p->bias, i, sum);
    }
}

static void product(const struct product_job *p, int batch) {
    float *a = factor(p, &p->a, p->from_a, p->a_turned, batch);
    float *b = factor(p, &p->b, p->from_b, p->b_turned, batch);
    int64_t m = p->d.rows, n = p->d.cols;
    if (!a || !b) abort();
    for (int64_t row = 0; row < m; row += ROWS)
        for (int64_t col = 0; col < n; col += COLUMNS)
            piece(p, a, b, batch * p->d.apart, row, m - row < ROWS ? m - row : ROWS, col,
                  n - col < COLUMNS ? n - col : COLUMNS);
    if (p->epilogue == CUBLASLT_EPILOGUE_BGRADA) sum_factor(p, a, m, 1, m);
    if (p->epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_factor(p, b, n, p->k, 1);
    free(a);
    free(b);
}

void product_run(void *job) {
    const struct product_job *p = job;
    emulated_hang("a product");
    for (int batch = 0; batch < p->d.batch; batch++) product(p, batch);
}
