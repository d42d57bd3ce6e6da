/* Optimizers over a table of spans, all in one launch: 4096 elements a block, sixteen bytes at a time. The arithmetic
 * is that of optim/, operation by operation and each rounded (the compiler may not fuse what bears _rn), so that
 * weights have the bits that a processor would give them. */
#include "engine/base/rule.h"
#include "engine/device/cuda/squares.h"
#include "engine/device/cuda/update_launch.h"

enum { THREADS = 256 };
static const int64_t BLOCKS_MOST = 1 << 20;

static __device__ __forceinline__ float mul(float a, float b) {
    return __fmul_rn(a, b);
}
static __device__ __forceinline__ float add(float a, float b) {
    return __fadd_rn(a, b);
}
static __device__ __forceinline__ float sub(float a, float b) {
    return __fsub_rn(a, b);
}
static __device__ __forceinline__ float mix(float a, float x, float b, float y) {
    return add(mul(a, x), mul(b, y));
}

/* What is the same for all elements of a span. */
struct factors {
    struct update_rule r;
    float decay, shrink; /* 0 and 1 where the span does not decay */
    float rate;
};

static __device__ __forceinline__ struct factors
factors_of(enum update_kind kind, const struct update_rule &r, const struct update_span &s) {
    struct factors f = {r, 0, 1, s.rate};
    if (kind == UPDATE_LARS) f.decay = s.decay;
    if (!s.decays) return f;
    if (kind <= UPDATE_NESTEROV) f.decay = r.number[SGD_DECAY];
    if (kind == UPDATE_ADAM || kind == UPDATE_LAMB) f.decay = r.number[ADAM_L2];
    if (kind == UPDATE_ADAM) f.shrink = r.number[ADAM_SHRINK];
    if (kind == UPDATE_LION) f.shrink = r.number[LION_SHRINK];
    return f;
}

static __host__ __device__ constexpr int slots_of(int kind) {
    return kind == UPDATE_SGD || kind == UPDATE_LAMB ? 0 : kind == UPDATE_ADAM ? 2 : 1;
}

/* ---- one element ---------------------------------------------------------------------------- */
static __device__ __forceinline__ void moments(const struct update_rule &r, float d, float &m,
                                               float &v) {
    m = mix(r.number[ADAM_KEEP_M], m, r.number[ADAM_ADD_M], d);
    v = add(mul(r.number[ADAM_KEEP_V], v), mul(mul(r.number[ADAM_ADD_V], d), d));
}

static __device__ __forceinline__ float root(const struct update_rule &r, float v) {
    return add(mul(__fsqrt_rn(v), r.number[ADAM_UNBIAS_V]), r.number[ADAM_EPS]);
}

static __device__ __forceinline__ void step_adam(const struct factors &f, float &w, float g,
                                                 float &m, float &v) {
    float d = mix(f.r.scale, g, f.decay, w);
    moments(f.r, d, m, v);
    w = sub(mul(f.shrink, w), mul(f.r.number[ADAM_STEP], __fdiv_rn(m, root(f.r, v))));
}

static __device__ __forceinline__ void step_lion(const struct factors &f, float &w, float g,
                                                 float &m) {
    const float *k = f.r.number;
    float d = mul(f.r.scale, g), c = mix(k[LION_KEEP_C], m, k[LION_ADD_C], d);
    float move = c > 0 ? f.r.lr : c < 0 ? -f.r.lr : mul(c, 0); /* not a number stays so */
    w = sub(mul(f.shrink, w), move);
    m = mix(k[LION_KEEP_M], m, k[LION_ADD_M], d);
}

template <int KIND>
static __device__ __forceinline__ void step(const struct factors &f, float &w, float g, float &a,
                                            float &b) {
    if constexpr (KIND == UPDATE_ADAM) {
        step_adam(f, w, g, a, b);
    } else if constexpr (KIND == UPDATE_LION) {
        step_lion(f, w, g, a);
    } else if constexpr (KIND == UPDATE_LAMB) {
        w = sub(w, mul(f.rate, g));
    } else {
        float d = mix(f.r.scale, g, f.decay, w), momentum = f.r.number[SGD_MOMENTUM];
        if constexpr (KIND == UPDATE_LARS) a = mix(momentum, a, f.rate, d);
        if constexpr (KIND == UPDATE_MOMENTUM || KIND == UPDATE_NESTEROV)
            a = add(mul(momentum, a), d);
        if constexpr (KIND == UPDATE_LARS) w = sub(w, a);
        if constexpr (KIND == UPDATE_SGD) w = sub(w, mul(f.r.lr, d));
        if constexpr (KIND == UPDATE_MOMENTUM) w = sub(w, mul(f.r.lr, a));
        if constexpr (KIND == UPDATE_NESTEROV) w = sub(w, mul(f.r.lr, add(d, mul(momentum, a))));
    }
}
static_assert((int)LARS_MOMENTUM == (int)SGD_MOMENTUM, "both are read in one place");

