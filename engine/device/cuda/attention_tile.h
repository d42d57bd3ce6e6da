/* What the kernels of attention are made of. A block holds some rows of a head ("stationary": queries, or keys) and
 * walks over tiles of the other side, which come into shared memory while the tile before is worked on. Each warp owns
 * ROWS of the stationary rows and takes N rows of the tile at a time:
 *   hold            a: the warp's rows (ROWS, D), which are in shared memory
 *   nt   s = a b'   b: N rows of the tile (N, D) in shared memory; s (ROWS, N)
 *   pack            s as the left factor of a product
 *   nn   o += s b   b: those N rows; o (ROWS, D)
 * s and o lie in registers: lane l holds R rows and, of each, C (of s) or CO (of o) columns; row, col and out say
 * which. Two kinds do this: tensor (16-bit, tensor cores) and simt (f32, exact factors).
 * A head's size may be anything up to D: the columns beyond it are zeros in shared memory. Rows there are LD elements
 * apart: an odd number of 16-byte pieces, so that eight rows' pieces of one column lie in different banks. */
#pragma once
#include "engine/device/cuda/attention_launch.h"
#include "engine/device/cuda/mma.h"

template <typename T_, int D_, int TILES, int N_, bool HELD> struct tensor {
    typedef T_ T;
    static const int D = D_, N = N_, LD = D + 8, ROWS = 16 * TILES, LANES = 4;
    static const int R = 2 * TILES, C = N / LANES, CO = D / LANES, SCRATCH = 0;
    struct factor {
        uint32_t v[TILES][N / 16][4];
    };
    struct rows { /* HELD: in registers all along, where there is room for them */
        const T *at;
        uint32_t v[HELD ? TILES : 1][HELD ? D / 16 : 1][4];
    };

    static __device__ __forceinline__ int row(int lane, int i) {
        return i / 2 * 16 + i % 2 * 8 + lane / 4;
    }
    static __device__ __forceinline__ int col(int lane, int j) {
        return j / 2 * 8 + lane % 4 * 2 + j % 2;
    }
    static __device__ __forceinline__ int out(int lane, int j) {
        return col(lane, j);
    }
    static __device__ __forceinline__ float exp2(float x) {
        return exp2_fast(x);
    }
    static __device__ __forceinline__ uint32_t pair(float a, float b) {
        return pack_pair<T>(a, b);
    }

    template <int COLUMNS>
    static __device__ __forceinline__ void product(float (&c)[R][COLUMNS], int m, int n, const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
        mma_16816<T>(c[2 * m][2 * n], c[2 * m][2 * n + 1], c[2 * m + 1][2 * n], c[2 * m + 1][2 * n + 1], a, b0, b1);
    }

    static __device__ __forceinline__ void hold(rows &a, const T *at, int lane) {
        a.at = at + lane % 16 * LD + lane / 16 * 8;
#pragma unroll
        for (int m = 0; HELD && m < TILES; m++)
#pragma unroll
            for (int k = 0; k < D / 16; k++) ldmatrix_x4(a.v[m][k], a.at + m * 16 * LD + k * 16);
    }

    static __device__ __forceinline__ void nt(float (&s)[R][C], const rows &a, const T *b, int lane) {
        const T *other = b + (lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2 * 8;
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) s[i][j] = 0;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            uint32_t left[TILES][4], right[4];
#pragma unroll
            for (int m = 0; m < TILES; m++)
                if (HELD)
                    memcpy(left[m], a.v[m][k], sizeof left[m]);
                else
                    ldmatrix_x4(left[m], a.at + m * 16 * LD + k * 16);
#pragma unroll
            for (int n = 0; n < N / 16; n++) {
                ldmatrix_x4(right, other + n * 16 * LD + k * 16);
#pragma unroll
                for (int m = 0; m < TILES; m++) {
                    product(s, m, 2 * n, left[m], right[0], right[1]);
                    product(s, m, 2 * n + 1, left[m], right[2], right[3]);
                }
            }
        }
    }

    /* Where the accumulators of two 8-column pieces lie is where the left factor's 16 columns are wanted. */
    static __device__ __forceinline__ void pack(factor &f, const float (&s)[R][C], float *, int) {
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int k = 0; k < N / 16; k++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    f.v[m][k][i] = pair(s[2 * m + i % 2][4 * k + i / 2 * 2], s[2 * m + i % 2][4 * k + i / 2 * 2 + 1]);
    }

    static __device__ __forceinline__ void nn(float (&o)[R][CO], const factor &f, const T *b, const float *, int lane) {
        const T *other = b + lane % 16 * LD + lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < N / 16; k++)
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                uint32_t right[4];
                ldmatrix_x4_trans(right, other + k * 16 * LD + n * 16);
