/* Batchnorm over (rows, channels): a pass that finds each channel's sums and one that writes, in either direction.
 *
 * The variance comes from sums of x - s and its square, where s is the channel's first value: as near to the mean as
 * any value is, so that nothing cancels. */
#include "engine/device/cuda/channels.h"

#define ROWS_OF_PART(row)                                                                                              \
    int64_t row = blockIdx.y * c.part + k.row, end = min(c.rows, (blockIdx.y + (int64_t)1) * c.part);                  \
    k.inside &&row < end;                                                                                              \
    row += c.high
#define ROWS_OF_PASS(row)                                                                                              \
    int64_t row = (int64_t)blockIdx.y * c.high + k.row;                                                                \
    k.inside &&row < c.rows;                                                                                           \
    row += (int64_t)gridDim.y * c.high

/* ---- forward -------------------------------------------------------------------------------- */
template <typename X, int V>
static __global__ void measure_kernel(struct channels_cut c, const X *__restrict__ x, float *part) {
    SHARED_BYTES(shared);
    struct column k = column_of(c);
    float first[V] = {0}, v[V], sum[V] = {0}, square[V] = {0};
    if (k.inside) load<X, V>(x + k.channel, first);
#pragma unroll 4
    for (ROWS_OF_PART(row)) {
        load<X, V>(x + row * c.channels + k.channel, v);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float off = v[i] - first[i];
            sum[i] += off;
            square[i] += off * off;
        }
    }
    part_keep<V>(c, k, sum, (float *)shared, part);
    part_keep<V>(c, k, square, (float *)shared, part + c.channels * c.parts);
}

struct follow { /* running moments; NULL: they stay */
    float *mean, *var, momentum;
};

/* A running moment after one more batch, as on the host. */
static __device__ __forceinline__ float follow(float running, double batch, float momentum) {
    return (float)((1 - (double)momentum) * (double)running + (double)momentum * batch);
}

template <typename X>
static __global__ void moments_kernel(struct channels_cut c, const X *x, const float *part, float eps, struct follow f,
                                      float *saved) {
    int64_t channel = channel_of_warp();
    if (channel >= c.channels) return;
    double rows = (double)c.rows;
    double off = parts_sum(part + channel * c.parts, c.parts) / rows;
    double square = parts_sum(part + (c.channels + channel) * c.parts, c.parts) / rows;
    if (threadIdx.x % 32 != 0) return;
    double mean = (double)to_float(x[channel]) + off, var = square - off * off;
    if (var < 0) var = 0;
    saved[channel] = (float)mean;
    saved[c.channels + channel] = (float)(1 / sqrt(var + (double)eps));
    if (f.mean) f.mean[channel] = follow(f.mean[channel], mean, f.momentum);
    if (f.var) f.var[channel] = follow(f.var[channel], var * rows / (rows - 1), f.momentum);
}

struct moments { /* of each channel; inverse: 'second' is 1 / sqrt(var + eps), else var */
    const float *mean, *second, *w, *b;
    bool inverse;
    float eps;
};

template <typename X, typename T, int V>
static __global__ void apply_kernel(struct channels_cut c, const X *__restrict__ x, struct moments m,
                                    const T *__restrict__ joined, bool relu, T *__restrict__ y) {
    struct column k = column_of(c);
    float mean[V] = {0}, scale[V] = {0}, shift[V] = {0}, v[V], more[V] = {0};
    if (k.inside) {
        load<float, V>(m.second + k.channel, v);
        load<float, V>(m.mean + k.channel, mean);
        load<float, V>(m.w + k.channel, scale);
        load<float, V>(m.b + k.channel, shift);
    }
#pragma unroll
    for (int i = 0; i < V && k.inside; i++)
        scale[i] *= m.inverse ? v[i] : (float)(1 / sqrt((double)v[i] + (double)m.eps));
#pragma unroll 4
    for (ROWS_OF_PASS(row)) {
        int64_t at = row * c.channels + k.channel;
        load<X, V>(x + at, v);
        if (joined) load<T, V>(joined + at, more);
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[i] = (v[i] - mean[i]) * scale[i] + shift[i] + more[i];
            if (relu && v[i] < 0) v[i] = 0; /* NaN stays NaN */
        }
        store<T, V>(y + at, v);
    }
}

