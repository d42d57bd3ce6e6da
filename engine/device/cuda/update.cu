/* Optimizers over a table of spans, all in one launch: 4096 elements a block, sixteen bytes at a time. The formulas are
 * those of engine/optim, which this file includes: each operation is rounded by itself (it is compiled without fused
 * multiply-adds), so that weights have the bits that a processor would give them. */
#include "engine/device/cuda/squares.h"
#include "engine/device/cuda/update_launch.h"

#include <string.h>
#include <type_traits>

/* ---- what optim/formula.h leaves to this file ------------------------------------------------ */
#define FORMULA static __device__ __forceinline__
#include "engine/optim/formula.h"

enum { THREADS = 256 };
static const int64_t BLOCKS_MOST = 1 << 20;

/* A formula as a type: its numbers, how many slots it has, and whether it is a step or comes before norms are taken. */
#define FORMULA_TYPE(name, numbers_, slots, steps)                                                                     \
    struct name##_on_gpu {                                                                                             \
        typedef struct numbers_ numbers;                                                                               \
        enum { SLOTS = slots };                                                                                        \
        static constexpr bool STEPS = steps;                                                                           \
        static __device__ __forceinline__ void at(const numbers &k, struct element &e) {                               \
            name(&k, &e);                                                                                              \
        }                                                                                                              \
    };
#define FORMULA_STEP(name, numbers, slots) FORMULA_TYPE(name, numbers, slots, true)
#define FORMULA_DIRECT(name, numbers, slots) FORMULA_TYPE(name, numbers, slots, false)
#define FORMULA_OF(name) kernels_of<name##_on_gpu>(#name)
#define FORMULAS(optim, ...) static const struct update_kernels optim##_formulas[] = {__VA_ARGS__, {NULL, NULL, NULL}};

