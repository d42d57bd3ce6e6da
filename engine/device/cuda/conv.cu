/* Around cuDNN's convolutions: filters into its order and their gradients back, bias, relu, and the bias' gradient. */
#include "engine/device/cuda/channels.h"

/* ---- filters -------------------------------------------------------------------------------- */
template <typename T>
static __global__ void filter_last(const float *w, T *to, int64_t count, int64_t in, int64_t area) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += step) {
        int64_t c = k % in, place = k / in % area, o = k / in / area;
        to[k] = from_float<T>(w[(o * in + c) * area + place]);
    }
}

template <typename T>
static __global__ void filter_plain(const T *from, float *w, int64_t count, int64_t in, int64_t area) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += step) {
        int64_t place = k % area, c = k / area % in, o = k / area / in;
        w[k] = to_float(from[(o * area + place) * in + c]);
    }
}

static unsigned blocks_for(int64_t count) {
    int64_t blocks = (count + 255) / 256;
    return (unsigned)(blocks < 65536 ? blocks : 65536);
}

template <typename T>
static cudaError_t to_last(const float *w, void *to, int64_t count, int64_t in, int64_t area, cudaStream_t stream) {
    auto *kernel = filter_last<T>;
    LAUNCH(kernel, blocks_for(count), 256, 0, stream, w, (T *)to, count, in, area);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t to_plain(const void *from, float *w, int64_t count, int64_t in, int64_t area, cudaStream_t stream) {
    auto *kernel = filter_plain<T>;
    LAUNCH(kernel, blocks_for(count), 256, 0, stream, (const T *)from, w, count, in, area);
    return cudaGetLastError();
}

cudaError_t filter_last_launch(enum value v, const float *w, void *to, int64_t out, int64_t in, int64_t area,
                               cudaStream_t stream) {
    int64_t count = out * in * area;
    if (v == VALUE_BF16) return to_last<__nv_bfloat16>(w, to, count, in, area, stream);
    if (v == VALUE_FP16) return to_last<__half>(w, to, count, in, area, stream);
    return to_last<float>(w, to, count, in, area, stream);
}

cudaError_t filter_plain_launch(enum value v, const void *from, float *w, int64_t out, int64_t in, int64_t area,
                                cudaStream_t stream) {
    int64_t count = out * in * area;
    if (v == VALUE_BF16) return to_plain<__nv_bfloat16>(from, w, count, in, area, stream);
    if (v == VALUE_FP16) return to_plain<__half>(from, w, count, in, area, stream);
    return to_plain<float>(from, w, count, in, area, stream);
}

/* ---- bias and relu -------------------------------------------------------------------------- */
template <typename T, int V>
static __global__ void finish_kernel(struct channels_cut c, T *y, const float *bias, bool relu) {
    struct column k = column_of(c);
    float b[V] = {0}, v[V];
    if (!k.inside) return;
    if (bias) load<float, V>(bias + k.channel, b);
    int64_t step = (int64_t)gridDim.y * c.high;
    for (int64_t row = (int64_t)blockIdx.y * c.high + k.row; row < c.rows; row += step) {
        T *at = y + row * c.channels + k.channel;
        load<T, V>(at, v);
        for (int i = 0; i < V; i++) {
            v[i] += b[i];
            if (relu && v[i] < 0) v[i] = 0; /* NaN stays NaN */
        }
        store<T, V>(at, v);
    }
}

template <typename T, int V>
static cudaError_t finish_run(const struct channels_cut *c, void *y, const float *bias, bool relu,
                              cudaStream_t stream) {
    auto *kernel = finish_kernel<T, V>;
    LAUNCH(kernel, pass_grid(c), CHANNEL_THREADS, 0, stream, *c, (T *)y, bias, relu);
    return cudaGetLastError();
}

cudaError_t conv_finish_launch(enum value v, const struct channels_cut *c, void *y, const float *bias, bool relu,
                               cudaStream_t stream) {
    bool one = c->vector == 1;
    if (v == VALUE_BF16)
        return (one ? finish_run<__nv_bfloat16, 1> : finish_run<__nv_bfloat16, 8>)(c, y, bias, relu, stream);
    if (v == VALUE_FP16) return (one ? finish_run<__half, 1> : finish_run<__half, 8>)(c, y, bias, relu, stream);
    return (one ? finish_run<float, 1> : finish_run<float, 4>)(c, y, bias, relu, stream);
}

/* ---- the gradient behind relu, and its sums ------------------------------------------------- */
template <typename T, int V>
static __global__ void gradient_kernel(struct channels_cut c, const T *__restrict__ y, const T *__restrict__ dy,
                                       T *__restrict__ dz, float *part) {
    SHARED_BYTES(shared);
    struct column k = column_of(c);
    float sum[V] = {0}, out[V], g[V];
    int64_t end = min(c.rows, (blockIdx.y + (int64_t)1) * c.part);
#pragma unroll 4
    for (int64_t row = blockIdx.y * c.part + k.row; k.inside && row < end; row += c.high) {
        int64_t at = row * c.channels + k.channel;
        load<T, V>(dy + at, g);
        if (dz) {
            load<T, V>(y + at, out);
            for (int i = 0; i < V; i++) g[i] = out[i] > 0 ? g[i] : 0;
            store<T, V>(dz + at, g);
        }
        for (int i = 0; i < V; i++) sum[i] += g[i];
    }
    if (part) part_keep<V>(c, k, sum, (float *)shared, part);
}

static __global__ void bias_kernel(struct channels_cut c, const float *part, float *db) {
    int64_t channel = channel_of_warp();
    if (channel >= c.channels) return;
    double sum = parts_sum(part + channel * c.parts, c.parts);
    if (threadIdx.x % 32 == 0) db[channel] = (float)sum;
}

template <typename T, int V>
static void gradient_run(const struct channels_cut *c, const void *y, const void *dy, void *dz, float *part,
                         cudaStream_t stream) {
    auto *kernel = gradient_kernel<T, V>;
    LAUNCH(kernel, columns_grid(c, c->parts), CHANNEL_THREADS, CHANNEL_THREADS * V * sizeof(float), stream, *c,
           (const T *)y, (const T *)dy, (T *)dz, part);
}

cudaError_t conv_gradient_launch(enum value v, const struct channels_cut *c, const void *y, const void *dy, void *dz,
                                 float *part, float *db, cudaStream_t stream) {
    bool one = c->vector == 1;
    float *kept = db ? part : NULL;
    if (v == VALUE_BF16)
        (one ? gradient_run<__nv_bfloat16, 1> : gradient_run<__nv_bfloat16, 8>)(c, y, dy, dz, kept, stream);
    else if (v == VALUE_FP16)
        (one ? gradient_run<__half, 1> : gradient_run<__half, 8>)(c, y, dy, dz, kept, stream);
    else
        (one ? gradient_run<float, 1> : gradient_run<float, 4>)(c, y, dy, dz, kept, stream);
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess || !db) return err;
    LAUNCH(bias_kernel, warps_grid(c), 32 * CHANNELS_A_BLOCK, 0, stream, *c, (const float *)part, db);
    return cudaGetLastError();
}
