/* Vectors on a lane: what runtime.h asks for, by the kernels of vector.cu. */
#include "engine/device/cuda/parts.h"
#include "engine/device/cuda/vector_launch.h"

#include <assert.h>

_Static_assert((int)VECTOR_DEPTH == (int)LEAVES_DEPTH, "as deep as the tree of all leaves");

/* Pointers, then bytes of leaves_adds. */
enum { TERMS_BYTES = SUM_TERMS * (sizeof(float *) + 1) };

/* More terms than a launch takes along: their table goes to the GPU before it, on the same lane. */
static enum error sum_by_table(struct cuda *c, enum device_lane l, float *to, const float *const *terms, int count,
                               const uint8_t *adds, int64_t n) {
    static const char *const what = "the terms of a sum";
    struct cuda_sent *t = &c->terms[l];
    TRY(t->copied ? cuda_await(c, NULL, t->copied, what) : cuda_sent_open(t, TERMS_BYTES, what));
    const float **term = t->host;
    uint8_t *add = (uint8_t *)(term + SUM_TERMS);
    bool aligned = (uintptr_t)to % 16 == 0;
    for (int i = 0; i < count; i++) {
        term[i] = terms[i];
        add[i] = adds ? adds[i] : i > 0;
        aligned = aligned && (uintptr_t)terms[i] % 16 == 0;
    }
    TRY(cuda_send(c, l, t, TERMS_BYTES, what));
    const struct vector_table table = {t->there, (const uint8_t *)((const float **)t->there + SUM_TERMS)};
    CU(vector_sum_table(to, table, count, aligned, n, c->stream[l]), "a sum of vectors");
    return ERR_NONE;
}

enum error cuda_sum(struct device *d, enum device_lane l, float *to, const float *const *terms, int count,
                    const uint8_t *adds, int64_t n) {
    CUDA_ENTERED(c, d);
    assert(count >= 1 && count <= SUM_TERMS);
    if (n < 1 || (count == 1 && terms[0] == to)) return ERR_NONE;
    if (count > VECTOR_TERMS) return sum_by_table(c, l, to, terms, count, adds, n);
    struct vector_terms t = {{NULL}, {0}};
    for (int i = 0; i < count; i++) {
        t.term[i] = terms[i];
        t.adds[i] = adds ? adds[i] : i > 0;
    }
    CU(vector_sum(to, &t, count, n, c->stream[l]), "a sum of vectors");
    return ERR_NONE;
}

static bool is_low(enum precision p) {
    return p == PRECISION_BF16 || p == PRECISION_FP16;
}

enum error cuda_lower(struct device *d, enum device_lane l, void *to, const float *from, int64_t n, enum precision p) {
    CUDA_ENTERED(c, d);
    if (n < 1) return ERR_NONE;
    if (!is_low(p)) return cuda_copy(d, l, to, d, from, (size_t)n * sizeof *from);
    CU(vector_lower(to, from, n, p == PRECISION_FP16, c->stream[l]), "rounding a vector");
    return ERR_NONE;
}

enum error cuda_raise(struct device *d, enum device_lane l, float *to, const void *from, int64_t n, enum precision p) {
    CUDA_ENTERED(c, d);
    if (n < 1) return ERR_NONE;
    if (!is_low(p)) return cuda_copy(d, l, to, d, from, (size_t)n * sizeof *to);
    CU(vector_raise(to, from, n, p == PRECISION_FP16, c->stream[l]), "widening a vector");
    return ERR_NONE;
}

enum error cuda_accumulate(struct device *d, void *to, const void *from, int64_t n, enum precision p) {
    const enum device_lane l = LANE_COMPUTE;
    CUDA_ENTERED(c, d);
    if (n < 1) return ERR_NONE;
    if (!is_low(p)) return cuda_sum(d, l, to, (const float *const[]){to, from}, 2, NULL, n);
    CU(vector_add_low(to, from, n, p == PRECISION_FP16, c->stream[l]), "adding activations");
    return ERR_NONE;
}

enum error cuda_partials(struct device *d, const float *g, int64_t begin, int64_t end, double *partial) {
    CUDA_ENTERED(c, d);
    assert(begin % NORM_BLOCK == 0 || begin == end);
    if (begin >= end) return ERR_NONE;
    CU(vector_partials(g + begin, end - begin, partial + begin / NORM_BLOCK, c->stream[LANE_COMPUTE]),
       "sums of squares");
    return ERR_NONE;
}

enum error cuda_head(struct device *d, float *header, const double *sums, float scale, float samples, bool stop) {
    CUDA_ENTERED(c, d);
    CU(vector_head(header, sums, scale, samples, stop, c->stream[LANE_COMPUTE]), "the head of the gradients");
    return ERR_NONE;
}
