/* mma.h by lanes that meet. Written from the tables of the PTX manual, not from what our kernels expect. */
#pragma once
#include <math.h>
#include <string.h>

enum { EMULATED_WARPS = 8 }; /* of a block that uses these */

static inline unsigned emulated_thread(void) {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

template <typename T> __device__ __forceinline__ uint32_t pack_pair(float low, float high) {
    T pair[2] = {from_float<T>(low), from_float<T>(high)};
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

/* Element e (0: low half) of a register. */
template <typename T> static inline float emulated_element(uint32_t reg, int e) {
    T pair[2];
    memcpy((void *)pair, &reg, sizeof pair);
    return to_float(pair[e]);
}

/* The factors of each warp's product: of the emulation itself, so that no access of them is looked at. */
#define EMULATED_OWN __attribute__((noinline, no_sanitize("thread")))
struct emulated_factors {
    float a[16][16], b[16][8];
};
inline emulated_factors *emulated_factors_of(unsigned warp) {
    static thread_local emulated_factors all[EMULATED_WARPS]; /* a block is one thread's fibers */
    return &all[warp];
}

/* A's element i of eight sits at row g + 8 of the registers 1 and 3, else g; its column is 2 t + i % 2, + 8 from the
 * fifth on. B's element i of four: row 2 t + i % 2, + 8 from the third on; column g. */
template <typename T>
EMULATED_OWN static void emulated_put(emulated_factors *f, unsigned lane, const uint32_t *a, const uint32_t *b) {
    unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 8; i++)
        f->a[i / 2 % 2 ? g + 8 : g][t * 2 + i % 2 + (i < 4 ? 0 : 8)] = emulated_element<T>(a[i / 2], i % 2);
    for (unsigned i = 0; i < 4; i++) f->b[t * 2 + i % 2 + (i < 2 ? 0 : 8)][g] = emulated_element<T>(b[i / 2], i % 2);
}

/* Row g of the first two, g + 8; column 2 t + i % 2. */
EMULATED_OWN static inline void emulated_product(const emulated_factors *f, unsigned lane, float *c) {
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++) c[i] += f->a[lane / 4 + (i < 2 ? 0 : 8)][k] * f->b[k][lane % 4 * 2 + i % 2];
}

template <typename T>
__device__ __forceinline__ void mma_16816(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4],
                                          uint32_t b0, uint32_t b1) {
    unsigned lane = emulated_thread() % 32;
    emulated_factors *f = emulated_factors_of(emulated_thread() / 32);
    const uint32_t b[2] = {b0, b1};
    float c[4] = {c0, c1, c2, c3};
    emulated_put<T>(f, lane, a, b);
    __syncwarp();
    emulated_product(f, lane, c);
    __syncwarp(); /* before anyone puts the next factors there */
    c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
}

static inline void emulated_ldmatrix(uint32_t (&to)[4], const void *row, bool transposed) {
    static thread_local const uint16_t *rows[EMULATED_WARPS][32];
    unsigned warp = emulated_thread() / 32, lane = emulated_thread() % 32;
    if ((uintptr_t)row % 16) abort(); /* what a GPU calls a misaligned address */
    rows[warp][lane] = (const uint16_t *)row;
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        const uint16_t **matrix = &rows[warp][8 * i];
        unsigned r = lane / 4, c = lane % 4 * 2;
        uint32_t low = transposed ? matrix[c][r] : matrix[r][c];
        uint32_t high = transposed ? matrix[c + 1][r] : matrix[r][c + 1];
        to[i] = low | high << 16;
    }
    __syncwarp();
}

static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&to)[4], const void *row) {
    emulated_ldmatrix(to, row, false);
}

static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&to)[4], const void *row) {
    emulated_ldmatrix(to, row, true);
}

/* Copies are made when they are waited for, so that a kernel that reads too early gets what was there before. */
struct emulated_copies {
    enum { MOST = 256 };
    int count;
    struct {
        void *to;
        const void *from;
        int bytes;
        bool there;
    } copy[MOST];
};

inline emulated_copies *emulated_copies_mine(void) { /* one of all files: cp_async_wait may be any one's */
    static thread_local emulated_copies all[EMULATED_WARPS * 32];
    return &all[emulated_thread()];
}

static inline void emulated_cp_async(void *to, const void *from, int bytes, bool there) {
    emulated_copies *c = emulated_copies_mine();
    if ((uintptr_t)to % (uintptr_t)bytes || (uintptr_t)from % (uintptr_t)bytes || c->count == emulated_copies::MOST)
        abort();
    c->copy[c->count].to = to, c->copy[c->count].from = from;
    c->copy[c->count].bytes = bytes, c->copy[c->count].there = there;
    c->count++;
}

static __device__ __forceinline__ void cp_async_16(void *to, const void *from, bool there) {
    emulated_cp_async(to, from, 16, there);
}

static __device__ __forceinline__ void cp_async_4(void *to, const void *from, bool there) {
    emulated_cp_async(to, from, 4, there);
}

static __device__ __forceinline__ void cp_async_wait(void) {
    emulated_copies *c = emulated_copies_mine();
    for (int i = 0; i < c->count; i++)
        if (c->copy[i].there && c->copy[i].bytes == 16) /* known sizes: no call that a sanitizer sees */
            memcpy(c->copy[i].to, c->copy[i].from, 16);
        else if (c->copy[i].there)
            memcpy(c->copy[i].to, c->copy[i].from, 4);
        else
            memset(c->copy[i].to, 0, (size_t)c->copy[i].bytes);
    c->count = 0;
}

static __device__ __forceinline__ void copy_16(void *to, const void *from) {
    memcpy(to, from, 16);
}

static __device__ __forceinline__ void put_4(void *to, uint32_t bits) {
    memcpy(to, &bits, 4);
}

static __device__ __forceinline__ float exp2_fast(float x) {
    float y = exp2f(x);
    return y < 1.17549435e-38f ? 0 : y;
}
