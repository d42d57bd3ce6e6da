/* Matrices turned, n of them, and cast on the way. Tiles go through shared memory so that both sides are read and
 * written in lines; where a matrix has few rows or columns (images of 1 or 3 channels) a thread takes one line of them
 * instead, and the cache puts the lines together. */
#include "engine/device/cuda/image_launch.h"
#include "engine/device/cuda/kernel.h"

enum { TILE = 32, TILE_ROWS = 8, FEW = 8 };

template <typename F, typename T>
static __global__ void turn_kernel(const F *from, T *to, int64_t n, int64_t rows, int64_t columns, int64_t tiles_down,
                                   int64_t tiles) {
    SHARED(float, tile, [TILE][TILE + 1]);
    int64_t across = tiles / tiles_down;
    for (int64_t k = blockIdx.x; k < n * tiles; k += gridDim.x) {
        int64_t matrix = k / tiles * rows * columns;
        int64_t row = k % tiles / across * TILE, column = k % tiles % across * TILE;
        int x = (int)threadIdx.x;
        for (int y = (int)threadIdx.y; y < TILE; y += TILE_ROWS)
            if (row + y < rows && column + x < columns)
                tile[y][x] = to_float(from[matrix + (row + y) * columns + column + x]);
        __syncthreads();
        for (int y = (int)threadIdx.y; y < TILE; y += TILE_ROWS)
            if (column + y < columns && row + x < rows)
                to[matrix + (column + y) * rows + row + x] = from_float<T>(tile[x][y]);
        __syncthreads();
    }
}

/* Few rows, many columns. */
template <typename F, typename T>
static __global__ void wide_kernel(const F *from, T *to, int64_t n, int64_t rows, int64_t columns) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < n * columns; k += step) {
        const F *matrix = from + k / columns * rows * columns + k % columns;
        for (int64_t row = 0; row < rows; row++) to[k * rows + row] = from_float<T>(to_float(matrix[row * columns]));
    }
}

/* Many rows, few columns. */
template <typename F, typename T>
static __global__ void tall_kernel(const F *from, T *to, int64_t n, int64_t rows, int64_t columns) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < n * rows; k += step) {
        T *matrix = to + k / rows * rows * columns + k % rows;
        for (int64_t column = 0; column < columns; column++)
            matrix[column * rows] = from_float<T>(to_float(from[k * columns + column]));
    }
}

static unsigned at_most(int64_t blocks) {
    return (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20);
}

template <typename F, typename T>
static cudaError_t turn(const void *from, void *to, int64_t n, int64_t rows, int64_t columns, cudaStream_t stream) {
    auto *wide = wide_kernel<F, T>;
    auto *tall = tall_kernel<F, T>;
    auto *tiled = turn_kernel<F, T>;
    int64_t down = (rows + TILE - 1) / TILE, tiles = down * ((columns + TILE - 1) / TILE);
    if (rows <= FEW)
        LAUNCH(wide, at_most((n * columns + 255) / 256), 256, 0, stream, (const F *)from, (T *)to, n, rows, columns);
    else if (columns <= FEW)
        LAUNCH(tall, at_most((n * rows + 255) / 256), 256, 0, stream, (const F *)from, (T *)to, n, rows, columns);
    else
        LAUNCH(tiled, at_most(n * tiles), dim3(TILE, TILE_ROWS), 0, stream, (const F *)from, (T *)to, n, rows, columns,
               down, tiles);
    return cudaGetLastError();
}

cudaError_t turn_launch(enum value from_v, const void *from, enum value to_v, void *to, int64_t n, int64_t rows,
                        int64_t columns, cudaStream_t stream) {
    if (from_v == VALUE_BF16) return turn<__nv_bfloat16, __nv_bfloat16>(from, to, n, rows, columns, stream);
    if (from_v == VALUE_FP16) return turn<__half, __half>(from, to, n, rows, columns, stream);
    if (to_v == VALUE_BF16) return turn<float, __nv_bfloat16>(from, to, n, rows, columns, stream);
    if (to_v == VALUE_FP16) return turn<float, __half>(from, to, n, rows, columns, stream);
    return turn<float, float>(from, to, n, rows, columns, stream);
}
