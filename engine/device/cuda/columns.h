/* Sums over the rows of a matrix, column by column, in two steps: groups of rows, then the groups. Which rows are a
 * group depends on their number alone, so the bits are the same on every GPU. */
#pragma once
#include "engine/device/cuda/element.h"
#include "engine/device/cuda/launch.h"

enum { COLUMN_GROUPS = 256, COLUMN_ROWS = 8 };
/* Group g has the rows g, g + groups, ... */
static inline int64_t column_groups(int64_t rows) {
    int64_t groups = (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;
    return groups < COLUMN_GROUPS ? groups : (int64_t)COLUMN_GROUPS;
}
/* Bytes of the sums of all groups. */
static inline size_t columns_bytes(int64_t rows, int64_t width) {
    return (size_t)(column_groups(rows) * width) * sizeof(float);
}
/* The second step: out0[c] = sum of partial[g][c], out1[c] = sum of partial[g][width + c]. partial is (groups,
 * width), or (groups, 2, width) when out1 is there. */
LAUNCHER cudaError_t columns_finish(const float *partial, int64_t groups, int64_t width, float *out0, float *out1,
                                    cudaStream_t stream);
