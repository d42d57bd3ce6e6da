/* The arithmetic: one loop for each type and operation, left operand op right operand. Which side an operand stands on
 * is part of the contract, since min and max tell -0 from 0 by it. With a NaN on either side min and max are that NaN,
 * with two of them the left one. Of two NaNs of f32 or f64, a sum or a product is one of them: compilers may swap the
 * operands, so which one is open.
 *
 * f16 and bf16 are worked on as wider floats and rounded after every single operation. The wider result may be rounded
 * itself, which changes nothing where it has at least 2p + 2 bits (p: those of the narrow type): sums and quotients of
 * both types, and an f16 product is exact in an f32. Only a product or a quotient of bf16, whose range is that of f32,
 * can be a subnormal f32 and so have fewer bits: these are made in f64 and rounded to odd on the way. Every NaN that
 * arithmetic gives is the one quiet NaN of its type. */
#include "engine/base/half.h"
#include "engine/base/vector.h"
#include "transport/algo/order.h"

#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* An f32 that narrow_bf16 rounds as it would have rounded d: where d is none, the neighbour with an
 * odd last bit, which no tie has. */
PART_OF_A_LOOP float to_odd(double d) {
    float f = (float)d;
    double back = f;
    uint32_t u = bits_of(f), beyond = (back < 0 ? -back : back) > (d < 0 ? -d : d);
    return float_of(pick(back == d, u, (u - beyond) | 1));
}

/* ---- kernels ---- */

#define KERNEL(type, c_type, name, expr)                                                                               \
    void combine_##type##_##name(int64_t n, void *dst, const void *left, const void *right);                           \
    VECTORISED void combine_##type##_##name(int64_t n, void *dst, const void *left, const void *right) {               \
        c_type *d = dst;                                                                                               \
        const c_type *a = left, *b = right;                                                                            \
        INDEPENDENT                                                                                                    \
        for (int64_t i = 0; i < n; i++) d[i] = (c_type)(expr);                                                         \
    }
#define AVERAGE(type, c_type, expr)                                                                                    \
    void average_##type(int64_t n, void *data, int ranks);                                                             \
    VECTORISED void average_##type(int64_t n, void *data, int ranks) {                                                 \
        c_type *d = data;                                                                                              \
        INDEPENDENT                                                                                                    \
        for (int64_t i = 0; i < n; i++) d[i] = (c_type)(expr);                                                         \
    }

/* The left one if it is less (or more) or NaN; else the right one, which may be NaN. as: how they are compared. */
#define PICKS(type, c_type, as)                                                                                        \
    KERNEL(type, c_type, min, (as(a[i]) < as(b[i])) | IS_NAN(as(a[i])) ? a[i] : b[i])                                  \
    KERNEL(type, c_type, max, (as(a[i]) > as(b[i])) | IS_NAN(as(a[i])) ? a[i] : b[i])
#define IS_NAN(x) ((x) != (x))
/* w: in which integers are added and multiplied, since unsigned numbers may wrap. */
#define NUMBERS(type, c_type, w)                                                                                       \
    KERNEL(type, c_type, sum, (w)a[i] + (w)b[i])                                                                       \
    KERNEL(type, c_type, prod, (w)a[i] * (w)b[i])                                                                      \
    PICKS(type, c_type, )                                                                                              \
    AVERAGE(type, c_type, d[i] / (c_type)ranks)
#define INTEGERS(type, c_type, w)                                                                                      \
    NUMBERS(type, c_type, w)                                                                                           \
    KERNEL(type, c_type, and, a[i] & b[i])                                                                             \
    KERNEL(type, c_type, or, a[i] | b[i])                                                                              \
    KERNEL(type, c_type, xor, a[i] ^ b[i])
/* Products and quotients are made in w and rounded to f32 by 'once'. */
#define NARROW(type, w, once)                                                                                          \
    KERNEL(type, uint16_t, sum, narrow_##type(widen_##type(a[i]) + widen_##type(b[i])))                                \
    KERNEL(type, uint16_t, prod, narrow_##type(once((w)widen_##type(a[i]) * (w)widen_##type(b[i]))))                   \
    PICKS(type, uint16_t, widen_##type)                                                                                \
    AVERAGE(type, uint16_t, narrow_##type(once((w)widen_##type(d[i]) / (w)ranks)))

NUMBERS(f32, float, float)
NUMBERS(f64, double, double)
NARROW(f16, float, )
NARROW(bf16, double, to_odd)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u8, uint8_t, uint32_t)

typedef void (*kernel)(int64_t n, void *dst, const void *a, const void *b);
#define FLOAT_ROW(type)                                                                                                \
    [REDOP_SUM] = combine_##type##_sum, [REDOP_PROD] = combine_##type##_prod, [REDOP_MIN] = combine_##type##_min,      \
    [REDOP_MAX] = combine_##type##_max, [REDOP_AVERAGE] = combine_##type##_sum
#define INTEGER_ROW(type)                                                                                              \
    FLOAT_ROW(type), [REDOP_AND] = combine_##type##_and, [REDOP_OR] = combine_##type##_or,                             \
                     [REDOP_XOR] = combine_##type##_xor
static const struct {
    kernel combine[REDOPS]; /* NULL: the operation is not for this type */
    void (*average)(int64_t n, void *data, int ranks);
} types[DTYPES] = {
    [DTYPE_F32] = {{FLOAT_ROW(f32)}, average_f32},   [DTYPE_F64] = {{FLOAT_ROW(f64)}, average_f64},
    [DTYPE_F16] = {{FLOAT_ROW(f16)}, average_f16},   [DTYPE_BF16] = {{FLOAT_ROW(bf16)}, average_bf16},
    [DTYPE_I32] = {{INTEGER_ROW(i32)}, average_i32}, [DTYPE_I64] = {{INTEGER_ROW(i64)}, average_i64},
    [DTYPE_U8] = {{INTEGER_ROW(u8)}, average_u8},
};

bool redop_suits(enum redop op, enum dtype t) {
    return types[t].combine[op] != NULL;
}

void combine(enum dtype t, enum redop op, int64_t n, void *dst, const void *a, const void *b) {
    types[t].combine[op](n, dst, a, b);
}

void sum_complete(const struct sum *s, int64_t n, void *data) {
    if (s->op == REDOP_AVERAGE) types[s->type].average(n, data, s->ranks);
}