#pragma unroll
                for (int m = 0; m < TILES; m++) {
                    product(o, m, 2 * n, f.v[m][k], right[0], right[1]);
                    product(o, m, 2 * n + 1, f.v[m][k], right[2], right[3]);
                }
            }
    }

    static __device__ __forceinline__ void put_pair(T *to, float a, float b) {
        put_4(to, pair(a, b));
    }
};

/* Eight lanes share a row; a lane's rows are 4 apart. s goes to the other lanes through the warp's SCRATCH floats. */
template <int D_, int N_> struct simt {
    typedef float T;
    static const int D = D_, N = N_, LD = D + 4, ROWS = 16, LANES = 8;
    static const int R = 4, C = N / LANES, CO = D / LANES, APART = N + 4, SCRATCH = ROWS * APART;
    struct factor {};
    struct rows {
        const T *at;
    };

    static __device__ __forceinline__ int row(int lane, int i) {
        return i * 4 + lane / 8;
    }
    static __device__ __forceinline__ int col(int lane, int j) {
        return j * 8 + lane % 8;
    }
    static __device__ __forceinline__ int out(int lane, int j) {
        return j / 4 * 32 + lane % 8 * 4 + j % 4;
    }
    static __device__ __forceinline__ float exp2(float x) {
        return exp2f(x);
    }

    static __device__ __forceinline__ void hold(rows &a, const T *at, int) {
        a.at = at;
    }

    static __device__ __forceinline__ void nt(float (&s)[R][C], const rows &a, const T *b, int lane) {
        for (int i = 0; i < R; i++)
            for (int j = 0; j < C; j++) s[i][j] = 0;
#pragma unroll 4
        for (int k = 0; k < D; k += 4) {
            float4 left[R], right[C];
#pragma unroll
            for (int i = 0; i < R; i++) left[i] = *(const float4 *)(a.at + row(lane, i) * LD + k);
#pragma unroll
            for (int j = 0; j < C; j++) right[j] = *(const float4 *)(b + col(lane, j) * LD + k);
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < C; j++) {
                    s[i][j] = fmaf(left[i].x, right[j].x, s[i][j]);
                    s[i][j] = fmaf(left[i].y, right[j].y, s[i][j]);
                    s[i][j] = fmaf(left[i].z, right[j].z, s[i][j]);
                    s[i][j] = fmaf(left[i].w, right[j].w, s[i][j]);
                }
        }
    }

    static __device__ __forceinline__ void pack(factor &, const float (&s)[R][C], float *scratch, int lane) {
        __syncwarp(); /* what lay there has been read */
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) scratch[row(lane, i) * APART + col(lane, j)] = s[i][j];
        __syncwarp();
    }

    static __device__ __forceinline__ void nn(float (&o)[R][CO], const factor &, const T *b, const float *scratch,
                                              int lane) {
#pragma unroll 2
        for (int k = 0; k < N; k++) {
            float left[R];
#pragma unroll
            for (int i = 0; i < R; i++) left[i] = scratch[row(lane, i) * APART + k];
#pragma unroll
            for (int j = 0; j < CO; j += 4) {
                float4 right = *(const float4 *)(b + k * LD + out(lane, j));
#pragma unroll
                for (int i = 0; i < R; i++) {
                    o[i][j] = fmaf(left[i], right.x, o[i][j]);
                    o[i][j + 1] = fmaf(left[i], right.y, o[i][j + 1]);
                    o[i][j + 2] = fmaf(left[i], right.z, o[i][j + 2]);
                    o[i][j + 3] = fmaf(left[i], right.w, o[i][j + 3]);
                }
            }
        }
    }

    static __device__ __forceinline__ void put_pair(T *to, float a, float b) {
        to[0] = a, to[1] = b;
    }
};

