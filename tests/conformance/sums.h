/* What ranks put into the collectives under test, and what must come out: a plain evaluation of the
 * documented order, one element at a time, with arithmetic of its own. */
#pragma once
#include "transport/algo/algo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ENGINE_SANITIZED /* ten times slower */
enum { MOST = 20011, WORLD_MOST = 16 };
#else
enum { MOST = 50021, WORLD_MOST = 16 };
#endif
static const int64_t counts[] = {0, 1, 2, 3, 17, 1000, 4096 + 5, MOST};
enum { COUNTS = 8, LARGE = 7 };

/* ---- narrow floats, by way of doubles, which hold them and round their sums innocuously ---- */

struct narrow {
    int bits, least, most; /* of the significand; exponents of the least and largest normal number */
};
static inline const struct narrow *narrow_of(enum dtype t) {
    static const struct narrow f16 = {11, -14, 15}, bf16 = {8, -126, 127};
    return t == DTYPE_F16 ? &f16 : &bf16;
}

static inline double narrow_read(enum dtype t, uint16_t h) {
    const struct narrow *n = narrow_of(t);
    int field = (h & 0x7fff) >> (n->bits - 1), fraction = h & ((1 << (n->bits - 1)) - 1);
    double v = field == 0 ? ldexp(fraction, n->least - n->bits + 1)
                          : ldexp(fraction + (1 << (n->bits - 1)), n->least - n->bits + field);
    if (field == n->most * 2 + 1) v = fraction ? NAN : INFINITY;
    return h & 0x8000 ? -v : v;
}

static inline uint16_t narrow_write(enum dtype t, double v) {
    const struct narrow *n = narrow_of(t);
    int hidden = 1 << (n->bits - 1), infinite = (n->most * 2 + 1) * hidden;
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    if (isnan(v)) return (uint16_t)(infinite | hidden / 2);
    if (isinf(v)) return (uint16_t)(sign | infinite);
    int e = v == 0 || ilogb(v) < n->least ? n->least : ilogb(v); /* of the last bit, but for bits */
    int whole = e > n->most ? 4 * hidden : (int)rint(ldexp(fabs(v), n->bits - 1 - e));
    int code = whole < hidden ? whole : (e - n->least) * hidden + whole;
    return (uint16_t)(sign | (code < infinite ? code : infinite));
}

/* ---- what each rank puts in ---- */

static inline double input_value(enum dtype t, int rank, int64_t i) {
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u * 65537u;
    h ^= h >> 15;
    if (t == DTYPE_U8) return h % 256;
    if (t == DTYPE_I32 || t == DTYPE_I64) return (double)(h % 2001) - 1000.0;
    /* of many magnitudes, so that every order rounds otherwise */
    return ((double)(h % 2001) - 1000.0) * (h % 3 ? 1e-3 : 1.7);
}

static inline void input_put(enum dtype t, void *buf, int64_t i, double v) {
    switch (t) {
    case DTYPE_F32:
        ((float *)buf)[i] = (float)v;
        break;
    case DTYPE_F64:
        ((double *)buf)[i] = v;
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        ((uint16_t *)buf)[i] = narrow_write(t, v);
        break;
    case DTYPE_I32:
        ((int32_t *)buf)[i] = (int32_t)v;
        break;
    case DTYPE_I64:
        ((int64_t *)buf)[i] = (int64_t)v;
        break;
    default:
        ((uint8_t *)buf)[i] = (uint8_t)v;
    }
}

static inline double input_get(enum dtype t, const void *buf, int64_t i) {
    if (t == DTYPE_F32) return ((const float *)buf)[i];
    if (t == DTYPE_F64) return ((const double *)buf)[i];
    return narrow_read(t, ((const uint16_t *)buf)[i]);
}

/* Made once: what each rank holds at first. */
static char *inputs[DTYPES][WORLD_MOST];

static inline void inputs_make(void) {
    for (enum dtype t = 0; t < DTYPES; t++)
        for (int r = 0; r < WORLD_MOST; r++) {
            inputs[t][r] = calloc(MOST, dtype_size(t));
            for (int64_t i = 0; i < MOST; i++) input_put(t, inputs[t][r], i, input_value(t, r, i));
        }
}

static inline void inputs_free(void) {
    for (enum dtype t = 0; t < DTYPES; t++)
        for (int r = 0; r < WORLD_MOST; r++) free(inputs[t][r]);
}

static inline void fill(enum dtype t, void *buf, int rank, int64_t n) {
    memcpy(buf, inputs[t][rank], (size_t)n * dtype_size(t));
}

/* ---- arithmetic ---- */

#define APPLY(a, b)                                                                                                    \
    (op == REDOP_PROD  ? (a) * (b)                                                                                     \
     : op == REDOP_MIN ? ((a) < (b) ? (a) : (b))                                                                       \
     : op == REDOP_MAX ? ((a) > (b) ? (a) : (b))                                                                       \
                       : (a) + (b))