/* ---- backward ------------------------------------------------------------------------------- */
/* dz of V channels: dy, where y > 0 if there is a relu (else y is NULL). */
template <typename T, int V>
__device__ __forceinline__ void behind_relu(const T *y, const T *dy, int64_t at, float *dz) {
    float out[V];
    load<T, V>(dy + at, dz);
    if (!y) return;
    load<T, V>(y + at, out);
#pragma unroll
    for (int i = 0; i < V; i++) dz[i] = out[i] > 0 ? dz[i] : 0;
}

/* kept: where dz is written, which may be where dy lies, since a thread reads each element before it writes it; NULL:
 * nowhere. */
template <typename X, typename T, int V>
static __global__ void gradient_sums_kernel(struct channels_cut c, const X *__restrict__ x, const T *__restrict__ y,
                                            const T *__restrict__ dy, const float *saved, T *kept, float *part) {
    SHARED_BYTES(shared);
    struct column k = column_of(c);
    float mean[V] = {0}, v[V], dz[V], sum[V] = {0}, product[V] = {0};
    if (k.inside) load<float, V>(saved + k.channel, mean);
#pragma unroll 4
    for (ROWS_OF_PART(row)) {
        int64_t at = row * c.channels + k.channel;
        load<X, V>(x + at, v);
        behind_relu<T, V>(y, dy, at, dz);
        if (kept) store<T, V>(kept + at, dz);
#pragma unroll
        for (int i = 0; i < V; i++) {
            sum[i] += dz[i];
            product[i] += dz[i] * (v[i] - mean[i]);
        }
    }
    part_keep<V>(c, k, sum, (float *)shared, part);
    part_keep<V>(c, k, product, (float *)shared, part + c.channels * c.parts);
}

/* dx = scale (dz - shift - (x - mean) slope): line has scale, shift and slope, 'channels' of each. */
static __global__ void line_kernel(struct channels_cut c, const float *part, const float *w, const float *saved,
                                   float *dw, float *db, float *line) {
    int64_t channel = channel_of_warp();
    if (channel >= c.channels) return;
    double sum = parts_sum(part + channel * c.parts, c.parts);
    double product = parts_sum(part + (c.channels + channel) * c.parts, c.parts);
    if (threadIdx.x % 32 != 0) return;
    double r = (double)saved[c.channels + channel], rows = (double)c.rows;
    dw[channel] = (float)(product * r);
    db[channel] = (float)sum;
    line[channel] = w[channel] * (float)r;
    line[c.channels + channel] = (float)(sum / rows);
    line[2 * c.channels + channel] = (float)(product * r * r / rows);
}