/* ---- a head in memory ----------------------------------------------------------------------- */
struct attention_head {
    int64_t in, out, row; /* where it begins in x and dx, in y and dy, in lse and delta */
    int64_t all, ld;      /* of x: from q to k and from k to v; from row to row (in y: 'all') */
};

static __device__ __forceinline__ attention_head attention_head_of(const attention_call &c, int64_t which) {
    attention_head h;
    int64_t sample = which / c.heads, head = which % c.heads;
    h.all = (int64_t)c.heads * c.size;
    h.ld = 3 * h.all;
    h.in = sample * c.positions * h.ld + head * c.size;
    h.out = sample * c.positions * h.all + head * c.size;
    h.row = which * c.positions;
    return h;
}

/* 1 / sqrt(size), and that for powers of 2 instead of e. */
static __device__ __forceinline__ float attention_scale(const attention_call &c) {
    return 1 / sqrtf((float)c.size);
}
static __device__ __forceinline__ float attention_scale_2(const attention_call &c) {
    return 1.44269504f / sqrtf((float)c.size);
}

/* ---- tiles ---------------------------------------------------------------------------------- */
/* COUNT rows of a head into shared memory, of which 'left' are there; the rest become zeros. 16 bytes at a time where
 * every row begins on such a place. The tile may be read after cp_async_wait and __syncthreads. */
template <class P, int COUNT, int THREADS>
static __device__ __forceinline__ void tile_load(typename P::T *tile, const typename P::T *from, int64_t ld, int left,
                                                 int size, bool aligned) {
    typedef typename P::T T;
    const int piece = 16 / sizeof(T), pieces = P::D / piece;
    /* threads side by side in a row: a power of two, so that a thread keeps its column */
    const int across = pieces <= 4 ? 4 : pieces <= 8 ? 8 : pieces <= 16 ? 16 : 32;
    const int step = THREADS / across, col = threadIdx.x % across * piece;
    int row = threadIdx.x / across;
    const T *place = from + row * ld + col;
    static_assert(COUNT % (THREADS / across) == 0, "every thread takes as many");
    if (col >= P::D) return;
    tile += row * P::LD + col;
    if (aligned) {
#pragma unroll
        for (int at = 0; at < COUNT; at += step, place += step * ld)
            cp_async_16(tile + at * P::LD, place, row + at < left && col < size);
        return;
    }
#pragma unroll 1
    for (int at = 0; at < COUNT; at += step, row += step, place += step * ld, tile += step * P::LD)
#pragma unroll 1
        for (int e = 0; e < piece; e++) tile[e] = row < left && col + e < size ? place[e] : from_float<T>(0);
}

/* KEYS keys and values of a head, from the one at 'at' on, as one stage of two tiles. */
template <class P, int KEYS, int THREADS>
static __device__ __forceinline__ void stage_load(typename P::T *stage, const attention_call &c,
                                                  const attention_head &h, int at) {
    const typename P::T *k = (const typename P::T *)c.x + h.in + h.all + at * h.ld;
    tile_load<P, KEYS, THREADS>(stage, k, h.ld, c.positions - at, c.size, c.aligned);
    tile_load<P, KEYS, THREADS>(stage + KEYS * P::LD, k + h.all, h.ld, c.positions - at, c.size, c.aligned);
}

/* The warp's rows of o, those that are 'left', times 'factor' to memory, by way of the warp's rows of a tile that
 * nobody else reads: whole 16-byte pieces are written. */
