/* How these functions are computed: in whole numbers. A double is taken apart into a sign, an exponent and a mantissa of
 * 64 bits; series are sums of 64-bit fractions; the result is rounded once. No operation rounds in a way that a compiler
 * could change by fusing two, and none is another with denormals flushed.
 *
 *   exp   x log2(e) is a whole number n and a fraction u: 2^n times e^t, t = u ln 2. The series of e^(t / 8), squared
 *         three times.
 *   log   x = 2^k m with m next to 1, and ln m = 2 artanh s = 2 (s + s^3 / 3 + s^5 / 5 + ...) of s = (m - 1) / (m + 1).
 *   pow   e^(y ln x): the logarithm has 67 bits, as y ln x may be 745 and must have some 57 after the point.
 *   cos   x 2 / pi is a quadrant and a fraction of it (Payne and Hanek: only those bits of 2 / pi are multiplied that
 *         give no whole turns), then the series of sin or cos. */
#include "engine/base/real.h"

#include <math.h>
#include <stdbool.h>

typedef unsigned __int128 wide;

/* ---- doubles taken apart --------------------------------------------------------------------- */
struct number { /* m 2^(e - 63), m's highest bit set, or 0 */
    bool negative;
    int e;
    uint64_t m;
};
static const uint64_t top = UINT64_C(1) << 63, not_finite = UINT64_C(0x7ff) << 52;

static bool real_is_nan(double x) {
    return real_bits(x) << 1 > not_finite << 1;
}

static bool real_is_infinite(double x) {
    return real_bits(x) << 1 == not_finite << 1;
}

/* x is finite. */
static struct number number_of(double x) {
    uint64_t bits = real_bits(x), m = bits << 11;
    struct number n = {bits >> 63, (int)(bits >> 52 & 0x7ff) - 1023, m | top};
    if (n.e > -1023) return n;
    n.e = -1022, n.m = m; /* a denormal, or zero */
    if (m) n.e -= __builtin_clzll(m), n.m <<= __builtin_clzll(m);
    return n;
}

/* Rounded to a double: half up, as a carry out of the mantissa is the next exponent. */
static double number_round(struct number n) {
    uint64_t sign = n.negative ? top : 0;
    int drop = n.e < -1022 ? 11 - 1022 - n.e : 11;
    if (n.m == 0 || drop > 64) return real_of_bits(sign);
    if (n.e > 1023) return real_of_bits(sign | not_finite);
    uint64_t kept = (drop < 64 ? n.m >> drop : 0) + (n.m >> (drop - 1) & 1);
    return real_of_bits(sign | (kept + (drop == 11 ? (uint64_t)(n.e + 1022) << 52 : 0)));
}

/* ---- fractions ------------------------------------------------------------------------------- */
static uint64_t high_product(uint64_t a, uint64_t b) { /* of two in units of 2^-64 */
    return (uint64_t)((wide)a * b >> 64);
}

static wide product_wide(wide a, wide b) { /* of two in units of 2^-128 */
    wide ah = a >> 64, bh = b >> 64, al = (uint64_t)a, bl = (uint64_t)b;
    return ah * bh + (ah * bl >> 64) + (al * bh >> 64);
}

static uint64_t shift_right(uint64_t m, int right) {
    return right < 64 ? m >> right : 0;
}

/* 1 / n! and 1 / (2 n + 3), in units of 2^-64. */
#define PART(n) (UINT64_MAX / (n))
static const uint64_t part_of_factorial[] = {0,
                                             0,
                                             PART(2),
                                             PART(6),
                                             PART(24),
                                             PART(120),
                                             PART(720),
                                             PART(5040),
                                             PART(40320),
                                             PART(362880),
                                             PART(3628800),
                                             PART(39916800),
                                             PART(479001600),
                                             PART(6227020800),
                                             PART(87178291200),
                                             PART(1307674368000),
                                             PART(20922789888000),
                                             PART(355687428096000),
                                             PART(6402373705728000)};
static const uint64_t part_of_odd[] = {PART(3),  PART(5),  PART(7),  PART(9),  PART(11), PART(13),
                                       PART(15), PART(17), PART(19), PART(21), PART(23), PART(25)};
static const wide log2_e = (wide)0xb8aa3b295c17f0bb << 64 | 0xbe87fed0691d3e88; /* in units of 2^-127 */
static const wide ln_2 = (wide)0xb17217f7d1cf79ab << 64 | 0xc9e3b39803f2f6af;   /* in units of 2^-128 */

/* ---- exp and log ----------------------------------------------------------------------------- */
struct finer { /* m 2^(e - 127), m's highest bit set, or 0 */
    bool negative;
    int e;
    wide m;
};

static struct finer finer_of(bool negative, int e, wide m) {
    uint64_t high = (uint64_t)(m >> 64), low = (uint64_t)m;
    int zeros = high ? __builtin_clzll(high) : low ? 64 + __builtin_clzll(low) : 0;
    return (struct finer){negative, e - zeros, m << zeros};
}

