/* Matrices turned, n of them, and cast on the way. Tiles go through shared memory so that both sides are read and
 * written in lines; where a matrix has few rows or columns (images of 1 or 3 channels, filters of 3x3) a thread takes one line of
 * them instead, and the cache puts the lines together. */
#include "engine/device/cuda/by_type.h"
#include "engine/device/cuda/image_launch.h"

enum { TILE = 32, TILE_ROWS = 8, FEW = 9 };

template <typename F, typename T>
static __global__ void turn_kernel(const F *from, T *to, int64_t n, int64_t rows, int64_t columns, int64_t down) {
    SHARED(float, tile, [TILE][TILE + 1]);
    int64_t across = (columns + TILE - 1) / TILE, tiles = down * across;
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

template <typename F, typename T> static cudaError_t turn_of(const struct turn *t, cudaStream_t stream) {
    auto *wide = wide_kernel<F, T>;
    auto *tall = tall_kernel<F, T>;
    auto *tiled = turn_kernel<F, T>;
    const F *from = (const F *)t->from;
    T *to = (T *)t->to;
    int64_t n = t->n, rows = t->rows, columns = t->columns;
    int64_t down = (rows + TILE - 1) / TILE, tiles = down * ((columns + TILE - 1) / TILE);
    if (rows <= FEW)
        LAUNCH(wide, at_most((n * columns + 255) / 256), 256, 0, stream, from, to, n, rows, columns);
    else if (columns <= FEW)
        LAUNCH(tall, at_most((n * rows + 255) / 256), 256, 0, stream, from, to, n, rows, columns);
    else
        LAUNCH(tiled, at_most(n * tiles), dim3(TILE, TILE_ROWS), 0, stream, from, to, n, rows, columns, down);
    return cudaGetLastError();
}
template <typename F> static cudaError_t turn_to_f32(const struct turn *t, cudaStream_t stream) {
    return turn_of<F, float>(t, stream);
}

cudaError_t turn_launch(const struct turn *t, cudaStream_t stream) {
    if (t->to_type == ELEMENT_F32) return BY_TYPE(t->from_type, turn_to_f32, t, stream);
    return BY_TYPES(t->from_type, t->to_type, turn_of, t, stream);
}
