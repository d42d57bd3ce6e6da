/* Reading and fitting windows, and what the two pools share. */
#include "engine/model/layers/window.h"

static enum error read_pair(const char *key, const struct config_list *list, int out[2]) {
    const int64_t *v = list->items;
    if (list->count < 1 || list->count > 2)
        return FAIL(ERR_CONFIG, "%s has %d values\ngive one number, or [height, width]", key, list->count);
    out[0] = (int)v[0];
    out[1] = (int)v[list->count - 1];
    return ERR_NONE;
}

enum error window_plan(const struct window_config *c, const struct shape *x, struct window *w, struct shape *y) {
    TRY(read_pair("kernel", &c->kernel, w->kernel));
    TRY(read_pair("stride", c->stride.count ? &c->stride : &c->kernel, w->stride));
    TRY(read_pair("pad", &c->pad, w->pad));
    *y = *x;
    for (int i = 0; i < 2; i++) {
        int64_t room = x->dim[1 + i] + 2 * w->pad[i] - w->kernel[i];
        if (room < 0)
            return FAIL(ERR_CONFIG, "kernel %dx%d with pad %dx%d does not fit in %lldx%lld", w->kernel[0], w->kernel[1],
                        w->pad[0], w->pad[1], (long long)x->dim[1], (long long)x->dim[2]);
        y->dim[1 + i] = room / w->stride[i] + 1;
    }
    return ERR_NONE;
}

enum error pool_plan(const struct pool_config *c, enum pool_kind kind, const struct shape *x, struct layer_plan *p) {
    struct window w = {0};
    TRY(window_plan(&c->window, x, &w, &p->y));
    for (int i = 0; i < 2; i++) /* or a window could lie in the padding alone */
        if (2 * w.pad[i] > w.kernel[i])
            return FAIL(ERR_CONFIG, "pad %d is more than half of kernel %d", w.pad[i], w.kernel[i]);
    p->op = (struct op_desc){.kind = OP_POOL2D, .x = *x, .y = p->y};
    p->op.pool.kind = kind;
    p->op.pool.window = w;
    return ERR_NONE;
}

const struct config_field pool_fields[] = {
    {"kernel", CONFIG_INTS, offsetof(struct pool_config, window.kernel), .required = true, .also = "kernel_size",
     .min = 1, .max = 1024, .help = "Size of the window, one number or [height, width]"},
    {"stride", CONFIG_INTS, offsetof(struct pool_config, window.stride), .min = 1, .max = 1024,
     .help = "Step from one window to the next; the kernel when absent"},
    {"pad", CONFIG_INTS, offsetof(struct pool_config, window.pad), "0", .also = "padding",
     .help = "Rows and columns added around the image", .min = 0, .max = 1024},
    {0},
};
