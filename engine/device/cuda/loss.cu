/* Cross-entropy, mean squared error and binary cross-entropy: a row is a block's, or a warp's where it is short. What the rows give is then
 * added up by one block, in an order that their number alone decides.
 *
 * Cross-entropy keeps no probabilities: each thread has the largest of what it has read, and the sum of e^(x - largest);
 * two such pairs make one. The gradient comes from the row's pair and from x once more: where forward is given dx, the
 * same block finds it at once, from the row's end to its beginning, since that end is what the cache still holds. Blocks
 * of ROW_THREADS are so large that the rows which a GPU has in work, two or three to a multiprocessor, all fit in its cache
 * at 50,000 classes, and so many that one row is read while another is added up. */
#include "engine/device/cuda/activation.h"
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/loss_launch.h"
#include "engine/device/cuda/pack.h"
#include "engine/device/cuda/reduce.h"

#include <float.h>

enum { ROW_THREADS = 512, SHORT_ROW = 1024, SUM_THREADS = 1024 };

/* e^x; where activations have two bytes anyway, in two instructions. */
template <typename T> static __device__ __forceinline__ float power(float x) {
    if constexpr (sizeof(T) == 4) return expf(x);
    return exp2f(x * 1.44269504f);
}

static __device__ __forceinline__ int64_t label_checked(const loss_call &c, int64_t label) {
    if (label >= 0 && label < c.width) return label;
    if (threadIdx.x == 0 && *(volatile int *)c.fault == 0) *(volatile int *)c.fault = c.wrong;
    return -1;
}

/* The row's label; -1 without labels, or where it is wrong. */
static __device__ __forceinline__ int64_t label_of(const loss_call &c, int64_t row) {
    return c.labels ? label_checked(c, c.labels[row]) : -1;
}

/* What the row's target is at its label and at the other, where samples are mixed; nothing at a wrong one. */
struct targets {
    int64_t label, other;
    float of_label, of_other;
};
static __device__ __forceinline__ targets targets_of(const loss_call &c, int64_t row, int64_t label) {
    targets t = {label, -1, label < 0 ? 0.0f : 1.0f, 0};
    if (!c.others || label < 0) return t;
    t.other = label_checked(c, c.others[row]);
    t.of_label = c.shares[row / c.rows_each];
    if (t.other >= 0) t.of_other = 1 - t.of_label;
    return t;
}
static __device__ __forceinline__ float target_at(const targets &t, int64_t k) {
    return (k == t.label ? t.of_label : 0.0f) + (k == t.other ? t.of_other : 0.0f);
}

/* Cross-entropy's, smoothed and times the classes' weights; of every class there is 'each' times its weight besides. */
static __device__ __forceinline__ float weight_of(const loss_call &c, int64_t k) {
    return !c.class_weights ? 1.0f : k >= 0 ? c.class_weights[k] : 0.0f;
}
static __device__ __forceinline__ targets soft_targets(const loss_call &c, int64_t row, int64_t label) {
    targets t = targets_of(c, row, label);
    t.of_label *= (1 - c.smoothing) * weight_of(c, t.label);
    t.of_other *= (1 - c.smoothing) * weight_of(c, t.other);
    return t;
}

/* Whether an output that is as large as the label's lies before it, or a larger one after it. 'most' is the largest
 * of v = x[at, at + N). */
template <int N>
static __device__ __forceinline__ bool beaten(const float *v, float most, int64_t at, int64_t label, float own) {
    if (at + N <= label) return most >= own;
    if (at > label) return most > own;
    bool lost = false;
#pragma unroll
    for (int i = 0; i < N; i++) lost |= at + i < label ? v[i] >= own : v[i] > own;
    return lost;
}

/* How many of x[at, at + N) come before the label's output; what is no number does. Behind a row stands -infinity. */
template <int N>
static __device__ __forceinline__ int count_before(const float *v, int64_t at, int64_t label, float own) {
    int before = 0;
#pragma unroll
    for (int i = 0; i < N; i++) before += at + i < label ? !(v[i] < own) : !(v[i] <= own);
    return before;
}

/* Whether fewer than LOSS_TOP of the row do, counted by the threads of its block. */
template <int THREADS>
static __device__ __forceinline__ float is_in_top(const loss_call &c, int before, float *shared) {
    if (!c.top) return 0;
    return block_sum<THREADS>((float)before, shared) < LOSS_TOP ? 1.0f : 0.0f;
}

