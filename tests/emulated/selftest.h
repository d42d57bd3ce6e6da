/* Kernels that show what the emulated GPU does; each returns what the launch left as error. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* to[i] = a * from[i] */
cudaError_t self_scale(float *to, const float *from, float a, int64_t n, cudaStream_t s);
/* to[b] = sum of the block's threads' values of from, by shuffles and shared memory */
cudaError_t self_block_sum(float *to, const float *from, int threads, int64_t blocks, cudaStream_t s);
/* to[6 * i ...]: what thread i of one block of 48 threads has from each kind of shuffle and vote */
enum { SELF_WARP = 8 };
cudaError_t self_warp(unsigned *to, cudaStream_t s);
cudaError_t self_wide(uint64_t *to, cudaStream_t s); /* 64-bit shuffles and pairs of bfloat16 */
/* to[i] = what shared memory held before anybody wrote */
cudaError_t self_fresh_shared(unsigned *to, int blocks, cudaStream_t s);
cudaError_t self_dynamic(float *to, size_t shared, cudaStream_t s); /* writes its first and last */
cudaError_t self_allow_dynamic(int bytes);
cudaError_t self_count(int *to, int blocks, int threads, cudaStream_t s); /* by atomics and votes */
cudaError_t self_launch(int64_t blocks, int threads, cudaStream_t s);     /* an empty kernel */
cudaError_t self_early_end(int *to, cudaStream_t s);                      /* some threads end before a barrier */
/* What must be caught. */
enum self_wrong {
    WRONG_BRANCHES,
    WRONG_MASK,
    WRONG_WAIT,
    WRONG_OVERRUN,
    WRONG_RACE,
    WRONG_SAME,
    WRONG_ADDRESS,
    WRONG_STACK
};
cudaError_t self_wrong(enum self_wrong what, float *x, cudaStream_t s);
#ifdef __cplusplus
}
#endif
