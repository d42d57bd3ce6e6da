/* What implementations of ops share. */
#pragma once
#include "engine/device/device.h"

/* Gives a zeroed struct of 'size' bytes that begins with struct op, filled in; op_release frees it.
 */
MUST_CHECK enum error op_alloc(size_t size, const struct op_impl *impl, struct device *dev,
                               const struct op_desc *d, struct op **out);
void op_release(struct op *op);
bool op_takes_any(const struct op_desc *d); /* true */
/* create of an implementation with no state of its own. */
MUST_CHECK enum error op_create_plain(const struct op_impl *impl, struct device *dev,
                                      const struct op_desc *d, struct op **out);

/* A batch's floats on either side. op_create has checked that their bytes fit in size_t. */
static inline int64_t op_xs(const struct op_desc *d) {
    return d->n * shape_count(&d->x);
}
static inline int64_t op_ys(const struct op_desc *d) {
    return d->n * shape_count(&d->y);
}
/* How many places a window has along an axis (0: height, 1: width) of length 'x'; below 1: none. */
static inline int64_t window_places(const struct window *w, int axis, int64_t x) {
    return (x + 2 * w->pad[axis] - w->kernel[axis]) / w->stride[axis] + 1;
}

/* A label comes from data: outside [0, classes) it is ERR_DATA. */
MUST_CHECK enum error label_check(int32_t label, int64_t classes);