/* ---- cross-entropy -------------------------------------------------------------------------- */
template <typename X, typename T, int THREADS, bool WHOLE>
static __device__ __forceinline__ void softmax_write(const loss_call &c, int64_t row, float top, float part) {
    enum { N = pack_of<T>::COUNT };
    const X *x = (const X *)c.x + row * c.pitch;
    float v[N];
    for (int64_t at = (int64_t)threadIdx.x * N; at < c.width; at += THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = power<T>(v[i] - top) * part;
        pack_store<WHOLE, N>((T *)c.y + row * c.width, at, c.width, v);
    }
}

/* The loss of a row with a soft target, whose largest x is 'top' and the logarithm of whose sum is log_sum; *weight is
 * that of the whole row. All threads of the block call. */
template <typename X, int THREADS>
static __device__ float soft_loss(const loss_call &c, int64_t row, int64_t label, float top, float log_sum,
                                  float *weight, float *shared) {
    const X *x = (const X *)c.x + row * c.pitch;
    const targets t = soft_targets(c, row, label);
    float loss = t.of_label > 0 ? t.of_label * (log_sum - (to_float(x[t.label]) - top)) : 0;
    if (t.of_other > 0) loss += t.of_other * (log_sum - (to_float(x[t.other]) - top));
    *weight = t.of_label + t.of_other;
    if (!(c.smoothing > 0)) return loss;
    float weights = 0, spread = 0, each = c.smoothing / (float)c.width;
#pragma unroll 1 /* soft targets are rare: their loop takes no registers from the others' */
    for (int64_t k = threadIdx.x; k < c.width; k += THREADS) {
        float w = weight_of(c, k);
        weights += w;
        spread += w * (top - to_float(x[k]));
    }
    weights = block_sum<THREADS>(weights, shared);
    spread = block_sum<THREADS>(spread, shared);
    *weight += each * weights;
    return loss + each * (weights * log_sum + spread);
}

/* The last pack of a row of that width that is this thread's; below 0: it has none. */
template <int THREADS, int N> static __device__ __forceinline__ int64_t last_pack(int64_t width) {
    int64_t first = (int64_t)threadIdx.x * N;
    return first < width ? first + (width - 1 - first) / (THREADS * N) * (THREADS * N) : -1;
}

template <typename X, typename T, int THREADS, bool WHOLE>
static __device__ __forceinline__ void hard_slope(const loss_call &c, int64_t row, int64_t label, softmax_row kept) {
    enum { N = pack_of<T>::COUNT };
    const X *x = (const X *)c.x + row * c.pitch;
    float v[N];
#pragma unroll 2
    for (int64_t at = last_pack<THREADS, N>(c.width); at >= 0; at -= THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = (power<T>(v[i] - kept.top) * kept.part - (at + i == label ? 1.0f : 0.0f)) * c.scale;
        pack_store<WHOLE, N>((T *)c.dx + row * c.pitch, at, c.width, v);
    }
}

template <typename X, typename T, int THREADS, bool WHOLE>
static __device__ __forceinline__ void soft_slope(const loss_call &c, int64_t row, int64_t label, softmax_row kept) {
    enum { N = pack_of<T>::COUNT };
    const X *x = (const X *)c.x + row * c.pitch;
    const targets t = soft_targets(c, row, label);
    float by = kept.part * kept.weight, each = c.smoothing / (float)c.width, v[N];
#pragma unroll 1
    for (int64_t at = last_pack<THREADS, N>(c.width); at >= 0; at -= THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, 0, v);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float q = target_at(t, at + i);
            if (c.smoothing > 0 && at + i < c.width) q += each * weight_of(c, at + i);
            v[i] = (power<T>(v[i] - kept.top) * by - q) * c.scale;
        }
        pack_store<WHOLE, N>((T *)c.dx + row * c.pitch, at, c.width, v);
    }
}

