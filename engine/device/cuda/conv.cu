/* Around cuDNN's convolutions: bias, relu, and the bias' gradient. */
#include "engine/device/cuda/channels.h"

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

cudaError_t conv_finish_launch(const struct channels_cut *c, void *y, const float *bias, bool relu,
                               cudaStream_t stream) {
    return BY_CUT(c, finish_run, c, y, bias, relu, stream);
}

/* ---- the gradient before relu, and its sums ------------------------------------------------- */
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
static cudaError_t gradient_run(const struct channels_cut *c, const struct conv_gradient *g, cudaStream_t stream) {
    auto *kernel = gradient_kernel<T, V>;
    LAUNCH(kernel, columns_grid(c, c->parts), CHANNEL_THREADS, CHANNEL_THREADS * V * sizeof(float), stream, *c,
           (const T *)g->y, (const T *)g->dy, (T *)g->dz, g->db ? g->part : NULL);
    return cudaGetLastError();
}

cudaError_t conv_gradient_launch(const struct channels_cut *c, const struct conv_gradient *g, cudaStream_t stream) {
    cudaError_t err = BY_CUT(c, gradient_run, c, g, stream);
    if (err != cudaSuccess || !g->db) return err;
    LAUNCH(bias_kernel, warps_grid(c), 32 * CHANNELS_A_BLOCK, 0, stream, *c, (const float *)g->part, g->db);
    return cudaGetLastError();
}
