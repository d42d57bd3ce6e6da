/* Weights and batches by a formula that tests/reference/torch_models.py has too, so that none need
 * to be stored: a hash of the tensor's name, then of the element's index. */
#pragma once
#include "engine/model/model.h"

#include <math.h>
#include <string.h>

static inline uint32_t formula_word(uint32_t hash, uint32_t k) {
    uint32_t z = hash + k * 0x9E3779B9u;
    z = (z ^ z >> 16) * 0x85EBCA6Bu;
    z = (z ^ z >> 13) * 0xC2B2AE35u;
    return z ^ z >> 16;
}

static inline uint32_t formula_hash(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
    return h;
}

/* From -1 to 1. */
static inline double formula_sign(uint32_t hash, uint32_t k) {
    return 2 * ((formula_word(hash, k) >> 8) / (double)(1 << 24)) - 1;
}

/* Matrices keep the size of what goes through them; what is added is small, what multiplies is
 * about 1. */
static inline void formula_tensor(const struct tensor_info *t, float *v) {
    uint32_t hash = formula_hash(t->name);
    size_t n = strlen(t->name);
    bool adds = n >= 4 && !strcmp(t->name + n - 4, "bias");
    double scale = sqrt(3.0 * (double)t->shape.dim[0] / (double)t->count);
    for (uint32_t k = 0; k < (uint32_t)t->count; k++) {
        double s = formula_sign(hash, k);
        v[k] = (float)(t->shape.ndim > 1 ? s * scale : adds ? 0.1 * s : 1 + 0.2 * s);
    }
}