template <typename X, typename T, int THREADS, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) cross_entropy_rows(loss_call c) {
    enum { N = pack_of<T>::COUNT };
    SHARED(float, shared, [THREADS / WARP]);
    int64_t row = blockIdx.x, label = label_of(c, row);
    const X *x = (const X *)c.x + row * c.pitch;
    float own = label < 0 ? 0 : to_float(x[label]), v[N];
    float top = -FLT_MAX, sum = 0; /* so that x - top is a number, though x be -infinity */
    bool lost = false;
    int before = 0;
#pragma unroll 2
    for (int64_t at = (int64_t)threadIdx.x * N; at < c.width; at += THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, -INFINITY, v);
        if (WHOLE && at + N > c.width) pack_end<N>(v, c.width - at, -INFINITY);
        float most = v[0];
#pragma unroll
        for (int i = 1; i < N; i++) most = fmaxf(most, v[i]);
        lost |= beaten<N>(v, most, at, label, own);
        if (c.top) before += count_before<N>(v, at, label, own);
        most = fmaxf(top, most);
        sum *= power<T>(top - most);
        top = most;
#pragma unroll
        for (int i = 0; i < N; i++) sum += power<T>(v[i] - top);
    }
    float all = block_max<THREADS>(top, shared);
    sum = block_sum<THREADS>(sum * power<T>(top - all), shared);
    bool right = block_max<THREADS>(lost ? 1.0f : 0.0f, shared) == 0 && own == own;
    float in_top = is_in_top<THREADS>(c, before, shared), loss = logf(sum) - (own - all), weight = 1;
    if (c.soft && label >= 0) loss = soft_loss<X, THREADS>(c, row, label, all, logf(sum), &weight, shared);
    const softmax_row kept = {all, 1 / sum, weight};
    if (threadIdx.x == 0) {
        if (c.kept) c.kept[row] = kept;
        if (label < 0)
            c.found[row] = {0, 0, 0};
        else
            c.found[row] = {loss, right ? 1.0f : 0.0f, in_top};
    }
    if (c.y) softmax_write<X, T, THREADS, WHOLE>(c, row, all, 1 / sum);
    if (!c.dx) return;
    __syncthreads(); /* dx may be x, of which others read the label's output */
    if (c.soft)
        soft_slope<X, T, THREADS, WHOLE>(c, row, label, kept);
    else
        hard_slope<X, T, THREADS, WHOLE>(c, row, label, kept);
}

template <typename X, typename T, int THREADS, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) cross_entropy_back_rows(loss_call c) {
    int64_t row = blockIdx.x;
    hard_slope<X, T, THREADS, WHOLE>(c, row, c.labels[row], c.kept[row]);
}

template <typename X, typename T, int THREADS, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) soft_back_rows(loss_call c) {
    int64_t row = blockIdx.x;
    soft_slope<X, T, THREADS, WHOLE>(c, row, label_of(c, row), c.kept[row]);
}

/* ---- of each feature by itself: mean squared error, binary cross-entropy --------------------- */
struct square {
    static __device__ __forceinline__ float loss(float x, float target) {
        return (x - target) * (x - target);
    }
    static __device__ __forceinline__ float slope(float x, float target) { /* half of it */
        return x - target;
    }
};
struct bit {
    static __device__ __forceinline__ float loss(float x, float target) {
        return fmaxf(x, 0) - x * target + log1pf(expf(-fabsf(x)));
    }
    static __device__ __forceinline__ float slope(float x, float target) {
        return sigmoid(x) - target;
    }
};

template <int N, bool WHOLE>
static __device__ __forceinline__ void load_target(const loss_call &c, int64_t row, int64_t at, const targets &t,
                                                   float *target) {
    if (!c.labels) return pack_load<WHOLE, N>(c.target + row * c.width, at, c.width, 0, target);
#pragma unroll
    for (int i = 0; i < N; i++) target[i] = target_at(t, at + i);
}

template <typename LOSS, typename X, typename T, int THREADS, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) feature_rows(loss_call c) {
    enum { N = pack_of<T>::COUNT };
    SHARED(float, shared, [THREADS / WARP]);
    int64_t row = blockIdx.x, label = label_of(c, row);
    const X *x = (const X *)c.x + row * c.pitch;
    const targets t = targets_of(c, row, label);
    float own = label < 0 ? 0 : to_float(x[label]), v[N], target[N], sum = 0;
    bool lost = label < 0;
    int before = 0;
    for (int64_t at = (int64_t)threadIdx.x * N; at < c.width; at += THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, 0, v);
        float most = -INFINITY;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (at + i >= c.width) v[i] = -INFINITY;
            most = fmaxf(most, v[i]);
        }
        lost |= beaten<N>(v, most, at, label, own);
        if (c.top) before += count_before<N>(v, at, label, own);
        load_target<N, WHOLE>(c, row, at, t, target);
#pragma unroll
        for (int i = 0; i < N; i++) sum += at + i < c.width ? LOSS::loss(v[i], target[i]) : 0;
    }
    sum = block_sum<THREADS>(sum, shared);
    bool right = block_max<THREADS>(lost ? 1.0f : 0.0f, shared) == 0 && own == own;
    float in_top = is_in_top<THREADS>(c, before, shared);
    bool counts = !c.labels || label >= 0;
    if (threadIdx.x == 0) c.found[row] = {counts ? sum : 0, right ? 1.0f : 0.0f, in_top};
}

