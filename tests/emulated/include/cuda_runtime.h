/* What nvcc would know by itself, for kernels that g++ compiles for the emulated GPU. */
#pragma once
#include "tests/emulated/emulated.h"
#ifdef __cplusplus

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector_functions.h>

#undef __launch_bounds__
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __forceinline__
#undef __grid_constant__
#undef __noinline__
#define __launch_bounds__(...)
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define warpSize 32
#define __noinline__ __attribute__((noinline))
#define __grid_constant__

using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;

/* ---- launches ---- */
template <typename... P> struct emulated_args;
template <> struct emulated_args<> {
    void set() {
    }
    void pointers(emulated_kernel *) const {
    }
    template <typename F, typename... Before> void call(F kernel, const Before &...before) const {
        kernel(before...);
    }
};
template <typename P, typename... Rest> struct emulated_args<P, Rest...> {
    alignas(P) unsigned char bytes[sizeof(P)];
    emulated_args<Rest...> rest;
    void set(P first, Rest... others) {
        static_assert(std::is_trivially_copyable<P>::value, "a kernel's argument is copied byte by byte");
        memcpy(bytes, &first, sizeof first);
        rest.set(others...);
    }
    void pointers(emulated_kernel *k) const {
        if constexpr (std::is_pointer<P>::value)
            if (k->pointers < EMULATED_POINTERS) memcpy(&k->pointer[k->pointers++], bytes, sizeof(void *));
        rest.pointers(k);
    }
    template <typename F, typename... Before> void call(F kernel, const Before &...before) const {
        P mine;
        memcpy(static_cast<void *>(&mine), bytes, sizeof mine);
        rest.call(kernel, before..., mine);
    }
};
template <typename... P> struct emulated_closure {
    void (*kernel)(P...);
    emulated_args<P...> args;
    static void run(const void *closure) {
        const emulated_closure *c = static_cast<const emulated_closure *>(closure);
        c->args.call(c->kernel);
    }
};
struct emulated_extent {
    uint3 size;
    bool too_large = false;
    emulated_extent(dim3 d) : size{d.x, d.y, d.z} {
    }
    template <typename I, typename = std::enable_if_t<std::is_convertible<I, int64_t>::value>>
    emulated_extent(I n)
        : size{static_cast<unsigned>(n), 1, 1}, too_large(static_cast<uint64_t>(static_cast<int64_t>(n)) > UINT32_MAX) {
    }
};
template <typename... P, typename... A>
static inline void emulated_launch_typed(const char *name, void (*kernel)(P...), emulated_extent blocks,
                                         emulated_extent threads, size_t shared, cudaStream_t stream, A... args) {
    emulated_closure<P...> closure;
    closure.kernel = kernel;
    closure.args.set(static_cast<P>(args)...);
    emulated_kernel k = {};
    k.name = name;
    k.entry = reinterpret_cast<const void *>(kernel);
    k.run = emulated_closure<P...>::run;
    k.blocks = blocks.size;
    k.threads = threads.size;
    k.too_large = blocks.too_large || threads.too_large;
    k.shared = shared;
    closure.args.pointers(&k);
    emulated_launch_kernel(&k, stream, &closure, sizeof closure);
}
template <typename F, typename... A>
static inline void emulated_launch(const char *name, F kernel, emulated_extent blocks, emulated_extent threads,
                                   size_t shared, cudaStream_t stream, A... args) {
    emulated_launch_typed(name, kernel, blocks, threads, shared, stream, args...);
}
#define LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                     \
    emulated_launch(#kernel " of " __FILE__, kernel, blocks, threads, shared_bytes, stream, ##__VA_ARGS__)
#define SHARED(type, name, dims)                                                                                       \
    static const emulated_site name##_site = {#name};                                                                  \
    type(&name) dims = *static_cast<type(*) dims>(emulated_shared(&name##_site, sizeof(type dims)))
#define SHARED_BYTES(name) unsigned char *const name = static_cast<unsigned char *>(emulated_shared(nullptr, 0))

template <typename F>
static inline cudaError_t cudaFuncSetAttribute(F *kernel, enum cudaFuncAttribute attr, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attr, value);
}
template <typename F> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *to, F *kernel) {
    return cudaFuncGetAttributes(to, reinterpret_cast<const void *>(kernel));
}

/* ---- meetings of threads ---- */
#define __syncthreads() ((void)emulated_meet_block(0, __FILE__, __LINE__))
#define __syncthreads_count(p) emulated_meet_block((p) ? 1 : 0, __FILE__, __LINE__)
#define __syncthreads_or(p) (emulated_meet_block((p) ? 1 : 0, __FILE__, __LINE__) > 0)
#define __syncthreads_and(p) (emulated_meet_block((p) ? 0 : 1, __FILE__, __LINE__) == 0)
#define __activemask() emulated_active()

static inline void __syncwarp(unsigned mask = 0xffffffffu, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    emulated_meet_warp(MEET_WARP, mask, 0, 0, 0, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int yes, const char *file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
    return static_cast<unsigned>(emulated_meet_warp(MEET_BALLOT, mask, yes != 0, 0, 0, file, line));
}
static inline int __any_sync(unsigned mask, int yes, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return __ballot_sync(mask, yes, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int yes, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return __ballot_sync(mask, !yes, file, line) == 0;
}
template <typename T> static inline T emulated_shuffle(unsigned mask, T value, int source, const char *file, int line) {
    static_assert(sizeof(T) <= 8, "it fits no shuffle");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulated_meet_warp(MEET_SHUFFLE, mask, 0, bits, source, file, line);
    memcpy(static_cast<void *>(&value), &bits, sizeof value);
    return value;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, const char *file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
    int lane = static_cast<int>(emulated_lane());
    return emulated_shuffle(mask, value, (lane & ~(width - 1)) | (from & (width - 1)), file, line);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                               const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    int lane = static_cast<int>(emulated_lane()), from = lane - static_cast<int>(delta);
    return emulated_shuffle(mask, value, from < (lane & ~(width - 1)) ? lane : from, file, line);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                 const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    int lane = static_cast<int>(emulated_lane()), from = lane + static_cast<int>(delta);
    return emulated_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from, file, line);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, const char *file = __builtin_FILE(),
                                int line = __builtin_LINE()) {
    int lane = static_cast<int>(emulated_lane()), from = lane ^ with;
    return emulated_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from, file, line);
}

#include "tests/emulated/include/intrinsics.h"
#endif