static double exp_of(struct finer x) {
    if (x.m == 0) return 1;
    if (x.e > 9) return x.negative ? 0 : (double)INFINITY;
    int right = 62 - x.e; /* to units of 2^-64 */
    wide y = right < 128 ? product_wide(x.m, log2_e) >> right : 0;
    if (x.negative) y = -y;
    uint64_t t = high_product((uint64_t)y, (uint64_t)(ln_2 >> 64)) >> 3, s = 0;
    for (int k = 10; k >= 2; k--) s = part_of_factorial[k] + high_product(s, t);
    s = t + high_product(t, high_product(t, s));
    for (int twice = 0; twice < 3; twice++) s = 2 * s + high_product(s, s); /* (1 + s)^2 - 1 */
    return number_round((struct number){false, (int)(int64_t)(y >> 64), top | s >> 1});
}

/* x is above zero. The result has 61 bits or more; 'close', 67 or more. */
static inline struct finer log_of(struct number x, bool close) {
    const uint64_t root_2 = 0xb504f333f9de6484;
    bool below = x.m > root_2; /* then m is halved, and m - 1 below zero */
    int k = x.e + below;
    uint64_t f = below ? -x.m : x.m << 1;                    /* |m - 1| in units of 2^-64 */
    uint64_t d = (top >> 1) + (below ? x.m >> 2 : x.m >> 1); /* m + 1 in units of 2^-62 */
    if (f == 0 && k == 0) return (struct finer){0};
    int more = __builtin_clzll(f | 1) - 2; /* as many bits for s as its division gives, and f is below d */
    if (more < 0) more = 0;
    f <<= more;
    uint64_t s = (uint64_t)(((wide)f << 64) / d); /* |m - 1| / (m + 1) in units of 2^-(66 + more) */
    wide fine = (wide)s << 64;
    if (close) fine |= (uint64_t)(((((wide)f << 64) - (wide)s * d) << 64) / d);
    uint64_t narrow = shift_right(s, more), z = high_product(narrow, narrow),
             z2 = high_product(z, z); /* s^2 in units of 2^-68 */
    uint64_t even = 0, odd = 0;
    for (int i = 10; i >= 0; i -= 2) { /* two chains, so that the one need not wait for the other */
        even = part_of_odd[i] + (high_product(even, z2) >> 8);
        odd = part_of_odd[i + 1] + (high_product(odd, z2) >> 8);
    }
    uint64_t sum = even + (high_product(odd, z) >> 4);
    wide log =
        fine + (product_wide(fine, (wide)high_product(sum, z) << 64) >> 4); /* of m, in units of 2^-(129 + more) */
    if (k == 0) return finer_of(below, -2 - more, log);
    wide whole = (wide)(uint64_t)(k < 0 ? -k : k) * (ln_2 >> 11); /* in units of 2^-117 */
    log = log >> 12 >> more;
    return finer_of(k < 0, 10, (k < 0) == below ? whole + log : whole - log);
}

double real_exp(double x) {
    if (real_is_nan(x)) return x;
    if (real_is_infinite(x)) return real_bits(x) & top ? 0 : x;
    struct number n = number_of(x);
    return exp_of((struct finer){n.negative, n.e, (wide)n.m << 64});
}

double real_log(double x) {
    if (real_is_nan(x)) return x;
    if (real_bits(x) << 1 == 0) return -(double)INFINITY;
    if (real_bits(x) & top) return (double)NAN;
    if (real_is_infinite(x)) return x;
    struct finer log = log_of(number_of(x), false);
    return number_round((struct number){log.negative, log.e, (uint64_t)(log.m >> 64)});
}

static bool real_is_whole(double y, bool *odd) {
    struct number n = number_of(y);
    *odd = n.m && n.e >= 0 && n.e <= 63 && n.m << n.e == top;
    return n.m == 0 || (n.e >= 0 && (n.e >= 63 || n.m << n.e << 1 == 0));
}

/* pow(x, y) where x or y is zero, infinite or no number, or x is 1; false: none of these. */
static bool pow_of_ends(double x, double y, bool odd, double *out) {
    bool below = real_bits(y) & top;
    if (real_bits(y) << 1 == 0 || x == 1) return *out = 1, true;
    if (real_is_nan(x) || real_is_nan(y)) return *out = (double)NAN, true;
    bool x_zero = real_bits(x) << 1 == 0;
    if (x_zero || real_is_infinite(x)) {
        double size = x_zero == below ? (double)INFINITY : 0;
        return *out = odd && real_bits(x) & top ? -size : size, true;
    }
    if (!real_is_infinite(y)) return false;
    if (x == -1) return *out = 1, true;
    bool grows = number_of(x).e >= 0;
    return *out = grows != below ? (double)INFINITY : 0, true;
}

double real_pow(double x, double y) {
    bool odd = false, whole = real_is_infinite(y) || (!real_is_nan(y) && real_is_whole(y, &odd));
    double end;
    if (pow_of_ends(x, y, odd, &end)) return end;
    struct number n = number_of(x), by = number_of(y);
    if (n.negative && !whole) return (double)NAN;
    bool turned = n.negative && odd;
    n.negative = false;
    struct finer log = log_of(n, true);
    double power =
        exp_of(finer_of(log.negative != by.negative, log.e + by.e + 1, product_wide(log.m, (wide)by.m << 64)));
    return turned ? -power : power;
}

