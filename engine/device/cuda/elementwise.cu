/* Activations and add: a pack a thread. What is written may lie where something is read, element by element. */
#include "engine/device/cuda/activation.h"
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/elementwise_launch.h"
#include "engine/device/cuda/pack.h"

enum { THREADS = 256 };

/* ---- kernels -------------------------------------------------------------------------------- */
/* For each pack of n elements that is this thread's; 'with' is run on WHOLE packs, and on the rest. */
#define FOR_PACKS(N, n, with)                                                                                          \
    for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * (N); at < (n);                                   \
         at += (int64_t)gridDim.x * THREADS * (N)) {                                                                   \
        if (c.aligned && at + (N) <= (n))                                                                              \
            with<true>(c, at);                                                                                         \
        else                                                                                                           \
            with<false>(c, at);                                                                                        \
    }

template <typename X, typename T, int ACT> struct act_pack {
    enum { N = pack_of<T>::COUNT };
    template <bool WHOLE> static __device__ __forceinline__ void forward(const elements &c, int64_t at) {
        float v[N];
        pack_load<WHOLE, N>((const X *)c.x[0], at, c.n, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = value_of<ACT>(v[i], c.alpha);
        pack_store<WHOLE, N>((T *)c.to[0], at, c.n, v);
    }
    template <bool WHOLE> static __device__ __forceinline__ void backward(const elements &c, int64_t at) {
        float x[N], v[N];
        pack_load<WHOLE, N>((const X *)c.x[0], at, c.n, 0, x);
        pack_load<WHOLE, N>((const T *)c.dy, at, c.n, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] *= slope_of<ACT>(x[i], c.alpha);
        pack_store<WHOLE, N>((T *)c.to[0], at, c.n, v);
    }
};

template <typename X, typename T, bool RELU> struct add_pack {
    enum { N = pack_of<T>::COUNT };
    template <bool WHOLE> static __device__ __forceinline__ void forward(const elements &c, int64_t at) {
        float a[N], b[N];
        pack_load<WHOLE, N>((const X *)c.x[0], at, c.n, 0, a);
        pack_load<WHOLE, N>((const X *)c.x[1], at, c.n, 0, b);
#pragma unroll
        for (int i = 0; i < N; i++) a[i] = value_of<(RELU ? ACT_RELU : ACT_NONE)>(a[i] + b[i]);
        pack_store<WHOLE, N>((T *)c.to[0], at, c.n, a);
    }
    template <bool WHOLE> static __device__ __forceinline__ void backward(const elements &c, int64_t at) {
        float y[N], v[N];
        pack_load<WHOLE, N>((const T *)c.dy, at, c.n, 0, v);
        if constexpr (RELU) pack_load<WHOLE, N>((const T *)c.y, at, c.n, 0, y);
#pragma unroll
        for (int i = 0; i < N && RELU; i++) v[i] = y[i] > 0 ? v[i] : 0;
        for (int side = 0; side < 2; side++)
            if (c.to[side]) pack_store<WHOLE, N>((T *)c.to[side], at, c.n, v);
    }
};

template <typename P> static __global__ void __launch_bounds__(THREADS) packs_forward(elements c) {
    FOR_PACKS(P::N, c.n, P::template forward)
}
template <typename P> static __global__ void __launch_bounds__(THREADS) packs_backward(elements c) {
    FOR_PACKS(P::N, c.n, P::template backward)
}

/* ---- launchers: the kernel for an activation, then for the types ----------------------------- */
static unsigned blocks_for(int64_t n, int64_t each) {
    int64_t blocks = (n + THREADS * each - 1) / (THREADS * each);
    return (unsigned)(blocks < 1 << 30 ? blocks : 1 << 30);
}

template <typename P> static cudaError_t run(bool forward, const elements *e, cudaStream_t stream) {
    elements c = *e;
    const void *all[] = {c.x[0], c.x[1], c.y, c.dy, c.to[0], c.to[1]};
    c.aligned = true;
    for (const void *p : all) c.aligned = c.aligned && (uintptr_t)p % 16 == 0;
    void (*kernel)(elements) = forward ? packs_forward<P> : packs_backward<P>;
    LAUNCH(kernel, blocks_for(c.n, P::N), THREADS, 0, stream, c);
    return cudaGetLastError();
}

template <typename X, typename T> static cudaError_t act_of(bool forward, const elements *e, cudaStream_t stream) {
    switch (e->act) {
#define GPU(NAME, value, slope)                                                                                        \
    case ACT_##NAME:                                                                                                   \
        return run<act_pack<X, T, ACT_##NAME>>(forward, e, stream);
#include "engine/device/activations.def"
    }
    return cudaErrorInvalidValue;
}

template <typename X, typename T> static cudaError_t add_of(bool forward, const elements *e, cudaStream_t stream) {
    return (e->act == ACT_RELU ? run<add_pack<X, T, true>> : run<add_pack<X, T, false>>)(forward, e, stream);
}

template <typename T> static cudaError_t act_back_of(const elements *e, cudaStream_t stream) {
    return act_of<T, T>(false, e, stream);
}
template <typename T> static cudaError_t add_back_of(const elements *e, cudaStream_t stream) {
    return add_of<T, T>(false, e, stream);
}

extern "C" cudaError_t act_launch(const elements *e, cudaStream_t stream) {
    return BY_TYPES(e->x_type, e->type, act_of, true, e, stream);
}
extern "C" cudaError_t act_back_launch(const elements *e, cudaStream_t stream) {
    return BY_TYPE(e->type, act_back_of, e, stream);
}
extern "C" cudaError_t add_launch(const elements *e, cudaStream_t stream) {
    return BY_TYPES(e->x_type, e->type, add_of, true, e, stream);
}
extern "C" cudaError_t add_back_launch(const elements *e, cudaStream_t stream) {
    return BY_TYPE(e->type, add_back_of, e, stream);
}
