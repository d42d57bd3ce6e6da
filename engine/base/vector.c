#include "engine/base/vector.h"

VECTORISED static void add_each(float *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

void floats_add(float *to, const float *from, int64_t n) {
    add_each(to, from, n);
}
