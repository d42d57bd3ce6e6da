/* Windows that slide over an image, as convolutions and pools have them. */
#pragma once
#include "engine/model/layer.h"

struct window_config { /* lists of one number, or of [height, width] */
    struct config_list kernel, stride, pad;
};
/* Reads the window; an absent stride is the kernel. y gets x's channels and the places where the
 * window fits. ERR_CONFIG when the window does not fit in x. */
MUST_CHECK enum error window_plan(const struct window_config *c, const struct shape *x, struct window *w,
                                  struct shape *y);

struct pool_config {
    struct window_config window;
};
extern const struct config_field pool_fields[];
MUST_CHECK enum error pool_plan(const struct pool_config *c, enum pool_kind kind, const struct shape *x,
                                struct layer_plan *p);
