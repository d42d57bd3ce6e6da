/* What the ops on images share. */
#pragma once
#include "engine/device/cuda/cuda.h"
#include "engine/device/cuda/image_launch.h"

/* How kernels of channels are cut into blocks and vectors, for rows of 'channels' elements. */
struct channels_cut channels_cut(int64_t rows, int64_t channels, enum element type);
int64_t channels_part_floats(const struct channels_cut *c); /* of the partial sums of two values a channel */
/* Whether it is an image that lies as wanted, or no image: rows lie in one way only. */
static inline bool lies(const struct shape *s, enum layout layout, enum layout wanted) {
    return s->ndim != 3 || layout == wanted;
}
/* Pieces of scratch or saved memory: where the next one begins, when it holds that many bytes. */
static inline size_t piece(size_t *end, size_t bytes) {
    size_t begin = *end;
    *end += (bytes + 255) / 256 * 256;
    return begin;
}