/* ---- all elements --------------------------------------------------------------------------- */
/* The last span whose first chunk is not beyond this one. */
static __device__ __forceinline__ int span_of(const struct update_span *spans, int count,
                                              int64_t chunk) {
    int low = 0, high = count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (spans[middle].first <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <int KIND>
static __device__ __forceinline__ void step_four(const struct factors &f,
                                                 const struct update_span &s, int64_t i) {
    float4 w = *(float4 *)(s.w + i), g = *(const float4 *)(s.g + i), a = {0, 0, 0, 0},
           b = {0, 0, 0, 0};
    if constexpr (slots_of(KIND) > 0) a = *(float4 *)(s.slot[0] + i);
    if constexpr (slots_of(KIND) > 1) b = *(float4 *)(s.slot[1] + i);
    step<KIND>(f, w.x, g.x, a.x, b.x);
    step<KIND>(f, w.y, g.y, a.y, b.y);
    step<KIND>(f, w.z, g.z, a.z, b.z);
    step<KIND>(f, w.w, g.w, a.w, b.w);
    *(float4 *)(s.w + i) = w;
    if constexpr (slots_of(KIND) > 0) *(float4 *)(s.slot[0] + i) = a;
    if constexpr (slots_of(KIND) > 1) *(float4 *)(s.slot[1] + i) = b;
}

template <int KIND>
static __device__ __forceinline__ void step_one(const struct factors &f,
                                                const struct update_span &s, int64_t i) {
    float none = 0;
    step<KIND>(f, s.w[i], s.g[i], slots_of(KIND) > 0 ? s.slot[0][i] : none,
               slots_of(KIND) > 1 ? s.slot[1][i] : none);
}

template <int KIND>
static __global__ void step_kernel(struct update_rule r, const struct update_span *spans, int count,
                                   int64_t chunks) {
    for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        struct update_span s = spans[span_of(spans, count, chunk)];
        struct factors f = factors_of((enum update_kind)KIND, r, s);
        int64_t begin = (chunk - s.first) * UPDATE_CHUNK, end = begin + UPDATE_CHUNK;
        if (end > s.n) end = s.n;
        int64_t fours = s.aligned ? begin + (end - begin) / 4 * 4 : begin;
        for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < fours; i += 4 * THREADS)
            step_four<KIND>(f, s, i);
        for (int64_t i = fours + threadIdx.x; i < end; i += THREADS) step_one<KIND>(f, s, i);
    }
}

extern "C" cudaError_t update_step(enum update_kind kind, const struct update_rule *r,
                                   const struct update_span *spans, int count, int64_t chunks,
                                   cudaStream_t stream) {
    unsigned blocks = (unsigned)(chunks < BLOCKS_MOST ? chunks : BLOCKS_MOST);
    struct update_rule rule = *r;
#define CASE(kind)                                                                                 \
    case kind:                                                                                     \
        LAUNCH(step_kernel<kind>, blocks, THREADS, 0, stream, rule, spans, count, chunks);         \
        break
    switch (kind) {
        CASE(UPDATE_SGD);
        CASE(UPDATE_MOMENTUM);
        CASE(UPDATE_NESTEROV);
        CASE(UPDATE_ADAM);
        CASE(UPDATE_LAMB);
        CASE(UPDATE_LARS);
        CASE(UPDATE_LION);
    }
#undef CASE
    return cudaGetLastError();
}

/* ---- norms ---------------------------------------------------------------------------------- */
/* A warp a span. Lane l has elements l, l + 32, ..., for the direction as for the sum, so none waits for another. */
static __device__ __forceinline__ void make_direction(const struct factors &f,
                                                      const struct update_span &s, int lane) {
    for (int64_t i = lane; i < s.n; i += SQUARE_LANES) {
        float m = s.slot[0][i], v = s.slot[1][i];
        moments(f.r, mul(f.r.scale, s.g[i]), m, v);
        s.slot[0][i] = m;
        s.slot[1][i] = v;
        float u = __fdiv_rn(mul(f.r.number[LAMB_UNBIAS_M], m), root(f.r, v));
        s.g[i] = add(u, mul(f.decay, s.w[i]));
    }
}

template <int KIND>
static __global__ void measure_kernel(struct update_rule r, const struct update_span *spans,
                                      int count, double *squares) {
    int lane = (int)(threadIdx.x % SQUARE_LANES);
    int64_t warps = (int64_t)gridDim.x * (THREADS / SQUARE_LANES);
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / SQUARE_LANES;
    for (; i < count; i += warps) {
        struct update_span s = spans[i];
        double w = 0, g = 0;
        if (KIND == UPDATE_LAMB) make_direction(factors_of(UPDATE_LAMB, r, s), s, lane);
        if (s.adapts) w = lane_squares(s.w, s.n, lane), g = lane_squares(s.g, s.n, lane);
        w = lanes_sum(w), g = lanes_sum(g);
        if (lane == 0) squares[2 * i] = w, squares[2 * i + 1] = g;
    }
}

extern "C" cudaError_t update_measure(enum update_kind kind, const struct update_rule *r,
                                      const struct update_span *spans, int count, double *squares,
                                      cudaStream_t stream) {
    int64_t each = THREADS / SQUARE_LANES, blocks = (count + each - 1) / each;
    unsigned grid = (unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST);
    struct update_rule rule = *r;
    if (kind == UPDATE_LAMB)
        LAUNCH(measure_kernel<UPDATE_LAMB>, grid, THREADS, 0, stream, rule, spans, count, squares);
    else
        LAUNCH(measure_kernel<UPDATE_LARS>, grid, THREADS, 0, stream, rule, spans, count, squares);
    return cudaGetLastError();
}
