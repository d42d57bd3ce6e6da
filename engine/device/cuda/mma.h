/* What one warp asks of a tensor core, and copies into shared memory that run beside the arithmetic: the instructions
 * of compute capability 8.0 and later. A fragment is the part of a matrix that a lane holds; with g = lane / 4 and
 * t = lane % 4 the 16-bit pairs and f32 values are these (row, column):
 *   A (16 x 16)   a[0] (g, 2t)  a[1] (g + 8, 2t)  a[2] (g, 2t + 8)  a[3] (g + 8, 2t + 8), and the column after
 *   B (16 x 8)    b[0] (2t, g)  b[1] (2t + 8, g), and the row after
 *   C (16 x 8)    c0, c1 (g, 2t) and the column after;  c2, c3 (g + 8, 2t) and the column after
 * Elsewhere than on a GPU the same is done from that table by lanes that meet. */
#pragma once
#include "engine/device/cuda/kernel.h"

/* Two values as the 16-bit pair of a fragment, the first in the low half. */
template <typename T> __device__ __forceinline__ uint32_t pack_pair(float low, float high);

/* c += A B.  Four 8 x 8 matrices of 16-bit values: lane 8 i + r names (in shared memory, aligned to 16 bytes) row r
 * of matrix i, and gets of matrix i in to[i] the pair (g, 2t), (g, 2t + 1); transposed: (2t, g), (2t + 1, g). */
template <typename T>
__device__ __forceinline__ void mma_16816(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4],
                                          uint32_t b0, uint32_t b1);
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&to)[4], const void *row);
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&to)[4], const void *row);

/* 16 (4) bytes into shared memory, zeros when not 'there' ('from' is then not read). What a thread
 * began has happened when its cp_async_wait returns; other threads see it after a barrier that follows. */
static __device__ __forceinline__ void cp_async_16(void *to, const void *from, bool there);
static __device__ __forceinline__ void cp_async_4(void *to, const void *from, bool there);
static __device__ __forceinline__ void cp_async_wait(void);

/* 16 bytes between aligned places; 4 bytes into one. */
static __device__ __forceinline__ void copy_16(void *to, const void *from);
static __device__ __forceinline__ void put_4(void *to, uint32_t bits);
/* 2^x, to about 2^-22 of it; tiny results are zero. */
static __device__ __forceinline__ float exp2_fast(float x);

#ifdef __CUDACC__
template <> __device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <> __device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#define MMA_16816(T, name)                                                                                             \
    template <>                                                                                                        \
    __device__ __forceinline__ void mma_16816<T>(float &c0, float &c1, float &c2, float &c3, const uint32_t(&a)[4],    \
                                                 uint32_t b0, uint32_t b1) {                                           \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                                    \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                 \
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                  \
    }
MMA_16816(__nv_bfloat16, "bf16")
MMA_16816(__half, "f16")
#undef MMA_16816

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void cp_async_16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void cp_async_4(void *to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                 : "memory");
}

static __device__ __forceinline__ void cp_async_wait(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

static __device__ __forceinline__ void copy_16(void *to, const void *from) {
    *(uint4 *)to = *(const uint4 *)from;
}

static __device__ __forceinline__ void put_4(void *to, uint32_t bits) {
    *(uint32_t *)to = bits;
}

static __device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
#include "mma_emulated.h" /* tests/emulated/include */
#endif
