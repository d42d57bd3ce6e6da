/* The largest or the mean of each window, and the gradient: an element of dx gathers from the windows that hold it, in
 * their order, so that sums have one order. Images lie channels last (a thread takes V channels of a place), or plain
 * (one channel). A block row is a row of places of one image, and of one channel where they are plain. */
#include "engine/device/cuda/channels.h"

/* Where a thread works: row of the image (or plane), place in the row, first channel of its vector. */
struct spot {
    int64_t image; /* or plane */
    int y, x;
    int64_t channel; /* plain: 0 */
};

static __device__ __forceinline__ struct spot spot_of(int64_t row, int64_t k, int height, int vectors, int v) {
    struct spot s;
    s.image = row / height, s.y = (int)(row % height);
    s.x = (int)(k / vectors), s.channel = k % vectors * v;
    return s;
}

/* Rows of places, and threads along one. */
#define EACH_SPOT(row, k, rows, count)                                                                                 \
    for (int64_t row = blockIdx.y; row < (rows); row += gridDim.y)                                                     \
        for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < (count);                                  \
             k += (int64_t)gridDim.x * blockDim.x)

struct sizes {
    struct pool_launch l;
    int64_t images, c; /* plain: planes of one channel */
};

template <typename X, typename T, typename I, int V>
static __global__ void forward_kernel(struct sizes s, const X *__restrict__ x, T *__restrict__ y,
                                      I *__restrict__ from) {
    const struct pool_launch &l = s.l;
    int vectors = (int)(s.c / V);
    float share = 1 / ((float)l.kernel[0] * (float)l.kernel[1]);
    EACH_SPOT(row, k, s.images * l.y[0], (int64_t)l.y[1] * vectors) {
        struct spot at = spot_of(row, k, l.y[0], vectors, V);
        int y0 = at.y * l.stride[0] - l.pad[0], x0 = at.x * l.stride[1] - l.pad[1];
        float best[V], v[V];
        I place[V];
        bool none = true;
        for (int i = 0; i < V; i++) best[i] = 0, place[i] = 0;
        for (int iy = max(y0, 0); iy < min(y0 + l.kernel[0], l.x[0]); iy++)
            for (int ix = max(x0, 0); ix < min(x0 + l.kernel[1], l.x[1]); ix++) {
                load<X, V>(x + ((at.image * l.x[0] + iy) * l.x[1] + ix) * s.c + at.channel, v);
                I here = (I)((iy - y0) * l.kernel[1] + ix - x0);
#pragma unroll
                for (int i = 0; i < V; i++) {
                    if (!l.max)
                        best[i] += v[i];
                    else if (none || v[i] > best[i] || v[i] != v[i]) /* as plain C: a NaN wins */
                        best[i] = v[i], place[i] = here;
                }
                none = false;
            }
        for (int i = 0; i < V && !l.max; i++) best[i] *= share;
        int64_t to = (row * l.y[1] + at.x) * s.c + at.channel;
        store<T, V>(y + to, best);
        if (from)
            for (int i = 0; i < V; i++) from[to + i] = place[i];
    }
}

/* The first window that holds place p of an axis, and the one after the last. */
static __device__ __forceinline__ int first_window(int p, int kernel, int stride, int pad) {
    int off = p + pad - kernel + 1;
    return off <= 0 ? 0 : (off + stride - 1) / stride;
}
static __device__ __forceinline__ int last_window(int p, int stride, int pad, int windows) {
    return min((p + pad) / stride + 1, windows);
}