template <class F>
static __device__ __forceinline__ typename F::numbers numbers_of(const struct update_numbers &r, int kind) {
    float number[RULE_NUMBERS];
    typename F::numbers k;
    for (int i = 0; i < RULE_NUMBERS; i++) number[i] = r.number[kind][i];
    memcpy(&k, number, sizeof k);
    return k;
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* The last span whose first chunk is not beyond this one. */
static __device__ __forceinline__ int span_of(const struct update_span *spans, int count, int64_t chunk) {
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

template <class F> static __device__ __forceinline__ struct element element_of(const struct update_span &s, int64_t i) {
    return {s.w[i],
            s.g[i],
            F::SLOTS > 0 ? s.slot[0][i] : 0,
            F::SLOTS > 1 ? s.slot[1][i] : 0,
            F::SLOTS > 2 ? s.slot[2][i] : 0,
            s.rate};
}

template <class F>
static __device__ __forceinline__ void slots_put(const struct update_span &s, int64_t i, const struct element &e) {
    if constexpr (F::SLOTS > 0) s.slot[0][i] = e.m;
    if constexpr (F::SLOTS > 1) s.slot[1][i] = e.v;
    if constexpr (F::SLOTS > 2) s.slot[2][i] = e.x;
}

/* One of four elements, by its name among them. */
#define STEP_OF(one)                                                                                                   \
    {                                                                                                                  \
        struct element e = {w.one, g.one, m.one, v.one, x.one, s.rate};                                                \
        F::at(k, e);                                                                                                   \
        w.one = e.w, m.one = e.m, v.one = e.v, x.one = e.x;                                                            \
    }

template <class F>
static __device__ __forceinline__ void step_four(const typename F::numbers &k, const struct update_span &s, int64_t i) {
    float4 w = *(float4 *)(s.w + i), g = *(const float4 *)(s.g + i), m = {0, 0, 0, 0}, v = m, x = m;
    if constexpr (F::SLOTS > 0) m = *(float4 *)(s.slot[0] + i);
    if constexpr (F::SLOTS > 1) v = *(float4 *)(s.slot[1] + i);
    if constexpr (F::SLOTS > 2) x = *(float4 *)(s.slot[2] + i);
    STEP_OF(x)
    STEP_OF(y)
    STEP_OF(z)
    STEP_OF(w)
    *(float4 *)(s.w + i) = w;
    if constexpr (F::SLOTS > 0) *(float4 *)(s.slot[0] + i) = m;
    if constexpr (F::SLOTS > 1) *(float4 *)(s.slot[1] + i) = v;
    if constexpr (F::SLOTS > 2) *(float4 *)(s.slot[2] + i) = x;
}

template <class F>
static __device__ __forceinline__ void step_one(const typename F::numbers &k, const struct update_span &s, int64_t i) {
    struct element e = element_of<F>(s, i);
    F::at(k, e);
    s.w[i] = e.w;
    slots_put<F>(s, i, e);
}

template <class F>
static __global__ void step_kernel(struct update_numbers r, const struct update_span *spans, int count,
                                   int64_t chunks) {
    for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        struct update_span s = spans[span_of(spans, count, chunk)];
        typename F::numbers k = numbers_of<F>(r, s.kind);
        int64_t begin = (chunk - s.first) * UPDATE_CHUNK, end = begin + UPDATE_CHUNK;
        if (end > s.n) end = s.n;
        int64_t fours = s.aligned ? begin + (end - begin) / 4 * 4 : begin;
        for (int64_t i = begin + 4 * (int64_t)threadIdx.x; i < fours; i += 4 * THREADS) step_four<F>(k, s, i);
        for (int64_t i = fours + threadIdx.x; i < end; i += THREADS) step_one<F>(k, s, i);
    }
}

template <class F>
static cudaError_t launch_step(const struct update_numbers *r, const struct update_span *spans, int count,
                               int64_t chunks, cudaStream_t stream) {
    unsigned blocks = (unsigned)(chunks < BLOCKS_MOST ? chunks : BLOCKS_MOST);
    struct update_numbers numbers = *r;
    LAUNCH(step_kernel<F>, blocks, THREADS, 0, stream, numbers, spans, count, chunks);
    return cudaGetLastError();
}

/* ---- norms ---------------------------------------------------------------------------------- */
struct nothing { /* before norms are taken */
};

template <class F>
static __device__ __forceinline__ void make_direction(const typename F::numbers &k, const struct update_span &s,
                                                      int64_t i) {
    struct element e = element_of<F>(s, i);
    F::at(k, e);
    s.g[i] = e.g;
    slots_put<F>(s, i, e);
}

/* The directions of some rules, and sums of squares of weights and directions. A warp a span. Lane l has elements l, l + 32, ..., for the direction as for the sum, so none waits for another. */
template <class F>
static __global__ void direct_kernel(struct update_numbers r, const struct update_span *spans, int count,
                                     double *squares) {
    int lane = (int)(threadIdx.x % SQUARE_LANES);
    int64_t warps = (int64_t)gridDim.x * (THREADS / SQUARE_LANES);
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / SQUARE_LANES;
    for (; i < count; i += warps) {
        struct update_span s = spans[i];
        double w = 0, g = 0;
        if constexpr (!std::is_same<F, nothing>::value) {
            typename F::numbers k = numbers_of<F>(r, s.kind);
            for (int64_t at = lane; at < s.n; at += SQUARE_LANES) make_direction<F>(k, s, at);
        }
        if (r.adapts[s.kind]) w = lane_squares(s.w, s.n, lane), g = lane_squares(s.g, s.n, lane);
        w = lanes_sum(w), g = lanes_sum(g);
        if (lane == 0) squares[2 * i] = w, squares[2 * i + 1] = g;
    }
}

template <class F>
static cudaError_t launch_direct(const struct update_numbers *r, const struct update_span *spans, int count,
                                 double *squares, cudaStream_t stream) {
    int64_t each = THREADS / SQUARE_LANES, blocks = (count + each - 1) / each;
    unsigned grid = (unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST);
    struct update_numbers numbers = *r;
    LAUNCH(direct_kernel<F>, grid, THREADS, 0, stream, numbers, spans, count, squares);
    return cudaGetLastError();
}

/* ---- the formulas that there are -------------------------------------------------------------- */
template <class F> static constexpr struct update_kernels kernels_of(const char *name) {
    if constexpr (F::STEPS)
        return {name, launch_step<F>, NULL};
    else
        return {name, NULL, launch_direct<F>};
}

#include "engine/optim/formulas.h" /* made by CMake: the files of optims.def and rules.def */

static const struct update_kernels *const optims[] = {
#define OPTIM(name) name##_formulas,
#include "engine/optim/optims.def"
#define RULE(name) name##_formulas,
#include "engine/optim/rules.def"
};

extern "C" const struct update_kernels *update_find(const char *formula) {
    static const struct update_kernels norms_alone = {NULL, NULL, launch_direct<nothing>};
    if (!formula) return &norms_alone;
    for (const struct update_kernels *const *o = optims; o < optims + sizeof optims / sizeof *optims; o++)
        for (const struct update_kernels *k = *o; k->name; k++)
            if (!strcmp(k->name, formula)) return k;
    return NULL;
}