template <typename T, int V>
static __global__ void gradient_kernel(struct channels_cut c, const T *__restrict__ x, const T *__restrict__ y,
                                       const T *__restrict__ dy, const float *saved, const float *line,
                                       T *__restrict__ dx) {
    struct column k = column_of(c);
    float mean[V] = {0}, scale[V] = {0}, shift[V] = {0}, slope[V] = {0}, v[V], dz[V];
    if (k.inside) {
        load<float, V>(saved + k.channel, mean);
        load<float, V>(line + k.channel, scale);
        load<float, V>(line + c.channels + k.channel, shift);
        load<float, V>(line + 2 * c.channels + k.channel, slope);
    }
#pragma unroll 2
    for (ROWS_OF_PASS(row)) {
        int64_t at = row * c.channels + k.channel;
        load<T, V>(x + at, v);
        behind_relu<T, V>(y, dy, at, dz);
#pragma unroll
        for (int i = 0; i < V; i++) dz[i] = scale[i] * (dz[i] - shift[i] - (v[i] - mean[i]) * slope[i]);
        store<T, V>(dx + at, dz);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
template <typename X, int V> static cudaError_t measure(const struct norm_launch *l, cudaStream_t stream) {
    const struct channels_cut *c = &l->cut;
    struct follow f = {l->running[0], l->running[1], l->momentum};
    auto *sums = measure_kernel<X, V>;
    auto *moments = moments_kernel<X>;
    LAUNCH(sums, columns_grid(c, c->parts), CHANNEL_THREADS, CHANNEL_THREADS * V * sizeof(float), stream, *c,
           (const X *)l->x, l->part);
    LAUNCH(moments, warps_grid(c), 32 * CHANNELS_A_BLOCK, 0, stream, *c, (const X *)l->x, (const float *)l->part,
           l->eps, f, l->saved);
    return cudaGetLastError();
}

template <typename X, typename T, int V>
static cudaError_t apply(const struct norm_launch *l, const struct moments *m, cudaStream_t stream) {
    auto *kernel = apply_kernel<X, T, V>;
    LAUNCH(kernel, pass_grid(&l->cut), CHANNEL_THREADS, 0, stream, l->cut, (const X *)l->x, *m, (const T *)l->joined,
           l->relu, (T *)l->y);
    return cudaGetLastError();
}

template <typename X, typename T, int V> static cudaError_t gradient(const struct norm_launch *l, cudaStream_t stream) {
    const struct channels_cut *c = &l->cut;
    const T *y = l->relu ? (const T *)l->y : NULL, *dy = (const T *)l->dy;
    T *kept = l->relu || l->djoined != l->dy ? (T *)l->djoined : NULL;
    auto *sums = gradient_sums_kernel<X, T, V>;
    auto *pass = gradient_kernel<T, V>;
    LAUNCH(sums, columns_grid(c, c->parts), CHANNEL_THREADS, CHANNEL_THREADS * V * sizeof(float), stream, *c,
           (const X *)l->x, y, dy, (const float *)l->saved, kept, l->part);
    if (kept) y = NULL, dy = kept; /* which is behind the relu */
    LAUNCH(line_kernel, warps_grid(c), 32 * CHANNELS_A_BLOCK, 0, stream, *c, (const float *)l->part, l->w,
           (const float *)l->saved, l->dw, l->db, l->line);
    if (l->dx) /* then x is of type T */
        LAUNCH(pass, pass_grid(c), CHANNEL_THREADS, 0, stream, *c, (const T *)l->x, y, dy, (const float *)l->saved,
               (const float *)l->line, (T *)l->dx);
    return cudaGetLastError();
}

/* For the types of l and its cut's vector. */
template <typename X, typename T> static cudaError_t measure_of(const struct norm_launch *l, cudaStream_t stream) {
    return (l->cut.vector == 1 ? measure<X, 1> : measure<X, pack_of<T>::COUNT>)(l, stream);
}
template <typename X, typename T>
static cudaError_t apply_of(const struct norm_launch *l, const struct moments *m, cudaStream_t stream) {
    return (l->cut.vector == 1 ? apply<X, T, 1> : apply<X, T, pack_of<T>::COUNT>)(l, m, stream);
}
template <typename X, typename T> static cudaError_t gradient_of(const struct norm_launch *l, cudaStream_t stream) {
    return (l->cut.vector == 1 ? gradient<X, T, 1> : gradient<X, T, pack_of<T>::COUNT>)(l, stream);
}

cudaError_t norm_measure_launch(const struct norm_launch *l, cudaStream_t stream) {
    return BY_TYPES(l->x_type, l->cut.type, measure_of, l, stream);
}

cudaError_t norm_apply_launch(const struct norm_launch *l, bool training, cudaStream_t stream) {
    struct moments m = {l->running[0], l->running[1], l->w, l->b, false, l->eps};
    if (training) m.mean = l->saved, m.second = l->saved + l->cut.channels, m.inverse = true;
    return BY_TYPES(l->x_type, l->cut.type, apply_of, l, &m, stream);
}

cudaError_t norm_gradient_launch(const struct norm_launch *l, cudaStream_t stream) {
    return BY_TYPES(l->x_type, l->cut.type, gradient_of, l, stream);
}
