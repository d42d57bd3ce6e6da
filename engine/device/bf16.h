/* bfloat16: the upper half of an f32. */
#pragma once
#include <stdint.h>
#include <string.h>

/* The nearest bf16 (of two, the even one) as an f32; NaN stays NaN. */
static inline __attribute__((always_inline)) float bf16_round(float v) {
    uint32_t bits, quiet;
    memcpy(&bits, &v, sizeof bits);
    quiet = bits | 0x00400000u;
    bits += 0x7fffu + (bits >> 16 & 1);
    bits = (v != v ? quiet : bits) & 0xffff0000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}
