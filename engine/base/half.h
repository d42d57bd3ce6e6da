/* Narrow floats: bf16, the upper half of an f32, and IEEE's f16. Rounding is to nearest even, and
 * every NaN becomes the one quiet NaN of the type. Selections and no branches, so that the compiler
 * makes vectors of them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PART_OF_A_LOOP static inline __attribute__((always_inline))

PART_OF_A_LOOP uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

PART_OF_A_LOOP float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

PART_OF_A_LOOP uint32_t pick(bool first, uint32_t a, uint32_t b) {
    uint32_t mask = -(uint32_t)first;
    return (a & mask) | (b & ~mask);
}

PART_OF_A_LOOP float widen_bf16(uint16_t h) {
    return float_of((uint32_t)h << 16);
}

PART_OF_A_LOOP uint16_t narrow_bf16(float f) {
    uint32_t u = bits_of(f), rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)pick((u & 0x7fffffff) > 0x7f800000, 0x7fc0, rounded);
}

PART_OF_A_LOOP float widen_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    float small = float_of(rest + (113u << 23)) - float_of(113u << 23); /* subnormals of f16 */
    uint32_t normal = rest + pick(rest < 31u << 23, 112u << 23, 224u << 23);
    return float_of(sign | pick(rest < 1u << 23, bits_of(small), normal));
}

PART_OF_A_LOOP uint16_t narrow_f16(float f) {
    uint32_t u = bits_of(f) & 0x7fffffff, sign = bits_of(f) >> 16 & 0x8000;
    uint32_t small = bits_of(float_of(u) + 0.5f) - bits_of(0.5f); /* its last bit is 2^-24 */
    uint32_t normal = (u - (112u << 23) + 0xfff + (u >> 13 & 1)) >> 13;
    uint32_t h = pick(u < 113u << 23, small, pick(u < 143u << 23, normal, 0x7c00));
    return (uint16_t)pick(u > 255u << 23, 0x7e00, sign | h);
}
