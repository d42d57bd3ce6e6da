/* Loops that the compiler vectorises. */
#include "engine/device/cpu/kernels.h"

#include <math.h>
#include <string.h>

void kernel_add(int64_t n, const float *x0, const float *x1, enum activation act, float *y) {
    float least = act == ACT_RELU ? 0 : -INFINITY;
    for (int64_t k = 0; k < n; k++) {
        float v = x0[k] + x1[k];
        y[k] = least > v ? least : v;
    }
}

/* A strip of columns is summed in registers, so that sums are written once. */
void kernel_column_sums(int64_t rows, int64_t cols, const float *x, int64_t ld, float *sums) {
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

enum { GROUPS = 16 }; /* counters that are drawn from side by side */

/* rng_words of the counters (id, first + lane), with a lane for each vector element. */
static inline __attribute__((always_inline)) void words_of_groups(struct rng_key key, uint64_t id, uint64_t first,
                                                                  uint32_t words[4][GROUPS]) {
    for (int lane = 0; lane < GROUPS; lane++) {
        uint32_t w[4];
        rng_words(key, id, first + (uint64_t)lane, w);
        for (int k = 0; k < 4; k++) words[k][lane] = w[k];
    }
}

void kernel_dropout_mask(struct rng_key key, uint64_t id, uint64_t base, float p, int64_t n, uint8_t *mask) {
    for (int64_t e0 = 0; e0 < n; e0 += 4 * GROUPS) {
        uint32_t words[4][GROUPS];
        uint8_t stay[4 * GROUPS];
        words_of_groups(key, id, base | (uint64_t)(e0 / 4), words);
        for (int lane = 0; lane < GROUPS; lane++)
            for (int k = 0; k < 4; k++) stay[4 * lane + k] = rng_unit(words[k][lane]) >= p;
        memcpy(mask + e0, stay, (size_t)(n - e0 < 4 * GROUPS ? n - e0 : 4 * GROUPS));
    }
}

void kernel_mask_scale(int64_t n, const uint8_t *mask, float scale, const float *x, float *y) {
    for (int64_t k = 0; k < n; k++) {
        float v = x[k] * scale;
        y[k] = mask[k] ? v : 0;
    }
}
