#include "engine/device/cpu/kernels.h"
#include "engine/base/vector.h"

#include <math.h>

VECTORISED void kernel_bias_act(int64_t rows, int64_t cols, const float *bias, enum activation act,
                                float *y) {
    for (int64_t i = 0; i < rows && bias; i++)
        for (int64_t j = 0; j < cols; j++) y[i * cols + j] += bias[j];
    for (int64_t k = 0; k < rows * cols && act == ACT_RELU; k++) y[k] = 0 > y[k] ? 0 : y[k];
}

VECTORISED void kernel_relu(int64_t n, const float *x, float *y) {
    for (int64_t k = 0; k < n; k++) y[k] = 0 > x[k] ? 0 : x[k];
}

VECTORISED void kernel_relu_backward(int64_t n, const float *y, const float *dy, float *dx) {
    for (int64_t k = 0; k < n; k++) dx[k] = y[k] > 0 ? dy[k] : 0;
}

VECTORISED void kernel_add(int64_t n, const float *x0, const float *x1, enum activation act,
                           float *y) {
    float least = act == ACT_RELU ? 0 : -INFINITY;
    for (int64_t k = 0; k < n; k++) {
        float v = x0[k] + x1[k];
        y[k] = least > v ? least : v;
    }
}

/* A strip of columns is summed in registers, so that sums are written once. */
VECTORISED void kernel_column_sums(int64_t rows, int64_t cols, const float *x, int64_t ld,
                                   float *sums) {
    enum { STRIP = 64 };
    for (int64_t j0 = 0; j0 < cols; j0 += STRIP) {
        int64_t width = cols - j0 < STRIP ? cols - j0 : STRIP;
        float sum[STRIP] = {0};
        for (int64_t i = 0; i < rows; i++) {
            const float *row = x + i * ld + j0;
            if (width == STRIP)
                for (int64_t j = 0; j < STRIP; j++) sum[j] += row[j];
            else
                for (int64_t j = 0; j < width; j++) sum[j] += row[j];
        }
        for (int64_t j = 0; j < width; j++) sums[j0 + j] = sum[j];
    }
}
