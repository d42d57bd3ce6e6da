/* Types of elements, operations, and orders of addition. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F64,
    DTYPE_F16,  /* a uint16_t: IEEE's half */
    DTYPE_BF16, /* a uint16_t: the upper half of an f32 */
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPES
};
/* Every single operation rounds to the type, to nearest even; integers wrap. AVERAGE is the sum,
 * then divided once by the number of ranks that gave (integers: toward zero). AND, OR and XOR are
 * for integers. */
enum redop { REDOP_SUM, REDOP_PROD, REDOP_MIN, REDOP_MAX, REDOP_AVERAGE, REDOP_AND, REDOP_OR, REDOP_XOR, REDOPS };
enum order { ORDER_TREE, ORDER_RING }; /* in which the ranks' floats are added: see algo/order.h */
size_t dtype_size(enum dtype t);
const char *dtype_name(enum dtype t);
bool redop_suits(enum redop op, enum dtype t);
const char *redop_name(enum redop op);
