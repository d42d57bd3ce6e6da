#include "engine/base/rng.h"

#include "engine/base/real.h"

#include <math.h>

float rng_normal(struct rng_key key, uint64_t a, uint64_t b) {
    uint32_t w[4];
    rng_words(key, a, b, w);
    double u = ((double)w[0] + 1.0) * 0x1p-32, v = (double)w[1] * 0x1p-32;
    return (float)(sqrt(-2.0 * real_log(u)) * real_cos(6.283185307179586 * v));
}

/* Student's t with 2 alpha degrees of freedom by Bailey's polar method, t^2 / (2 alpha) = (u^(-1 / alpha) - 1) cos^2, and
 * from it the symmetric beta: 1/2 + t / (2 sqrt(2 alpha + t^2)). Nothing is rejected. */
double rng_beta(struct rng_key key, uint64_t a, uint64_t b, double alpha) {
    uint32_t w[4];
    rng_words(key, a, b, w);
    double u = ((double)(((uint64_t)w[1] << 32 | w[0]) >> 11) + 1) * 0x1p-53;
    double v = (double)(((uint64_t)w[3] << 32 | w[2]) >> 11) * 0x1p-53;
    double c = real_cos(6.283185307179586 * v), size = (real_pow(u, -1 / alpha) - 1) * c * c;
    double off = size > 0 ? 0.5 * sqrt(1 / (1 + 1 / size)) : 0;
    return c < 0 ? 0.5 - off : 0.5 + off;
}

void rng_permutation(struct rng_key key, uint64_t epoch, int64_t n, int64_t *out) {
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)rng_below(key, (uint64_t)i, epoch, (uint64_t)i + 1), t = out[i];
        out[i] = out[j];
        out[j] = t;
    }
}