template <typename T, typename I, int V>
static __global__ void backward_kernel(struct sizes s, const T *__restrict__ dy, const I *__restrict__ from,
                                       T *__restrict__ dx) {
    const struct pool_launch &l = s.l;
    int vectors = (int)(s.c / V);
    float share = 1 / ((float)l.kernel[0] * (float)l.kernel[1]);
    EACH_SPOT(row, k, s.images * l.x[0], (int64_t)l.x[1] * vectors) {
        struct spot at = spot_of(row, k, l.x[0], vectors, V);
        int top = first_window(at.y, l.kernel[0], l.stride[0], l.pad[0]);
        int bottom = last_window(at.y, l.stride[0], l.pad[0], l.y[0]);
        int left = first_window(at.x, l.kernel[1], l.stride[1], l.pad[1]);
        int right = last_window(at.x, l.stride[1], l.pad[1], l.y[1]);
        float sum[V] = {0}, g[V];
        for (int oy = top; oy < bottom; oy++)
            for (int ox = left; ox < right; ox++) {
                int64_t to = ((at.image * l.y[0] + oy) * l.y[1] + ox) * s.c + at.channel;
                int ky = at.y + l.pad[0] - oy * l.stride[0], kx = at.x + l.pad[1] - ox * l.stride[1];
                load<T, V>(dy + to, g);
#pragma unroll
                for (int i = 0; i < V; i++)
                    if (!l.max)
                        sum[i] += g[i] * share;
                    else if (from[to + i] == (I)(ky * l.kernel[1] + kx))
                        sum[i] += g[i];
            }
        store<T, V>(dx + (row * l.x[1] + at.x) * s.c + at.channel, sum);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
static struct sizes sizes_of(const struct pool_launch *l) {
    struct sizes s = {*l, l->last ? l->n : l->n * l->c, l->last ? l->c : 1};
    return s;
}
static dim3 spots_grid(int64_t rows, int64_t count, int threads) {
    int64_t blocks = (count + threads - 1) / threads;
    return dim3((unsigned)blocks, (unsigned)(rows < 32768 ? rows : 32768));
}
/* Narrow rows do not fill a wide block. */
static int spots_threads(int64_t count) {
    int threads = 32;
    while (threads < 256 && threads < count) threads *= 2;
    return threads;
}

template <bool FORWARD, typename X, typename T, typename I, int V>
static cudaError_t run(const struct pool_launch *l, cudaStream_t stream) {
    struct sizes s = sizes_of(l);
    const int *side = FORWARD ? l->y : l->x;
    int64_t rows = s.images * side[0], count = (int64_t)side[1] * (s.c / V);
    int threads = spots_threads(count);
    dim3 grid = spots_grid(rows, count, threads);
    auto *forward = forward_kernel<X, T, I, V>;
    auto *backward = backward_kernel<T, I, V>;
    if (FORWARD)
        LAUNCH(forward, grid, threads, 0, stream, s, (const X *)l->in, (T *)l->out, (I *)l->from);
    else
        LAUNCH(backward, grid, threads, 0, stream, s, (const T *)l->in, (const I *)l->from, (T *)l->out);
    return cudaGetLastError();
}

/* By what holds a place of a window, and how many channels a thread takes. */
template <bool FORWARD, typename X, typename T>
static cudaError_t run_sized(const struct pool_launch *l, cudaStream_t stream) {
    enum { V = pack_of<T>::COUNT };
    bool many = l->last && l->c % V == 0;
    if ((int64_t)l->kernel[0] * l->kernel[1] <= 256)
        return (many ? run<FORWARD, X, T, uint8_t, V> : run<FORWARD, X, T, uint8_t, 1>)(l, stream);
    return (many ? run<FORWARD, X, T, uint16_t, V> : run<FORWARD, X, T, uint16_t, 1>)(l, stream);
}
template <typename X, typename T> static cudaError_t forward_of(const struct pool_launch *l, cudaStream_t stream) {
    return run_sized<true, X, T>(l, stream);
}
template <typename T> static cudaError_t backward_of(const struct pool_launch *l, cudaStream_t stream) {
    return run_sized<false, T, T>(l, stream);
}

cudaError_t pool_forward_launch(const struct pool_launch *l, cudaStream_t stream) {
    return BY_TYPES(l->x_type, l->type, forward_of, l, stream);
}

cudaError_t pool_backward_launch(const struct pool_launch *l, cudaStream_t stream) {
    return BY_TYPE(l->type, backward_of, l, stream);
}
