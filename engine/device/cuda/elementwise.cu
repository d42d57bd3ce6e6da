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

template <typename X, typename T> struct tensors {
    const X *x[2];
    const T *y, *dy;
    T *to[2];
    int64_t n;
    bool aligned; /* all of them: run fills it in */
    float alpha;  /* the activation's */
};

template <typename X, typename T, int ACT> struct act_pack {
    enum { N = pack_of<T>::COUNT };
    template <bool WHOLE> static __device__ __forceinline__ void forward(const tensors<X, T> &c, int64_t at) {
        float v[N];
        pack_load<WHOLE, N>(c.x[0], at, c.n, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = value_of<ACT>(v[i], c.alpha);
        pack_store<WHOLE, N>(c.to[0], at, c.n, v);
    }
    template <bool WHOLE> static __device__ __forceinline__ void backward(const tensors<X, T> &c, int64_t at) {
        float x[N], v[N];
        pack_load<WHOLE, N>(c.x[0], at, c.n, 0, x);
        pack_load<WHOLE, N>(c.dy, at, c.n, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] *= slope_of<ACT>(x[i], c.alpha);
        pack_store<WHOLE, N>(c.to[0], at, c.n, v);
    }
};

template <typename X, typename T, bool RELU> struct add_pack {
    enum { N = pack_of<T>::COUNT };
    template <bool WHOLE> static __device__ __forceinline__ void forward(const tensors<X, T> &c, int64_t at) {
        float a[N], b[N];
        pack_load<WHOLE, N>(c.x[0], at, c.n, 0, a);
        pack_load<WHOLE, N>(c.x[1], at, c.n, 0, b);
#pragma unroll
        for (int i = 0; i < N; i++) a[i] = value_of<(RELU ? ACT_RELU : ACT_NONE)>(a[i] + b[i]);
        pack_store<WHOLE, N>(c.to[0], at, c.n, a);
    }
    template <bool WHOLE> static __device__ __forceinline__ void backward(const tensors<X, T> &c, int64_t at) {
        float y[N], v[N];
        pack_load<WHOLE, N>(c.dy, at, c.n, 0, v);
        if constexpr (RELU) pack_load<WHOLE, N>(c.y, at, c.n, 0, y);
#pragma unroll
        for (int i = 0; i < N && RELU; i++) v[i] = y[i] > 0 ? v[i] : 0;
        for (int side = 0; side < 2; side++)
            if (c.to[side]) pack_store<WHOLE, N>(c.to[side], at, c.n, v);
    }
};

template <typename P, typename X, typename T>
static __global__ void __launch_bounds__(THREADS) packs_forward(tensors<X, T> c) {
    FOR_PACKS(P::N, c.n, P::template forward)
}
template <typename P, typename X, typename T>
static __global__ void __launch_bounds__(THREADS) packs_backward(tensors<X, T> c) {
    FOR_PACKS(P::N, c.n, P::template backward)
}

/* ---- launchers: the kernel for an activation, then for the types ----------------------------- */
static unsigned blocks_for(int64_t n, int64_t each) {
    int64_t blocks = (n + THREADS * each - 1) / (THREADS * each);
    return (unsigned)(blocks < 1 << 30 ? blocks : 1 << 30);
}

template <typename P, typename X, typename T>
static cudaError_t run(bool forward, tensors<X, T> c, cudaStream_t stream) {
    const void *all[] = {c.x[0], c.x[1], c.y, c.dy, c.to[0], c.to[1]};
    c.aligned = true;
    for (const void *p : all) c.aligned = c.aligned && (uintptr_t)p % 16 == 0;
    void (*kernel)(tensors<X, T>) = forward ? packs_forward<P, X, T> : packs_backward<P, X, T>;
    LAUNCH(kernel, blocks_for(c.n, P::N), THREADS, 0, stream, c);
    return cudaGetLastError();
}

template <typename X, typename T>
static cudaError_t run_act(enum activation act, bool forward, const tensors<X, T> &c, cudaStream_t stream) {
    switch (act) {
#define GPU(NAME, value, slope)                                                                                        \
    case ACT_##NAME:                                                                                                   \
        return run<act_pack<X, T, ACT_##NAME>>(forward, c, stream);
#include "engine/device/activations.def"
    }
    return cudaErrorInvalidValue;
}

template <typename X, typename T>
static cudaError_t act_of(enum activation act, float alpha, const void *x, void *y, int64_t n, cudaStream_t stream) {
    const tensors<X, T> c = {{(const X *)x, NULL}, NULL, NULL, {(T *)y, NULL}, n, false, alpha};
    return run_act(act, true, c, stream);
}
template <typename T>
static cudaError_t act_back_of(enum activation act, float alpha, const void *x, const void *dy, void *dx, int64_t n,
                               cudaStream_t stream) {
    const tensors<T, T> c = {{(const T *)x, NULL}, NULL, (const T *)dy, {(T *)dx, NULL}, n, false, alpha};
    return run_act(act, false, c, stream);
}
template <typename X, typename T>
static cudaError_t add_of(bool relu, const void *x0, const void *x1, void *y, int64_t n, cudaStream_t stream) {
    const tensors<X, T> c = {{(const X *)x0, (const X *)x1}, NULL, NULL, {(T *)y, NULL}, n, false, 0};
    return relu ? run<add_pack<X, T, true>>(true, c, stream) : run<add_pack<X, T, false>>(true, c, stream);
}
template <typename T>
static cudaError_t add_back_of(bool relu, const void *y, const void *dy, void *dx0, void *dx1, int64_t n,
                               cudaStream_t stream) {
    const tensors<T, T> c = {{NULL, NULL}, (const T *)y, (const T *)dy, {(T *)dx0, (T *)dx1}, n, false, 0};
    return relu ? run<add_pack<T, T, true>>(false, c, stream) : run<add_pack<T, T, false>>(false, c, stream);
}

extern "C" cudaError_t act_launch(enum activation act, float alpha, enum element x_type, enum element type,
                                  const void *x, void *y, int64_t n, cudaStream_t stream) {
    return BY_TYPES(x_type, type, act_of, act, alpha, x, y, n, stream);
}
extern "C" cudaError_t act_back_launch(enum activation act, float alpha, enum element type, const void *x,
                                       const void *dy, void *dx, int64_t n, cudaStream_t stream) {
    return BY_TYPE(type, act_back_of, act, alpha, x, dy, dx, n, stream);
}
extern "C" cudaError_t add_launch(bool relu, enum element x_type, enum element type, const void *x0, const void *x1,
                                  void *y, int64_t n, cudaStream_t stream) {
    return BY_TYPES(x_type, type, add_of, relu, x0, x1, y, n, stream);
}
extern "C" cudaError_t add_back_launch(bool relu, enum element type, const void *y, const void *dy, void *dx0,
                                       void *dx1, int64_t n, cudaStream_t stream) {
    return BY_TYPE(type, add_back_of, relu, y, dy, dx0, dx1, n, stream);
}