/* ---- sin and cos ----------------------------------------------------------------------------- */
/* 2 / pi after 128 zeros. */
static const uint64_t two_over_pi[] = {0,
                                       0,
                                       0xa2f9836e4e441529,
                                       0xfc2757d1f534ddc0,
                                       0xdb6295993c439041,
                                       0xfe5163abdebbc561,
                                       0xb7246e3a424dd2e0,
                                       0x06492eea09d1921c,
                                       0xfe1deb1cb129a73e,
                                       0xe88235f52ebb4484,
                                       0xe99c7026b45f7e41,
                                       0x3991d639835339f4,
                                       0x9c845f8bbdf9283b,
                                       0x1ff897ffde05980f,
                                       0xef2f118b5a0a6d1f,
                                       0x6d367ecf27cb09b7,
                                       0x4f463f669e5fea2d,
                                       0x7527bac7ebe5f17b,
                                       0x3d0739f78a5292ea,
                                       0x6bfb5fb11f8d5d08};
static const uint64_t half_pi = 0xc90fdaa22168c234; /* in units of 2^-63 */

static uint64_t word_at(int bit) {
    const uint64_t *w = two_over_pi + bit / 64;
    return bit % 64 ? w[0] << bit % 64 | w[1] >> (64 - bit % 64) : w[0];
}

/* What of n, at least 1 / 2, is left when the nearest quarter of a turn is taken away; and how many were, modulo 4. */
static struct number part_of_turn(struct number n, int *quarters) {
    int bit = n.e + 63; /* what stands before it gives whole turns */
    wide turn = ((wide)n.m * word_at(bit + 128) >> 64) + (wide)n.m * word_at(bit + 64) +
                ((wide)(n.m * word_at(bit)) << 64); /* in units of 2^-126 of a quarter, modulo 4 of them */
    wide part = turn << 2;
    bool above = part >> 127;
    *quarters = (int)(turn >> 126) + above;
    struct finer f = finer_of(above, -1, above ? -part : part);
    wide r = (wide)(uint64_t)(f.m >> 64) * half_pi;
    f = finer_of(above, f.e + 1, r);
    return (struct number){f.negative, f.e, (uint64_t)(f.m >> 64)};
}

/* The sine of n + quarters of a turn. */
static double number_sine(struct number n, int quarters) {
    bool turned = n.negative;
    n.negative = false;
    int more = 0;
    if (n.e >= -1) n = part_of_turn(n, &more);
    if (turned) more = -more, n.negative = !n.negative;
    quarters += more;
    uint64_t r = shift_right(n.m, -1 - n.e), z = high_product(r, r), sum = 0; /* in units of 2^-64 */
    bool across = quarters & 1;
    for (int k = across ? 18 : 17; k >= 2; k -= 2) sum = part_of_factorial[k] - high_product(z, sum);
    if (across)
        n = (struct number){false, -1, ~high_product(z, sum)}; /* 1 - z (1 / 2 - z / 24 ...) */
    else
        n.m -= high_product(n.m, high_product(z, sum)); /* r - r z (1 / 6 - z / 120 ...) */
    if (n.m && !(n.m & top)) n.m <<= 1, n.e--;
    if (quarters & 2) n.negative = !n.negative;
    return number_round(n);
}

double real_sin(double x) {
    if (real_is_nan(x) || real_is_infinite(x)) return (double)NAN;
    return number_sine(number_of(x), 0);
}

double real_cos(double x) {
    if (real_is_nan(x) || real_is_infinite(x)) return (double)NAN;
    return number_sine(number_of(x), 1);
}

/* ---- tanh and erf: in doubles ---------------------------------------------------------------- */
double real_tanh(double x) {
    double size = fabs(x), z = x * x, sinh = 1, cosh = 1;
    if (size > 0.5) { /* a NaN is not */
        double far = 1 - 2 / (real_exp(2 * size) + 1);
        return x < 0 ? -far : far;
    }
    for (int k = 14; k > 0; k -= 2) { /* sinh x / x and cosh x: no term is below zero */
        sinh = 1 + sinh * z / (k * (k + 1));
        cosh = 1 + cosh * z / (k * (k - 1));
    }
    return x * (sinh / cosh);
}

/* Near zero the series of e^(x^2) erf x, of which no term is below zero; then 1 - erfc x from its continued fraction. */
double real_erf(double x) {
    const double two_over_root_pi = 1.1283791670955126;
    double size = fabs(x), z = x * x, sum = 1;
    if (size > 6) return x < 0 ? -1 : 1;
    if (size > 2) {
        for (int k = 60; k > 0; k--) sum = 1 + k / (2 * z) / sum;
        double far = 1 - real_exp(-z) * two_over_root_pi / (2 * size * sum);
        return x < 0 ? -far : far;
    }
    for (int k = 40; k > 0; k--) sum = 1 + sum * 2 * z / (2 * k + 1);
    return two_over_root_pi * x * real_exp(-z) * sum;
}
