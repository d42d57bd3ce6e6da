/* Declarations that implementations of ops share. */
#pragma once
#include "engine/base/vector.h"
#include "engine/device/device.h"

/* Plans an op on this implementation, which takes the description. */
MUST_CHECK enum error op_make(const struct op_impl *impl, struct device *dev, const struct op_desc *d, struct op **out);
bool op_takes_any(const struct op_desc *d);   /* true, whatever the description */
bool op_takes_plain(const struct op_desc *d); /* plain images; act_is_fused where it is fused */
/* Whether y has the rows of x, each 'out' long. */
bool op_rows_fit(const struct op_desc *d, int64_t out);

/* Floats of w[0] and w[1]; 0: the op has none. */
void op_weights(const struct op_desc *d, int64_t count[2]);
/* segmented.c: an op of the segments of d, whatever computes each of them. */
MUST_CHECK enum error segmented_create(struct device *dev, const struct op_desc *d, struct op **out);

/* The segments of a batch: itself, where it has none. */
static inline struct segments op_segments(const struct op_desc *d) {
    return d->segments ? *d->segments : (struct segments){1, {0, d->n}};
}

/* The n sums of segment i are in their slot; slots are 'apart' floats from each other. Adds what is complete. */
static inline void slots_add(float *slots, int64_t apart, int i, int64_t n) {
    for (int k = segment_slot(i); k > segment_bottom(i); k--) floats_add(slots + (k - 1) * apart, slots + k * apart, n);
}

/* A batch's floats on either side. op_create has checked that their bytes fit in size_t. */
static inline int64_t op_xs(const struct op_desc *d) {
    return d->n * shape_count(&d->x);
}
/* Rows of the whole batch: n, or n times the positions. */
static inline int64_t op_rows(const struct op_desc *d) {
    return op_xs(d) / shape_last(&d->x);
}
static inline int64_t op_ys(const struct op_desc *d) {
    return d->n * shape_count(&d->y);
}
/* How many places a window has along an axis (0: height, 1: width) of length 'x'; below 1: none. */
static inline int64_t window_places(const struct window *w, int axis, int64_t x) {
    return (x + 2 * w->pad[axis] - w->kernel[axis]) / w->stride[axis] + 1;
}

/* Batchnorm over several batches. measuring: this pass only finds channel c's two sums, and keeps them;
 * applying: it takes those of all batches, whose values a channel then are *count. */
static inline bool norm_measuring(const struct op_args *a) {
    return a->sync && a->sync->pass == NORM_MEASURE;
}
static inline bool norm_applying(const struct op_args *a) {
    return a->sync && a->sync->pass == NORM_APPLY;
}
static inline void norm_keep(const struct op_args *a, int64_t c, double first, double second) {
    a->sync->sums[2 * c] = first;
    a->sync->sums[2 * c + 1] = second;
}
static inline void norm_take(const struct op_args *a, int64_t c, double *first, double *second, double *count) {
    *first = a->sync->sums[2 * c];
    *second = a->sync->sums[2 * c + 1];
    *count = a->sync->count;
}

/* Checks that training has more than one value a channel to normalise by; count: those of this batch. */
MUST_CHECK static inline enum error norm_check_count(const struct op_args *a, int64_t count) {
    if (!a->training || count > 1 || a->sync) return ERR_NONE;
    return FAIL(
        ERR_CONFIG,
        "batchnorm expected more than 1 value per channel when training, got %lld\nmake the batch of each shard larger",
        (long long)count);
}

/* A running moment after one more batch. */
static inline float norm_follow(float running, double batch, float momentum) {
    return (float)((1 - (double)momentum) * (double)running + (double)momentum * batch);
}

/* ---- losses ---- */
/* Row i's target where classes are given: of_label at the label, of_other at the other; see op_args. */
struct loss_target {
    int32_t label, other; /* other: the label itself, where there is none */
    double of_label, of_other;
};
struct loss_target loss_target(const struct op_desc *d, const struct op_args *a, int64_t row);
/* The target's value at class k. */
static inline double loss_target_at(const struct loss_target *t, int64_t k) {
    return (k == t->label ? t->of_label : 0) + (k == t->other ? t->of_other : 0);
}
/* Cross-entropy with more than one label to a row: whether it is, and its target times the weights; each class k has
 * of_each times its weight besides. 'all' is the sum of these over the classes. */
static inline bool loss_is_soft(const struct op_args *a) {
    return a->smoothing > 0 || a->others || a->class_weights;
}
struct soft_target {
    struct loss_target at;
    double of_each, all;
};
double class_weights_sum(const struct op_args *a, int64_t classes);
struct soft_target soft_target(const struct op_desc *d, const struct op_args *a, int64_t row, double weights_sum);
/* The labels, and others if there are any, of the whole batch. */
MUST_CHECK enum error labels_check(const struct op_desc *d, const struct op_args *a);

/* A label comes from data: outside [0, classes) it is ERR_DATA. */
MUST_CHECK enum error label_check(int32_t label, int64_t classes);
/* Whether a row's label is among the LOSS_TOP of its outputs, as op_args.top counts. */
bool label_in_top(const float *x, int64_t classes, int32_t label);
/* Checks a token: ERR_DATA unless it is one of 0, 1, ..., vocabulary - 1. */
MUST_CHECK enum error token_check(float token, int64_t vocabulary);