template <class P>
static __device__ __forceinline__ void rows_store(typename P::T *to, int64_t ld, const float (&o)[P::R][P::CO],
                                                  const float (&factor)[P::R], typename P::T *tile, int left, int size,
                                                  bool aligned) {
    typedef typename P::T T;
    const int lane = threadIdx.x % 32, piece = 16 / sizeof(T), pieces = P::D / piece;
    __syncwarp(); /* the tile has been read */
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::CO; j += 2)
            P::put_pair(tile + P::row(lane, i) * P::LD + P::out(lane, j), o[i][j] * factor[i], o[i][j + 1] * factor[i]);
    __syncwarp();
    for (int i = lane; i < P::ROWS * pieces; i += 32) {
        int row = i / pieces, col = i % pieces * piece;
        if (row >= left || col >= size) continue;
        T *there = to + row * ld + col;
        const T *here = tile + row * P::LD + col;
        if (aligned) {
            copy_16(there, here);
        } else {
            for (int e = 0; e < piece && col + e < size; e++) there[e] = here[e];
        }
    }
}

/* Of a row that LANES neighbours share, in an order that is the same for all of them. */
template <int LANES> static __device__ __forceinline__ float row_max(float v) {
#pragma unroll
    for (int with = 1; with < LANES; with *= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, with));
    return v;
}
template <int LANES> static __device__ __forceinline__ float row_sum(float v) {
#pragma unroll
    for (int with = 1; with < LANES; with *= 2) v += __shfl_xor_sync(0xffffffffu, v, with);
    return v;
}

/* Scores that are not to be seen become 'hidden'. 'first' is the first key of s, 'top' the warp's first query. */
template <class P>
static __device__ __forceinline__ void scores_hide(float (&s)[P::R][P::C], int lane, int top, int first,
                                                   const attention_call &c, float hidden) {
#pragma unroll
    for (int i = 0; i < P::R; i++)
#pragma unroll
        for (int j = 0; j < P::C; j++) {
            int query = top + P::row(lane, i), key = first + P::col(lane, j);
            if (key >= c.positions || (c.causal && key > query)) s[i][j] = hidden;
        }
}

/* ---- which kernel ---------------------------------------------------------------------------- */
struct attention_kernel {
    void (*run)(attention_call);
    size_t bytes; /* of shared memory */
    int rows, threads;
};

/* A kernel of so many warps, each with its scratch beside 'bytes' of tiles. */
template <class P, int WARPS> static attention_kernel attention_sized(void (*run)(attention_call), size_t bytes) {
    return {run, bytes + (size_t)(WARPS * P::SCRATCH) * sizeof(float), P::ROWS * WARPS, 32 * WARPS};
}

/* 'large' where the GPU gives a block as much shared memory: GPUs of 8.6, 8.9 and 12.0 give 99 KiB, others 163 or more. */
static inline attention_kernel attention_fitting(int shared, const attention_kernel &large,
                                                 const attention_kernel &small) {
    return large.bytes <= (size_t)shared ? large : small;
}

static inline cudaError_t attention_prepare(const attention_kernel &k) {
    return cudaFuncSetAttribute((const void *)k.run, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)k.bytes);
}

static inline cudaError_t attention_launch(const attention_kernel &k, const attention_call &c, cudaStream_t s) {
    int64_t blocks = c.samples * c.heads * ((c.positions + k.rows - 1) / k.rows);
    LAUNCH(k.run, (unsigned)blocks, (unsigned)k.threads, k.bytes, s, c);
    return cudaGetLastError();
}

/* The launchers of one kind of kernel, of which WHICH_of chooses one. */
#define ATTENTION_LAUNCHERS(WHICH)                                                                                     \
    extern "C" cudaError_t attention_##WHICH##_prepare(enum element type, int size, int shared) {                      \
        return attention_prepare(WHICH##_of(type, size, shared));                                                      \
    }                                                                                                                  \
    extern "C" size_t attention_##WHICH##_bytes(enum element type, int size, int shared) {                             \
        return WHICH##_of(type, size, shared).bytes;                                                                   \
    }                                                                                                                  \
    extern "C" cudaError_t attention_##WHICH##_launch(const struct attention_call *c, cudaStream_t s) {                \
        return attention_launch(WHICH##_of(c->type, c->size, c->shared), *c, s);                                       \
    }
