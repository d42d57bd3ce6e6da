/* Own kernels outside of the device "cpu", which has levels of its own (device/cpu/cpu.h), are plain loops compiled at
 * several instruction levels; the best one is chosen when the program is loaded. Contraction is off (-ffp-contract=off) and sums are written with a fixed
 * number of lanes, so that a kernel gives the same bits at every level. VECTORISED stands before a
 * static function, since clang cannot call the chosen one from another file, and its name is the only
 * one of its kind in the program, since what chooses it bears that name and is not static. */
#pragma once
#include <stdint.h>

#if defined(__x86_64__) && defined(__linux__) && !defined(ENGINE_SANITIZED)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED /* sanitizers run before the loader's choice could be made */
#endif

/* to[i] += from[i]; the two do not overlap. */
void floats_add(float *to, const float *from, int64_t n);
/* x[i] *= by. */
void floats_scale(float *x, float by, int64_t n);

/* The sum of squares of x[0..n), a pure function of the floats: 32 sums in double, float i goes to sum i mod 32 (the
 * square of a float is exact in double), then the halves are added. So the result depends neither on the rank that
 * sums, nor on the width of its vectors. */
double squares_sum(const float *x, int64_t n);
/* The sum of a[i] b[i], added in the same order. */
double products_sum(const float *a, const float *b, int64_t n);
/* The number of floats in a block of squares, counted from the arena's start, so that the sums do not depend on which
 * rank has which part. */
enum { NORM_BLOCK = 4096 };
/* The same by blocks of NORM_BLOCK floats from the arena's start: partial[i] for block i of g[begin..end).
 * begin is a multiple of NORM_BLOCK. */
void squares_partials(const float *g, int64_t begin, int64_t end, double *partial);
