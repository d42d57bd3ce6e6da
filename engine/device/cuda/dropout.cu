/* Dropout: four elements a draw, as engine/base/rng.h draws them. */
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/elementwise_launch.h"
#include "engine/device/cuda/pack.h"

#define PHILOX_FUNCTION static __device__ __forceinline__
#include "engine/base/philox.h"

enum { THREADS = 128, DRAW = 4, SAMPLES_MOST = 65535 };

static __device__ __forceinline__ float keep(uint32_t word, const dropout_call &c, float v) {
    return (float)(word >> 8) * 0x1p-24f >= c.p ? v * c.grow : 0;
}

/* Samples of whole packs. */
template <typename X, typename T>
static __global__ void __launch_bounds__(THREADS) dropout_packs(dropout_call c, const X *from, T *to) {
    enum { N = pack_of<T>::COUNT };
    for (int64_t s = blockIdx.y; s < c.n; s += gridDim.y)
        for (int64_t e = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; e < c.each;
             e += (int64_t)gridDim.x * THREADS * N) {
            float v[N];
            pack_load<true, N>(from + s * c.each, e, c.each, 0, v);
#pragma unroll
            for (int i = 0; i < N; i += DRAW) {
                uint32_t words[DRAW];
                philox_words(c.key, c.ids[s], c.stream | (uint64_t)(e + i) / DRAW, words);
#pragma unroll
                for (int k = 0; k < DRAW; k++) v[i + k] = keep(words[k], c, v[i + k]);
            }
            pack_store<true, N>(to + s * c.each, e, c.each, v);
        }
}

/* Any samples, in either layout. */
template <typename X, typename T>
static __global__ void __launch_bounds__(THREADS) dropout_any(dropout_call c, const X *from, T *to) {
    int64_t area = c.each / c.channels;
    for (int64_t s = blockIdx.y; s < c.n; s += gridDim.y)
        for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < c.each; k += (int64_t)gridDim.x * THREADS) {
            int64_t e = c.channels > 1 ? k % c.channels * area + k / c.channels : k;
            uint32_t words[DRAW];
            philox_words(c.key, c.ids[s], c.stream | (uint64_t)e / DRAW, words);
            uint32_t word = e % 4 < 2 ? (e % 4 ? words[1] : words[0]) : (e % 4 == 2 ? words[2] : words[3]);
            to[s * c.each + k] = from_float<T>(keep(word, c, to_float(from[s * c.each + k])));
        }
}

template <typename X, typename T> static cudaError_t dropout_of(const struct dropout_call *c, cudaStream_t stream) {
    const X *from = (const X *)c->from;
    T *to = (T *)c->to;
    bool packs = c->channels <= 1 && packs_whole<T>(from, c->each) && packs_whole<T>(to, c->each);
    void (*kernel)(dropout_call, const X *, T *) = packs ? dropout_packs<X, T> : dropout_any<X, T>;
    int64_t each = THREADS * (packs ? pack_of<T>::COUNT : 1), wide = (c->each + each - 1) / each;
    dim3 blocks((unsigned)(wide < 1 << 30 ? wide : 1 << 30),
                (unsigned)(c->n < SAMPLES_MOST ? c->n : (int64_t)SAMPLES_MOST));
    LAUNCH(kernel, blocks, THREADS, 0, stream, *c, from, to);
    return cudaGetLastError();
}

extern "C" cudaError_t dropout_launch(const struct dropout_call *c, cudaStream_t stream) {
    return BY_TYPES(c->from_type, c->type, dropout_of, c, stream);
}
