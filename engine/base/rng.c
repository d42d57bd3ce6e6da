#include "engine/base/rng.h"

#include "engine/base/real.h"
#include "engine/base/vector.h"

#include <math.h>

float rng_normal(struct rng_key key, uint64_t a, uint64_t b) {
    uint32_t w[4];
    rng_words(key, a, b, w);
    double u = ((double)w[0] + 1.0) * 0x1p-32, v = (double)w[1] * 0x1p-32;
    return (float)(sqrt(-2.0 * real_log(u)) * real_cos(6.283185307179586 * v));
}

/* ---- many normals ---- */

/* Nearly every normal is known from an approximation in doubles, within 2^-48 of what rng_normal computes: where all
 * within 2^-44 of it are one float, rng_normal gives that float, too. It is asked for the others, two in a million. The
 * approximation has no branch, so that a processor computes several at once. */
enum { NORMALS = 32 };

/* The logarithm of x in (0, 1]: x is 2^k m with m next to 1, and ln m = 2 (s + s^3 / 3 + ...) of s = (m - 1) / (m + 1). */
static inline double normal_log(double x) {
    const uint64_t root_half = 0x3fe6a09e667f3bcd, exponent = UINT64_C(0xfff) << 52;
    uint64_t power = (real_bits(x) - root_half) & exponent; /* k, where an exponent lies */
    double k = real_of_bits((power + (UINT64_C(1) << 63)) >> 52 | UINT64_C(0x433) << 52) - (0x1p52 + 2048);
    double m = real_of_bits(real_bits(x) - power), s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int n = 19; n > 0; n -= 2) sum = 1.0 / n + z * sum;
    return k * 0.6931471805599453 + 2 * s * sum;
}

/* The cosine of x in [0, 7), which is some quarters of a turn and r. */
static inline double normal_cos(double x) {
    double moved = x * 0.6366197723675814 + 0x1.8p52, quarters = moved - 0x1.8p52;
    double r = x - quarters * 0x1.921fb544p0 - quarters * 0x1.0b4611a626331p-34, z = r * r, sine = 1, cosine = 1;
    for (int n = 16; n > 0; n -= 2) {
        sine = 1 - z * (1.0 / (n * (n + 1))) * sine;
        cosine = 1 - z * (1.0 / (n * (n - 1))) * cosine;
    }
    uint64_t turned = real_bits(moved), across = -(turned & 1);
    return real_of_bits(((real_bits(r * sine) & across) | (real_bits(cosine) & ~across)) ^ ((turned + 1) & 2) << 62);
}

/* Those of the counters from (a, b) on lie between low and high. */
VECTORISED static void normals_bound(struct rng_key key, uint64_t a, uint64_t b, float *low, float *high) {
    double u[NORMALS], v[NORMALS];
    for (int i = 0; i < NORMALS; i++) {
        uint32_t w[4];
        rng_words(key, a, b + (uint64_t)i, w);
        u[i] = ((double)w[0] + 1.0) * 0x1p-32, v[i] = (double)w[1] * 0x1p-32;
    }
    for (int i = 0; i < NORMALS; i++) {
        double x = sqrt(-2.0 * normal_log(u[i])) * normal_cos(6.283185307179586 * v[i]);
        double error = fabs(x) * 0x1p-44 + 0x1p-78; /* next to 0, that of the cosine is 2^-82 */
        low[i] = (float)(x - error), high[i] = (float)(x + error);
    }
}

void rng_normals(struct rng_key key, uint64_t a, uint64_t b, int64_t n, float *out) {
    for (int64_t at = 0; at < n; at += NORMALS) {
        float low[NORMALS], high[NORMALS];
        normals_bound(key, a, b + (uint64_t)at, low, high);
        for (int i = 0; i < NORMALS && at + i < n; i++)
            out[at + i] = low[i] == high[i] ? low[i] : rng_normal(key, a, b + (uint64_t)(at + i));
    }
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
