/* A tensor's type, as launchers take it; plain C and .cu include this. */
#pragma once
#include "engine/device/ops.h"

enum element { ELEMENT_F32, ELEMENT_BF16, ELEMENT_FP16 };

static inline size_t element_bytes(enum element e) {
    return e == ELEMENT_F32 ? 4 : 2;
}
/* Activations of ops of that precision. */
static inline enum element element_of(enum precision p) {
    if (p == PRECISION_BF16) return ELEMENT_BF16;
    return p == PRECISION_FP16 ? ELEMENT_FP16 : ELEMENT_F32;
}
/* What the op reads: data is f32. */
static inline enum element element_read(const struct op_desc *d) {
    return d->first ? ELEMENT_F32 : element_of(d->precision);
}
