/* Cross-entropy and mean squared error. Samples are summed in their order, by the calling thread: a
 * loss is a thousandth of a step's work. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/kernels.h"

#include <math.h>

static int64_t first_largest(const float *x, int64_t count) {
    int64_t best = 0;
    for (int64_t k = 1; k < count; k++)
        if (x[k] > x[best]) best = k;
    return best;
}

/* ---- cross-entropy -------------------------------------------------------------------------- */
static enum error cross_entropy_forward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_count(&op->desc.x);
    for (int64_t i = 0; i < op->desc.n; i++) {
        const float *x = a->x[0] + i * classes;
        float max;
        double log_sum = kernel_softmax(classes, x, a->y + i * classes, &max);
        if (!a->labels) continue;
        TRY(label_check(a->labels[i], classes));
        a->sums[0] += log_sum - ((double)x[a->labels[i]] - (double)max);
        a->sums[1] += first_largest(x, classes) == a->labels[i];
    }
    return ERR_NONE;
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    int64_t classes = shape_count(&op->desc.x);
    if (!a->dx[0]) return ERR_NONE;
    for (int64_t k = 0; k < op_xs(&op->desc); k++) a->dx[0][k] = a->y[k] * a->scale;
    for (int64_t i = 0; i < op->desc.n; i++) {
        int64_t label = i * classes + a->labels[i];
        a->dx[0][label] = (a->y[label] - 1) * a->scale;
    }
    return ERR_NONE;
}

static enum error cross_entropy_create(struct device *dev, const struct op_desc *d,
                                       struct op **out) {
    return op_create_plain(&cpu_cross_entropy, dev, d, out);
}

const struct op_impl cpu_cross_entropy = {
    .name = "vector",
    .takes = op_takes_any,
    .create = cross_entropy_create,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .free = op_release,
};
