/* Vectors of the level that the file is compiled for: LANES floats, REGISTERS of them, and MULTIPLY_ADD(sum, a, b),
 * sum + a b of such vectors, rounded once. Contraction is off in every file, as it would leave to the compiler what is fused: bits are the
 * same at all levels that have these instructions. A base level without them rounds twice, and gives other bits. */
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

/* Whether the level has AMX's tiles of bf16, or a test's model of them: some compilers spell it otherwise. */
#if defined(__AMX_BF16__) || defined(__AMXBF16__) || defined(AMX_MODEL)
#define HAS_TILES 1
#else
#define HAS_TILES 0
#endif

#if defined(__AVX512F__) || defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif

/* Whether the level multiplies pairs of bf16; else bf16's factors are rounded and stay floats. */
#if defined(__AVX512BF16__) || HAS_TILES
#define HAS_PAIRS true
#else
#define HAS_PAIRS false
#endif

#if defined(__AVX512F__)
#define MULTIPLY_ADD(sum, a, b) ((__typeof__(sum))_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(sum)))
#elif defined(__AVX2__) && defined(__FMA__)
#define MULTIPLY_ADD(sum, a, b) ((__typeof__(sum))_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(sum)))
#elif defined(__FMA__)
#define MULTIPLY_ADD(sum, a, b) ((__typeof__(sum))_mm_fmadd_ps((__m128)(a), (__m128)(b), (__m128)(sum)))
#elif defined(__aarch64__)
#define MULTIPLY_ADD(sum, a, b) ((__typeof__(sum))vfmaq_f32((float32x4_t)(sum), (float32x4_t)(a), (float32x4_t)(b)))
#else
#define MULTIPLY_ADD(sum, a, b) ((sum) + (a) * (b))
#endif

/* Loops whose sums are to stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define UNROLL_SOME _Pragma("unroll 16") /* whose count is no constant */
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_SOME UNROLL
#endif