template <typename LOSS, typename X, typename T, int THREADS, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) feature_back_rows(loss_call c) {
    enum { N = pack_of<T>::COUNT };
    int64_t row = blockIdx.x;
    const X *x = (const X *)c.x + row * c.pitch;
    const targets t = targets_of(c, row, label_of(c, row));
    float v[N], target[N];
    for (int64_t at = (int64_t)threadIdx.x * N; at < c.width; at += THREADS * N) {
        pack_load<WHOLE, N>(x, at, c.width, 0, v);
        load_target<N, WHOLE>(c, row, at, t, target);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = LOSS::slope(v[i], target[i]) * c.scale;
        pack_store<WHOLE, N>((T *)c.dx + row * c.pitch, at, c.width, v);
    }
}

/* ---- all rows ------------------------------------------------------------------------------- */
static __global__ void __launch_bounds__(SUM_THREADS) rows_add(loss_call c) {
    SHARED(double, shared, [SUM_THREADS / WARP]);
    double loss = 0, right = 0, top = 0;
#pragma unroll 8
    for (int64_t r = threadIdx.x; r < c.rows; r += SUM_THREADS) {
        loss += (double)c.found[r].loss;
        right += (double)c.found[r].right;
        if (c.top) top += (double)c.found[r].top;
    }
    loss = block_sum<SUM_THREADS>(loss, shared);
    right = block_sum<SUM_THREADS>(right, shared);
    if (c.top) top = block_sum<SUM_THREADS>(top, shared);
    if (threadIdx.x) return;
    c.sums[0] += loss / c.loss_share;
    c.sums[1] += right / c.right_share;
    if (c.top) *c.top += top;
}

/* ---- launchers ------------------------------------------------------------------------------ */
/* The kernel for a row's length and alignment. */
#define ROWS_KERNEL(KERNEL, whole, width, ...)                                                                         \
    ((width) <= SHORT_ROW                                                                                              \
         ? ((whole) ? KERNEL<__VA_ARGS__, WARP, true> : KERNEL<__VA_ARGS__, WARP, false>)                              \
         : ((whole) ? KERNEL<__VA_ARGS__, ROW_THREADS, true> : KERNEL<__VA_ARGS__, ROW_THREADS, false>))

static cudaError_t rows_launch(const loss_call *c, void (*kernel)(loss_call), cudaStream_t stream) {
    LAUNCH(kernel, (unsigned)c->rows, c->width <= SHORT_ROW ? (int)WARP : (int)ROW_THREADS, 0, stream, *c);
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess || !c->forward || (!c->labels && !c->target)) return e;
    LAUNCH(rows_add, 1, SUM_THREADS, 0, stream, *c);
    return cudaGetLastError();
}

template <typename T> static bool whole_rows(const loss_call *c) {
    return packs_whole<T>(c->x, c->pitch) && packs_whole<T>(c->y, c->y ? c->width : 0) &&
           packs_whole<T>(c->dx, c->pitch) && packs_whole<T>(c->target, c->target ? c->width : 0);
}

template <typename X, typename T> static cudaError_t cross_entropy_of(const loss_call *c, cudaStream_t stream) {
    bool whole = whole_rows<T>(c);
    void (*kernel)(loss_call) = c->forward ? ROWS_KERNEL(cross_entropy_rows, whole, c->width, X, T)
                                : c->soft  ? ROWS_KERNEL(soft_back_rows, whole, c->width, X, T)
                                           : ROWS_KERNEL(cross_entropy_back_rows, whole, c->width, X, T);
    return rows_launch(c, kernel, stream);
}

template <typename LOSS, typename X, typename T>
static cudaError_t features_of(const loss_call *c, cudaStream_t stream) {
    bool whole = whole_rows<T>(c);
    void (*kernel)(loss_call) = c->forward ? ROWS_KERNEL(feature_rows, whole, c->width, LOSS, X, T)
                                           : ROWS_KERNEL(feature_back_rows, whole, c->width, LOSS, X, T);
    return rows_launch(c, kernel, stream);
}
template <typename X, typename T> static cudaError_t mse_of(const loss_call *c, cudaStream_t stream) {
    return features_of<square, X, T>(c, stream);
}
template <typename X, typename T> static cudaError_t bce_of(const loss_call *c, cudaStream_t stream) {
    return features_of<bit, X, T>(c, stream);
}

extern "C" cudaError_t cross_entropy_launch(const loss_call *c, cudaStream_t stream) {
    return BY_TYPES(c->x_type, c->type, cross_entropy_of, c, stream);
}
extern "C" cudaError_t mse_launch(const loss_call *c, cudaStream_t stream) {
    return BY_TYPES(c->x_type, c->type, mse_of, c, stream);
}
extern "C" cudaError_t bce_launch(const loss_call *c, cudaStream_t stream) {
    return BY_TYPES(c->x_type, c->type, bce_of, c, stream);
}
