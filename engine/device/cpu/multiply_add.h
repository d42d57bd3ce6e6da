/* sum + a b of vectors of 16, 8 or 4 floats, rounded once: MULTIPLY_ADD_16(sum, a, b) in functions for AVX-512,
 * MULTIPLY_ADD_8 in those for AVX2 with FMA; MULTIPLY_ADD_4, and MULTIPLY_ADD for the widest of them, as the file is
 * compiled. Contraction is off in every file, as it would leave to the compiler what is fused: bits are the same on all
 * processors that have these instructions. A base level without them rounds twice, and gives other bits. */
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#define MULTIPLY_ADD_16(sum, a, b) ((__typeof__(sum))_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(sum)))
#define MULTIPLY_ADD_8(sum, a, b) ((__typeof__(sum))_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(sum)))
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__aarch64__)
#define MULTIPLY_ADD_4(sum, a, b) ((__typeof__(sum))vfmaq_f32((float32x4_t)(sum), (float32x4_t)(a), (float32x4_t)(b)))
#elif defined(__FMA__)
#define MULTIPLY_ADD_4(sum, a, b) ((__typeof__(sum))_mm_fmadd_ps((__m128)(a), (__m128)(b), (__m128)(sum)))
#else
#define MULTIPLY_ADD_4(sum, a, b) ((sum) + (a) * (b))
#endif

#if defined(__AVX512F__)
#define MULTIPLY_ADD MULTIPLY_ADD_16
#elif defined(__AVX2__)
#define MULTIPLY_ADD MULTIPLY_ADD_8
#else
#define MULTIPLY_ADD MULTIPLY_ADD_4
#endif