#define BITS(a, b) (op == REDOP_AND ? (a) & (b) : op == REDOP_OR ? (a) | (b) : (a) ^ (b))
#define INTEGERS(type, wide)                                                                                           \
    *(type *)a = compares  ? APPLY(*(type *)a, *(const type *)b)                                                       \
                 : logical ? BITS(*(type *)a, *(const type *)b)                                                        \
                           : (type)APPLY((wide) * (type *)a, (wide) * (const type *)b)

/* a = a op b, in the type's own arithmetic; integers wrap. */
static inline void pair(enum dtype t, enum redop op, void *a, const void *b) {
    bool compares = op == REDOP_MIN || op == REDOP_MAX, logical = op >= REDOP_AND;
    double x, y;
    switch (t) {
    case DTYPE_F32:
        *(float *)a = APPLY(*(float *)a, *(const float *)b);
        break;
    case DTYPE_F64:
        *(double *)a = APPLY(*(double *)a, *(const double *)b);
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        x = narrow_read(t, *(uint16_t *)a);
        y = narrow_read(t, *(const uint16_t *)b);
        *(uint16_t *)a = narrow_write(t, APPLY(x, y));
        break;
    case DTYPE_I32:
        INTEGERS(int32_t, uint32_t);
        break;
    case DTYPE_I64:
        INTEGERS(int64_t, uint64_t);
        break;
    default:
        INTEGERS(uint8_t, uint32_t);
    }
}

static inline void divide(enum dtype t, void *a, int n) {
    switch (t) {
    case DTYPE_F32:
        *(float *)a /= (float)n;
        break;
    case DTYPE_F64:
        *(double *)a /= n;
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        *(uint16_t *)a = narrow_write(t, narrow_read(t, *(uint16_t *)a) / n);
        break;
    case DTYPE_I32:
        *(int32_t *)a /= n;
        break;
    case DTYPE_I64:
        *(int64_t *)a /= n;
        break;
    default:
        *(uint8_t *)a = (uint8_t)(*(uint8_t *)a / n);
    }
}

/* ---- the documented orders ---- */

struct standing { /* who adds */
    enum order order;
    int world;
};

static inline void serial(const struct standing *s, enum dtype t, enum redop op, int64_t n, int64_t i, void *out) {
    _Alignas(8) char v[WORLD_MOST][8];
    size_t size = dtype_size(t);
    int w = s->world, chunk = 0;
    for (int p = 0; p < w; p++) memcpy(v[p], inputs[t][p] + (size_t)i * size, size);
    while (s->order == ORDER_RING && i >= (chunk + 1) * n / w) chunk++;
    for (int k = 1; s->order == ORDER_RING && k < w; k++) pair(t, op, v[chunk], v[(chunk + k) % w]);
    for (int apart = 1; s->order == ORDER_TREE && apart < w; apart *= 2)
        for (int p = 0; p + apart < w; p += 2 * apart) pair(t, op, v[p], v[p + apart]);
    if (op == REDOP_AVERAGE) divide(t, v[chunk], w);
    memcpy(out, v[chunk], size);
}

/* Expected sums of one standing, shared by all links and algorithms: [count][type][op]. */
struct expected {
    char *sum[COUNTS][DTYPES][REDOPS];
};

/* Two counts are tried with all operations, the others with one a type. */
static inline bool tried(int count, enum dtype t, enum redop op) {
    static const enum redop one[DTYPES] = {
        [DTYPE_F32] = REDOP_SUM, [DTYPE_F64] = REDOP_PROD, [DTYPE_F16] = REDOP_SUM, [DTYPE_BF16] = REDOP_AVERAGE,
        [DTYPE_I32] = REDOP_SUM, [DTYPE_I64] = REDOP_XOR,  [DTYPE_U8] = REDOP_MAX};
    if (op >= REDOP_AND && t != DTYPE_I32 && t != DTYPE_I64 && t != DTYPE_U8) return false;
    return counts[count] == 17 || counts[count] == 4096 + 5 || op == one[t];
}

#define EACH_SUM(c, t, op)                                                                                             \
    for (int c = 0; c < COUNTS; c++)                                                                                   \
        for (enum dtype t = 0; t < DTYPES; t++)                                                                        \
            for (enum redop op = 0; op < REDOPS; op++)                                                                 \
                if (tried(c, t, op))

static inline struct expected *expected_make(const struct standing *s) {
    struct expected *e = calloc(1, sizeof *e);
    EACH_SUM(c, t, op) {
        e->sum[c][t][op] = malloc((size_t)counts[c] * 8 + 8);
        for (int64_t i = 0; i < counts[c]; i++)
            serial(s, t, op, counts[c], i, e->sum[c][t][op] + (size_t)i * dtype_size(t));
    }
    return e;
}

static inline void expected_free(struct expected *e) {
    EACH_SUM(c, t, op) free(e->sum[c][t][op]);
    free(e);
}

static inline bool same(const void *a, const void *b, int64_t n, enum dtype t) {
    return n == 0 || memcmp(a, b, (size_t)n * dtype_size(t)) == 0;
}

/* buf still holds, or has got, what 'rank' put into [lo, hi). */
static inline bool untouched(enum dtype t, const char *buf, int rank, int64_t lo, int64_t hi) {
    size_t at = (size_t)lo * dtype_size(t);
    return same(buf + at, inputs[t][rank] + at, hi - lo, t);
}
